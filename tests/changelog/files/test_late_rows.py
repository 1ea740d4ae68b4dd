"""Rows that a log took too late are inserted into what it has published."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.changelog.conftest import IDENTITY, META
from tests.support.changelog.logs import START, Change, batch_of, put
from tests.support.changelog.small_segments import read
from tidemill.changelog.files.late_rows import LateRows, groups
from tidemill.changelog.log_format import Interval, rows_folder
from tidemill.changelog.options import LogOptions
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import LocalStorage, Storage
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter
from tidemill.errors import LogError

OPTIONS = LogOptions(compact_rows=20, low_water_bytes=0, grace_s=3600.0)
LATE, NOW = 9, START + (1 << 30)


def log_in(where: Storage, changes: list[Change], ends: list[int], head: int) -> LogWriter:
    """A log whose first partition has the changes, in segments that end there, and a head."""
    log = LogWriter.create(where, IDENTITY, snapshot=META, options=OPTIONS)
    begin = START
    for end in ends:
        rows = [c for c in changes if begin < c.commit_ts <= end]
        log.partition(0).publish(end, [batch_of(rows)])
        begin = end
    log.partition(0).set_head(head)
    for writer in (log.partition(1), log.schema):
        writer.set_head(head)
    return log


def late_in(folder: Path, changes: list[Change], from_ts: int, to_ts: int) -> LateRows:
    log_in(LocalStorage(folder, sync=False), changes, [to_ts], to_ts).close()
    return LateRows(LogReader(LocalStorage(folder, sync=False)), 0, from_ts, to_ts)


def made(rng: random.Random) -> tuple[list[Change], list[Change], list[int], int]:
    """Changes of both tables, ends of segments that have rows of the first one or none, and a head."""
    times = sorted(rng.sample(range(START + 1, START + 400), rng.randint(2, 60)))
    both = [put(rng.choice((7, LATE)), at, at) for at in times]
    ends = sorted(rng.sample(range(START + 1, START + 400), rng.randint(1, 8)))
    head = ends[-1] + rng.choice((0, 30))
    both = [c for c in both if c.commit_ts <= head]
    old = [c for c in both if c.table_id == 7 and c.commit_ts <= ends[-1]]
    return old, [c for c in both if c.table_id == LATE], ends, head


def problems(log: Storage) -> list[str]:
    """What verify reports, but for the schemas, of which these logs have none."""
    return [p.text for p in verify(log).problems if "schema history" not in p.text]


@pytest.mark.parametrize("seed", range(12))
def test_a_log_has_the_late_rows_where_they_belong(storage: Storage, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    old, late, ends, head = made(rng)
    from_ts = rng.randint(START, head - 1)
    log = log_in(storage, old, ends, head)
    rows = late_in(tmp_path / "late", late, from_ts, head)
    for _ in range(2):  # the second finds nothing to do
        while not log.insert(rows):
            head += 10
            log.partition(0).set_head(head)
    wanted = sorted([*old, *(c for c in late if c.commit_ts > from_ts)], key=lambda c: c.commit_ts)
    assert read(LogReader(storage)) == wanted
    log.maintain(NOW)
    log.partition(0).publish(head + 5, [batch_of([put(7, 1, head + 1)])])
    assert read(LogReader(storage)) == [*wanted, put(7, 1, head + 1)]
    log.close()
    assert problems(storage) == []


def test_a_reader_from_before_goes_on(storage: Storage, tmp_path: Path) -> None:
    old, late = [put(7, i, START + 10 * i) for i in range(1, 9)], [put(LATE, i, START + 10 * i + 5) for i in range(1, 9)]
    log = log_in(storage, old, [START + 30, START + 60, START + 85], START + 90)
    reader = LogReader(storage)
    listed = reader.chain(0, START, START + 90)
    assert log.insert(late_in(tmp_path / "late", late, START, START + 90))
    assert reader.chain(0, START, START + 90) == listed
    assert read(reader, START, START + 90) == old, "it reads on in the files that it has listed"
    log.partition(0).publish(START + 100, [batch_of([put(7, 1, START + 95)])])
    assert read(reader, START + 90, START + 100) == [put(7, 1, START + 95)]
    log.close()


def test_rows_before_the_log_are_refused(tmp_path: Path) -> None:
    log = log_in(LocalStorage(tmp_path / "log", sync=False), [], [START + 10], START + 10)
    with pytest.raises(LogError, match="begins, or has its layout"):
        log.insert(LateRows(LogReader(log.storage), 0, START - 1, START + 10))
    log.close()


def test_a_segment_that_lost_rows_is_a_problem_all_the_same(tmp_path: Path) -> None:
    """One that lies inside another may have fewer rows than that, but no others."""
    where = LocalStorage(tmp_path / "log", sync=False)
    log = log_in(where, [put(7, i, START + 10 * i) for i in range(1, 5)], [START + 25, START + 45], START + 45)
    assert log.insert(late_in(tmp_path / "late", [put(LATE, 1, START + 12), put(LATE, 2, START + 13)], START, START + 45))
    assert problems(where) == []
    inside = next(name for name in where.names(rows_folder(0)) if name.endswith(f"-{START + 25:020d}.arrow"))
    joined = next(name for name in where.names(rows_folder(0)) if name.startswith(f"{START:020d}-{START + 45:020d}"))
    other = log_in(LocalStorage(tmp_path / "other", sync=False), [put(7, 8, START + 11)], [START + 25], START + 25)
    (tmp_path / "log" / "rows" / "0" / inside).write_bytes((tmp_path / "other" / "rows" / "0" / inside).read_bytes())
    assert [text for text in problems(where) if "has 1 rows" in text and joined in text]
    other.close()
    log.close()


@given(st.lists(st.booleans(), min_size=2, max_size=12))
def test_every_wanted_segment_is_joined_with_a_neighbour(wanted: list[bool]) -> None:
    chain = [Interval(at, at + 1, (str(at),)) for at in range(len(wanted))]
    found = groups(chain, wanted)
    assert all(begin >= 0 and begin + 2 <= end <= len(chain) for begin, end in found)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(found))
    assert {at for at, is_wanted in enumerate(wanted) if is_wanted} <= {at for begin, end in found for at in range(begin, end)}


def test_a_neighbour_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.changelog.compaction.MOST_BYTES", 100)
    log = log_in(LocalStorage(tmp_path / "log", sync=False), [], [START + 10, START + 20], START + 20)
    with pytest.raises(LogError, match="too much to insert"):
        log.insert(late_in(tmp_path / "late", [put(LATE, 1, START + 5)], START, START + 20))
    log.close()
