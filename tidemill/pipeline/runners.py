"""Where work items run: as one Spark job, or in the driver itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from py4j.protocol import Py4JError
from pyspark import SparkContext, TaskContext
from pyspark.errors import PySparkException

from tidemill.pipeline import task
from tidemill.pipeline.batch import JobLost
from tidemill.pipeline.work import TaskResult, WorkItem

log = logging.getLogger(__name__)


def run_partition(items: Iterable[WorkItem]) -> Iterator[TaskResult]:
    """For RDD.mapPartitions. Reads its input to the end: Spark would not use the worker again otherwise."""
    assert TaskContext.get() is not None, "runs in Spark's workers"
    for item in items:
        yield task.run(item)


class SparkRunner:
    """One job a batch: a task an item."""

    def __init__(self, context: SparkContext, group: str) -> None:
        self._context, self._group = context, group
        self.parallelism = int(context.defaultParallelism)

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]:
        """Raises JobLost if Spark gives the job up; tasks may then go on writing for a moment."""
        first = items[0]
        self._context.setJobGroup(self._group, f"batch {first.batch} of {first.feed}")
        try:
            return self._context.parallelize(list(items), len(items)).mapPartitions(run_partition).collect()
        except (Py4JError, PySparkException) as error:
            log.debug("Spark gave the job up", exc_info=True)
            raise JobLost(f"Spark gave the job up: {cause_of(str(error))}") from error


class LocalRunner:
    """In this process, one item after the other."""

    parallelism = 1

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]:
        return [task.run(item) for item in items]


class EitherRunner:
    """Batches that are one small item run here, the others by Spark, which is started for the first of them."""

    def __init__(self, start: Callable[[], SparkRunner], parallelism: int) -> None:
        self._start, self.parallelism = start, parallelism
        self._spark: SparkRunner | None = None
        self._local = LocalRunner()

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]:
        if len(items) == 1 and items[0].small:
            return self._local.run(items)
        if self._spark is None:
            self._spark = self._start()
        return self._spark.run(items)


def cause_of(text: str) -> str:
    """The line of a Spark error that tells most: that of the Python exception, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [i for i, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if marked:
        for line in lines[marked[0] + 1 :]:
            if not line.startswith(("File ", "^", "at ")) and ":" in line and " " not in line.split(":")[0]:
                return line
    return next((line for line in lines if "ExecutorLost" in line or "Exception" in line), lines[0] if lines else "no reason given")
