"""Histograms: how often something took how long, or how large it was. Counts only; whoever calls measures. No IO, no clock.

One is kept per stage and process, travels in the JSON of a status file, and becomes a Prometheus histogram where a page is served.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of durations: a chunk takes milliseconds, a batch after an outage minutes."""
ROWS = (1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0, 10_000_000.0)
"""Upper bounds of numbers of rows."""

MOST = 1e18
"""What a number of a status file is below."""


class Histogram:
    """Counts of values by upper bound, and their sum. The last count is of values above all bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound and number of values at or below it, the last bound +Inf: as Prometheus has them."""
        found, below = [], 0
        for bound, n in zip((*self.bounds, float("inf")), self.counts, strict=True):
            below += n
            found.append(("+Inf" if bound == float("inf") else repr(bound), float(below)))
        return found

    def as_dict(self) -> dict[str, Any]:
        """For a status file."""
        return {"le": list(self.bounds), "n": list(self.counts), "sum": round(self.sum, 6)}

    def take(self, other: Histogram) -> None:
        """Add the counts of another one. One with other bounds, of another version of Tidemill, is left out."""
        if other.bounds == self.bounds:
            self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
            self.sum += other.sum


def from_dict(told: object) -> Histogram | None:
    """A histogram from a status file; None if it is none: status files may be lost, cut short or of another version."""
    if not isinstance(told, Mapping):
        return None
    bounds, counts, total = _numbers(told.get("le")), _numbers(told.get("n")), _numbers([told.get("sum")])
    if not bounds or len(counts) != len(bounds) + 1 or not total:
        return None
    if sorted(set(bounds)) != bounds or any(n < 0 or n != int(n) for n in counts):
        return None
    made = Histogram(tuple(bounds))
    made.counts, made.sum = [int(n) for n in counts], total[0]
    return made


def _numbers(found: object) -> list[float]:
    """The finite numbers of a list; empty if it holds anything else."""
    if not isinstance(found, list) or not all(isinstance(one, int | float) and abs(one) < MOST for one in found):
        return []
    return [float(one) for one in found]


class Histograms:
    """Histograms by name: the stages of a process."""

    def __init__(self, names: Iterable[str] = (), bounds: tuple[float, ...] = SECONDS) -> None:
        """`names`: those that are there from the beginning, so that a stage that has not run yet shows as 0."""
        self._bounds = bounds
        self._by_name = {name: Histogram(bounds) for name in names}

    def observe(self, name: str, value: float) -> None:
        """Count a value."""
        if name not in self._by_name:
            self._by_name[name] = Histogram(self._bounds)
        self._by_name[name].observe(value)

    def as_dict(self) -> dict[str, Any]:
        """For a status file."""
        return {name: one.as_dict() for name, one in self._by_name.items()}


def all_from(told: object) -> dict[str, Histogram]:
    """The histograms of a status file, without those that cannot be used."""
    if not isinstance(told, Mapping):
        return {}
    return {str(name): made for name, one in told.items() if (made := from_dict(one)) is not None}


def together(parts: Iterable[object]) -> dict[str, Any]:
    """The histograms of several processes as one of each name, for a status file."""
    whole: dict[str, Histogram] = {}
    for part in parts:
        for name, one in all_from(part).items():
            if name in whole:
                whole[name].take(one)
            else:
                whole[name] = one
    return {name: one.as_dict() for name, one in whole.items()}
