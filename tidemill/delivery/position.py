"""How far a changefeed is: one ts, or in `table` mode one for each partition of the log. Pure.

A `Position` may be in memory only. A `SavedPosition` is durable: the next process, on whatever machine, begins there or further. What
another process compares or relies on (the interval in the fence, the checkpoint that the log is told) is made of saved positions.

No partition passes a DDL, the instant of an initial load or a switch of the log's layout before all partitions have reached it. So one set
of schemas holds for all rows between the partition that is least far and the one that is furthest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.statefile import FEED_FILE, Fields
from tidemill.tso import SavedTs

Ranges = tuple[tuple[int, int], ...]
"""The interval (from, to] of each log partition in a batch. Empty: all partitions have the batch's own interval."""


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """All changes at or below `ts`; of log partition p, all at or below parts[p]. A partition without an entry in `parts` is at `ts`."""

    ts: int
    parts: tuple[int, ...] = ()

    @classmethod
    def of(cls, ends: Sequence[int]) -> Position:
        """The position at which each partition p is at ends[p]."""
        least = min(ends)
        return Position(least) if max(ends) == least else Position(least, tuple(ends))

    def __eq__(self, other: object) -> bool:
        """Whether both say the same, saved or not."""
        return isinstance(other, Position) and (self.ts, self.parts) == (other.ts, other.parts)

    def __hash__(self) -> int:
        return hash((self.ts, self.parts))

    def at(self, partition: int) -> int:
        """How far a partition is delivered."""
        return self.parts[partition] if partition < len(self.parts) else self.ts

    @property
    def furthest(self) -> int:
        """How far the furthest partition is delivered."""
        return max(self.parts, default=self.ts)

    def ends(self, partitions: int) -> list[int]:
        """How far each of the first `partitions` partitions is delivered."""
        return [self.at(p) for p in range(partitions)]

    def covers(self, other: Position) -> bool:
        """Whether this position is at least as far as the other one in every partition."""
        return self.ts >= other.ts and all(a >= b for a, b in self._beside(other))

    def joined(self, other: Position) -> Position:
        """The further of the two, partition by partition."""
        return self._made(max(self.ts, other.ts), [max(pair) for pair in self._beside(other)])

    def capped(self, ts: int) -> Position:
        """No partition further than `ts`."""
        return self._made(min(self.ts, ts), [min(end, ts) for end in self.parts])

    def _beside(self, other: Position) -> list[tuple[int, int]]:
        return [(self.at(p), other.at(p)) for p in range(max(len(self.parts), len(other.parts)))]

    @staticmethod
    def _made(ts: int, ends: Sequence[int]) -> Position:
        return Position.of(ends) if ends else Position(ts)

    def __str__(self) -> str:
        return str(self.ts) if not self.parts else f"{self.ts} ({', '.join(map(str, self.parts))})"

    def to_dict(self) -> dict[str, Any]:
        """The fields of its JSON form."""
        return {"ts": self.ts} | ({"parts": list(self.parts)} if self.parts else {})

    @classmethod
    def from_dict(cls, fields: object) -> Position:
        """Raises FeedBroken."""
        found = Fields(fields, "a position", FEED_FILE)
        parts = found.integers("parts", optional=True)
        return cls.of(parts) if parts else cls(found.integer("ts"))


class SavedPosition(Position):
    """A position that is durable. Only the code that writes or reads it durably makes one (`tests/test_layers.py` names it)."""

    __slots__ = ()

    @property
    def saved_ts(self) -> SavedTs:
        """All changes at or below this ts are delivered, durably."""
        return SavedTs(self.ts)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a batch is about to deliver. A process that takes over begins at `begin`, and so finds the batch again."""

    begin: SavedPosition
    end: Position

    @property
    def from_ts(self) -> int:
        return self.begin.ts

    @property
    def to_ts(self) -> int:
        return max(self.begin.ts, self.end.ts)

    @property
    def ranges(self) -> Ranges:
        """The interval of each log partition; empty if all have the same."""
        return ranges_of(self.begin, self.end)


def ranges_of(begin: Position, end: Position) -> Ranges:
    """The interval between two positions, for each partition; empty if all have the same."""
    n = max(len(begin.parts), len(end.parts))
    return tuple((begin.at(p), max(begin.at(p), end.at(p))) for p in range(n))


def end_of(to_ts: int, ranges: Ranges) -> Position:
    """The position after a batch."""
    return Position.of([end for _, end in ranges]) if ranges else Position(to_ts)


def levelled(ends: Sequence[int], units: Sequence[int]) -> list[int]:
    """How far partitions may go where those of a unit, which share tables, go together: as far as the one that is behind. `units`: the
    unit of each partition."""
    least: dict[int, int] = {}
    for end, unit in zip(ends, units, strict=True):
        least[unit] = min(end, least.get(unit, end))
    return [least[unit] for unit in units]
