"""CPU time so far of this process, and of Java and the Python workers that it has started."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cpu:
    """Seconds of processor time so far."""

    driver: float
    java: float
    workers: float

    @classmethod
    def now(cls) -> Cpu:
        java = workers = 0.0
        for pid in _descendants(os.getpid()):
            fields = _stat(pid)
            spent = sum(map(int, fields[11:15])) / TICKS  # its own and that of its dead children
            if fields[-1] == "java":
                java += spent
            else:
                workers += spent
        return cls(time.process_time(), java, workers)

    def since(self, begin: Cpu) -> Cpu:
        return Cpu(self.driver - begin.driver, self.java - begin.java, self.workers - begin.workers)

    @property
    def total(self) -> float:
        return self.driver + self.java + self.workers


def _stat(pid: int) -> list[str]:
    """/proc/PID/stat from the state on, and the command at the end."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ["0"] * 60
    name, _, rest = text.partition(")")
    return [*rest.split(), name.partition("(")[2]]


def _descendants(pid: int) -> Iterator[int]:
    """All processes that a process started, and theirs; threads and processes may end meanwhile."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found = children.read_text().split()
        except OSError:
            continue
        for child in found:
            yield int(child)
            yield from _descendants(int(child))
