"""Rows of an interval are told by the ends of files; a batch is read only where nothing else tells whether there is a row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.changelog.logs import START, batch_of, build_log, put
from tidemill.changelog.files.arrowfile import ArrowFile
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.reader import LogReader, open_segment
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.writer import LogWriter
from tidemill.delivery.inputs import log_source
from tidemill.delivery.inputs.log_source import count_rows

ENDS = [START + 100, START + 200, START + 300]
"""Each file has a row for each ts but the first of its interval."""


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    with LogWriter.create(LocalStorage(tmp_path / "log", sync=False), LogIdentity("1", START, 1), snapshot={}) as writer:
        return [writer.partition(0).publish(end, [batch_of([put(7, ts, ts) for ts in range(end - 98, end + 1)])]) for end in ENDS]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose batches were read."""
    found: list[str] = []
    real = log_source.read_batch

    def reading(file: ArrowFile, number: int, path: str) -> object:
        found.append(path)
        return real(file, number, path)

    monkeypatch.setattr(log_source, "read_batch", reading)
    return found


def test_whole_files_are_counted_by_their_ends(paths: Sequence[str], read: list[str]) -> None:
    assert count_rows(paths, START, ENDS[-1]) == 3 * 99
    assert count_rows(paths[1:], START + 101, ENDS[1]) == 99
    assert read == []


def test_a_cut_batch_beside_others_counts_by_its_share_of_time(paths: Sequence[str], read: list[str]) -> None:
    found = count_rows(paths, START + 50, START + 225)
    assert read == []
    assert abs(found - (50 + 99 + 24)) <= 2


@pytest.mark.parametrize(("from_ts", "to_ts", "rows"), [(50, 60, 10), (100, 101, 0), (199, 202, 2), (199, 201, 1)])
def test_where_all_batches_are_cut_their_rows_are_counted(
    paths: Sequence[str], read: list[str], from_ts: int, to_ts: int, rows: int
) -> None:
    assert count_rows(paths, START + from_ts, START + to_ts) == rows
    assert len(read) == len({p for p in paths if p in read}) <= 2


def test_files_that_do_not_tell_are_read(tmp_path: Path, read: list[str]) -> None:
    log = build_log(tmp_path, [put(7, ts, START + ts) for ts in range(1, 31)], ends=[START + 10, START + 20, START + 30])
    paths = [part for one in LogReader(log).chain(0, START, START + 30) for part in one.parts]
    assert not any(open_segment(path).has_sums for path in paths)
    assert count_rows(paths, START + 5, START + 22) == 17
    assert sorted(set(read)) == sorted(paths)


def test_a_file_that_was_opened_before_is_not_looked_at_again(paths: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_segment(paths[0])
    Path(paths[2]).replace(paths[1])
    monkeypatch.setattr(ArrowFile, "_look", lambda self: pytest.fail("its end is read again"))
    assert open_segment(paths[0]).read_all() == first.read_all()
    with pytest.raises(pytest.fail.Exception, match="its end is read again"):
        open_segment(paths[1])  # another file has its name now
