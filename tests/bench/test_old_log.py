"""Logs that are old for a benchmark are whole to the product's reader, and have the rows that they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import old_log
from bench.bench_executors import makespan
from bench.bench_month import Planner
from bench.old_log import SECOND, make_old_log
from tidemill.changelog.log_format import rows_folder
from tidemill.changelog.options import DEFAULTS
from tidemill.changelog.reader import LogReader
from tidemill.delivery.inputs.log_source import count_rows


def test_an_old_log_is_whole_and_mostly_hollow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("bench.corpus").corpus.MADE_UP_ROWS, "narrow", 2000)
    for name, value in (("WINDOW_S", 0), ("JOINED", 1), ("SINGLE", 2)):
        monkeypatch.setattr(old_log, name, value)
    log, growing = make_old_log(tmp_path / "log", 1000, tables=2, partitions=2)
    reader = LogReader(log.path)
    assert reader.resolved_ts() == log.end
    on_disk = said = 0
    for p in range(2):
        listing = reader.listing(rows_folder(p))
        assert (listing.fault, listing.incomplete, listing.to_ts) == (None, (), log.end)
        assert len(listing.inside) > old_log.LEFT_S
        full = [one for one in listing.intervals if one.to_ts <= log.middle]
        assert count_rows((path for one in full for path in one.parts), reader.start_ts, log.middle) == DEFAULTS.compact_rows * len(full)
        stats = [Path(path).stat() for one in listing.intervals for path in one.parts]
        said, on_disk = said + sum(s.st_size for s in stats), on_disk + sum(s.st_blocks * 512 for s in stats)
    assert log.bytes <= said
    assert on_disk < said / 4
    growing.second()
    end, items = Planner(log.path, tmp_path / "packs").batch(log.end - SECOND, growing.end)
    assert end == growing.end == log.end + SECOND
    assert sorted(len(chain) for item in items for chain in item.chains) == [2, 2]


@pytest.mark.parametrize(
    ("items", "executors", "last"), [([7], 4, 7), ([3, 3, 3, 3], 2, 6), ([5, 1, 1, 1], 2, 5), ([1, 1, 4], 2, 5), ([2, 2, 2], 8, 2)]
)
def test_a_free_executor_takes_the_next_item(items: list[int], executors: int, last: int) -> None:
    assert makespan(items, executors) == last
