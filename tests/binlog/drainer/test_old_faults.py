"""Faults of the real Drainer that users reported: ours goes on where that one ended, was wrong, or grew. ../FAULTS.md lists them."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from tests.support.binlog.blocks import block
from tests.support.binlog.drained import RecordedSchemas, drained, recorded
from tests.support.binlog.fake_pumps import BEGIN, TABLE, PumpWorld, inserted, kv, world
from tests.support.binlog.made import MADE, ddl, outlet
from tests.support.binlog.made import inserted as inserted_rows
from tests.support.servers.mariadb import MariaDb
from tidemill.binlog.drainer import schemas as schemas_module
from tidemill.binlog.drainer.destination import Forms
from tidemill.binlog.drainer.schemas import Schemas
from tidemill.binlog.drainer.settings import DrainerSettings
from tidemill.binlog.filters import TableName
from tidemill.binlog.messages import Binlog, BinlogType, MutationType, Prewritten, TableMutation
from tidemill.binlog.outputs import pb, slave
from tidemill.binlog.outputs.transactions import DdlBinlog, TableChanges, Transaction
from tidemill.binlog.rows import RowChange
from tidemill.errors import SinkError
from tidemill.tidb import keys
from tidemill.tidb.datums import Datum, DatumFlag, decode_datum, encode_datum
from tidemill.tidb.rows.write import format_1_datum, plain_from_cell
from tidemill.tidb.schema.codes import Action, JobState
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.wire import pb_binlog_pb2, slave_binlog_pb2

FORMS = [{"db_type": "file"}, {"db_type": "mysql"}, {"db_type": "mysql", "relay_dir": "/relay"}]
"""Rows for messages, for a database, and one by one."""


def job(number: int, query: str, info: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    """A done job of table 50 in the database 2, as TiDB files it."""
    told = {"SchemaVersion": number, "FinishedTS": BEGIN + number, **({"TableInfo": info} if info else {})}
    made = {"id": number, "type": int(Action.ADD_COLUMN), "state": int(JobState.SYNCED), "schema_id": 2, "table_id": 50}
    return {**made, "schema_name": "test", "query": query, "binlog": told, **more}


def binlog_of(made: dict[str, Any]) -> Binlog:
    """The binlog of a job, which has its id as the commit ts."""
    number = made["id"]
    return Binlog(BinlogType.COMMIT, BEGIN + number - 1, BEGIN + number, b"m", b"", made["query"].encode(), number)


def read(jobs: list[dict[str, Any]], *binlogs: Binlog, **settings: Any) -> list[tuple[int, str]]:
    """What a Drainer delivers, by the commit ts after BEGIN: a DDL's text, or the tables of rows."""
    known = RecordedSchemas({made["id"]: json.dumps(made).encode() for made in jobs})
    return asyncio.run(_read(known, *binlogs, **settings))


async def _read(schemas: Schemas, *binlogs: Binlog, **settings: Any) -> list[tuple[int, str]]:
    reading = Forms(DrainerSettings(**settings)).reading(schemas)
    found: list[tuple[int, str]] = []
    rest = block(*binlogs)
    while len(rest):
        some = await reading.read(rest)
        for one in some.entries:
            if isinstance(one, DdlBinlog):
                found.append((one.commit_ts - BEGIN, one.ddl.query))
            elif isinstance(one, Transaction):
                found.append((one.commit_ts - BEGIN, ",".join(f"{s}.{t}" for s, t in (changes.version.name for changes in one.tables))))
            else:
                names = {number: ".".join(version.name) for number, version in one.tables.items()}
                for batch in one.batches:
                    found += [(row["commit_ts"] - BEGIN, names[row["table_id"]]) for row in batch.to_pylist()]
        rest = rest.part(some.count)
    return found


CREATED = job(10, "CREATE TABLE t (id INT PRIMARY KEY)", TABLE, type=int(Action.CREATE_TABLE))


def run(test: Callable[[PumpWorld], object], folder: Path, meta: list[str]) -> None:
    async def whole() -> None:
        async with world(folder, PumpWorld, meta) as made:
            await test(made)  # type: ignore[misc]

    asyncio.run(whole())


# Tables and DDLs


def test_rows_after_exchange_partition_have_their_tables() -> None:
    """The real Drainer ended at the second row."""
    cases = recorded()
    entries = asyncio.run(drained(cases))
    (case,) = (case for case in cases if case.name == "dml_after_exchange")
    found = [told(entries[binlog.commit_ts]) for binlog in case.binlogs]
    assert found == [("gold", "t_part", [11]), ("gold", "t_ex", [12])]


