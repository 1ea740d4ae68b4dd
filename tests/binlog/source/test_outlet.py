"""What a Drainer writes into a change log: whole, once, in order, whatever comes between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.binlog.blocks import block
from tests.support.binlog.sample_rows import name, number
from tidemill.binlog.blocks import plain_memory
from tidemill.binlog.drainer.rows import batching
from tidemill.binlog.drainer.rows.batching import Batcher, KnownTable, KnownTables, batched
from tidemill.binlog.drainer.savepoint import Position
from tidemill.binlog.messages import Binlog, BinlogType, MutationType, Prewritten, TableMutation
from tidemill.binlog.records import Record
from tidemill.binlog.source import outlet as outlet_module
from tidemill.binlog.source.outlet import LogOutlet
from tidemill.binlog.source.reading import LogEntry, SchemaRow
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.spread import PARTITION_BY, Layout, partition_of
from tidemill.changelog.storage.retry import StorageRetry
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter
from tidemill.errors import DiskLow, LogError, LogUnavailable
from tidemill.kernels.binlog.layout import T_NUMBER
from tidemill.tidb.keys import DDL_JOB_HISTORY, meta_hash_field, record_key

BEGIN = 1000
PARTITIONS = 3


def opened(folder: Path) -> LogOutlet:
    if (folder / "log" / "log.json").exists():
        return LogOutlet(LogWriter.open(folder / "log"), StorageRetry())
    identity = LogIdentity("1", BEGIN, PARTITIONS, partition_by=PARTITION_BY)
    return LogOutlet(LogWriter.create(folder / "log", identity, snapshot={}), StorageRetry())


def rows_of(*changes: tuple[int, int], ts: int, value: bytes | None = b"v") -> LogEntry:
    """A transaction of rows (table, handle)."""
    tables = {
        KnownTable(table, table, T_NUMBER): [Record(record_key(table, handle), None if value else b"old", value)]
        for table, handle in changes
    }
    return LogEntry(ts, batched(ts - 1, ts, tables, Layout(BEGIN, PARTITIONS)))


def logged(folder: Path) -> list[tuple[int, int, bytes]]:
    """(commit ts, table, key) of all rows."""
    reader = LogReader(folder / "log")
    found = []
    for partition in range(reader.partitions):
        for interval in reader.chain(partition, reader.start_ts, reader.resolved_ts()):
            for path in interval.parts:
                for row in reader.open_segment(path).read_all().to_pylist():
                    assert partition_of(row["table_id"], PARTITIONS) == partition
                    found.append((row["commit_ts"], row["table_id"], row["key"]))
    assert {one.text.partition("which")[2] for one in verify(str(folder / "log")).problems} <= {" the schema history does not know"}
    return sorted(found)


ENTRIES = [rows_of((1, 1), (2, 1), (3, 1), (4, 1), ts=1010), rows_of((2, 2), (4, 2), ts=1020), rows_of((1, 1), ts=1030, value=None)]
ALL = sorted((e.commit_ts, row["table_id"], row["key"]) for e in ENTRIES for _, batch in e.changes for row in batch.to_pylist())


def large_of(*tables: int, ts: int, start_ts: int, rows: int) -> LogEntry:
    """A large transaction of so many rows of each table."""
    known = KnownTables()
    for table in tables:
        known.add(KnownTable(table, table, T_NUMBER))
    inserts = tuple(number(handle) + name(b"text") for handle in range(rows))
    mutations = tuple(TableMutation(table, inserted=inserts, sequence=(MutationType.INSERT,) * rows) for table in tables)
    binlogs = block(Binlog(BinlogType.COMMIT, start_ts, ts, b"k", Prewritten(1, mutations).encode()))
    layout = Layout(BEGIN, PARTITIONS)
    found = Batcher(in_pieces=True).read(binlogs, 0, known, layout)
    assert found.large is not None
    assert len(found.large) > 5
    return LogEntry(ts, large=found.large.by_partition(known, layout, plain_memory))


@pytest.mark.parametrize("published", [1, PARTITIONS + 1])
def test_a_large_transaction_is_written_piece_by_piece_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: int
) -> None:
    """Beside others, some of the same commit ts, and with a crash after one folder."""
    monkeypatch.setattr(batching, "LARGE_BYTES", 0)
    monkeypatch.setattr(batching, "PIECE_ROWS", 7)
    monkeypatch.setattr(outlet_module, "MOST_WAITING", 60)
    late = rows_of((1, 500), (2, 500), ts=1020)
    entries = [rows_of((1, 1), (3, 1), ts=1010), late, large_of(1, 2, 3, 4, ts=1020, start_ts=1000, rows=20), rows_of((4, 600), ts=1030)]
    outlet = opened(tmp_path)
    outlet.write(entries)
    for folder in range(published - 1):
        outlet._publish_one(outlet.writer.partition(folder), 1025)
    outlet.close()  # what was not published is gone
    again = opened(tmp_path)
    again.write(entries)
    again.save(Position(1040))
    again.close()
    found = logged(tmp_path)
    assert len(found) == len(set(found)) == 2 + 2 + 80 + 1
    assert [key for ts, table, key in found if (ts, table) == (1020, 3)] == [record_key(3, handle) for handle in range(20)]
    assert again.resolved_ts == 1040


def test_rows_go_to_the_partitions_of_their_tables(tmp_path: Path) -> None:
    outlet = opened(tmp_path)
    outlet.write(ENTRIES)
    assert outlet.resolved_ts == BEGIN
    outlet.save(Position(1040))
    assert (outlet.load(), outlet.rows, outlet.writer.schema.head) == (Position(1040), len(ALL), 1040)
    outlet.close()
    assert logged(tmp_path) == ALL


@pytest.mark.parametrize("published", range(PARTITIONS + 1))
def test_a_crash_between_the_folders_loses_and_doubles_nothing(tmp_path: Path, published: int) -> None:
    outlet = opened(tmp_path)
    outlet.write(ENTRIES)
    for partition in range(published):
        outlet._publish_one(outlet.writer.partition(partition), 1020)
    outlet.close()
    again = opened(tmp_path)
    assert again.load() == Position(BEGIN)
    again.write(ENTRIES)
    again.save(Position(1040))
    again.close()
    assert logged(tmp_path) == ALL


def test_many_rows_are_published_up_to_the_ts_that_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet_module, "MOST_WAITING", 60)
    outlet = opened(tmp_path)
    outlet.write([rows_of((1, handle), ts=1010) for handle in range(9)])
    assert outlet.resolved_ts == 1009  # more of this ts may come
    outlet.write([rows_of((1, 9), ts=1010), rows_of((1, 1), ts=1011)])
    assert outlet.resolved_ts == 1010
    outlet.save(Position(1011))
    outlet.close()
    assert len(logged(tmp_path)) == 11


@pytest.mark.parametrize("error", [DiskLow("no room"), LogUnavailable("away")])
def test_a_storage_that_takes_nothing_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(outlet_module, "ROOM_S", 0.001)
    monkeypatch.setattr("tidemill.changelog.storage.retry.FIRST_S", 0.001)
    outlet, refused = opened(tmp_path), [error, error]
    publish = outlet._publish_one

    def reluctant(*given: object) -> None:
        if refused:
            raise refused.pop()
        publish(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(LogOutlet, "_publish_one", lambda self, *given: reluctant(*given))
    outlet.write(ENTRIES)
    outlet.save(Position(1040))
    outlet.close()
    assert (outlet.paused, logged(tmp_path)) == ("", ALL)


@pytest.mark.parametrize("error", [DiskLow("no room"), LogUnavailable("away")])
def test_at_the_end_nothing_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    outlet = opened(tmp_path)
    asked = threading.Event()

    def never(self: LogOutlet, *given: object) -> None:
        asked.set()
        raise error

    work: Callable[..., None] = never
    monkeypatch.setattr(LogOutlet, "_publish_one", work)
    outlet.write(ENTRIES)
    saving = threading.Thread(target=outlet.save, args=(Position(1040),), daemon=True)
    saving.start()
    assert asked.wait(60)
    outlet.end()
    saving.join(60)
    assert not saving.is_alive()
    outlet.close()
    assert opened(tmp_path).load() == Position(BEGIN)


def test_a_description_that_the_head_has_passed_is_an_error_and_a_repeated_one_is_none(tmp_path: Path) -> None:
    """It stands right below the rows that need it; the position saved before may be that ts."""

    def altered(ts: int, job: int) -> list[LogEntry]:
        key = meta_hash_field(DDL_JOB_HISTORY, job.to_bytes(8, "big"))
        return [LogEntry(ts, schema=(SchemaRow(ts - 1, ts - 2, key, b"{}"),)), rows_of((1, 1), ts=ts)]

    outlet = opened(tmp_path)
    outlet.write(altered(BEGIN + 10, 1))
    outlet.save(Position(BEGIN + 10))
    outlet.write(altered(BEGIN + 10, 1))
    with pytest.raises(LogError, match="need a table's description before them"):
        outlet.write(altered(BEGIN + 11, 2))
    outlet.close()
    assert LogReader(tmp_path / "log").read_schema(BEGIN, BEGIN + 10).num_rows == 1
