"""Schema texts are TiCDC's; where TiCDC has none, they are what the documents say."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import fastavro
import pytest

from tests.support.golden import avro, ticdc
from tests.support.schema.tables import column, table
from tidemill.protocols.avro import Side, schemas_of, subject, table_schemas
from tidemill.protocols.avro.names import EXTENSION, field_names, sanitize
from tidemill.protocols.options import AvroOptions, BigintUnsignedMode, DecimalMode, EncodingOptions, MessageFormat
from tidemill.tidb.schema.codes import ColumnFlag
from tidemill.tidb.schema.codes import MySQLType as T
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.history import TableVersion

PLAIN = EncodingOptions(MessageFormat.AVRO)
STRINGS = replace(PLAIN, avro=AvroOptions(DecimalMode.STRING, BigintUnsignedMode.STRING))


def field_of(info: TableInfo, name: str, options: EncodingOptions = PLAIN) -> dict[str, Any]:
    """A field of the value's schema."""
    value = json.loads(schemas_of("s", "t", info, options).value)
    return next(field for field in value["fields"] if field["name"] == name)


def with_default(tp: T, default: Any, *, not_null: bool = False, **parts: Any) -> TableInfo:
    """A table of one column with a default, behind its key."""
    flag = parts.pop("Flag", 0) | (ColumnFlag.NOT_NULL if not_null else 0)
    return table([column(T.LONG), column(tp, name="c", default=default, Flag=int(flag), **parts)], pk_is_handle=True)


@pytest.mark.parametrize("config", sorted(avro.expected()))
def test_texts_and_subjects_are_ticdcs(config: str) -> None:
    options, seen = avro.configs()[config], 0
    for message in avro.expected()[config]:
        if message.error is not None:
            continue
        version = message.row.version
        made = schemas_of(version.schema, version.table, version.info, options)
        for side, number, text in ((Side.KEY, message.key_id, made.key), (Side.VALUE, message.value_id, made.value)):
            if number is not None:
                want, subjects = avro.schemas()[config, number]
                assert text == want
                assert subject(message.topic, side) in subjects
                seen += 1
    assert seen > len(avro.expected()[config])


def test_of_a_table_version() -> None:
    found = next(iter(ticdc.versions().values()))
    version = TableVersion(found.schema, 1, found.info, found.info.physical_ids, found.version, None)
    assert table_schemas(version, PLAIN) == schemas_of(found.schema, version.table, found.info, PLAIN)


def test_no_handle_no_key() -> None:
    assert schemas_of("s", "t", table([column(T.LONG)]), PLAIN).key is None


def test_namespace_and_subject() -> None:
    options = replace(PLAIN, avro=AvroOptions(namespace="my-feed"))
    record = json.loads(schemas_of("1db", "t.é", table([column(T.LONG)], pk_is_handle=True), options).value)
    assert (record["namespace"], record["name"]) == ("my_feed._1db", "t__")
    assert subject("a.b.c-d", Side.KEY) == "a_b_c-d-key"


@pytest.mark.parametrize(
    ("name", "want"), [("1st", "_1st"), ("a-b", "a_b"), ("é中", "__"), ("_x9", "_x9"), ("²", "_"), ("٣", "_"), ("A b", "A_b")]
)
def test_sanitize(name: str, want: str) -> None:
    assert sanitize(name) == want


def test_names_that_collide_get_a_number() -> None:
    names = field_names(["a-b", "a_b", "a b", "x", "a_b_2", "q-q"])
    assert names == [("a_b", "a-b"), ("a_b_2", "a_b"), ("a_b_3", "a b"), ("x", None), ("a_b_2_2", "a_b_2"), ("q_q", None)]
    assert field_names(["_tidb_op", "_tidb_op_2"], EXTENSION) == [("_tidb_op_2", "_tidb_op"), ("_tidb_op_2_2", "_tidb_op_2")]


