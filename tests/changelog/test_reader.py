"""Which files hold an interval, while writers, compaction and retention work; and the messages about damage."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.changelog.logs import (
    START,
    batch_of,
    build_log,
    changes_of,
    delete,
    golden,
    golden_log,
    put,
    row_key,
    write_arrow,
    write_json,
    write_segment,
)
from tidemill.changelog.history import follow, load_history
from tidemill.changelog.log_format import IDENTITY, Affinity, LogIdentity
from tidemill.changelog.reader import FRESH_SECONDS, LogReader, log_exists
from tidemill.changelog.storage.open import LocalStorage, Storage, open_segment, open_storage
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter
from tidemill.errors import LogCorrupt, LogError, LogUnavailable, SegmentGone, StartTsOutOfLog

ENDS = [START + 10, START + 20, START + 30]
ROWS = [put(7, 1, START + 1), put(7, 2, START + 12), delete(7, 1, START + 25)]


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A log of one partition and three segments, made by the independent builder."""
    return build_log(tmp_path / "log", ROWS, ends=ENDS, head=START + 40, snapshot={b"mk": b"v"})


def ends_of(reader: LogReader, from_ts: int, to_ts: int) -> list[int]:
    return [i.to_ts - START for i in reader.chain(0, from_ts, to_ts)]


def test_a_log_of_another_builder_is_read(built: Path) -> None:
    reader = LogReader(built)
    assert (reader.start_ts, reader.partitions, reader.identity.affinity) == (START, 1, Affinity.TABLE)
    assert reader.resolved_ts() == START + 40
    assert ends_of(reader, START, START + 40) == [10, 20, 30]
    assert ends_of(reader, START + 10, START + 20) == [20]
    assert ends_of(reader, START + 5, START + 11) == [10, 20]
    assert ends_of(reader, START + 30, START + 40) == []
    assert ends_of(reader, START + 7, START + 7) == []
    rows = [c for i in reader.chain(0, START, START + 40) for p in i.parts for c in changes_of(open_segment(p).read_all())]
    assert rows == ROWS


@pytest.mark.parametrize(
    "compression",
    [
        None,
        *(pytest.param(one, marks=pytest.mark.thorough("files/test_sums.py reads each compression")) for one in ("lz4", "zstd")),
    ],
)
def test_what_a_real_tidb_did_is_read_whole(tmp_path: Path, compression: str | None) -> None:
    recorded = golden()
    reader = LogReader(golden_log(tmp_path, partitions=3, segments=5, compression=compression))
    end = reader.resolved_ts()
    assert end == recorded.last_ts + 1
    rows = [
        c
        for p in range(3)
        for i in reader.chain(p, reader.start_ts, end)
        for path in i.parts
        for c in changes_of(reader.open_segment(path).read_all())
    ]
    assert sorted(rows) == sorted(recorded.rows)
    assert len(changes_of(reader.read_schema(reader.start_ts, end))) == len(recorded.schema)
    history = load_history(reader)
    assert history.resolved_ts == end
    assert len(history.ddl_events(history.start_ts, end)) > 200


def test_local_segments_are_mapped(built: Path) -> None:
    (path,) = LogReader(built).chain(0, START, START + 10)[0].parts
    before = pa.total_allocated_bytes()
    batch = open_segment(path).get_batch(0)
    assert pa.total_allocated_bytes() == before
    assert batch.column("key")[0].as_py() == row_key(7, 1)


def test_an_interval_that_the_log_does_not_cover_is_refused_with_both_ends(built: Path) -> None:
    reader = LogReader(built)
    with pytest.raises(StartTsOutOfLog, match=f"{START + 40}.*not up to.*{START + 41}"):
        reader.chain(0, START, START + 41)
    with pytest.raises(StartTsOutOfLog, match=f"(?s){START} .*{START + 40}.*{START - 1}"):
        reader.chain(0, START - 1, START + 10)
    with pytest.raises(LogError, match="not an interval"):
        reader.chain(0, START + 2, START + 1)
    with pytest.raises(LogError, match="partitions 0 to 0"):
        reader.chain(1, START, START + 1)


