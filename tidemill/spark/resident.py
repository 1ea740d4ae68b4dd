"""Where work items run with `performance-mode = "low-latency"`: in Spark tasks that stay, one for each core, of one job that goes on.

A job for each batch takes some tens of milliseconds of Java, and of what a task does to begin and end. A resident task gets its items by a
socket in a private folder of this machine, and keeps what it has built and its sinks. Spark places the tasks, watches them and ends them.
If one is lost, Spark gives the job up, and the batch is lost as with any other job: the next attempt has another epoch and begins another
job. A task that lives on somewhere is stopped by the fence.

Only for a master that is this process's Java: items, with their sink URIs, do not leave the machine.
"""

from __future__ import annotations

import logging
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from tidemill.delivery.machine.failures import JobLost
from tidemill.delivery.task import run
from tidemill.delivery.work_item import TaskResult, WorkItem
from tidemill.spark.jobs import cause_of

log = logging.getLogger(__name__)

END_S = 5.0
"""How long the end of a job is waited for before it is cancelled."""

Serve = Callable[[str], None]
"""What a resident task does: it connects to an address, and runs items until the driver closes the connection."""


def serve(address: str, work: Callable[[WorkItem], TaskResult] = run.run) -> None:
    """Run items, one after the other. An error that is not Tidemill's ends the task, and with it the job."""
    with socket.socket(socket.AF_UNIX) as driver:
        driver.connect(address)
        with Connection(driver.detach()) as connection:
            while (item := _received(connection)) is not None:
                result = work(item)
                try:
                    connection.send(result)
                except OSError:  # the driver has closed it: the batch is lost
                    return


def _received(connection: Connection) -> WorkItem | None:
    try:
        item: WorkItem = connection.recv()
    except (EOFError, OSError):
        return None
    return item


def _task(task: Serve, address: str, numbers: Iterable[int]) -> Iterator[int]:
    """For RDD.mapPartitions."""
    for number in numbers:
        task(address)
        yield number


class ResidentRunner:
    """Runs batches in resident tasks. Used by one thread at a time. A `batch.JobRunner`."""

    is_here = True

    def __init__(self, context: SparkContext, group: str, task: Serve = serve) -> None:
        self._context, self._group, self._serve = context, group, task
        self._job: ResidentJob | None = None

    @property
    def parallelism(self) -> int:
        """How many tasks there are."""
        try:
            return max(1, int(self._context.defaultParallelism))
        except (Py4JError, OSError) as error:
            raise JobLost(f"Spark's Java process is gone: {cause_of(str(error))}") from error

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]:
        """Raises JobLost if a task is lost; other tasks may then go on writing for a moment."""
        if self._job is not None and self._job.is_over:  # a task was lost between two batches
            self.close()
        if self._job is None:
            tasks = self.parallelism
            self._job = ResidentJob(partial(self._begin, tasks), self._cancel)
            log.debug("%s: %d resident tasks begin", self._group, tasks)
        try:
            return self._job.run(items)
        except JobLost:
            self._job = None
            raise

    def close(self) -> None:
        """End the tasks, if there are any."""
        if self._job is not None:
            self._job.close()
            self._job = None

    def _begin(self, tasks: int, address: str) -> None:
        self._context.setJobGroup(self._group, "resident tasks")
        self._context.parallelize(range(tasks), tasks).mapPartitions(partial(_task, self._serve, address)).collect()

    def _cancel(self) -> None:
        try:
            self._context.cancelJobGroup(self._group)
        except (Py4JError, OSError) as error:
            log.debug("the resident tasks cannot be cancelled: %s", error)


class ResidentJob:
    """One job, and the connections of its tasks. The job runs in a thread of its own; everything else is the caller's thread."""

    def __init__(self, begin: Callable[[str], None], cancel: Callable[[], None]) -> None:
        """`begin` runs the job, whose tasks connect to an address, until it ends. Raises OSError."""
        self._cancel, self._why = cancel, "it has ended"
        self._folder = tempfile.mkdtemp(prefix="tidemill-")
        address = f"{self._folder}/tasks"
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(address)
        self._door.listen(1024)
        self._end, self._ended = socket.socketpair()  # the second one can be read when the job is over
        self._free: list[Connection] = []
        self._busy: dict[Connection, int] = {}
        self._thread = threading.Thread(target=self._run, args=(begin, address), name="resident tasks", daemon=True)
        self._thread.start()

    def _run(self, begin: Callable[[str], None], address: str) -> None:
        try:
            begin(address)
        except (Py4JError, PySparkException, OSError) as error:
            self._why = cause_of(str(error))
            log.debug("Spark gave the resident tasks up", exc_info=True)
        finally:
            self._end.close()

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, or is about to because a task is gone: a free task has nothing to say."""
        return bool(wait([self._ended, *self._free], 0))

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]:
        """Run items, each in a task that is free. Raises JobLost; then the job is closed."""
        found: dict[int, TaskResult] = {}
        left = list(range(len(items)))
        try:
            while len(found) < len(items):
                while left and self._free:
                    task = self._free.pop()
                    self._busy[task] = left.pop(0)
                    task.send(items[self._busy[task]])
                for ready in wait([self._ended, *([self._door] if left else []), *self._busy]):
                    if isinstance(ready, Connection):
                        found[self._busy[ready]] = ready.recv()
                        del self._busy[ready]
                        self._free.append(ready)
                    elif ready is self._door:
                        self._free.append(Connection(self._door.accept()[0].detach()))
                    else:
                        raise EOFError
        except (EOFError, OSError) as error:
            self.close()
            raise JobLost(f"Spark gave the job up: {self._why}") from error
        return [found[number] for number in range(len(items))]

    def close(self) -> None:
        """End the tasks, each after its item, and the job."""
        for connection in (*self._free, *self._busy):
            connection.close()
        self._free.clear()
        self._busy.clear()
        self._door.close()
        self._thread.join(END_S)
        if self._thread.is_alive():
            self._cancel()
            self._thread.join(END_S)
        self._ended.close()
        shutil.rmtree(self._folder, ignore_errors=True)
