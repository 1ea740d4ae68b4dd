"""How fast a counter grows, over the last minute. Pure: the clock is given."""

from __future__ import annotations

from collections import deque

WINDOW_S = 60.0


class Rate:
    """Follows one counter, which is looked at now and then."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque()

    def note(self, value: float, now: float) -> None:
        """The counter has this value at a time in seconds. A counter that begins again is followed from there."""
        if self._seen and value < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now, value))
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW_S:
            self._seen.popleft()

    @property
    def per_second(self) -> float:
        """Its growth a second; 0 before it was looked at twice."""
        if len(self._seen) < 2 or self._seen[-1][0] <= self._seen[0][0]:
            return 0.0
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return round((last - first) / (ended - began), 1)
