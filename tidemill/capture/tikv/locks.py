"""Resolves locks that their clients left behind: finds them by KvScanLock, and ends each as its transaction ended.

A prewritten lock holds back the resolved ts of its whole region. The primary key decides the fate of the transaction (KvCheckTxnStatus).
While the primary's TTL lasts, the client may be alive, and the lock is left alone. Clients prewrite secondaries in parallel with the
primary. So a missing primary is rolled back only when the lock's own TTL is over, as in client-go. The fate of an async-commit transaction
depends on its secondaries (KvCheckSecondaryLocks): it is committed if all of them are there. KvResolveLock carries out the fate; the change
feed then shows a COMMIT or ROLLBACK as usual.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tidemill import tso
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.client.region_calls import RegionCalls, raw_range
from tidemill.capture.tikv.model import Region
from tidemill.errors import UpstreamError, UpstreamUnavailable
from tidemill.wire import kvrpcpb_pb2

PAGE = 1024
"""Locks in one answer, and keys in one request."""

COMMITTING_MS = 20_000
"""How long after its commit_ts the client of a transaction may take to commit the secondaries."""

BLOCKING = {kvrpcpb_pb2.Put, kvrpcpb_pb2.Del}
"""Kinds of locks that hold back a resolved ts."""


@dataclass(frozen=True, slots=True)
class Fate:
    """How a transaction ended: its commit_ts, 0 for a rollback; None: it has not ended."""

    commit_ts: int | None
    ttl_ms: int = 0  # that its client may still have
    by_client: bool = False  # somebody else committed the primary: the client may still be at work


NOT_ENDED = Fate(None)


@dataclass(frozen=True, slots=True)
class LockSeen:
    """A lock that holds back a resolved ts."""

    key: bytes
    start_ts: int
    primary: bytes
    ttl_ms: int
    async_commit: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The result of resolving a region's locks."""

    left: tuple[LockSeen, ...] = ()  # the first of those left: their transactions may be alive, or could not be checked
    committed: int = 0
    rolled_back: int = 0
    waiting: Mapping[int, int] = field(default_factory=dict)  # number of locks left, by their transaction's start_ts


