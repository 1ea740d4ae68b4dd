"""The values of one column: stored bytes or a datum → a *plain* value → a *cell*.

A plain value is the stored value as a Python number, text or bytes: a packed time is a number, a TIME is nanoseconds, JSON and
vectors are bytes. A cell is what consumers get: times, JSON and vectors are text, a timestamp is in the reader's zone.
"""

from __future__ import annotations

import enum
import math
from datetime import tzinfo

from tidemill.errors import MalformedBytes
from tidemill.tidb.codec import decode_float
from tidemill.tidb.datums import Datum, DatumFlag
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.types.decimals import decode_decimal
from tidemill.tidb.types.floats import to_float32
from tidemill.tidb.types.jsonbin import json_text
from tidemill.tidb.types.jsonstyle import JsonStyle
from tidemill.tidb.types.times import format_date, format_datetime, format_duration, in_zone, unpack_time
from tidemill.tidb.types.vectors import vector_text

Plain = int | float | str | bytes
Cell = None | int | float | str | bytes
"""int: integers, YEAR, BIT, ENUM, SET. float: FLOAT, DOUBLE. str: DECIMAL, times, JSON, VECTOR. bytes: all char, text and blob types."""


class Family(enum.Enum):
    """Types that are stored and shown alike."""

    INT = enum.auto()
    YEAR = enum.auto()
    NUMBER = enum.auto()  # ENUM, SET, BIT
    FLOAT = enum.auto()
    DECIMAL = enum.auto()
    TIME = enum.auto()
    DURATION = enum.auto()
    BYTES = enum.auto()
    JSON = enum.auto()
    VECTOR = enum.auto()


_FAMILIES: dict[int, Family] = {
    **dict.fromkeys((MySQLType.TINY, MySQLType.SHORT, MySQLType.INT24, MySQLType.LONG, MySQLType.LONGLONG), Family.INT),
    **dict.fromkeys((MySQLType.ENUM, MySQLType.SET, MySQLType.BIT), Family.NUMBER),
    **dict.fromkeys((MySQLType.FLOAT, MySQLType.DOUBLE), Family.FLOAT),
    **dict.fromkeys((MySQLType.DATE, MySQLType.NEWDATE, MySQLType.DATETIME, MySQLType.TIMESTAMP), Family.TIME),
    **dict.fromkeys((MySQLType.VARCHAR, MySQLType.VAR_STRING, MySQLType.STRING), Family.BYTES),
    **dict.fromkeys((MySQLType.TINY_BLOB, MySQLType.BLOB, MySQLType.MEDIUM_BLOB, MySQLType.LONG_BLOB), Family.BYTES),
    MySQLType.YEAR: Family.YEAR,
    MySQLType.NEWDECIMAL: Family.DECIMAL,
    MySQLType.DURATION: Family.DURATION,
    MySQLType.JSON: Family.JSON,
    MySQLType.VECTOR: Family.VECTOR,
}

_DATUM_FLAGS: dict[Family, tuple[DatumFlag, ...]] = {
    Family.INT: (DatumFlag.INT, DatumFlag.UINT, DatumFlag.VARINT, DatumFlag.UVARINT),
    Family.YEAR: (DatumFlag.INT, DatumFlag.VARINT),
    Family.NUMBER: (DatumFlag.UINT, DatumFlag.UVARINT),
    Family.FLOAT: (DatumFlag.FLOAT,),
    Family.DECIMAL: (DatumFlag.DECIMAL,),
    Family.TIME: (DatumFlag.UINT, DatumFlag.UVARINT),
    Family.DURATION: (DatumFlag.DURATION, DatumFlag.INT, DatumFlag.VARINT),
    Family.BYTES: (DatumFlag.BYTES, DatumFlag.COMPACT_BYTES),
    Family.JSON: (DatumFlag.JSON,),
    Family.VECTOR: (DatumFlag.VECTOR,),
}
"""The flags that a datum of a family may have, in a key (those of fixed size) or in a row of format 1."""

