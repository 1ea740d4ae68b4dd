"""Which subscription carries which sub-range of each span: a state machine without IO.

A span is the key range of one physical table (or of meta keys). Its range lock (range_lock.py) holds sub-ranges that cover it without
overlap. A sub-range is either a gap (its region is not known) or belongs to one region. The driver tells the machine what happened
and when, and carries out the actions that the machine asks for, in their order:

    gap ──(its time comes)──▶ loading ──(PD knows regions)──▶ queued ──(the store has room)──▶ scanning ──(INITIALIZED)──▶ live
     ▲                                                          ▲                                  │                       │
     └────── split, merge, lost region, broken stream ──────────┴── busy, congested, new leader ───┴───────────────────────┘

The table in reactions.py says how each error is handled. Every sub-range always has a record in the receiver that holds the frontier
at its resolved ts. When sub-ranges are replaced, the new records are placed before the old ones are released. So no error can let the
resolved ts pass a row.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import replace

from tidemill.capture.tikv.model import End, Region, StoreError
from tidemill.capture.tikv.regions.actions import Action, CloseStream, Deregister, Fail, OpenStream, ReleaseFrontier, RowSeen, Subscribe
from tidemill.capture.tikv.regions.cover import Cover
from tidemill.capture.tikv.regions.reactions import (
    REACTIONS,
    RETRIES_OF_UNKNOWN,
    Then,
    fatal_error,
    row_lost,
    wait_of,
)
from tidemill.capture.tikv.regions.state import FIRST_WINDOW, Phase, Store, Stream, SubRange
from tidemill.capture.tikv.regions.streams import Streams

WAKE_AT_ONCE = 4096  # sub-ranges queued again in one call
MAX_SCANS = 256  # incremental scans of a store at the same time


class RegionMachine(Cover):
    """All spans of one capture process. `partitions`: their number, including the schema's; request ids depend on it."""

    def __init__(self, partitions: int, *, max_scans: int = MAX_SCANS) -> None:
        super().__init__()
        self.partitions, self.max_scans = partitions, max_scans
        self._streams = Streams(partitions, max_scans)
        self._timers: list[tuple[float, int]] = []  # (due, id) of queued sub-ranges that wait for their back-off
        self._held_back = False
        self._again: set[int] = set()  # sub-ranges whose subscriptions ended again and again
        self.errors: dict[str, int] = {}

    # ------------------------------------------------------------------ driver

    def actions(self) -> list[Action]:
        """Return the actions to carry out now, in this order. Each action is returned once."""
        taken, self._actions = self._actions, []
        return taken

    def next_time(self) -> float | None:
        """Return when to call `wake` next; None: there is nothing to wait for."""
        times = [self._gaps.next_time(), self._timers[0][0] if self._timers else None]
        return min((time for time in times if time is not None), default=None)

    def wake(self, now: float) -> None:
        """Do what is due at `now`."""
        room = WAKE_AT_ONCE
        while self._timers and self._timers[0][0] <= now and room > 0:
            sub_range = self._sub_ranges.get(heapq.heappop(self._timers)[1])
            if sub_range is not None and sub_range.phase is Phase.QUEUED and sub_range.due <= now:
                self._enqueue(sub_range, now)
                room -= 1
        self._gaps.wake(now)
        self._load_more(now)

    def close_idle(self, now: float) -> None:
        """Close streams that have had no subscription for a minute."""
        for stream in self._streams.idle(now):
            self._close(stream)

    def _close(self, stream: Stream) -> None:
        stream.ended = True
        self._actions.append(CloseStream(stream.slot))

    def hold_back(self, held: bool, now: float) -> None:
        """While `held`, run one scan per store at a time (urgent spans excepted): live regions need the memory."""
        if held != self._held_back:
            self._held_back = held
            for store in self._streams.stores.values():
                self._admit(store, now)

    # ------------------------------------------------------------------ looking

    def describe(self, sub_range: SubRange) -> str:
        """Return the region, table and store of a sub-range, for messages."""
        region = f"region {sub_range.region.id}" if sub_range.region is not None else "a range"
        store = self.store_of(sub_range)
        return f"{region} of {sub_range.span.label or f'span {sub_range.span.id}'}" + (f" at store {store}" if store else "")

    def store_of(self, sub_range: SubRange) -> int:
        """Return the store that a sub-range is subscribed at or waits for; 0: none."""
        stream = self._streams.by_slot.get(sub_range.slot)
        if stream is not None:
            return stream.store_id
        return sub_range.region.leader.store_id if sub_range.region is not None and sub_range.region.leader is not None else 0

    def sub_ranges_on(self, slot: int) -> int:
        """Return how many subscriptions a stream carries."""
        stream = self._streams.by_slot.get(slot)
        return len(stream.sub_ranges) if stream is not None else 0

    def ending_again(self, now: float) -> list[SubRange]:
        """Return the sub-ranges whose subscriptions end again and again for the same reason, the oldest first."""
        known = ((id_, self._sub_ranges.get(id_)) for id_ in self._again)
        found = {id_: one for id_, one in known if one is not None and one.ends_again(now)}
        self._again &= found.keys()
        return sorted(found.values(), key=lambda one: one.ending_since)

    # ------------------------------------------------------------------ spans

    def remove_span(self, span_id: int, now: float) -> None:
        """Stop capturing a span."""
        gone = list(self._spans.pop(span_id, ()))
        with_room: set[int] = set()  # stores that can begin another scan now
        for sub_range in gone:
            if sub_range.phase in (Phase.SCANNING, Phase.LIVE):
                if sub_range.phase is Phase.SCANNING:
                    with_room.add(self.store_of(sub_range))
                self._deregister(sub_range)
                self._leave_stream(sub_range, now)
            self._forget(sub_range)
        if gone:
            self._actions.append(ReleaseFrontier(tuple(sorted(p.id for p in gone))))
        for store_id in sorted(with_room):
            self._admit(self._streams.store(store_id), now)

    # ------------------------------------------------------------------ subscribing

    def _queue(self, sub_range: SubRange, region: Region, now: float, delay: float) -> None:
        self._spans[sub_range.span.id].lock(sub_range, region)
        self._enter(sub_range, Phase.QUEUED, now)
        sub_range.due = now + delay
        if delay > 0:
            heapq.heappush(self._timers, (sub_range.due, sub_range.id))
        else:
            self._enqueue(sub_range, now)

    def _enqueue(self, sub_range: SubRange, now: float) -> None:
        assert sub_range.region is not None
        assert sub_range.region.leader is not None
        store = self._streams.store(sub_range.region.leader.store_id)
        store.enqueue(sub_range)
        self._admit(store, now)

    def _admit(self, store: Store, now: float) -> None:
        """Subscribe the sub-ranges that wait for this store, while its scan window has room and a stream is open."""
        while queue := store.waiting:
            sub_range = self._sub_ranges.get(queue[0])
            if sub_range is None or not store.waits(sub_range, now):
                queue.popleft()
                continue
            window = 1 if self._held_back else store.window  # never 0: rows that wait may need this scan before they can be sealed
            if not sub_range.span.urgent and store.scanning >= window:
                return
            assert sub_range.region is not None
            stream = self._streams.choose(store, sub_range.region.id)
            if stream is None:
                stream = self._streams.add(store)
                self._actions.append(OpenStream(stream.slot, store.id, stream.multiplexed))
            if not stream.up:
                return
            queue.popleft()
            self._subscribe(sub_range, stream, now)

    def _subscribe(self, sub_range: SubRange, stream: Stream, now: float) -> None:
        assert sub_range.region is not None
        self._enter(sub_range, Phase.SCANNING, now)
        request_id = stream.take(sub_range.region.id, sub_range.span.partition)
        sub_range.slot, sub_range.request_id = stream.slot, request_id
        stream.sub_ranges.add(sub_range.id)
        self._streams.stores[stream.store_id].scanning += 1
        self._actions.append(
            Subscribe(
                *(sub_range.id, stream.slot, sub_range.region, request_id, sub_range.resolved_ts, sub_range.start, sub_range.end),
                *(sub_range.span.partition, sub_range.span.checkpoint),
            )
        )

    def _leave_stream(self, sub_range: SubRange, now: float) -> None:
        """Take the sub-range off its stream: its subscription has ended."""
        stream = self._streams.by_slot.get(sub_range.slot)
        if stream is not None and sub_range.id in stream.sub_ranges:
            stream.sub_ranges.discard(sub_range.id)
            stream.idle_since = now
            if sub_range.phase is Phase.SCANNING:
                self._streams.stores[stream.store_id].scanning -= 1
        sub_range.slot = -1

    def _deregister(self, sub_range: SubRange) -> None:
        stream = self._streams.by_slot.get(sub_range.slot)
        if stream is not None and not stream.ended and sub_range.region is not None:
            # The request id stays taken: messages of the old subscription may still come.
            self._actions.append(Deregister(sub_range.slot, sub_range.region.id, sub_range.request_id))

    # ------------------------------------------------------------------ streams

    def stream_opened(self, slot: int, now: float) -> None:
        """Note that a stream is open and takes requests."""
        stream = self._streams.by_slot.get(slot)
        if stream is not None and not stream.ended:
            stream.up, stream.idle_since = True, now
            self._admit(self._streams.stores[stream.store_id], now)

    def stream_ended(self, slot: int, now: float, *, unimplemented: bool = False) -> None:
        """Note that a stream ended or could not be opened. Nothing is subscribed on it from now on. `stream_lost` follows if it was
        open."""
        stream = self._streams.by_slot.get(slot)
        if stream is None:
            return
        stream.ended = True
        store = self._streams.stores[stream.store_id]
        if unimplemented and stream.multiplexed:
            store.multiplexed = False
            if not stream.up:
                self._streams.remove(stream)
                self._admit(store, now)
        elif not stream.up:
            self._streams.remove(stream)
            self._reload_queue(store, now)

    def _reload_queue(self, store: Store, now: float) -> None:
        """Ask PD again for all sub-ranges that wait for a store that cannot be reached."""
        self._count(End.STORE)
        for id_ in store.clear():
            sub_range = self._sub_ranges.get(id_)
            if sub_range is not None and store.waits(sub_range, now):
                sub_range.last_error = f"store {store.id} cannot be reached"
                self._gap(sub_range, now, sub_range.backoff(now))

    def stream_lost(self, slot: int, sub_ranges: Iterable[tuple[int, int]], now: float, *, last: bool = True) -> None:
        """Subscribe the sub-ranges of a lost stream again. The receiver gives them with their resolved ts, in several calls; `last` marks
        the last one. If the receiver ended the stream itself, it may not know the newest subscriptions yet. They end too: nothing was
        received for them."""
        stream = self._streams.by_slot.get(slot)
        if stream is None:
            return
        stream.ended = True
        store = self._streams.stores[stream.store_id]
        store.window = min(store.window, FIRST_WINDOW)
        fell_back = stream.multiplexed and not store.multiplexed
        told = list(sub_ranges)
        unknown = stream.sub_ranges.difference(id_ for id_, _ in told) if last else ()
        for id_, resolved in (*told, *((id_, 0) for id_ in sorted(unknown))):
            known = self._sub_ranges.get(id_)
            sub_range = self._subscribed(id_, resolved) if known is not None and known.slot == slot else None
            if sub_range is None:
                continue
            self._leave_stream(sub_range, now)
            self._count(End.STREAM)
            sub_range.last_error = f"the stream to store {store.id} broke"
            if fell_back and sub_range.region is not None:
                self._queue(sub_range, sub_range.region, now, 0.0)
            else:
                self._gap(sub_range, now, sub_range.backoff(now))
        if last:
            self._streams.remove(stream)
            self._admit(store, now)

    # ------------------------------------------------------------------ subscriptions

    def scan_done(self, id_: int, now: float) -> None:
        """Note INITIALIZED: the incremental scan is complete, and the sub-range is live."""
        sub_range = self._sub_ranges.get(id_)
        if sub_range is None or sub_range.phase is not Phase.SCANNING:
            return
        self._enter(sub_range, Phase.LIVE, now)
        sub_range.duplicates, sub_range.last_error = 0, ""
        store = self._streams.stores[self._streams.by_slot[sub_range.slot].store_id]
        store.scanning -= 1
        store.grow(self.max_scans)
        self._admit(store, now)

    def failed(self, id_: int, resolved: int, error: StoreError, now: float) -> None:
        """Handle an error with which the store ended the subscription."""
        self._react(id_, resolved, error, now)

    def broken(self, id_: int, resolved: int, now: float, cause: str = "protocol") -> None:
        """Subscribe again after the store broke the protocol. The sub-range is complete only up to `resolved`, even if a higher resolved ts
        was reported before."""
        sub_range = self._subscribed(id_, resolved)
        if sub_range is not None:
            sub_range.resolved_ts = resolved
            self._react(id_, resolved, StoreError(End.PROTOCOL), now, cause)

    def lost(self, id_: int, region_id: int, cause: str, row: RowSeen, head: int) -> None:
        """End the capture: the store sent a row at or below `head`, up to which the log is complete already."""
        sub_range = self._sub_ranges.get(id_)
        where = f"region {region_id}" if sub_range is None else self.describe(sub_range)
        self._count(End.PROTOCOL)
        self._actions.append(Fail(row_lost(where, cause, row, head)))

    def frozen(self, id_: int, resolved: int, now: float) -> None:
        """Subscribe again, because the watchdog saw no progress."""
        self._react(id_, resolved, StoreError(End.FROZEN), now)

    def _subscribed(self, id_: int, resolved: int) -> SubRange | None:
        """Return the sub-range if it is subscribed, after raising its resolved ts to `resolved`."""
        sub_range = self._sub_ranges.get(id_)
        if sub_range is None or sub_range.phase not in (Phase.SCANNING, Phase.LIVE):
            return None
        sub_range.resolved_ts = max(sub_range.resolved_ts, resolved)
        return sub_range

    def _react(self, id_: int, resolved: int, error: StoreError, now: float, cause: str = "") -> None:
        """Handle the end of a subscription as REACTIONS says. `cause`: if more is known than `error` says."""
        sub_range = self._subscribed(id_, resolved)
        if sub_range is None:
            return
        end = error.end
        self._count(end)
        sub_range.last_error = cause or end.value
        sub_range.ended(sub_range.last_error, now)
        if error.split:
            sub_range.ends = 0
        elif sub_range.ends_again(now):
            self._again.add(id_)
        reaction, region, stream = REACTIONS[end], sub_range.region, self._streams.by_slot[sub_range.slot]
        assert region is not None
        self._cache.forget(region.id)
        store = self._streams.stores[stream.store_id]
        store.shrink(reaction.window)
        if reaction.tell:
            self._deregister(sub_range)
        elif sub_range.phase is Phase.LIVE:
            stream.give_back(region.id, sub_range.request_id)
        # A scan may still send what it has read: TiKV queues it apart from errors, which overtake it. So its id is not used again.
        self._leave_stream(sub_range, now)
        then, wait = reaction.then, sub_range.backoff(now, reaction.cap)
        if end is End.UNKNOWN and sub_range.attempts > RETRIES_OF_UNKNOWN:
            then = Then.RELOAD
        if then is Then.REOPEN:
            sub_range.duplicates += 1
            if sub_range.duplicates > 1:
                then = Then.FATAL
            elif not stream.ended:
                self._close(stream)
        if then is Then.FATAL:
            self._actions.append(Fail(fatal_error(error)))
        elif then is Then.MOVE and error.leader is not None:
            self._queue(sub_range, replace(region, leader=error.leader), now, wait)
        elif then in (Then.RETRY, Then.REOPEN):
            self._queue(sub_range, region, now, max(wait, wait_of(error)))
        else:
            self._gap(sub_range, now, 0.0 if error.split and sub_range.attempts == 1 else wait)
        self._admit(store, now)

    def _count(self, end: End) -> None:
        self.errors[end.value] = self.errors.get(end.value, 0) + 1
