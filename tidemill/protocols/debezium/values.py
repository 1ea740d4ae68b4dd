"""Cells → values of `before`, `after` and the key, by Debezium's rules for MySQL as TiCDC applies them: first as Kafka Connect has them,
for JSON and Avro alike, then as JSON. Rules: TYPES.md.

The kernel `kernels.write.connect` writes the same bytes.
"""

from __future__ import annotations

import base64
from datetime import UTC, date

from tidemill.errors import MalformedBytes, MalformedRow
from tidemill.protocols.debezium.text import string
from tidemill.tidb.rows.cells import Cell, cell
from tidemill.tidb.rows.defaults import from_text
from tidemill.tidb.schema.codes import ColumnFlag, MySQLType
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.types.floats import go_float
from tidemill.tidb.types.members import enum_name, set_names
from tidemill.tidb.types.times import Moment, parse_datetime, parse_duration

NULL = b"null"
EPOCH = "1970-01-01T00:00:00Z"
"""A TIMESTAMP below the least one that MySQL has, which is a second later. That is the zero time."""

LEAST_TIMESTAMP = "1970-01-01 00:00:01"
CURRENT = "CURRENT_TIMESTAMP"
MILLISECOND_FSP = 3
"""Up to this fraction a DATETIME is in milliseconds, else in microseconds."""

STRINGS = frozenset(
    {
        MySQLType.VARCHAR, MySQLType.VAR_STRING, MySQLType.STRING, MySQLType.TINY_BLOB, MySQLType.BLOB, MySQLType.MEDIUM_BLOB,
        MySQLType.LONG_BLOB,
    }
)  # fmt: skip
DATES = frozenset({MySQLType.DATE, MySQLType.NEWDATE})
_LEAP, _COMMON = 2000, 2001
_EPOCH_DAY = date(1970, 1, 1).toordinal()


def is_base64(column: ColumnInfo) -> bool:
    """Return whether a string column's values are written as base64: those with MySQL's BINARY flag."""
    return bool(column.flag & ColumnFlag.BINARY)


def bit_size(column: ColumnInfo) -> int:
    """Return the bytes of a BIT's value, lowest first."""
    return (max(column.flen, 1) + 7) // 8


def default_of(column: ColumnInfo) -> object | None:
    """Return the default of a column as the schema has it. None: it has none, or an expression."""
    if column.default_is_expr:
        return None
    return column.default_bit if column.tp == MySQLType.BIT and column.default_bit is not None else column.default


def days(moment: Moment) -> int | None:
    """Return the days since 1970 of a date, or None if it is not in the calendar. Years below 70 are 20xx, those below 100 19xx."""
    year = moment.year
    try:
        date(_LEAP if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else _COMMON, moment.month, moment.day)
    except ValueError:
        return None
    year += 2000 if year < 70 else 1900 if year < 100 else 0
    return date(year, moment.month, moment.day).toordinal() - _EPOCH_DAY


# Values of Kafka Connect's types. A column whose time is not in the calendar has NULL, or 0 where NULL is not allowed.

Connected = None | bool | int | float | str | bytes
"""A value as Debezium gives it to a converter. bytes: strings of all charsets, and BIT. str: DECIMAL's digits, and other text."""


def connected(column: ColumnInfo, value: Cell) -> Connected:
    """Return a cell as Debezium's value. TIMESTAMPs must be in UTC; DATETIME and TIME may have more digits than the column's type.

    Raises MalformedRow for a TIME beyond MySQL's range.
    """
    if isinstance(value, str):
        try:
            return _from_text(column, value)
        except ValueError as error:
            raise MalformedRow(f"column {column.name}: {error}") from None
    return _from_number(column, value) if isinstance(value, int) else value


def _from_text(column: ColumnInfo, text: str) -> Connected:
    if column.tp in DATES:
        found = days(parse_datetime(text))
        return _no_date(column) if found is None else found
    match column.tp:
        case MySQLType.DATETIME:
            return _datetime(column, text)
        case MySQLType.TIMESTAMP:
            return EPOCH if text < LEAST_TIMESTAMP else text.replace(" ", "T") + "Z"
        case MySQLType.DURATION:
            nanoseconds = parse_duration(text)
            return -(-nanoseconds // 1000) if nanoseconds < 0 else nanoseconds // 1000
    return text


def _no_date(column: ColumnInfo) -> int | None:
    return 0 if column.not_null else None


def _datetime(column: ColumnInfo, text: str) -> int | None:
    moment = parse_datetime(text)
    found = days(moment)
    if found is None:
        return _no_date(column)
    second = ((found * 24 + moment.hour) * 60 + moment.minute) * 60 + moment.second
    if column.decimal <= MILLISECOND_FSP:
        return second * 1000 + moment.microsecond // 1000
    return second * 1_000_000 + moment.microsecond


def _from_number(column: ColumnInfo, value: int) -> Connected:
    """Return the value of a column whose cell is an integer. A number from 2^63 on wraps, as in Kafka Connect's int64."""
    if column.tp == MySQLType.BIT:
        return bool(value) if column.flen == 1 else value.to_bytes(8, "little")[: bit_size(column)]
    if column.tp in (MySQLType.ENUM, MySQLType.SET):
        name = enum_name if column.tp == MySQLType.ENUM else set_names
        try:
            return name(value, column.elems)
        except ValueError:  # not an element: written by a session without strict mode
            return ""
    return value - (1 << 64) if value >> 63 > 0 else value


def default_cell(column: ColumnInfo) -> Cell:
    """Return the cell of a column's default. None: it has none, or one that is not a value of its type, or not a moment."""
    default = default_of(column)
    if default is None or default == CURRENT:
        return None
    try:
        plain = int.from_bytes(default, "big") if isinstance(default, bytes) else from_text(column, default)
        found = cell(column, plain, UTC)
    except (ValueError, TypeError, ArithmeticError, MalformedBytes):
        return None
    if column.tp == MySQLType.TIMESTAMP and isinstance(found, str) and found < LEAST_TIMESTAMP:
        return None
    return found


# JSON


def value_text(column: ColumnInfo, value: Cell) -> bytes:
    """Return a cell as a JSON value. NULL is the column's default, if it has one."""
    return null_text(column) if value is None else _json(column, connected(column, value))


def _json(column: ColumnInfo, value: Connected) -> bytes:
    match value:
        case None:
            return NULL
        case bool():
            return b"true" if value else b"false"
        case int():
            return b"%d" % value
        case float():
            return go_float(value, 32 if column.tp == MySQLType.FLOAT else 64).encode()
        case bytes():
            coded = column.tp == MySQLType.BIT or is_base64(column)
            return b'"' + base64.b64encode(value) + b'"' if coded else string(value)
    if column.tp == MySQLType.NEWDECIMAL:
        return go_float(float(value)).encode()
    return string(value.encode("utf-8", "surrogateescape"))


def null_text(column: ColumnInfo) -> bytes:
    """Return what stands for a NULL: the value of the column's default, as TiCDC and Kafka Connect's JSON converter have it, or null."""
    if default_of(column) == CURRENT:
        return b"0" if column.tp == MySQLType.DATETIME else NULL
    found = default_cell(column)
    return NULL if found is None else _json(column, connected(column, found))
