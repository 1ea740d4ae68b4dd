"""Values that no message holds: those of a new column in existing rows, and old values converted to a new type."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from tidemill.errors import MalformedRow
from tidemill.protocols.common.celltext import cell_text
from tidemill.tidb.rows.cells import Cell, Family, cell, family
from tidemill.tidb.rows.defaults import cell_from_text, missing_plain
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.types.members import enum_name, set_names
from tidemill.tidb.types.times import Moment, format_datetime, format_duration, parse_datetime, parse_duration

_TEMPORAL = (Family.TIME, Family.DURATION)


def absent(column: ColumnInfo) -> Cell:
    """Return the value of a column in rows that are older than it. Raises MalformedRow."""
    plain = missing_plain(column)
    if plain == b"" and column.tp == MySQLType.STRING and column.is_binary and column.origin_default is None:
        plain = bytes(max(column.flen, 0))  # TiDB has this default in the column's description, but not in the DDL's text
    return None if plain is None else cell(column, plain, UTC)


def conversion(old: ColumnInfo, new: ColumnInfo) -> Callable[[Cell], Cell] | None:
    """Return the conversion of values when a column's type changes, or None if they stay."""
    if _same_values(old, new):
        return None

    def convert(value: Cell) -> Cell:
        if value is None:
            return absent(new) if new.not_null else None
        try:
            return cell_from_text(new, _rounded(new, _text(old, value)))
        except (ValueError, TypeError, ArithmeticError) as error:
            raise MalformedRow(f"column {new.name}: {value!r} cannot become a value of its new type: {error}") from None

    return convert


def _same_values(old: ColumnInfo, new: ColumnInfo) -> bool:
    kind = family(new)
    if family(old) is not kind or old.not_null < new.not_null:
        return False
    match kind:
        case Family.NUMBER:
            return old.tp == new.tp and old.elems == new.elems[: len(old.elems)]
        case Family.DECIMAL | Family.DURATION:
            return old.decimal == new.decimal
        case Family.FLOAT:
            return old.tp == new.tp and old.decimal == new.decimal
        case Family.TIME:
            return (old.tp in _DATES) == (new.tp in _DATES) and old.decimal == new.decimal
        case Family.BYTES:
            return not (new.tp == MySQLType.STRING and (old.tp != new.tp or new.is_binary))
    return True


_DATES = (MySQLType.DATE, MySQLType.NEWDATE)


def _text(column: ColumnInfo, value: Cell) -> str:
    """Return the value as SQL casts it to text."""
    if isinstance(value, int) and column.tp in (MySQLType.ENUM, MySQLType.SET):
        if not column.elems:
            raise ValueError("the elements of its type were in no message")
        return enum_name(value, column.elems) if column.tp == MySQLType.ENUM else set_names(value, column.elems)
    return cell_text(column, value).decode("utf-8", "surrogateescape")


def _rounded(column: ColumnInfo, text: str) -> str:
    """Round the fraction of a second to the new type, and convert between DATETIME and TIME."""
    kind = family(column)
    if kind not in _TEMPORAL:
        return text
    if kind is Family.DURATION:
        unit = 10 ** (9 - max(column.decimal, 0))
        nanoseconds = parse_duration(text.split(" ")[-1] if "-" in text[1:] else text)
        sign = -1 if nanoseconds < 0 else 1
        return format_duration(sign * ((abs(nanoseconds) + unit // 2) // unit * unit), 9)
    moment = parse_datetime(text)
    if moment.is_zero or column.tp in _DATES or max(column.decimal, 0) >= 6:
        return text
    return format_datetime(_rounded_moment(moment, column.decimal), 6)


def _rounded_moment(moment: Moment, fsp: int) -> Moment:
    """Round half up to `fsp` digits, with carry into seconds, days and years. A date with zero parts is only cut."""
    unit = 10 ** (6 - max(fsp, 0))
    try:
        exact = datetime(*moment)
    except ValueError:
        return moment._replace(microsecond=moment.microsecond // unit * unit)
    rounded = exact.replace(microsecond=0) + timedelta(microseconds=(exact.microsecond + unit // 2) // unit * unit)
    return Moment(rounded.year, rounded.month, rounded.day, rounded.hour, rounded.minute, rounded.second, rounded.microsecond)
