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
TOGETHER = 0.05  # gaps that are due within so many seconds are loaded together
FIRST_WINDOW, LEAST_WINDOW = 32.0, 2.0  # scans that a store is given at the same time


class Phase(enum.Enum):
    """Where a sub-range is."""

    GAP = "gap"
    LOADING = "loading"
    QUEUED = "queued"
    SCANNING = "scanning"
    LIVE = "live"


@dataclass(slots=True, eq=False)
class SubRange:
    """A part of a span that one subscription carries, or none yet. `region` is whose it is in the span's range lock."""

    id: int
    span: Span
    start: bytes
    end: bytes
    checkpoint: int
    phase: Phase = Phase.GAP
    region: Region | None = None
    slot: int = -1
    request_id: int = 0
    due: float = 0.0
    since: float = 0.0  # when it came into its phase
    attempts: int = 0
    failed_at: float = -1e9
    duplicates: int = 0
    why: str = ""  # it is not subscribed, after the last error
    refused: int = 0  # times in a row that the range lock did not let it have what PD told

    @property
    def was_live(self) -> bool:
        """Whether something of it was received and complete: its next scan is short."""
        return self.checkpoint > self.span.checkpoint

    def is_due(self, now: float) -> bool:
        """Whether PD is to be asked for it now, or so soon that it may as well be now."""
        return self.phase is Phase.GAP and self.due <= now + TOGETHER

    def backoff(self, now: float) -> float:
        """Seconds to wait after an error. Shortened by up to a half, each sub-range in its own way, so that those that failed together
        do not come back together."""
        if now - self.failed_at > BACKOFF_FORGET:
            self.attempts = 0
        self.failed_at = now
        wait = min(BACKOFF_FIRST * 2.0**self.attempts, BACKOFF_CAP)
        self.attempts = min(self.attempts + 1, 16)
        return wait * (1.0 - crc32(b"%d %d" % (self.id, self.attempts)) / 2**33)


@dataclass(slots=True)
class RequestIds:
    """The request ids of one stream. All regions of a partition share one id where they can, so that the store can batch their resolved ts.
    A second sub-range of the same region takes the next id of its partition: 1 + partition, then every `partitions`-th one behind it."""

    partitions: int
    _given: dict[tuple[int, int], int] = field(default_factory=dict)  # (region, partition) -> how many ids were given out, in a row
    _back: dict[tuple[int, int], list[int]] = field(default_factory=dict)  # those of them that are free again: a heap

    def take(self, region_id: int, partition: int) -> int:
        """An id that the region does not have on this stream."""
        place = region_id, partition
        if back := self._back.get(place):
            return heapq.heappop(back)
        given = self._given.get(place, 0)
        self._given[place] = given + 1
        return 1 + partition + given * self.partitions

    def give_back(self, region_id: int, request_id: int) -> None:
        """The store has forgotten the subscription: no message of it can follow."""
        place = region_id, (request_id - 1) % self.partitions
        back = self._back.setdefault(place, [])
        heapq.heappush(back, request_id)
        if len(back) == self._given[place]:
            del self._back[place], self._given[place]


@dataclass(slots=True)
class Stream:
    """An EventFeed stream to a store, from the moment it is asked for."""

    slot: int
    store_id: int
    multiplexed: bool
    ids: RequestIds
    up: bool = False
    ended: bool = False
    alone: set[int] = field(default_factory=set)  # regions that have their subscription, on a stream without multiplexing
    sub_ranges: set[int] = field(default_factory=set)
    idle_since: float = 0.0

    def take(self, region_id: int, partition: int) -> int:
        """The request id of a new subscription."""
        if self.multiplexed:
            return self.ids.take(region_id, partition)
        self.alone.add(region_id)
        return 1 + partition

    def give_back(self, region_id: int, request_id: int) -> None:
        """The store has forgotten the subscription."""
        if self.multiplexed:
            self.ids.give_back(region_id, request_id)
        else:
            self.alone.discard(region_id)


@dataclass(slots=True)
class Store:
    """A store, its streams and who waits for them. The queues hold each waiting sub-range once, so they are never longer than the store
    has regions; `window` is how many scans may be under way: it grows by one with every scan that ends and shrinks when the store
    complains."""

    id: int
    multiplexed: bool = True
    scanning: int = 0
    window: float = FIRST_WINDOW
    streams: list[Stream] = field(default_factory=list)
    queue: deque[int] = field(default_factory=deque)
    live: deque[int] = field(default_factory=deque)  # goes first: what was live must not wait for thousands that catch up

    @property
    def waiting(self) -> deque[int]:
        """Where the next sub-range is taken from."""
        return self.live or self.queue

    def enqueue(self, sub_range: SubRange) -> None:
        """Behind those of its kind; urgent ones before all others."""
        if sub_range.span.urgent:
            self.live.appendleft(sub_range.id)
        else:
            (self.live if sub_range.was_live else self.queue).append(sub_range.id)

    def clear(self) -> list[int]:
        """All that wait, who wait no more."""
        found = [*self.live, *self.queue]
        self.live.clear()
        self.queue.clear()
        return found

    def waits(self, sub_range: SubRange, now: float) -> bool:
        """Whether a sub-range in the queue is still to be subscribed here now."""
        leader = sub_range.region.leader if sub_range.region is not None else None
        return sub_range.phase is Phase.QUEUED and sub_range.due <= now and leader is not None and leader.store_id == self.id

    def grow(self, most: int) -> None:
        """A scan has ended well."""
        self.window = min(self.window + 1, most)

    def shrink(self, factor: float) -> None:
        """The store has too much to do."""
        self.window = max(self.window * factor, LEAST_WINDOW)


def contiguous(sub_ranges: list[SubRange]) -> list[list[SubRange]]:
    """Pieces sorted by span and key in runs without holes."""
    runs: list[list[SubRange]] = []
    for sub_range in sub_ranges:
        if runs and runs[-1][-1].end == sub_range.start and runs[-1][-1].span is sub_range.span:
            runs[-1].append(sub_range)
        else:
            runs.append([sub_range])
    return runs
