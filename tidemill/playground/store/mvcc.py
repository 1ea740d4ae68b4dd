"""Versioned keys with locks, as TiKV's transactional store keeps them. Pure: no IO, no clock.

Keys are raw (no memcomparable outer encoding). They are kept in *tablets*: one for every table's records (`t` id `_r`) and one
for all meta keys (`m`), each a dict plus a lazily sorted list, so that ordered scans cost a merge and writes cost a dict access.
Rows that were loaded in bulk lie in immutable blocks (see `blocks.py`) until they are first changed.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from operator import itemgetter

from tidemill.playground.store.blocks import Block

Version = tuple[int, int, bytes | None]
"""(commit_ts, start_ts, value); None is a deletion."""

RECORD_PREFIX = 11
"""Bytes of `t` + table id + `_r`."""


class LockKind(enum.Enum):
    """What a lock will do to its key when its transaction commits."""

    PUT = "put"
    DELETE = "delete"
    LOCK = "lock"  # SELECT FOR UPDATE: no version
    PESSIMISTIC = "pessimistic"  # taken while a transaction runs: invisible to the change feed


@dataclass(slots=True)
class Lock:
    """A key that a transaction holds."""

    key: bytes
    primary: bytes
    start_ts: int
    kind: LockKind
    value: bytes | None = None
    ttl_ms: int = 3000
    source: int = 0  # txn_source
    min_commit_ts: int = 0
    async_commit: bool = False
    secondaries: tuple[bytes, ...] = ()  # of an async-commit primary: all other keys

    @property
    def holds_back(self) -> bool:
        """Whether resolved ts must wait for it."""
        return self.kind in (LockKind.PUT, LockKind.DELETE)


class KeyLocked(Exception):
    """A read or write meets another transaction's lock."""

    def __init__(self, lock: Lock) -> None:
        super().__init__(f"key {lock.key.hex()} is locked by the transaction {lock.start_ts}")
        self.lock = lock


class WriteConflict(Exception):
    """The key was written after the transaction had read it."""

    def __init__(self, key: bytes, start_ts: int, conflict_ts: int) -> None:
        super().__init__(f"key {key.hex()} was written at {conflict_ts}, after {start_ts}")
        self.key, self.start_ts, self.conflict_ts = key, start_ts, conflict_ts


class TxnLockNotFound(Exception):
    """A commit finds neither its lock nor its own version."""

    def __init__(self, key: bytes, start_ts: int) -> None:
        super().__init__(f"the transaction {start_ts} holds no lock on key {key.hex()}")
        self.key, self.start_ts = key, start_ts


class Tablet:
    """All keys with one prefix: changed ones with their versions (oldest first), bulk-loaded ones in blocks."""

    def __init__(self) -> None:
        self.versions: dict[bytes, list[Version]] = {}
        self.blocks: list[Block] = []
        self._sorted: list[bytes] = []
        self._new: list[bytes] = []
        self._changes = 0

    def history(self, key: bytes) -> list[Version]:
        """The versions of a key, oldest first; empty if there are none. Not to be changed."""
        found = self.versions.get(key)
        if found is not None:
            return found
        for block in self.blocks:
            position = block.find(key)
            if position is not None:
                return [(block.commit_ts, block.start_ts, block.value(position))]
        return []

    def newest(self, key: bytes) -> Version | None:
        """The newest version of a key."""
        history = self.history(key)
        return history[-1] if history else None

    def add(self, key: bytes, version: Version) -> bytes | None:
        """Add a version in its place by commit_ts and return the value that it replaces."""
        history = self.versions.get(key)
        if history is None:
            history = self._adopt(key)
            self.versions[key] = history
            self._new.append(key)
        if not history or history[-1][0] < version[0]:
            old = history[-1][2] if history else None
            history.append(version)
            return old
        insort(history, version, key=itemgetter(0))
        position = history.index(version)
        return history[position - 1][2] if position else None

    def _adopt(self, key: bytes) -> list[Version]:
        """Take a bulk-loaded row out of its block."""
        for block in self.blocks:
            position = block.find(key)
            if position is not None:
                self._changes += 1
                block.take(position, self._changes)
                return [(block.commit_ts, block.start_ts, block.value(position))]
        return []

    def keys(self, start: bytes, end: bytes) -> list[bytes]:
        """Changed keys in [start, end), in order; an empty end has no bound."""
        if self._new:
            self._sorted.extend(self._new)
            self._sorted.sort()
            self._new.clear()
        low = bisect_left(self._sorted, start)
        high = bisect_left(self._sorted, end) if end else len(self._sorted)
        return self._sorted[low:high]

    def items(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, list[Version]]]:
        """All keys in [start, end) with their versions (oldest first), in key order.

        The tablet may change while the caller goes on: keys that are there at the call are not missed.
        """
        versions = self.versions
        changed = ((key, versions[key]) for key in self.keys(start, end) if key in versions)
        if not self.blocks:
            return changed
        loaded = [self._loaded(block, start, end, self._changes) for block in self.blocks]
        return merge(changed, *loaded, key=itemgetter(0))

    def _loaded(self, block: Block, start: bytes, end: bytes, changes: int) -> Iterator[tuple[bytes, list[Version]]]:
        """Rows of a block, except those that were changed: they are among the changed keys."""
        taken = block.taken
        for position, key, history in block.rows(start, end):
            change = taken.get(position) if taken else None
            if change is None:
                yield key, history
            elif change > changes and key in self.versions:
                yield key, self.versions[key]

    def collect(self, safe_point: int, kept: dict[bytes, list[Version]] | None = None) -> int:
        """Drop what no read at or above `safe_point` can see, and return the number of versions. They are moved into `kept`, if there is
        one."""
        dropped = 0
        for key in list(self.versions):
            history = self.versions[key]
            position = len(history) - 1
            while position >= 0 and history[position][0] > safe_point:
                position -= 1
            if position < 0:
                continue
            keep = position if history[position][2] is not None else position + 1
            if keep:
                dropped += keep
                if kept is not None:
                    kept.setdefault(key, []).extend(history[:keep])
                self.versions[key] = history[keep:]
            if not self.versions[key]:
                del self.versions[key]
        self._sorted = sorted(self.versions)
        self._new.clear()
        return dropped


