"""Where a query goes on: Spark's checkpoint against ours, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidemill.pipeline.feed import next_begin, set_aside_broken


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
    assert next_begin(folder, delivered) == begin
    set_aside_broken(folder, delivered)
    assert [p.name for p in tmp_path.iterdir()] == ["spark"]


@pytest.mark.parametrize(("ends", "commits", "delivered"), [([10], 1, 5), ([10, 20], 1, 5), ([10, 20], 2, 19)])
def test_a_checkpoint_that_is_ahead_of_ours_loses_nothing(tmp_path: Path, ends: list[int], commits: int, delivered: int) -> None:
    """checkpoint.json came from a copy, or a target cut the last batch short: Spark would pass over what lies between."""
    folder = spark_checkpoint(tmp_path / "spark", ends, commits)
    set_aside_broken(folder, delivered)
    assert [p.name for p in tmp_path.iterdir()] == ["spark.broken-1"]
