"""When sync points are. Pure: what plans batches needs no database for it."""

from __future__ import annotations

from tidemill.tso import compose, logical, physical_ms


def next_sync_point(ts: int, every_ms: int) -> int:
    """Return the first sync point above a ts."""
    return compose((physical_ms(ts) // every_ms + 1) * every_ms)


def is_sync_point(ts: int, every_ms: int) -> bool:
    """Return whether a ts is a sync point; none is if `every_ms` is 0."""
    return bool(every_ms) and logical(ts) == 0 and physical_ms(ts) % every_ms == 0
