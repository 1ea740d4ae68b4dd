"""Which Arrow type a column has, and in which form its values are kept there. TYPES.md has the whole table, and why."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import pyarrow as pa

from tidemill.errors import SchemaError
from tidemill.tidb.rows.cells import Family, family
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo

LARGEST_DECIMAL = 38
"""Digits of Arrow's and Spark's decimals. A wider column is text."""
UNSIGNED = pa.decimal128(20, 0)
"""BIGINT UNSIGNED: Spark has no unsigned type, and its long ends at 2^63 - 1."""
TIMESTAMP = pa.timestamp("us", "UTC")
DATETIME = pa.timestamp("us")
VECTOR = pa.list_(pa.field("element", pa.float32()))


IMAGES = ("insert", "update_preimage", "update_postimage", "delete")
"""What a row with typed columns is. The names are those of Delta's change data feed."""
ALL_IMAGES = (1 << len(IMAGES)) - 1
"""A bit for each."""


class Form(enum.IntEnum):
    """How a value is kept in its Arrow column."""

    INTEGER = 1  # 1, 2, 4 or 8 bytes
    UNSIGNED = 2  # decimal128 without fraction, of an unsigned number
    FLOAT = 3
    DOUBLE = 4
    DECIMAL = 5  # decimal128
    DATE = 6  # days
    MOMENT = 7  # microseconds: DATETIME and TIMESTAMP
    BYTES = 8  # text and bytes as they are stored
    PLAIN_TEXT = 9  # numbers and times as text
    ENUM = 10  # the element's name
    SET = 11  # names joined by commas
    JSON = 12  # text
    VECTOR = 13  # list of float32
    INTERVAL = 14  # microseconds: TIME


SIZED = frozenset({Form.BYTES, Form.PLAIN_TEXT, Form.ENUM, Form.SET, Form.JSON, Form.VECTOR})
"""Forms whose values differ in size."""


class TimeAs(enum.StrEnum):
    """What a TIME column becomes."""

    STRING = "string"  # as TiCDC's protocols have it: -838:59:59.123
    INTERVAL = "interval"  # interval day to second


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The Arrow type of a column and the form of its values. `width`: bytes of a value, 0 where values differ in size."""

    form: Form
    arrow: pa.DataType
    width: int


_INTEGERS: dict[int, tuple[int, int]] = {
    MySQLType.TINY: (1, 2),
    MySQLType.SHORT: (2, 4),
    MySQLType.INT24: (4, 4),
    MySQLType.LONG: (4, 8),
}
"""Bytes that hold a signed and an unsigned integer of a type."""
_BY_WIDTH = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}


def _integer(width: int) -> ColumnType:
    return ColumnType(Form.INTEGER, _BY_WIDTH[width], width)


def column_type(column: ColumnInfo, time_as: TimeAs = TimeAs.STRING) -> ColumnType:
    """Return the type of a column. Raises MalformedBytes for a type that TiDB never stores."""
    match family(column):
        case Family.INT:
            return _integer_type(column)
        case Family.YEAR:
            return _integer(4)
        case Family.NUMBER:
            return _number_type(column)
        case Family.FLOAT:
            is_single = column.tp == MySQLType.FLOAT
            return ColumnType(Form.FLOAT, pa.float32(), 4) if is_single else ColumnType(Form.DOUBLE, pa.float64(), 8)
        case Family.DECIMAL:
            return _decimal_type(column)
        case Family.TIME:
            return _time_type(column)
        case Family.DURATION:
            if time_as is TimeAs.INTERVAL:
                return ColumnType(Form.INTERVAL, pa.duration("us"), 8)
            return ColumnType(Form.PLAIN_TEXT, pa.string(), 0)
        case Family.BYTES:
            return ColumnType(Form.BYTES, pa.binary() if column.is_binary else pa.string(), 0)
        case Family.JSON:
            return ColumnType(Form.JSON, pa.string(), 0)
        case Family.VECTOR:
            return ColumnType(Form.VECTOR, VECTOR, 0)


def _integer_type(column: ColumnInfo) -> ColumnType:
    if column.tp == MySQLType.LONGLONG:
        return ColumnType(Form.UNSIGNED, UNSIGNED, 16) if column.unsigned else _integer(8)
    return _integer(_INTEGERS[column.tp][1 if column.unsigned else 0])


def _number_type(column: ColumnInfo) -> ColumnType:
    """ENUM, SET and BIT."""
    if column.tp == MySQLType.BIT:
        return _integer(8) if 0 < column.flen < 64 else ColumnType(Form.UNSIGNED, UNSIGNED, 16)
    return ColumnType(Form.ENUM if column.tp == MySQLType.ENUM else Form.SET, pa.string(), 0)


def _decimal_type(column: ColumnInfo) -> ColumnType:
    digits, fraction = column.flen, max(column.decimal, 0)
    if 0 < digits <= LARGEST_DECIMAL and fraction <= digits:
        return ColumnType(Form.DECIMAL, pa.decimal128(digits, fraction), 16)
    return ColumnType(Form.PLAIN_TEXT, pa.string(), 0)


def _time_type(column: ColumnInfo) -> ColumnType:
    if column.tp in (MySQLType.DATE, MySQLType.NEWDATE):
        return ColumnType(Form.DATE, pa.date32(), 4)
    return ColumnType(Form.MOMENT, TIMESTAMP if column.tp == MySQLType.TIMESTAMP else DATETIME, 8)


def is_lossless(have: pa.DataType, want: pa.DataType) -> bool:
    """Return whether every value of a column of type `have` can be a value of type `want`."""
    if have == want:
        return True
    if pa.types.is_integer(have):
        digits = {8: 3, 16: 5, 32: 10, 64: 19}[have.bit_width]
        if pa.types.is_integer(want):
            return bool(have.bit_width <= want.bit_width)
        return bool(pa.types.is_decimal(want) and want.precision - want.scale >= digits)
    if pa.types.is_decimal(have) and pa.types.is_decimal(want):
        return bool(have.scale <= want.scale and have.precision - have.scale <= want.precision - want.scale)
    return bool(pa.types.is_float32(have) and pa.types.is_float64(want)) or (pa.types.is_string(have) and pa.types.is_binary(want))


def check_castable(name: str, have: pa.DataType, want: pa.DataType) -> None:
    """Raises SchemaError if a column cannot be read as another type at all."""
    try:
        pa.array([], have).cast(want)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise SchemaError(f"column {name} is {have}, which cannot be read as {want}") from None
