"""Whether a process is in a step on a file of a log on disk: tests do not stop it there."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import psutil

from tidemill import statefile
from tidemill.changelog import log_format


def is_in_a_step(log: Path, pids: Collection[int]) -> bool:
    """Whether one of these processes holds the lock of a step, which keeps others of the same machine out (`ErrLogHeld`).

    The lock that a writer holds all the time is not one of a step.
    """
    for path in log.rglob("*.lock"):
        with suppress(FileNotFoundError), path.open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if path.name != log_format.LOCK and statefile.read(lock.read(), str(path)).integer("pid") in pids:
                    return True
    return False


def freeze(pid: int, log: Path | str) -> None:
    """Stop a process (SIGSTOP), as a machine that stands still does: not while it is in a step on a file of a log on this machine."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
            pass
        if not isinstance(log, Path) or not is_in_a_step(log, {pid}):
            return
        os.kill(pid, signal.SIGCONT)
