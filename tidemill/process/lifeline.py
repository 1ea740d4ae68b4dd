"""Ends a supervised process when its supervisor dies, whatever the process is doing.

The supervisor holds the other end of the process's stdin. When it dies, for whatever reason, the pipe ends. Then the process sends itself
SIGTERM, as a user would. If it is still there after the time for a clean end, it exits at once.
(The kernel's parent death signal would need a hook in a fork of a process with gRPC's threads in it.)
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import threading
from collections.abc import Callable

from tidemill import logs
from tidemill.errors import EXIT_RETRY, ConfigError

log = logging.getLogger(__name__)

SUPERVISED = "TIDEMILL_SUPERVISED"
"""Set in the environment of processes that a supervisor starts: they end with the exit codes that it expects."""
GRACE_S = 25.0
CHECK_EVERY_S = 10.0


class Lines:
    """The lines that come through a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._rest = descriptor, b""

    def next(self, check: Callable[[], None] = lambda: None) -> bytes:
        """Wait for a line, and return it with its end; empty: the pipe has ended. `check` is called every few seconds. Raises OSError."""
        while b"\n" not in self._rest:
            while not select.select([self._descriptor], [], [], CHECK_EVERY_S)[0]:
                check()
            data = os.read(self._descriptor, 1 << 16)
            if not data:
                return b""
            self._rest += data
        line, end, self._rest = self._rest.partition(b"\n")
        return line + end


STDIN = Lines(0)


def hold(heard: Callable[[bytes], None] = lambda line: None) -> None:
    """Watch the supervisor's end of stdin, in a thread. `heard` is called there with each line that the supervisor writes."""
    threading.Thread(target=_watch, args=(heard,), name="lifeline", daemon=True).start()


def take_level(line: bytes) -> None:
    """Carry out a supervisor's line about the log: `{"do": "log", "level": "debug"}`. Another one is left alone."""
    try:
        told = json.loads(line)
        if told["do"] == "log":
            logs.set_level(str(told["level"]))
    except (ValueError, KeyError, TypeError, RecursionError, ConfigError) as error:
        log.warning("a line of the supervisor is not understood: %s", error)


def _watch(heard: Callable[[bytes], None]) -> None:
    try:
        while line := STDIN.next():
            heard(line)
    except OSError:
        return  # stdin is not a pipe: the process was started by hand
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(GRACE_S)
    os._exit(EXIT_RETRY)
