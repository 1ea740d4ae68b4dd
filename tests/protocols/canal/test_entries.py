"""Entries for Canal's clients beside those that Canal 1.1.8 sent: columns of every type, DDLs, transactions, positions."""

from __future__ import annotations

import gzip
import json
import re
import struct
from datetime import UTC
from decimal import Decimal
from typing import Any

import pytest

from tests.support.canal.golden import GOLDEN
from tests.support.capture.captures import stored_changes
from tests.support.changelog.sqllogs import SqlLog
from tests.support.golden.text_rows import golden_records
from tidemill.errors import MalformedRow
from tidemill.playground.server import Playground
from tidemill.protocols.canal import entries as e
from tidemill.protocols.canal.codes import EntryType, EventType
from tidemill.protocols.canal.decode import events_of
from tidemill.protocols.canal.events import RowEvent, TransactionMark
from tidemill.protocols.canal.parse import parse_entry
from tidemill.protocols.open.codes import DdlType
from tidemill.tidb.schema.events import DdlEvent
from tidemill.wire import canal_entry_pb2 as pb

GEOMETRY = "c_geo"  # TiDB has none
CHARSETS = {"c_latin1", "c_gbk"}  # Canal loses their letters
COMMIT_TS, START_TS = 470616264291647490, 470616264291647489


def lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def written_fields(column: pb.Column) -> set[str]:
    """Names of the fields that are on the wire."""
    return {field.name for field, _ in column.ListFields()}


def same_value(mysql_type: str, canal: bytes, ours: bytes) -> bool:
    """Whether two texts are one value: TiDB's are canonical where Canal's have a form of their own."""
    if not canal and not ours:
        return True
    match mysql_type.partition("(")[0].partition(" ")[0]:
        case "decimal":
            return Decimal(canal.decode()) == Decimal(ours.decode())
        case "float":
            return struct.pack("f", float(canal)) == struct.pack("f", float(ours))
        case "double":
            return float(canal) == float(ours)
        case "binary":
            return canal == ours.rstrip(b"\0")  # Canal loses trailing zero bytes
    return canal == ours


def same_type(canal: str, ours: str) -> bool:
    """Whether two types are the same: MariaDB's JSON is longtext."""
    return canal == ours or (canal, ours) == ("longtext", "json")


PROMOTED = {"tinyint": 5, "smallint": 4, "mediumint": 4, "int": -5, "bigint": 3}


def columns_of_playground() -> dict[str, tuple[list[dict[str, Any]], list[pb.Column]]]:
    """Recorded values of each column, and what a table of the playground with such a column and these values becomes."""
    recorded: dict[str, list[dict[str, Any]]] = {}
    for line in lines("column_types"):
        if line["literal"] is not None and line["column"] != GEOMETRY:
            recorded.setdefault(line["column"], []).append(line)
    made = {}
    sql = SqlLog()
    for name, values in recorded.items():
        sql.run(f"CREATE TABLE {name} (id INT PRIMARY KEY, {name} {values[0]['ddl']})")
        sql.run(*(f"INSERT INTO {name} VALUES ({i}, {line['literal']})" for i, line in enumerate(values)))
    tables = {info.info.id: info.info for (_, _), info in sql.tables_at(sql.run()).items()}
    playground: Playground = sql._playground
    columns: dict[str, list[pb.Column]] = {name: [] for name in recorded}
    for change in stored_changes(playground.cluster, sql.start_ts, sql.run()):
        if (info := tables.get(change.table_id)) is not None:
            _, row = e.EntryTable("app", info.name, info, UTC).row(change.key, change.value, None, change.commit_ts)
            columns[info.name].append(row.after_columns[1])
    for name, values in recorded.items():
        made[name] = values, columns[name]
    return made


def test_columns_of_every_type() -> None:
    compared = 0
    for name, (recorded, ours) in columns_of_playground().items():
        for line, column in zip(recorded, ours, strict=True):
            canal = pb.Column.FromString(bytes.fromhex(line["column_hex"]))
            assert written_fields(column) == written_fields(canal), line
            assert (column.is_null, column.is_key, column.updated) == (canal.is_null, canal.is_key, canal.updated)
            assert same_type(canal.mysql_type.decode(), column.mysql_type.decode()), (line, column)
            unsigned = b"unsigned" in column.mysql_type
            base = re.split(r"[( ]", column.mysql_type.decode())[0]
            if unsigned and base in PROMOTED:
                assert column.sql_type == PROMOTED[base]
            else:
                assert column.sql_type == canal.sql_type or line["mysqlType"] == "longtext" or canal.is_null, line
            if name in CHARSETS:
                assert column.is_null or column.value == line["literal"].strip("'").encode()
            else:
                assert same_value(column.mysql_type.decode(), canal.value, column.value), (line, column.value)
            compared += 1
    assert compared > 180


