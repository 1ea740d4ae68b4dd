"""Who does what the ingest thread does not wait for: sealing, and writing what does not fit into memory.

`Receiver` asks only for what `Workers` names, the time included. So a simulator can do the same work at the moments that it chooses, and a
run follows from its seed alone, however slow the disk.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from typing import Any, Protocol


class Workers(Protocol):
    """Two workers. Each does its jobs one after the other, in the order in which they came."""

    @property
    def seal(self) -> Executor:
        """Sorts, gathers, writes and syncs segments."""

    @property
    def spill(self) -> Executor:
        """Writes scratch files."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""

    def wait(self, jobs: Collection[Future[Any]]) -> None:
        """Until all these jobs are done."""

    def wait_for_any(self, jobs: Collection[Future[Any]], timeout: float) -> None:
        """Until one of these jobs is done, or for `timeout` seconds."""

    def shutdown(self) -> None:
        """Do what is waiting, and end."""


class Threads:
    """A thread for each worker."""

    def __init__(self) -> None:
        self.seal = ThreadPoolExecutor(1, "seal")
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
