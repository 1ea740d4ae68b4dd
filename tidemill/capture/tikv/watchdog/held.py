"""Which tables are held up, since when. Pure: of each look the ranges that lag behind in, tables out.

Only the slowest ranges are looked at one by one; which those are is found by array operations, so that 100,000 tables cost a few
milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

LOOKED_AT = 1024
"""So many of the slowest ranges are looked at."""
TOLD = 64
"""So many tables are told of at most."""


@dataclass(frozen=True, slots=True)
class Lagging:
    """A range of a table (or of the schema: its span) that lags behind, for so many seconds without moving. `reason`: whether it is known
    what holds this very range, rather than others that the store tells of together with it."""

    span: int
    sub_range: int
    resolved: int
    seconds: float
    reason: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """A table's slowest range, its resolved ts, for how long it has been that, and how many of the table's ranges lag."""

    span: int
    sub_range: int
    resolved: int
    seconds: float
    ranges: int


class HeldTables:
    """Compares each look with the one before: a table's time goes on through new subscriptions, as long as its resolved ts stays."""

    def __init__(self, after: float) -> None:
        """A table that does not move for `after` seconds is held up."""
        self.after = after
        self._since: dict[int, tuple[int, float]] = {}  # span -> its resolved ts, and since when it has been that

    def look(self, lagging: Iterable[Lagging], now: float) -> list[Held]:
        """The tables that are held up at `now`, the slowest first; of those at one ts the ones of which the reason is known."""
        found: dict[int, tuple[Lagging, int]] = {}
        for one in lagging:
            first, ranges = found.get(one.span, (one, 0))
            found[one.span] = min(one, first, key=lambda r: (r.resolved, not r.reason)), ranges + 1
        before, self._since = self._since, {}
        return sorted(self._held(found, before, now), key=lambda h: (h.resolved, not found[h.span][0].reason))[:TOLD]

    def _held(self, found: dict[int, tuple[Lagging, int]], before: dict[int, tuple[int, float]], now: float) -> Iterator[Held]:
        for span, (one, ranges) in found.items():
            resolved, since = before.get(span, (-1, now))
            since = min(since if resolved == one.resolved else now, now - one.seconds)
            self._since[span] = one.resolved, since
            if now - since >= self.after:
                yield Held(span, one.sub_range, one.resolved, now - since, ranges)
