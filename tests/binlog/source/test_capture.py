"""Binlogs become a change log: the rows and DDLs that a capture of TiKV would have written."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from tests.support.binlog.binlogs import until
from tests.support.binlog.drained import RecordedSchemas, history, meta_of, recorded, with_fillers
from tests.support.binlog.fake_pumps import BEGIN, TABLE, PumpWorld, inserted, kv, world
from tidemill.binlog.drainer import pulling
from tidemill.binlog.drainer.entries import Reading
from tidemill.binlog.drainer.rows import batching, spill
from tidemill.binlog.filters import IGNORED_SCHEMAS, Filter
from tidemill.binlog.messages import Binlog, BinlogType, MutationType, Prewritten, TableMutation, fake
from tidemill.binlog.nodes import NodeKind, NodeState
from tidemill.binlog.outputs.transactions import Transaction
from tidemill.binlog.rows import Cells
from tidemill.binlog.source.capture import BinlogCapture
from tidemill.capture.config import CaptureConfig
from tidemill.capture.tikv.feed import http2
from tidemill.capture.tikv.receive import memory
from tidemill.changelog.history import load_history
from tidemill.changelog.log_format import Source
from tidemill.changelog.reader import LogReader
from tidemill.changelog.verify import verify
from tidemill.errors import LogError, SchemaError
from tidemill.tidb import keys
from tidemill.tidb.datums import Datum, DatumFlag, encode_datum
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.cells import Cell
from tidemill.tidb.rows.reader import RowReader
from tidemill.tidb.schema.codes import Action

AGE_MS = 100 * 365 * 24 * 3_600_000
"""Recorded binlogs are old: they have to stay in the log."""


def capture(w: PumpWorld, begin: int = BEGIN, **more: Any) -> BinlogCapture:
    address = w.playground.pd_address
    config = CaptureConfig((address,), str(w.folder / "log"), start_ts=str(begin), retention_ms=AGE_MS, data_dir=w.folder / "data", **more)
    return BinlogCapture(config, "127.0.0.1:0")


@asynccontextmanager
async def running(made: BinlogCapture) -> AsyncIterator[BinlogCapture]:
    task = asyncio.ensure_future(made.run())
    try:
        await until(lambda: (made.drainer is not None and made.drainer.alive) or task.done())
        yield made
        made.stop()
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def run(test: Callable[[PumpWorld], object], folder: Path, meta: Iterable[str] | None = None) -> None:
    async def whole() -> None:
        async with world(folder, PumpWorld, meta) as made:
            await test(made)  # type: ignore[misc]

    asyncio.run(whole())


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of all partitions, in commit order."""
    reader = LogReader(folder / "log")
    found = []
    for partition in range(reader.partitions):
        for interval in reader.chain(partition, reader.start_ts, reader.resolved_ts()):
            for path in interval.parts:
                found += reader.open_segment(path).read_all().to_pylist()
    return sorted(found, key=lambda row: (row["commit_ts"], row["key"]))


def test_two_pumps_make_one_log_and_a_restart_goes_on_at_its_end(tmp_path: Path) -> None:
    async def test(w: PumpWorld) -> None:
        one = await w.pump("p1", inserted(BEGIN + 10, 1), inserted(BEGIN + 40, 4), fake(BEGIN + 50))
        two = await w.pump("p2", inserted(BEGIN + 20, 2), fake(BEGIN + 60))
        async with running(capture(w)) as made:
            await until(lambda: made.outlet is not None and made.outlet.resolved_ts == BEGIN + 50)
            assert made.drainer is not None
            node_id = made.drainer.node_id
            node = await w.registry.get(NodeKind.DRAINER, node_id)
            assert node is not None
            assert (node.state, node.host) == (NodeState.ONLINE, made.drainer.address)
        assert one.asked == two.asked == [BEGIN]
        one.give(inserted(BEGIN + 70, 7), fake(BEGIN + 80))
        two.give(fake(BEGIN + 90))
        async with running(capture(w)) as made:
            await until(lambda: made.outlet is not None and made.outlet.resolved_ts == BEGIN + 80)
            assert made.drainer is not None
            assert made.drainer.node_id == node_id
            assert made.status.as_dict()["state"] == "running"
            assert made._look()["binlog"]["PumpPos"] == {"p1": BEGIN + 80, "p2": BEGIN + 90}
        node = await w.registry.get(NodeKind.DRAINER, node_id)
        assert node is not None
        assert (node.state, node.max_commit_ts) == (NodeState.PAUSED, BEGIN + 80)
        assert one.asked == [BEGIN, BEGIN + 50]
        found = rows_of(tmp_path)
        assert [(row["commit_ts"] - BEGIN, row["key"], row["old_value"]) for row in found] == [
            (ts, record_key(50, handle), None) for ts, handle in ((10, 1), (20, 2), (40, 4), (70, 7))
        ]
        report = verify(str(tmp_path / "log"))
        assert report.is_whole, report.problems
        assert LogReader(tmp_path / "log").identity.source is Source.BINLOG
        status = json.loads((tmp_path / "data" / "status.json").read_text())
        assert (status["state"], status["resolved_ts"], status["error"]) == ("stopped", BEGIN + 80, None)

    run(test, tmp_path)


