"""Schemas are what Confluent's converter makes of Debezium's for MySQL."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import fastavro
import pytest

from tests.support.schema.tables import column, table
from tidemill.errors import SchemaError
from tidemill.protocols.debezium_avro import schemas_of
from tidemill.protocols.options import AvroOptions, BigintUnsignedMode, DebeziumOptions, DecimalMode, EncodingOptions, MessageFormat
from tidemill.registry.compare import faults
from tidemill.tidb.schema.codes import ColumnFlag
from tidemill.tidb.schema.codes import MySQLType as T
from tidemill.tidb.schema.model import TableInfo

PLAIN = EncodingOptions(MessageFormat.DEBEZIUM_AVRO, debezium=DebeziumOptions(cluster_id="dbserver1"))
STRINGS = replace(PLAIN, avro=AvroOptions(DecimalMode.STRING, BigintUnsignedMode.STRING))
NOT_NULL, UNSIGNED = int(ColumnFlag.NOT_NULL), int(ColumnFlag.UNSIGNED)
ID = column(T.LONG, name="id", Flag=NOT_NULL)


def field_of(info: TableInfo, name: str, options: EncodingOptions = PLAIN) -> dict[str, Any]:
    """A column's field in the record of a row."""
    value = json.loads(schemas_of("inventory", "t", info, options).value)
    return next(field for field in value["fields"][0]["type"][1]["fields"] if field["name"] == name)


def of_type(tp: T, options: EncodingOptions = PLAIN, **parts: Any) -> Any:
    """The field of a column of a type, without its name."""
    found = field_of(table([ID, column(tp, name="c", **parts)], pk_is_handle=True), "c", options)
    return {name: member for name, member in found.items() if name != "name"}


def test_the_records_as_the_converter_writes_them() -> None:
    made = schemas_of("inventory", "users", table([ID, column(T.VARCHAR, name="city")], pk_is_handle=True), PLAIN)
    assert made.key == (
        '{"type":"record","name":"Key","namespace":"dbserver1.inventory.users","fields":[{"name":"id","type":"int"}],'
        '"connect.name":"dbserver1.inventory.users.Key"}'
    )
    row = (
        '{"type":"record","name":"Value","fields":[{"name":"id","type":"int"},{"name":"city","type":["null","string"],"default":null}],'
        '"connect.name":"dbserver1.inventory.users.Value"}'
    )
    snapshot = (
        '{"name":"snapshot","type":[{"type":"string","connect.version":1,"connect.parameters":{"allowed":"true,last,false,incremental"},'
        '"connect.default":"false","connect.name":"io.debezium.data.Enum"},"null"],"default":"false"}'
    )

    def nullable(name: str, kind: str) -> str:
        return f'{{"name":"{name}","type":["null","{kind}"],"default":null}}'

    source = (
        '{"type":"record","name":"Source","namespace":"io.debezium.connector.mysql","fields":[{"name":"version","type":"string"},'
        '{"name":"connector","type":"string"},{"name":"name","type":"string"},{"name":"ts_ms","type":"long"},'
        f'{snapshot},{{"name":"db","type":"string"}},{nullable("sequence", "string")},{nullable("table", "string")},'
        f'{{"name":"server_id","type":"long"}},{nullable("gtid", "string")},{{"name":"file","type":"string"}},'
        f'{{"name":"pos","type":"long"}},{{"name":"row","type":"int"}},{nullable("thread", "long")},{nullable("query", "string")},'
        '{"name":"commit_ts","type":{"type":"long","connect.default":0},"default":0}],'
        '"connect.name":"io.debezium.connector.mysql.Source"}'
    )
    block = (
        '{"type":"record","name":"block","namespace":"event","fields":[{"name":"id","type":"string"},{"name":"total_order","type":"long"},'
        '{"name":"data_collection_order","type":"long"}],"connect.version":1,"connect.name":"event.block"}'
    )
    assert made.value == (
        '{"type":"record","name":"Envelope","namespace":"dbserver1.inventory.users","fields":['
        f'{{"name":"before","type":["null",{row}],"default":null}},{nullable("after", "Value")},{{"name":"source","type":{source}}},'
        f'{{"name":"op","type":"string"}},{nullable("ts_ms", "long")},{{"name":"transaction","type":["null",{block}],"default":null}}],'
        '"connect.version":1,"connect.name":"dbserver1.inventory.users.Envelope"}'
    )


