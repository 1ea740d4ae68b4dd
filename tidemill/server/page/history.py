"""Lag and speed of each changefeed and of the log over the last hour, for the page's charts. In memory, and pure: the clock is given.

A point is noted every STEP_S seconds. 200 changefeeds take about one MiB.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

STEP_S = 10.0
POINTS = 360
OVERVIEW_POINTS = 60
"""Points of each changefeed where all are asked for at once."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where a changefeed stands: seconds behind the clock, and rows a second."""

    checkpoint_lag_s: float
    resolved_lag_s: float
    rows_per_s: float


_FIELDS = ("checkpoint_lag_s", "resolved_lag_s", "rows_per_s")
_MISSING = math.nan


class _Ring:
    """The last POINTS points of one changefeed. What was before it was there is missing."""

    def __init__(self) -> None:
        self._values = {name: array("f", [_MISSING]) * POINTS for name in _FIELDS}

    def note(self, place: int, point: Point | None) -> None:
        for name, values in self._values.items():
            values[place] = _MISSING if point is None else getattr(point, name)

    def read(self, name: str, places: list[int]) -> list[float | None]:
        values = self._values[name]
        return [None if math.isnan(values[place]) else round(values[place], 3) for place in places]


class History:
    """Points of all changefeeds, at the same times."""

    def __init__(self) -> None:
        self._times = array("d", [0.0]) * POINTS
        self._noted = 0
        self._feeds: dict[str, _Ring] = {}

    def note(self, now: float, points: Mapping[str, Point]) -> None:
        """Keep a point of each changefeed. One that is not among them is forgotten. `now`: Unix seconds."""
        place = self._noted % POINTS
        self._times[place] = now
        self._feeds = {feed: self._feeds.get(feed) or _Ring() for feed in points}
        for feed, ring in self._feeds.items():
            ring.note(place, points[feed])
        self._noted += 1

    def _places(self, at_most: int = POINTS) -> list[int]:
        """The places of the points, the oldest first. The last one is always among them."""
        count = min(self._noted, POINTS)
        newest_first = ((self._noted - 1 - back) % POINTS for back in range(0, count, max(1, POINTS // at_most)))
        return [*islice(newest_first, at_most)][::-1]

    def rows_per_s(self, feed: str) -> float:
        """Return the speed of a changefeed at the last point; 0 before there is one."""
        ring = self._feeds.get(feed)
        return (ring.read("rows_per_s", self._places(1))[-1] or 0.0) if ring is not None else 0.0

    def of(self, feed: str) -> dict[str, Any]:
        """Return `times` (Unix seconds) and the values of one changefeed at each; None where there is none. Empty lists: it is not
        known."""
        ring = self._feeds.get(feed)
        places = self._places() if ring is not None else []
        found: dict[str, Any] = {"times": [self._times[place] for place in places]}
        return found | {name: ring.read(name, places) if ring is not None else [] for name in _FIELDS}

    def lags(self) -> dict[str, Any]:
        """Return the checkpoint lags of all changefeeds, at fewer times."""
        places = self._places(OVERVIEW_POINTS)
        feeds = {feed: ring.read("checkpoint_lag_s", places) for feed, ring in self._feeds.items()}
        return {"times": [self._times[place] for place in places], "checkpoint_lag_s": feeds}
