"""A cache of regions that PD reported recently, shared by all spans: thousands of small tables may lie in one region. Pure.

An entry is valid for some seconds only. The cache saves questions to PD in a burst (a start, a store that comes back). A table that is
created hours later lies in a region that was split off for it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from tidemill.capture.tikv.model import Region

FRESH = 10.0  # seconds
MOST = 100_000
"""Regions in the cache at most, about 60 MB. A start with more regions asks PD again for those that were evicted."""


class RegionCache:
    """Keeps one region per key: of regions that overlap, the one with the newest epoch."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._starts: list[bytes] = []
        self._regions: list[Region] = []
        self._told: list[float] = []
        self._start_of: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def learn(self, regions: Iterable[Region], now: float) -> None:
        """Add PD's answer (in key order). Regions without a leader are left out."""
        news = [region for region in regions if region.leader is not None and not self._is_old(region)]
        for region in news:
            if self._start_of.get(region.id, region.start) != region.start:
                self.forget(region.id)
        for run in _runs(news):
            low, high = self._overlapping(run[0].start, run[-1].end)
            for gone in self._regions[low:high]:
                self._start_of.pop(gone.id, None)
            self._starts[low:high] = [region.start for region in run]
            self._regions[low:high] = run
            self._told[low:high] = [now] * len(run)
            self._start_of.update((region.id, region.start) for region in run)
        if len(self._starts) > self.most:
            self._tidy(now)

    def cover(self, start: bytes, end: bytes, after: float, now: float) -> list[Region] | None:
        """Return the regions of [start, end) if the cache has all of them, learned after `after` and within FRESH seconds."""
        low, high = self._overlapping(start, end)
        oldest = max(after, now - FRESH)
        at: bytes | None = start
        for i in range(low, high):
            region = self._regions[i]
            if at is None or region.start > at or self._told[i] <= oldest:
                return None
            at = region.end or None
        return self._regions[low:high] if at is None or at >= end else None

    def forget(self, region_id: int) -> None:
        """Remove a region: a store said that it changed."""
        start = self._start_of.pop(region_id, None)
        if start is not None:
            at = bisect_left(self._starts, start)
            del self._starts[at], self._regions[at], self._told[at]

    def _overlapping(self, start: bytes, end: bytes) -> tuple[int, int]:
        """Return the index range of the regions that overlap [start, end); an empty end is open."""
        low = max(bisect_right(self._starts, start) - 1, 0)
        if low < len(self._starts) and self._regions[low].end and self._regions[low].end <= start:
            low += 1
        return low, bisect_left(self._starts, end, lo=low) if end else len(self._starts)

    def _is_old(self, region: Region) -> bool:
        """Return whether the cache has a newer version of the region, or a newer region for its keys."""
        low, high = self._overlapping(region.start, region.end)
        known = self._regions[low:high]
        start = self._start_of.get(region.id)
        if start is not None:
            known.append(self._regions[bisect_left(self._starts, start)])
        return any(one.version > region.version for one in known)

    def _tidy(self, now: float) -> None:
        kept = [i for i, told in enumerate(self._told) if told > now - FRESH]
        if len(kept) > self.most:
            kept = []
        self._starts = [self._starts[i] for i in kept]
        self._regions = [self._regions[i] for i in kept]
        self._told = [self._told[i] for i in kept]
        self._start_of = {region.id: region.start for region in self._regions}


def _runs(regions: Iterable[Region]) -> Iterator[list[Region]]:
    """Yield runs of neighbours without holes."""
    run: list[Region] = []
    for region in regions:
        if run and run[-1].end != region.start:
            yield run
            run = []
        run.append(region)
    if run:
        yield run
