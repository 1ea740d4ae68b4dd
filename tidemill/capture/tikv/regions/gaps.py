"""The gaps of all spans: when to ask PD for their regions, many in one question, and the questions under way. Pure."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence

from tidemill.capture.tikv.regions.actions import LoadRegions
from tidemill.capture.tikv.regions.ranges import merged
from tidemill.capture.tikv.regions.state import TOGETHER, Phase, SubRange

GAPS_AT_ONCE = 1000  # gaps in one question at most: about as many regions as one answer of PD holds
RANGES = 512  # ranges in one question at most
QUESTIONS = 4  # questions to PD at the same time
AT_ONCE = 4096  # due gaps that one call handles: the event loop has other work


class Gaps:
    """`sub_ranges`: all sub-ranges by id, kept up to date by the caller. A sub-range that is no longer a gap when it is due is skipped."""

    def __init__(self, sub_ranges: Mapping[int, SubRange]) -> None:
        self._sub_ranges = sub_ranges
        self._timers: list[tuple[float, int]] = []
        self._due: deque[int] = deque()
        self._asked: dict[int, list[int]] = {}
        self.questions = 0
        """Questions asked so far."""

    def add(self, sub_range: SubRange) -> None:
        """Ask for this gap when it is due."""
        heapq.heappush(self._timers, (sub_range.due, sub_range.id))

    def next_time(self) -> float | None:
        """Return when the next gap is due; 0 if gaps are due already; None without any."""
        if self.may_ask:
            return 0.0
        return self._timers[0][0] if self._timers else None

    def wake(self, now: float) -> None:
        """Collect the gaps that are due at `now`, and those due within TOGETHER seconds."""
        if not self._timers or self._timers[0][0] > now:
            return
        room = AT_ONCE
        while self._timers and self._timers[0][0] <= now + TOGETHER and room > 0:
            due, id_ = heapq.heappop(self._timers)
            sub_range = self._sub_ranges.get(id_)
            if sub_range is not None and sub_range.phase is Phase.GAP and sub_range.due == due:
                self._due.append(id_)
                room -= 1

    @property
    def may_ask(self) -> bool:
        """Whether gaps are due and PD may be asked another question now."""
        return bool(self._due) and len(self._asked) < QUESTIONS

    def take(self) -> SubRange | None:
        """Return the next due gap, if any."""
        while self._due:
            sub_range = self._sub_ranges.get(self._due.popleft())
            if sub_range is not None and sub_range.phase is Phase.GAP:
                return sub_range
        return None

    def ask(self, runs: Sequence[Sequence[SubRange]]) -> LoadRegions:
        """Return a question to PD for these runs of neighbours."""
        self.questions += 1
        self._asked[self.questions] = [sub_range.id for run in runs for sub_range in run]
        return LoadRegions(self.questions, merged((run[0].start, run[-1].end) for run in runs))

    def answered(self, load: int) -> list[SubRange]:
        """Return the sub-ranges that still wait for this answer, by span and in key order."""
        found = (self._sub_ranges.get(i) for i in self._asked.pop(load, []))
        return sorted((p for p in found if p is not None and p.phase is Phase.LOADING), key=lambda p: (p.span.id, p.start))
