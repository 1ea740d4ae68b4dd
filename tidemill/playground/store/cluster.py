"""The playground's cluster: timestamps, store, regions and change feeds put together. Writes go through here. No IO."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tidemill import tso
from tidemill.playground.store import wirebytes as wb
from tidemill.playground.store.feed import SHORT_VALUE, FeedHub, epoch_not_match, not_leader
from tidemill.playground.store.mvcc import Lock, LockKind, Mvcc
from tidemill.playground.store.oracle import Oracle, wall_clock_ms
from tidemill.playground.store.regions import Region, RegionMap
from tidemill.playground.store.safepoints import SafePoints

Mutation = tuple[bytes, bytes | None]
"""(raw key, new value); None deletes."""


class CommitMode(enum.Enum):
    """How a transaction commits, which decides what the change feed shows."""

    TWO_PHASE = "2pc"  # PREWRITE, COMMIT
    ONE_PHASE = "1pc"  # COMMITTED


VERSION = "8.5.7"
"""The version that stores report by default. A capture prints JSON documents as this version does."""


@dataclass(frozen=True, slots=True)
class Store:
    """A TiKV store: its id and the address that clients are told."""

    id: int
    address: str
    version: str


@dataclass(frozen=True, slots=True)
class Pending:
    """A transaction that has prewritten and neither committed nor rolled back."""

    start_ts: int
    keys: tuple[bytes, ...]


class Cluster:
    """One TiDB cluster's storage. All methods are to be called from one thread."""

    def __init__(self, cluster_id: int, store_ids: Sequence[int], clock: Callable[[], int] = wall_clock_ms, version: str = VERSION) -> None:
        self.cluster_id, self.version = cluster_id, version
        self.oracle = Oracle(clock)
        self.mvcc = Mvcc()
        self._last_id = 3
        self.regions = RegionMap(store_ids, self.allocate_id)
        self.feeds = FeedHub(cluster_id, self.mvcc, self.regions, lambda: self.oracle.last)
        self.safe_points = SafePoints(lambda: clock() // 1000)
        self.stores: dict[int, Store] = {store: Store(store, "", version) for store in store_ids}
        self.transactions = 0
        self.rows_written = 0

    def upgrade(self, version: str) -> None:
        """Make stores report another version from now on."""
        self.version = version
        self.stores = {store.id: replace(store, version=version) for store in self.stores.values()}

    def allocate_id(self) -> int:
        """A fresh id for a region or a peer, as PD hands them out."""
        self._last_id += 1
        return self._last_id

    # transactions

    def transact(
        self,
        mutations: Sequence[Mutation],
        mode: CommitMode = CommitMode.TWO_PHASE,
        *,
        start_ts: int = 0,
        read_ts: int = 0,
        source: int = 0,
        locked: Sequence[bytes] = (),
    ) -> int:
        """Write a whole transaction at once and return its commit_ts. Without `start_ts` one is taken; at `read_ts` its values were read.
        `locked`: keys that it only locked (SELECT ... FOR UPDATE).

        Raises KeyLocked, WriteConflict; then nothing is written.
        """
        start_ts = start_ts or self.oracle.next()
        for key, _ in mutations:
            self.mvcc.check_writable(key, start_ts, read_ts or start_ts)
        commit_ts = self.oracle.next()
        if source:
            self.mvcc.sources[start_ts] = source
        write = self.mvcc.write
        changes = [(key, value, write(key, value, start_ts, commit_ts)) for key, value in mutations]
        if mode is CommitMode.ONE_PHASE:
            self._publish_data(changes, wb.row_head(start_ts, commit_ts, wb.RowType.COMMITTED), source)
        else:
            self._publish_data(changes, wb.row_head(start_ts, 0, wb.RowType.PREWRITE), source)
            self._publish_commits(mutations, start_ts, commit_ts, source)
        self._publish_lock_only(locked)
        self.transactions += 1
        self.rows_written += len(mutations)
        return commit_ts

    def prewrite(
        self,
        mutations: Sequence[Mutation],
        *,
        kind: LockKind | None = None,
        source: int = 0,
        ttl_ms: int = 3000,
        async_commit: bool = False,
        start_ts: int = 0,
        primary: bytes = b"",
    ) -> Pending:
        """Lock keys and leave them locked. `kind` makes locks that write nothing. An async-commit transaction is committed from the
        moment that all its keys are locked, before any commit message. `start_ts`, `primary`: a further piece of a transaction.

        Raises KeyLocked, WriteConflict.
        """
        start_ts = start_ts or self.oracle.next()
        primary = primary or mutations[0][0]
        for key, _ in mutations:
            self.mvcc.check_writable(key, start_ts, start_ts)
        changes = []
        for key, value in mutations:
            chosen = kind or (LockKind.DELETE if value is None else LockKind.PUT)
            lock = Lock(key, primary, start_ts, chosen, value, ttl_ms, source)
            if async_commit:
                lock.async_commit, lock.min_commit_ts = True, self.oracle.next()
                lock.secondaries = tuple(k for k, _ in mutations if k != primary) if key == primary else ()
            old = self.mvcc.prewrite(lock)
            changes.append((key, value, old))
        if kind is None:
            self._publish_data(changes, wb.row_head(start_ts, 0, wb.RowType.PREWRITE), source)
        return Pending(start_ts, tuple(key for key, _ in mutations))

    def commit(self, pending: Pending, commit_ts: int = 0, keys: Iterable[bytes] | None = None) -> int:
        """Commit (some keys of) a prewritten transaction and return its commit_ts.

        Raises TxnLockNotFound.
        """
        commit_ts = commit_ts or self.oracle.next()
        found = [self.mvcc.commit(key, pending.start_ts, commit_ts) for key in (pending.keys if keys is None else keys)]
        self._publish_lock_only([lock.key for lock in found if lock is not None and not lock.holds_back])
        locks = [lock for lock in found if lock is not None and lock.holds_back]
        if locks:
            self._publish_commits([(lock.key, lock.value) for lock in locks], pending.start_ts, commit_ts, locks[0].source)
        return commit_ts

    def rollback(self, pending: Pending, keys: Iterable[bytes] | None = None) -> None:
        """Roll back a transaction, or some of its keys. The feed shows it, also for keys that were never prewritten. It does not if another
        transaction's commit_ts equals this start_ts: TiKV then notes the rollback in that version."""
        head = wb.row_head(pending.start_ts, 0, wb.RowType.ROLLBACK)
        rows = []
        for key in pending.keys if keys is None else keys:
            if self.mvcc.overlapped(key, pending.start_ts):
                continue
            lock = self.mvcc.rollback(key, pending.start_ts)
            if lock is None or lock.kind is not LockKind.PESSIMISTIC:
                protected = b"p" if lock is not None and lock.primary == key else None
                rows.append((key, wb.entry(head, b"", key, protected, None)))
        self._publish(rows, 0)

    def resolve_orphans(self) -> int:
        """Resolve the locks of dead clients, as a reader does when it meets one, and return their number. Locks whose time to live is not
        over stay."""
        now = tso.physical_ms(self.oracle.next())
        by_start: dict[int, list[Lock]] = {}
        for lock in self.mvcc.locks.values():
            by_start.setdefault(lock.start_ts, []).append(lock)
        ended = 0
        for start_ts, locks in by_start.items():
            if any(tso.physical_ms(start_ts) + lock.ttl_ms > now for lock in locks):
                continue
            commit_ts = self._fate(start_ts, locks)
            pending = Pending(start_ts, tuple(lock.key for lock in locks))
            if commit_ts:
                self.commit(pending, commit_ts)
            else:
                self.rollback(pending)
            ended += len(locks)
        return ended

    def _fate(self, start_ts: int, locks: list[Lock]) -> int:
        """Return the commit_ts of a transaction whose client is dead; 0 if it is to be rolled back."""
        primary = locks[0].primary
        committed = self.mvcc.committed_at(primary, start_ts)
        held = self.mvcc.locks.get(primary)
        if committed or held is None or held.start_ts != start_ts or not held.async_commit:
            return committed
        others = {lock.key for lock in locks}
        known = [self.mvcc.committed_at(key, start_ts) for key in held.secondaries]
        if any(known):
            return max(known)
        return max(lock.min_commit_ts for lock in locks) if others.issuperset(held.secondaries) else 0

    def _publish_data(self, changes: Sequence[tuple[bytes, bytes | None, bytes | None]], head: bytes, source: int) -> None:
        entry, put, delete = wb.entry, wb.OP_PUT, wb.OP_DELETE
        rows = [(key, entry(head, delete if value is None else put, key, value, old, source)) for key, value, old in changes]
        self._publish(rows, source)

    def _publish_commits(self, mutations: Sequence[Mutation], start_ts: int, commit_ts: int, source: int) -> None:
        head = wb.row_head(start_ts, commit_ts, wb.RowType.COMMIT)
        rows = []
        for key, value in mutations:
            short = value if value is not None and len(value) <= SHORT_VALUE else None
            rows.append((key, wb.entry(head, wb.OP_DELETE if value is None else wb.OP_PUT, key, short, None, source)))
        self._publish(rows, source)

    def _publish_lock_only(self, keys: Sequence[bytes]) -> None:
        """Let the feed show keys that were locked and not written."""
        for region_id, n in Counter(self.regions.at(key).id for key in keys).items():
            region = self.regions.get(region_id)
            assert region is not None
            self.feeds.lock_only(region, n)

    def _publish(self, rows: list[tuple[bytes, bytes]], source: int) -> None:
        """Send rows to the regions that hold their keys."""
        if not rows or not self.feeds.streams:
            return
        region = self.regions.at(rows[0][0])
        if region.holds(min(rows)[0]) and region.holds(max(rows)[0]):
            self.feeds.rows(region, rows, source)
            return
        pieces: dict[int, list[tuple[bytes, bytes]]] = {}
        for row in rows:
            if not region.holds(row[0]):
                region = self.regions.at(row[0])
            pieces.setdefault(region.id, []).append(row)
        for region_id, piece in pieces.items():
            found = self.regions.get(region_id)
            assert found is not None
            self.feeds.rows(found, piece, source)

    # regions

    def split(self, keys: Iterable[bytes]) -> list[Region]:
        """Split regions at raw keys that are not bounds yet; returns the pieces."""
        wanted: dict[int, list[bytes]] = {}
        for key in keys:
            region = self.regions.at(key)
            if region.start != key:
                wanted.setdefault(region.id, []).append(key)
        made: list[Region] = []
        for region_id, cuts in wanted.items():
            pieces = self.regions.split(region_id, cuts)
            made.extend(pieces)
            self.feeds.fail_region(region_id, epoch_not_match(pieces))
        return made

    def merge(self, source_id: int, target_id: int) -> Region:
        """Merge a region into its neighbour; both report an epoch that does not match. Raises ValueError."""
        joined = self.regions.merge(source_id, target_id)
        self.feeds.fail_region(source_id, epoch_not_match([]))
        self.feeds.fail_region(target_id, epoch_not_match([]))
        return joined

    def transfer_leader(self, region_id: int, store_id: int) -> Region:
        """Move a region's leader to another store. Raises ValueError."""
        moved = self.regions.transfer_leader(region_id, store_id)
        self.feeds.fail_region(region_id, not_leader(moved))
        return moved

    # time

    def tick(self) -> None:
        """Send resolved timestamps: to be called every resolved interval."""
        self.feeds.resolve(self.oracle.next())

    def collect_garbage(self, life_time_ms: int) -> tuple[int, int]:
        """Collect versions older than `life_time_ms`, as far as the services' safe points allow: (the GC safe point, versions dropped)."""
        wanted = self.oracle.next() - (life_time_ms << tso.LOGICAL_BITS)
        safe_point = self.safe_points.advance_gc(wanted)
        return safe_point, self.mvcc.collect(safe_point)
