"""A TiDB session's transaction: reads its own writes, buffers them, commits at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from operator import itemgetter

from tidemill.binlog.messages import Binlog, BinlogType, MutationType
from tidemill.binlog.row_bytes import deleted_row, inserted_row, updated_row
from tidemill.errors import SqlError
from tidemill.playground.sql.binlogs import Binlogs, RowBinlog, prewritten, transact
from tidemill.playground.sql.catalog import Table
from tidemill.playground.sql.rows.rowcodec import Row
from tidemill.playground.store.cluster import Cluster, CommitMode, Mutation
from tidemill.playground.store.mvcc import KeyLocked, LockKind, WriteConflict

Savepoint = tuple[dict[bytes, bytes | None], int, int]

ONE_PHASE_KEYS = 256
ONE_PHASE_KEY_BYTES = 4096
"""TiDB commits in one phase what lies in one region and has at most so many keys."""


class Transaction:
    """Buffered writes over the newest committed state. Without 1PC, every commit is two-phase. With `binlogs` it has to be told of each
    change of a row; they are written as binlogs then. An explicit transaction locks rows: what it locks and does not write, the change feed
    shows as lock-only commits. The locks keep nobody out: sessions do not wait for each other here."""

    def __init__(
        self, cluster: Cluster, *, one_phase: bool = True, source: int = 0, binlogs: Binlogs | None = None, explicit: bool = False
    ) -> None:
        self._cluster, self._one_phase, self._source, self._binlogs, self._explicit = cluster, one_phase, source, binlogs, explicit
        self._locked: dict[bytes, None] = {}
        self._rows: list[RowBinlog] = []
        self.start_ts = cluster.oracle.next()
        self._writes: dict[bytes, bytes | None] = {}
        self._undo: list[Callable[[], None]] = []

    def get(self, key: bytes) -> bytes | None:
        """The value of a key. Raises SqlError when another transaction holds it."""
        if key in self._writes:
            return self._writes[key]
        lock = self._cluster.mvcc.locks.get(key)
        if lock is not None and lock.kind is not LockKind.PESSIMISTIC:
            raise SqlError(f"the key {key.hex()} is locked by the transaction {lock.start_ts}")
        newest = self._cluster.mvcc.tablet(key).newest(key)
        return newest[2] if newest else None

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values of a range, in key order."""
        mine = sorted((key, 0, value) for key, value in self._writes.items() if start <= key < end)
        stored = ((key, 1, history[-1][2]) for key, history in self._cluster.mvcc.items(start, end))
        last = None
        for key, _, value in merge(mine, stored, key=itemgetter(0, 1)):
            if key != last and value is not None:
                yield key, value
            last = key

    def put(self, key: bytes, value: bytes) -> None:
        """Write a key."""
        self._writes[key] = value

    def delete(self, key: bytes) -> None:
        """Delete a key."""
        self._writes[key] = None

    def lock(self, key: bytes) -> None:
        """Lock a key, as SELECT ... FOR UPDATE and a pessimistic UPDATE do. A statement that commits at once locks nothing."""
        if self._explicit:
            self._locked[key] = None

    # what binlogs tell

    def inserted(self, table: Table, key: bytes, row: Row) -> None:
        """A row has been inserted."""
        if self._binlogs is not None:
            self._rows.append(RowBinlog(table.id, MutationType.INSERT, inserted_row(table.model, key, row)))

    def updated(self, table: Table, key: bytes, before: Row, after: Row) -> None:
        """A row has been changed, but for its key."""
        if self._binlogs is not None:
            self._rows.append(RowBinlog(table.id, MutationType.UPDATE, updated_row(table.model, key, before, after)))

    def deleted(self, table: Table, key: bytes, row: Row) -> None:
        """A row has been deleted."""
        if self._binlogs is not None:
            self._rows.append(RowBinlog(table.id, MutationType.DELETE_ROW, deleted_row(table.model, key, row)))

    # its end

    def on_rollback(self, undo: Callable[[], None]) -> None:
        """Something to be undone if the transaction does not commit."""
        self._undo.append(undo)

    def savepoint(self) -> Savepoint:
        """The state to return to when a statement fails."""
        return dict(self._writes), len(self._undo), len(self._rows)

    def restore(self, savepoint: Savepoint) -> None:
        """Undo what was done since a savepoint."""
        self._writes, undone, told = savepoint
        del self._rows[told:]
        while len(self._undo) > undone:
            self._undo.pop()()

    def rollback(self) -> None:
        """Forget everything."""
        self.restore(({}, 0, 0))
        self._locked.clear()

    def commit(self) -> int:
        """Write all at once; the commit_ts, 0 if there was nothing to write.

        Raises SqlError on a conflict; the transaction is rolled back then.
        """
        mutations = self.mutations()
        if not mutations and not self._locked:
            return 0
        try:
            return self._transact(mutations)
        except (KeyLocked, WriteConflict) as error:
            self.rollback()
            raise SqlError(f"write conflict: {error}") from error

    def _transact(self, mutations: list[Mutation]) -> int:
        read_ts, binlogs = self._cluster.oracle.last, self._binlogs
        if binlogs is None or not self._rows:
            locked = list(self._locked.keys() - dict(mutations).keys())
            mode = self._mode(mutations)
            return self._cluster.transact(mutations, mode, start_ts=self.start_ts, read_ts=read_ts, source=self._source, locked=locked)
        value = prewritten(binlogs.schema_version(), self._rows)
        binlog = Binlog(BinlogType.PREWRITE, self.start_ts, prewrite_key=mutations[0][0], prewrite_value=value)
        try:
            return transact(self._cluster, binlogs.writer, binlog, mutations, read_ts=read_ts, source=self._source)
        except SqlError:
            self.rollback()
            raise

    def mutations(self) -> list[Mutation]:
        """What would be written."""
        return [(key, value) for key, value in self._writes.items() if self._is_change(key, value)]

    def _is_change(self, key: bytes, value: bytes | None) -> bool:
        newest = self._cluster.mvcc.tablet(key).newest(key)
        return value != (newest[2] if newest else None)

    def _mode(self, mutations: list[Mutation]) -> CommitMode:
        if not self._one_phase or len(mutations) > ONE_PHASE_KEYS or sum(len(key) for key, _ in mutations) > ONE_PHASE_KEY_BYTES:
            return CommitMode.TWO_PHASE
        if not mutations:
            return CommitMode.TWO_PHASE
        region = self._cluster.regions.at(mutations[0][0])
        return CommitMode.ONE_PHASE if all(region.holds(key) for key, _ in mutations) else CommitMode.TWO_PHASE