def told(entry: Any) -> tuple[str, str, list[object]]:
    """The only table of a transaction, and its inserted ids."""
    (changes,) = entry.tables
    return (*changes.version.name, [row.new[1].value for row in changes.rows])


def test_a_database_that_comes_back_does_not_end_it(tmp_path: Path) -> None:
    """The job of FLASHBACK DATABASE names no tables: they are looked for in TiKV."""
    info = {"id": 7, "db_name": {"O": "back", "L": "back"}, "charset": "utf8mb4", "collate": "utf8mb4_bin", "state": 5}
    table = {**TABLE, "id": 70}
    back = job(20, "FLASHBACK DATABASE back", None, type=int(Action.RECOVER_SCHEMA), schema_id=7, table_id=0, schema_name="back")
    back["binlog"]["DBInfo"] = info
    pairs = (
        (keys.db_key(7), json.dumps(info), BEGIN + 19),
        (keys.table_key(7, 70), json.dumps(table), BEGIN + 19),
        (keys.meta_hash_field(keys.DDL_JOB_HISTORY, (20).to_bytes(8, "big")), json.dumps(back), BEGIN + 19),
    )
    meta = [*kv(), *(json.dumps({"key_hex": key.hex(), "value_text": text, "commit_ts": ts}) for key, text, ts in pairs)]

    async def test(w: PumpWorld) -> None:
        for settings in FORMS:
            known = await Schemas.at(w.pd, BEGIN, lambda what: None)
            rows = inserted(BEGIN + 10, 1), binlog_of(back), inserted(BEGIN + 30, 2, table_id=70)
            assert await _read(known, *rows, **settings) == [(10, "test.t"), (20, "FLASHBACK DATABASE back"), (30, "back.t")]

    run(test, tmp_path, meta)


@pytest.mark.parametrize("settings", FORMS, ids=str)
@pytest.mark.parametrize("query", ["ALTER TABLE t FROBNICATE (`é` \\", "", "\0", "/* only a comment */", "ALTER TABLE"])
def test_a_ddl_of_no_known_type_or_text_is_delivered_and_its_table_followed(query: str, settings: dict[str, Any]) -> None:
    added = {**TABLE["cols"][0], "id": 2, "name": {"O": "b", "L": "b"}, "offset": 1, "type": {"Tp": 3, "Flag": 0, "Flen": 11}}  # type: ignore[index]
    odd = job(20, query, {**TABLE, "name": {"O": "t2", "L": "t2"}, "cols": [*TABLE["cols"], added]}, type=250)  # type: ignore[misc]
    found = read([CREATED, odd], binlog_of(CREATED), inserted(BEGIN + 15, 1), binlog_of(odd), inserted(BEGIN + 25, 2), **settings)
    assert found == [(10, CREATED["query"]), (15, "test.t"), (20, query), (25, "test.t2")]


@pytest.mark.parametrize("settings", FORMS, ids=str)
def test_a_rename_out_of_and_into_what_is_filtered(settings: dict[str, Any]) -> None:
    def renamed(number: int, name: str) -> dict[str, Any]:
        return job(number, f"RENAME TABLE x TO {name}", {**TABLE, "name": {"O": name, "L": name}}, type=int(Action.RENAME_TABLE))

    hidden = {**CREATED, "binlog": renamed(10, "hidden")["binlog"]}
    jobs = [hidden, renamed(20, "seen"), renamed(30, "hidden"), renamed(40, "seen")]
    rows = [inserted(BEGIN + number, number) for number in (15, 25, 35, 45)]
    binlogs = sorted([*map(binlog_of, jobs), *rows], key=lambda one: one.commit_ts)
    found = read(jobs, *binlogs, ignore_tables=(TableName("test", "hidden"),), **settings)
    assert found == [(20, "RENAME TABLE x TO seen"), (25, "test.seen"), (40, "RENAME TABLE x TO seen"), (45, "test.seen")]


@pytest.mark.parametrize("settings", FORMS, ids=str)
def test_jobs_that_failed_have_no_schema_version_and_change_nothing(settings: dict[str, Any]) -> None:
    other = {**TABLE, "name": {"O": "never", "L": "never"}}
    failed = [
        job(number, "ALTER TABLE t ADD UNIQUE (v)", info, state=int(state), binlog={"SchemaVersion": 0, "TableInfo": info, "FinishedTS": 0})
        for number, (state, info) in enumerate(
            [(JobState.ROLLBACK_DONE, other), (JobState.CANCELLED, None), (JobState.CANCELLED, other), (JobState.SYNCED, other)], 20
        )
    ]
    found = read([CREATED, *failed], binlog_of(CREATED), *map(binlog_of, failed), inserted(BEGIN + 35, 1), **settings)
    assert found == [(10, CREATED["query"]), (35, "test.t")]


