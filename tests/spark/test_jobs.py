"""The same deliveries by Spark: jobs, and faults of workers. One session for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.changelog.logs import START
from tests.support.delivery.deliveries import batch_driver
from tests.support.delivery.feeds import Delivered, World, expected
from tests.support.spark import faults
from tests.support.spark.sessions import spark_session
from tidemill.delivery import plan
from tidemill.delivery.batch import BatchDriver, JobRunner
from tidemill.delivery.machine import batch_machine
from tidemill.delivery.machine.retry import RetryPolicy
from tidemill.delivery.work_item import TaskResult, TaskStats, WorkItem
from tidemill.spark.jobs import SparkRunner
from tidemill.spark.resident import ResidentRunner, serve

pytestmark = pytest.mark.spark

session = spark_session()
RESIDENT = pytest.mark.thorough("a resident task that dies is the harder one")
LOST = pytest.mark.thorough("dying_item is lost, too")


@pytest.fixture(autouse=True)
def divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide even the smallest batch into several items, and do not wait."""
    monkeypatch.setattr(plan, "SMALL_BYTES", -1)
    monkeypatch.setattr(batch_machine, "GRACE_S", 0.5)


@pytest.fixture
def delivery(tmp_path: Path) -> Iterator[Callable[..., BatchDriver]]:
    """Makes a batch driver on a log, into tmp_path/out."""
    with ExitStack() as stack:

        def make(log: str, runner: JobRunner, partitions: int = 2, at: int = START) -> BatchDriver:
            return stack.enter_context(batch_driver(tmp_path, log, runner, partitions=partitions, at=at, retry=RetryPolicy(first_s=0.1)))

        yield make


def test_a_job(session: Any, delivery: Callable[..., BatchDriver], tmp_path: Path) -> None:
    world = World.make(seed=2, huge=60)
    driver = delivery(world.log(tmp_path / "log", partitions=3, segments=2), SparkRunner(session.sparkContext, "g"))
    report = driver.run(0, START, world.end)
    got = Delivered.read(tmp_path / "out")
    assert got.events == expected(world, "index-value", 2)
    assert report.stats.acked == report.stats.messages > 0
    assert report.attempts == 1


@pytest.mark.parametrize("fault", [pytest.param(faults.dying, marks=RESIDENT), faults.late])
def test_a_job_that_is_lost_is_run_again_and_late_tasks_write_nothing(
    session: Any, delivery: Callable[..., BatchDriver], tmp_path: Path, fault: Callable[[str], faults.Job]
) -> None:
    world = World.make(seed=3)
    runner = faults.FaultyRunner(session.sparkContext, "g")
    runner.job = fault(str(tmp_path))
    driver = delivery(world.log(tmp_path / "log", partitions=2), runner)
    report = driver.run(0, START, world.end)
    assert report.attempts == 2
    assert Delivered.read(tmp_path / "out").events == expected(world, "index-value", 2)
    outcome = tmp_path / "outcome"
    assert not outcome.exists() or "TM:ErrFenced" in outcome.read_text()  # killed before, or stopped by the fence


class Resident(ResidentRunner):
    """Notes which workers have answered."""

    def __init__(self, context: Any, work: faults.Work | None = None) -> None:
        super().__init__(context, "stay", serve if work is None else partial(serve, work=work))
        self.workers: set[int] = set()

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]:
        found = super().run(items)
        self.workers |= {one.worker for one in found if isinstance(one, TaskStats)}
        return found


@pytest.fixture
def resident(session: Any) -> Iterator[Callable[..., Resident]]:
    """Makes a runner whose tasks stay."""
    with ExitStack() as stack:

        def make(work: faults.Work | None = None) -> Resident:
            runner = Resident(session.sparkContext, work)
            stack.callback(runner.close)
            return runner

        yield make


def test_resident_tasks_stay_until_one_is_lost_between_batches(
    resident: Callable[..., Resident], delivery: Callable[..., BatchDriver], tmp_path: Path
) -> None:
    """It costs no attempt: the next batch begins other tasks."""
    world = World.make(seed=2, huge=60)
    commits = sorted({c.commit_ts for c in world.rows})
    first, second = commits[30], commits[60]
    runner = resident()
    driver = delivery(world.log(tmp_path / "log", partitions=3, segments=2), runner)
    driver.run(0, START, first)
    driver.run(1, first, second)
    stayed = set(runner.workers)
    assert len(stayed) <= 2
    processes = [psutil.Process(pid) for pid in stayed]
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # Spark may have ended it with the first
            process.kill()
    assert psutil.wait_procs(processes, 60)[1] == []
    assert driver.run(2, second, world.end).attempts == 1
    assert runner.workers > stayed
    assert Delivered.read(tmp_path / "out").events == expected(world, "index-value", 2)


@pytest.mark.parametrize("fault", [faults.dying_item, pytest.param(faults.failing_item, marks=LOST), faults.late_item])
def test_a_batch_whose_resident_task_is_lost_is_run_again_and_late_ones_write_nothing(
    resident: Callable[..., Resident], delivery: Callable[..., BatchDriver], tmp_path: Path, fault: Callable[[str], faults.Work]
) -> None:
    world = World.make(seed=3)
    driver = delivery(world.log(tmp_path / "log", partitions=2), resident(fault(str(tmp_path))))
    report = driver.run(0, START, world.end)
    assert report.attempts == 2
    assert Delivered.read(tmp_path / "out").events == expected(world, "index-value", 2)
    outcome = tmp_path / "outcome"
    assert not outcome.exists() or "TM:ErrFenced" in outcome.read_text()
