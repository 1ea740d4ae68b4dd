"""Keeps the resolved ts moving: finds regions without progress, resolves the locks that hold them, and subscribes stuck regions again.

Every second the subscriptions are surveyed (on the ingest thread, which owns them). A region whose resolved ts has not moved for some
seconds is searched for locks in its whole range, because any lock in it holds it back; locks.py says which are resolved. A region that is
silent, or frozen without a lock, is subscribed again. Few are at a time, each with growing pauses. A stream on which all regions are silent
is opened again. The findings are shown in status.json.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemill import tso
from tidemill.capture.lifecycle import tick
from tidemill.capture.tikv.client.region_calls import raw_range
from tidemill.capture.tikv.feed.puller import Puller
from tidemill.capture.tikv.locks import GRACE_S, Found, LockResolver, LockSeen, Resolved
from tidemill.capture.tikv.model import Region
from tidemill.capture.tikv.receive.ingest import Receiver
from tidemill.capture.tikv.regions.state import Phase, SubRange
from tidemill.capture.tikv.watchdog.causes import Cause
from tidemill.capture.tikv.watchdog.detect import Holder, Stuck, StuckThresholds, Survey, Watch
from tidemill.capture.tikv.watchdog.held import LOOKED_AT, Held, HeldTables, Lagging
from tidemill.errors import MalformedBytes, MalformedKey, UpstreamError
from tidemill.tidb.keys import parse_record_key
from tidemill.tso import describe

EVERY = 1.0
ASK_EVERY = 5.0
"""Seconds between two questions for PD's time while nothing is behind; it is counted on meanwhile."""
SHARE = 20  # pause between two rounds, as a multiple of the time that a round takes (with very many regions)
FENCE_MS = 4000
"""A region is searched for locks when it has been this far behind PD's present for this long."""
LOCKS_EVERY = 10.0  # seconds between two searches of a region
LOCKS_AT_ONCE = 4  # searches of one store's regions at the same time
SEARCH_S = 5.0
"""Seconds that a round waits for its searches. One that takes longer goes on beside the next rounds, and its region is not searched again
before it has ended."""
TOLD_AT_MOST = 1024  # transactions, and regions, of which it is known that they were logged
GRACE = 5.0  # seconds after a lock was resolved
SEARCHES = 32  # regions searched in one round at most
LISTED = 64  # subscriptions that end again and again, in the status at most
RENEW = 4  # subscriptions renewed in one round at most
RENEW_AGAIN = 600.0  # the longest wait between two renewals of one sub-range
HELD_AFTER = 10.0  # a table is reported when it has been this many seconds behind without moving

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Verdicts:
    """The part of the status about what does not move."""

    holders: list[dict[str, Any]] = field(default_factory=list)  # per partition, the slowest first
    stuck: list[dict[str, Any]] = field(default_factory=list)
    held_tables: list[dict[str, Any]] = field(default_factory=list)  # the slowest first
    ranges_behind: int = 0
    locks_resolved: int = 0
    transactions_resolved: int = 0
    renewed: int = 0
    streams_renewed: int = 0


@dataclass(slots=True)
class RenewalBackoff:
    """When a sub-range may be renewed again."""

    times: int = 0
    next_time: float = 0.0


