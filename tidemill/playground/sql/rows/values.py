"""Values on their way into a table: what an expression yields, cast to a column's type, as TiDB does in strict mode.

*Plain* values are what is stored, as Python numbers, text or bytes (see `tidemill.tidb.rows.cells`). *Readable* values are what
expressions work with: numbers, Decimal, text, bytes.
"""

from __future__ import annotations

import struct
from datetime import UTC
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from tidemill.errors import SqlError
from tidemill.playground.sql.parse.ast import Value
from tidemill.playground.sql.parse.expressions import text_of
from tidemill.tidb.rows.cells import Family, Plain, cell, family
from tidemill.tidb.rows.write import plain_from_cell
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.types.decimals import round_decimal
from tidemill.tidb.types.jsonbin import encode_json_text
from tidemill.tidb.types.members import parse_enum, parse_set

_INT_BITS = {MySQLType.TINY: 8, MySQLType.SHORT: 16, MySQLType.INT24: 24, MySQLType.LONG: 32, MySQLType.LONGLONG: 64}
_UTF8_CHARSETS = ("utf8mb4", "utf8", "gbk", "ascii")


def to_plain(column: ColumnInfo, value: Value) -> Plain | None:
    """The stored form of a value in a column. NULL passes: NOT NULL is checked elsewhere.

    Raises SqlError when the value does not fit.
    """
    if value is None:
        return None
    try:
        return _cast(column, value)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise SqlError(f"column {column.name}: {text_of(value)[:60]!r} is not a value of its type ({error})") from error


def to_fitting(column: ColumnInfo, value: Value) -> Plain | None:
    """The stored form of what fits into a column, as TiDB cuts it without strict mode: the nearest integer, the first characters.

    Raises SqlError for values of other types that do not fit.
    """
    match family(column):
        case Family.INT if value is not None:
            low, high = _bounds(column)
            return to_plain(column, min(max(_whole(value), low), high))
        case Family.BYTES if value is not None and column.flen > 0:
            return to_plain(column, value[: column.flen] if isinstance(value, bytes) else text_of(value)[: column.flen])
    return to_plain(column, value)


def _cast(column: ColumnInfo, value: Value) -> Plain:
    match family(column):
        case Family.INT:
            return _checked_int(column, _whole(value))
        case Family.YEAR:
            return _year(_whole(value))
        case Family.NUMBER:
            return _number(column, value)
        case Family.FLOAT:
            number = float.fromhex("0x0p0") if value == "" else float(_decimal(value) if not isinstance(value, float) else value)
            return struct.unpack("<f", struct.pack("<f", number))[0] if column.tp == MySQLType.FLOAT else number
        case Family.DECIMAL:
            return _fitted(column, _decimal(value))
        case Family.TIME | Family.DURATION:
            return _moment(column, text_of(value))
        case Family.BYTES:
            return _string(column, value)
        case Family.JSON:
            return encode_json_text(text_of(value))
        case Family.VECTOR:
            plain = plain_from_cell(column, text_of(value))
            assert plain is not None
            return plain


def _decimal(value: Value) -> Decimal:
    try:
        return Decimal(int.from_bytes(value, "big")) if isinstance(value, bytes) else Decimal(str(value).strip())
    except InvalidOperation:
        raise ValueError("no number") from None


def _whole(value: Value) -> int:
    return value if isinstance(value, int) else int(_decimal(value).to_integral_value(ROUND_HALF_UP))


def _bounds(column: ColumnInfo) -> tuple[int, int]:
    bits = _INT_BITS[MySQLType(column.tp)]
    return (0, (1 << bits) - 1) if column.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _checked_int(column: ColumnInfo, number: int) -> int:
    low, high = _bounds(column)
    if not low <= number <= high:
        raise ValueError("out of range")
    return number


def _year(number: int) -> int:
    if 0 < number < 100:
        number += 2000 if number < 70 else 1900
    if number and not 1901 <= number <= 2155:
        raise ValueError("out of range")
    return number


def _number(column: ColumnInfo, value: Value) -> int:
    """BIT, ENUM and SET."""
    if column.tp == MySQLType.BIT:
        number = (
            int.from_bytes(value.encode() if isinstance(value, str) else value, "big") if isinstance(value, (str, bytes)) else _whole(value)
        )
        if not 0 <= number < 1 << column.flen:
            raise ValueError("too long")
        return number
    if isinstance(value, (str, bytes)):
        text = text_of(value)
        return parse_enum(text, column.elems) if column.tp == MySQLType.ENUM else parse_set(text, column.elems)
    number = _whole(value)
    limit = len(column.elems) if column.tp == MySQLType.ENUM else (1 << len(column.elems)) - 1
    if not 0 <= number <= limit:
        raise ValueError("no such element")
    return number


def _fitted(column: ColumnInfo, number: Decimal) -> str:
    frac = max(column.decimal, 0)
    length = column.flen if column.flen > 0 else 10
    text = round_decimal(f"{number:f}", frac)
    if len(text.lstrip("-").partition(".")[0].lstrip("0")) > length - frac:
        raise ValueError("out of range")
    return text


def _moment(column: ColumnInfo, text: str) -> Plain:
    if family(column) is Family.DURATION and ":" not in text:
        digits = text.lstrip("-").rjust(6, "0")
        text = f"{'-' if text.startswith('-') else ''}{digits[:-4]}:{digits[-4:-2]}:{digits[-2:]}"
    plain = plain_from_cell(column, text, UTC)
    assert plain is not None
    return plain


def _string(column: ColumnInfo, value: Value) -> bytes:
    data = value if isinstance(value, bytes) else text_of(value).encode("utf-8", "surrogateescape")
    length = len(data)
    if not column.is_binary and column.charset in _UTF8_CHARSETS:
        length = len(data.decode("utf-8"))
    if column.flen > 0 and length > column.flen:
        raise ValueError(f"longer than {column.flen}")
    if column.tp == MySQLType.STRING:
        return data.ljust(column.flen, b"\0") if column.is_binary else data.rstrip(b" ")
    return data


def readable(column: ColumnInfo, plain: Plain | None) -> Value:
    """The value that expressions see of a stored one. Text columns give text."""
    if plain is None:
        return None
    value = cell(column, plain, UTC)
    match family(column):
        case Family.DECIMAL:
            return Decimal(str(value))
        case Family.BYTES if not column.is_binary and isinstance(value, bytes):
            return value.decode("utf-8", "surrogateescape")
        case Family.NUMBER if column.tp == MySQLType.ENUM and isinstance(value, int):
            return column.elems[value - 1] if value else ""
        case Family.NUMBER if column.tp == MySQLType.SET and isinstance(value, int):
            return ",".join(e for bit, e in enumerate(column.elems) if value >> bit & 1)
    return value


def default_text(column: ColumnInfo, value: Value) -> str:
    """A DEFAULT as a table description notes it. Raises SqlError when it is not a value of the column."""
    plain = to_plain(column, value)
    assert plain is not None
    if column.tp in (MySQLType.ENUM, MySQLType.SET):
        return text_of(readable(column, plain))
    shown = cell(column, plain, UTC)
    return text_of(shown)
