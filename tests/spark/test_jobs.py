"""The same deliveries by Spark: jobs, faults of workers, the streaming query, its restart. One session for all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.logs import START, write_segment
from tests.support.delivery.deliveries import batch_driver
from tests.support.delivery.feeds import Delivered, World, expected
from tests.support.spark import faults
from tests.support.spark.sessions import spark_session
from tidemill.delivery import plan
from tidemill.delivery.batch import BatchDriver, JobRunner
from tidemill.delivery.machine import batch_machine
from tidemill.delivery.machine.retry import RetryPolicy
from tidemill.delivery.position import Position
from tidemill.errors import LogCorrupt, TidemillError
from tidemill.spark.jobs import SparkRunner
from tidemill.spark.query import Changefeed

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


def feed(
    session: Any, driver: BatchDriver, log: str, folder: Path, delivered: int | Position | None, target: int, reports: list[Any],
    *, by_table: bool = False,
) -> Changefeed:  # fmt: skip
    at = Position(delivered) if isinstance(delivered, int) else delivered
    return Changefeed(
        session, driver, log=log, checkpoint_folder=folder, start_ts=START, delivered=at, target_ts=target, trigger_ms=0,
        on_report=reports.append, by_table=by_table,
    )  # fmt: skip


def test_log_partitions_that_go_by_themselves(session: Any, delivery: Callable[..., BatchDriver], tmp_path: Path) -> None:
    """One stands still: the other is delivered, and a query that is started again repeats nothing of it. Then both go to the end."""
    world = World.make(seed=9)
    half = sorted({c.commit_ts for c in world.rows})[60]
    log = world.log(tmp_path / "log", partitions=2, segments=3)
    head = Path(log) / "rows/0/head.json"
    head.write_text(json.dumps({"resolved_ts": half}))
    driver = delivery(log, SparkRunner(session.sparkContext, "g"), partitions=1)
    reports: list[Any] = []
    ahead = Position.of([half, world.end])

    def stop_when_ahead(report: Any) -> None:
        reports.append(report)
        if report.end == ahead:
            driver.stop.set()

    first = feed(session, driver, log, tmp_path / "spark", None, world.end, reports, by_table=True)
    first._on_report = stop_when_ahead
    assert not first.run()
    assert Delivered.read(tmp_path / "out").resolved == {0: sorted({r.to_ts for r in reports if r.to_ts > r.from_ts})}
    driver.stop.clear()
    head.write_text(json.dumps({"resolved_ts": world.end}))
    assert feed(session, driver, log, tmp_path / "spark", ahead, world.end, reports, by_table=True).run()
    got = Delivered.read(tmp_path / "out")
    assert got.events == expected(world, "index-value", 1)
    assert got.late == 0
    assert reports[-1].end == Position(world.end)


def test_a_query_goes_on_where_it_ended(session: Any, delivery: Callable[..., BatchDriver], tmp_path: Path) -> None:
    """To a target inside the log, then on to its end, then nothing: no event twice, resolved events at the barrier and the ends."""
    world = World.make(seed=8)
    commits = sorted({c.commit_ts for c in world.rows})
    switch, middle = commits[20], commits[50]
    world.add_column(601, switch)
    log = world.log(tmp_path / "log", partitions=2, segments=3)
    driver = delivery(log, SparkRunner(session.sparkContext, "g"), partitions=1)
    first: list[Any] = []
    assert feed(session, driver, log, tmp_path / "spark", None, middle, first).run()
    assert [r.to_ts for r in first] == [switch, middle]
    second: list[Any] = []
    assert feed(session, driver, log, tmp_path / "spark", middle, world.end, second).run()
    got = Delivered.read(tmp_path / "out")
    assert got.resolved == {0: [switch, middle, world.end]}
    assert sum(len(e) for t in got.events.values() for e in t.values()) == sum(r.stats.rows for r in first + second)
    assert got.late == 0
    world_before = {t: [e for e in events if _ts(e) <= switch] for t, events in expected(world, "table", 1)[0].items()}
    assert {t: [e for e in events if _ts(e) <= switch] for t, events in got.events[0].items()} == world_before
    assert feed(session, driver, log, tmp_path / "spark", world.end, world.end, []).run()


def _ts(event: tuple[bytes, bytes]) -> int:
    return int(event[0].split(b":")[1].split(b",")[0])


def test_a_batch_that_was_delivered_but_not_noted_is_not_delivered_again(
    session: Any, delivery: Callable[..., BatchDriver], tmp_path: Path
) -> None:
    world = World.make(seed=9)
    log = world.log(tmp_path / "log")
    driver = delivery(log, SparkRunner(session.sparkContext, "g"))
    assert feed(session, driver, log, tmp_path / "spark", None, world.end, []).run()
    for commit in (tmp_path / "spark/commits").iterdir():
        commit.unlink()
    size = (tmp_path / "out").stat().st_size
    assert feed(session, driver, log, tmp_path / "spark", world.end, world.end + 1, []).run()
    got = Delivered.read(tmp_path / "out")
    assert got.events == expected(world, "index-value", 2)
    assert got.resolved[0] == [world.end, world.end + 1]
    assert (tmp_path / "out").stat().st_size > size


def test_an_unreadable_checkpoint_of_sparks_is_replaced(session: Any, delivery: Callable[..., BatchDriver], tmp_path: Path) -> None:
    world = World.make(seed=9)
    log = world.log(tmp_path / "log")
    driver = delivery(log, SparkRunner(session.sparkContext, "g"))
    assert feed(session, driver, log, tmp_path / "spark", None, world.end, []).run()
    (tmp_path / "spark/offsets/0").write_bytes(b"")
    assert feed(session, driver, log, tmp_path / "spark", world.end, world.end + 1, []).run()
    assert (tmp_path / "spark.broken-1").is_dir()
    assert Delivered.read(tmp_path / "out").events == expected(world, "index-value", 2)


def test_what_the_clock_finds_wrong_ends_the_feed(session: Any, delivery: Callable[..., BatchDriver], tmp_path: Path) -> None:
    world = World.make(seed=9)
    log = world.log(tmp_path / "log", segments=3)
    driver = delivery(log, SparkRunner(session.sparkContext, "g"))
    sorted(Path(log, "rows/0").glob("*.arrow"))[1].unlink()
    with pytest.raises(LogCorrupt, match="nothing holds"):
        feed(session, driver, log, tmp_path / "spark", None, world.end, []).run()


def test_an_error_of_the_rows_ends_the_feed_with_its_code(session: Any, delivery: Callable[..., BatchDriver], tmp_path: Path) -> None:
    world = World.make(seed=9)
    log = world.log(tmp_path / "log")
    stray = world.rows[0]._replace(table_id=999, key=world.rows[0].key.replace((601).to_bytes(2, "big"), (999).to_bytes(2, "big")))
    segment = next(Path(log, "rows/0").glob("*.arrow"))
    segment.unlink()
    write_segment(Path(log, "rows/0"), START, world.end, [*world.rows, stray])
    driver = delivery(log, SparkRunner(session.sparkContext, "g"))
    with pytest.raises(TidemillError, match="999") as caught:
        feed(session, driver, log, tmp_path / "spark", None, world.end, []).run()
    assert caught.value.code == "TM:ErrSchema"


def test_a_stop_ends_between_batches(session: Any, delivery: Callable[..., BatchDriver], tmp_path: Path) -> None:
    world = World.make(seed=9)
    for number, ts in enumerate(sorted({c.commit_ts for c in world.rows})[5:25:4]):
        world.add_column(601 + number % 2, ts)
    log = world.log(tmp_path / "log")
    driver = delivery(log, SparkRunner(session.sparkContext, "g"))
    reports: list[Any] = []
    running = feed(session, driver, log, tmp_path / "spark", None, world.end, reports)
    running._on_report = lambda report: (reports.append(report), driver.stop.set())[0]
    assert not running.run()
    assert len(reports) == 1
    driver.stop.clear()
    assert feed(session, driver, log, tmp_path / "spark", reports[-1].to_ts, world.end, reports).run()
    assert [r.from_ts for r in reports[1:]] == [r.to_ts for r in reports[:-1]]
    assert Delivered.read(tmp_path / "out").late == 0