def test_a_decimal_has_the_properties_of_connects() -> None:
    assert json.dumps(of_type(T.NEWDECIMAL, Flen=10, Decimal=2, Flag=NOT_NULL)["type"], separators=(",", ":")) == (
        '{"type":"bytes","scale":2,"precision":10,"connect.version":1,"connect.parameters":{"scale":"2","connect.decimal.precision":"10"},'
        '"connect.name":"org.apache.kafka.connect.data.Decimal","logicalType":"decimal"}'
    )
    assert of_type(T.NEWDECIMAL, STRINGS, Flen=10, Decimal=2) == {"type": ["null", "string"], "default": None}


@pytest.mark.parametrize(
    ("tp", "parts", "want"),
    [
        (T.TINY, {}, {"type": "int", "connect.type": "int16"}),
        (T.SHORT, {"Flag": UNSIGNED}, "int"),
        (T.LONG, {"Flag": UNSIGNED}, "long"),
        (T.LONGLONG, {"Flag": UNSIGNED}, "long"),
        (T.FLOAT, {"Decimal": -1}, "float"),
        (T.FLOAT, {"Flen": 7, "Decimal": 2}, "double"),
        (T.VARCHAR, {"Charset": "binary"}, "bytes"),
        (T.VARCHAR, {"Flag": int(ColumnFlag.BINARY)}, "string"),
        (T.BIT, {"Flen": 1}, "boolean"),
        (
            T.BIT,
            {"Flen": 9},
            {"type": "bytes", "connect.version": 1, "connect.parameters": {"length": "9"}, "connect.name": "io.debezium.data.Bits"},
        ),
        (
            T.ENUM,
            {"Elems": ["a", "b,c"]},
            {"type": "string", "connect.version": 1, "connect.parameters": {"allowed": "a,b\\,c"}, "connect.name": "io.debezium.data.Enum"},
        ),
        (T.VECTOR, {}, {"type": "string", "connect.name": "io.debezium.data.TiDBVectorFloat32"}),
        (T.TIMESTAMP, {}, {"type": "string", "connect.version": 1, "connect.name": "io.debezium.time.ZonedTimestamp"}),
        (T.DATETIME, {"Decimal": 4}, {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"}),
    ],
)
def test_types(tp: T, parts: dict[str, Any], want: Any) -> None:
    assert of_type(tp, **parts) == {"type": ["null", want], "default": None}


@pytest.mark.parametrize(
    ("tp", "default", "parts", "want"),
    [
        (T.LONG, "7", {}, 7),
        (T.LONGLONG, "18446744073709551615", {"Flag": UNSIGNED}, -1),
        (T.FLOAT, "0.1", {"Decimal": -1}, 0.1),
        (T.FLOAT, "0.5", {"Flen": 7, "Decimal": 2}, 0.5),
        (T.DOUBLE, "1e-7", {}, 1e-7),
        (T.NEWDECIMAL, "-1.50", {"Flen": 10, "Decimal": 2}, "\xff\x6a"),
        (T.VARCHAR, "é", {}, "é"),
        (T.VARCHAR, "é", {"Charset": "binary"}, "\xc3\xa9"),
        (T.BIT, None, {"default_bit": "BQ==", "Flen": 9}, "\x05\x00"),
        (T.BIT, None, {"default_bit": "AQ==", "Flen": 1}, True),
        (T.DATE, "1970-01-02", {}, 1),
        (T.DATETIME, "CURRENT_TIMESTAMP", {"Decimal": 0}, 0),
        (T.TIMESTAMP, "2021-02-28 11:22:33", {"Decimal": 0}, "2021-02-28T11:22:33Z"),
        (T.ENUM, "b", {"Elems": ["a", "b"]}, "b"),
    ],
)
def test_defaults_come_first(tp: T, default: Any, parts: dict[str, Any], want: Any) -> None:
    """Of a nullable column the default's type is the first branch; the converter keeps the default in the type too."""
    nullable = of_type(tp, default=default, **parts)
    assert nullable["default"] == want
    assert nullable["type"][1] == "null"
    assert nullable["type"][0]["connect.default"] == want
    flag = parts.get("Flag", 0) | NOT_NULL
    assert of_type(tp, default=default, **(parts | {"Flag": flag})) == {"type": nullable["type"][0], "default": want}


def test_defaults_that_are_none() -> None:
    assert of_type(T.TIMESTAMP, default="CURRENT_TIMESTAMP")["default"] is None
    assert of_type(T.TIMESTAMP, default="CURRENT_TIMESTAMP", Flag=NOT_NULL)["default"] == "1970-01-01T00:00:00Z"
    assert of_type(T.DATE, default="0000-00-00")["default"] is None
    assert of_type(T.DATE, default="0000-00-00", Flag=NOT_NULL)["default"] == 0
    assert "default" not in of_type(T.LONG, default="nextval(`s`.`q`)", Flag=NOT_NULL)
    assert of_type(T.LONGLONG, STRINGS, default="18446744073709551615", Flag=UNSIGNED)["default"] == "18446744073709551615"


def test_names() -> None:
    info = table([column(T.LONG, name="a-b"), column(T.LONG, name="a_b", Flag=NOT_NULL)], key=[1])
    made = schemas_of("1db", "t.1é", info, replace(PLAIN, debezium=DebeziumOptions(cluster_id="my-feed")))
    key, value = json.loads(made.key or ""), json.loads(made.value)
    assert (key["namespace"], key["connect.name"]) == ("my_feed._1db.t._1_", "my_feed._1db.t._1_.Key")
    assert key["fields"] == [{"name": "a_b_2", "type": {"type": "int", "connect.parameters": {"tidb_name": "a_b"}}}]
    assert [one["name"] for one in value["fields"][0]["type"][1]["fields"]] == ["a_b", "a_b_2"]
    fastavro.parse_schema(key)
    fastavro.parse_schema(value)


def test_the_same_table_has_the_same_text_and_a_column_more_is_compatible() -> None:
    old, again = (table([ID, column(T.LONG, name="n")], pk_is_handle=True) for _ in range(2))
    assert schemas_of("s", "t", old, PLAIN) == schemas_of("s", "t", again, PLAIN)
    for added, refused in ((column(T.NEWDECIMAL, name="c", Flen=5, Decimal=1), []), (column(T.LONG, name="c", Flag=NOT_NULL), ["c"])):
        new = table([ID, column(T.LONG, name="n"), added], pk_is_handle=True)
        found = faults(schemas_of("s", "t", old, PLAIN).value, schemas_of("s", "t", new, PLAIN).value, "BACKWARD")
        assert [fault.column for fault in found] == refused
    started = replace(PLAIN, debezium=replace(PLAIN.debezium, include_start_ts=True))
    assert not faults(schemas_of("s", "t", old, PLAIN).value, schemas_of("s", "t", old, started).value, "FULL")


def test_no_handle_no_key_no_virtual_columns_no_unknown_types() -> None:
    info = table([column(T.LONG, name="n"), column(T.LONG, name="twice", generated_expr_string="`n` * 2")])
    assert schemas_of("s", "t", info, PLAIN).key is None
    assert "twice" not in schemas_of("s", "t", info, PLAIN).value
    with pytest.raises(SchemaError, match="column g is of type 255"):
        schemas_of("s", "t", table([ID, column(255, name="g")]), PLAIN)  # type: ignore[arg-type]
