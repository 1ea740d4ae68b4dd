"""Finds the regions of many ranges from a PD that takes one range per call (before 8.2).

It also asks for what follows a range, because the next ranges may lie there. If most keys are wanted, that saves most of the calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

AHEAD = 64  # regions in one answer


class KeyRange(Protocol):
    """The range of a region."""

    @property
    def start(self) -> bytes: ...

    @property
    def end(self) -> bytes: ...


R = TypeVar("R", bound=KeyRange)


async def scan_each(
    scan: Callable[[bytes, bytes, int], Awaitable[list[R]]], ranges: Sequence[tuple[bytes, bytes]], limit: int, ahead: int = AHEAD
) -> list[R]:
    """Return regions in key order; fewer than `limit` are all of the ranges. Regions outside of the ranges may be among them. `scan(start,
    end, limit)` returns at most `limit` regions of a range, in key order; an empty end is open."""
    if len(ranges) == 1:
        return await scan(*ranges[0], limit)
    found: list[R] = []
    for start, end in ranges:
        at = max(start, found[-1].end) if found else start
        while at < end and len(found) < limit:
            asked = min(ahead, limit - len(found))
            told = await scan(at, ranges[-1][1], asked)
            found += [region for region in told if not found or region.start >= found[-1].end]
            if len(told) < asked or not told[-1].end:
                return found  # all regions up to the end of the last range
            if told[-1].end <= at:
                break
            at = told[-1].end
    return found