def test_tables_of_system_databases_are_passed_over(tmp_path: Path) -> None:
    own = {"id": 1, "db_name": {"O": "mysql", "L": "mysql"}, "charset": "utf8mb4", "collate": "utf8mb4_bin", "state": 5}
    table = {**TABLE, "id": 60, "name": {"O": "tidb", "L": "tidb"}}
    pairs = ((keys.db_key(1), own), (keys.table_key(1, 60), table))
    meta = [*kv(), *(json.dumps({"key_hex": key.hex(), "value_text": json.dumps(one), "commit_ts": BEGIN - 9}) for key, one in pairs)]

    async def test(w: PumpWorld) -> None:
        for settings in FORMS:
            known = await Schemas.at(w.pd, BEGIN, lambda what: None)
            rows = inserted(BEGIN + 1, 1, table_id=60), inserted(BEGIN + 2, 2)
            assert await _read(known, *rows, ignore_schemas="", **settings) == [(2, "test.t")]

    run(test, tmp_path, meta)


def test_the_history_of_ddl_jobs_is_not_read_where_tikv_has_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*given: object) -> None:
        raise AssertionError("all jobs were read")

    monkeypatch.setattr(schemas_module, "_from_history", never)

    async def test(w: PumpWorld) -> None:
        known = await Schemas.at(w.pd, BEGIN, lambda what: None)
        found = await known.table(50, BEGIN, BEGIN + 1)
        assert found is not None
        assert found.name == ("test", "t")

    run(test, tmp_path, kv())


def test_a_ddl_that_is_refused_downstream_tells_how_to_leave_it_out(mariadb: MariaDb) -> None:
    mariadb.clear()
    made = outlet(mariadb)
    made.write(MADE)
    refused = ddl(BEGIN, "ALTER TABLE t ADD CHECK (nothing_of_that_name(v))")
    with pytest.raises(SinkError, match=rf"DDL at .*ignore-txn-commit-ts = \[{BEGIN}\] leaves out"):
        made.write([refused])
    made.write([inserted_rows(BEGIN + 1, 1)])
    made.close()
    assert mariadb.rows("SELECT id FROM d.t") == [(1,)]
    alter = job(20, refused.ddl.query, TABLE)
    binlogs = binlog_of(CREATED), binlog_of(alter), inserted(BEGIN + 25, 1)
    left = read([CREATED, alter], *binlogs, ignore_txn_commit_ts=(BEGIN + 20,))
    assert left == [(10, CREATED["query"]), (25, "test.t")]


# Memory


@pytest.mark.parametrize("settings", FORMS, ids=str)
def test_of_deletes_that_are_filtered_nothing_is_kept(settings: dict[str, Any]) -> None:
    """30 MiB of deletes go by, of which a MiB at a time is there."""
    row = b"".join(encode_datum(Datum(DatumFlag.VARINT, one)) for one in (1, 7)) + encode_datum(Datum(DatumFlag.VARINT, 2))
    deleted = row + encode_datum(Datum(DatumFlag.COMPACT_BYTES, bytes(1000)))
    mutation = TableMutation(50, deleted=(deleted,) * 1000, sequence=(MutationType.DELETE_ROW,) * 1000)
    value = Prewritten(1, (mutation,)).encode()

    async def test() -> tuple[int, int]:
        known = RecordedSchemas({10: json.dumps(CREATED).encode()})
        reading = Forms(DrainerSettings(ignore_schemas="test", **settings)).reading(known)
        await reading.read(block(binlog_of(CREATED)))
        tracemalloc.start()
        try:
            for number in range(30):
                some = block(Binlog(BinlogType.COMMIT, BEGIN + 20 + number, BEGIN + 21 + number, b"k", value))
                found = await reading.read(some)
                assert (list(found.entries), found.count) == ([], 1)
            del some, found
            gc.collect()
            return tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    before = pa.total_allocated_bytes()
    kept, peak = asyncio.run(test())
    assert kept < 1 << 20
    assert peak < 20 << 20
    assert pa.total_allocated_bytes() - before < 1 << 20


# Values


def table_of(kind: dict[str, Any]) -> TableInfo:
    columns = [
        {"id": 1, "name": {"O": "id", "L": "id"}, "offset": 0, "state": 5, "type": {"Tp": 3, "Flag": 4099, "Flen": 11}},
        {"id": 2, "name": {"O": "v", "L": "v"}, "offset": 1, "state": 5, "type": kind},
    ]
    return TableInfo.from_json({"id": 50, "name": {"O": "t", "L": "t"}, "state": 5, "pk_is_handle": True, "cols": columns})


