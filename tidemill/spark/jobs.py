"""Where work items run: as one Spark job. `local.py` has those that run in the driver itself."""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext, TaskContext
from pyspark.errors import PySparkException

from tidemill.delivery.inputs import table_pack
from tidemill.delivery.machine.failures import ExecutorLost, JobLost
from tidemill.delivery.task import run
from tidemill.delivery.work_item import TaskFailure, TaskResult, WorkItem
from tidemill.errors import ConfigError, TidemillError
from tidemill.spark.executors import Executors

log = logging.getLogger(__name__)

NOT_INSTALLED = re.compile(r"ModuleNotFoundError|No module named|PYTHON_VERSION_MISMATCH|Cannot run program|another Tidemill")
"""Found in Spark's errors if executors have a Python that cannot run Tidemill."""

Blobs = Mapping[str, Any]
"""Spark's broadcasts of packs, by name."""
Job = Callable[[Iterable[WorkItem]], Iterator[TaskResult]]


def run_partition(items: Iterable[WorkItem], packs: Blobs | None = None, version: str | None = None) -> Iterator[TaskResult]:
    """For RDD.mapPartitions. Reads its input to the end, because otherwise Spark would not use the worker again.

    Spark runs a task again, whatever spark.task.maxFailures says, if its executor went away through no fault of the task. The first
    attempt may live on, in the same epoch. So the second one delivers nothing, and the driver begins a new epoch. (A job without a
    shuffle has one attempt of its stage.) `version`: the driver's, checked where this may be another machine.
    """
    context = TaskContext.get()
    assert context is not None, "runs in Spark's workers"
    if version is not None and version != metadata.version("tidemill"):
        raise ConfigError(f"another Tidemill is on {socket.gethostname()}: {metadata.version('tidemill')}, the driver's is {version}")
    table_pack.supply({name: partial(_value, blob) for name, blob in (packs or {}).items()})
    for item in items:
        yield run.run(item) if context.attemptNumber() == 0 else _refused(item, context.attemptNumber())


def load_workers(context: SparkContext) -> None:
    """Start the process that Python workers are forked from, by a job without work. A failure shows again with the first batch."""
    try:
        context.parallelize([0], 1).mapPartitions(_loaded).count()
    except (Py4JError, PySparkException, OSError) as error:
        log.debug("Spark's workers could not be loaded: %s", error)


def _loaded(items: Iterable[int]) -> Iterable[int]:
    return items


def _value(blob: Any) -> bytes:
    found: bytes = blob.value
    return found


def _refused(item: WorkItem, attempt: int) -> TaskFailure:
    text = f"{item}: the executor that had it is gone, and Spark ran it again (its run {attempt + 1})"
    return TaskFailure(item.number, ExecutorLost.code, text, ExecutorLost.retryable)


class SparkRunner:
    """Runs a batch as one job, with a task for each item. Where executors are processes of their own, each executor gets each
    pack once, by a broadcast."""

    def __init__(
        self,
        context: SparkContext,
        group: str,
        *,
        stop: threading.Event | None = None,
        tell: Callable[[TidemillError], None] = lambda error: None,
    ) -> None:
        """`tell` is called for a job that no executor takes."""
        self._context, self._group, self._stop = context, group, stop or threading.Event()
        self._executors = Executors(context, tell)
        self._packs: dict[str, Any] = {}  # broadcasts of the packs that the newest batch needs

    @property
    def is_here(self) -> bool:
        """Whether tasks run on this machine, started by this process's Java."""
        return self._executors.here

    @property
    def parallelism(self) -> int:
        """How many tasks the executors that are there now run at once."""
        try:
            return self._executors.cores
        except (Py4JError, OSError) as error:
            raise JobLost(f"Spark's Java process is gone: {cause_of(str(error))}") from error

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]:
        """Raises JobLost if Spark gives the job up (tasks may then go on writing for a moment), ConfigError if executors cannot run
        Tidemill."""
        first = items[0]
        what = f"batch {first.batch} of {first.feed}"
        files = {} if self._executors.here else {file.name: file.read_bytes() for item in items for file in table_pack.files(item.pack)}
        try:
            self._context.setJobGroup(self._group, what)
            work, job = ([*items], run_partition) if self._executors.here else self._travelling(items, files)
            with self._executors.watched(what, self._group, self._stop):
                return self._context.parallelize(work, len(work)).mapPartitions(job).collect()
        except OSError as error:
            raise JobLost(f"Spark's Java process is gone: {error}") from error
        except (Py4JError, PySparkException) as error:
            log.debug("Spark gave the job up", exc_info=True)
            if not self._executors.here and NOT_INSTALLED.search(str(error)):
                raise ConfigError(
                    f"executors of {self._context.master} cannot run Tidemill: {cause_of(str(error))}",
                    hint="Install the same Tidemill on every machine of the cluster; PYSPARK_PYTHON names the Python that has it.",
                ) from error
            raise JobLost(f"Spark gave the job up: {cause_of(str(error))}") from error

    def _travelling(self, items: Sequence[WorkItem], files: Mapping[str, bytes]) -> tuple[list[WorkItem], Job]:
        """The items with names of packs instead of paths of this machine, and the job that brings these packs along."""
        for name in self._packs.keys() - files.keys():
            self._packs.pop(name).destroy()
        for name, data in files.items():
            if name not in self._packs:
                self._packs[name] = self._context.broadcast(data)
        job = partial(run_partition, packs=self._packs, version=metadata.version("tidemill"))
        return [replace(item, pack=table_pack.name_of(item.pack)) for item in items], job


def cause_of(text: str) -> str:
    """The most useful line of a Spark error: that of the Python exception, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [i for i, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if marked:
        for line in lines[marked[0] + 1 :]:
            if not line.startswith(("File ", "^", "at ")) and ":" in line and " " not in line.split(":")[0]:
                return line
    return next((line for line in lines if "ExecutorLost" in line or "Exception" in line), lines[0] if lines else "no reason given")
