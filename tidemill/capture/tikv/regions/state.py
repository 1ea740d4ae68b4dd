"""The state that the region state machine keeps: sub-ranges of spans, streams, stores."""

from __future__ import annotations

import enum
import heapq
from collections import deque
from dataclasses import dataclass, field
from zlib import crc32

from tidemill.capture.tikv.model import Region
from tidemill.capture.tikv.regions.actions import Span

BACKOFF_FIRST, BACKOFF_CAP = 0.05, 2.0
BACKOFF_FORGET = 300.0  # seconds without an error after which a sub-range's back-off begins again
RECOVERED = 10.0  # seconds for which a subscription that ended again and again has to be live
AGAIN = 3  # ends in a row for one reason that are worth a warning
TOGETHER = 0.05  # gaps that are due within this many seconds are asked for together
FIRST_WINDOW, LEAST_WINDOW = 32.0, 2.0  # incremental scans of a store at the same time: at first, at least


class Phase(enum.Enum):
    """The state of a sub-range."""

    GAP = "gap"
    LOADING = "loading"
    QUEUED = "queued"
    SCANNING = "scanning"
    LIVE = "live"

    __hash__ = object.__hash__  # each is there once; Enum's own hash is a call into Python, for each change of each sub-range


@dataclass(slots=True, eq=False)
class SubRange:
    """A part of a span that is subscribed in one region request, or is a gap. `region`: the region that has locked it in the span's range
    lock."""

    id: int
    span: Span
    start: bytes
    end: bytes
    resolved_ts: int
    phase: Phase = Phase.GAP
    region: Region | None = None
    slot: int = -1
    request_id: int = 0
    due: float = 0.0
    since: float = 0.0  # when its phase began
    attempts: int = 0
    failed_at: float = -1e9
    reason: str = ""  # why its subscription ended last, how often in a row for that, and since when
    ends: int = 0
    ending_since: float = 0.0
    duplicates: int = 0
    last_error: str = ""  # why it is not subscribed
    refused: int = 0  # how often in a row the range lock refused the region that PD named

    @property
    def was_live(self) -> bool:
        """Whether its resolved ts has advanced since the start: its next scan is short."""
        return self.resolved_ts > self.span.checkpoint

    def is_due(self, now: float) -> bool:
        """Return whether it is a gap that is due within TOGETHER seconds."""
        return self.phase is Phase.GAP and self.due <= now + TOGETHER

    def ended(self, reason: str, now: float) -> None:
        """Count an end of its subscription. Before `backoff`, which notes when that was."""
        if reason != self.reason or now - self.failed_at > BACKOFF_FORGET:
            self.reason, self.ends, self.ending_since = reason, 0, now
        self.ends += 1

    def ends_again(self, now: float) -> bool:
        """Return whether its subscription ends again and again for the same reason. One that is live for a while does not."""
        return self.ends >= AGAIN and (self.phase is not Phase.LIVE or now - self.since <= RECOVERED)

    def inherit(self, others: list[SubRange]) -> None:
        """Take over the back-off of the sub-ranges that this one replaces."""
        worst = max(others, key=lambda other: other.ends)
        self.attempts, self.failed_at = max(o.attempts for o in others), max(o.failed_at for o in others)
        self.reason, self.ends, self.ending_since = worst.reason, worst.ends, worst.ending_since

    def backoff(self, now: float, cap: float = BACKOFF_CAP) -> float:
        """Return the seconds to wait after an error. Only ends for one reason in a row let the wait grow beyond BACKOFF_CAP, up to `cap`.
        The wait is shortened by up to a half, differently for each sub-range, so that those that failed together do not retry together."""
        if now - self.failed_at > BACKOFF_FORGET:
            self.attempts = 0
        self.failed_at = now
        wait = min(BACKOFF_FIRST * 2.0**self.attempts, BACKOFF_CAP)
        if cap > BACKOFF_CAP and self.ends:
            wait = max(wait, min(BACKOFF_FIRST * 2.0 ** min(self.ends - 1, 16), cap))
        self.attempts = min(self.attempts + 1, 16)
        return wait * (1.0 - crc32(b"%d %d" % (self.id, self.attempts)) / 2**33)


