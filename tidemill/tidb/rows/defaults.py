"""The value of a column in a row that is older than the column.

It is the origin default, which the column had when it was added, never the present default. Without one it is NULL, or the zero value
of the type in a NOT NULL column. This is the rule of TiCDC and TiDB. The origin default of a TIMESTAMP is in UTC. Columns made before
TiDB 2.1 kept it in the server's zone; nothing records which zone that was, so it is read as UTC too.
"""

from __future__ import annotations

import json
from datetime import UTC
from decimal import Decimal, InvalidOperation
from typing import Any

from tidemill.errors import MalformedRow
from tidemill.tidb.rows.cells import Cell, Family, Plain, cell, family
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.types.decimals import round_decimal
from tidemill.tidb.types.jsonbin import encode_json, encode_json_text
from tidemill.tidb.types.members import parse_enum, parse_set
from tidemill.tidb.types.times import ZERO, pack_time, parse_datetime, parse_duration
from tidemill.tidb.types.vectors import encode_vector, parse_vector

_JSON_NULL = encode_json(None)


def missing_plain(column: ColumnInfo) -> Plain | None:
    """Return the plain value of a column that a row does not have. None means NULL. A timestamp is UTC, as stored.

    Raises MalformedRow when the origin default is not a value of the column's type.
    """
    if column.tp == MySQLType.BIT and column.origin_default_bit is not None:
        return int.from_bytes(column.origin_default_bit, "big")
    if column.origin_default is not None:
        try:
            return from_text(column, column.origin_default)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise MalformedRow(f"its origin default {column.origin_default!r} cannot be read: {error}") from None
    return zero_plain(column) if column.not_null else None


def zero_plain(column: ColumnInfo) -> Plain:
    """Return the zero value of a column's type. Of an ENUM it is the first element."""
    match family(column):
        case Family.INT | Family.YEAR | Family.DURATION:
            return 0
        case Family.NUMBER:
            return 1 if column.tp == MySQLType.ENUM else 0
        case Family.TIME:
            return pack_time(ZERO)
        case Family.FLOAT:
            return 0.0
        case Family.DECIMAL:
            return round_decimal("0", max(column.decimal, 0))
        case Family.BYTES:
            return b""
        case Family.JSON:
            return _JSON_NULL
        case Family.VECTOR:
            return encode_vector(())


def cell_from_text(column: ColumnInfo, text: str) -> Cell:
    """Return the cell of a value that is given as text. Raises ValueError, TypeError, ArithmeticError."""
    return cell(column, from_text(column, text), UTC)


def from_text(column: ColumnInfo, default: Any) -> Plain:
    """Return the plain value of a default's text (or JSON number). Raises ValueError, TypeError."""
    text = default if isinstance(default, str) else json.dumps(default)
    match family(column):
        case Family.INT:
            return int(_number(text).to_integral_value(rounding="ROUND_HALF_UP"))
        case Family.YEAR:
            return _year(int(text), odd_text=isinstance(default, str) and len(default) != 4)
        case Family.NUMBER:
            return _member(column, text)
        case Family.FLOAT:
            return float(text)
        case Family.DECIMAL:
            return round_decimal(text, max(column.decimal, 0))
        case Family.TIME:
            return _time(column, text)
        case Family.DURATION:
            return parse_duration(text)
        case Family.BYTES:
            return _string(column, text)
        case Family.JSON:
            return encode_json_text(text)
        case Family.VECTOR:
            return encode_vector(parse_vector(text))


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("it is not a number") from None


def _year(number: int, *, odd_text: bool) -> int:
    """Return the year of a number of up to four digits: up to two digits mean 1970 to 2069. 0 is the zero year, or 2000 with `odd_text`."""
    if (odd_text and number == 0) or 0 < number < 100:
        return number + (2000 if number < 70 else 1900)
    return number


def _member(column: ColumnInfo, text: str) -> int:
    if column.tp == MySQLType.ENUM:
        return parse_enum(text, column.elems)
    if column.tp == MySQLType.SET:
        return parse_set(text, column.elems)
    return int.from_bytes(text.encode(), "big")


def _time(column: ColumnInfo, text: str) -> int:
    moment = parse_datetime(text, column.decimal)
    if column.tp in (MySQLType.DATE, MySQLType.NEWDATE):
        moment = moment._replace(hour=0, minute=0, second=0, microsecond=0)
    return pack_time(moment)


def _string(column: ColumnInfo, text: str) -> bytes:
    """Return a string as stored: UTF-8 whatever the charset, BINARY(n) padded with zeros, CHAR without trailing spaces."""
    data = text.encode("utf-8", "surrogateescape")
    if column.tp != MySQLType.STRING:
        return data
    return data.ljust(max(column.flen, 0), b"\x00") if column.is_binary else data.rstrip(b" ")
