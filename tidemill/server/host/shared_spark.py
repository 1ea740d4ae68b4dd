"""One Spark context for all changefeeds of a host. It starts in the background, so that what is idle does not wait for it.

Until it is there, small batches run in the host's process.

Each changefeed has a pool of Spark's fair scheduler, so that a backlog of one leaves others their share. A task whose sink does not answer
keeps its place until it gives up. So a master on this machine has many more places than cores, and a changefeed whose last attempt
failed runs one task at a time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidemill.delivery.work_item import TaskResult, WorkItem
from tidemill.errors import TidemillError
from tidemill.process.places import is_in_process
from tidemill.sinks.spec import forget_task_sinks
from tidemill.spark.background import BackgroundSpark
from tidemill.spark.local import LocalRunner, fits_here

PLACES = 64
"""Tasks that a master on this machine runs at once, at least. A place costs nothing while no task is in it."""


class SharedSpark(BackgroundSpark):
    """The context."""

    def __init__(self, log_file: Path, master: str | None, user: Mapping[str, str]) -> None:
        super().__init__(self._begin)
        self._log_file, self._master, self._user = log_file, master, user
        self._warms = False
        self._turning = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}
        self.cores = os.cpu_count() or 1
        """How many tasks a changefeed runs at once, at most, where the master is on this machine."""

    def turn(self, sink: str) -> threading.Lock:
        """A lock for deliveries to a sink in this process: those with one URI share what `open_task_sink` opens."""
        with self._turning:
            return self._turns.setdefault(sink, threading.Lock())

    @property
    def is_here(self) -> bool:
        """Whether it runs its tasks on this machine, for itself."""
        return is_in_process(self._master)

    def warm(self) -> None:
        """Start it and what its tasks need, while no changefeed needs it yet."""
        self._warms = True
        self.start()

    def _begin(self) -> Any:
        from tidemill.spark.session import start_context

        master = f"local[{max(PLACES, 4 * self.cores)}]" if self.is_here and self._master in (None, "local") else self._master
        fair = {"spark.scheduler.mode": "FAIR"}
        context = start_context(self._log_file, master=master, name="tidemill server", user=self._user, extra=fair)
        if self._warms:
            from tidemill.spark.jobs import load_workers

            load_workers(context)
        return context


class PoolRunner:
    """Runs the batches of one changefeed in a pool of its own; while Spark is starting, a batch that is one small item in this process. A
    `batch.JobRunner`."""

    def __init__(self, spark: SharedSpark, feed: str, stop: threading.Event, tell: Callable[[TidemillError], None]) -> None:
        self._spark, self._feed, self._stop, self._tell = spark, feed, stop, tell
        self._runner: Any = None
        self._local: LocalRunner | None = LocalRunner()
        self.in_trouble = False
        """Its last attempt failed."""

    @property
    def parallelism(self) -> int:
        runner = self._opened()
        if self.in_trouble:
            return 1
        found: int = runner.parallelism
        return min(found, self._spark.cores) if runner.is_here else found

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]:
        """Raises as `SparkRunner.run`, and Stopped if Spark does not start."""
        if self._local is not None and not self._spark.is_up and fits_here(items):
            with self._spark.turn(items[0].sink):
                return self._local.run(items)
        results: list[TaskResult] = self._opened().run(items)
        return results

    def _opened(self) -> Any:
        if self._runner is None:
            from tidemill.spark.jobs import SparkRunner

            context = self._spark.context(self._stop)
            context.setLocalProperty("spark.scheduler.pool", self._feed)
            self._runner, self._local = SparkRunner(context, f"tidemill-{self._feed}", stop=self._stop, tell=self._tell), None
            forget_task_sinks()  # of the batches that were delivered here
        return self._runner
