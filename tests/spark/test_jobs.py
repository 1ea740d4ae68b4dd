"""The same deliveries by Spark: jobs, and faults of workers. One session for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

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
from tidemill.spark.jobs import SparkRunner

pytestmark = pytest.mark.spark

session = spark_session(master="local[2]")


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


@pytest.mark.parametrize("fault", [faults.dying, faults.late])
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