def test_a_missing_segment_is_told_with_its_neighbours(built: Path) -> None:
    (built / "rows" / "0" / f"{ENDS[0]:020d}-{ENDS[1]:020d}.arrow").unlink()
    reader = LogReader(built)
    with pytest.raises(LogCorrupt) as e:
        reader.chain(0, START, START + 40)
    assert f"{ENDS[0]:020d}.arrow" in e.value.message
    assert f"{ENDS[2]:020d}.arrow" in e.value.message
    assert "Restore" in e.value.hint
    assert ends_of(reader, START, START + 10) == [10]


def test_a_missing_first_segment_is_told(built: Path) -> None:
    (built / "rows" / "0" / f"{START:020d}-{ENDS[0]:020d}.arrow").unlink()
    with pytest.raises(LogCorrupt, match="nothing holds"):
        LogReader(built).chain(0, START, START + 40)
    assert ends_of(LogReader(built), START + 10, START + 40) == [20, 30]


def test_a_partial_overlap_is_told_with_both_files(built: Path) -> None:
    write_segment(built / "rows" / "0", START + 5, START + 15, ROWS)
    with pytest.raises(LogCorrupt, match="overlap"):
        LogReader(built).chain(0, START, START + 20)


def test_leftovers_of_compaction_do_not_count(built: Path) -> None:
    write_segment(built / "rows" / "0", START, START + 20, ROWS)
    assert ends_of(LogReader(built), START, START + 30) == [20, 30]


def test_segments_above_the_head_that_do_not_join_yet_are_no_damage(built: Path) -> None:
    # A listing made while files appear may see a later one and miss an earlier one.
    write_segment(built / "rows" / "0", START + 60, START + 70, [])
    assert ends_of(LogReader(built), START, START + 40) == [10, 20, 30]
    write_json(built / "rows" / "0" / "head.json", {"resolved_ts": START + 70})
    with pytest.raises(LogCorrupt, match="nothing holds"):
        LogReader(built).chain(0, START, START + 70)


class _Hiding(LocalStorage):
    """Its listings miss some files, as those of a folder do into which another process writes meanwhile."""

    hidden: tuple[str, ...] = ()

    def names(self, folder: str) -> list[str]:
        return [name for name in super().names(folder) if name not in self.hidden]


def test_what_fills_a_hole_that_a_listing_had_comes_with_what_lay_behind_it(built: Path) -> None:
    place = _Hiding(built)
    reader = LogReader(place)
    for ts in (START + 50, START + 60, START + 70):
        write_segment(built / "rows" / "0", ts - 10 if ts > START + 50 else START + 30, ts, [])
    place.hidden = (f"{START + 30:020d}-{START + 50:020d}.arrow",)
    assert ends_of(reader, START, START + 40) == [10, 20, 30]
    place.hidden = ()
    write_json(built / "rows" / "0" / "head.json", {"resolved_ts": START + 70})
    assert ends_of(reader, START + 40, START + 70) == [50, 60, 70]


@pytest.mark.parametrize("end", [15, 20])
def test_a_listing_that_misses_the_first_file_only_tells_of_no_damage(end: int, tmp_path: Path) -> None:
    place = _Hiding(build_log(tmp_path, ends=[START + 10, START + 20]))
    write_json(tmp_path / "rows" / "0" / "head.json", {"resolved_ts": START + 5})
    place.hidden = (f"{START:020d}-{START + 10:020d}.arrow",)
    reader = LogReader(place)
    assert ends_of(reader, START, START + 5) == []
    place.hidden = ()
    write_json(tmp_path / "rows" / "0" / "head.json", {"resolved_ts": START + end})
    assert ends_of(reader, START, START + end) == [10, 20]


def damaged(built: Path, damage: str) -> Path:
    path = built / "rows" / "0" / f"{ENDS[0]:020d}-{ENDS[1]:020d}.arrow"
    data = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(data[:-10])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "garbage":
        path.write_bytes(b"garbage " * 100)
    else:
        path.unlink()
    return path


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("damage", ["truncated", "empty", "garbage", "gone"])
def test_damaged_segments_are_named_with_what_to_do(built: Path, damage: str, remote: bool) -> None:
    reader = LogReader(_remote(built) if remote else built)
    (interval,) = reader.chain(0, START + 10, START + 20)
    path = damaged(built, damage)
    with pytest.raises(LogCorrupt, match=path.name) as e:
        reader.open_segment(interval.parts[0])
    assert "estore" in e.value.hint
    assert isinstance(e.value, SegmentGone) == (damage == "gone") == e.value.retryable
    if not remote:
        with pytest.raises(LogCorrupt, match=path.name):
            open_segment(interval.parts[0])


