"""Where work items run that need no Spark job: in the driver itself, under the same epochs.

The modules of PySpark are not imported here: what is delivered before Spark is there does not wait for them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tidemill.delivery.batch import JobRunner
from tidemill.delivery.task import run
from tidemill.delivery.work_item import TaskResult, WorkItem
from tidemill.sinks.spec import forget_task_sinks
from tidemill.spark.background import BackgroundSpark

if TYPE_CHECKING:
    from tidemill.spark.jobs import SparkRunner


class LocalRunner:
    """Runs items in this process, one after the other."""

    parallelism = 1

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]:
        return [run.run(item) for item in items]


def fits_here(items: Sequence[WorkItem]) -> bool:
    """Whether a batch is one small item."""
    return len(items) == 1 and items[0].small


class EitherRunner:
    """Runs a batch that is one small item in this process, and any other by Spark. Spark is started for the first of these."""

    def __init__(self, start: Callable[[], SparkRunner], parallelism: int | None) -> None:
        """`parallelism`: as the user set it; None: Spark's, or before Spark is started the number of this machine's cores."""
        self._start, self._wanted = start, parallelism
        self._spark: SparkRunner | None = None
        self._local = LocalRunner()

    @property
    def parallelism(self) -> int:
        if self._wanted is not None or self._spark is None:
            return self._wanted or os.cpu_count() or 1
        return self._spark.parallelism

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]:
        if fits_here(items):
            return self._local.run(items)
        if self._spark is None:
            self._spark = self._start()
        return self._spark.run(items)


class EarlyRunner:
    """Runs a batch that is one small item in this process as long as Spark is starting, and every other batch by Spark."""

    def __init__(self, spark: BackgroundSpark, opened: Callable[[Any], JobRunner], stop: threading.Event) -> None:
        """`opened`: makes Spark's runner of its context."""
        self._spark, self._open, self._stop = spark, opened, stop
        self._runner: JobRunner | None = None
        self._local: LocalRunner | None = LocalRunner()

    @property
    def parallelism(self) -> int:
        """How many items run at once. Waits for Spark. Raises Stopped."""
        return self._opened().parallelism

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]:
        """Raises as `SparkRunner.run`, and Stopped if Spark does not start."""
        if self._local is not None and not self._spark.is_up and fits_here(items):
            return self._local.run(items)
        return self._opened().run(items)

    def _opened(self) -> JobRunner:
        if self._runner is None:
            context = self._spark.context(self._stop)
            self._runner, self._local = self._open(context), None
            forget_task_sinks()  # of the batches that were delivered here
        return self._runner
