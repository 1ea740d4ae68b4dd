"""`from_open_protocol` in Spark: Kafka's columns → events, self-describing and typed, compressed, with claim checks, and broken ones."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, LongType, StructType

from tests.support.golden import ticdc
from tests.support.golden.open_options import encode, golden, message
from tests.support.spark.sessions import spark_session
from tidemill.protocols.open import Column, DdlMessage, RowEvent, decode
from tidemill.protocols.open.codes import ColumnFlag
from tidemill.protocols.open.encode import framed
from tidemill.protocols.options import EncodingOptions, LargeMessage, LargeMessageOption
from tidemill.sinks.claim_check import ClaimCheckStorage
from tidemill.spark import from_open_protocol

pytestmark = pytest.mark.spark

session = spark_session()


def events_of(session: Any, messages: list[tuple[bytes | None, bytes | None]], *schema: Any, **options: Any) -> list[Any]:
    """The exploded events of messages, in order."""
    frame = session.createDataFrame([(i, *m) for i, m in enumerate(messages)], "i int, key binary, value binary").coalesce(1)
    events = frame.select("i", F.posexplode(from_open_protocol("key", "value", *schema, **options)).alias("n", "event"))
    return [row.event for row in events.orderBy("i", "n").collect()]


def test_events_describe_themselves(session: Any) -> None:
    lines = [line for line in ticdc.lines("open") if line["kind"] != "config"]
    lines = lines[:400] + [line for line in lines if line["kind"] != "row"][-20:] + golden()["lz4"][:30] + golden()["snappy"][:30]
    messages = [message(line) for line in lines]
    got = events_of(session, messages)
    want = [event for m in messages for event in decode(*m)]
    assert len(got) == len(want)
    for row, event in zip(got, want, strict=True):
        assert row.ts == event.ts
        if isinstance(event, RowEvent):
            assert (row.type, row.op, row.schema, row.table) == ("row", event.kind.value, event.schema, event.table)
            assert (row.row_id, row.partition, row.only_handle_key) == (event.row_id, event.partition, False)
            for image, columns in ((row.before, event.before), (row.after, event.after)):
                assert sorted(image or ()) == sorted(c.name for c in columns)
                for column in columns:
                    said = image[column.name]
                    assert (said.type, said.flags, said.handle) == (int(column.type), int(column.flags), column.handle)
                    assert (said.value, said.bytes) == as_said(column)
        elif isinstance(event, DdlMessage):
            assert (row.type, row.query, row.ddl_type, row.schema, row.table) == ("ddl", event.query, event.type, event.schema, event.table)
        else:
            assert row.type == "resolved"


def as_said(column: Column) -> tuple[str | None, bytes | None]:
    """Text and bytes of a column that describes itself: bytes where it is binary."""
    value = column.value
    if isinstance(value, bytes):
        return (None, value) if column.flags & ColumnFlag.BINARY else (value.decode(), None)
    return None if value is None else value if isinstance(value, str) else repr(value), None


KEY = b'{"ts":400000000000000000,"scm":"app","tbl":"t","rid":7,"t":1}'
VALUE = (
    b'{"u":{"id":{"t":8,"h":true,"f":139,"v":18446744073709551615},"price":{"t":246,"f":65,"v":"12.50"},"at":{"t":12,"f":65,'
    b'"v":"2021-02-28 11:22:33.123"},"day":{"t":10,"f":65,"v":"0000-00-00"},"name":{"t":15,"f":64,"v":"caf\xc3\xa9"},'
    b'"data":{"t":252,"f":65,"v":"AP8="},"v":{"t":225,"f":65,"v":"[1,2.5]"},"ok":{"t":1,"f":65,"v":1},"none":{"t":3,"f":65,"v":null}}}'
)
SCHEMA = (
    "id decimal(20,0), price decimal(10,4), at timestamp_ntz, day date, name string, data binary, v array<float>, ok boolean, none int, "
    "younger bigint"
)


def test_a_schema_makes_typed_columns(session: Any) -> None:
    (event,) = events_of(session, [framed(KEY, VALUE)], SCHEMA)
    assert event.before is None
    assert event.after.asDict() == {
        "id": Decimal((1 << 64) - 1),
        "price": Decimal("12.5000"),
        "at": dt.datetime(2021, 2, 28, 11, 22, 33, 123000),
        "day": None,
        "name": "café",
        "data": bytearray(b"\x00\xff"),
        "v": [1.0, 2.5],
        "ok": True,
        "none": None,
        "younger": None,
    }


def test_other_tables_are_left_out_and_null_messages_pass(session: Any) -> None:
    other = framed(KEY.replace(b'"t"', b'"o"', 1), b'{"u":{"id":{"t":15,"f":64,"v":"x"}}}')
    schema = StructType().add("id", DecimalType(20, 0)).add("none", LongType())
    messages = [(None, b"x"), framed(KEY, VALUE), other, framed(b'{"ts":5,"t":3}', b""), (framed(b'{"ts":6,"t":3}', b"")[0], None)]
    got = events_of(session, messages, schema, table="app.t")
    assert [(e.type, e.ts) for e in got] == [("row", 400000000000000000), ("resolved", 5), ("resolved", 6)]
    with pytest.raises(ValueError, match=r"schema\.name"):
        from_open_protocol("key", "value", table="t")
    with pytest.raises(ValueError, match="cannot be read as"):
        from_open_protocol("key", "value", "a struct<b:int>")


def test_claim_checks_are_read(session: Any, tmp_path: Path) -> None:
    large = LargeMessage(LargeMessageOption.CLAIM_CHECK, claim_check_storage_uri=f"file://{tmp_path}")
    ids = [line["id"] for line in golden()["handle-key-only"] if "error" not in line][:60]
    messages = [(m.key, m.value) for m in encode(ids, EncodingOptions(max_message_bytes=700, large_message=large))[0]]
    got = events_of(session, messages, claim_checks=f"file://{tmp_path}")
    want = [e for m in messages for e in decode(*m, fetch=ClaimCheckStorage(f"file://{tmp_path}").fetch)]
    assert [(sorted(e.after or ()), e.claim_check) for e in got] == [(sorted(c.name for c in e.after), e.claim_check) for e in want]  # type: ignore[union-attr]
    assert any(e.claim_check for e in got)


@pytest.mark.parametrize(
    ("messages", "schema", "fault"),
    [
        (
            [framed(KEY, VALUE), framed(KEY, b'{"u":{"id":{"t":8,"f":1,"v":"x"}}}')],
            (),
            r"message 1 of the batch: message value, byte 8, u\.id\.v",
        ),
        ([framed(KEY, VALUE)], ("price int",), r"message 0 of the batch: .*after\.price\.v: '12\.50' is not an integer"),
        ([framed(KEY, VALUE)], ("data string",), r"ask for binary\n +the fault is the reader's"),
    ],
)
def test_refusals_name_message_field_and_fault(session: Any, messages: Any, schema: tuple[str, ...], fault: str) -> None:
    with pytest.raises(PythonException, match=fault):
        events_of(session, messages, *schema)


def test_permissive_leaves_out_what_cannot_be_read(session: Any) -> None:
    broken = framed(KEY, b'{"u":{"id":{"t":8,"f":1,"v":"x"}}}')
    misfit = framed(KEY, VALUE.replace(b"12.50", b"a lot"))
    got = events_of(session, [framed(KEY, VALUE), broken, misfit, framed(KEY, VALUE)], SCHEMA, mode="permissive")
    assert [event.after.price for event in got] == [Decimal("12.5000")] * 2
    with pytest.raises(ValueError, match="neither FAILFAST nor PERMISSIVE"):
        from_open_protocol("key", "value", mode="lenient")
