"""Decoded values in the types that a reader asks for."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidemill.protocols.common.typed import caster

MOMENT = dt.datetime(2021, 2, 28, 11, 22, 33, 123000)


@pytest.mark.parametrize(
    ("kind", "value", "want"),
    [
        (pa.int8(), -128, -128),
        (pa.int64(), "12", 12),
        (pa.uint64(), (1 << 64) - 1, (1 << 64) - 1),
        (pa.decimal128(20, 0), (1 << 64) - 1, Decimal((1 << 64) - 1)),
        (pa.bool_(), 1, True),
        (pa.bool_(), 0, False),
        (pa.float32(), 0.5, 0.5),
        (pa.float64(), "1e3", 1000.0),
        (pa.float64(), 7, 7.0),
        (pa.decimal128(10, 4), "12.00", Decimal("12.0000")),
        (pa.decimal256(65, 30), "-0.000000000000000000000000000001", Decimal("-1e-30")),
        (pa.string(), b"caf\xc3\xa9", "café"),
        (pa.string(), 5, "5"),
        (pa.string(), "0000-00-00", "0000-00-00"),
        (pa.binary(), b"\xff", b"\xff"),
        (pa.binary(), "x", b"x"),
        (pa.date32(), "2021-02-28", dt.date(2021, 2, 28)),
        (pa.date32(), "2021-02-28 11:22:33", dt.date(2021, 2, 28)),
        (pa.date32(), "0000-00-00", None),
        (pa.date32(), "2021-00-10", None),
        (pa.timestamp("us"), "2021-02-28 11:22:33.123", MOMENT),
        (pa.timestamp("us"), "0000-00-00 00:00:00", None),
        (pa.timestamp("us", "UTC"), "2021-02-28 11:22:33.123", MOMENT.replace(tzinfo=dt.UTC)),
        (pa.duration("us"), "-838:59:59.000", -dt.timedelta(hours=838, minutes=59, seconds=59)),
        (pa.duration("us"), "11:22:33.5", dt.timedelta(hours=11, minutes=22, seconds=33, microseconds=500000)),
        (pa.list_(pa.float32()), "[1,2.5,-3]", [1.0, 2.5, -3.0]),
        (pa.list_(pa.float32()), "[]", []),
    ],
    ids=str,
)
def test_values(kind: pa.DataType, value: Any, want: Any) -> None:
    got = caster(kind)(value)
    assert got == want
    assert type(got) is type(want)
    assert pa.array([got], kind).to_pylist() == [want]


@pytest.mark.parametrize(
    ("kind", "value", "fault"),
    [
        (pa.int8(), 128, "not an integer from -128 to 127"),
        (pa.int64(), 1.5, "not an integer"),
        (pa.int64(), "a", "not an integer"),
        (pa.uint8(), -1, "not an integer from 0 to 255"),
        (pa.float64(), "x", "not a number"),
        (pa.decimal128(4, 1), "12.34", "does not fit"),
        (pa.decimal128(4, 1), "1000.0", "does not fit"),
        (pa.decimal128(4, 1), "NaN", "does not fit"),
        (pa.decimal128(4, 1), "x", "does not fit"),
        (pa.string(), b"\xff", "not UTF-8"),
        (pa.date32(), "soon", "not a date or time"),
        (pa.duration("us"), "x", "not a TIME"),
        (pa.list_(pa.float32()), "1,2", "not a vector"),
        (pa.list_(pa.float32()), "[a]", "not a number"),
    ],
    ids=str,
)
def test_refusals(kind: pa.DataType, value: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        caster(kind)(value)


def test_types_that_no_column_has() -> None:
    for kind in (pa.map_(pa.string(), pa.string()), pa.struct([("a", pa.int8())]), pa.null()):
        with pytest.raises(ValueError, match="cannot be read as"):
            caster(kind)