def _remote(folder: Path) -> Storage:
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    from tidemill.changelog.storage.open import RemoteStorage

    return RemoteStorage(SubTreeFileSystem(str(folder.parent), LocalFileSystem()), folder.name)


def test_a_file_of_other_columns_is_no_segment(built: Path) -> None:
    path = built / "rows" / "0" / f"{ENDS[0]:020d}-{ENDS[1]:020d}.arrow"
    write_arrow(path, pa.schema([("a", pa.int64())]), [(1,)])
    with pytest.raises(LogCorrupt, match="other columns"):
        LogReader(built).open_segment(str(path))


def test_no_log_is_no_log(tmp_path: Path) -> None:
    assert not log_exists(tmp_path)
    with pytest.raises(LogError, match="not a change log"):
        LogReader(tmp_path)
    assert log_exists(build_log(tmp_path / "log"))


def test_a_listing_without_the_last_segment_is_an_old_one(tmp_path: Path) -> None:
    """NFS may show one for a minute. head.json, opened by its name, is newer."""
    with LogWriter.create(LocalStorage(str(tmp_path), sync=False), LogIdentity("1", START, 1), snapshot={}) as log:
        for ts in (START + 10, START + 20, START + 30):
            log.partition(0).publish(ts, [batch_of([put(1, 1, ts)])])
        for one in (log.schema, log.partition(0)):
            one.set_head(START + 40)
    place = _Hiding(str(tmp_path))
    reader = LogReader(place)
    place.hidden = tuple(f"{START + ts:020d}-{START + ts + 10:020d}.arrow" for ts in (10, 20))
    for _ in range(2):
        with pytest.raises(LogUnavailable, match=f"its segments end at {START + 10}, and its head.json says that one ends at {START + 30}"):
            reader.chain(0, START, START + 40)
    assert any(f"the last segment is missing: it ends at {START + 30}" in one.text for one in verify(place).problems)
    place.hidden = ()
    assert ends_of(reader, START, START + 40) == [10, 20, 30]
    assert not any("missing" in one.text for one in verify(place).problems)


class _Away(LocalStorage):
    is_away = False

    def read(self, name: str) -> bytes | None:
        if self.is_away and name == IDENTITY:
            raise LogUnavailable("the storage is away")
        return super().read(name)


def test_a_layout_that_could_not_be_read_is_looked_for_again(tmp_path: Path) -> None:
    with LogWriter.create(LocalStorage(str(tmp_path), sync=False), LogIdentity("1", START, 1), snapshot={}) as log:
        log.schema.set_head(START + 10)
        log.partition(0).set_head(START + 10)
        place = _Away(str(tmp_path))
        reader = LogReader(place)
        log.set_identity(log.identity.grown(START + 10, 2))
    place.is_away = True
    with pytest.raises(LogUnavailable):
        reader.laid_out(START + 20)
    place.is_away = False
    assert reader.laid_out(START + 20)
    assert reader.partitions == 2


class _Counting(LocalStorage):
    listed = 0

    def names(self, folder: str) -> list[str]:
        self.listed += 1
        return super().names(folder)


def test_folders_are_listed_only_when_that_can_tell_something_new(built: Path) -> None:
    now = [0.0]
    place = _Counting(built)
    reader = LogReader(place, clock=lambda: now[0])
    for to_ts in range(START + 1, START + 41):
        reader.chain(0, START, to_ts)
    assert place.listed == 1
    write_segment(built / "rows" / "0", START + 30, START + 50, [])
    write_json(built / "rows" / "0" / "head.json", {"resolved_ts": START + 50})
    assert ends_of(reader, START, START + 50) == [10, 20, 30, 50]
    assert place.listed == 1  # one file more, whose name is known beforehand
    for ts in (START + 60, START + 70):
        write_segment(built / "rows" / "0", ts - 10, ts, [])
    write_json(built / "rows" / "0" / "head.json", {"resolved_ts": START + 70})
    assert ends_of(reader, START, START + 70) == [10, 20, 30, 50, 60, 70]
    assert place.listed == 2
    now[0] += FRESH_SECONDS + 1
    reader.chain(0, START, START + 1)
    assert place.listed == 3


