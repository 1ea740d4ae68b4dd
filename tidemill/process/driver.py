"""Spark's driver as its Python processes see it: the Java process above them. What they start for a query ends with it."""

from __future__ import annotations

import os
from pathlib import Path


def driver_pid() -> int:
    """The process that a query belongs to: the Java process above this one, which is Spark's driver, else this one."""
    pid = os.getpid()
    while pid > 1:
        try:
            name, _, rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
        except OSError:  # no Linux
            break
        if name.endswith("(java"):
            return pid
        pid = int(rest.split()[1])
    return os.getpid()


def lives(pid: int) -> bool:
    """Whether there is a process of this number. 0: nothing depends on one."""
    if not pid:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