def test_colliding_columns_keep_one_name_in_key_and_value() -> None:
    info = table([column(T.LONG, name="a-b"), column(T.LONG, name="a_b", Flag=int(ColumnFlag.NOT_NULL))], key=[1])
    made = schemas_of("s", "t", info, PLAIN)
    key, value = json.loads(made.key or ""), json.loads(made.value)
    kind = {"type": "int", "connect.parameters": {"tidb_name": "a_b", "tidb_type": "INT"}}
    assert key["fields"] == [{"name": "a_b_2", "type": kind}]
    assert [field["name"] for field in value["fields"]] == ["a_b", "a_b_2"]
    assert value["fields"][0]["type"][1]["connect.parameters"]["tidb_name"] == "a-b"
    fastavro.parse_schema(value)


def test_extension_fields_keep_their_names() -> None:
    info = table([column(T.LONG), column(T.LONG, name="_tidb_op")], pk_is_handle=True)
    names = [f["name"] for f in json.loads(schemas_of("s", "t", info, replace(PLAIN, enable_tidb_extension=True)).value)["fields"]]
    assert names == ["c1", "_tidb_op_2", "_tidb_op", "_tidb_commit_ts", "_tidb_commit_physical_time"]
    assert field_of(info, "_tidb_op")["type"][1]["connect.parameters"] == {"tidb_type": "INT"}


@pytest.mark.parametrize("not_null", [False, True])
@pytest.mark.parametrize("tp", [T.TINY, T.LONG, T.LONGLONG, T.FLOAT, T.DOUBLE, T.YEAR])
def test_a_default_that_is_no_number_is_left_out(tp: T, not_null: bool) -> None:
    field = field_of(with_default(tp, "nextval(`s`.`q`)", not_null=not_null), "c")
    assert field.get("default") is None
    assert isinstance(field["type"], dict) if not_null else field["type"][0] == "null"


@pytest.mark.parametrize(
    ("tp", "default", "parts", "want"),
    [
        (T.LONG, "7", {}, 7),
        (T.LONG, "4294967295", {"Flag": int(ColumnFlag.UNSIGNED)}, 4294967295),
        (T.TINY, "-5", {}, -5),
        (T.LONGLONG, "18446744073709551615", {"Flag": int(ColumnFlag.UNSIGNED)}, -1),
        (T.LONGLONG, "-9223372036854775808", {}, -(1 << 63)),
        (T.YEAR, "0000", {}, 0),
        (T.FLOAT, "0.1", {}, 0.10000000149011612),
        (T.DOUBLE, "1e-7", {}, 1e-7),
        (T.BIT, None, {"default_bit": "BQ=="}, "BQ=="),
        (T.VARCHAR, "<é>", {}, "<é>"),
        (T.VARCHAR, "a\\b", {"Charset": "binary"}, "YVxi"),
        (T.TIMESTAMP, "CURRENT_TIMESTAMP", {}, "CURRENT_TIMESTAMP"),
        (T.JSON, "json_array()", {}, "json_array()"),
        (T.BLOB, "\x9e\xe9e", {"Charset": "binary"}, "wp7DqWU="),
    ],
)
def test_defaults(tp: T, default: Any, parts: dict[str, Any], want: Any) -> None:
    field = field_of(with_default(tp, default, **parts), "c")
    assert field["default"] == want
    assert field["type"][1] == "null"
    assert field_of(with_default(tp, default, not_null=True, **parts), "c")["default"] == want


def test_the_text_null_stands_behind_null() -> None:
    field = field_of(with_default(T.VARCHAR, "null"), "c")
    assert field["default"] == "null"
    assert field["type"][0] == "null"


def test_a_precise_decimal_has_no_default() -> None:
    info = with_default(T.NEWDECIMAL, "1.50", Flen=10, Decimal=2)
    assert field_of(info, "c")["default"] is None
    assert field_of(info, "c", STRINGS)["default"] == "1.50"
    assert "default" not in field_of(with_default(T.NEWDECIMAL, "1.50", not_null=True, Flen=10, Decimal=2), "c")


def test_members_are_escaped() -> None:
    info = table([column(T.ENUM, name="c", Elems=["a,b", "it''s", "<x>"])])
    text = schemas_of("s", "t", info, PLAIN).value
    assert '"allowed":"a\\\\,b,it\'s,\\u003cx\\u003e"' in text
