"""Keys and values of Debezium's messages: what TiCDC's own tests expect of them, and their bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.schema.tables import column, table
from tidemill.errors import MalformedRow
from tidemill.protocols.common.compression import expand
from tidemill.protocols.debezium import DebeziumTable, control_messages, ddl_message, watermark_message
from tidemill.protocols.debezium.names import record_name, sanitized
from tidemill.protocols.options import Compression, DebeziumOptions, EncodingOptions, LargeMessage, MessageFormat
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.write import pack_row
from tidemill.tidb.schema.codes import Action, ColumnFlag, MySQLType
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

NOW = 1_701_326_309_000
SOURCE = {
    "version": "2.4.0.Final", "connector": "TiCDC", "name": "test_cluster", "ts_ms": 0, "snapshot": "false", "db": "test",
    "table": "table1", "server_id": 0, "gtid": None, "file": "", "pos": 0, "row": 0, "thread": 0, "query": None, "commit_ts": 1,
    "cluster_id": "test_cluster",
}  # fmt: skip
TINY = table([column(MySQLType.TINY, name="tiny")], pk_is_handle=True)
SOURCE_BLOCK = (
    '{"type":"struct","fields":[{"type":"string","optional":false,"field":"version"},{"type":"string","optional":false,"field":"connector"},'
    '{"type":"string","optional":false,"field":"name"},{"type":"int64","optional":false,"field":"ts_ms"},'
    '{"type":"string","optional":true,"name":"io.debezium.data.Enum","version":1,"parameters":{"allowed":"true,last,false,incremental"},'
    '"default":"false","field":"snapshot"},{"type":"string","optional":false,"field":"db"},'
    '{"type":"string","optional":true,"field":"sequence"},{"type":"string","optional":true,"field":"table"},'
    '{"type":"int64","optional":false,"field":"server_id"},{"type":"string","optional":true,"field":"gtid"},'
    '{"type":"string","optional":false,"field":"file"},{"type":"int64","optional":false,"field":"pos"},'
    '{"type":"int32","optional":false,"field":"row"},{"type":"int64","optional":true,"field":"thread"},'
    '{"type":"string","optional":true,"field":"query"}],"optional":false,"name":"io.debezium.connector.mysql.Source","field":"source"}'
)
TAIL_BLOCKS = (
    '{"type":"string","optional":false,"field":"op"},{"type":"int64","optional":true,"field":"ts_ms"},'
    '{"type":"struct","fields":[{"type":"string","optional":false,"field":"id"},{"type":"int64","optional":false,"field":"total_order"},'
    '{"type":"int64","optional":false,"field":"data_collection_order"}],"optional":true,"name":"event.block","version":1,'
    '"field":"transaction"}'
)


def options(**given: Any) -> EncodingOptions:
    extension = given.pop("extension", False)
    return EncodingOptions(
        MessageFormat.DEBEZIUM, enable_tidb_extension=extension, debezium=DebeziumOptions(cluster_id="test_cluster", **given)
    )


def rows(*, info: TableInfo = TINY, **given: Any) -> list[tuple[bytes, bytes]]:
    """Messages of an insert of 1, an update from 2 to 1, and a delete of 2, in a table with one integer key."""
    made = DebeziumTable("test", "table1", info, options(**given))
    empty = pack_row({})
    one, two = record_key(100, 1), record_key(100, 2)
    stored = pack_row({1: b"\x02"})
    return [
        made.row(one, empty, None, 7, 1, NOW),
        made.row(one, empty, stored, 7, 1, NOW),
        made.row(two, None, empty, 7, 1, NOW),
    ]


def test_payloads() -> None:
    got = [[json.loads(part) for part in message] for message in rows(disable_schema=True)]
    head = {"source": SOURCE, "ts_ms": NOW, "transaction": None}
    assert got == [
        [{"payload": {"tiny": 1}}, {"payload": head | {"op": "c", "before": None, "after": {"tiny": 1}}}],
        [{"payload": {"tiny": 1}}, {"payload": head | {"op": "u", "before": {"tiny": 2}, "after": {"tiny": 1}}}],
        [{"payload": {"tiny": 2}}, {"payload": head | {"op": "d", "before": {"tiny": 2}, "after": None}}],
    ]
    update = json.loads(rows(disable_schema=True, output_old_value=False)[1][1])
    assert "before" not in update["payload"]
    with_start = json.loads(rows(disable_schema=True, include_start_ts=True)[0][1])["payload"]["source"]
    assert (list(with_start)[-3:], with_start["start_ts"]) == (["commit_ts", "start_ts", "cluster_id"], 7)


def test_the_bytes_of_a_message() -> None:
    """The order of members is the rule, too."""
    field = '{"type":"int16","optional":false,"field":"tiny"}'
    image = '{"type":"struct","optional":true,"name":"test_cluster.test.table1.Value","field":"%s","fields":[' + field + "]}"
    key, value = rows()[2]
    assert key.decode() == (
        '{"payload":{"tiny":2},"schema":{"type":"struct","name":"test_cluster.test.table1.Key","optional":false,"fields":[' + field + "]}}"
    )
    assert value.decode() == (
        '{"payload":{"source":{"version":"2.4.0.Final","connector":"TiCDC","name":"test_cluster","ts_ms":0,"snapshot":"false","db":"test",'
        '"table":"table1","server_id":0,"gtid":null,"file":"","pos":0,"row":0,"thread":0,"query":null,"commit_ts":1,'
        '"cluster_id":"test_cluster"},"ts_ms":1701326309000,"transaction":null,"op":"d","after":null,"before":{"tiny":2}},'
        '"schema":{"type":"struct","optional":false,"name":"test_cluster.test.table1.Envelope","version":1,"fields":['
        f"{image % 'before'},{image % 'after'},{SOURCE_BLOCK},{TAIL_BLOCKS}]}}}}"
    )


def test_watermarks() -> None:
    key, value = watermark_message(3, NOW, options(extension=True))
    assert json.loads(key) == {
        "payload": {},
        "schema": {"fields": [], "optional": False, "name": "test_cluster.watermark.Key", "type": "struct"},
    }
    found = json.loads(value)
    assert found["payload"] == {
        "source": SOURCE | {"db": "", "table": "", "commit_ts": 3}, "op": "m", "ts_ms": NOW, "transaction": None
    }  # fmt: skip
    assert found["schema"]["name"] == "test_cluster.watermark.Envelope"
    assert found["schema"]["fields"] == json.loads(f"[{SOURCE_BLOCK},{TAIL_BLOCKS}]")
    assert watermark_message(3, NOW, options(disable_schema=True))[0] == b'{"payload":{}}'


def ddl(kind: Action, query: str, *, name: str = "table2", **more: Any) -> DdlEvent:
    info = table([column(MySQLType.LONG, name="id", Flen=10)], pk_is_handle=True)
    after = TableVersion("test", 1, TableInfo(**{**vars(info), "name": name, "charset": "utf8mb4"}), (100,), 0)
    facts = {"pre_schema": "", "pre_table": "", "after": None if kind is Action.DROP_TABLE else after} | more
    return DdlEvent(1, 2, 3, 4, 0, int(kind), "test", name, table_id=100, query=query, raw_query=query, reprinted=True, **facts)  # type: ignore[arg-type]


ID = {
    "name": "id", "jdbcType": 4, "nativeType": None, "comment": None, "defaultValueExpression": None, "enumValues": None, "typeName": "INT",
    "typeExpression": "INT", "charsetName": None, "length": 10, "scale": None, "position": 1, "optional": False, "autoIncremented": False,
    "generated": False,
}  # fmt: skip
TABLE = {"defaultCharsetName": "utf8mb4", "primaryKeyColumnNames": ["id"], "columns": [ID], "comment": None}


@pytest.mark.parametrize(
    ("event", "changes"),
    [
        (
            ddl(Action.RENAME_TABLE, "RENAME TABLE test.table1 to test.table2", pre_schema="test", pre_table="table1"),
            [{"type": "ALTER", "id": '"test"."table1","test"."table2"', "table": TABLE}],
        ),
        (
            ddl(Action.CREATE_TABLE, "CREATE TABLE test.table1(id int(10) primary key)", name="table1"),
            [{"type": "CREATE", "id": '"test"."table1"', "table": TABLE}],
        ),
        (ddl(Action.DROP_TABLE, "DROP TABLE test.table2"), [{"type": "DROP", "id": '"test"."table2"', "table": None}]),
        (ddl(Action.TRUNCATE_TABLE, "TRUNCATE TABLE test.table2"), []),
        (ddl(Action.CREATE_SCHEMA, "CREATE DATABASE test", name=""), []),
    ],
)
def test_ddls(event: DdlEvent, changes: list[dict[str, Any]]) -> None:
    found = ddl_message(event, NOW, options())
    assert found is not None
    key, value = map(json.loads, found)
    assert key["payload"] == {"databaseName": "test"}
    assert key["schema"]["name"] == "io.debezium.connector.mysql.SchemaChangeKey"
    assert value["payload"] == {
        "source": SOURCE | {"table": event.table}, "ts_ms": NOW, "databaseName": "test", "schemaName": None, "ddl": event.query,
        "tableChanges": changes,
    }  # fmt: skip
    assert [one["field"] for one in value["schema"]["fields"]] == [
        "source", "ts_ms", "databaseName", "schemaName", "ddl", "tableChanges"
    ]  # fmt: skip
    change = value["schema"]["fields"][-1]["items"]
    assert (change["name"], [one["field"] for one in change["fields"]]) == ("io.debezium.connector.schema.Change", ["type", "id", "table"])
    described = change["fields"][2]["fields"][2]["items"]["fields"]
    assert {one["field"] for one in described} == set(ID)
    assert [part.keys() for part in map(json.loads, ddl_message(event, NOW, options(disable_schema=True)) or ())] == [{"payload"}] * 2


def test_ddls_without_a_message() -> None:
    assert ddl_message(ddl(Action.ADD_FOREIGN_KEY, "…"), NOW, options()) is None


def test_columns_of_a_ddl() -> None:
    """Lengths are told where they are not the type's own."""
    columns = [
        column(MySQLType.LONG, name="u", Flen=10, Flag=int(ColumnFlag.UNSIGNED | ColumnFlag.AUTO_INCREMENT)),
        column(MySQLType.VARCHAR, name="v", Flen=32, comment="c", default="x"),
        column(MySQLType.STRING, name="b", Flen=4, Charset="binary", Collate="binary", Flag=int(ColumnFlag.BINARY)),
        column(MySQLType.NEWDECIMAL, name="d", Flen=12, Decimal=6),
        column(MySQLType.TIMESTAMP, name="t", Flen=22, Decimal=2, default="CURRENT_TIMESTAMP", Flag=int(ColumnFlag.ON_UPDATE_NOW)),
        column(MySQLType.SET, name="s", Elems=["a", "b", "c"]),
        column(MySQLType.BIT, name="bits", Flen=10, default="", default_bit="AlU="),
        column(MySQLType.DOUBLE, name="z", Flen=10, Decimal=2, Flag=int(ColumnFlag.UNSIGNED | ColumnFlag.ZEROFILL)),
    ]
    info = TableInfo(**{**vars(table(columns, pk_is_handle=True)), "charset": "utf8mb4"})
    event = ddl(Action.ADD_COLUMN, "…", after=TableVersion("test", 1, info, (100,), 0))
    _, value = ddl_message(event, NOW, options()) or (b"", b"{}")
    found = json.loads(value)["payload"]["tableChanges"][0]["table"]["columns"]
    names = (
        "name", "jdbcType", "typeName", "typeExpression", "charsetName", "length", "scale", "defaultValueExpression", "enumValues",
        "autoIncremented",
    )  # fmt: skip
    assert [tuple(one[name] for name in names) for one in found] == [
        ("u", 4, "INT UNSIGNED", "INT UNSIGNED", None, None, None, None, None, True),
        ("v", 12, "VARCHAR", "VARCHAR", "utf8mb4", 32, None, "x", None, False),
        ("b", -2, "BINARY", "BINARY", None, 4, None, None, None, False),
        ("d", 3, "DECIMAL", "DECIMAL", None, 12, 6, None, None, False),
        ("t", 2014, "TIMESTAMP", "TIMESTAMP", None, 2, None, "1970-01-01 00:00:00", None, True),
        ("s", 1, "SET", "SET", "utf8mb4", 5, None, None, ["'a'", "'b'", "'c'"], False),
        ("bits", -7, "BIT", "BIT", None, 10, None, "1001010101", None, False),
        ("z", 8, "DOUBLE UNSIGNED ZEROFILL", "DOUBLE(10,2) UNSIGNED ZEROFILL", None, 10, 2, None, None, False),
    ]
    assert found[1]["comment"] == "c"


