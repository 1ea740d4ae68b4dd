"""Which subscription carries which sub-range of each span: a state machine without IO.

A span is the key range of one physical table (or of meta keys). Its range lock (range_lock.py) holds sub-ranges that cover it without
overlap; a sub-range is either a gap (no region is known for it) or belongs to one region. Whoever drives the machine tells it what
happened and when, and carries out the actions that it asks for, in their order:

    gap ──(its time comes)──▶ loading ──(PD knows regions)──▶ queued ──(the store has room)──▶ scanning ──(INITIALIZED)──▶ live
     ▲                                                          ▲                                  │                       │
     └────── split, merge, lost region, broken stream ──────────┴── busy, congested, new leader ───┴───────────────────────┘

What follows from which error is the table in reactions.py. Every sub-range has at all times a record with the receiver that holds the
frontier at the sub-range's resolved ts; successors are placed before what they replace is dropped. So no error can let the resolved
ts pass a row.
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

WAKE_AT_ONCE = 4096  # sub-ranges that are queued again together
MAX_SCANS = 256  # subscriptions of a store whose scan is not over, at most


class RegionMachine(Cover):
    """All spans of one capture process. `partitions`: how many, the schema's included (request ids are told apart by them)."""

    def __init__(self, partitions: int, *, max_scans: int = MAX_SCANS) -> None:
        super().__init__()
        self.partitions, self.max_scans = partitions, max_scans
        self._streams = Streams(partitions, max_scans)
        self._timers: list[tuple[float, int]] = []  # of sub-ranges that are queued
        self._held_back = False
        self.errors: dict[str, int] = {}

    # ------------------------------------------------------------------ driver

    def actions(self) -> list[Action]:
        """What is to be done now, in this order; asked for once."""
        taken, self._actions = self._actions, []
        return taken

    def next_time(self) -> float | None:
        """When `wake` has something to do."""
        times = [self._gaps.next_time(), self._timers[0][0] if self._timers else None]
        return min((time for time in times if time is not None), default=None)

    def wake(self, now: float) -> None:
        """Time has passed."""
        room = WAKE_AT_ONCE
        while self._timers and self._timers[0][0] <= now and room > 0:
            sub_range = self._pieces.get(heapq.heappop(self._timers)[1])
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
        """One scan at a time and store (but for urgent spans) while `held`: what is live needs the room."""
        if held != self._held_back:
            self._held_back = held
            for store in self._streams.stores.values():
                self._admit(store, now)

    # ------------------------------------------------------------------ looking

    def describe(self, sub_range: SubRange) -> str:
        """Region, table and store of a sub-range, for people."""
        region = f"region {sub_range.region.id}" if sub_range.region is not None else "a range"
        store = self.store_of(sub_range)
        return f"{region} of {sub_range.span.label or f'span {sub_range.span.id}'}" + (f" at store {store}" if store else "")

    def store_of(self, sub_range: SubRange) -> int:
        """The store that a sub-range is subscribed at or waits for; 0: none."""
        stream = self._streams.by_slot.get(sub_range.slot)
        if stream is not None:
            return stream.store_id
        return sub_range.region.leader.store_id if sub_range.region is not None and sub_range.region.leader is not None else 0

    def pieces_on(self, slot: int) -> int:
        """How many subscriptions a stream carries."""
        stream = self._streams.by_slot.get(slot)
        return len(stream.sub_ranges) if stream is not None else 0

    # ------------------------------------------------------------------ spans

    def remove_span(self, span_id: int, now: float) -> None:
        """Nobody wants this range any more."""
        gone = list(self._spans.pop(span_id, ()))
        with_room: set[int] = set()  # stores that may begin other scans now
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
        """Subscribe what waits for this store, as far as it has room for scans and a stream is open."""
        while queue := store.waiting:
            sub_range = self._pieces.get(queue[0])
            if sub_range is None or not store.waits(sub_range, now):
                queue.popleft()
                continue
            window = 1 if self._held_back else store.window  # never none: rows that wait may need this scan to be sealed
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
                *(sub_range.id, stream.slot, sub_range.region, request_id, sub_range.checkpoint, sub_range.start, sub_range.end),
                *(sub_range.span.partition, sub_range.span.checkpoint),
            )
        )

    def _leave_stream(self, sub_range: SubRange, now: float) -> None:
        """The sub-range's subscription is over."""
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
            # Its ids stay used: messages of the old subscription may still come.
            self._actions.append(Deregister(sub_range.slot, sub_range.region.id, sub_range.request_id))

    # ------------------------------------------------------------------ streams

    def stream_opened(self, slot: int, now: float) -> None:
        """The stream takes requests."""
        stream = self._streams.by_slot.get(slot)
        if stream is not None and not stream.ended:
            stream.up, stream.idle_since = True, now
            self._admit(self._streams.stores[stream.store_id], now)

    def stream_ended(self, slot: int, now: float, *, unimplemented: bool = False) -> None:
        """The stream is over, or could not be opened: nothing may be subscribed on it. `stream_lost` follows if it was open."""
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
        """The store cannot be reached: whoever waits for it asks PD again."""
        self._count(End.STORE)
        for id_ in store.clear():
            sub_range = self._pieces.get(id_)
            if sub_range is not None and store.waits(sub_range, now):
                sub_range.why = f"store {store.id} cannot be reached"
                self._gap(sub_range, now, sub_range.backoff(now))

    def stream_lost(self, slot: int, sub_ranges: Iterable[tuple[int, int]], now: float, *, last: bool = True) -> None:
        """The receiver has let go of the stream; these sub-ranges (with their resolved ts) were on it. `last`: these were all. If the
        receiver ended the stream itself, it may not know the newest subscriptions yet. These end too; nothing was received for them."""
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
            known = self._pieces.get(id_)
            sub_range = self._subscribed(id_, resolved) if known is not None and known.slot == slot else None
            if sub_range is None:
                continue
            self._leave_stream(sub_range, now)
            self._count(End.STREAM)
            sub_range.why = f"the stream to store {store.id} broke"
            if fell_back and sub_range.region is not None:
                self._queue(sub_range, sub_range.region, now, 0.0)
            else:
                self._gap(sub_range, now, sub_range.backoff(now))
        if last:
            self._streams.remove(stream)
            self._admit(store, now)

    # ------------------------------------------------------------------ subscriptions

    def scan_done(self, id_: int, now: float) -> None:
        """INITIALIZED."""
        sub_range = self._pieces.get(id_)
        if sub_range is None or sub_range.phase is not Phase.SCANNING:
            return
        self._enter(sub_range, Phase.LIVE, now)
        sub_range.duplicates, sub_range.why = 0, ""
        store = self._streams.stores[self._streams.by_slot[sub_range.slot].store_id]
        store.scanning -= 1
        store.grow(self.max_scans)
        self._admit(store, now)

    def failed(self, id_: int, resolved: int, error: StoreError, now: float) -> None:
        """The store ended the subscription with an error."""
        self._react(id_, resolved, error, now)

    def broken(self, id_: int, resolved: int, now: float, cause: str = "protocol") -> None:
        """The store broke the protocol for this sub-range, which is complete up to `resolved` only, whatever was said of it before."""
        sub_range = self._subscribed(id_, resolved)
        if sub_range is not None:
            sub_range.checkpoint = resolved
            self._react(id_, resolved, StoreError(End.PROTOCOL), now)
            sub_range.why = cause

    def lost(self, id_: int, region_id: int, cause: str, row: RowSeen, head: int) -> None:
        """The store broke the protocol by a row that the log cannot take any more, because it is complete up to `head`."""
        sub_range = self._pieces.get(id_)
        where = f"region {region_id}" if sub_range is None else self.describe(sub_range)
        self._count(End.PROTOCOL)
        self._actions.append(Fail(row_lost(where, cause, row, head)))

    def frozen(self, id_: int, resolved: int, now: float) -> None:
        """The watchdog gave up on this sub-range's subscription."""
        self._react(id_, resolved, StoreError(End.FROZEN), now)

    def _subscribed(self, id_: int, resolved: int) -> SubRange | None:
        """The sub-range, if it is subscribed; its resolved ts is noted: it never goes back."""
        sub_range = self._pieces.get(id_)
        if sub_range is None or sub_range.phase not in (Phase.SCANNING, Phase.LIVE):
            return None
        sub_range.checkpoint = max(sub_range.checkpoint, resolved)
        return sub_range

    def _react(self, id_: int, resolved: int, error: StoreError, now: float) -> None:
        """The subscription is over: what the table says follows."""
        sub_range = self._subscribed(id_, resolved)
        if sub_range is None:
            return
        end = error.end
        self._count(end)
        sub_range.why = end.value
        reaction, region, stream = REACTIONS[end], sub_range.region, self._streams.by_slot[sub_range.slot]
        assert region is not None
        self._cache.forget(region.id)
        store = self._streams.stores[stream.store_id]
        store.shrink(reaction.window)
        if reaction.tell:
            self._deregister(sub_range)
        else:
            stream.give_back(region.id, sub_range.request_id)
        self._leave_stream(sub_range, now)
        then, wait = reaction.then, sub_range.backoff(now)
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
