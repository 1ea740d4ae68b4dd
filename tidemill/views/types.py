"""The types of a view's columns: Spark's, as the Arrow types that stand for them, and what Spark makes of two of them. Pure.

The rules are those of Spark 4 with its defaults: ANSI mode, and decimals that lose digits rather than overflow
(`spark.sql.decimalOperations.allowPrecisionLoss`).
"""

from __future__ import annotations

import re

import pyarrow as pa

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
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


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


def of_spark(name: str) -> pa.DataType | None:
    """Return the type that Spark calls by this name; None for one that the columns of a view cannot have."""
    found = _DECIMAL.fullmatch(name)
    if found is not None:
        return pa.decimal128(int(found[1]), int(found[2]))
    return next((kind for kind, names in _NAMES.items() if names[1] == name), None)


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


def adjusted(precision: int, scale: int) -> pa.DataType:
    """Return a decimal of so many digits; one that is too wide loses digits behind the point, but keeps six of them."""
    if precision <= MOST_DIGITS:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    return pa.decimal128(MOST_DIGITS, max(MOST_DIGITS - whole, min(scale, 6)))


def quotient_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type of a decimal by another."""
    scale = max(6, one.scale + other.precision + 1)
    return adjusted(one.precision - one.scale + other.scale + scale, scale)


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
