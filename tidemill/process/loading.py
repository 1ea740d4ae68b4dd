"""What a program of Tidemill does while it is loaded: Python's garbage collector rests, and a crash in C code is made to show its stack.

To load what a driver or a capture needs makes a million objects, none of which is garbage. Collections in between took a fifth of the CPU
time until the first row was delivered. So the collector waits, and then sets aside what was loaded: later collections skip it.
"""

from __future__ import annotations

import faulthandler
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def loading() -> Iterator[None]:
    """For the block in which a process loads its modules. It is for programs: what exists at its end is kept until the process ends."""
    with suppress(AttributeError, OSError, RuntimeError):  # stderr is closed, or not a file
        faulthandler.enable()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
