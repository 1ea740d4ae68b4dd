"""Transactions upstream → transactions downstream.

With one worker a transaction upstream is whole downstream, and their order is kept; several are committed together. With more workers rows
are dealt out by their unique keys, so a transaction upstream is divided, and what comes to one row stays in order. Either way nothing waits
for more rows. `write` returns when all is committed, `begin` when the window before is, so that the next one is made ready meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import chain

from tidemill.binlog.drainer.database.dealing import dealt
from tidemill.binlog.drainer.database.merging import merged_statements, plain_statements
from tidemill.binlog.outputs.writes import KNOWN, RowWrite, Work
from tidemill.config.database import Atomicity, MysqlOptions
from tidemill.errors import SinkUnavailable
from tidemill.protocols.sql.hints import Program
from tidemill.protocols.sql.literals import SqlTable
from tidemill.protocols.sql.missed import EVERY_S, Missed, Statement
from tidemill.sinks.mysql.bookkeeping import Gate
from tidemill.sinks.mysql.connection import Connection
from tidemill.sinks.mysql.lanes import Lane, Make
from tidemill.sinks.mysql.statements import Limits, TableStatements
from tidemill.sinks.mysql.window import Lane as LaneRows
from tidemill.sinks.mysql.window import Transaction, Window
from tidemill.tso import describe

TRIES, RETRY_S = 100, 1.0
BATCH = 256
"""Rows of a transaction of one of several workers, where nothing else is said."""
ALL = 1 << 62
"""As many rows as came together."""
_OPEN = Gate(b"BEGIN;SELECT 0")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Manner:
    """How rows are written. `batch`: rows of a transaction downstream; 0: with one worker all that came together. `apart`: each transaction
    upstream is one downstream. `program`: whose remedies errors name."""

    workers: int = 1
    batch: int = 0
    merge: bool = False
    apart: bool = False
    program: Program = Program.DRAINER

    @property
    def divided(self) -> bool:
        """Whether transactions upstream are divided."""
        return self.workers > 1 and not self.apart

    @property
    def whole(self) -> Atomicity:
        """What of a transaction upstream becomes visible downstream at once."""
        return Atomicity.NONE if self.divided else Atomicity.GLOBAL

    @property
    def transaction_rows(self) -> int:
        """Rows of a transaction downstream, about."""
        if self.divided:
            return self.batch or BATCH
        return 1 if self.apart else self.batch or ALL


class Applier:
    """Not safe for threads. `prepare` sets a new session up. `mark`: the statement that each transaction of a worker begins with."""

    def __init__(
        self,
        options: MysqlOptions,
        manner: Manner,
        prepare: Callable[[Connection], None],
        mark: Callable[[int], bytes] | None = None,
    ) -> None:
        self._where = f"{options.host}:{options.port}"
        self._manner, self._mark = manner, mark
        self._ending = threading.Event()
        count = manner.workers if manner.divided else 1
        self._lanes = [Lane(options, prepare, manner.program) for _ in range(count)]
        for lane in self._lanes:
            lane.stopped = self._ending
        self._pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix="apply")
        self._running: list[Future[None]] = []
        self._texts: dict[SqlTable, TableStatements] = {}
        self._limits = Limits(rows=max(manner.batch, BATCH))
        self._missed, self._told_at = Missed(), -EVERY_S

    def write(self, works: Sequence[Work], *, safe: bool) -> None:
        """Write and commit. `safe`: rows may have been written before. Raises SinkError, MalformedRow."""
        self.finish()
        if self._manner.divided:
            self._side_by_side([row for work in works for row in work.rows()], works[-1].commit_ts if works else 0, safe=safe)
        else:
            for some in self._together(works):
                self._commit(0, self._one_by_one(partial(_rows_of, some)), some[-1].commit_ts, safe=safe)
        self._tell_missed()

    def _together(self, works: Sequence[Work]) -> Iterator[Sequence[Work]]:
        """Yield the transactions upstream that are committed together."""
        most = 1 if self._manner.apart else self._manner.batch
        begin = rows = 0
        for end, work in enumerate(works, 1):
            rows += work.count
            if end == len(works) or (most and rows >= most):
                yield works[begin:end]
                begin, rows = end, 0

    def _side_by_side(self, rows: list[RowWrite], commit_ts: int, *, safe: bool) -> None:
        batch = self._manner.batch or BATCH
        tasks = [
            self._pool.submit(self._write_lane, number, own, batch, commit_ts, safe)
            for number, own in enumerate(dealt(rows, self._manner.workers, batch))
        ]
        _finished(tasks)

    def begin(self, window: Window, tables: Iterable[SqlTable], *, safe: bool) -> None:
        """Begin to write a window, of rows of these tables, when the one before is written. `safe` as of `write`. Raises SinkError."""
        self.finish()
        self._know(tables)
        lanes = window.lanes(self._manner.workers) if self._manner.divided else [window.serial(0)]
        self._running = [self._pool.submit(self._write_rows, number, rows, safe) for number, rows in enumerate(lanes)]

    def _know(self, tables: Iterable[SqlTable]) -> None:
        """Have the statements of tables ready."""
        if len(self._texts) > KNOWN:
            self._texts = {}
        for table in tables:
            self._texts.setdefault(table, TableStatements(table, None))

    def write_in_windows(self, windows: Callable[[], Iterable[Window]], commit_ts: int, *, safe: bool) -> None:
        """Write and commit one transaction that is too large for one window: each is written before the next is made. Every attempt asks
        for the windows from the first on. `safe` as of `write`. Raises SinkError, MalformedRow."""
        self.finish()

        def make(again: bool, size: int) -> Iterator[Statement]:
            for window in windows():
                for transaction in window.serial(0).transactions(ALL):
                    self._know(transaction.tables)
                    yield from self._statements_of(transaction)(again, size)

        self._commit(0, make, commit_ts, safe=safe)

    def finish(self) -> None:
        """Return when all that was begun is committed. Raises SinkError."""
        running, self._running = self._running, []
        _finished(running)
        self._tell_missed()

    def _tell_missed(self) -> None:
        """Count the rows that were not there, and warn of them, at most every ten seconds."""
        for lane in self._lanes:
            self._missed.add(lane.missed.take())
        if self._missed.names and time.monotonic() - self._told_at >= EVERY_S:
            names, self._missed.names, self._told_at = self._missed.names, [], time.monotonic()
            text = "%s: %d rows in all that were to be changed or deleted were not there: %s"
            _log.warning(text, self._where, self._missed.rows, "; ".join(names))

    @property
    def missed_rows(self) -> int:
        """How many rows were to be changed or deleted and were not there, since the start."""
        return self._missed.rows

    def _write_rows(self, number: int, rows: LaneRows, safe: bool) -> None:
        for transaction in rows.transactions(self._manner.transaction_rows):
            self._commit(number, self._statements_of(transaction), transaction.least_ts, safe=safe)

    def _statements_of(self, transaction: Transaction) -> Make:
        merge = self._manner.merge
        return lambda again, size: transaction.statements(self._texts, self._limits.within(size), safe=again or merge)

    def _write_lane(self, number: int, rows: list[RowWrite], batch: int, commit_ts: int, safe: bool) -> None:
        for begin in range(0, len(rows), batch):
            some = rows[begin : begin + batch]
            self._commit(number, self._one_by_one(partial(iter, some)), commit_ts, safe=safe)

    def _one_by_one(self, rows: Callable[[], Iterable[RowWrite]]) -> Make:
        if self._manner.merge:
            return lambda again, size: merged_statements(rows(), self._limits.within(size), safe=again)
        return lambda again, size: plain_statements(rows(), safe=again)

    def _commit(self, number: int, statements: Make, commit_ts: int, *, safe: bool) -> None:
        """Run one transaction, and try again where the database cannot be reached. A second attempt is safe: the first may have been
        committed before its answer was lost."""

        def make(again: bool, size: int) -> Iterator[Statement]:
            if self._mark is not None:
                yield Statement(self._mark(number))
            yield from statements(again, size)

        for tries in range(1, TRIES + 1):
            try:
                self._lanes[number].write(make, _OPEN, _unfenced, safe=safe or tries > 1)
                return
            except SinkUnavailable as error:
                if tries == TRIES or self._ending.wait(RETRY_S):
                    raise
                _log.warning("%s: rows up to %s: %s: trying again", self._where, describe(commit_ts), error.message)

    def close(self) -> None:
        """End what runs, and close the connections. What is not committed is undone."""
        self._ending.set()
        for lane in self._lanes:
            lane.close()
        self._pool.shutdown()


def _rows_of(works: Sequence[Work]) -> Iterator[RowWrite]:
    return chain.from_iterable(work.rows() for work in works)


def _finished(tasks: Sequence[Future[None]]) -> None:
    wait(tasks)
    for error in filter(None, (task.exception() for task in tasks)):
        raise error


def _unfenced(*, now: bool = False) -> None:
    """A Drainer has the downstream for itself."""
