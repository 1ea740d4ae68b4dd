"""A supervised process must not outlive its supervisor, whatever it is at.

The supervisor holds the other end of the process's stdin and never writes. When it dies, the kernel sends SIGTERM (see
`supervisor`) and the pipe ends; a process that is still there after the time a clean end may take ends itself.
"""

from __future__ import annotations

import os
import threading

from tidemill.errors import EXIT_RETRY

GRACE_S = 25.0


def hold(descriptor: int = 0) -> None:
    """Watch the supervisor's end of the pipe, from a thread of its own."""
    threading.Thread(target=_watch, args=(descriptor,), name="lifeline", daemon=True).start()


def _watch(descriptor: int) -> None:
    try:
        while os.read(descriptor, 64):
            pass
    except OSError:
        return  # no stdin at all: started by hand
    threading.Event().wait(GRACE_S)
    os._exit(EXIT_RETRY)
