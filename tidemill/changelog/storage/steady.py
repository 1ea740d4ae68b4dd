"""A clock for deadlines that are counted in hours: it does not jump ahead."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """Unix seconds, by the wall clock as it was at first and the time that has passed since; or by the wall clock now, if that is earlier.

    So a wall clock that is set ahead, by a day for instance, ends no deadline of this process. One that is set back makes them longer.
    """

    def __init__(self, wall: Callable[[], float] = lambda: time.time(), passed: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._passed = wall, passed
        self._offset = wall() - passed()

    def __call__(self) -> float:
        return min(self._wall(), self._offset + self._passed())
