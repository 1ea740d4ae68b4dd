"""The range lock of a span: which part of it belongs to which region, and whether a region may have its range now. Pure.

The parts of a span lie side by side and cover it, at all times: whoever changes them replaces neighbours by others with the same
outer borders. A part with a region is locked (its subscription is wanted, scanning or live); one without is unlocked and keeps
the resolved ts that was reached there. The answers are those of TiCDC's range lock (150 runs in
tests/golden/tikv/rangelock_cases.jsonl.gz).
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tidemill.capture.tikv.model import Region


class Part(Protocol):
    """A part of a span: [start, end) of encoded keys, the resolved ts it goes on from, and the region that has locked it."""

    start: bytes
    end: bytes
    checkpoint: int
    region: Region | None


class Verdict(enum.Enum):
    """What a region that asks for a range is told."""

    FREE = "success"  # nobody has any of it
    WAIT = "wait"  # older regions have it: they must fail soon, then ask again
    STALE = "stale"  # newer ones have it: this region is a thing of the past, ask PD again


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict, and for STALE the ranges that nobody newer has."""

    verdict: Verdict
    retry: tuple[tuple[bytes, bytes], ...] = ()


FREE, WAIT = Answer(Verdict.FREE), Answer(Verdict.WAIT)

P = TypeVar("P", bound=Part)


class RangeLock(Generic[P]):
    """The parts of one span, in key order."""

    def __init__(self, whole: P) -> None:
        self._parts: list[P] = [whole]
        self._starts: list[bytes] = [whole.start]
        self._of_region: dict[int, list[P]] = {}

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
        """The key behind the span."""
        return self._parts[-1].end

    def resolved(self) -> int:
        """The span's resolved ts: the smallest of its parts."""
        return min(part.checkpoint for part in self._parts)

    def touching(self, start: bytes, end: bytes) -> list[P]:
        """The parts that share a key with [start, end)."""
        first = max(bisect_right(self._starts, start) - 1, 0)
        return self._parts[first : bisect_left(self._starts, end, lo=first)]

    def before(self, part: P) -> P | None:
        """The left neighbour."""
        at = bisect_left(self._starts, part.start)
        return self._parts[at - 1] if at else None

    def after(self, part: P) -> P | None:
        """The right neighbour."""
        at = bisect_left(self._starts, part.start) + 1
        return self._parts[at] if at < len(self._parts) else None

    def following(self, part: P, most: int) -> list[P]:
        """At most `most` parts behind a part, in key order."""
        at = bisect_left(self._starts, part.start) + 1
        return self._parts[at : at + most]

    # ------------------------------------------------------------------ locks

    def ask(self, start: bytes, end: bytes, region_id: int, version: int) -> Answer:
        """Whether a region of this version may lock [start, end). Parts without a region are in nobody's way."""
        holders = [part for part in self.touching(start, end) if part.region is not None]
        same = [part for part in self._of_region.get(region_id, ()) if part not in holders]
        if not holders and not same:
            return FREE
        if all(part.region is not None and part.region.version < version for part in (*holders, *same)):
            return WAIT
        return Answer(Verdict.STALE, tuple(_uncovered(start, end, holders)))

    def lock(self, part: P, region: Region) -> None:
        """The part belongs to the region from now on."""
        self.unlock(part)
        part.region = region
        self._of_region.setdefault(region.id, []).append(part)

    def unlock(self, part: P) -> None:
        """The part belongs to no region any more; it keeps its resolved ts."""
        if part.region is None:
            return
        holders = self._of_region[part.region.id]
        holders.remove(part)
        if not holders:
            del self._of_region[part.region.id]
        part.region = None

    # ------------------------------------------------------------------ parts

    def replace(self, old: Sequence[P], new: Sequence[P]) -> None:
        """Unlocked neighbours, in key order, give way to parts with the same outer borders. Raises ValueError for anything that
        would leave a hole, overlap, or forget a resolved ts."""
        at = bisect_left(self._starts, old[0].start)
        if self._parts[at : at + len(old)] != list(old) or any(part.region is not None for part in old):
            raise ValueError(f"[{old[0].start.hex()}, {old[-1].end.hex()}) is not made of unlocked neighbours")
        borders = [new[0].start, *(part.end for part in new)]
        if (borders[0], borders[-1]) != (old[0].start, old[-1].end) or any(p.start != b for p, b in zip(new, borders, strict=False)):
            raise ValueError(f"parts do not cover [{old[0].start.hex()}, {old[-1].end.hex()})")
        self._parts[at : at + len(old)] = new
        self._starts[at : at + len(old)] = [part.start for part in new]

    def check(self) -> None:
        """Raises ValueError unless the parts cover the span side by side and the index of regions is theirs. For tests."""
        for part, following in zip(self._parts, self._parts[1:], strict=False):
            if part.end != following.start or part.start >= part.end:
                raise ValueError(f"part [{part.start.hex()}, {part.end.hex()}) is followed by {following.start.hex()}")
        locked = sorted(part.start for part in self._parts if part.region is not None)
        if locked != sorted(part.start for parts in self._of_region.values() for part in parts):
            raise ValueError("the index of regions is wrong")


def _uncovered(start: bytes, end: bytes, holders: Sequence[Part]) -> Iterator[tuple[bytes, bytes]]:
    """What of [start, end) none of the holders (in key order) has."""
    at = start
    for part in holders:
        if at < part.start:
            yield at, part.start
        at = max(at, part.end)
    if at < end:
        yield at, end
