"""`from_canal` in Spark: Kafka's value column, or single entries → events, self-describing and typed, and broken ones."""

from __future__ import annotations

import base64
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F

from tests.support.canal.golden import lines
from tests.support.golden import ticdc
from tests.support.spark.sessions import spark_session
from tidemill.functions import from_canal
from tidemill.protocols.canal import RowEvent, decode
from tidemill.protocols.canal.encode import packet

pytestmark = pytest.mark.spark

session = spark_session()


def events_of(session: Any, messages: list[bytes | None], *schema: Any, **options: Any) -> list[Any]:
    """The exploded events of messages, in order."""
    frame = session.createDataFrame(list(enumerate(messages)), "i int, value binary").coalesce(1)
    events = frame.select("i", F.posexplode(from_canal("value", *schema, **options)).alias("n", "event"))
    return [row.event for row in events.orderBy("i", "n").collect()]


def test_events_describe_themselves(session: Any) -> None:
    entries = [ticdc.raw(line["entry"]) or b"" for line in ticdc.lines("canal") if "entry" in line]
    messages = [packet(entries[i : i + 20]) for i in range(0, 400, 20)]
    got = events_of(session, [*messages, None])
    want = [event for m in messages for event in decode(m)]
    assert len(got) == len(want)
    for row, event in zip(got, want, strict=True):
        assert row.es == event.es
        if isinstance(event, RowEvent):
            assert (row.type, row.op, row.schema, row.table) == ("row", event.kind.value, event.schema, event.table)
            for image, columns in ((row.before, event.before), (row.after, event.after)):
                assert sorted(image or ()) == sorted(c.name for c in columns)
                assert all(image[c.name].mysql_type == c.mysql_type and image[c.name].key == c.key for c in columns)


def test_typed_columns_of_packets_and_of_entries(session: Any) -> None:
    batch = next(batch for batch in lines("flat_message") if batch["scenario"] == "dml_types")
    entries = [base64.b64decode(entry) for entry in batch["entries"]]
    schema = (
        "id int, c_bigint_u decimal(20,0), c_dec decimal(10,2), c_double double, c_datetime3 timestamp_ntz, c_varchar string, c_blob binary"
    )
    rows = [row for row in events_of(session, [packet(entries)], schema, table="ct.t_types") if row.type == "row"]
    first = rows[0].after
    assert first.id == 1
    assert (first.c_bigint_u, first.c_dec, first.c_double) == (Decimal(0), Decimal("-12345678.91"), 1.7976931348623157e308)
    assert (first.c_datetime3, first.c_varchar) == (datetime(2024, 2, 29, 23, 59, 59, 999000), 'héllo "q" \\ \n')
    assert bytes(first.c_blob) == b"\x00\x01\x02\x80\xff"
    assert rows[1].after.c_bigint_u == Decimal(18446744073709551615)
    assert [row.op for row in rows] == [event.kind.value for event in decode(packet(entries)) if isinstance(event, RowEvent)]
    assert events_of(session, entries, schema, table="ct.t_types", entries=True) == events_of(
        session, [packet(entries)], schema, table="ct.t_types"
    )


def test_what_cannot_be_read(session: Any) -> None:
    with pytest.raises(PythonException, match="message 1 of the batch: Canal packet: 3 bytes that cannot be read as Packet"):
        events_of(session, [packet([]), b"\xff\xff\xff"])
    with pytest.raises(ValueError, match=r"schema\.name"):
        from_canal("value", table="t")
    with pytest.raises(ValueError, match="cannot be read as"):
        from_canal("value", "a struct<b:int>")
