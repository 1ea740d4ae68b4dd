"""The workers of the ingest thread: they seal, and write what does not fit into memory.

`Receiver` uses the time and other threads only through `Workers`. So a simulator can run the same work at the moments that it chooses, and
a run depends on its seed alone, however slow the disk.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from typing import Any, Protocol


class Workers(Protocol):
    """One worker that spills, and one or more that seal. Jobs begin in the order of submission; a partition has one seal at a time."""

    @property
    def seal(self) -> Executor:
        """The executor that sorts, gathers, writes and syncs segments."""

    @property
    def spill(self) -> Executor:
        """The executor that writes scratch files."""

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""

    def wait(self, jobs: Collection[Future[Any]]) -> None:
        """Wait until all these jobs are done."""

    def wait_for_any(self, jobs: Collection[Future[Any]], timeout: float) -> None:
        """Wait until one of these jobs is done, or for `timeout` seconds."""

    def shutdown(self) -> None:
        """Do what is waiting, then end."""


class Threads:
    """A thread for each worker. `sealers`: more than one pays off if a seal waits for storage rather than for this machine."""

    def __init__(self, sealers: int = 1) -> None:
        self.seal = ThreadPoolExecutor(sealers, "seal")
        self.spill = ThreadPoolExecutor(1, "spill")

    def now(self) -> float:
        return time.monotonic()

    def wait(self, jobs: Collection[Future[Any]]) -> None:
        wait(jobs)

    def wait_for_any(self, jobs: Collection[Future[Any]], timeout: float) -> None:
        wait(jobs, timeout, FIRST_COMPLETED)

    def shutdown(self) -> None:
        self.seal.shutdown()
        self.spill.shutdown()
