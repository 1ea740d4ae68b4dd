"""Where a query goes on: Spark's checkpoint against ours, without Spark."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.delivery.feeds import World
from tidemill.delivery.epoch_fence import Interval
from tidemill.delivery.position import Position
from tidemill.spark.offset_source import OffsetReader
from tidemill.spark.query import CLOCK_STARTS, Changefeed, QueryFailed, _query_error, next_begin, set_aside_broken


def spark_checkpoint(folder: Path, ends: list[int], commits: int) -> Path:
    """A checkpoint whose batches end at `ends`, the first `commits` of them done."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    for batch, ts in enumerate(ends):
        (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps({"ts": ts})}')
    for batch in range(commits):
        (folder / "commits" / str(batch)).write_text("v1\n{}")
    return folder


@pytest.mark.parametrize(
    ("ends", "commits", "delivered", "begin"),
    [
        ([], 0, 5, 5),
        ([10], 0, 5, 5),  # planned, not run
        ([10], 0, 10, 10),  # delivered, then killed before Spark noted it
        ([10, 20], 1, 10, 10),
        ([10, 20], 1, 20, 10),
        ([10, 20], 2, 20, 20),
    ],
)
def test_a_checkpoint_that_can_be_gone_on_with_stays(tmp_path: Path, ends: list[int], commits: int, delivered: int, begin: int) -> None:
    folder = spark_checkpoint(tmp_path / "spark", ends, commits)
    assert next_begin(folder, Position(delivered)) == Position(begin)
    set_aside_broken(folder, Position(delivered))
    assert [p.name for p in tmp_path.iterdir()] == ["spark"]


@pytest.mark.parametrize(("ends", "commits", "delivered"), [([10], 1, 5), ([10, 20], 1, 5), ([10, 20], 2, 19)])
def test_a_checkpoint_that_is_ahead_of_ours_loses_nothing(tmp_path: Path, ends: list[int], commits: int, delivered: int) -> None:
    """checkpoint.json came from a copy, or a target cut the last batch short: Spark would pass over what lies between."""
    folder = spark_checkpoint(tmp_path / "spark", ends, commits)
    set_aside_broken(folder, Position(delivered))
    assert [p.name for p in tmp_path.iterdir()] == ["spark.broken-1"]


@pytest.mark.parametrize(("ends", "commits"), [([10], 1), ([10, 20], 2), ([10, 20], 1)])
def test_a_checkpoint_from_before_another_machine_went_on_is_not_gone_on_with(tmp_path: Path, ends: list[int], commits: int) -> None:
    """The log need not hold any more what it would begin with."""
    set_aside_broken(spark_checkpoint(tmp_path / "spark", ends, commits), Position(30))
    assert [p.name for p in tmp_path.iterdir()] == ["spark.broken-1"]


def test_the_batch_that_was_under_way_is_cut_as_it_was(tmp_path: Path) -> None:
    """Without Spark's checkpoint: the fence says where it has to end, whatever came into the log since."""
    world = World.make()
    log = world.log(tmp_path / "log", segments=3)
    commits = sorted({c.commit_ts for c in world.rows})
    at, end = commits[10], commits[15]
    assert OffsetReader(log, Position(at), 0, 0, Position(end)).latestOffset() == {"ts": end}
    assert OffsetReader(log, Position(at), 0, 0, Position(end)).latestOffset({"ts": end})["ts"] > end
    assert OffsetReader(log, Position(at), commits[12], 0, Position(end)).latestOffset() == {"ts": commits[12]}, "a target before it"
    assert OffsetReader(log, Position(at), 0, 0).latestOffset()["ts"] > end


@pytest.mark.parametrize(("planned", "first"), [((5, 9), 9), ((4, 9), None), ((5, 5), None), (None, None)])
def test_which_interval_is_that_of_the_batch_under_way(tmp_path: Path, planned: Interval | None, first: int | None) -> None:
    """One that ends at the checkpoint is delivered; one that begins elsewhere is another batch's."""
    driver: Any = None
    feed = Changefeed(
        driver, driver, log="l", checkpoint_folder=tmp_path, start_ts=1, delivered=Position(5), target_ts=None, trigger_ms=0,
        on_report=lambda report: None, planned=planned,
    )  # fmt: skip
    assert feed._planned == (Position(first) if first else None)


class Late(Changefeed):
    """A changefeed whose clock is late so many times."""

    def __init__(self, times: int) -> None:
        self.left, self.started = times, 0
        self._driver = SimpleNamespace(stop=threading.Event())  # type: ignore[assignment]

    def _query(self) -> None:
        self.started += 1
        if self.left:
            self.left -= 1
            raise _query_error("org.apache.spark.SparkException: Python worker failed to connect back.\n\tat …")


def test_a_clock_that_starts_slowly_is_started_again_and_not_without_end() -> None:
    feed = Late(3)
    feed._queries()
    assert feed.started == 4
    with pytest.raises(QueryFailed, match="did not answer within ten seconds"):
        Late(CLOCK_STARTS)._queries()
    stopped = Late(3)
    stopped._driver.stop.set()
    with pytest.raises(QueryFailed):
        stopped._queries()
    assert stopped.started == 1