def test_a_large_transaction_that_finds_a_full_disk_is_pulled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "OUT", 64 << 10)
    monkeypatch.setattr(memory, "BUFFER", 64 << 10)
    monkeypatch.setattr(spill, "LEAST", 128 << 10)
    monkeypatch.setattr(batching, "LARGE_BYTES", 128 << 10)
    monkeypatch.setattr(batching, "PIECE_ROWS", 1000)
    monkeypatch.setattr(batching, "FIRST_STEPS", 1000)
    monkeypatch.setattr(batching, "FIRST_KEYS", 64 << 10)
    monkeypatch.setattr(pulling, "RETRY_S", 0.02)
    take, full = spill._reserved, [True]

    def reserved(handle: int, size: int) -> bool:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return take(handle, size)

    monkeypatch.setattr(spill, "_reserved", reserved)
    rows = tuple(encode_datum(Datum(DatumFlag.VARINT, row)) + b"\0" for row in range(20_000))
    mutation = TableMutation(50, inserted=rows, sequence=(MutationType.INSERT,) * len(rows))
    large = Binlog(BinlogType.COMMIT, BEGIN + 19, BEGIN + 20, b"k", Prewritten(1, (mutation,)).encode())

    async def test(w: PumpWorld) -> None:
        await w.pump("p1", inserted(BEGIN + 10, 1), large, inserted(BEGIN + 30, 3), fake(BEGIN + 50))
        async with running(capture(w)) as made:
            assert made.drainer is not None
            assert made.outlet is not None
            await until(lambda: "has no room for" in made.drainer.status()["Problems"].get("p1", ""))
            assert made.outlet.resolved_ts < BEGIN + 20
            full.clear()
            await until(lambda: made.outlet.resolved_ts == BEGIN + 50)

    run(test, tmp_path)
    found = [(row["commit_ts"] - BEGIN, row["key"]) for row in rows_of(tmp_path)]
    assert found == [(10, record_key(50, 1)), *((20, record_key(50, row)) for row in range(20_000)), (30, record_key(50, 3))]
    assert verify(str(tmp_path / "log")).is_whole


def test_a_table_that_no_ddl_told_of_is_described_before_its_rows(tmp_path: Path) -> None:
    later = {"key_hex": keys.table_key(2, 60).hex(), "value_text": json.dumps({**TABLE, "id": 60, "name": {"O": "u", "L": "u"}})}

    async def test(w: PumpWorld) -> None:
        await w.pump("p1", inserted(BEGIN + 20, 1, table_id=60), inserted(BEGIN + 30, 2, table_id=60), fake(BEGIN + 50))
        async with running(capture(w)) as made:
            await until(lambda: made.outlet is not None and made.outlet.resolved_ts == BEGIN + 50)

    run(test, tmp_path, [*kv(), json.dumps({**later, "commit_ts": BEGIN + 5})])
    schemas = load_history(LogReader(tmp_path / "log"))
    found = [(row["commit_ts"] - BEGIN, schemas.snapshot(row["commit_ts"] - 1).by_physical[60].table) for row in rows_of(tmp_path)]
    assert found == [(20, "u"), (30, "u")]
    assert verify(str(tmp_path / "log")).is_whole


def test_a_database_that_comes_back_is_in_the_log_with_its_tables(tmp_path: Path) -> None:
    """The job of FLASHBACK DATABASE names no tables."""
    info = {"id": 7, "db_name": {"O": "back", "L": "back"}, "charset": "utf8mb4", "collate": "utf8mb4_bin", "state": 5}
    query = "FLASHBACK DATABASE back"
    job = {
        "id": 20, "type": int(Action.RECOVER_SCHEMA), "state": 6, "schema_id": 7, "schema_name": "back", "query": query,
        "binlog": {"SchemaVersion": 20, "DBInfo": info, "FinishedTS": BEGIN + 19},
    }  # fmt: skip
    pairs = (
        (keys.db_key(7), info),
        (keys.table_key(7, 70), {**TABLE, "id": 70}),
        (keys.meta_hash_field(keys.DDL_JOB_HISTORY, (20).to_bytes(8, "big")), job),
    )
    meta = [json.dumps({"key_hex": key.hex(), "value_text": json.dumps(value), "commit_ts": BEGIN + 19}) for key, value in pairs]
    ddl = Binlog(BinlogType.COMMIT, BEGIN + 19, BEGIN + 20, b"m", b"", query.encode(), 20)

    async def test(w: PumpWorld) -> None:
        await w.pump("p1", inserted(BEGIN + 10, 1), ddl, inserted(BEGIN + 30, 2, table_id=70), fake(BEGIN + 50))
        async with running(capture(w)) as made:
            await until(lambda: made.outlet is not None and made.outlet.resolved_ts == BEGIN + 50)

    run(test, tmp_path, [*kv(), *meta])
    schemas = load_history(LogReader(tmp_path / "log"))
    assert schemas.snapshot(BEGIN + 29).by_physical[70].name == ("back", "t")
    assert [row["commit_ts"] - BEGIN for row in rows_of(tmp_path)] == [10, 30]
    assert verify(str(tmp_path / "log")).is_whole


