"""The types of a view's columns: Spark's, as the Arrow types that stand for them, and what Spark makes of two of them. Pure.

The rules are those of Spark 4 with its defaults: ANSI mode, and decimals that lose digits rather than overflow
(`spark.sql.decimalOperations.allowPrecisionLoss`).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidemill.views.refusal import refuse

MOST_DIGITS = 38
BOOLEAN, INT, LONG, DOUBLE, STRING = pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string()
DATE, MOMENT, DATETIME = pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")
NULL = pa.null()
COUNT = pa.decimal128(20, 0)
"""A count, where a decimal is divided by it."""

_NAMES = {
    pa.int8(): ("TINYINT", "tinyint"),
    pa.int16(): ("SMALLINT", "smallint"),
    INT: ("INTEGER", "int"),
    LONG: ("BIGINT", "bigint"),
    pa.float32(): ("FLOAT", "float"),
    DOUBLE: ("DOUBLE", "double"),
    BOOLEAN: ("BOOLEAN", "boolean"),
    STRING: ("VARCHAR", "string"),
    pa.binary(): ("BLOB", "binary"),
    DATE: ("DATE", "date"),
    MOMENT: ("TIMESTAMPTZ", "timestamp"),
    DATETIME: ("TIMESTAMP", "timestamp_ntz"),
    NULL: ("INTEGER", "void"),
    pa.list_(pa.field("element", pa.float32())): ("FLOAT[]", "array<float>"),
}
_DIGITS = {pa.int8(): 3, pa.int16(): 5, INT: 10, LONG: 20}
"""Digits of the decimal that an integer becomes beside a decimal."""


def engine_type(kind: pa.DataType) -> str:
    """Return DuckDB's name of a type."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return _NAMES[kind][0]


def spark_type(kind: pa.DataType) -> str:
    """Return Spark's name of a type."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _NAMES[kind][1]


def is_integer(kind: pa.DataType) -> bool:
    """Return whether a type is an integer's."""
    return bool(pa.types.is_integer(kind))


def is_decimal(kind: pa.DataType) -> bool:
    """Return whether a type is a decimal's."""
    return bool(pa.types.is_decimal(kind))


def is_float(kind: pa.DataType) -> bool:
    """Return whether a type is float or double."""
    return bool(pa.types.is_floating(kind))


def is_number(kind: pa.DataType) -> bool:
    """Return whether a type is a number's."""
    return is_integer(kind) or is_decimal(kind) or is_float(kind)


def is_exact(kind: pa.DataType) -> bool:
    """Return whether sums over a type can be kept by adding and subtracting."""
    return is_integer(kind) or (is_decimal(kind) and kind.precision <= MOST_DIGITS - 9)


def decimal_of(kind: pa.DataType, digits: int = 0) -> pa.DataType:
    """Return the decimal that holds an integer type, or a literal of so many digits; a decimal stays as it is."""
    return kind if is_decimal(kind) else pa.decimal128(digits or _DIGITS[kind], 0)


def adjusted(precision: int, scale: int) -> pa.DataType:
    """Return a decimal of so many digits; one that is too wide loses digits behind the point, but keeps six of them."""
    if precision <= MOST_DIGITS:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    return pa.decimal128(MOST_DIGITS, max(MOST_DIGITS - whole, min(scale, 6)))


def decimal_result(operator: str, one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type of an arithmetic operation of two decimals."""
    p1, s1, p2, s2 = one.precision, one.scale, other.precision, other.scale
    match operator:
        case "+" | "-":
            scale = max(s1, s2)
            return adjusted(max(p1 - s1, p2 - s2) + scale + 1, scale)
        case "*":
            return adjusted(p1 + p2 + 1, s1 + s2)
        case "/":
            scale = max(6, s1 + p2 + 1)
            return adjusted(p1 - s1 + s2 + scale, scale)
        case _:
            scale = max(s1, s2)
            return adjusted(min(p1 - s1, p2 - s2) + scale, scale)


def sum_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a sum."""
    if is_integer(kind):
        return LONG
    if is_decimal(kind):
        return pa.decimal128(min(MOST_DIGITS, kind.precision + 10), kind.scale)
    return DOUBLE


def average_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of an average."""
    if is_decimal(kind):
        return _bounded(kind.precision + 4, kind.scale + 4)
    return DOUBLE


def _bounded(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(min(precision, MOST_DIGITS), min(scale, MOST_DIGITS))


def common_type(kinds: Sequence[pa.DataType], where: str) -> pa.DataType:
    """Return the type that values of all these types take, as in CASE, COALESCE, UNION and comparisons. Raises ViewRefused."""
    known = [kind for kind in kinds if kind != NULL]
    if not known:
        return NULL
    found = known[0]
    for kind in known[1:]:
        found = _wider(found, kind, where)
    return found


def _wider(one: pa.DataType, other: pa.DataType, where: str) -> pa.DataType:
    if one == other:
        return one
    if is_number(one) and is_number(other):
        if is_float(one) or is_float(other):
            both_float = not is_decimal(one) and not is_decimal(other) and DOUBLE not in (one, other)
            return pa.float32() if both_float else DOUBLE
        if is_integer(one) and is_integer(other):
            return one if one.bit_width > other.bit_width else other
        a, b = decimal_of(one), decimal_of(other)
        scale = max(a.scale, b.scale)
        return _bounded(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)
    days = {DATE, DATETIME, MOMENT}
    if one in days and other in days and MOMENT not in (one, other):
        return DATETIME
    raise refuse(f"{where}: {spark_type(one)} and {spark_type(other)} have no common type that does not depend on settings", "Use CAST.")