def ddl(kind: int, query: str, schema: str, table: str = "", pre: tuple[str, str] = ("", ""), seq: int = 0) -> DdlEvent:
    return DdlEvent(COMMIT_TS, 0, 1, 1, seq, kind, schema, table, *pre, 7, query, query, True)


ACTIONS = {
    "create database": DdlType.CREATE_SCHEMA, "drop database": DdlType.DROP_SCHEMA, "create table": DdlType.CREATE_TABLE,
    "drop table": DdlType.DROP_TABLE, "truncate": DdlType.TRUNCATE_TABLE, "rename": DdlType.RENAME_TABLE, "create index": DdlType.ADD_INDEX,
    "create unique": DdlType.ADD_INDEX, "drop index": DdlType.DROP_INDEX,
}  # fmt: skip
ALTERS = {
    "add column": DdlType.ADD_COLUMN, "modify": DdlType.MODIFY_COLUMN, "change": DdlType.MODIFY_COLUMN,
    "rename column": DdlType.MODIFY_COLUMN,
    "add index": DdlType.ADD_INDEX, "drop index": DdlType.DROP_INDEX, "rename to": DdlType.RENAME_TABLE,
    "truncate partition": DdlType.TRUNCATE_TABLE_PARTITION, "comment": DdlType.MODIFY_TABLE_COMMENT,
}  # fmt: skip


def action_of(sql: str) -> int | None:
    """TiDB's action for a recorded statement; None where TiDB has no such job."""
    text = " ".join(re.sub(r"/\*.*?\*/", "", sql).lower().split())
    if text.startswith("alter table"):
        item = text.split(" ", 3)[3]
        if "," in item:
            return DdlType.MULTI_SCHEMA_CHANGE
        return next((action for words, action in ALTERS.items() if item.startswith(words)), None)
    return next((action for words, action in ACTIONS.items() if text.startswith(words)), None)


def test_ddls_are_canals() -> None:
    compared = 0
    for line in lines("ddl_entries"):
        canal = pb.Entry.FromString(bytes.fromhex(line["entry_hex"]))
        action = action_of(line["sql"])
        if action is None:
            continue
        schema, table = line["header"]["schemaName"], line["header"]["tableName"]
        made = pb.Entry.FromString(e.ddl_entry(ddl(action, line["sql"], schema, table, (line["ddlSchemaName"], "")), server_id=77))
        change, theirs = (pb.RowChange.FromString(entry.store_value) for entry in (made, canal))
        assert change == theirs
        for name in ("version", "schema_name", "table_name", "event_type", "source_type", "serveren_code", "server_id"):
            assert getattr(made.header, name) == getattr(canal.header, name), (name, line["sql"])
            assert made.header.HasField(name) == canal.header.HasField(name)
        compared += 1
    assert compared > 25


@pytest.mark.parametrize(
    ("kind", "query", "event"),
    [
        (DdlType.MULTI_SCHEMA_CHANGE, "ALTER TABLE `d`.`t` ADD INDEX `i`(`a`), ADD COLUMN `b` INT", EventType.CINDEX),
        (DdlType.MULTI_SCHEMA_CHANGE, "ALTER TABLE `d``x`.`t` ADD UNIQUE `i`(`a`), ADD COLUMN `b` INT", EventType.CINDEX),
        (DdlType.MULTI_SCHEMA_CHANGE, "ALTER TABLE `t` DROP INDEX `i`, DROP COLUMN `b`", EventType.DINDEX),
        (DdlType.MULTI_SCHEMA_CHANGE, "ALTER TABLE `t` ADD COLUMN `index` INT, ADD INDEX `i`(`a`)", EventType.ALTER),
        (DdlType.ALTER_TTL, "ALTER TABLE `t` TTL=`a` + INTERVAL 1 DAY", EventType.ALTER),
        (DdlType.EXCHANGE_PARTITION, "ALTER TABLE `t` EXCHANGE PARTITION `p` WITH TABLE `u`", EventType.ALTER),
        (DdlType.CREATE_TABLES, "CREATE TABLE `t` (`a` INT)", EventType.CREATE),
        (DdlType.CREATE_VIEW, "CREATE VIEW `v` AS SELECT 1", EventType.QUERY),
        (DdlType.MODIFY_SCHEMA_CHARSET, "ALTER DATABASE `d` CHARACTER SET utf8mb4", EventType.QUERY),
    ],
)
def test_ddls_that_canal_does_not_know(kind: DdlType, query: str, event: EventType) -> None:
    """None is dropped, all have their names, and a type that fits."""
    entry = parse_entry(e.ddl_entry(ddl(kind, query, "d", "t"), server_id=1))
    assert entry.change is not None
    assert (entry.header.event_type, entry.change.event_type, entry.change.ddl, entry.change.sql) == (event, event, True, query)
    assert (entry.header.schema, entry.header.table, entry.header.prop("commit_ts")) == ("d", "t", str(COMMIT_TS))


