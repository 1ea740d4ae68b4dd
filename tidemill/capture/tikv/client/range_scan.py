"""The regions of many ranges from a PD that can be asked for one range at a time (before 8.2).

It is asked for what lies behind a range as well, because the next ranges may lie there: where most of the keys are wanted that saves most
of the calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

AHEAD = 64  # regions of one answer


class HoldFrontier(Protocol):
    """What is known of a region here."""

    @property
    def start(self) -> bytes: ...

    @property
    def end(self) -> bytes: ...


R = TypeVar("R", bound=HoldFrontier)


async def scan_each(
    scan: Callable[[bytes, bytes, int], Awaitable[list[R]]], ranges: Sequence[tuple[bytes, bytes]], limit: int, ahead: int = AHEAD
) -> list[R]:
    """Regions in key order; fewer than `limit` are all of the ranges. Others may be among them. `scan(start, end, limit)` tells at most
    `limit` regions of a range, in key order; an empty end is open."""
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
                return found  # that is all up to the end of the last range
            if told[-1].end <= at:
                break
            at = told[-1].end
    return found
