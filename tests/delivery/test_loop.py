"""The batches of a changefeed one after the other, with tasks in this process: where they end, what is repeated, what ends them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.logs import START, write_segment
from tests.support.delivery.deliveries import batch_driver, clock_of, deliver_all
from tests.support.delivery.feeds import Delivered, World, expected
from tests.support.delivery.saved import saved, saving
from tidemill.delivery.batch import BatchDriver
from tidemill.delivery.loop import deliver
from tidemill.delivery.machine import batch_machine
from tidemill.delivery.machine.failures import JobLost, Stopped
from tidemill.delivery.machine.retry import RetryPolicy
from tidemill.delivery.position import Position
from tidemill.delivery.work_item import TaskResult, WorkItem
from tidemill.errors import LogCorrupt, LogUnavailable, SparkUnavailable, TidemillError
from tidemill.spark.local import LocalRunner

Make = Callable[[str], BatchDriver]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes a batch driver on a log, into tmp_path/out."""
    monkeypatch.setattr(batch_machine, "GRACE_S", 0.0)
    with ExitStack() as stack:
        yield lambda log: stack.enter_context(batch_driver(tmp_path, log, LocalRunner(), partitions=1, retry=RetryPolicy(first_s=0.1)))


def test_log_partitions_that_go_by_themselves(make: Make, tmp_path: Path) -> None:
    """One stands still: the other is delivered, and a loop that is begun again repeats nothing of it. Then both go to the end."""
    world = World.make(seed=9)
    half = sorted({c.commit_ts for c in world.rows})[60]
    log = world.log(tmp_path / "log", partitions=2, segments=3)
    head = Path(log) / "rows/0/head.json"
    head.write_text(json.dumps({"resolved_ts": half}))
    driver, reports = make(log), list[Any]()
    ahead = Position.of([half, world.end])

    def stop_when_ahead(report: Any) -> None:
        reports.append(report)
        if report.end == ahead:
            driver.stop.set()

    assert not deliver_all(driver, log, Position(START), world.end, stop_when_ahead, by_table=True)
    assert Delivered.read(tmp_path / "out").resolved == {0: sorted({r.to_ts for r in reports if r.to_ts > r.from_ts})}
    driver.stop.clear()
    head.write_text(json.dumps({"resolved_ts": world.end}))
    assert deliver_all(driver, log, ahead, world.end, reports.append, by_table=True)
    got = Delivered.read(tmp_path / "out")
    assert got.events == expected(world, "index-value", 1)
    assert got.late == 0
    assert reports[-1].end == Position(world.end)


def test_it_goes_on_where_it_ended(make: Make, tmp_path: Path) -> None:
    """To a target inside the log, then on to its end, then nothing: no event twice, resolved events at the barrier and the ends."""
    world = World.make(seed=8)
    commits = sorted({c.commit_ts for c in world.rows})
    switch, middle = commits[20], commits[50]
    world.add_column(601, switch)
    log = world.log(tmp_path / "log", partitions=2, segments=3)
    driver = make(log)
    first, second = list[Any](), list[Any]()
    assert deliver_all(driver, log, Position(START), middle, first.append)
    assert [r.to_ts for r in first] == [switch, middle]
    assert deliver_all(driver, log, Position(middle), world.end, second.append)
    got = Delivered.read(tmp_path / "out")
    assert got.resolved == {0: [switch, middle, world.end]}
    assert sum(len(e) for t in got.events.values() for e in t.values()) == sum(r.stats.rows for r in first + second)
    assert got.late == 0
    before = {t: [e for e in events if _ts(e) <= switch] for t, events in expected(world, "table", 1)[0].items()}
    assert {t: [e for e in events if _ts(e) <= switch] for t, events in got.events[0].items()} == before
    assert deliver_all(driver, log, Position(world.end), world.end, lambda report: pytest.fail("there is nothing left"))


def _ts(event: tuple[bytes, bytes]) -> int:
    return int(event[0].split(b":")[1].split(b",")[0])


def test_a_segment_that_is_missing_ends_it(make: Make, tmp_path: Path) -> None:
    world = World.make(seed=9)
    log = world.log(tmp_path / "log", segments=3)
    driver = make(log)
    sorted(Path(log, "rows/0").glob("*.arrow"))[1].unlink()
    with pytest.raises(LogCorrupt, match="nothing holds"):
        deliver_all(driver, log, Position(START), world.end, lambda report: None)


