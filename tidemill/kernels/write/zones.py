"""A time zone as the kernels read it: the offsets, and the UTC second from which each holds. Reference: `datetime.astimezone`."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta, timezone, tzinfo

import numpy as np
import numpy.typing as npt

_FIRST, _LAST = -86400, (1 << 31) + 86400
"""A TIMESTAMP lies between 1970-01-01 and 2038-01-19. Times outside fall back to the reference."""

_STEP = 86400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _offset(zone: tzinfo, second: int) -> int:
    """Return how many seconds local time is ahead of UTC."""
    offset = (_EPOCH + timedelta(seconds=second)).astimezone(zone).utcoffset()
    assert offset is not None, "a zone has an offset at any moment"
    return round(offset.total_seconds())


def _changes(zone: tzinfo) -> list[tuple[int, int]]:
    """Return (first second, offset) of each period. It samples once a day: no zone changes twice in one."""
    current = _offset(zone, _FIRST)
    periods = [(_FIRST, current)]
    for day in range(_FIRST, _LAST, _STEP):
        if _offset(zone, day + _STEP) == current:
            continue
        low, high = day, day + _STEP
        while high - low > 1:
            middle = (low + high) // 2
            if _offset(zone, middle) == current:
                low = middle
            else:
                high = middle
        current = _offset(zone, high)
        periods.append((high, current))
    return periods


@functools.lru_cache(maxsize=64)
def zone_table(zone: tzinfo) -> npt.NDArray[np.int64] | None:
    """Return count, first and last second covered, then (first second, offset) pairs; None for UTC. It takes some 30 ms, once a zone."""
    fixed = isinstance(zone, timezone)
    periods = [(_FIRST, _offset(zone, 0))] if fixed else _changes(zone)
    if all(offset == 0 for _, offset in periods):
        return None
    return np.array([len(periods), _FIRST, _LAST, *(word for period in periods for word in period)], np.int64)
