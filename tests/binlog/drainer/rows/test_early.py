"""Rows that have columns of an ALTER TABLE with several actions, before its binlog comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from tests.support.binlog.blocks import block
from tests.support.binlog.drained import history, recorded
from tests.support.binlog.fake_pumps import BEGIN, TABLE, PumpWorld, inserted, kv, world
from tidemill.binlog.drainer.destination import Forms
from tidemill.binlog.drainer.rows import early
from tidemill.binlog.drainer.rows.early import is_published
from tidemill.binlog.drainer.rows.reading import Rows
from tidemill.binlog.drainer.schemas import Schemas, early_binlog
from tidemill.binlog.drainer.settings import DrainerSettings
from tidemill.binlog.messages import Binlog, BinlogType, MutationType, Prewritten, TableMutation
from tidemill.binlog.outputs import slave
from tidemill.binlog.outputs.transactions import DdlBinlog
from tidemill.binlog.source.reading import LogReading
from tidemill.changelog.spread import Layout
from tidemill.tidb import keys
from tidemill.tidb.datums import Datum, DatumFlag, encode_datum
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.job import DdlJob
from tidemill.wire import slave_binlog_pb2

ADDED = {"id": 2, "name": {"O": "b", "L": "b"}, "offset": 1, "state": 5, "type": {"Tp": 3, "Flag": 0, "Flen": 11}, "default": "3"}
AFTER = {**TABLE, "cols": [*TABLE["cols"], ADDED], "update_timestamp": BEGIN + 20}  # type: ignore[misc]
QUERY = "alter table test.t add column b int default 3, drop column old"
JOB = {
    "id": 60, "type": int(Action.MULTI_SCHEMA_CHANGE), "state": 6, "schema_id": 2, "table_id": 50, "schema_name": "test", "table_name": "t",
    "query": QUERY, "binlog": {"SchemaVersion": 9, "TableInfo": {**AFTER, "update_timestamp": BEGIN + 45}, "FinishedTS": BEGIN + 48},
    "multi_schema_info": {"sub_jobs": [
        {"type": int(Action.ADD_COLUMN), "state": 4, "schema_state": 5, "schema_version": 6},
        {"type": int(Action.DROP_COLUMN), "state": 4, "schema_state": 0, "schema_version": 9},
    ]},
}  # fmt: skip
VERSION = (keys.SCHEMA_VERSION_KEY, "5", BEGIN - 10)
PUBLIC = [(keys.SCHEMA_VERSION_KEY, "6", BEGIN + 20), (keys.table_key(2, 50), json.dumps(AFTER), BEGIN + 20)]
FILED = [
    (keys.SCHEMA_VERSION_KEY, "9", BEGIN + 45),
    (keys.meta_hash_field(keys.DDL_JOB_HISTORY, (60).to_bytes(8, "big")), json.dumps(JOB), BEGIN + 51),
]
DDL = Binlog(BinlogType.COMMIT, BEGIN + 48, BEGIN + 50, b"m", b"", QUERY.encode(), 60)


def meta(*more: tuple[bytes, str, int]) -> list[str]:
    return [*kv(), *(json.dumps({"key_hex": key.hex(), "value_text": text, "commit_ts": ts}) for key, text, ts in (VERSION, *more))]


def row(commit_ts: int, number: int, version: int, b: int | None = None) -> Binlog:
    """An insert by a transaction of this schema version."""
    datums = (1, number) if b is None else (1, number, 2, b)
    values = b"".join(encode_datum(Datum(DatumFlag.VARINT, one)) for one in datums[1:]) + (b"\0" if b is None else b"")
    mutation = TableMutation(50, inserted=(values,), sequence=(MutationType.INSERT,))
    return Binlog(BinlogType.COMMIT, commit_ts - 1, commit_ts, b"k", Prewritten(version, (mutation,)).encode())


BINLOGS = (row(BEGIN + 10, 1, 5), row(BEGIN + 30, 2, 6, 7), row(BEGIN + 35, 3, 6, 8), DDL, row(BEGIN + 70, 4, 9, 9))


def run(test: Callable[[PumpWorld], object], folder: Path, lines: list[str]) -> None:
    async def whole() -> None:
        async with world(folder, PumpWorld, meta=lines) as made:
            await test(made)  # type: ignore[misc]

    asyncio.run(whole())


async def read(reading: Any, *binlogs: Binlog) -> list[Any]:
    """What binlogs deliver, each kept until it is looked at."""
    found, rest = [], block(*binlogs)
    while len(rest):
        some = await reading.read(rest)
        found += some.entries
        rest = rest.part(some.count)
    return found


def told(entry: Any) -> tuple[int, Any]:
    """Commit ts after BEGIN, and what a DDL says or the values of a row."""
    if isinstance(entry, DdlBinlog):
        return entry.commit_ts - BEGIN, entry.ddl.query
    message = slave_binlog_pb2.Binlog.FromString(slave.encode(entry, UTC))
    (table,) = message.dml_data.tables
    return entry.commit_ts - BEGIN, tuple(one.int64_value for one in table.mutations[0].row.columns)


PRINTED = "ALTER TABLE `test`.`t` ADD COLUMN `b` INT DEFAULT 3, DROP COLUMN `old`;"
WANTED = [(10, (1,)), (29, PRINTED), (30, (2, 7)), (35, (3, 8)), (70, (4, 9))]


ROW_BY_ROW = DrainerSettings(relay_dir="/relay")


async def form(w: PumpWorld, settings: DrainerSettings, ts: int = BEGIN, version: int = 5) -> Any:
    return Forms(settings).reading(await Schemas.at(w.pd, ts, lambda what: None, version))


def test_the_ddl_is_delivered_before_the_first_row_that_has_its_column_and_not_again(tmp_path: Path) -> None:
    async def test(w: PumpWorld) -> None:
        found = await read(await form(w, ROW_BY_ROW), *BINLOGS)
        assert [told(one) for one in found] == WANTED

    run(test, tmp_path, meta(*PUBLIC, *FILED))


def test_in_batches_the_ddl_stands_between_rows_of_both_versions(tmp_path: Path) -> None:
    async def test(w: PumpWorld) -> None:
        found = await read(await form(w, DrainerSettings()), *BINLOGS)
        assert [type(one).__name__ for one in found] == ["Rows", "DdlBinlog", "Rows", "Rows"]
        before, ddl, window, after = found
        assert isinstance(before, Rows)
        assert [len(one.tables[50].info.columns) for one in (before, window, after)] == [1, 2, 2]
        assert [ts - BEGIN for ts in window.batches[0].column("commit_ts").to_pylist()] == [30, 35]
        assert told(ddl) == (29, PRINTED)

    run(test, tmp_path, meta(*PUBLIC, *FILED))


def test_a_change_log_has_the_job_before_these_rows_and_only_once(tmp_path: Path) -> None:
    async def test(w: PumpWorld) -> None:
        schemas = await Schemas.at(w.pd, BEGIN, lambda what: None)
        found = await read(LogReading(schemas, lambda version: True, lambda: Layout(0, 4)), *BINLOGS)
        assert [(row.commit_ts - BEGIN, row.value) for entry in found for row in entry.schema] == [(29, json.dumps(JOB).encode())]
        stamps = [ts - BEGIN for entry in found for _, batch in entry.changes for ts in batch.column("commit_ts").to_pylist()]
        assert stamps == [10, 30, 35, 70]

    run(test, tmp_path, meta(*PUBLIC, *FILED))


def test_rows_of_states_that_users_do_not_see_wait_for_nothing(tmp_path: Path) -> None:
    hidden = {**AFTER, "cols": [*TABLE["cols"], {**ADDED, "state": 3}]}  # type: ignore[misc]

    async def test(w: PumpWorld) -> None:
        found = await read(await form(w, ROW_BY_ROW), row(BEGIN + 30, 2, 6, 3), row(BEGIN + 35, 3, 6))
        assert [told(one) for one in found] == [(30, (2,)), (35, (3,))]

    run(test, tmp_path, meta((keys.table_key(2, 50), json.dumps(hidden), BEGIN + 20)))


def test_a_job_that_is_not_done_is_waited_for_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "RETRY_S", 0.01)
    monkeypatch.setattr(early, "MOST_S", 0.05)
    waits: list[str | None] = []

    async def test(w: PumpWorld) -> None:
        schemas = await Schemas.at(w.pd, BEGIN, waits.append)
        found = await read(Forms(ROW_BY_ROW).reading(schemas), row(BEGIN + 30, 2, 6, 7))
        assert [told(one) for one in found] == [(30, (2,))]
        assert "test.t" in (waits[0] or "")
        assert waits[-1] is None

    run(test, tmp_path, meta(*PUBLIC))


@pytest.mark.parametrize(
    ("begin", "version", "want"),
    [
        (25, 5, WANTED[1:]),  # the column was public, its DDL not delivered
        (32, 9, WANTED[3:]),  # its DDL was delivered early
        (49, 5, [(50, QUERY), WANTED[-1]]),  # no row needed it early
        (60, 9, WANTED[-1:]),
    ],
)
def test_a_restart_between_both_goes_on_with_what_was_delivered(tmp_path: Path, begin: int, version: int, want: list[Any]) -> None:
    created = {
        "id": 55, "type": int(Action.CREATE_TABLE), "state": 6, "schema_id": 2, "table_id": 50, "schema_name": "test", "query": "",
        "binlog": {"SchemaVersion": 5, "TableInfo": {**TABLE, "update_timestamp": BEGIN - 20}, "FinishedTS": BEGIN - 20},
    }  # fmt: skip
    filed = (keys.meta_hash_field(keys.DDL_JOB_HISTORY, (55).to_bytes(8, "big")), json.dumps(created), BEGIN - 10)

    async def test(w: PumpWorld) -> None:
        reading = await form(w, ROW_BY_ROW, BEGIN + begin, version)
        found = await read(reading, *(binlog for binlog in BINLOGS if binlog.commit_ts > BEGIN + begin))
        assert [told(one) for one in found] == want

    run(test, tmp_path, meta(filed, *PUBLIC, *FILED))


def test_where_tikv_has_collected_the_table_the_parts_of_the_job_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def collected(*_: Any) -> None:
        return None

    monkeypatch.setattr(early, "_table_at", collected)

    async def test(w: PumpWorld) -> None:
        found = await read(await form(w, ROW_BY_ROW), row(BEGIN + 5, 0, 5), *BINLOGS)
        assert [told(one) for one in found] == [(5, (0,)), *WANTED]

    run(test, tmp_path, meta(*PUBLIC, *FILED))


def test_a_table_that_did_not_change_is_asked_for_once_in_a_schema_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = early._table_at

    async def counted(pd: Any, known: Any, ts: int) -> Any:
        asked.append(ts - BEGIN)
        return await real(pd, known, ts)

    monkeypatch.setattr(early, "_table_at", counted)

    async def test(w: PumpWorld) -> None:
        for settings in (ROW_BY_ROW, DrainerSettings()):
            await read(await form(w, settings), inserted(BEGIN + 1, 1), *(row(BEGIN + n, n, 6 + n // 5) for n in range(2, 9)))

    run(test, tmp_path, meta())
    assert asked == [2, 5, 2, 5]


def test_when_recorded_jobs_made_their_columns_public() -> None:
    jobs = history()
    added, mixed = (DdlJob.parse(jobs[number]) for number in (244, 245))
    assert [is_published(added, version) for version in (225, 226)] == [False, True]
    assert [is_published(mixed, version) for version in (235, 236, 239)] == [False, True, True]
    assert not is_published(DdlJob.parse(jobs[282]), 303)  # it failed, and adds no column


def test_early_ddls_read_as_their_binlogs_do() -> None:
    jobs = {number: DdlJob.parse(text) for number, text in history().items()}
    several = {number for number, job in jobs.items() if job.action == Action.MULTI_SCHEMA_CHANGE}
    made = {one.ddl_job_id: one.ddl_query for case in recorded() for one in case.binlogs if one.ddl_job_id in several}
    assert made
    assert {number: early_binlog(jobs[number], BEGIN).ddl_query for number in made} == made
