"""`from_canal_json` in Spark: Kafka's value column → events, self-describing and typed, and broken ones."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F

from tests.support.golden import ticdc
from tests.support.spark.sessions import spark_session
from tidemill.protocols.canal_json import RowEvent, WatermarkMessage, decode
from tidemill.protocols.common.mysqlvalues import BINARIES, base_type
from tidemill.spark import from_canal_json

pytestmark = pytest.mark.spark

session = spark_session()


def events_of(session: Any, messages: list[bytes | None], *schema: Any, **options: Any) -> list[Any]:
    """The exploded events of messages, in order."""
    frame = session.createDataFrame(list(enumerate(messages)), "i int, value binary").coalesce(1)
    events = frame.select("i", F.posexplode(from_canal_json("value", *schema, **options)).alias("n", "event"))
    return [row.event for row in events.orderBy("i", "n").collect()]


def row_message(data: dict[str, Any], kind: str = "INSERT", table: str = "t", **more: Any) -> bytes:
    types = {"id": "bigint", "price": "decimal(10,2)", "at": "datetime(3)", "v": "varchar(9)"}
    base = {"database": "d", "table": table, "pkNames": ["id"], "isDdl": False, "type": kind, "es": 1, "sqlType": {}, "mysqlType": types}
    return json.dumps(base | {"data": [data], "old": None} | more).encode()


def test_events_describe_themselves(session: Any) -> None:
    lines = [line for line in ticdc.lines("canal_json") if line.get("config") in ("ext", "only-updated") and "value" in line]
    lines = lines[:300] + [line for line in lines if line["kind"] != "row"][-10:] + lines[-100:]
    messages = [line["value"].encode() for line in lines]
    got = events_of(session, [*messages, None])
    want = [event for m in messages for event in decode(m)]
    assert len(got) == len(want)
    for row, event in zip(got, want, strict=True):
        if isinstance(event, RowEvent):
            assert (row.type, row.op, row.schema, row.table) == ("row", event.kind.value, event.schema, event.table)
            assert (row.es, row.ts) == (event.es, event.commit_ts)
            for image, columns in ((row.before, event.whole_before), (row.after, event.after)):
                assert sorted(image or ()) == sorted(c.name for c in columns)
                for column in columns:
                    said = image[column.name]
                    assert (said.mysql_type, said.sql_type, said.key) == (column.mysql_type, column.sql_type, column.key)
                    binary = base_type(column.mysql_type) in BINARIES
                    assert (said.bytes if binary else said.value is None) == (column.value if binary else column.value is None)
        elif isinstance(event, WatermarkMessage):
            assert (row.type, row.ts) == ("watermark", event.ts)
        else:
            assert (row.type, row.query, row.ddl_type) == ("ddl", event.query, event.type)


def test_typed_by_a_schema(session: Any) -> None:
    messages = [
        row_message({"id": "1", "price": "12.50", "at": "2021-02-03 04:05:06.789", "v": "x"}),
        row_message({"id": "1", "price": "13.00", "at": None, "v": "x"}, "UPDATE", old=[{"price": "12.50"}]),
        row_message({"id": "9", "price": "1.00", "at": None, "v": "y"}, table="other"),
    ]
    first, second = events_of(session, messages, "id bigint, price decimal(12,2), at timestamp_ntz", table="d.t")
    assert (first.before, first.after.id, first.after.price) == (None, 1, Decimal("12.50"))
    assert first.after.at.isoformat() == "2021-02-03T04:05:06.789000"
    assert (second.before.id, second.before.price, second.after.price, second.after["at"]) == (1, Decimal("12.50"), Decimal("13.00"), None)


def test_what_is_refused(session: Any) -> None:
    with pytest.raises(PythonException, match=r"message 1 of the batch: message value, byte \d+, es: it is missing"):
        events_of(session, [row_message({"id": "1"}), b'{"type":"INSERT","database":"d"}'])
    with pytest.raises(PythonException, match=r"data\.v: b'x' is not an integer"):
        events_of(session, [row_message({"v": "x"})], "v int")
    with pytest.raises(ValueError, match=r"a table is given as schema\.name, not 'd'"):
        from_canal_json("value", table="d")
