"""What a reader does for a batch does not grow with the log's age: listings, names that are parsed, intervals that are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.changelog.logs import START, build_log, put, write_json, write_segment
from tidemill.changelog import log_format
from tidemill.changelog.log_format import SegmentName
from tidemill.changelog.reader import AHEAD, LogReader
from tidemill.changelog.storage.open import LocalStorage
from tidemill.errors import LogCorrupt

STEP = AHEAD // 4
"""Of time, in one segment: a wanted interval, and four beyond it, are taken in."""


class CountingStorage(LocalStorage):
    """Counts listings."""

    listings = 0

    def names(self, folder: str) -> list[str]:
        self.listings += 1
        return super().names(folder)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were parsed."""
    found: list[str] = []
    parse = log_format.parse_segment

    def counting(name: str, folder: str = "") -> SegmentName | None:
        found.append(name)
        return parse(name, folder)

    monkeypatch.setattr(log_format, "parse_segment", counting)
    return found


def aged(folder: Path, segments: int) -> tuple[CountingStorage, int]:
    """A log of so many segments, each with a row, and where it ends."""
    ends = [START + (i + 1) * STEP for i in range(segments)]
    return CountingStorage(build_log(folder, [put(7, i, end) for i, end in enumerate(ends)], ends=ends, head=ends[-1])), ends[-1]


def grow(log: Path, from_ts: int, to_ts: int) -> None:
    """Publish a segment and move the head."""
    write_segment(log / "rows/0", from_ts, to_ts, [put(7, 1, to_ts)])
    write_json(log / "rows/0/head.json", {"resolved_ts": to_ts})


def ends_of(reader: LogReader, from_ts: int, to_ts: int) -> list[int]:
    return [one.to_ts for one in reader.chain(0, from_ts, to_ts)]


def test_names_far_from_the_interval_are_not_parsed(tmp_path: Path, parsed: list[str]) -> None:
    seen = []
    for segments in (20, 400):
        storage, end = aged(tmp_path / str(segments), segments)
        middle = START + segments // 2 * STEP
        for at in (middle, end - STEP):
            parsed.clear()
            assert ends_of(LogReader(storage), at, at + STEP) == [at + STEP]
            seen.append(len([name for name in parsed if "-" in name]))
    assert seen[:2] == seen[2:]
    assert max(seen) < 10


def test_a_reader_that_keeps_pace_lists_nothing(tmp_path: Path) -> None:
    storage, end = aged(tmp_path / "log", 10)
    reader = LogReader(storage)
    assert ends_of(reader, end - STEP, end) == [end]
    storage.listings = 0
    for i in range(5):
        grow(tmp_path / "log", end + i, end + i + 1)
        assert ends_of(reader, end + i, end + i + 1) == [end + i + 1]
    assert storage.listings == 0
    assert ends_of(reader, end - STEP, end + 3) == [end, end + 1, end + 2, end + 3]


def test_what_came_in_several_files_is_found_by_a_listing(tmp_path: Path) -> None:
    storage, end = aged(tmp_path / "log", 10)
    reader = LogReader(storage)
    assert ends_of(reader, end - STEP, end) == [end]
    grow(tmp_path / "log", end, end + 2)
    grow(tmp_path / "log", end + 2, end + 5)
    write_json(tmp_path / "log/rows/0/head.json", {"resolved_ts": end + 9})
    assert ends_of(reader, end, end + 7) == [end + 2, end + 5]
    grow(tmp_path / "log", end + 5, end + 12)  # it begins where the last file ends, not where the head was
    assert ends_of(reader, end + 4, end + 12) == [end + 5, end + 12]


def test_an_older_interval_is_found_after_a_younger_one(tmp_path: Path) -> None:
    storage, end = aged(tmp_path / "log", 40)
    reader = LogReader(storage)
    assert ends_of(reader, end - STEP, end) == [end]
    assert ends_of(reader, START, START + 2 * STEP) == [START + STEP, START + 2 * STEP]
    assert len(ends_of(reader, START, end)) == 40
    assert len(reader.listing("rows/0").intervals) == 40


def test_a_catch_up_passes_the_names_that_it_took_in(tmp_path: Path) -> None:
    storage, end = aged(tmp_path / "log", 40)
    reader = LogReader(storage)
    found = [to_ts for at in range(START, end, STEP) for to_ts in ends_of(reader, at, at + STEP)]
    assert found == [START + (i + 1) * STEP for i in range(40)]
    assert storage.listings <= 12


def test_a_hole_right_before_the_interval_names_both_files(tmp_path: Path) -> None:
    storage, end = aged(tmp_path / "log", 20)
    lost = SegmentName(end - 2 * STEP, end - STEP)
    (tmp_path / "log/rows/0" / str(lost)).unlink()
    with pytest.raises(LogCorrupt, match=rf"nothing holds .*{lost.from_ts}\.arrow and .*/{lost.to_ts:020d}-"):
        LogReader(storage).chain(0, end - STEP - 1, end)
    assert ends_of(LogReader(storage), end - STEP, end) == [end]