class LockResolver:
    """Resolves the locks of key ranges."""

    def __init__(self, pd: PdClient, retry_s: float = 20.0) -> None:
        self.pd = pd
        self._calls = RegionCalls(pd, retry_s)

    async def resolve(self, start: bytes, end: bytes, max_version: int, now_ts: int, before: Mapping[int, int] | None = None) -> Found:
        """End the locks in the raw range [start, end) with start_ts <= max_version whose transactions have ended; an empty end is open.
        `now_ts`: PD's present. `before`: what the last call returned as `waiting` for this range.

        Raises UpstreamUnavailable, UpstreamError; locks that were ended before that stay ended.
        """
        seen: list[LockSeen] = []
        first: dict[int, Any] = {}  # one lock of each transaction
        waiting: Counter[int] = Counter()
        async for page in self._pages(start, end, max_version):
            waiting.update(lock.lock_version for lock in page)
            for lock in page:
                first.setdefault(lock.lock_version, lock)
            seen += [_seen(lock) for lock in page[: PAGE - len(seen)]]
        fates: dict[int, int] = {}
        for start_ts, lock in first.items():
            fate = await self._fate(lock, now_ts)
            shrinks = before is not None and waiting[start_ts] < before.get(start_ts, 0)
            if fate.commit_ts is not None and not _is_committing(fate, now_ts, shrinks):
                fates[start_ts] = fate.commit_ts
        if fates:
            async for page in self._pages(start, end, max_version):
                for start_ts, keys in _by_transaction(page).items():
                    if start_ts in fates:
                        await self._end(keys, start_ts, fates[start_ts])
        return Found(
            tuple(lock for lock in seen if lock.start_ts not in fates),
            sum(waiting[start_ts] for start_ts, commit_ts in fates.items() if commit_ts),
            sum(waiting[start_ts] for start_ts, commit_ts in fates.items() if not commit_ts),
            {start_ts: n for start_ts, n in waiting.items() if start_ts not in fates},
        )

    async def _pages(self, start: bytes, end: bytes, max_version: int) -> AsyncIterator[list[Any]]:
        """Yield the locks of a range that hold back a resolved ts, in pages."""
        at: bytes | None = start
        while at is not None:
            locks, at = await self._scan(at, end, max_version)
            yield [lock for lock in locks if lock.lock_type in BLOCKING]

    async def _scan(self, start: bytes, end: bytes, max_version: int) -> tuple[list[Any], bytes | None]:
        """Return a page of locks in the region of `start`, and the key to continue from."""

        def request(region: Region) -> Any:
            stop = min(filter(None, (end, raw_range(region)[1])), default=b"")
            return kvrpcpb_pb2.ScanLockRequest(max_version=max_version, start_key=start, end_key=stop, limit=PAGE)

        region, answer = await self._calls.call("KvScanLock", start, request)
        if answer.HasField("error"):
            raise UpstreamError(f"TiKV refuses to list locks: {str(answer.error).strip()}")
        locks = list(answer.locks)
        if len(locks) >= PAGE:
            return locks, locks[-1].key + b"\0"
        after = raw_range(region)[1]
        return locks, after if after and (not end or after < end) else None

    # ------------------------------------------------------------------ the fate of a transaction

    async def _fate(self, lock: Any, now_ts: int, force_sync: bool = False) -> Fate:
        age = tso.physical_ms(now_ts) - tso.physical_ms(lock.lock_version)

        def request(_: Region) -> Any:
            return kvrpcpb_pb2.CheckTxnStatusRequest(
                primary_key=lock.primary_lock,
                lock_ts=lock.lock_version,
                current_ts=now_ts,
                rollback_if_not_exist=age >= lock.lock_ttl,
                force_sync_commit=force_sync,
                verify_is_primary=True,
            )

        _, answer = await self._calls.call("KvCheckTxnStatus", lock.primary_lock, request)
        if answer.HasField("error"):  # the primary is still to be written, or is not a primary any more: check again next time
            return NOT_ENDED
        primary = answer.lock_info if answer.HasField("lock_info") else None
        if primary is not None and primary.use_async_commit and not force_sync:
            if age < answer.lock_ttl:
                return Fate(None, answer.lock_ttl)
            return await self._async_fate(lock, primary, now_ts)
        if answer.lock_ttl:
            return Fate(None, answer.lock_ttl)
        return Fate(int(answer.commit_version), by_client=True)

    async def _async_fate(self, lock: Any, primary: Any, now_ts: int) -> Fate:
        """Return the fate: committed if every secondary is locked or one is committed; otherwise the check has rolled the missing ones
        back."""
        commit_ts = int(primary.min_commit_ts)
        keys = sorted(set(primary.secondaries))
        while keys:
            region, answer = await self._calls.call("KvCheckSecondaryLocks", keys[0], partial(_secondaries, lock.lock_version, keys))
            if answer.HasField("error"):
                return NOT_ENDED
            if any(not found.use_async_commit for found in answer.locks):
                return await self._fate(lock, now_ts, force_sync=True)  # the transaction fell back to two-phase commit
            asked = _inside(region, keys)
            if len(answer.locks) < len(asked):
                commit_ts = int(answer.commit_ts)
                break
            commit_ts = max([commit_ts, *(int(found.min_commit_ts) for found in answer.locks)])
            keys = keys[len(asked) :]
        await self._end([lock.primary_lock], lock.lock_version, commit_ts)
        return Fate(commit_ts)

    # ------------------------------------------------------------------ carrying it out

    async def _end(self, keys: Iterable[bytes], start_ts: int, commit_ts: int) -> None:
        left = sorted(set(keys))
        while left:
            region, answer = await self._calls.call("KvResolveLock", left[0], partial(_ending, start_ts, commit_ts, left))
            if answer.HasField("error"):
                raise UpstreamUnavailable(f"TiKV does not end the lock of transaction {start_ts}: {str(answer.error).strip()}")
            left = left[len(_inside(region, left)) :]


def _is_committing(fate: Fate, now_ts: int, shrinks: bool) -> bool:
    """Return whether a committed transaction may have a client that is still committing its secondaries."""
    if not fate.by_client or not fate.commit_ts:
        return False
    return shrinks or tso.physical_ms(now_ts) - tso.physical_ms(fate.commit_ts) < COMMITTING_MS


def _by_transaction(locks: Iterable[Any]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for lock in locks:
        found.setdefault(lock.lock_version, []).append(lock.key)
    return found


def _secondaries(start_ts: int, keys: list[bytes], region: Region) -> Any:
    return kvrpcpb_pb2.CheckSecondaryLocksRequest(keys=_inside(region, keys), start_version=start_ts)


def _ending(start_ts: int, commit_ts: int, keys: list[bytes], region: Region) -> Any:
    return kvrpcpb_pb2.ResolveLockRequest(start_version=start_ts, commit_version=commit_ts, keys=_inside(region, keys))


def _inside(region: Region, keys: list[bytes]) -> list[bytes]:
    """Return the first of these sorted keys that lie in the region, at most a page; at least the key that the region was looked up for."""
    end = raw_range(region)[1]
    inside = [key for key in keys[:PAGE] if not end or key < end]
    return inside or keys[:1]


def _seen(lock: Any) -> LockSeen:
    return LockSeen(lock.key, lock.lock_version, lock.primary_lock, lock.lock_ttl, lock.use_async_commit)
