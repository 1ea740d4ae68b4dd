"""A table of values at the edges of their types, and expressions over it, for comparing views with Spark."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidemill.views import types as t
from tidemill.views.plan import Column, Table

EDGES = Table(
    "shop",
    "x",
    (
        Column("id", t.INT, False),
        Column("i", t.INT),
        Column("j", t.INT),
        Column("b", t.LONG),
        Column("y", pa.int8()),
        Column("d", pa.decimal128(10, 2)),
        Column("e", pa.decimal128(20, 5)),
        Column("f", t.DOUBLE),
        Column("g", pa.float32()),
        Column("s", t.STRING),
        Column("u", t.STRING),
        Column("day", t.DATE),
        Column("at", t.DATETIME),
        Column("mo", t.MOMENT),
        Column("bin", pa.binary()),
        Column("big", pa.decimal128(38, 10)),
    ),
    (0,),
)
_INTEGERS = (0, 1, -1, 2, -7, 7, 2147483647, -2147483648, None)
_TEXTS = (
    *("", "a", "A", "ab ", " ab", "ß", "İ", "é", "e\u0301", "12", " 12 ", "1.5", "-3", "it's", "abc", "true", "ΑΣ", "2024-02-29"),
    *("2024-2-9", "its", "a%b", "a_b", "a\\b", None, "\u00a05", "😀x", "NaN", "Infinity", "0x10", "\t7\n"),
)
_DOUBLES = (0.0, -0.0, 1.5, 2.5, -2.5, 0.1, 1e15, 1e300, float("nan"), float("inf"), float("-inf"), 3.9999999, None, 1e-320, 123456789.123)
_CENTS = ("0.00", "0.01", "-0.01", "2.50", "-2.50", "1.00", "99999999.99", "-99999999.99", None, "0.05")
_DAYS = (
    *(datetime.date(2024, 2, 29), datetime.date(1969, 12, 31), datetime.date(1582, 10, 4), datetime.date(1, 1, 1)),
    *(datetime.date(9999, 12, 31), None, datetime.date(2023, 12, 31)),
)
_TIMES = (
    *(datetime.datetime(2024, 2, 29, 23, 59, 59, 999999), datetime.datetime(1969, 12, 31, 23, 59, 59, 1), datetime.datetime(1, 1, 1)),
    *(None, datetime.datetime(9999, 12, 31, 23, 59, 59, 999999), datetime.datetime(2024, 3, 10, 2, 30)),
)
_LONGS = (0, 1, -1, 2**63 - 1, -(2**63), None, 10**12)
_FIVE = ("0.00001", "-123456789012345.12345", None, "2.5", "-2.5", "0.5")
_WIDE = ("1234567890123456789012345678.0123456789", "0", None, "-1.5")


def rows() -> list[dict[str, Any]]:
    """The rows of the table."""
    return [_row(k) for k in range(len(_TEXTS))]


def _row(k: int) -> dict[str, Any]:
    def of(values: tuple[Any, ...]) -> Any:
        return values[k % len(values)]

    def decimal(text: str | None, places: str) -> Decimal | None:
        return None if text is None else Decimal(text).quantize(Decimal(places))

    moment = of(_TIMES)
    return {
        "id": k,
        "i": of(_INTEGERS),
        "j": _INTEGERS[(k * 5 + 3) % len(_INTEGERS)],
        "b": of(_LONGS),
        "y": of((0, 1, -128, 127, None)),
        "d": decimal(of(_CENTS), "0.01"),
        "e": decimal(of(_FIVE), "0.00001"),
        "f": of(_DOUBLES),
        "g": of((0.1, 1.5, -0.0, None, 3e38, float("nan"))),
        "s": _TEXTS[k],
        "u": _TEXTS[(k * 7 + 1) % len(_TEXTS)],
        "day": of(_DAYS),
        "at": moment,
        "mo": None if moment is None else moment.replace(tzinfo=datetime.UTC),
        "bin": of((b"", b"\x00", b"ab", None, b"\xff\xfe")),
        "big": None if of(_WIDE) is None else Decimal(of(_WIDE)),
    }
