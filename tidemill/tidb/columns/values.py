"""One row as typed values, in plain Python: the reference of `tidemill.kernels.columns`.

It begins with the cells that TiCDC's mounter has (`RowReader`), so a DataFrame has the values that the protocols have.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal

import pyarrow as pa

from tidemill.errors import MalformedRow
from tidemill.tidb.columns.forms import ColumnType, Form, TimeAs, column_type
from tidemill.tidb.rows.cells import Cell
from tidemill.tidb.rows.reader import RowReader
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.jsonstyle import JsonStyle
from tidemill.tidb.types.members import enum_name, set_names
from tidemill.tidb.types.times import parse_duration

Value = None | int | float | str | bytes | Decimal | date | datetime | timedelta | list[float]

_EPOCH = datetime(1970, 1, 1)
_FIRST_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_WIDE = Context(prec=200)  # Decimal's own arithmetic rounds to 28 digits


class Unfit(ValueError):
    """A value that its type in TiDB can have, and its Arrow type cannot: the date 0000-00-00, a decimal with too many digits."""


def typed_value(column: ColumnInfo, kind: ColumnType, found: Cell) -> Value:
    """Return a cell as a value of its Arrow type. Raises Unfit, and MalformedRow for an ENUM or SET without such an element."""
    if found is None:
        return None
    match found:
        case int():
            return _number(column, kind, found)
        case bytes() | float():
            return found
    match kind.form:
        case Form.DECIMAL:
            return _decimal(found, kind.arrow)
        case Form.DATE:
            return _date(found)
        case Form.MOMENT:
            return _moment(column, found)
        case Form.INTERVAL:
            return timedelta(microseconds=_microseconds(found))
        case Form.VECTOR:
            return [float(one) for one in json.loads(found)]
    return found


def _number(column: ColumnInfo, kind: ColumnType, number: int) -> int | str | Decimal:
    try:
        if kind.form is Form.ENUM:
            return enum_name(number, column.elems)
        if kind.form is Form.SET:
            return set_names(number, column.elems)
    except ValueError as error:
        raise MalformedRow(f"column {column.name}: {error}") from None
    if kind.form is Form.UNSIGNED:
        return Decimal(number)
    limit = 1 << 8 * kind.width - 1
    if not -limit <= number < limit:
        raise Unfit(f"{number} does not fit into {kind.arrow}")
    return number


def _decimal(text: str, kind: pa.Decimal128Type) -> Decimal:
    number = Decimal(text)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "TiDB stores no infinite number"
    fraction = -exponent
    if fraction > kind.scale and any(digits[kind.scale - fraction :]):
        raise Unfit(f"{text} has more digits after the point than {kind}")
    if number.copy_abs() >= Decimal(f"1e{kind.precision - kind.scale}"):
        raise Unfit(f"{text} has more digits than {kind}")
    return number


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Unfit(f"{text} is not in the calendar") from None


def _moment(column: ColumnInfo, text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Unfit(f"{text} is not in the calendar") from None
    return found.replace(tzinfo=UTC) if column.tp == MySQLType.TIMESTAMP else found


def _microseconds(text: str) -> int:
    nanoseconds = parse_duration(text)
    return nanoseconds // 1000 if nanoseconds >= 0 else -(-nanoseconds // 1000)


class TypedReader:
    """Reads rows of one version of a table. `strict`: a value that its Arrow type cannot have is an error; else it is null."""

    def __init__(
        self,
        table: TableInfo,
        columns: Sequence[ColumnInfo] | None = None,
        *,
        time_as: TimeAs = TimeAs.STRING,
        strict: bool = False,
        json: JsonStyle = JsonStyle.GO,
    ) -> None:
        self.columns = table.output_columns if columns is None else tuple(columns)
        self.types = tuple(column_type(column, time_as) for column in self.columns)
        self._table, self._strict = table, strict
        self._reader = RowReader(table, UTC, self.columns, json)

    def read(self, key: bytes, value: bytes) -> tuple[Value, ...]:
        """Return the values of a row. Raises MalformedRow naming table and column."""
        cells = self._reader.read(key, value)
        return tuple(self._value(*one) for one in zip(self.columns, self.types, cells, strict=True))

    def _value(self, column: ColumnInfo, kind: ColumnType, found: Cell) -> Value:
        try:
            return typed_value(column, kind, found)
        except MalformedRow as error:
            raise MalformedRow(f"table {self._table.name}, {error.message}") from None
        except Unfit as error:
            if self._strict:
                raise MalformedRow(
                    f"table {self._table.name}, column {column.name}: {error}", hint="Without the option strict it would be null."
                ) from None
            return None

    def absent(self, at: int) -> Value:
        """Return the value of column `at` in a row that is older than the column. Raises MalformedRow."""
        return self._value(self.columns[at], self.types[at], self._reader.absent_of(self.columns[at]))


def stored(kind: ColumnType, value: Value) -> bytes | None:
    """Return a value as the bytes of its Arrow column; None for null."""
    match value:
        case None:
            return None
        case bytes():
            return value
        case str():
            return value.encode("utf-8", "surrogateescape")
        case float():
            return struct.pack("<f" if kind.form is Form.FLOAT else "<d", value)
        case list():
            return struct.pack(f"<{len(value)}f", *value)
        case Decimal():
            scaled = value if kind.form is Form.UNSIGNED else value.scaleb(kind.arrow.scale, _WIDE)
            return int(scaled).to_bytes(16, "little", signed=True)
        case timedelta():
            number = value // _MICROSECOND
        case datetime():
            number = (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
        case date():
            number = (value - _FIRST_DAY).days
        case int():
            number = value
    return number.to_bytes(kind.width, "little", signed=True)
