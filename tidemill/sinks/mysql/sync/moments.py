"""When sync points are. Batches end there: `SinkSpec.ends_every_ms`."""

from __future__ import annotations

from tidemill.tso import logical, physical_ms


def is_sync_point(ts: int, every_ms: int) -> bool:
    """Return whether a ts is a sync point; none is if `every_ms` is 0."""
    return bool(every_ms) and logical(ts) == 0 and physical_ms(ts) % every_ms == 0