_INT_SIZES = (1, 2, 4, 8)
_MASK64, _SIGN = (1 << 64) - 1, 1 << 63


def family(column: ColumnInfo) -> Family:
    """Return the family of a column's type. Raises MalformedBytes for a type that TiDB never stores."""
    found = _FAMILIES.get(column.tp)
    if found is None:
        raise MalformedBytes(f"values of type {column.tp} are not known")
    return found


def as_unsigned(column: ColumnInfo, value: int) -> int:
    """Return an integer with its 64 bits read as the column reads them, signed or unsigned."""
    if column.unsigned:
        return value & _MASK64
    return (value & _MASK64 ^ _SIGN) - _SIGN


# Stored bytes of row format 2


def plain_from_stored(column: ColumnInfo, data: bytes) -> Plain:
    """Return the plain value of a column's bytes in row format 2. Raises MalformedBytes."""
    match family(column):
        case Family.INT:
            return _integer(data, signed=not column.unsigned)
        case Family.YEAR | Family.DURATION:
            return _integer(data, signed=True)
        case Family.NUMBER | Family.TIME:
            return _integer(data, signed=False)
        case Family.FLOAT:
            number, end = decode_float(data)
            _check_end(data, end)
            return number
        case Family.DECIMAL:
            text, end = decode_decimal(data)
            _check_end(data, end)
            return text
        case Family.BYTES | Family.JSON | Family.VECTOR:
            return data


def _integer(data: bytes, *, signed: bool) -> int:
    if len(data) not in _INT_SIZES:
        raise MalformedBytes(f"an integer has {len(data)} bytes, expected 1, 2, 4 or 8")
    return int.from_bytes(data, "little", signed=signed)


def _check_end(data: bytes, end: int) -> None:
    if end != len(data):
        raise MalformedBytes(f"{len(data) - end} bytes follow the value, which ends at byte {end}")


# Datums of row format 1 and of common handles


def plain_from_datum(column: ColumnInfo, datum: Datum) -> Plain:
    """Return the plain value of a datum of this column. Raises MalformedBytes when the datum does not fit the column's type."""
    kind = family(column)
    if datum.flag not in _DATUM_FLAGS[kind] or datum.value is None:
        expected = " or ".join(flag.name for flag in _DATUM_FLAGS[kind])
        raise MalformedBytes(f"found a datum {datum.flag.name}, expected {expected}")
    if kind is Family.INT and isinstance(datum.value, int):
        return as_unsigned(column, datum.value)
    return datum.value


# Cells


def cell(column: ColumnInfo, plain: Plain, zone: tzinfo, json: JsonStyle = JsonStyle.GO) -> Cell:
    """Return the cell of a plain value. `json` is the style of documents. Raises MalformedBytes for a value that the type cannot have."""
    match plain:
        case float():
            return _float_cell(column, plain)
        case str():
            return plain
        case bytes():
            return _bytes_cell(column, plain, json)
        case int():
            return _int_cell(column, plain, zone)


def _float_cell(column: ColumnInfo, value: float) -> float:
    """Return a FLOAT narrowed to single precision; NaN and infinities are 0, as TiCDC delivers them."""
    number = to_float32(value) if column.tp == MySQLType.FLOAT else value
    return number if math.isfinite(number) else 0.0


def _bytes_cell(column: ColumnInfo, data: bytes, json: JsonStyle) -> str | bytes:
    match family(column):
        case Family.JSON:
            return json_text(data, json)
        case Family.VECTOR:
            return vector_text(data)
    return data


def _int_cell(column: ColumnInfo, number: int, zone: tzinfo) -> int | str:
    match family(column):
        case Family.DURATION:
            return format_duration(number, column.decimal)
        case Family.TIME:
            moment = unpack_time(number)
            if column.tp in (MySQLType.DATE, MySQLType.NEWDATE):
                return format_date(moment)
            if column.tp == MySQLType.TIMESTAMP:
                moment = in_zone(moment, zone)
            return format_datetime(moment, column.decimal)
    return number
