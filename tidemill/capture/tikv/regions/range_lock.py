"""The range lock of a span: which part of the span belongs to which region, and whether a region may lock a range now. Pure.

The parts of a span always cover it without overlap: neighbours are only replaced by parts with the same outer borders. A part with a
region is locked (its subscription is queued, scanning or live). A part without one is unlocked and keeps the resolved ts that it
reached. The answers are those of TiCDC's range lock (150 runs in tests/golden/tikv/rangelock_cases.jsonl.gz).
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tidemill.capture.tikv.model import Region


class Part(Protocol):
    """A part of a span: [start, end) of encoded keys, the resolved ts it resumes from, and the region that has locked it."""

    start: bytes
    end: bytes
    resolved_ts: int
    region: Region | None


class Verdict(enum.Enum):
    """The answer to a region that asks for a range."""

    FREE = "success"  # no region has locked any of it
    WAIT = "wait"  # older regions have locked it: they will fail soon, ask again then
    STALE = "stale"  # newer regions have locked it: this region is out of date, ask PD again


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict, and for STALE the ranges that no newer region has locked."""

    verdict: Verdict
    retry: tuple[tuple[bytes, bytes], ...] = ()


FREE, WAIT = Answer(Verdict.FREE), Answer(Verdict.WAIT)

P = TypeVar("P", bound=Part)


class RangeLock(Generic[P]):
    """The parts of one span, in key order."""

    def __init__(self, whole: P) -> None:
        self._parts: list[P] = [whole]
        self._starts: list[bytes] = [whole.start]
        self._of_region: dict[int, P] = {}
        self._others: dict[int, list[P]] = {}  # of regions that have locked more than one part; rare, so a region costs no list

    def __iter__(self) -> Iterator[P]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def start(self) -> bytes:
        """The span's first key."""
        return self._starts[0]

    @property
    def end(self) -> bytes:
        """The end of the span (exclusive)."""
        return self._parts[-1].end

    def resolved(self) -> int:
        """Return the span's resolved ts: the smallest of its parts."""
        return min(part.resolved_ts for part in self._parts)

    def touching(self, start: bytes, end: bytes) -> list[P]:
        """Return the parts that overlap [start, end)."""
        first = max(bisect_right(self._starts, start) - 1, 0)
        return self._parts[first : bisect_left(self._starts, end, lo=first)]

    def before(self, part: P) -> P | None:
        """Return the left neighbour."""
        at = bisect_left(self._starts, part.start)
        return self._parts[at - 1] if at else None

    def after(self, part: P) -> P | None:
        """Return the right neighbour."""
        at = bisect_left(self._starts, part.start) + 1
        return self._parts[at] if at < len(self._parts) else None

    def following(self, part: P, most: int) -> list[P]:
        """Return at most `most` parts after a part, in key order."""
        at = bisect_left(self._starts, part.start) + 1
        return self._parts[at : at + most]

    # ------------------------------------------------------------------ locks

    def ask(self, start: bytes, end: bytes, region_id: int, version: int) -> Answer:
        """Return whether a region of this version may lock [start, end). Only locked parts can prevent it."""
        holders = [part for part in self.touching(start, end) if part.region is not None]
        same = [part for part in self._held_by(region_id) if part not in holders]
        if not holders and not same:
            return FREE
        if all(part.region is not None and part.region.version < version for part in (*holders, *same)):
            return WAIT
        return Answer(Verdict.STALE, tuple(_uncovered(start, end, holders)))

    def _held_by(self, region_id: int) -> list[P]:
        first = self._of_region.get(region_id)
        return [] if first is None else [first, *self._others.get(region_id, ())]

    def lock(self, part: P, region: Region) -> None:
        """Give the part to the region."""
        self.unlock(part)
        part.region = region
        if self._of_region.setdefault(region.id, part) is not part:
            self._others.setdefault(region.id, []).append(part)

    def unlock(self, part: P) -> None:
        """Take the part from its region. It keeps its resolved ts."""
        if part.region is None:
            return
        region_id, part.region = part.region.id, None
        others = self._others.get(region_id)
        if self._of_region[region_id] is not part:
            assert others is not None
            others.remove(part)
        elif others:
            self._of_region[region_id] = others.pop(0)
        else:
            del self._of_region[region_id]
        if others == []:
            del self._others[region_id]

    # ------------------------------------------------------------------ parts

    def replace(self, old: Sequence[P], new: Sequence[P]) -> None:
        """Replace unlocked neighbours, in key order, by parts with the same outer borders. Raises ValueError if the new parts would leave a
        hole or overlap, or if an old part is locked."""
        at = bisect_left(self._starts, old[0].start)
        if self._parts[at : at + len(old)] != list(old) or any(part.region is not None for part in old):
            raise ValueError(f"[{old[0].start.hex()}, {old[-1].end.hex()}) is not made of unlocked neighbours")
        borders = [new[0].start, *(part.end for part in new)]
        if (borders[0], borders[-1]) != (old[0].start, old[-1].end) or any(p.start != b for p, b in zip(new, borders, strict=False)):
            raise ValueError(f"parts do not cover [{old[0].start.hex()}, {old[-1].end.hex()})")
        self._parts[at : at + len(old)] = new
        self._starts[at : at + len(old)] = [part.start for part in new]

    def check(self) -> None:
        """Raise ValueError unless the parts cover the span without overlap and the index of regions matches them. For tests."""
        for part, following in zip(self._parts, self._parts[1:], strict=False):
            if part.end != following.start or part.start >= part.end:
                raise ValueError(f"part [{part.start.hex()}, {part.end.hex()}) is followed by {following.start.hex()}")
        locked = sorted(part.start for part in self._parts if part.region is not None)
        if locked != sorted(part.start for region_id in self._of_region for part in self._held_by(region_id)):
            raise ValueError("the index of regions is wrong")


def _uncovered(start: bytes, end: bytes, holders: Sequence[Part]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the ranges of [start, end) that no holder has. The holders are in key order."""
    at = start
    for part in holders:
        if at < part.start:
            yield at, part.start
        at = max(at, part.end)
    if at < end:
        yield at, end
