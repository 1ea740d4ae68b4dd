"""Threads that an event loop begins."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable


def begin(work: Callable[[], None]) -> threading.Event:
    """Run `work` in a thread that ends with the process at the latest; the event is set when it is over. Does not wait until the thread
    runs, as `threading.Thread.start` does: on a busy machine that takes 100 ms, in which an event loop would stand still."""
    over = threading.Event()

    def run() -> None:
        try:
            work()
        finally:
            over.set()

    _thread.start_new_thread(run, ())
    return over
