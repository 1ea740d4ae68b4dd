"""How long a capture that lives but gets no further may hold the cluster's garbage collection back: gc-ttl, as TiCDC. Pure.

What counts is time without the log catching up. A capture that lags because it was away, or that still reads tables as of its start, gets
on and may take as long as it needs; one that stands still, or falls ever further behind, lets go once that has lasted for gc-ttl.
"""

from __future__ import annotations

MARKS = (0.5, 0.8)
"""Shares of gc-ttl at which it is told."""
UNSEEN = 0.25
"""Of gc-ttl: after so long without a look (the machine slept, PD was away) nobody can say that the capture was stuck."""


class Holding:
    """Looks once in a while at how far behind the log is. Times are seconds of the cluster's clock."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._least_lag = self._least_parts = float("inf")
        self._better_at = self._looked_at = float("-inf")
        self._told = 0

    def look(self, now: float, needed: float, parts: int = 0) -> float:
        """The share of gc-ttl that is used up, 1 or more: it is over. `needed`: from when on history is needed; `parts`: of tables that
        are still to be read."""
        lag = now - needed
        if now - self._looked_at > UNSEEN * self._ttl:
            self._least_lag = self._least_parts = float("inf")
        if lag < self._least_lag or parts < self._least_parts:
            self._better_at = now
        self._least_lag, self._least_parts = min(lag, self._least_lag), min(parts, self._least_parts)
        self._looked_at = now
        return max(0.0, min(lag, now - self._better_at) / self._ttl)

    def new_mark(self, share: float) -> bool:
        """Whether a mark is passed that was not told yet. Marks are told again once the log has caught up in between."""
        passed = sum(share >= mark for mark in MARKS)
        new = passed > self._told
        self._told = passed
        return new
