"""Where work items run, and what Spark's errors say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tidemill.delivery.task import run
from tidemill.delivery.work_item import TaskResult, TaskStats, WorkItem
from tidemill.spark.jobs import cause_of
from tidemill.spark.local import EitherRunner


class Noting:
    def __init__(self) -> None:
        self.parallelism = 4
        self.got: list[int] = []

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]:
        self.got.append(len(items))
        return []


def item(number: int, *, small: bool) -> WorkItem:
    return WorkItem("f", 1, 1, number, 0, 9, (0,), (), 0, 1, "p", "s", "e", small)


def test_spark_is_started_for_the_first_batch_that_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spark, started = Noting(), []
    runner = EitherRunner(lambda: (started.append(1), spark)[1], 4)  # type: ignore[arg-type, return-value]
    monkeypatch.setattr(run, "run", lambda one: TaskStats(one.number))
    assert runner.run([item(0, small=True)]) == [TaskStats(0)]
    assert started == []
    runner.run([item(0, small=False), item(1, small=False)])
    runner.run([item(0, small=False)])
    assert (started, spark.got) == ([1], [2, 1])


def test_what_sparks_errors_say() -> None:
    text = 'x\nTraceback (most recent call last):\n  File "a", line 1\n    boom()\nValueError: it broke\n\n\tat org.apache'
    assert cause_of(text) == "ValueError: it broke"
    assert cause_of("org.apache.spark.SparkException: Job aborted\n at x") == "org.apache.spark.SparkException: Job aborted"
    assert cause_of("") == "no reason given"