def test_names_of_records() -> None:
    assert record_name("default", "1A.B", "columnNameWith中文") == "default._1A_B.columnNameWith__"
    assert record_name("a-b", "s", "t.u") == "a_b.s.t.u"
    assert sanitized("é1") == "_1"


def test_a_table_without_a_handle_key_has_empty_keys() -> None:
    info = table([column(MySQLType.TINY, name="tiny")])
    key, _ = DebeziumTable("test", "table1", info, options()).row(record_key(100, 1), pack_row({1: b"\x05"}), None, 7, 1, NOW)
    assert json.loads(key)["payload"] == {}
    assert json.loads(key)["schema"]["fields"] == []


def test_virtual_columns_have_a_field_and_no_value() -> None:
    columns = [
        column(MySQLType.LONG, name="id"),
        column(MySQLType.LONG, name="twice", generated_expr_string="`id` * 2"),
        column(MySQLType.LONG, name="last"),
    ]
    made = DebeziumTable("test", "t", table(columns, pk_is_handle=True), options())
    _, value = made.row(record_key(100, 1), pack_row({3: b"\x05"}), None, 7, 1, NOW)
    found = json.loads(value)
    assert found["payload"]["after"] == {"id": 1, "last": 5}
    assert [one["field"] for one in found["schema"]["fields"][0]["fields"]] == ["id", "last", "twice"]


