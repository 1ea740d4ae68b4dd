"""Whether a process is in a step on a file of a log on disk: tests do not stop it there."""

from __future__ import annotations

import fcntl
from collections.abc import Collection, Sequence
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


def freeze(processes: Sequence[psutil.Process], log: Path | str) -> bool:
    """Stop processes (SIGSTOP), as a machine that stands still does. False: one is in a step on a file of a log on this machine, and all go
    on; try again."""
    halt(processes)
    if not isinstance(log, Path) or not is_in_a_step(log, {process.pid for process in processes}):
        return True
    thaw(processes)
    return False


def halt(processes: Sequence[psutil.Process]) -> None:
    """Stop processes (SIGSTOP), whatever they do. Returns when they stand."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
            while process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
                pass


def thaw(processes: Sequence[psutil.Process]) -> None:
    """Let processes go on."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.resume()