def tablet_prefix(key: bytes) -> bytes:
    """The tablet of a raw key.

    Raises ValueError for keys that are neither records nor meta keys: the playground stores no index entries.
    """
    if key[:1] == b"m":
        return b"m"
    if key[:1] == b"t" and key[9:11] == b"_r":
        return key[:RECORD_PREFIX]
    raise ValueError(f"key {key.hex()} is neither a record nor a meta key")


class Mvcc:
    """The store: versions, locks, rollbacks."""

    def __init__(self) -> None:
        self.tablets: dict[bytes, Tablet] = {}
        self.locks: dict[bytes, Lock] = {}
        self.sources: dict[int, int] = {}  # start_ts of transactions with a txn_source
        self.rolled_back: set[tuple[bytes, int]] = set()
        self.collected: dict[bytes, list[Version]] | None = None
        """What garbage collection dropped, if it is to be kept for a dump. Reads do not see it."""
        self._prefixes: list[bytes] = []

    def tablet(self, key: bytes) -> Tablet:
        """The tablet that a key belongs to, made on first use."""
        prefix = tablet_prefix(key)
        found = self.tablets.get(prefix)
        if found is None:
            found = self.tablets[prefix] = Tablet()
            insort(self._prefixes, prefix)
        return found

    def tablets_between(self, start: bytes, end: bytes) -> list[Tablet]:
        """Tablets that may hold keys of [start, end), in key order."""
        low = bisect_left(self._prefixes, start[:RECORD_PREFIX])
        if low and start.startswith(self._prefixes[low - 1]):
            low -= 1
        chosen = self._prefixes[low:]
        return [self.tablets[p] for p in chosen if not end or p < end]

    def items(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, list[Version]]]:
        """All keys of [start, end) with their versions (oldest first), in key order."""
        for tablet in self.tablets_between(start, end):
            yield from tablet.items(start, end)

    # reading

    def get(self, key: bytes, ts: int, *, own: int = 0) -> bytes | None:
        """The value at `ts`. Raises KeyLocked if a lock of another transaction than `own` stands in the way."""
        lock = self.locks.get(key)
        if lock is not None and lock.start_ts != own:
            self._check_readable(lock, ts)
        return visible(self.tablet(key).history(key), ts)

    def scan(self, start: bytes, end: bytes, ts: int, limit: int = 0) -> Iterator[tuple[bytes, bytes | KeyLocked]]:
        """Keys and values at `ts` in key order, at most `limit` (0: all). A locked key comes with its error."""
        found = 0
        locked = sorted(k for k in self.locks if start <= k and (not end or k < end))
        pending = merge(((k, v, 1) for k, v in self.items(start, end)), ((k, [], 0) for k in locked), key=itemgetter(0, 2))
        last_locked = None
        for key, history, kind in pending:
            if kind == 0:
                try:
                    self._check_readable(self.locks[key], ts)
                except KeyLocked as error:
                    last_locked = key
                    yield key, error
                    found += 1
            elif key != last_locked:
                value = visible(history, ts)
                if value is None:
                    continue
                yield key, value
                found += 1
            if limit and found >= limit:
                return

    @staticmethod
    def _check_readable(lock: Lock, ts: int) -> None:
        if lock.start_ts <= ts and lock.kind in (LockKind.PUT, LockKind.DELETE) and not (lock.async_commit and ts < lock.min_commit_ts):
            raise KeyLocked(lock)

    def locks_between(self, start: bytes, end: bytes, max_ts: int | None = None) -> list[Lock]:
        """Locks in [start, end) with start_ts <= max_ts, in key order."""
        found = [
            lock
            for key, lock in self.locks.items()
            if start <= key and (not end or key < end) and (max_ts is None or lock.start_ts <= max_ts)
        ]
        return sorted(found, key=lambda lock: lock.key)

    # writing

    def check_writable(self, key: bytes, start_ts: int, read_ts: int) -> None:
        """Raises KeyLocked or WriteConflict if a transaction that read at `read_ts` must not write the key."""
        lock = self.locks.get(key)
        if lock is not None and lock.start_ts != start_ts:
            raise KeyLocked(lock)
        newest = self.tablet(key).newest(key)
        if newest is not None and newest[0] > read_ts:
            raise WriteConflict(key, start_ts, newest[0])
        if (key, start_ts) in self.rolled_back:
            raise WriteConflict(key, start_ts, start_ts)

    def prewrite(self, lock: Lock, read_ts: int | None = None) -> bytes | None:
        """Place a lock and return the value that its transaction replaces. The same lock again is fine.

        Raises KeyLocked, WriteConflict.
        """
        self.check_writable(lock.key, lock.start_ts, lock.start_ts if read_ts is None else read_ts)
        self.locks[lock.key] = lock
        if lock.source:
            self.sources[lock.start_ts] = lock.source
        newest = self.tablet(lock.key).newest(lock.key)
        return newest[2] if newest else None

    def commit(self, key: bytes, start_ts: int, commit_ts: int) -> Lock | None:
        """Turn a lock into a version and return it; None if the transaction had already committed this key.

        Raises TxnLockNotFound.
        """
        lock = self.locks.get(key)
        if lock is None or lock.start_ts != start_ts:
            if self.committed_at(key, start_ts):
                return None
            raise TxnLockNotFound(key, start_ts)
        del self.locks[key]
        if lock.holds_back:
            self.tablet(key).add(key, (commit_ts, start_ts, lock.value))
        return lock

    def rollback(self, key: bytes, start_ts: int) -> Lock | None:
        """Undo a prewrite and remember it, so that a late prewrite of the transaction fails. Returns the lock, if there was one."""
        self.rolled_back.add((key, start_ts))
        lock = self.locks.get(key)
        if lock is None or lock.start_ts != start_ts:
            return None
        del self.locks[key]
        return lock

    def write(self, key: bytes, value: bytes | None, start_ts: int, commit_ts: int) -> bytes | None:
        """Add a version without a lock (one-phase commit) and return the value before it."""
        return self.tablet(key).add(key, (commit_ts, start_ts, value))

    def committed_at(self, key: bytes, start_ts: int) -> int:
        """The commit_ts with which a transaction wrote a key; 0 if it did not."""
        return next((commit for commit, start, _ in self.tablet(key).history(key) if start == start_ts), 0)

    def overlapped(self, key: bytes, ts: int) -> bool:
        """Whether a version of the key was committed at exactly `ts`."""
        return any(commit == ts for commit, _, _ in self.tablet(key).history(key))

    def load(self, block: Block) -> None:
        """Add bulk-loaded rows of one table; none of their keys may exist."""
        self.tablet(block.first_key).blocks.append(block)

    def collect(self, safe_point: int) -> int:
        """Garbage collection: drop versions that no read at or above `safe_point` needs; returns their number."""
        self.rolled_back = {(key, ts) for key, ts in self.rolled_back if ts > safe_point}
        return sum(tablet.collect(safe_point, self.collected) for tablet in self.tablets.values())


def visible(history: Iterable[Version], ts: int) -> bytes | None:
    """The value at `ts` of a key with these versions (oldest first)."""
    value = None
    for commit_ts, _, written in history:
        if commit_ts > ts:
            break
        value = written
    return value
