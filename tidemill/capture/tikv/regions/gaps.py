"""Gaps of all spans: when PD is to be asked for which of them, many in one question, and what it is being asked now. Pure."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence

from tidemill.capture.tikv.regions.actions import LoadRegions
from tidemill.capture.tikv.regions.ranges import merged
from tidemill.capture.tikv.regions.state import TOGETHER, Phase, SubRange

PIECES = 1000  # gaps that are asked for together at most: about what one answer of PD holds
RANGES = 512  # ranges of one question at most
QUESTIONS = 4  # that PD is asked at the same time
AT_ONCE = 4096  # gaps whose time has come that are looked at together: the event loop has more to do


class Gaps:
    """`pieces`: all sub-ranges, by id. A sub-range that is not a gap any more when its time comes is passed over."""

    def __init__(self, sub_ranges: Mapping[int, SubRange]) -> None:
        self._pieces = sub_ranges
        self._timers: list[tuple[float, int]] = []
        self._due: deque[int] = deque()
        self._asked: dict[int, list[int]] = {}
        self.questions = 0
        """Asked so far."""

    def add(self, sub_range: SubRange) -> None:
        """A gap that is to be asked for at its `due`."""
        heapq.heappush(self._timers, (sub_range.due, sub_range.id))

    def next_time(self) -> float | None:
        """When there is something to ask; in the past where it only waits for its turn."""
        if self.may_ask:
            return 0.0
        return self._timers[0][0] if self._timers else None

    def wake(self, now: float) -> None:
        """Time has passed. Gaps that are due soon are taken with those that are due now."""
        if not self._timers or self._timers[0][0] > now:
            return
        room = AT_ONCE
        while self._timers and self._timers[0][0] <= now + TOGETHER and room > 0:
            due, id_ = heapq.heappop(self._timers)
            sub_range = self._pieces.get(id_)
            if sub_range is not None and sub_range.phase is Phase.GAP and sub_range.due == due:
                self._due.append(id_)
                room -= 1

    @property
    def may_ask(self) -> bool:
        """Whether gaps wait to be asked for, and PD has not enough to do."""
        return bool(self._due) and len(self._asked) < QUESTIONS

    def take(self) -> SubRange | None:
        """The next gap that is to be asked for."""
        while self._due:
            sub_range = self._pieces.get(self._due.popleft())
            if sub_range is not None and sub_range.phase is Phase.GAP:
                return sub_range
        return None

    def ask(self, runs: Sequence[Sequence[SubRange]]) -> LoadRegions:
        """A question for runs of neighbours."""
        self.questions += 1
        self._asked[self.questions] = [sub_range.id for run in runs for sub_range in run]
        return LoadRegions(self.questions, merged((run[0].start, run[-1].end) for run in runs))

    def answered(self, load: int) -> list[SubRange]:
        """What still waits for this answer, by span and in key order."""
        found = (self._pieces.get(i) for i in self._asked.pop(load, []))
        return sorted((p for p in found if p is not None and p.phase is Phase.LOADING), key=lambda p: (p.span.id, p.start))