def test_a_grown_listing_extends_the_chain_like_a_fresh_one(built: Path) -> None:
    reader = LogReader(built)
    reader.chain(0, START, START + 40)
    folder = built / "rows" / "0"
    write_segment(folder, START + 30, START + 41, [])
    end = START + 41
    for k in range(1, 30):
        write_segment(folder, end, end + k, [])
        end += k
        if k % 7 == 0:
            write_segment(folder, START, end, ROWS)
        write_json(folder / "head.json", {"resolved_ts": end + 1})  # so the file's name cannot be told from it
        assert reader.chain(0, START, end) == LogReader(built).chain(0, START, end)


def test_the_schema_stream_is_cut_to_the_interval_and_sorted(tmp_path: Path) -> None:
    changes = [put(281474976710654, h, START + ts) for h, ts in enumerate((1, 5, 10, 11, 20))]
    log = build_log(tmp_path, schema_changes=changes, ends=[START + 10, START + 20])
    found = LogReader(log).read_schema(START + 1, START + 11)
    assert [t - START for t in found["commit_ts"].to_pylist()] == [5, 10, 11]
    folder = tmp_path / "schema"
    (folder / f"{START + 10:020d}-{START + 20:020d}.arrow").unlink()
    write_segment(folder, START + 10, START + 20, changes[4:], part=(1, 2))
    write_segment(folder, START + 10, START + 20, changes[3:4], part=(2, 2))
    found = LogReader(log).read_schema(START, START + 20)
    assert [t - START for t in found["commit_ts"].to_pylist()] == [1, 5, 10, 11, 20]


def test_history_follows_the_stream(tmp_path: Path) -> None:
    recorded = golden()
    middle = recorded.ends(2)[0]
    reader = LogReader(golden_log(tmp_path, segments=4))
    whole = load_history(reader)
    partial = load_history(reader, middle)
    assert partial.resolved_ts == middle
    follow(partial, reader)
    assert partial.resolved_ts == whole.resolved_ts
    names = [(e.ts, e.query) for e in whole.ddl_events(whole.start_ts, whole.resolved_ts)]
    assert [(e.ts, e.query) for e in partial.ddl_events(whole.start_ts, whole.resolved_ts)] == names


def test_a_log_without_a_snapshot_has_no_history(built: Path) -> None:
    (built / "schema" / f"snapshot-{START:020d}.arrow").unlink()
    with pytest.raises(LogCorrupt, match="no schema snapshot"):
        load_history(LogReader(built))


def test_urls_name_storages(tmp_path: Path) -> None:
    build_log(tmp_path / "log")
    assert LogReader(f"file://{tmp_path}/log").identity.cluster_id == "1"
    place = open_storage("s3://key:secret@bucket/a/log?region=us-east-1&endpoint_override=localhost:1")
    assert not place.local
    path = place.path("rows/0/x.arrow")
    assert path == "s3://key:secret@bucket/a/log/rows/0/x.arrow?region=us-east-1&endpoint_override=localhost:1"
    assert place.name(path) == "rows/0/x.arrow"
    with pytest.raises(LogError, match="cannot be opened") as e:
        open_storage("nonsense://user:secret@host/log")
    for place in ("s3://bucket/a%00b", "file:///a%00b", "/a\0b"):
        with pytest.raises(LogError, match="zero byte"):
            open_storage(place)
    assert "secret" not in str(e.value)


def test_removed_logs_are_told_at_the_next_question(built: Path) -> None:
    reader = LogReader(built)
    shutil.rmtree(built)
    with pytest.raises(LogError):
        _ = reader.start_ts


def test_reading_goes_on_beside_a_writer(tmp_path: Path) -> None:
    build_log(tmp_path, ROWS, ends=ENDS)
    reader: Any = LogReader(tmp_path)
    with LogWriter.open(tmp_path) as log:
        log.partition(0).publish(START + 50, [])
        log.schema.set_head(START + 60)
    assert reader.resolved_ts() == START + 50
    assert ends_of(reader, START, START + 50) == [10, 20, 30, 50]
