"""Finds which tables are held up, and since when. Pure: lagging ranges in, tables out.

Only the slowest ranges are examined one by one. Array operations find them, so 100,000 tables cost a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

LOOKED_AT = 1024
"""The slowest ranges that are examined, at most."""
TOLD = 64
"""Tables in the report at most."""


@dataclass(frozen=True, slots=True)
class Lagging:
    """A range of a table (or of the schema: its span) that lags behind and has not moved for `seconds`. `has_cause`: whether the cause lies
    in this very range, and not in another one whose resolved ts the store sends together with it."""

    span: int
    sub_range: int
    resolved: int
    seconds: float
    has_cause: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """A table's slowest range, its resolved ts, how long that has not moved, and how many of the table's ranges lag."""

    span: int
    sub_range: int
    resolved: int
    seconds: float
    ranges: int


class HeldTables:
    """Compares each look with the one before. A table's time continues while its resolved ts stays, also through new subscriptions."""

    def __init__(self, after: float) -> None:
        """`after`: seconds without moving after which a table is held up."""
        self.after = after
        self._since: dict[int, tuple[int, float]] = {}  # span -> its resolved ts, and since when

    def look(self, lagging: Iterable[Lagging], now: float) -> list[Held]:
        """Return the tables that are held up at `now`, the slowest first. At the same ts, tables with a cause of their own come first."""
        found: dict[int, tuple[Lagging, int]] = {}
        for one in lagging:
            first, ranges = found.get(one.span, (one, 0))
            found[one.span] = min(one, first, key=lambda r: (r.resolved, not r.has_cause)), ranges + 1
        before, self._since = self._since, {}
        return sorted(self._held(found, before, now), key=lambda h: (h.resolved, not found[h.span][0].has_cause))[:TOLD]

    def _held(self, found: dict[int, tuple[Lagging, int]], before: dict[int, tuple[int, float]], now: float) -> Iterator[Held]:
        for span, (one, ranges) in found.items():
            resolved, since = before.get(span, (-1, now))
            since = min(since if resolved == one.resolved else now, now - one.seconds)
            self._since[span] = one.resolved, since
            if now - since >= self.after:
                yield Held(span, one.sub_range, one.resolved, now - since, ranges)