@dataclass(slots=True)
class RequestIds:
    """The request ids of one stream. The regions of a partition share one id where they can, so that the store can batch their resolved
    ts. A second sub-range of the same region takes the partition's next id: 1 + partition, then 1 + partition + `partitions`, and so on."""

    partitions: int
    _given: dict[int, int] = field(default_factory=dict)  # by region and partition (`_place`): how many ids were taken so far
    _back: dict[int, list[int]] = field(default_factory=dict)  # of these, the ids that are free again: a heap

    def _place(self, region_id: int, partition: int) -> int:
        return region_id * self.partitions + partition

    def take(self, region_id: int, partition: int) -> int:
        """Return an id that the region does not use on this stream."""
        place = self._place(region_id, partition)
        if back := self._back.get(place):
            return heapq.heappop(back)
        given = self._given.get(place, 0)
        self._given[place] = given + 1
        return 1 + partition + given * self.partitions

    def give_back(self, region_id: int, request_id: int) -> None:
        """Free an id of a subscription that the store has ended after its scan: no message of it can follow."""
        place = self._place(region_id, (request_id - 1) % self.partitions)
        back = self._back.setdefault(place, [])
        heapq.heappush(back, request_id)
        if len(back) == self._given[place]:
            del self._back[place], self._given[place]


@dataclass(slots=True)
class Stream:
    """An EventFeed stream to a store; it exists from the request to open it."""

    slot: int
    store_id: int
    multiplexed: bool
    ids: RequestIds
    up: bool = False
    ended: bool = False
    alone: set[int] = field(default_factory=set)  # without multiplexing: regions that have their one subscription
    sub_ranges: set[int] = field(default_factory=set)
    idle_since: float = 0.0

    def take(self, region_id: int, partition: int) -> int:
        """Return the request id of a new subscription."""
        if self.multiplexed:
            return self.ids.take(region_id, partition)
        self.alone.add(region_id)
        return 1 + partition

    def give_back(self, region_id: int, request_id: int) -> None:
        """Free the request id of a subscription that the store has ended after its scan. Without multiplexing, where a region has one id,
        the region may then be subscribed on this stream again."""
        if self.multiplexed:
            self.ids.give_back(region_id, request_id)
        else:
            self.alone.discard(region_id)


@dataclass(slots=True)
class Store:
    """A store, its streams, and the sub-ranges that wait for them. The queues hold each waiting sub-range once. `window`: how many scans
    may run at the same time. It grows by one with every scan that ends, and shrinks when the store is busy."""

    id: int
    multiplexed: bool = True
    scanning: int = 0
    window: float = FIRST_WINDOW
    streams: list[Stream] = field(default_factory=list)
    queue: deque[int] = field(default_factory=deque)
    live: deque[int] = field(default_factory=deque)  # goes first: a sub-range that was live must not wait for thousands that catch up

    @property
    def waiting(self) -> deque[int]:
        """The queue from which the next sub-range is taken."""
        return self.live or self.queue

    def enqueue(self, sub_range: SubRange) -> None:
        """Add a sub-range at the end of its queue, an urgent one at the front."""
        if sub_range.span.urgent:
            self.live.appendleft(sub_range.id)
        else:
            (self.live if sub_range.was_live else self.queue).append(sub_range.id)

    def clear(self) -> list[int]:
        """Empty the queues; return the ids that waited."""
        found = [*self.live, *self.queue]
        self.live.clear()
        self.queue.clear()
        return found

    def waits(self, sub_range: SubRange, now: float) -> bool:
        """Return whether a queued sub-range is still to be subscribed at this store now."""
        leader = sub_range.region.leader if sub_range.region is not None else None
        return sub_range.phase is Phase.QUEUED and sub_range.due <= now and leader is not None and leader.store_id == self.id

    def grow(self, most: int) -> None:
        """Widen the window: a scan has completed."""
        self.window = min(self.window + 1, most)

    def shrink(self, factor: float) -> None:
        """Narrow the window: the store is busy."""
        self.window = max(self.window * factor, LEAST_WINDOW)


def contiguous(sub_ranges: list[SubRange]) -> list[list[SubRange]]:
    """Return sub-ranges (sorted by span and key) as runs without holes."""
    runs: list[list[SubRange]] = []
    for sub_range in sub_ranges:
        if runs and runs[-1][-1].end == sub_range.start and runs[-1][-1].span is sub_range.span:
            runs[-1].append(sub_range)
        else:
            runs.append([sub_range])
    return runs
