"""Threads that an event loop begins."""

from __future__ import annotations

import _thread
from collections.abc import Callable


def begin(work: Callable[[], None]) -> None:
    """Run `work` in a thread that ends with the process at the latest. Does not wait until the thread runs, as `threading.Thread.start`
    does: on a busy machine that takes 100 ms, in which an event loop would stand still."""
    _thread.start_new_thread(work, ())