def test_control_messages() -> None:
    plain = control_messages(options(), lambda: NOW)
    assert plain.resolved_message(3) is None
    assert not plain.ddl_on_first_partition
    packed = control_messages(
        EncodingOptions(
            MessageFormat.DEBEZIUM, enable_tidb_extension=True, large_message=LargeMessage(compression=Compression.LZ4),
            debezium=DebeziumOptions(cluster_id="test_cluster"),
        ),
        lambda: NOW,
    )  # fmt: skip
    key, value = packed.resolved_message(3) or (None, None)
    assert (expand(key or b""), expand(value or b"")) == watermark_message(3, NOW, options())
    assert packed.ddl_message(ddl(Action.DROP_TABLE, "DROP TABLE test.table2")) is not None


def test_broken_rows_are_named() -> None:
    made = DebeziumTable("test", "table1", TINY, options())
    with pytest.raises(MalformedRow, match=r"table test\.table1, key 74.*commit_ts 9: neither"):
        made.row(record_key(100, 1), None, None, 7, 9, NOW)
    with pytest.raises(MalformedRow, match=r"table test\.table1, key 74.*commit_ts 9"):
        made.row(record_key(100, 1), b"\x80", None, 7, 9, NOW)


def test_a_time_that_mysql_cannot_have_is_an_error_of_its_row() -> None:
    info = table([column(MySQLType.LONG, name="id"), column(MySQLType.DURATION, name="t")], pk_is_handle=True)
    nanoseconds = (9947 * 3600 * 10**9).to_bytes(8, "little")
    with pytest.raises(MalformedRow, match=r"table test\.t1, key 74.*commit_ts 9: column t: .* is not a time"):
        DebeziumTable("test", "t1", info, options()).row(record_key(100, 1), pack_row({2: nanoseconds}), None, 7, 9, NOW)
