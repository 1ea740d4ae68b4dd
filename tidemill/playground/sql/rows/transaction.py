"""A TiDB session's transaction: reads its own writes, buffers them, commits at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from operator import itemgetter

from tidemill.errors import SqlError
from tidemill.playground.store.cluster import Cluster, CommitMode, Mutation
from tidemill.playground.store.mvcc import KeyLocked, LockKind, WriteConflict

ONE_PHASE_KEYS = 256
ONE_PHASE_KEY_BYTES = 4096
"""TiDB commits in one phase what lies in one region and has at most so many keys."""


class Transaction:
    """Buffered writes over the newest committed state. Without 1PC, every commit is two-phase."""

    def __init__(self, cluster: Cluster, *, one_phase: bool = True, source: int = 0) -> None:
        self._cluster, self._one_phase, self._source = cluster, one_phase, source
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

    def on_rollback(self, undo: Callable[[], None]) -> None:
        """Something to be undone if the transaction does not commit."""
        self._undo.append(undo)

    def savepoint(self) -> tuple[dict[bytes, bytes | None], int]:
        """The state to return to when a statement fails."""
        return dict(self._writes), len(self._undo)

    def restore(self, savepoint: tuple[dict[bytes, bytes | None], int]) -> None:
        """Undo what was done since a savepoint."""
        self._writes, undone = savepoint
        while len(self._undo) > undone:
            self._undo.pop()()

    def rollback(self) -> None:
        """Forget everything."""
        self.restore(({}, 0))

    def commit(self) -> int:
        """Write all at once; the commit_ts, 0 if there was nothing to write.

        Raises SqlError on a conflict; the transaction is rolled back then.
        """
        mutations = self.mutations()
        if not mutations:
            return 0
        try:
            return self._cluster.transact(
                mutations, self._mode(mutations), start_ts=self.start_ts, read_ts=self._cluster.oracle.last, source=self._source
            )
        except (KeyLocked, WriteConflict) as error:
            self.rollback()
            raise SqlError(f"write conflict: {error}") from error

    def mutations(self) -> list[Mutation]:
        """What would be written."""
        return [(key, value) for key, value in self._writes.items() if self._is_change(key, value)]

    def _is_change(self, key: bytes, value: bytes | None) -> bool:
        newest = self._cluster.mvcc.tablet(key).newest(key)
        return value != (newest[2] if newest else None)

    def _mode(self, mutations: list[Mutation]) -> CommitMode:
        if not self._one_phase or len(mutations) > ONE_PHASE_KEYS or sum(len(key) for key, _ in mutations) > ONE_PHASE_KEY_BYTES:
            return CommitMode.TWO_PHASE
        region = self._cluster.regions.at(mutations[0][0])
        return CommitMode.ONE_PHASE if all(region.holds(key) for key, _ in mutations) else CommitMode.TWO_PHASE