class Watchdog:
    """Runs the watch. `label(physical table id)` names a table. Belongs to the event loop of the puller."""

    def __init__(
        self,
        puller: Puller,
        receiver: Receiver,
        label: Callable[[int], str | None],
        partitions: int,
        thresholds: StuckThresholds | None = None,
        lock_grace_s: float = GRACE_S,
    ) -> None:
        """`lock_grace_s`: see locks.py."""
        self.puller, self.receiver, self.label = puller, receiver, label
        self.watch = Watch(partitions, thresholds)
        self.verdicts = Verdicts()
        self._held = HeldTables(min(HELD_AFTER, self.watch.thresholds.frozen))
        self._present, self._present_at = 0, float("-inf")  # PD's clock, as last reported, and when
        self._asked_at = float("-inf")
        self._silent: set[int] = set()  # sub-ranges
        self._resolver = LockResolver(puller.pd, grace_s=lock_grace_s)
        self._searches: dict[int, asyncio.Task[None]] = {}  # by region: those that are running
        self._room: dict[int, asyncio.Semaphore] = {}  # by store
        self._searched: dict[int, float] = {}  # region -> when it was searched
        self._locks: dict[int, tuple[LockSeen, ...]] = {}  # region -> locks left there
        self._waiting: dict[int, Mapping[int, int]] = {}  # region -> number of locks left, by transaction
        self._renewals: dict[int, RenewalBackoff] = {}
        self._moving_again = 0.0  # until then, regions that a lock held (with their whole group) may get their next resolved ts
        self._spent = 0.0  # CPU seconds of the last survey
        self._reported: set[tuple[int, Cause]] = set()
        self._told_unsubscribed: set[int] = set()
        self._told_transactions: dict[int, None] = {}  # start_ts, the latest last
        self._told_ending: dict[tuple[int, str], int] = {}  # region and reason -> how many ends were logged

    async def run(self) -> None:
        """Look every second, forever."""
        try:
            while True:
                await tick(max(EVERY, SHARE * self._spent))
                await self.look()
        finally:
            searches = list(self._searches.values())
            for search in searches:
                search.cancel()
            await asyncio.gather(*searches, return_exceptions=True)
            await self._resolver.close()

    async def look(self) -> None:
        """Do one round."""
        before = time.monotonic()
        survey = await self._survey()
        now, begin = time.monotonic(), time.thread_time()
        self.watch.look(survey, now)
        self._spent = time.thread_time() - begin
        if now - before > 2 * EVERY or self.receiver.inbox.bytes > self.receiver.inbox.low:
            self.watch.blind(now)  # the ingest thread is behind: what it has not read yet would count as silence
        try:
            present = await self._ask_present(now)
        except UpstreamError as e:
            _log.debug("progress is not checked without a timestamp: %s", e.message)
        else:
            await self._search_locks(present, now)
            self._renew(now)
        self._tell_held(time.monotonic())
        holders = self.watch.holders(time.monotonic())
        self.verdicts.holders = [self._described_holder(h) for h in holders]
        self._tell_unsubscribed(holders)
        self._tell_ending()

    async def _ask_present(self, now: float) -> int:
        """Return PD's time. While nothing is behind it is mostly counted on from what PD said last. Raises UpstreamError."""
        self._present += round(1000 * (now - self._present_at)) << tso.LOGICAL_BITS if self._present else 0
        self._present_at = now
        lags = self.watch.lagging(self._present - (FENCE_MS << tso.LOGICAL_BITS), now, FENCE_MS / 1000, 1)
        if lags or now - self._asked_at >= ASK_EVERY:
            self._present = await self.puller.pd.tso()
            self._present_at = self._asked_at = now
        return self._present

    async def _survey(self) -> Survey:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Survey] = loop.create_future()

        def take() -> None:
            survey = self.receiver.survey()
            loop.call_soon_threadsafe(lambda: None if answer.done() else answer.set_result(survey))

        self.receiver.call(take)
        return await answer

    # ------------------------------------------------------------------ locks

    async def _search_locks(self, present: int, now: float) -> None:
        """Search the regions that lag behind for locks, the slowest first."""
        fence = present - (FENCE_MS << tso.LOGICAL_BITS)
        wanted: dict[int, tuple[SubRange, Region, int]] = {}  # with the region as it is now: the sub-range may lose it before its turn
        for id_, resolved in self.watch.lagging(fence, now, FENCE_MS / 1000):
            sub_range = self.puller.machine.sub_range(id_)
            if sub_range is None or sub_range.region is None or len(wanted) >= SEARCHES:
                continue
            if sub_range.region.id in self._searches:
                continue
            if now - self._searched.get(sub_range.region.id, -1e9) >= LOCKS_EVERY:
                wanted.setdefault(sub_range.region.id, (sub_range, sub_range.region, resolved))
        self._searched = {r: t for r, t in self._searched.items() if now - t < 10 * LOCKS_EVERY or r in self._searches}
        self._locks = {r: found for r, found in self._locks.items() if r in self._searched}
        self._waiting = {r: found for r, found in self._waiting.items() if r in self._searched}

        async def search(sub_range: SubRange, region: Region, resolved: int) -> None:
            store = region.leader.store_id if region.leader is not None else 0
            async with self._room.setdefault(store, asyncio.Semaphore(LOCKS_AT_ONCE)):
                await self._search(sub_range, region, min(present, resolved + (FENCE_MS << tso.LOGICAL_BITS)), present)

        for region_id, one in wanted.items():
            self._searched[region_id] = now
            self._searches[region_id] = asyncio.ensure_future(search(*one))
        if wanted:
            await asyncio.wait([self._searches[region_id] for region_id in wanted], timeout=SEARCH_S)
        for region_id, task in list(self._searches.items()):
            if task.done():
                del self._searches[region_id]
                task.result()

    async def _search(self, sub_range: SubRange, region: Region, max_version: int, present: int) -> None:
        try:
            found = await self._resolver.resolve(*raw_range(region), max_version, present, self._waiting.get(region.id))
        except (UpstreamError, MalformedBytes) as e:
            _log.info("region %d of %s cannot be searched for locks: %s", region.id, sub_range.span.label, e.message)
            return
        self._note(sub_range, region.id, found)

    def _note(self, sub_range: SubRange, region_id: int, found: Found) -> None:
        ended = found.committed + found.rolled_back
        self.verdicts.locks_resolved += ended
        for one in found.resolved:
            self._tell_resolved(sub_range, region_id, one)
        if ended:
            self._moving_again = time.monotonic() + GRACE
        if found.committed:
            _log.info(
                "region %d of %s: %d locks left by committed transactions are resolved", region_id, sub_range.span.label, found.committed
            )
        if found.rolled_back:
            _log.warning("region %d of %s: %d locks of dead clients rolled back", region_id, sub_range.span.label, found.rolled_back)
        before = {lock.start_ts for lock in self._locks.get(region_id, ())}
        for lock in found.left:
            if lock.start_ts not in before:
                before.add(lock.start_ts)
                _log.info("region %d waits for %s", region_id, self._described_lock(lock))
        self._locks[region_id], self._waiting[region_id] = found.left, found.waiting

    def _tell_resolved(self, sub_range: SubRange, region_id: int, one: Resolved) -> None:
        """Log a transaction whose locks were resolved, once, wherever else it has more of them."""
        if one.start_ts in self._told_transactions:
            return
        while len(self._told_transactions) >= TOLD_AT_MOST:
            del self._told_transactions[next(iter(self._told_transactions))]
        self._told_transactions[one.start_ts] = None
        self.verdicts.transactions_resolved += 1
        how = f"committed at {describe(one.commit_ts)}" if one.commit_ts else "rolled back"
        _log.info(
            "the transaction of %s (primary %s) is resolved, %s: %d locks in region %d of %s",
            *(describe(one.start_ts), one.primary.hex(), how, one.locks, region_id, sub_range.span.label),
        )

    # ------------------------------------------------------------------ renewal

    def _renew(self, now: float) -> None:
        """Subscribe again what is silent, or frozen without a known cause."""
        stuck = self.watch.stuck(now)
        self._silent = {one.sub_range for one in stuck if one.cause is Cause.SILENT}
        excused = {lock.start_ts for locks in self._locks.values() for lock in locks}
        lost_streams = self._lost_streams(stuck)
        self.verdicts.stuck = [self._described(s) for s in stuck]
        self._report(stuck)
        for slot in lost_streams:
            where = self.puller.store_of(slot)
            _log.warning("%s is silent, with %d live regions: the stream is opened again", where, self.watch.on_stream(slot))
            self.verdicts.streams_renewed += 1
            self.puller.renew_stream(slot)
            self.watch.blind(now)
        room = RENEW
        for one in stuck:
            explained = one.resolved in excused or now < self._moving_again or not self._searched_in_vain(one, now)
            excuse = one.cause is Cause.FROZEN and explained
            if room == 0 or excuse or one.stream in lost_streams or not self._due(one, now):
                continue
            room -= 1
            self.verdicts.renewed += 1
            _log.warning("%s: it is subscribed again", self._sentence(one))
            self.receiver.call(lambda sub_range=one.sub_range: self.receiver.renew(sub_range))  # type: ignore[misc]

    def _searched_in_vain(self, one: Stuck, now: float) -> bool:
        """Return whether the region was searched since it stopped moving, and no lock is left."""
        sub_range = self.puller.machine.sub_range(one.sub_range)
        if sub_range is None or sub_range.region is None or sub_range.region.id in self._searches:
            return False
        searched = self._searched.get(sub_range.region.id, -1e9) >= now - one.seconds
        return searched and not self._locks.get(sub_range.region.id)

    def _lost_streams(self, stuck: list[Stuck]) -> set[int]:
        """Return the streams of which every live region (and more than one) is silent."""
        silent: dict[int, int] = {}
        for one in stuck:
            if one.cause is Cause.SILENT:
                silent[one.stream] = silent.get(one.stream, 0) + 1
        return {slot for slot, n in silent.items() if n > 1 and n >= min(self.watch.on_stream(slot), 64)}

    def _due(self, one: Stuck, now: float) -> bool:
        """Return whether the sub-range may be renewed now. Each pause is twice the one before."""
        renewal = self._renewals.setdefault(one.sub_range, RenewalBackoff())
        if now < renewal.next_time:
            return False
        renewal.times += 1
        renewal.next_time = now + min(self.watch.thresholds.frozen * 2**renewal.times, RENEW_AGAIN)
        if len(self._renewals) > 100_000:
            self._renewals = {p: s for p, s in self._renewals.items() if s.next_time > now}
        return True

    def _report(self, stuck: list[Stuck]) -> None:
        """Log once what is wrong with each."""
        now_stuck = {(s.sub_range, s.cause) for s in stuck}
        for one in stuck:
            if (one.sub_range, one.cause) not in self._reported:
                _log.warning("%s", self._sentence(one))
        self._reported = now_stuck

    def _tell_unsubscribed(self, holders: list[Holder]) -> None:
        """Log holders that have no subscription for long: a failing subscription can hold the resolved ts too."""
        telling: set[int] = set()
        found = [one for one in self.verdicts.stuck if one["cause"] != Cause.UNSUBSCRIBED]
        for holder in holders:
            sub_range = self.puller.machine.sub_range(holder.sub_range)
            if sub_range is None or not sub_range.last_error or sub_range.phase is Phase.LIVE:
                continue
            if holder.seconds < self.watch.thresholds.frozen:
                continue
            where = self._where(holder.sub_range, holder.resolved)
            found.append({"cause": Cause.UNSUBSCRIBED.value, "seconds": round(holder.seconds, 1), **where})
            telling.add(holder.sub_range)
            if holder.sub_range not in self._told_unsubscribed:
                _log.warning(
                    "%s [%s, %s) has had no subscription for %.0f s, at %s: %s",
                    *(sub_range.span.label, sub_range.start.hex(), sub_range.end.hex(), holder.seconds, where["resolved_time"]),
                    sub_range.last_error,
                )
        self._told_unsubscribed, self.verdicts.stuck = telling, found

    def _tell_ending(self) -> None:
        """Log subscriptions that end again and again for the same reason, each time that their number has doubled."""
        now = asyncio.get_running_loop().time()  # the clock of the region state machine
        ending = self.puller.machine.ending_again(now)
        if len(self._told_ending) > TOLD_AT_MOST:
            self._told_ending.clear()
        found = [one for one in self.verdicts.stuck if one["cause"] != Cause.ENDING]
        for one in ending[:LISTED]:
            where = {**self._where(one.id, one.resolved_ts), "last_error": one.reason}
            found.append({"cause": Cause.ENDING.value, "seconds": round(now - one.ending_since, 1), "times": one.ends, **where})
            key = (one.region.id if one.region is not None else -one.id, one.reason)
            told = self._told_ending.get(key, 0)
            if one.ends >= 2 * told or one.ends < told:
                _log.warning(
                    "%s has ended %d times in a row in %.0f s: %s; the pauses between its subscriptions grow",
                    self.puller.machine.describe(one), one.ends, now - one.ending_since, one.reason,
                )  # fmt: skip
                self._told_ending[key] = one.ends
        self.verdicts.stuck = found

    def _tell_held(self, now: float) -> None:
        """Log which tables are held up: by what, since when."""
        present = max(self._present, self.watch.newest())
        behind, slowest = self.watch.behind(present - (round(self._held.after * 1000) << tso.LOGICAL_BITS), now, LOOKED_AT)
        lagging = []
        for id_, resolved, seconds in slowest:
            sub_range = self.puller.machine.sub_range(id_)
            if sub_range is not None:
                has_cause = sub_range.phase is not Phase.LIVE or self._is_locked(sub_range)
                lagging.append(Lagging(sub_range.span.id, id_, resolved, seconds, has_cause))
        held = self._held.look(lagging, now)
        self.verdicts.ranges_behind = behind
        self.verdicts.held_tables = [self._described_table(one, present) for one in held]

    def _is_locked(self, sub_range: SubRange) -> bool:
        return sub_range.region is not None and bool(self._locks.get(sub_range.region.id))

    # ------------------------------------------------------------------ descriptions

    def _described_table(self, one: Held, present: int) -> dict[str, Any]:
        since = datetime.now(UTC) - timedelta(seconds=one.seconds)
        where = self._where(one.sub_range, one.resolved)
        sub_range = self.puller.machine.sub_range(one.sub_range)
        return {
            "partition": sub_range.span.partition if sub_range is not None else -1,
            "seconds": round(one.seconds, 1),
            "since": since.isoformat(timespec="seconds"),
            "behind_s": max(0.0, round((tso.physical_ms(present) - tso.physical_ms(one.resolved)) / 1000, 1)),
            "ranges": one.ranges,
            "cause": self._cause(one.sub_range, one.resolved, where).value,
            **where,
        }

    def _cause(self, id_: int, resolved: int, where: dict[str, Any]) -> Cause:
        """Return what holds a sub-range that stands at a resolved ts."""
        sub_range = self.puller.machine.sub_range(id_)
        if sub_range is None:
            return Cause.UNKNOWN
        if sub_range.phase is not Phase.LIVE:
            return Cause.UNSUBSCRIBED if sub_range.last_error else Cause(sub_range.phase.value)
        if "lock" in where:
            return Cause.LOCK
        if id_ in self._silent:
            return Cause.SILENT
        locked = (lock.start_ts for locks in self._locks.values() for lock in locks)
        return Cause.LOCK_BESIDE if resolved in locked else Cause.FROZEN

    def _described(self, one: Stuck) -> dict[str, Any]:
        return {"cause": one.cause.value, "seconds": one.seconds, **self._where(one.sub_range, one.resolved)}

    def _described_holder(self, holder: Holder) -> dict[str, Any]:
        since = datetime.now(UTC) - timedelta(seconds=holder.seconds)
        where = self._where(holder.sub_range, holder.resolved)
        cause = self._cause(holder.sub_range, holder.resolved, where)
        if cause is not Cause.FROZEN or holder.seconds >= HELD_AFTER:  # some range is always the slowest, and moves all the same
            where["cause"] = cause.value
        return {"partition": holder.partition, "seconds": round(holder.seconds, 1), "since": since.isoformat(timespec="seconds"), **where}

    def _where(self, id_: int, resolved: int) -> dict[str, Any]:
        """Return region, store, range, lock and table of a sub-range."""
        sub_range = self.puller.machine.sub_range(id_)
        told: dict[str, Any] = {"resolved_ts": resolved, "resolved_time": describe(resolved)}
        if sub_range is None:
            return told
        told |= {
            "table": sub_range.span.label,
            "start_key": sub_range.start.hex(),
            "end_key": sub_range.end.hex(),
            "phase": sub_range.phase.value,
        }
        if sub_range.last_error:
            told["last_error"] = sub_range.last_error
        store = self.puller.machine.store_of(sub_range)
        if sub_range.region is not None:
            told |= {"region": sub_range.region.id, "store": store, "store_address": self.puller.addresses.get(store, "")}
            locks = self._locks.get(sub_range.region.id, ())
            if locks and sub_range.phase is Phase.LIVE:
                first = min(locks, key=lambda lock: lock.start_ts)
                told |= {"lock": asdict(first) | {"key": first.key.hex(), "primary": first.primary.hex(), "table": self._table(first.key)}}
        return told

    def _sentence(self, one: Stuck) -> str:
        where = self._where(one.sub_range, one.resolved)
        region = (
            f"region {where['region']} at store {where['store']} {where['store_address']}"
            if "region" in where
            else f"sub-range {one.sub_range}"
        )
        lock = f", lock {where['lock']['key']} of transaction {where['lock']['start_ts']}" if "lock" in where else ""
        return (
            f"{region} of {where.get('table', '?')} [{where.get('start_key', '')}, {where.get('end_key', '')}) is {one.cause.value} "
            f"for {one.seconds:.0f} s at {where['resolved_time']}{lock}"
        )

    def _described_lock(self, lock: LockSeen) -> str:
        where = f"{lock.key.hex()} of {self._table(lock.key)} (primary {lock.primary.hex()})"
        return f"the transaction of {describe(lock.start_ts)}, which locks {where}"

    def _table(self, key: bytes) -> str:
        try:
            id_ = parse_record_key(key).table_id
        except MalformedKey:
            return "schema" if key.startswith(b"m") else "an index"
        return self.label(id_) or f"table id {id_}"
