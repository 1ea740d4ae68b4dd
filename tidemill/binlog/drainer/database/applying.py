"""Transactions upstream → transactions downstream.

With one worker a transaction upstream is whole downstream, and their order is kept; several are committed together. With more workers rows
are dealt out by their unique keys, so a transaction upstream is divided, and what comes to one row stays in order. Either way all of what
was given is committed when `write` returns: nothing waits for more rows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import chain

from tidemill.binlog.drainer.database.dealing import dealt
from tidemill.binlog.drainer.database.merging import merged_statements, plain_statements
from tidemill.binlog.outputs.writes import RowWrite, Work
from tidemill.config.database import MysqlOptions
from tidemill.errors import SinkUnavailable
from tidemill.sinks.mysql.bookkeeping import Gate
from tidemill.sinks.mysql.connection import Connection
from tidemill.sinks.mysql.lanes import Lane
from tidemill.sinks.mysql.statements import Limits
from tidemill.tso import describe

TRIES, RETRY_S = 100, 1.0
BATCH = 256
"""Rows of a transaction of one of several workers, where nothing else is said."""
_OPEN = Gate(b"BEGIN;SELECT 0")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Manner:
    """How rows are written. `batch`: rows of a transaction downstream; 0: with one worker all that came together. `apart`: each transaction
    upstream is one downstream."""

    workers: int = 1
    batch: int = 0
    merge: bool = False
    apart: bool = False

    @property
    def divided(self) -> bool:
        """Whether transactions upstream are divided."""
        return self.workers > 1 and not self.apart


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
        self._lanes = [Lane(options, prepare) for _ in range(count)]
        for lane in self._lanes:
            lane.stopped = self._ending
        self._pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix="apply") if manner.divided else None
        self._limits = Limits(rows=max(manner.batch, BATCH))

    def write(self, works: Sequence[Work], *, safe: bool) -> None:
        """Write and commit. `safe`: rows may have been written before. Raises SinkError, MalformedRow."""
        if self._manner.divided:
            self._side_by_side([row for work in works for row in work.rows()], works[-1].commit_ts if works else 0, safe=safe)
            return
        for some in self._together(works):
            self._commit(0, lambda some=some: chain.from_iterable(work.rows() for work in some), some[-1].commit_ts, safe=safe)  # type: ignore[misc]

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
        assert self._pool is not None
        batch = self._manner.batch or BATCH
        tasks = [
            self._pool.submit(self._write_lane, number, own, batch, commit_ts, safe)
            for number, own in enumerate(dealt(rows, self._manner.workers, batch))
        ]
        wait(tasks)
        for error in filter(None, (task.exception() for task in tasks)):
            raise error

    def _write_lane(self, number: int, rows: list[RowWrite], batch: int, commit_ts: int, safe: bool) -> None:
        for begin in range(0, len(rows), batch):
            some = rows[begin : begin + batch]
            self._commit(number, lambda some=some: some, commit_ts, safe=safe)  # type: ignore[misc]

    def _commit(self, number: int, rows: Callable[[], Iterable[RowWrite]], commit_ts: int, *, safe: bool) -> None:
        """Run one transaction, and try again where the database cannot be reached. A second attempt is safe: the first may have been
        committed before its answer was lost."""

        def make(again: bool, size: int) -> Iterator[bytes]:
            if self._mark is not None:
                yield self._mark(number)
            if self._manner.merge:
                yield from merged_statements(rows(), self._limits.within(size), safe=again)
            else:
                yield from plain_statements(rows(), safe=again)

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
        if self._pool is not None:
            self._pool.shutdown()


def _unfenced(*, now: bool = False) -> None:
    """A Drainer has the downstream for itself."""