def test_a_table_that_nobody_knows_ends_the_capture_and_leaves_the_log_whole(tmp_path: Path) -> None:
    async def test(w: PumpWorld) -> None:
        await w.pump("p1", inserted(BEGIN + 20, 1), inserted(BEGIN + 30, 2, table_id=99), fake(BEGIN + 50))
        made = capture(w)
        with pytest.raises(SchemaError, match="table 99"):
            async with running(made):
                await until(lambda: made.drainer is None or not made.drainer.alive)
        status = json.loads((tmp_path / "data" / "status.json").read_text())
        assert status["state"] == "failed"
        assert "table 99" in status["error"]["message"]

    run(test, tmp_path)
    assert verify(str(tmp_path / "log")).is_whole


def test_a_log_of_binlogs_is_not_one_of_tikv(tmp_path: Path) -> None:
    async def test(w: PumpWorld) -> None:
        await w.pump("p1", fake(BEGIN + 50))
        async with running(capture(w)):
            pass
        path = tmp_path / "log" / "log.json"
        path.write_text(path.read_text().replace('"binlog"', '"tikv"'))
        with pytest.raises(LogError, match="created with source tikv, not binlog"):
            async with running(capture(w)):
                pass

    run(test, tmp_path)


Tables = dict[tuple[str, str], dict[tuple[Cell, ...], int]]


def _bag(tables: Tables, name: tuple[str, str], cells: tuple[Cell, ...], more: int) -> None:
    bag = tables.setdefault(name, {})
    bag[cells] = bag.get(cells, 0) + more
    if not bag[cells]:
        del bag[cells]


def test_recorded_binlogs_leave_the_rows_that_the_drainer_reads(tmp_path: Path) -> None:
    """Every recorded transaction is one of the log with the same rows before and after it, read with the log's own schemas."""
    jobs = history()
    binlogs = with_fillers([binlog for case in recorded() for binlog in case.binlogs], jobs)
    begin, end = binlogs[0].commit_ts - 100, binlogs[-1].commit_ts + 10

    async def test(w: PumpWorld) -> None:
        await w.pump("p1", *binlogs, Binlog(BinlogType.ROLLBACK, end, end))
        async with running(capture(w, begin, partitions=3)) as made:
            await until(lambda: made.outlet is not None and made.outlet.resolved_ts == end, 60.0)

    run(test, tmp_path, meta_of(jobs, begin))
    reader = LogReader(tmp_path / "log")
    schemas = load_history(reader)
    got: dict[int, Tables] = {}
    for row in rows_of(tmp_path):
        version = schemas.snapshot(row["commit_ts"] - 1).by_physical[row["table_id"]]
        cells = RowReader(version.info, UTC)
        tables = got.setdefault(row["commit_ts"], {})
        for image, more in ((row["old_value"], -1), (row["value"], 1)):
            if image is not None:
                _bag(tables, version.name, cells.read(row["key"], image), more)
    want = asyncio.run(_drained(binlogs, jobs))
    assert {ts: tables for ts, tables in got.items() if any(tables.values())} == {ts: t for ts, t in want.items() if any(t.values())}
    assert sum(len(bag) for tables in want.values() for bag in tables.values()) > 300
    assert len(schemas.ddl_events(reader.start_ts, reader.resolved_ts())) > 100


async def _drained(binlogs: list[Binlog], jobs: dict[int, bytes]) -> dict[int, Tables]:
    """What each transaction takes away from its tables and adds to them, as the Drainer of TiDB-Binlog's forms reads it."""
    reading = Reading(RecordedSchemas(jobs), Filter(IGNORED_SCHEMAS, (), (), ()), frozenset())
    found: dict[int, Tables] = {}
    for binlog in binlogs:
        entry = await reading.entry(binlog)
        if not isinstance(entry, Transaction):
            continue
        tables = found.setdefault(entry.commit_ts, {})
        for table in entry.tables:
            info, cells = table.version.info, Cells(table.version.info, UTC)
            for row in table.rows:
                for image, more in ((row.old, -1), (row.new, 1)):
                    if image is not None:
                        _bag(tables, table.version.name, tuple(cells.of(column, image) for column in info.output_columns), more)
    return found
