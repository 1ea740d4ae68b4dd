"""Events of the simple protocol as Arrow."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidemill.errors import MalformedMessage
from tidemill.protocols.simple.arrow import decode_array, event_type

ROW = {"version": 1, "type": "UPDATE", "commitTs": 9, "database": "d", "table": "t", "tableID": 7, "schemaVersion": 3, "buildTs": 1}
DATA = {"id": "1", "price": "1.5", "b": "AQI=", "at": {"location": "UTC", "value": "2026-01-02 03:04:05"}, "n": None}
SCHEMA = pa.struct([("id", pa.int64()), ("price", pa.decimal128(12, 2)), ("b", pa.binary()), ("at", pa.string()), ("none", pa.string())])


def message(**members: Any) -> bytes:
    return json.dumps({**ROW, **members}).encode()


def test_typed_and_untyped_rows() -> None:
    value = pa.array([message(data=DATA, old={**DATA, "price": "1"}), None, message(type="DELETE", old=DATA, database="x")])
    typed = decode_array(value, SCHEMA, table=("d", "t")).to_pylist()
    assert [None if one is None else len(one) for one in typed] == [1, None, 0]
    (event,) = typed[0]
    assert (event["type"], event["op"], event["ts"], event["schema_version"]) == ("row", "update", 9, 3)
    assert event["after"] == {"id": 1, "price": Decimal("1.50"), "b": b"\1\2", "at": "2026-01-02 03:04:05", "none": None}
    assert event["before"]["price"] == Decimal("1.00")
    (plain,) = decode_array(value).to_pylist()[2]
    assert (plain["op"], plain["after"]) == ("delete", None)
    assert dict(plain["before"])["b"] == "AQI="


def test_other_events() -> None:
    (watermark,) = decode_array(pa.array([message(type="WATERMARK")])).to_pylist()[0]
    assert (watermark["type"], watermark["ts"], watermark["table"]) == ("watermark", 9, None)
    (ddl,) = decode_array(pa.array([message(type="CREATE", sql="CREATE DATABASE d")])).to_pylist()[0]
    assert (ddl["type"], ddl["query"], ddl["ddl_type"]) == ("ddl", "CREATE DATABASE d", "CREATE")
    assert decode_array(pa.array([], pa.binary())).type == pa.list_(event_type())


@pytest.mark.parametrize(
    ("value", "fault"),
    [(message(data={"id": "x"}), "message 0.*data.id"), (message(data={"b": "?"}), "data.b.*expected base64"), (b"{", "message 0")],
)
def test_faults(value: bytes, fault: str) -> None:
    with pytest.raises(MalformedMessage, match=fault):
        decode_array(pa.array([value]), SCHEMA)
