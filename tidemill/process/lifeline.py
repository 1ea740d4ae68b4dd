"""Ends a supervised process when its supervisor dies, whatever the process is doing.

The supervisor holds the other end of the process's stdin. When it dies, for whatever reason, the pipe ends. Then the process sends itself
SIGTERM, as a user would. If it is still there after the time for a clean end, it exits at once.
(The kernel's parent death signal would need a hook in a fork of a process with gRPC's threads in it.)
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Callable

from tidemill import logs
from tidemill.errors import EXIT_RETRY, ConfigError

log = logging.getLogger(__name__)

SUPERVISED = "TIDEMILL_SUPERVISED"
"""Set in the environment of the processes that `tidemill run` starts."""
RETRIES = "TIDEMILL_RETRIES"
"""Like SUPERVISED, for a changefeed's process that is started again after an error: its state is `warning` until the checkpoint moves."""
GRACE_S = 25.0


def hold(descriptor: int = 0, heard: Callable[[bytes], None] = lambda line: None) -> None:
    """Watch the supervisor's end of the pipe, in a thread. `heard` is called there with each line that the supervisor writes."""
    threading.Thread(target=_watch, args=(descriptor, heard), name="lifeline", daemon=True).start()


def take_level(line: bytes) -> None:
    """Carry out a supervisor's line about the log: `{"do": "log", "level": "debug"}`. Another one is left alone."""
    try:
        told = json.loads(line)
        if told["do"] == "log":
            logs.set_level(str(told["level"]))
    except (ValueError, KeyError, TypeError, RecursionError, ConfigError) as error:
        log.warning("a line of the supervisor is not understood: %s", error)


def _watch(descriptor: int, heard: Callable[[bytes], None]) -> None:
    rest = b""
    try:
        while data := os.read(descriptor, 4096):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                heard(line)
    except OSError:
        return  # stdin is not a pipe: the process was started by hand
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(GRACE_S)
    os._exit(EXIT_RETRY)
