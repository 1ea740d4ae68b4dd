"""Small parts of the pipeline: zones, Java, where items run, durable files, what Spark's errors say, the fence inside a task."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.support.deliveries import settings
from tests.support.feeds import World
from tests.support.logs import START
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage import durable
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.inputs.table_pack import PackStore
from tidemill.delivery.inputs.table_router import TableRouter
from tidemill.delivery.plan import Load, work_items
from tidemill.delivery.task import run
from tidemill.delivery.work_item import TaskFailure, TaskResult, TaskStats, WorkItem, total
from tidemill.delivery.zone import parse_zone, zone_name
from tidemill.errors import ConfigError
from tidemill.protocols.common.messages import Messages
from tidemill.sinks.base import BatchContext, Target
from tidemill.spark import session
from tidemill.spark.jobs import EitherRunner, cause_of

# ---- zones


def test_zones() -> None:
    assert parse_zone("UTC") is UTC
    assert parse_zone("Asia/Shanghai") == ZoneInfo("Asia/Shanghai")
    assert parse_zone("+08:00") == timezone(timedelta(hours=8))
    assert parse_zone("-3:30") == timezone(-timedelta(hours=3, minutes=30))
    for text in ("UTC", "Asia/Shanghai", "+08:00", "-03:30"):
        assert zone_name(parse_zone(text)) == text


@pytest.mark.parametrize("text", ["Mars/Olympus", "+25:00", "", "../etc/passwd"])
def test_zones_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_zone(text)


def test_the_systems_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", ":Europe/Berlin")
    assert parse_zone(None) == ZoneInfo("Europe/Berlin")
    monkeypatch.delenv("TZ")
    parse_zone(None)


# ---- Java


def java(folder: Path, version: int) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/java").touch()
    (folder / "release").write_text(f'JAVA_VERSION="{version}.0.1"\n')
    return folder


@pytest.mark.parametrize(
    ("versions", "chosen"), [([17, 21], 17), ([21, 17], 21), ([25, 21, 17], 17), ([25, 11, 21], 21), ([25, 8], None), ([], None)]
)
def test_which_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, versions: list[int], chosen: int | None) -> None:
    """The first place is what PATH finds."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    homes = [java(tmp_path / str(v), v) for v in versions]
    monkeypatch.setattr(session, "java_homes", lambda: homes)
    if chosen is None:
        with pytest.raises(session.NoJava, match="17 to 21"):
            session.find_java()
    else:
        assert session.find_java() == tmp_path / str(chosen)


# ---- where items run


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


def test_totals() -> None:
    assert total([TaskStats(0, rows=2, messages=1), TaskStats(1, rows=3, cpu_ns=5)]) == TaskStats(-1, rows=5, messages=1, cpu_ns=5)


# ---- files


def test_durable_files(tmp_path: Path) -> None:
    path = tmp_path / "a/b.json"
    assert durable.read_json(path) is None
    durable.write_json(path, {"x": 1})
    durable.write_json(path, {"x": 2}, sync=False)
    assert durable.read_json(path) == {"x": 2}
    assert [p.name for p in path.parent.iterdir()] == ["b.json"]
    path.write_text(json.dumps([1]))
    with pytest.raises(ValueError, match="no JSON object"):
        durable.read_json(path)


# ---- a task whose epoch ends while it runs


class Collecting:
    """A sink that begins the next epoch while it takes the first chunk."""

    def __init__(self, fence: Fence) -> None:
        self.fence, self.chunks, self.abandoned = fence, 0, False

    def begin(self, ctx: BatchContext) -> None: ...

    def deliver(self, messages: Messages, targets: Sequence[Target]) -> None:
        self.chunks += 1
        self.fence.advance(1, 2)

    def flush(self) -> int:
        raise AssertionError("a task that is over does not flush")

    def abandon(self) -> None:
        self.abandoned = True


def test_a_task_stops_at_the_chunk_after_its_epoch_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World.make(transactions=200)
    reader = LogReader(world.log(tmp_path / "log"))
    chosen = settings(tmp_path / "out")
    packs = PackStore(tmp_path / "packs", chosen.output, TableRouter(chosen).table, lambda topics: dict.fromkeys(topics, 1))
    pack = packs.pack(load_history(reader).snapshot(START))
    intervals = tuple(reader.chain(0, START, world.end))
    fence = Fence.at(tmp_path)
    epoch = fence.advance(START, world.end)
    sink = Collecting(fence)
    monkeypatch.setattr(run, "open_task_sink", lambda uri: sink)
    monkeypatch.setattr(run.Chunker.__init__, "__defaults__", (50, 1 << 20))
    whole = Load(0, intervals, (1,) * len(intervals))
    work = work_items(
        [whole], reader.identity.affinity, 1, feed="f", batch=1, epoch=epoch, from_ts=START, to_ts=world.end, pack=pack, sink="x",
        fence=fence.place, targets=1,
    )  # fmt: skip
    result = run.run(work[0])
    assert isinstance(result, TaskFailure)
    assert (result.code, result.retryable) == ("TM:ErrFenced", False)
    assert (sink.chunks, sink.abandoned) == (1, True)
    again = run.run(work[0])
    assert isinstance(again, TaskFailure)
    assert sink.chunks == 1  # it did not begin
