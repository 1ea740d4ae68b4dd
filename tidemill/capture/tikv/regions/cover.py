"""How spans are covered by sub-ranges. PD's answers turn gaps into sub-ranges of regions. Pure.

A sub-range is either a gap (its region is not known) or belongs to one region. The sub-ranges of a span always cover it without
overlap. New sub-ranges are placed before the old ones are released, so the receiver holds the frontier at every moment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace

from tidemill.capture.tikv.model import Region
from tidemill.capture.tikv.regions.actions import Action, HoldFrontier, ReleaseFrontier, Span
from tidemill.capture.tikv.regions.gaps import GAPS_AT_ONCE, RANGES, Gaps
from tidemill.capture.tikv.regions.range_lock import RangeLock, Verdict
from tidemill.capture.tikv.regions.ranges import cut
from tidemill.capture.tikv.regions.region_cache import RegionCache
from tidemill.capture.tikv.regions.state import Phase, SubRange, contiguous

KNOWN_AT_ONCE = 1024  # gaps that are divided from the region cache in one call: the event loop must not wait longer
MAX_REFUSED = 2  # answers of PD that the range lock may refuse in a row; then they are tried, and TiKV decides

_NOT_KNOWN = "PD knows no region there that has a leader and fits its neighbours"


class Cover(ABC):
    """All spans of one capture process, and the questions to PD about them."""

    def __init__(self) -> None:
        self._actions: list[Action] = []
        self._spans: dict[int, RangeLock[SubRange]] = {}
        self._sub_ranges: dict[int, SubRange] = {}
        self._phases = Counter(dict.fromkeys(Phase, 0))
        self._gaps = Gaps(self._sub_ranges)
        self._cache = RegionCache()
        self._next_id = 1

    @abstractmethod
    def _queue(self, sub_range: SubRange, region: Region, now: float, delay: float) -> None:
        """Give the sub-range to the region and subscribe it."""

    # ------------------------------------------------------------------ looking

    def counts(self) -> dict[str, int]:
        """Return the number of sub-ranges by phase."""
        return {phase.value: self._phases[phase] for phase in Phase}

    @property
    def questions(self) -> int:
        """Questions to PD so far."""
        return self._gaps.questions

    def covered(self, span_id: int) -> list[tuple[bytes, bytes, Phase]]:
        """Return the sub-ranges of a span in key order."""
        return [(p.start, p.end, p.phase) for p in self._spans[span_id]]

    def sub_range(self, id_: int) -> SubRange | None:
        """Return a sub-range, for reading; None: it no longer exists."""
        return self._sub_ranges.get(id_)

    # ------------------------------------------------------------------ spans

    def add_span(self, span: Span, now: float) -> None:
        """Capture a span. Its record is placed in the receiver at once."""
        sub_range = self._new_sub_range(span, span.start, span.end, span.checkpoint)
        self._spans[span.id] = RangeLock(sub_range)
        self._gap(sub_range, now, 0.0)

    def has_span(self, span_id: int) -> bool:
        """Return whether the span is captured."""
        return span_id in self._spans

    def rename_span(self, span_id: int, label: str) -> None:
        """Give the span a new label: its table was renamed."""
        lock = self._spans.get(span_id)
        if lock is not None:
            renamed = replace(next(iter(lock)).span, label=label)
            for sub_range in lock:
                sub_range.span = renamed

    def _new_sub_range(self, span: Span, start: bytes, end: bytes, resolved_ts: int) -> SubRange:
        sub_range = SubRange(self._next_id, span, start, end, resolved_ts)
        self._next_id += 1
        self._sub_ranges[sub_range.id] = sub_range
        self._phases[sub_range.phase] += 1
        self._actions.append(HoldFrontier(sub_range.id, resolved_ts, span.partition))
        return sub_range

    def _forget(self, sub_range: SubRange) -> None:
        self._phases[sub_range.phase] -= 1
        del self._sub_ranges[sub_range.id]

    # ------------------------------------------------------------------ gaps and regions

    def _gap(self, sub_range: SubRange, now: float, delay: float) -> None:
        self._spans[sub_range.span.id].unlock(sub_range)
        self._enter(sub_range, Phase.GAP, now)
        sub_range.due = now + delay
        self._gaps.add(sub_range)

    def _enter(self, sub_range: SubRange, phase: Phase, now: float) -> None:
        self._phases[sub_range.phase] -= 1
        self._phases[phase] += 1
        sub_range.phase, sub_range.since = phase, now

    def _load_more(self, now: float) -> None:
        """Divide gaps by the regions in the cache, and ask PD for the others, many in one question."""
        room = KNOWN_AT_ONCE
        while self._gaps.may_ask and room > 0:
            runs: list[list[SubRange]] = []
            asked = 0
            while asked < GAPS_AT_ONCE and len(runs) < RANGES and room > 0 and (sub_range := self._gaps.take()) is not None:
                run = self._neighbours(sub_range, now)
                if self._divide_by_cache(run, now):
                    room -= len(run)
                    continue
                for other in run:
                    self._enter(other, Phase.LOADING, now)
                runs.append(run)
                asked += len(run)
            if runs:
                self._actions.append(self._gaps.ask(runs))

    def _divide_by_cache(self, run: list[SubRange], now: float) -> bool:
        """Divide the gaps if the cache has their regions, learned after the gaps failed. Return whether it did."""
        regions = self._known(run, now)
        if regions is None:
            return False
        wide = self._widened(run, regions)
        if len(wide) > len(run) and self._known(wide, now) is None:
            return False
        self._divide(wide, regions, True, now)
        return True

    def _known(self, run: list[SubRange], now: float) -> list[Region] | None:
        return self._cache.cover(run[0].start, run[-1].end, max(sub_range.failed_at for sub_range in run), now)

    def _neighbours(self, sub_range: SubRange, now: float) -> list[SubRange]:
        """Return the gap and its neighbours that are due as well, in key order: after a merge one region covers them."""
        lock, found = self._spans[sub_range.span.id], deque([sub_range])
        while len(found) < GAPS_AT_ONCE and (left := lock.before(found[0])) is not None and left.is_due(now):
            found.appendleft(left)
        while len(found) < GAPS_AT_ONCE and (right := lock.after(found[-1])) is not None and right.is_due(now):
            found.append(right)
        return list(found)

    def load_failed(self, load: int, now: float) -> None:
        """Wait and ask again: PD did not answer."""
        for sub_range in self._gaps.answered(load):
            sub_range.last_error = "PD does not answer"
            self._gap(sub_range, now, sub_range.backoff(now))
        self._load_more(now)

    def loaded(self, load: int, regions: Sequence[Region], complete: bool, now: float) -> None:
        """Divide gaps by PD's answer to a LoadRegions (in key order). `complete`: the answer was not cut at its size limit."""
        self._cache.learn(regions, now)
        starts = [r.start for r in regions]
        for run in contiguous(self._gaps.answered(load)):
            first = max(bisect_right(starts, run[0].start) - 1, 0)
            if first < len(regions) and regions[first].end and regions[first].end <= run[0].start:
                first += 1
            there = regions[first : bisect_left(starts, run[-1].end, lo=first)]
            told = complete or (bool(regions) and run[-1].end <= (regions[-1].end or run[-1].end))
            self._divide(self._widened(run, there), there, told, now)
        self._load_more(now)

    def _widened(self, run: list[SubRange], regions: Sequence[Region]) -> list[SubRange]:
        """Add neighbouring gaps that lie in the same regions to the run, so that each region is subscribed once."""
        lock = self._spans[run[0].span.id]
        at_left = next((r for r in regions if not r.end or r.end > run[0].start), None)
        while at_left is not None and at_left.start < run[0].start:
            other = lock.before(run[0])
            if other is None or other.phase is not Phase.GAP:
                break
            run = [other, *run]
        while regions and (not regions[-1].end or regions[-1].end > run[-1].end):
            other = lock.after(run[-1])
            if other is None or other.phase is not Phase.GAP:
                break
            run = [*run, other]
        return run

    def _divide(self, gaps: list[SubRange], regions: Sequence[Region], complete: bool, now: float) -> None:
        """Replace contiguous gaps by one sub-range for each region that PD knows, and by new gaps for the rest."""
        span, lock = gaps[0].span, self._spans[gaps[0].span.id]
        cuts, reached = cut(gaps[0].start, gaps[-1].end, regions)
        new: list[SubRange] = []
        to_queue: list[tuple[SubRange, Region]] = []
        waiting: list[SubRange] = []
        kept: set[int] = set()
        at = 0
        for start, end, region in cuts:
            while gaps[at].end <= start:
                at += 1
            last = at
            while gaps[last].end < end:
                last += 1
            old = gaps[at : last + 1]
            refused = max(g.refused for g in old)
            allowed = region is not None and self._may_have(lock, region, refused)
            if allowed and len(old) == 1 and (old[0].start, old[0].end) == (start, end):
                sub_range = old[0]
                kept.add(sub_range.id)
            elif allowed or len(cuts) > 1:
                sub_range = self._new_sub_range(span, start, end, min(g.resolved_ts for g in old))
                sub_range.inherit(old)
            else:  # PD told nothing new about these gaps
                for gap in gaps:
                    if complete or regions:
                        gap.refused += region is not None
                        gap.last_error = _NOT_KNOWN
                    self._gap(gap, now, gap.backoff(now) if complete or regions else 0.0)
                return
            new.append(sub_range)
            if allowed and region is not None:
                to_queue.append((sub_range, region))
            else:
                sub_range.refused = refused + (region is not None)
                sub_range.last_error = _NOT_KNOWN
                waiting.append(sub_range)
        lock.replace(gaps, new)
        gone = [g for g in gaps if g.id not in kept]
        for gap in gone:
            self._forget(gap)
        for sub_range in waiting:
            more = sub_range.start >= reached and not complete
            self._gap(sub_range, now, 0.0 if more else sub_range.backoff(now))
        for sub_range, region in to_queue:
            sub_range.refused = 0
            self._queue(sub_range, region, now, 0.0)
        if gone:
            self._actions.append(ReleaseFrontier(tuple(g.id for g in gone)))

    def _may_have(self, lock: RangeLock[SubRange], region: Region, refused: int) -> bool:
        """Return whether PD's answer fits what is subscribed already. A refused answer may become right soon (older regions fail), or may
        be out of date. After MAX_REFUSED refusals the region is subscribed, and TiKV decides."""
        if refused >= MAX_REFUSED:
            return True
        start, end = max(region.start, lock.start), min(region.end or lock.end, lock.end)
        return lock.ask(start, end, region.id, region.version).verdict is Verdict.FREE
