"""What a runner makes of the executors that are there: attempts, parallelism, jobs that nothing takes, a Java that is gone."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from tests.support.changelog.logs import START
from tests.support.delivery.feeds import World
from tests.support.delivery.packs import OUTPUT, choose, count
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.delivery.inputs import table_pack as packs
from tidemill.delivery.inputs.table_pack import PackStore
from tidemill.delivery.machine.failures import ExecutorLost, JobLost, error_of
from tidemill.delivery.task import run
from tidemill.delivery.work_item import TaskFailure, TaskStats, WorkItem
from tidemill.errors import ConfigError, TidemillError
from tidemill.spark import executors
from tidemill.spark import jobs as runners
from tidemill.spark.executors import Executors, NoExecutor
from tidemill.spark.jobs import SparkRunner, run_partition
from tidemill.spark.session import stop_spark


def item(number: int, pack: str = "p") -> WorkItem:
    return WorkItem("f", 1, 1, number, 0, 9, (0,), (), 0, 1, pack, "s", "e")


@pytest.mark.parametrize("attempt", [0, 1, 2])
def test_a_second_attempt_of_a_task_delivers_nothing(monkeypatch: pytest.MonkeyPatch, attempt: int) -> None:
    """The first one may live on in the same epoch: the driver has to begin another."""
    monkeypatch.setattr(runners.TaskContext, "get", lambda: SimpleNamespace(attemptNumber=lambda: attempt))
    monkeypatch.setattr(run, "run", lambda one: TaskStats(one.number))
    results = list(run_partition([item(0), item(1)]))
    if attempt == 0:
        assert results == [TaskStats(0), TaskStats(1)]
        return
    for result in results:
        assert isinstance(result, TaskFailure)
        error = error_of(result)
        assert isinstance(error, ExecutorLost)
        assert error.retryable


@dataclass
class Context:
    """Of Spark, as much as is asked of it."""

    master: str = "spark://h:7077"
    cores: int = 4
    alive: int = 2
    settings: dict[str, str] = field(default_factory=dict)
    stages: list[Any] = field(default_factory=list)
    outcome: Any = None
    jobs: list[Any] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    destroyed: list[bytes] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def defaultParallelism(self) -> int:
        if self.cores < 0:
            raise Py4JNetworkError("Answer from Java side is empty")
        return self.cores

    @property
    def _jsc(self) -> Any:
        java = SimpleNamespace(getExecutorMemoryStatus=lambda: SimpleNamespace(size=lambda: self.alive + 1))
        return SimpleNamespace(sc=lambda: java)

    def getConf(self) -> dict[str, str]:
        return self.settings

    def statusTracker(self) -> Any:
        return SimpleNamespace(getActiveStageIds=lambda: range(len(self.stages)), getStageInfo=lambda number: self.stages[number])

    def setJobGroup(self, group: str, text: str) -> None: ...

    def cancelJobGroup(self, group: str) -> None:
        self.cancelled.set()

    def broadcast(self, data: bytes) -> Any:
        self.sent.append(data)
        return SimpleNamespace(value=data, destroy=lambda: self.destroyed.append(data))

    def parallelize(self, items: list[WorkItem], count: int) -> Any:
        def map_partitions(job: Any) -> Any:
            self.jobs.append((items, job))
            return SimpleNamespace(collect=self._collect)

        return SimpleNamespace(mapPartitions=map_partitions)

    def _collect(self) -> Any:
        return self.outcome() if callable(self.outcome) else self.outcome


def of(context: Context) -> Any:
    return context


def test_parallelism_follows_the_executors() -> None:
    context = Context()
    runner = SparkRunner(of(context), "g")
    seen = []
    for cores in (4, 9, 2):
        context.cores = cores
        seen.append(runner.parallelism)
    assert seen == [4, 9, 2]
    context.cores = -1
    with pytest.raises(JobLost):
        assert runner.parallelism


@pytest.mark.parametrize(("most", "parallelism"), [({}, 8), ({"spark.dynamicAllocation.maxExecutors": "3"}, 6)])
def test_spark_may_be_asked_for_more_executors(most: Mapping[str, str], parallelism: int) -> None:
    """They come for tasks that wait: as many tasks as cores would never get any."""
    dynamic = {"spark.dynamicAllocation.enabled": "true", "spark.executor.cores": "2", **most}
    assert Executors(of(Context(settings=dynamic))).cores == parallelism
    assert Executors(of(Context(settings=dynamic, master="local[4]"))).cores == 4


def stage(active: int, completed: int) -> Any:
    return SimpleNamespace(numTasks=2, numActiveTasks=active, numCompletedTasks=completed)


def test_when_nothing_takes_a_job() -> None:
    context = Context()
    found = Executors(of(context))
    for stages, waits in (([], False), ([stage(0, 0)], True), ([stage(1, 0)], False), ([stage(0, 1)], True), ([stage(0, 2)], False)):
        context.stages = stages
        assert found.waiting() == waits


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(executors, "TOLD_AFTER_S", 0.02)
    monkeypatch.setattr(executors, "TOLD_EVERY_S", 0.02)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("alive", "words"), [(0, "no executor is registered"), (2, "2 executors are registered and none takes it")])
def test_it_is_told_again_and_again(tmp_path: Path, alive: int, words: str, caplog: pytest.LogCaptureFixture) -> None:
    told: list[TidemillError] = []
    twice = threading.Event()

    def tell(error: TidemillError) -> None:
        told.append(error)
        if len(told) == 2:
            twice.set()

    context = Context(alive=alive, stages=[stage(0, 0)], outcome=lambda: twice.wait(60) and [])
    path = _pack(tmp_path)
    assert SparkRunner(of(context), "g", tell=tell).run([item(0, path)]) == []
    assert isinstance(told[0], NoExecutor)
    assert words in str(told[0])
    assert "TM:ErrNoExecutor: batch 1 of f has waited" in caplog.text


@pytest.mark.usefixtures("quick")
def test_a_stop_ends_a_job_that_nothing_takes(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    context = Context(stages=[stage(0, 0)])
    context.outcome = lambda: context.cancelled.wait(60) and []
    SparkRunner(of(context), "g", stop=stop).run([item(0, _pack(tmp_path))])
    assert context.cancelled.is_set()


def _pack(folder: Path) -> str:
    world = World.make(transactions=3)
    history = load_history(LogReader(world.log(folder / "log")))
    return PackStore(folder / "packs", OUTPUT, choose, count).pack(history.snapshot(START))


def test_items_that_travel_hold_no_path_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs go with the job: each file once, also the base of one that is only what differs from it; old ones are taken back."""
    world = World.make()
    world.add_column(601, world.end + 10)
    history = load_history(LogReader(world.log(tmp_path / "log")))
    store = PackStore(tmp_path / "packs", OUTPUT, choose, count)
    first = store.pack(history.snapshot(world.end - 1))
    context = Context(outcome=[])
    runner = SparkRunner(of(context), "g")
    runner.run([item(0, first), item(1, first)])
    second = store.pack(history.snapshot(world.end))
    runner.run([item(0, second)])
    assert (len(context.sent), context.destroyed) == (2, [])
    for items, _ in context.jobs:
        assert all("/" not in one.pack for one in items)
    want = packs.load(second).table(601)
    for file in (tmp_path / "packs").iterdir():
        file.unlink()
    packs.load.cache_clear()
    packs._read.cache_clear()
    monkeypatch.setattr(runners.TaskContext, "get", lambda: SimpleNamespace(attemptNumber=lambda: 0))
    monkeypatch.setattr(run, "run", lambda one: packs.load(one.pack).table(601))
    items, job = context.jobs[-1]
    assert list(job(items)) == [want]
    packs.supply({})


def test_executors_that_cannot_run_it_are_told_from_a_job_that_is_lost(tmp_path: Path) -> None:
    path = _pack(tmp_path)

    def gone(error: Exception) -> Any:
        def collect() -> Any:
            raise error

        return collect

    context = Context(outcome=gone(Py4JNetworkError("ModuleNotFoundError: No module named 'tidemill'")))
    with pytest.raises(ConfigError, match="cannot run Tidemill"):
        SparkRunner(of(context), "g").run([item(0, path)])
    for lost in (Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "Connection refused")):
        with pytest.raises(JobLost):
            SparkRunner(of(Context(outcome=gone(lost))), "g").run([item(0, path)])


@pytest.mark.parametrize("error", [Py4JNetworkError("gone"), ConnectionRefusedError(111, "refused")])
def test_the_end_of_a_session_whose_java_is_gone_hides_nothing(error: Exception) -> None:
    class Session:
        def stop(self) -> None:
            raise error

    session: Any = Session()
    stop_spark(session)
