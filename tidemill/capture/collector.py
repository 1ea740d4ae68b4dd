"""Pauses Python's garbage collector while a capture starts. A collection looks at every object and stops all threads; with 100,000 tables
it takes a second each time, and finds nothing.

So the collector rests while a capture begins, and what has been made by then is never looked at again: it lives as long as the capture,
and what of it goes, goes by its count of references.
"""

from __future__ import annotations

import gc
from types import TracebackType

MANY = 5_000
"""So many ranges are worth it. What is set aside is freed by its count of references only, so it is done once."""


class Collector:
    """`with Collector() as it:` lets the collector of this process rest until `release`, or the end."""

    _resting = 0  # how many want it to rest

    def __init__(self) -> None:
        self._rests = False

    def __enter__(self) -> Collector:
        self._rests = True
        Collector._resting += 1
        gc.disable()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    def rest_again(self) -> None:
        """The capture begins again. What the one before leaves in cycles may be set aside with the rest: to collect it here would hold the
        event loop, and a log grows rarely."""
        if not self._rests:
            self.__enter__()

    @property
    def rests(self) -> bool:
        """Whether it has not been released."""
        return self._rests

    def release(self, ranges: int = 0) -> None:
        """It may run again. `ranges`: how many key ranges there are; with many, what is there now is set aside."""
        if not self._rests:
            return
        self._rests = False
        Collector._resting -= 1
        if ranges >= MANY:
            gc.freeze()
        if not Collector._resting:
            gc.enable()
