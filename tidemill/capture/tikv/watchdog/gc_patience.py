"""How long a live but stuck capture may hold back the cluster's garbage collection: gc-ttl, as in TiCDC. Pure.

The time that counts is time in which the log does not catch up. A capture that lags because it was stopped, or that still reads an initial
load, makes progress and may take long. One that stands still, or falls further behind, releases the barrier after gc-ttl.
"""

from __future__ import annotations

MARKS = (0.5, 0.8)
"""Shares of gc-ttl at which a warning is logged."""
UNSEEN = 0.25
"""Share of gc-ttl: after such a time without a look (the machine slept, PD was down), it is unknown whether the capture was stuck."""


class GcPatience:
    """Measures how far the log is behind at each look. Times are seconds of the cluster's clock."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._least_lag = self._least_parts = float("inf")
        self._better_at = self._looked_at = float("-inf")
        self._told = 0

    def look(self, now: float, needed: float, parts: int = 0) -> float:
        """Return the share of gc-ttl that is used up; at 1 it is over. `needed`: from when on history is needed. `parts`: parts of tables
        still to be read."""
        lag = now - needed
        if now - self._looked_at > UNSEEN * self._ttl:
            self._least_lag = self._least_parts = float("inf")
        if lag < self._least_lag or parts < self._least_parts:
            self._better_at = now
        self._least_lag, self._least_parts = min(lag, self._least_lag), min(parts, self._least_parts)
        self._looked_at = now
        return max(0.0, min(lag, now - self._better_at) / self._ttl)

    def new_mark(self, share: float) -> bool:
        """Return whether a mark is passed for the first time. Marks count again when the log has caught up in between."""
        passed = sum(share >= mark for mark in MARKS)
        new = passed > self._told
        self._told = passed
        return new
