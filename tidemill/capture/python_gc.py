"""Pauses Python's garbage collector while a capture starts. A collection visits every object and stops all threads. With 100,000 tables it
takes a second each time and finds nothing.

The objects made during the start live as long as the capture. So after the start they are set aside (gc.freeze), and later collections skip
them. Those that are dropped after all are freed by reference counting.
"""

from __future__ import annotations

import gc
from types import TracebackType

MANY = 5_000
"""Key ranges from which on it pays to set objects aside. It is done once, because only reference counting frees such objects."""


class GcPause:
    """`with GcPause() as it:` pauses this process's garbage collector until `release`, or the end of the block."""

    _resting = 0  # how many instances pause it

    def __init__(self) -> None:
        self._rests = False

    def __enter__(self) -> GcPause:
        self._rests = True
        GcPause._resting += 1
        gc.disable()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    def rest_again(self) -> None:
        """Pause again, because the capture begins again. Cycles left by the previous run may be set aside for good: collecting them here
        would stall the event loop, and it happens rarely (a log gets more partitions)."""
        if not self._rests:
            self.__enter__()

    @property
    def rests(self) -> bool:
        """Whether the pause lasts."""
        return self._rests

    def release(self, ranges: int = 0) -> None:
        """End the pause. `ranges`: the number of key ranges; with many, the objects that exist now are set aside."""
        if not self._rests:
            return
        self._rests = False
        GcPause._resting -= 1
        if ranges >= MANY:
            gc.freeze()
        if not GcPause._resting:
            gc.enable()