def test_a_transaction() -> None:
    """Begin, rows of one table and type together, end; positions rise, and nothing depends on the run."""
    programs, records = golden_records(range(200))
    tables = [e.EntryTable(p.schema, p.table, p.info, p.zone, p.json) for p in programs]
    changes = [e.Change(r.table, r.key, r.value, r.old_value) for r in records]
    made = e.transaction_entries(tables, changes, server_id=5, start_ts=START_TS, commit_ts=COMMIT_TS)
    assert made == e.transaction_entries(tables, changes, server_id=5, start_ts=START_TS, commit_ts=COMMIT_TS)
    entries = [parse_entry(entry.data) for entry in made]
    assert [entry.type for entry in entries] == [
        EntryType.TRANSACTIONBEGIN, *[EntryType.ROWDATA] * (len(made) - 2), EntryType.TRANSACTIONEND
    ]  # fmt: skip
    assert sum(entry.rows for entry in made) == len(records)
    places = [(entry.header.logfile_name, entry.header.logfile_offset) for entry in entries]
    assert places == sorted(set(places))
    assert {e.position_ts(*place) for place in places} == {COMMIT_TS}
    for entry, data in zip(entries, made, strict=True):
        header = entry.header
        assert (header.execute_time, header.server_id, header.charset) == (COMMIT_TS >> 18, 5, "UTF-8")
        assert (header.prop("commit_ts"), header.prop("start_ts")) == (str(COMMIT_TS), str(START_TS))
        assert header.event_length == len(pb.Entry.FromString(data.data).store_value)
        if entry.change is not None:
            assert header.prop("rowsCount") == str(len(entry.change.rows)) == str(data.rows)
            assert (header.schema, header.table) == (tables[data.table].schema, tables[data.table].table)
            for event in events_of(entry):
                assert isinstance(event, RowEvent)
                assert event.commit_ts == COMMIT_TS
                before = {c.name: c.value for c in event.before}
                assert not any(c.updated for c in event.before)
                assert all(c.updated == (c.name not in before or c.value != before[c.name]) for c in event.after)
        else:
            assert events_of(entry) == [TransactionMark(COMMIT_TS >> 18, entry is entries[0], "" if entry is entries[0] else str(START_TS))]


def test_begin_and_end_write_what_canal_writes() -> None:
    begin, end = e.transaction_entries([], [], server_id=77, start_ts=START_TS, commit_ts=COMMIT_TS)
    canal = pb.Entry.FromString(
        bytes.fromhex("0a2f080112106d7973716c2d62696e2e303030313035188103204d2a055554462d38308084cbec9f34380242004a00502a10011a022000")
    )
    ours = pb.Entry.FromString(begin.data)
    assert ours.store_value == canal.store_value
    assert {f.name for f, _ in ours.header.ListFields()} == {f.name for f, _ in canal.header.ListFields()} | {"props"}
    assert pb.TransactionEnd.FromString(pb.Entry.FromString(end.data).store_value).transaction_id == b"%d" % START_TS


def test_entries_have_limits() -> None:
    programs, records = golden_records([0])
    tables = [e.EntryTable(p.schema, p.table, p.info, p.zone, p.json) for p in programs]
    change = e.Change(0, records[0].key, records[0].value, None)
    made = e.transaction_entries(tables, [change] * 3000, server_id=1, start_ts=1, commit_ts=2)
    assert sum(entry.rows for entry in made) == 3000
    assert all(1 < entry.rows <= e.ENTRY_ROWS and len(entry.data) < e.ENTRY_BYTES + 500 for entry in made[1:-2])
    with pytest.raises(MalformedRow, match=f"key {records[0].key.hex()}, commit_ts 2"):
        e.transaction_entries(tables, [change._replace(value=b"\x80")], server_id=1, start_ts=1, commit_ts=2)


def test_positions() -> None:
    """They sort as ts do, over hours, and DDLs stand behind the rows of their ts."""
    stamps = [1, 1 << 18, (e.HOUR_MS << 18) - 1, e.HOUR_MS << 18, COMMIT_TS, COMMIT_TS + 1, (1 << 63) - 1, (1 << 64) - 1]
    places = [(file, offset) for ts in stamps for file, offset in (e.position(ts, place) for place in (0, 1, e.LAST_PLACE))]
    assert places == sorted(set(places))
    assert all(0 <= offset < 1 << 62 for _, offset in places)
    assert [e.position_ts(file.decode(), offset) for file, offset in places[::3]] == stamps
    rows = e.position(COMMIT_TS, e.LAST_PLACE)
    first, second = (parse_entry(e.ddl_entry(ddl(3, "x", "s", seq=n), server_id=1)).header for n in (0, 1))
    assert rows.offset < first.logfile_offset < second.logfile_offset < e.position(COMMIT_TS + 1, 0).offset
    with pytest.raises(ValueError, match="not a position"):
        e.position_ts("mysql-bin.000001", 4)
