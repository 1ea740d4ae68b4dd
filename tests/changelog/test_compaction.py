"""Small neighbours become one segment, and readers do not notice."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.changelog.conftest import IDENTITY, Reopen
from tests.support.changelog.logs import START, batch_of, changes_of, put
from tests.support.changelog.small_segments import publish_small, read
from tidemill.changelog.compaction import FAN_IN, Weighed, plan
from tidemill.changelog.files.segment import batch_bytes, bounded, regrouped
from tidemill.changelog.log_format import Interval
from tidemill.changelog.options import LogOptions
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter
from tidemill.errors import LogFenced, SegmentGone

SMALL = LogOptions(compact_rows=50, low_water_bytes=0, grace_s=0.0)
NOW = START + (1 << 30)


def test_small_neighbours_become_one_segment_with_the_same_rows(reopened: Reopen) -> None:
    log = reopened(SMALL)
    rows = publish_small(log, 40)
    done = log.maintain(NOW)
    assert done.joined == 34  # 17 files of 3 rows fill a segment of 50
    chain = LogReader(log.storage).chain(0, START, log.partition(0).head)
    assert [(i.to_ts - i.from_ts) // 10 for i in chain] == [17, 17, 1, 1, 1, 1, 1, 1]
    assert read(LogReader(log.storage)) == rows
    assert done.removed == 34
    assert log.maintain(NOW).joined == 0


def test_replaced_files_stay_for_readers_that_have_listed_them(reopened: Reopen) -> None:
    log = reopened(LogOptions(compact_rows=50, low_water_bytes=0, grace_s=3600))
    rows = publish_small(log, 40)
    early = LogReader(log.storage)
    listed = early.chain(0, START, early.head(0))
    assert log.maintain(NOW).removed == 0
    assert [c for i in listed for p in i.parts for c in changes_of(early.open_segment(p).read_all())] == rows
    assert read(early) == read(LogReader(log.storage)) == rows
    log.close()
    again = LogWriter.open(log.storage, options=SMALL)
    assert again.maintain(NOW).removed == 34
    assert read(LogReader(log.storage)) == rows


def test_few_rows_are_joined_by_number_of_files(reopened: Reopen) -> None:
    log = reopened(LogOptions(low_water_bytes=0, grace_s=0.0))
    rows = publish_small(log, FAN_IN - 1, 1)
    assert log.maintain(NOW).joined == 0
    rows += publish_small(log, 1, 1, 1000)
    assert log.maintain(NOW).joined == FAN_IN
    assert read(LogReader(log.storage)) == rows


def test_parts_of_big_intervals_are_left_as_they_are(reopened: Reopen) -> None:
    log = reopened(SMALL)
    rows = publish_small(log, 20)
    begin = log.partition(0).last_to
    parts = [[put(7, 1, begin + 1)], [put(7, 2, begin + 1)]]
    log.partition(0).publish_parts(begin + 10, [[batch_of(p)] for p in parts])
    rows += parts[0] + parts[1] + publish_small(log, 20, first=500)
    log.maintain(NOW)
    assert read(LogReader(log.storage)) == rows
    assert sum(len(i.parts) > 1 for i in LogReader(log.storage).chain(0, START, log.partition(0).head)) == 1


def test_a_joined_segment_is_the_file_that_a_capture_of_the_whole_interval_writes(tmp_path: Path) -> None:
    with LogWriter.create(tmp_path / "a", IDENTITY, options=SMALL) as log:
        rows = publish_small(log, 17)
        log.maintain(NOW)
        (interval,) = LogReader(log.storage).chain(0, START, log.partition(0).head)
    with LogWriter.create(tmp_path / "b", IDENTITY) as log:
        path = log.partition(0).publish(interval.to_ts, [batch_of(rows)])
    assert Path(path).read_bytes() == Path(interval.parts[0]).read_bytes()


def test_one_call_rewrites_about_its_budget(reopened: Reopen) -> None:
    log = reopened(SMALL)
    rows = publish_small(log, 170)
    assert log.maintain(NOW, budget_bytes=1).joined == 17
    assert log.maintain(NOW, budget_bytes=1).joined == 17
    assert read(LogReader(log.storage)) == rows


def test_compaction_of_a_fenced_writer_publishes_nothing(reopened: Reopen) -> None:
    log = reopened(SMALL)
    publish_small(log, 40)
    before = sorted(n for n in log.storage.names("rows/0") if n.endswith(".arrow"))
    log.close()
    other = LogWriter.open(log.storage)
    with pytest.raises(LogFenced):
        log.maintain(NOW)
    assert sorted(n for n in log.storage.names("rows/0") if n.endswith(".arrow")) == before
    other.close()


class _Crash(BaseException):
    """The process ends here."""


class _Crashing(LocalStorage):
    """The process ends after this many changes of the folder."""

    left = 1 << 60

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _Crash

    def delete(self, name: str) -> None:
        self._step()
        super().delete(name)

    def settle(self, folder: str) -> None:
        self._step()
        super().settle(folder)


@pytest.mark.parametrize("steps", range(0, 60, 7))
def test_a_crash_in_the_middle_leaves_a_whole_log(tmp_path: Path, steps: int) -> None:
    place = _Crashing(tmp_path, sync=False)
    log = LogWriter.create(place, IDENTITY, snapshot={}, options=SMALL)
    rows = publish_small(log, 60)
    place.left = steps
    with contextlib.suppress(_Crash):
        for _ in range(3):
            log.maintain(NOW)
    log.close()
    place.left = 1 << 60
    assert read(LogReader(tmp_path)) == rows
    assert [p.text for p in verify(tmp_path).problems if "schema history does not know" not in p.text] == []
    again = LogWriter.open(place, options=SMALL)
    again.maintain(NOW)
    again.maintain(NOW)
    assert read(LogReader(tmp_path)) == rows
    assert not LogReader(tmp_path).listing("rows/0").inside


def test_readers_never_fail_while_files_come_and_go(tmp_path: Path) -> None:
    log = LogWriter.create(LocalStorage(tmp_path, sync=False), IDENTITY, options=LogOptions(compact_rows=50, low_water_bytes=0, grace_s=1))
    done = threading.Event()
    failures: list[BaseException] = []

    def follow() -> None:
        reader, at, seen = LogReader(tmp_path), START, []
        try:
            while True:
                last = done.is_set()
                end = reader.head(0)
                try:
                    found = read(reader, at, end)
                except SegmentGone:  # a second was not enough on a busy machine: reading the log again must be
                    reader.refresh()
                    found = read(reader, at, end)
                seen += [c for c in found if at < c.commit_ts <= end]
                at = end
                if last:
                    break
            handles = [c.key for c in seen]
            assert len(set(handles)) == len(handles) == 450
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=follow) for _ in range(2)]
    for t in threads:
        t.start()
    for k in range(15):
        publish_small(log, 10, first=1 + 30 * k)
        log.maintain(NOW)
    done.set()
    for t in threads:
        t.join()
    assert failures == []


# ---- plans


def weighed(rows: list[int], size: int = 100) -> list[Weighed]:
    return [Weighed(Interval(k, k + 1, (f"{k}",)), n, size) for k, n in enumerate(rows)]


@given(st.lists(st.one_of(st.integers(0, 100), st.integers(0, 70_000)), max_size=300), st.sets(st.integers(0, 299), max_size=3))
def test_plans_join_neighbours_only_and_each_once(rows: list[int], parts: set[int]) -> None:
    chain: list[Weighed | None] = [None if k in parts else w for k, w in enumerate(weighed(rows))]
    groups = plan(chain, 65_536)
    members = [w for g in groups for w in g]
    assert len({w.interval for w in members}) == len(members)
    for group in groups:
        assert all(a.interval.to_ts == b.interval.from_ts for a, b in itertools.pairwise(group))
        assert all(w.rows < 65_536 for w in group)
        assert len(group) > 1
        assert sum(w.rows for w in group[:-1]) < 65_536


@pytest.mark.parametrize("rate", [0, 1, 10, 300, 2500, 30_000])
def test_rows_are_rewritten_a_few_times_at_most(rate: int) -> None:
    chain: list[Weighed] = []
    written = joined = 0
    for second in range(2000):
        chain.append(Weighed(Interval(second, second + 1, ("",)), rate, rate * 300))
        written += max(rate, 1)
        if second % 10:
            continue
        for group in plan(chain, 65_536):
            one = Weighed(
                Interval(group[0].interval.from_ts, group[-1].interval.to_ts, ("",)), sum(w.rows for w in group), sum(w.size for w in group)
            )
            at = chain.index(group[0])
            chain[at : at + len(group)] = [one]
            joined += max(one.rows, len(group))
    assert joined <= 4 * written
    assert len(chain) < 4 * FAN_IN + 2 * written / 65_536


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, 30), st.integers(60, 2000), st.integers(0, 1 << 32))
def test_regrouping_depends_on_the_rows_alone(sizes: list[int], max_rows: int, max_bytes: int, seed: int) -> None:
    rng = random.Random(seed)
    rows = [put(7, h, START + h, bytes(rng.randrange(80))) for h in range(sum(sizes))]
    ends = list(itertools.accumulate(sizes))
    batches = [batch_of(rows[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
    found = list(regrouped(batches, max_rows, max_bytes))
    once = list(regrouped([batch_of(rows)], max_rows, max_bytes))
    assert [b.to_pylist() for b in found] == [b.to_pylist() for b in once]
    assert [c for b in found for c in changes_of(b)] == rows
    for cut in (found, [b for batch in batches for b in bounded(batch, max_rows, max_bytes)]):
        assert [c for b in cut for c in changes_of(b)] == rows
        assert all(0 < b.num_rows <= max_rows and (b.num_rows == 1 or batch_bytes(b) <= max_bytes) for b in cut)
