"""Publishing segments: which are accepted, what is in the log then, and which writer may publish."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest

from tests.changelog.conftest import IDENTITY, META, Reopen
from tests.support.changelog.logs import CHANGE, START, Change, batch_of, changes_of, delete, put, read_changes
from tests.support.schema.described_tables import META as TABLES
from tidemill.changelog.log_format import MAX_BATCH_ROWS, Affinity, LogIdentity, Source
from tidemill.changelog.options import LogOptions
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage import durable
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter
from tidemill.errors import ClusterMismatch, DiskLow, LogCorrupt, LogError, LogFenced, LogLocked


def rows_of(reader: LogReader, partition: int, from_ts: int = START, to_ts: int | None = None) -> list[Change]:
    """Rows through the reader, of whole segments."""
    found: list[Change] = []
    for interval in reader.chain(partition, from_ts, reader.resolved_ts() if to_ts is None else to_ts):
        for path in interval.parts:
            found += changes_of(reader.open_segment(path).read_all())
    return found


def test_what_is_published_is_read_back(log: LogWriter) -> None:
    first = [put(7, 1, START + 1), put(7, 2, START + 1), put(7, 1, START + 4, b"new", b"old")]
    second = [delete(7, 1, START + 20)]
    one = log.partition(0)
    path = one.publish(START + 10, [batch_of(first[:2]), batch_of(first[2:])])
    assert path.endswith(f"rows/0/{START:020d}-{START + 10:020d}.arrow")
    assert (one.last_to, one.head) == (START + 10, START + 10)
    one.publish(START + 20, [batch_of(second)])
    log.partition(1).set_head(START + 25)
    log.schema.set_head(START + 21)
    reader = LogReader(log.storage)
    assert reader.resolved_ts() == log.resolved_ts == START + 20
    assert rows_of(reader, 0) == first + second
    assert rows_of(reader, 1) == []
    assert reader.snapshots() == [START]
    assert reader.read_snapshot(START).to_pylist() == [{"key": k, "value": v} for k, v in META.items()]


def test_a_segment_begins_where_the_last_one_ended_though_the_head_is_ahead(log: LogWriter) -> None:
    one = log.partition(0)
    one.publish(START + 10, [])
    one.set_head(START + 50)
    assert (one.last_to, one.head) == (START + 10, START + 50)
    one.set_head(START + 40)
    assert one.head == START + 50
    one.publish(START + 60, [batch_of([put(7, 1, START + 51)])])
    chain = LogReader(log.storage).chain(0, START, START + 60)
    assert [(i.from_ts, i.to_ts) for i in chain] == [(START, START + 10), (START + 10, START + 60)]


def test_an_empty_interval_may_be_a_file(log: LogWriter) -> None:
    path = log.partition(0).publish(START + 10, [])
    reader = LogReader(log.storage)
    segment = reader.open_segment(path)
    assert segment.num_record_batches == 0
    assert segment.schema.names == CHANGE.names


def test_the_end_may_be_known_last_and_buffers_may_be_used_again(log: LogWriter) -> None:
    commit = np.array([START + 1], np.uint64)
    end = [START + 5]

    def batches() -> Iterator[pa.RecordBatch]:
        for ts in (START + 1, START + 2, START + 7):
            commit[0] = ts
            template = batch_of([put(7, 1, START + 1)])
            column = pa.Array.from_buffers(pa.uint64(), 1, [None, pa.py_buffer(commit)])
            yield template.set_column(3, "commit_ts", column)
        end[0] = START + 9

    path = log.partition(0).publish(lambda: end[0], batches())
    assert path.endswith(f"-{START + 9:020d}.arrow")
    assert [c.commit_ts for c in changes_of(LogReader(log.storage).open_segment(path).read_all())] == [START + 1, START + 2, START + 7]
    with pytest.raises(LogError, match="above the interval's end"):
        log.partition(0).publish(lambda: START + 10, [batch_of([put(7, 1, START + 11)])])


def test_a_big_interval_is_several_files(log: LogWriter) -> None:
    parts = [[batch_of([put(7, h, START + 5)])] for h in range(3)]
    paths = log.partition(0).publish_parts(START + 5, parts)
    assert [p.rpartition(".arrow")[0].rpartition(".")[2] for p in paths] == ["1of3", "2of3", "3of3"]
    (interval,) = LogReader(log.storage).chain(0, START, START + 5)
    assert interval.parts == tuple(paths)
    assert LogReader(log.storage).partition_bytes(interval) == sum(log.storage.size(log.storage.name(p)) for p in paths)


BAD = {
    "at the start": ([put(7, 1, START)], "not above"),
    "above the end": ([put(7, 1, START + 11)], "above the interval's end"),
    "by commit": ([put(7, 1, START + 3), put(7, 1, START + 2)], "stands after"),
    "by start": ([put(7, 1, START + 3, start_ts=START + 2), put(7, 2, START + 3, start_ts=START + 1)], "stands after"),
    "by table": ([put(8, 1, START + 3), put(7, 2, START + 3)], "stands after"),
    "by key": ([put(7, 2, START + 3), put(7, 1, START + 3)], "stands after"),
    "by key among many": ([put(7, h, START + h, start_ts=1) for h in range(1, 9)] + [put(7, 3, START + 8, start_ts=1)], "stands after"),
    "twice": ([put(7, 1, START + 3), put(7, 1, START + 3)], "stands after"),
}


@pytest.mark.parametrize("cut", [False, True], ids=["one batch", "a batch a row"])
@pytest.mark.parametrize("kind", BAD)
def test_rows_that_break_the_rules_are_refused_and_leave_nothing(log: LogWriter, kind: str, cut: bool) -> None:
    changes, text = BAD[kind]
    batches = [batch_of([c]) for c in changes] if cut else [batch_of(changes)]
    with pytest.raises(LogError, match=text) as e:
        log.partition(0).publish(START + 10, batches)
    assert "rows/0" in e.value.message
    assert log.partition(0).head == START
    assert [n for n in log.storage.names("rows/0") if n.endswith((".arrow", ".tmp"))] == []
    log.partition(0).publish(START + 10, [batch_of([put(7, 1, START + 3)])])


def test_a_row_at_or_below_the_head_is_refused_because_readers_have_gone_past(log: LogWriter) -> None:
    log.partition(0).set_head(START + 50)
    with pytest.raises(LogError, match=f"not above the interval's start {START + 50}"):
        log.partition(0).publish(START + 60, [batch_of([put(7, 1, START + 50)])])


def test_boundaries_are_exact_for_large_timestamps(tmp_path: Path) -> None:
    start = (1 << 62) + 1  # float64 does not tell it from its neighbours
    with LogWriter.create(tmp_path, LogIdentity("1", start, 1)) as log:
        for wrong in (start, start + 3):
            with pytest.raises(LogError):
                log.partition(0).publish(start + 2, [batch_of([put(7, 1, wrong)])])
        log.partition(0).publish(start + 2, [batch_of([put(7, 1, start + 1), put(7, 1, start + 2)])])
    assert len(rows_of(LogReader(tmp_path), 0, start, start + 2)) == 2


def test_trusted_rows_are_still_held_to_their_interval(log: LogWriter) -> None:
    with pytest.raises(LogError, match="above the interval's end"):
        log.partition(0).publish(START + 3, [batch_of([put(7, 1, START + 4)])], trusted=True)
    with pytest.raises(LogError, match="not above"):
        log.partition(0).publish(START + 3, [batch_of([put(7, 1, START)])], trusted=True)
    with pytest.raises(LogError, match="stands after"):
        log.partition(0).publish(START + 3, [batch_of([put(7, 1, START + 2)]), batch_of([put(7, 1, START + 1)])], trusted=True)


def test_other_columns_and_missing_values_are_refused(log: LogWriter) -> None:
    good = batch_of([put(7, 1, START + 1)])
    with pytest.raises(LogError, match="columns"):
        log.partition(0).publish(START + 3, [good.drop_columns(["old_value"])])
    with pytest.raises(LogError, match="no key"):
        log.partition(0).publish(START + 3, [good.set_column(4, "key", pa.array([None], pa.binary()))])


def test_batches_are_cut_to_the_limits(tmp_path: Path) -> None:
    n = 2 * MAX_BATCH_ROWS + 5
    ones = np.ones(n, np.uint64)
    keys = pa.array([b"k%07d" % i for i in range(n)], pa.binary())
    columns = [np.ones(n, np.int64), np.ones(n, np.uint8), ones, ones * np.uint64(START + 1)]
    large = pa.record_batch([*map(pa.array, columns), keys, keys, pa.nulls(n, pa.binary())], schema=CHANGE)
    heavy = batch_of([put(7, h, START + 2, bytes(30 << 20)) for h in range(5)])
    with LogWriter.create(LocalStorage(tmp_path, sync=False), IDENTITY) as log:
        path = log.partition(0).publish(START + 5, [large.slice(3), heavy])
    segment = LogReader(tmp_path).open_segment(path)
    sizes = [segment.get_batch(i).num_rows for i in range(segment.num_record_batches)]
    assert sizes == [MAX_BATCH_ROWS, MAX_BATCH_ROWS, 2, 2, 2, 1]


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_compression_is_the_writers_choice(tmp_path: Path, compression: str) -> None:
    with LogWriter.create(tmp_path, IDENTITY, options=LogOptions(compression=compression)) as log:
        path = log.partition(0).publish(START + 5, [batch_of([put(7, h, START + 1, b"x" * 1000) for h in range(100)])])
    assert len(rows_of(LogReader(tmp_path), 0, START, START + 5)) == 100
    assert (Path(path).stat().st_size > 100_000) == (compression == "none")


def test_an_unknown_compression_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="gzip"):
        LogWriter.create(tmp_path, IDENTITY, options=LogOptions(compression="gzip"))


def test_an_interval_captured_again_is_the_same_file(tmp_path: Path) -> None:
    changes = [put(7, h, START + 1 + h // 10, b"v" * h) for h in range(300)]
    files = []
    for run in range(2):
        with LogWriter.create(tmp_path / str(run), IDENTITY) as log:
            files.append(Path(log.partition(0).publish(START + 100, [batch_of(changes)])).read_bytes())
    assert files[0] == files[1]


# ---- opening


def test_a_log_goes_on_where_it_was(log: LogWriter, reopened: Reopen) -> None:
    log.partition(0).publish(START + 10, [batch_of([put(7, 1, START + 1)])])
    log.partition(1).set_head(START + 30)
    again = reopened()
    assert (again.partition(0).last_to, again.partition(0).head) == (START + 10, START + 10)
    assert (again.partition(1).last_to, again.partition(1).head) == (START, START + 30)
    assert again.identity == IDENTITY


@pytest.mark.parametrize("lost", [None, b"", b"\0" * 21])
def test_a_head_that_a_crash_of_the_machine_undid_is_made_up_from_segments(log: LogWriter, reopened: Reopen, lost: bytes | None) -> None:
    log.partition(0).publish(START + 10, [])
    name = "rows/0/head.json"
    log.storage.delete(name) if lost is None else log.storage.replace(name, lost)
    assert LogReader(log.storage).head(0) == START + 10
    assert reopened().partition(0).head == START + 10


def test_a_head_that_is_behind_its_segments_is_written_again_when_the_log_is_opened(log: LogWriter, reopened: Reopen) -> None:
    """A process was killed between the two: readers would see less than the next writer continues from."""
    log.schema.publish(START + 5, [])
    log.schema.publish(START + 10, [])
    log.storage.replace("schema/head.json", b'{"resolved_ts": %d}' % (START + 5))
    assert LogReader(log.storage).schema_head() == START + 5
    again = reopened()
    assert again.schema.head == START + 10
    assert LogReader(again.storage).schema_head() == START + 10


def test_creating_a_log_twice_is_refused(log: LogWriter) -> None:
    log.close()
    with pytest.raises(LogError, match="already"):
        LogWriter.create(log.storage, IDENTITY)


def test_opening_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="not a change log"):
        LogWriter.open(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_log_of_another_cluster_or_shape_is_refused_by_name(log: LogWriter) -> None:
    log.close()
    place = log.storage
    LogWriter.open(place, cluster_id="7051", partitions=2, affinity=Affinity.TABLE, source=Source.TIKV).close()
    with pytest.raises(ClusterMismatch, match="7051, not of 9") as e:
        LogWriter.open(place, cluster_id="9")
    assert place.location in e.value.message
    with pytest.raises(LogError, match="partitions 2, not 4"):
        LogWriter.open(place, partitions=4)
    with pytest.raises(LogError, match="affinity table, not key"):
        LogWriter.open(place, affinity=Affinity.KEY)
    with pytest.raises(LogError, match="source tikv, not binlog"):
        LogWriter.open(place, source=Source.BINLOG)


def test_files_that_were_never_published_are_removed_by_the_owner(log: LogWriter, reopened: Reopen) -> None:
    place = log.storage
    place.replace("rows/0/.123-4.tmp", b"half")
    place.replace("feeds/.123-4.tmp", b"a feed's own business")
    place.replace(f"rows/0/{START:020d}-{START + 5:020d}.1of2.arrow", b"whatever")
    LogReader(place).chain(0, START, START)
    assert ".123-4.tmp" in place.names("rows/0")
    reopened()
    assert sorted(place.names("rows/0")) == ["head.json", "owner.json"] or sorted(place.names("rows/0")) == ["owner.json"]
    assert place.names("feeds") == [".123-4.tmp"]


def test_what_log_json_says_may_grow(log: LogWriter, reopened: Reopen) -> None:
    log.declare(split_tables=[71])
    assert LogReader(log.storage).identity.split_tables == (71,)
    assert reopened().identity.split_tables == (71,)


# ---- one writer


def test_a_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    with LogWriter.create(tmp_path / "log", IDENTITY):
        code = f"from tidemill.changelog.writer import LogWriter; LogWriter.open({str(tmp_path / 'log')!r})"
        second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert second.returncode != 0
        assert f"process {os.getpid()} on host {socket.gethostname()}" in second.stderr
        with pytest.raises(LogLocked, match=str(os.getpid())):
            LogWriter.open(tmp_path / "log")
    LogWriter.open(tmp_path / "log").close()


def test_a_writer_whose_epoch_is_over_publishes_nothing(log: LogWriter) -> None:
    log.partition(0).publish(START + 10, [])
    if log.storage.local:  # as if its lock was lost, which a network file system may do
        log.close()
    other = LogWriter.open(log.storage)
    before = sorted(log.storage.names("rows/0"))
    for attempt in (
        lambda: log.partition(0).publish(START + 20, [batch_of([put(7, 1, START + 11)])]),
        lambda: log.partition(0).set_head(START + 20),
        lambda: log.schema.publish(START + 20, []),
        lambda: log.schema.snapshot(START, {}),
        lambda: log.declare(split_tables=[1]),
    ):
        with pytest.raises(LogFenced, match="epoch 2"):
            attempt()
    assert sorted(log.storage.names("rows/0")) == before
    other.partition(0).publish(START + 30, [])
    assert LogReader(log.storage).identity == IDENTITY


def test_an_owner_file_that_is_gone_fences_too(log: LogWriter) -> None:
    log.storage.delete("rows/1/owner.json")
    with pytest.raises(LogFenced, match=r"owner\.json is gone"):
        log.partition(1).publish(START + 5, [])
    log.partition(0).publish(START + 5, [])


def test_epochs_rise(log: LogWriter, reopened: Reopen) -> None:
    again = reopened()
    assert again.ownership.epoch("rows/0") == 2
    data = log.storage.read("rows/0/owner.json")
    assert data is not None
    assert json.loads(data) == {"epoch": 2, "writer": again.ownership.writer}


def test_a_broken_chain_is_not_written_on(log: LogWriter, reopened: Reopen) -> None:
    for end in (10, 20, 30):
        log.partition(0).publish(START + end, [])
    log.storage.delete(f"rows/0/{START + 10:020d}-{START + 20:020d}.arrow")
    with pytest.raises(LogCorrupt, match="nothing holds"):
        reopened()


# ---- disks


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    log = LogWriter.create(tmp_path, IDENTITY)
    good = put(7, 1, START + 1)
    log.partition(0).publish(START + 10, [batch_of([good])])
    before = sorted(p.name for p in (tmp_path / "rows" / "0").iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(DiskLow, match="nothing was published"):
            log.partition(0).publish(START + 20, [batch_of([put(7, h, START + 12, bytes(1 << 18)) for h in range(16)])])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(p.name for p in (tmp_path / "rows" / "0").iterdir()) == before
    assert log.partition(0).last_to == START + 10
    log.partition(0).publish(START + 20, [batch_of([put(7, 2, START + 12)])])
    assert read_changes(tmp_path, 0) == [good, put(7, 2, START + 12)]


class _NoRoomForHeads(LocalStorage):
    full = False

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        if self.full and name.endswith("head.json"):
            raise DiskLow("no room for a head")
        super().replace(name, data, durable=durable)


def test_a_segment_whose_head_could_not_be_written_counts_all_the_same(tmp_path: Path) -> None:
    place = _NoRoomForHeads(tmp_path)
    log = LogWriter.create(place, IDENTITY)
    place.full = True
    with pytest.raises(DiskLow):
        log.partition(0).publish(START + 10, [batch_of([put(7, 1, START + 1)])])
    assert log.partition(0).last_to == START + 10
    place.full = False
    log.close()
    assert LogWriter.open(place).partition(0).head == START + 10


# ---- what a crash of the machine leaves


@pytest.mark.parametrize("left", [b"", b"\0\0\0", None, b'{"resolved_ts": %d}' % (START + 3)], ids=["empty", "zeros", "gone", "old"])
def test_what_was_synced_outlives_heads_that_were_not(tmp_path: Path, left: bytes | None) -> None:
    with LogWriter.create(LocalStorage(tmp_path, sync=False), IDENTITY, snapshot=TABLES) as log:
        writers = (log.schema, log.partition(0), log.partition(1))
        log.partition(0).publish(START + 5, [batch_of([put(7, 1, START + 1)])])
        for writer in writers:
            writer.set_head(START + 10)
        assert log.partition(0).synced_head == START + 5, "a segment is safe"
        assert log.sync_heads() == START + 10
        for writer in writers:
            writer.set_head(START + 20)
        assert [writer.synced_head for writer in writers] == [START + 10] * 3
    for head in tmp_path.glob("**/head.json"):
        if left is None:
            head.unlink()
        else:
            head.write_bytes(left)
    reader = LogReader(tmp_path)
    assert reader.resolved_ts() == (START + 3 if left is not None and b"resolved" in left else START + 10)
    assert [reader.durable_head(folder) for folder in ("schema", "rows/0", "rows/1")] == [START + 10] * 3
    assert verify(tmp_path).problems == []
    assert verify(tmp_path).resolved_ts == START + 10
    with LogWriter.open(LocalStorage(tmp_path, sync=False)) as log:
        assert log.resolved_ts == START + 10
        log.partition(0).publish(START + 30, [batch_of([put(7, 1, START + 12)])])
    assert [c.commit_ts for c in read_changes(tmp_path, 0)] == [START + 1, START + 12]


def test_a_request_that_is_written_while_a_writer_opens_the_log_gets_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that opens the log removes what dead ones left, and a living process's unfinished file with it."""
    LogWriter.create(LocalStorage(tmp_path, sync=False), IDENTITY, snapshot=TABLES).close()
    opened, write = 0, durable._write

    def asks(path: str, data: bytes, *, sync: bool, mode: int) -> None:
        nonlocal opened
        write(path, data, sync=sync, mode=mode)
        if not opened:
            opened = 1
            LogWriter.open(LocalStorage(tmp_path, sync=False)).close()

    monkeypatch.setattr(durable, "_write", asks)
    storage = LocalStorage(tmp_path, sync=False)
    storage.replace("growth.json", b"{}")
    assert (opened, storage.read("growth.json")) == (1, b"{}")
    assert [name for name in storage.names("") if name.endswith(".tmp")] == []
