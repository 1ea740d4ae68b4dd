"""What the process of a view tells of it: written by the view's thread, read by others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tidemill.metrics.samples import Sample, build_info, counter, gauge
from tidemill.tso import physical_ms


@dataclass(slots=True)
class Figures:
    """`changes`, `intervals` and `interval_s` (the newest interval's duration) are of this process."""

    name: str
    resolved_ts: int = 0
    changes: int = 0
    intervals: int = 0
    interval_s: float = 0.0
    away: str = ""
    """Why the log or the target cannot be reached; empty: they can."""

    def lag_s(self, now: float) -> float:
        """How far the view is behind `now`, in seconds of Unix time."""
        return max(0.0, now - physical_ms(self.resolved_ts) / 1000)

    def status(self, now: float) -> dict[str, Any]:
        """What /status has of the view."""
        return {
            "resolved_ts": self.resolved_ts,
            "lag_s": round(self.lag_s(now), 3) if self.resolved_ts else None,
            "changes": self.changes,
            "intervals": self.intervals,
            "interval_s": round(self.interval_s, 3),
            "away": self.away,
        }


def samples(views: Iterable[Figures], now: float) -> Iterator[Sample]:
    """Yield the metrics of views."""
    for one in views:
        yield gauge("tidemill_view_resolved_ts", "the moment of all rows of the view", one.resolved_ts, view=one.name)
        if one.resolved_ts:
            yield gauge("tidemill_view_lag_seconds", "how far the view is behind the clock", one.lag_s(now), view=one.name)
        yield gauge("tidemill_view_away", "1 while the log or the target cannot be reached", bool(one.away), view=one.name)
        yield gauge("tidemill_view_interval_seconds", "how long the newest interval took", one.interval_s, view=one.name)
        yield counter("tidemill_view_intervals", "intervals that were computed and delivered", one.intervals, view=one.name)
        yield counter("tidemill_view_changes", "rows of the view that came or went", one.changes, view=one.name)
    yield build_info()