def test_an_error_of_the_rows_ends_it_with_its_code(make: Make, tmp_path: Path) -> None:
    world = World.make(seed=9)
    log = world.log(tmp_path / "log")
    stray = world.rows[0]._replace(table_id=999, key=world.rows[0].key.replace((601).to_bytes(2, "big"), (999).to_bytes(2, "big")))
    segment = next(Path(log, "rows/0").glob("*.arrow"))
    segment.unlink()
    write_segment(Path(log, "rows/0"), START, world.end, [*world.rows, stray])
    with pytest.raises(TidemillError, match="999") as caught:
        deliver_all(make(log), log, Position(START), world.end, lambda report: None)
    assert caught.value.code == "TM:ErrSchema"


def test_a_stop_ends_between_batches(make: Make, tmp_path: Path) -> None:
    world = World.make(seed=9)
    for number, ts in enumerate(sorted({c.commit_ts for c in world.rows})[5:25:4]):
        world.add_column(601 + number % 2, ts)
    log = world.log(tmp_path / "log")
    driver, reports = make(log), list[Any]()
    assert not deliver_all(driver, log, Position(START), world.end, lambda report: (reports.append(report), driver.stop.set())[0])
    assert len(reports) == 1
    driver.stop.clear()
    assert deliver_all(driver, log, Position(reports[-1].to_ts), world.end, reports.append)
    assert [r.from_ts for r in reports[1:]] == [r.to_ts for r in reports[:-1]]
    assert Delivered.read(tmp_path / "out").late == 0


def test_the_batch_that_was_under_way_is_cut_as_it_was(tmp_path: Path) -> None:
    """The fence says where it has to end, whatever came into the log since."""
    world = World.make()
    log = world.log(tmp_path / "log", segments=3)
    commits = sorted({c.commit_ts for c in world.rows})
    at, end = Position(commits[10]), Position(commits[15])
    clock = clock_of(log, at, first_end=end)
    assert clock.next(at) == end
    assert clock.next(end).ts > end.ts
    assert clock_of(log, at, first_end=end, target_ts=commits[12]).next(at).ts == commits[12], "a target before it"
    assert clock_of(log, at).next(at).ts > end.ts


class Sleepless:
    """Waits for nothing."""

    def wait(self, ts: int, seconds: float) -> None:
        pass


def test_what_is_checked_between_batches_ends_it(make: Make, tmp_path: Path) -> None:
    world = World.make(seed=9)
    log = world.log(tmp_path / "log")

    def check() -> None:
        raise JobLost("Spark's Java process is gone")

    begin = Position(START)
    with pytest.raises(JobLost):
        deliver(make(log), clock_of(log, begin), Sleepless(), saved(begin), target_ts=None, save=saving(lambda report: None), check=check)


class NeverUp:
    """Runs a batch once Spark is up, which it never is."""

    parallelism = 1

    def __init__(self) -> None:
        self.asked = 0

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]:
        self.asked += 1
        raise Stopped("Spark did not start")


def test_what_is_checked_tells_why_a_batch_could_not_run(make: Make, tmp_path: Path) -> None:
    """Spark did not start: the batch is not tried again, and the delivery ends with the reason."""
    world = World.make(seed=9)
    log = world.log(tmp_path / "log")
    driver, begin, runner = make(log), Position(START), NeverUp()
    driver.runner = runner

    def check() -> None:
        if runner.asked:
            raise SparkUnavailable("no Spark master answers")

    with pytest.raises(SparkUnavailable):
        deliver(driver, clock_of(log, begin), Sleepless(), saved(begin), target_ts=None, save=saving(lambda report: None), check=check)
    assert runner.asked == 1


def test_storage_that_is_away_is_told_and_looked_for_ever_more_rarely(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World.make(seed=9)
    log = world.log(tmp_path / "log")
    driver, begin = make(log), Position(START)
    clock, told, waits = clock_of(log, begin), list[LogUnavailable](), list[float]()
    found = clock.next

    def away(at: Position) -> Position:
        if len(told) < 8:
            raise LogUnavailable("it cannot be reached now")
        return found(at)

    monkeypatch.setattr(clock, "next", away)
    monkeypatch.setattr(driver.stop, "wait", lambda seconds: (waits.append(seconds), False)[1])
    assert deliver(driver, clock, Sleepless(), saved(begin), target_ts=world.end, save=saving(lambda report: None), on_away=told.append)
    assert waits[:8] == [1, 2, 4, 8, 16, 30, 30, 30]
    assert Delivered.read(tmp_path / "out").events == expected(world, "index-value", 1)
