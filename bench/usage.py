"""CPU time of a tree of processes, also of those that end while it is watched. Sampled: what a process uses after its last sample is lost,
so the interval is short against what is measured."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psutil

INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class Cpu:
    """User and system seconds by the kind of process."""

    by_kind: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.by_kind.values())

    def minus(self, other: Cpu) -> Cpu:
        kinds = self.by_kind.keys() | other.by_kind.keys()
        return Cpu({k: self.by_kind.get(k, 0.0) - other.by_kind.get(k, 0.0) for k in kinds})

    def __str__(self) -> str:
        return ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in sorted(self.by_kind.items()))


def kind_of(process: psutil.Process) -> str:
    """capture, driver, java, workers or supervisor."""
    if "java" in process.name():
        return "java"
    line = " ".join(process.cmdline())
    for kind, sign in (
        ("capture", "tidemill.cli.changelog.capturing"),
        ("capture", "tidemill.cli.main capture"),
        ("driver", "changefeed.runner"),
        ("workers", "tidemill.spark.worker_daemon"),
    ):
        if sign in line:
            return kind
    return "supervisor" if "tidemill.cli.main" in line else "workers"


class TreeUsage:
    """Watches a process and all its descendants until the end of the `with` block; `cpu()` any time."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._seen: dict[tuple[int, float], tuple[str, float]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self._sample()
            if self._over.wait(INTERVAL_S):
                return

    def _sample(self) -> None:
        try:
            processes = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in processes:
            try:
                times = process.cpu_times()
                # Asked again each time: a launcher becomes Java, a fork its own program.
                self._seen[process.pid, process.create_time()] = kind_of(process), times.user + times.system
            except psutil.Error:
                continue

    def cpu(self) -> Cpu:
        """Seconds so far."""
        found: dict[str, float] = {}
        for kind, seconds in list(self._seen.values()):
            found[kind] = found.get(kind, 0.0) + seconds
        return Cpu(found)
