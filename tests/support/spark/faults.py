"""Things that go wrong inside Spark's Python workers, for tests. Imported there, so the repository has to be on their path."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tidemill.delivery.machine.failures import JobLost
from tidemill.delivery.task import run as task
from tidemill.delivery.work_item import TaskResult, WorkItem
from tidemill.spark import jobs

Job = Callable[[Iterable[WorkItem]], Iterator[TaskResult]]
Work = Callable[[WorkItem], TaskResult]


def once(flag: Path) -> bool:
    """True for the first caller only."""
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def appears(file: Path) -> None:
    """Wait for a file, two minutes at most."""
    deadline = time.monotonic() + 120
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def dying(folder: str) -> Job:
    """The first worker that runs an item is killed before it answers."""

    def run(items: Iterable[WorkItem]) -> Iterator[TaskResult]:
        results = list(jobs.run_partition(items))
        if once(Path(folder) / "died"):
            os.kill(os.getpid(), signal.SIGKILL)
        yield from results

    return run


def late(folder: str) -> Job:
    """Item 0 fails the first time, when item 1 is there. Item 1 then begins when the next attempt has ended, as a worker that outlived its
    job would."""

    def run(items: Iterable[WorkItem]) -> Iterator[TaskResult]:
        place = Path(folder)
        for item in items:
            if item.number == 0 and not (place / "failed").exists():
                appears(place / "late")  # in the first attempt
                (place / "failed").touch()
                raise RuntimeError("the first item fails")
            if item.number == 1 and once(place / "late"):
                appears(place / "second try")
                result = next(jobs.run_partition([item]))
                (place / "outcome").write_text(str(result))
            yield from jobs.run_partition([item])
        if (place / "failed").exists():
            (place / "second try").touch()

    return run


def dying_item(folder: str) -> Work:
    """The first worker that has run an item is killed before it answers."""

    def work(item: WorkItem) -> TaskResult:
        result = task.run(item)
        if once(Path(folder) / "died"):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return work


def failing_item(folder: str) -> Work:
    """The first item ends its task with an error that is not Tidemill's."""

    def work(item: WorkItem) -> TaskResult:
        if once(Path(folder) / "failed"):
            raise RuntimeError("the first item fails")
        return task.run(item)

    return work


def late_item(folder: str) -> Work:
    """As `late`."""

    def work(item: WorkItem) -> TaskResult:
        place = Path(folder)
        if item.number == 0 and not (place / "failed").exists():
            appears(place / "late")  # in the first attempt
            (place / "failed").touch()
            raise RuntimeError("the first item fails")
        if item.number == 1 and once(place / "late"):
            appears(place / "second try")
            result = task.run(item)
            (place / "outcome").write_text(str(result))
            return result
        result = task.run(item)
        if (place / "failed").exists():
            (place / "second try").touch()
        return result

    return work


class FaultyRunner(jobs.SparkRunner):
    """A SparkRunner whose tasks do something else."""

    job: Job

    def run(self, items: object) -> list[TaskResult]:
        assert isinstance(items, list)
        try:
            return self._context.parallelize(items, len(items)).mapPartitions(self.job).collect()
        except Exception as error:
            raise JobLost(jobs.cause_of(str(error))) from error
