"""Spark's driver as its Python processes see it: the Java process above them. What they start for a query ends with it."""

from __future__ import annotations

import os
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

from tidemill.process.children import environment, python
from tidemill.process.orders import begin


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


def begin_beside(module: str, order: object, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Start a module as a process that outlives its caller, which may end with a plan, with an order, see `orders`. It is reaped where the
    caller lives on. A process that ends before it has read its order raises nothing here."""
    process = subprocess.Popen(
        python(module),
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin:
        process.stdin.write(begin(order))
    threading.Thread(target=process.wait, name=module, daemon=True).start()
    return process
