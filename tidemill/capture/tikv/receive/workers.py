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
    """Two workers, or more that seal. Jobs begin in the order in which they came; there is one at a time of a partition's seals."""

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
    """A thread for each worker. `sealers`: more than one pays where a seal waits for a store and not for this machine."""

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