def rows_of(info: TableInfo, *values: Any) -> Transaction:
    """Inserts of rows (1, the first value), (2, the second), …"""
    column = info.columns[1]
    datums = [decode_datum(format_1_datum(column, plain_from_cell(column, value)))[0] for value in values]
    rows = [RowChange(MutationType.INSERT, None, {1: Datum(DatumFlag.VARINT, n), 2: datum}) for n, datum in enumerate(datums, 1)]
    return Transaction(BEGIN, BEGIN + 1, (TableChanges(TableVersion("d", 2, info, (50,), 0), tuple(rows)),))


TIMESTAMP = table_of({"Tp": 7, "Flag": 0, "Flen": 19})
INSTANTS = ("2026-03-29 00:59:59", "2026-03-29 01:00:00", "2026-10-25 00:30:00", "2026-10-25 01:30:00", "0000-00-00 00:00:00")
"""In UTC: before and after summer time begins, the same hour twice as it ends, and no time."""
LOCAL = ("2026-03-29 01:59:59", "2026-03-29 03:00:00", "2026-10-25 02:30:00", "2026-10-25 02:30:00", "0000-00-00 00:00:00")


def test_timestamps_are_by_the_summer_time_of_their_own_day() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    told = slave_binlog_pb2.Binlog.FromString(slave.encode(rows_of(TIMESTAMP, *INSTANTS), berlin))
    assert tuple(one.row.columns[1].string_value.decode() for one in told.dml_data.tables[0].mutations) == LOCAL
    told = slave_binlog_pb2.Binlog.FromString(slave.encode(rows_of(TIMESTAMP, *INSTANTS), UTC))
    assert tuple(one.row.columns[1].string_value.decode() for one in told.dml_data.tables[0].mutations) == INSTANTS


def test_a_database_has_the_instant_whatever_the_zones(mariadb: MariaDb) -> None:
    """Those of the Drainer's process, of the server, and of the DDLs."""
    mariadb.clear()
    mariadb.run("SET GLOBAL time_zone = '+08:00'")
    try:
        made = outlet(mariadb, to={"zone": "'-05:00'"})
        made.write([MADE[0], ddl(2, "CREATE TABLE t (id INT PRIMARY KEY, v TIMESTAMP NULL)"), rows_of(TIMESTAMP, *INSTANTS)])
        made.close()
        found = mariadb.rows("SELECT CAST(CONVERT_TZ(v, @@time_zone, '+00:00') AS CHAR) FROM d.t WHERE v > 0 ORDER BY id")
        assert [text for (text,) in found] == list(INSTANTS[:4])
        assert mariadb.rows("SELECT id FROM d.t WHERE v = 0") == [(5,)]
    finally:
        mariadb.run("SET GLOBAL time_zone = 'SYSTEM'")


def test_bits_in_the_file_form_are_the_number_that_they_were() -> None:
    info = table_of({"Tp": 16, "Flag": 32, "Flen": 64})
    told = pb_binlog_pb2.Binlog.FromString(pb.encode(rows_of(info, 0, 1, 0x1234, (1 << 64) - 1), UTC))
    columns = [pb_binlog_pb2.Column.FromString(event.row[1]) for event in told.dml_data.events]
    values = [decode_datum(column.value)[0] for column in columns]
    assert [int.from_bytes(v.value, "big") if isinstance(v.value, bytes) else v.value for v in values] == [0, 1, 0x1234, (1 << 64) - 1]
    assert {column.mysql_type for column in columns} == {"bit"}


def test_dates_of_no_calendar_stay(mariadb: MariaDb) -> None:
    info = table_of({"Tp": 12, "Flag": 0, "Flen": 19})
    dates = ("0000-00-00 00:00:00", "2026-00-00 00:00:00", "2026-02-00 00:00:00")
    told = slave_binlog_pb2.Binlog.FromString(slave.encode(rows_of(info, *dates), UTC))
    assert tuple(one.row.columns[1].string_value.decode() for one in told.dml_data.tables[0].mutations) == dates
    mariadb.clear()
    made = outlet(mariadb, sql_mode="")
    made.write([MADE[0], ddl(2, "CREATE TABLE t (id INT PRIMARY KEY, v DATETIME)"), rows_of(info, *dates)])
    made.close()
    assert tuple(text for (text,) in mariadb.rows("SELECT CAST(v AS CHAR) FROM d.t ORDER BY id")) == dates
