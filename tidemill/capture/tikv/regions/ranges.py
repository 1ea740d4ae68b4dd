"""Key ranges cut by regions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemill.capture.tikv.model import Region

Cut = tuple[bytes, bytes, Region | None]
"""A sub-range of a range and its region; None where no region with a leader is known."""


def cut(start: bytes, end: bytes, regions: Sequence[Region]) -> tuple[list[Cut], bytes]:
    """Cut [start, end) at the borders of regions. Return the cuts, and the key up to which PD's answer reached."""
    cuts: list[Cut] = []
    at = start
    for region in regions:
        if at >= end:
            break
        if region.end and region.end <= at:
            continue
        if region.start >= end:
            break
        if region.start > at:
            _add_hole(cuts, at, region.start)
            at = region.start
        stop = min(region.end, end) if region.end else end
        if region.leader is None:
            _add_hole(cuts, at, stop)
        else:
            cuts.append((at, stop, region))
        at = stop
    reached = at
    if at < end:
        _add_hole(cuts, at, end)
    return cuts, reached


def _add_hole(cuts: list[Cut], start: bytes, end: bytes) -> None:
    if cuts and cuts[-1][2] is None and cuts[-1][1] == start:
        cuts[-1] = cuts[-1][0], end, None
    else:
        cuts.append((start, end, None))


def merged(ranges: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
    """Sort the ranges and merge those that overlap or touch: PD refuses ranges that overlap. No end may be open (empty)."""
    found: list[tuple[bytes, bytes]] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return tuple(found)
