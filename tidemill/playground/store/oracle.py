"""The timestamp oracle of the playground: one strictly increasing sequence of TSOs."""

from __future__ import annotations

import time
from collections.abc import Callable

from tidemill import tso

LOGICAL_LIMIT = 1 << tso.LOGICAL_BITS


def wall_clock_ms() -> int:
    """Unix milliseconds of this machine."""
    return time.time_ns() // 1_000_000


class Oracle:
    """Hands out timestamps. The physical part follows `clock`, never goes back, and runs ahead of it when the logical part is full."""

    def __init__(self, clock: Callable[[], int] = wall_clock_ms) -> None:
        self._clock = clock
        self._last = tso.compose(clock())

    @property
    def last(self) -> int:
        """The newest timestamp that was handed out."""
        return self._last

    def next(self, count: int = 1) -> int:
        """Take `count` timestamps and return the last of them. The first is `last - count + 1`; all have the same physical part.

        Raises ValueError for a count below 1 or above what one millisecond holds.
        """
        if not 1 <= count < LOGICAL_LIMIT:
            raise ValueError(f"cannot take {count} timestamps at once")
        physical = max(self._clock(), tso.physical_ms(self._last))
        first = tso.compose(physical) if physical > tso.physical_ms(self._last) else self._last + 1
        if tso.logical(first) + count > LOGICAL_LIMIT:
            first = tso.compose(physical + 1)
        self._last = first + count - 1
        return self._last

    def advance(self, ts: int) -> None:
        """Make sure that every later timestamp is above `ts`: a jump of the clock, or a loaded history."""
        self._last = max(self._last, ts)
