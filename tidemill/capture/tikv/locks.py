"""Resolves locks that their clients left behind: finds them by KvScanLock, and ends each as its transaction ended.

A prewritten lock holds back the resolved ts of its whole region. The primary key decides the fate of the transaction. KvCheckTxnStatus both
reads and changes it: TiKV rolls the primary back if its TTL is over at the `current_ts` of the request. On a busy machine a living client's
heartbeat may come seconds late, so a transaction is first looked at with `current_ts` 0, at which no TTL is over, and without
`rollback_if_not_exist`: TiKV changes nothing then. Only when the TTL has been over for the whole grace is TiKV asked to roll it back, with
the `current_ts` of a grace ago: TiKV decides again, by the TTL as it is then, and a heartbeat that came meanwhile wins.
(`caller_start_ts` is always 0: nothing is read, so no commit_ts is pushed.)

Clients prewrite secondaries in parallel with the primary, so a missing primary is rolled back only when the lock's own TTL has been over
for the grace. The fate of an async-commit transaction depends on its secondaries (KvCheckSecondaryLocks, which rolls missing ones back):
it is committed if all of them are there, and asked for after the grace as well. What has been committed or rolled back already has no
life to shorten. KvResolveLock carries out the fate; the change feed then shows a COMMIT or ROLLBACK as usual.

A call to check a transaction is made once at a time, however many regions wait for it, and not again while a store may still be at work
on it: it has a deadline as long as the grace, and is not repeated when no answer came.
"""

from __future__ import annotations

import asyncio
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

GRACE_S = 120.0
"""How long a TTL has to be over, by default, before a transaction counts as its dead client's."""

LEAST_DEADLINE_S = 20.0

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
class Resolved:
    """A transaction whose locks in a region were ended. `commit_ts`: 0 for a rollback."""

    start_ts: int
    primary: bytes
    commit_ts: int
    locks: int


@dataclass(frozen=True, slots=True)
class Found:
    """The result of resolving a region's locks."""

    left: tuple[LockSeen, ...] = ()  # the first of those left: their transactions may be alive, or could not be checked
    committed: int = 0
    rolled_back: int = 0
    waiting: Mapping[int, int] = field(default_factory=dict)  # number of locks left, by their transaction's start_ts
    resolved: tuple[Resolved, ...] = field(default=(), compare=False)


class LockResolver:
    """Resolves the locks of key ranges. `grace_s`: see the head of this module; 0: as soon as a TTL is over, as any reader of TiKV does."""

    grace_s = GRACE_S

    def __init__(self, pd: PdClient, retry_s: float = 20.0, grace_s: float = GRACE_S) -> None:
        self.pd, self.grace_s = pd, grace_s
        self._calls = RegionCalls(pd, retry_s)
        self._checks = RegionCalls(pd, retry_s, max(grace_s, LEAST_DEADLINE_S), repeats=False)
        self._checking: dict[tuple[int, bytes], asyncio.Task[Fate]] = {}

    async def close(self) -> None:
        """End the calls that are still running."""
        checks = list(self._checking.values())
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)

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
            fate = await self._fate_once(lock, now_ts)
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
            tuple(Resolved(start_ts, first[start_ts].primary_lock, ts, waiting[start_ts]) for start_ts, ts in fates.items()),
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

    async def _fate_once(self, lock: Any, now_ts: int) -> Fate:
        """Return the fate of a lock's transaction. Whoever asks while it is being asked for gets the same answer."""
        key = lock.lock_version, lock.primary_lock
        task = self._checking.get(key)
        if task is None:
            task = self._checking[key] = asyncio.ensure_future(self._fate(lock, now_ts))
            task.add_done_callback(lambda _: self._checking.pop(key, None))
        return await asyncio.shield(task)

    async def _fate(self, lock: Any, now_ts: int, force_sync: bool = False) -> Fate:
        """Look at the primary, and let TiKV end the transaction if its TTL has been over for the grace."""
        grace_ms = round(self.grace_s * 1000)
        over_for = tso.physical_ms(now_ts) - tso.physical_ms(lock.lock_version) - grace_ms  # at TTL 0
        answer = await self._status(lock, 0, rollback=False, force_sync=force_sync)
        if answer.HasField("error"):
            if not answer.error.HasField("txn_not_found") or over_for < lock.lock_ttl:
                return NOT_ENDED  # the primary is still to be written, or is not a primary any more: it is checked again next time
        elif answer.HasField("lock_info") or answer.lock_ttl:
            if over_for < answer.lock_ttl:
                return Fate(None, answer.lock_ttl)
            if answer.lock_info.use_async_commit and not force_sync:
                return await self._async_fate(lock, answer.lock_info, now_ts)
        else:
            return Fate(int(answer.commit_version), by_client=True)
        answer = await self._status(lock, tso.compose(tso.physical_ms(now_ts) - grace_ms), rollback=True, force_sync=force_sync)
        if answer.HasField("error"):
            return NOT_ENDED
        if answer.HasField("lock_info") or answer.lock_ttl:
            return Fate(None, answer.lock_ttl)  # a heartbeat came
        return Fate(int(answer.commit_version), by_client=True)

    async def _status(self, lock: Any, current_ts: int, *, rollback: bool, force_sync: bool) -> Any:
        """Ask for the status of a lock's transaction. TiKV rolls it back if its TTL is over at `current_ts`."""

        def request(_: Region) -> Any:
            return kvrpcpb_pb2.CheckTxnStatusRequest(
                primary_key=lock.primary_lock,
                lock_ts=lock.lock_version,
                current_ts=current_ts,
                rollback_if_not_exist=rollback,
                force_sync_commit=force_sync,
                verify_is_primary=True,
            )

        _, answer = await self._checks.call("KvCheckTxnStatus", lock.primary_lock, request)
        return answer

    async def _async_fate(self, lock: Any, primary: Any, now_ts: int) -> Fate:
        """Return the fate: committed if every secondary is locked or one is committed; otherwise the check has rolled the missing ones
        back."""
        commit_ts = int(primary.min_commit_ts)
        keys = sorted(set(primary.secondaries))
        while keys:
            region, answer = await self._checks.call("KvCheckSecondaryLocks", keys[0], partial(_secondaries, lock.lock_version, keys))
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
