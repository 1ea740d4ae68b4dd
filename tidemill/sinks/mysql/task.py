"""The half of the sink in a Python worker: rows → windows → lanes → committed transactions."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from tidemill.config.database import Atomicity
from tidemill.config.uri import SinkUri
from tidemill.errors import SinkError
from tidemill.kernels.rows.views import RowArray
from tidemill.kernels.sql import SqlRows
from tidemill.protocols.common.messages import Messages
from tidemill.protocols.sql.literals import SqlTable
from tidemill.protocols.sql.missed import Missed, Statement
from tidemill.protocols.sql.missing import ddl_for
from tidemill.sinks.base import BatchContext, Target, taken_late
from tidemill.sinks.mysql.bookkeeping import Attempt, Done, Gate, attempt_in_force, checkpoint_gate, lane_gate
from tidemill.sinks.mysql.codes import Fate
from tidemill.sinks.mysql.connection import ServerFault
from tidemill.sinks.mysql.lanes import Lane
from tidemill.sinks.mysql.statements import Limits, TableStatements
from tidemill.sinks.mysql.window import Lane as LaneRows
from tidemill.sinks.mysql.window import Transaction, Window, is_loaded

WINDOW_ROWS = 16_384
WINDOW_BYTES = 32 << 20
KNOWN_TABLES = 4096
"""Tables whose statements are kept; with more all are made again."""


class MysqlTaskSink:
    """One for each worker process. While a window is written the next one is filled."""

    def __init__(self, uri: SinkUri) -> None:
        self._options = options = uri.database
        self._limits = Limits(
            rows=options.max_txn_rows,
            update_rows=options.max_multi_update_rows,
            update_row_bytes=options.max_multi_update_row_size,
            merge=options.batch_dml,
        )
        self._lanes: list[Lane] = []
        self._pool = ThreadPoolExecutor(max_workers=options.workers, thread_name_prefix="mysql-lane")
        self._texts: dict[SqlTable, TableStatements] = {}
        self._failed = threading.Event()
        self._running: list[Future[None]] = []
        self._window = Window(options.atomicity)
        self._attempt: Attempt | None = None
        self._ctx: BatchContext | None = None
        self._taken = 0

    def begin(self, ctx: BatchContext) -> None:
        """Start an item."""
        self._ctx, self._attempt, self._taken = ctx, None, 0
        self._window = Window(self._options.atomicity)
        self._failed = threading.Event()
        if len(self._texts) > KNOWN_TABLES:
            self._texts.clear()
        for lane in self._lanes:
            lane.stopped = self._failed
            lane.missed.take()

    def missed(self) -> tuple[int, tuple[str, ...]]:
        """Return how many rows since `begin` were to be changed or deleted and were not there, and name some."""
        whole = Missed()
        for lane in self._lanes:
            whole.add(lane.missed.take())
        return whole.rows, tuple(whole.names)

    @property
    def _in_force(self) -> tuple[BatchContext, Attempt]:
        """The item's attempt, looked up once. Raises Fenced, SinkError, SinkUnavailable."""
        assert self._ctx is not None, "begin comes first"
        if self._attempt is None:
            lane = self._lane(0)
            try:
                found = _asked(lane, self._ctx.feed)
            except ServerFault as fault:
                lane.close()
                raise fault.error(f"{self._options.host}:{self._options.port}") from fault
            if found is None or found.epoch != self._ctx.epoch:
                what = f"the database knows another attempt than epoch {self._ctx.epoch} of changefeed {self._ctx.feed}"
                raise taken_late(self._ctx.check_fence, what)
            self._attempt = found
        return self._ctx, self._attempt

    def deliver(self, messages: Messages, targets: Sequence[Target]) -> None:
        """Take a chunk. Rows of a unit may come in several chunks, but never after a row with a higher commit_ts."""
        if not isinstance(messages, SqlRows):
            raise SinkError("the rows did not come as SQL: a bug")
        if not len(messages):
            return
        if self._full and self._may_end(messages.rows):
            self._write()
        self._window.add(messages)
        self._taken += len(messages)

    def _may_end(self, rows: RowArray) -> bool:
        """Whether no unit has rows in the window and among the next ones."""
        if self._options.atomicity is Atomicity.NONE or int(rows["commit_ts"].min()) > self._window.last_commit_ts:
            return True
        return bool(is_loaded(rows).all())

    @property
    def _full(self) -> bool:
        return len(self._window) >= WINDOW_ROWS or self._window.bytes >= WINDOW_BYTES

    def _lane(self, number: int) -> Lane:
        while len(self._lanes) <= number:
            self._lanes.append(Lane(self._options))
            self._lanes[-1].stopped = self._failed
        return self._lanes[number]

    def _write(self) -> None:
        """Begin to write the window, when the one before is written."""
        self._await()
        ctx, attempt = self._in_force
        window, self._window = self._window, Window(self._options.atomicity)
        if not len(window) or attempt.done >= Done.ROWS:
            return
        if self._options.atomicity is Atomicity.GLOBAL:
            self._lane(0)
            self._running.append(self._pool.submit(self._write_serial, window.serial(attempt.checkpoint_ts), ctx, attempt))
            return
        most = max(1, self._options.workers // max(1, ctx.items))
        for number, rows in enumerate(window.lanes(most)):
            self._lane(number)
            self._running.append(self._pool.submit(self._write_lane, number, rows, ctx, attempt, (max(ctx.item, 0) * most + number)))

    def _write_lane(self, number: int, rows: LaneRows, ctx: BatchContext, attempt: Attempt, slot: int) -> None:
        try:
            gate = lane_gate(ctx.feed, slot % self._options.workers, attempt)
            for transaction in rows.transactions(self._options.max_txn_rows):
                self._write_one(self._lanes[number], transaction, ctx, attempt, gate)
        except BaseException:
            self._failed.set()
            raise

    def _write_serial(self, rows: LaneRows, ctx: BatchContext, attempt: Attempt) -> None:
        """Write transactions that move the checkpoint. Those of an initial load do not: rows of the same ts may follow."""
        try:
            for transaction in rows.transactions(self._options.max_txn_rows):
                gate = checkpoint_gate(ctx.feed, attempt, transaction.reached_ts)
                self._write_one(self._lanes[0], transaction, ctx, attempt, gate)
        except BaseException:
            self._failed.set()
            raise

    def _write_one(self, lane: Lane, transaction: Transaction, ctx: BatchContext, attempt: Attempt, gate: Gate) -> None:
        safe = self._options.safe_mode or transaction.least_ts <= attempt.safe_ts

        def make(again: bool, size: int) -> Iterable[Statement]:
            return transaction.statements(self._texts, self._limits.within(size), safe=again)

        try:
            lane.write(make, gate, ctx.check_fence, safe=safe)
        except SinkError as error:
            raise _with_ddl(error, transaction.tables) from error.__cause__

    def _await(self) -> None:
        """Wait until what runs is committed. Raises the first error that says why."""
        running = self._running  # taken here: another thread may abandon the attempt meanwhile
        while wait(running, timeout=0.5).not_done:
            if self._ctx is not None and not self._failed.is_set():
                self._ctx.check_fence()
        self._running = []
        errors = [error for error in (one.exception() for one in running) if error is not None]
        errors.sort(key=lambda error: str(error).endswith(": stopped"))
        for error in errors:
            raise error

    def flush(self) -> int:
        """Write what is left. Returns the number of rows since `begin`. Raises Fenced, SinkError, SinkUnavailable."""
        if len(self._window):
            self._write()
        self._await()
        return self._taken

    def abandon(self) -> None:
        """Undo what is not committed: the connections are closed, when what ran over them has ended."""
        self._failed.set()
        for lane in self._lanes:
            lane.interrupt()
        wait(self._running)
        for lane in self._lanes:
            lane.close()
        self._running, self._window = [], Window(self._options.atomicity)


def _with_ddl(error: SinkError, tables: Iterable[SqlTable]) -> SinkError:
    """Return the error, with the DDL that makes what the database lacks."""
    fault = error.__cause__
    ddl = ddl_for(fault.code, fault.text, tables) if isinstance(fault, ServerFault) else ""
    return SinkError(error.message, hint=f"{error.hint} Upstream it is as of: {ddl}") if ddl else error


def _asked(lane: Lane, feed: str) -> Attempt | None:
    """Ask for the attempt in force, a second time if the connection was closed meanwhile."""
    try:
        return attempt_in_force(lane.connection, feed)
    except ServerFault as fault:
        if fault.fate is not Fate.RECONNECT:
            raise
    lane.close()
    return attempt_in_force(lane.connection, feed)
