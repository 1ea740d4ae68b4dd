"""Which values of a column the filters of a query leave. Pure.

Filters narrow down what is read. Spark applies each of them again, so bounds may be too wide, but never too narrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from tidemill.tidb.columns.forms import column_type
from tidemill.tidb.rows.cells import Family, family
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo

Value = Any
"""int (integers, YEAR), bytes (text and bytes), date, or datetime without a zone: values of one column can be compared."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Values from `low` to `high`, both included (None: no bound); if there are `points`, only these of them."""

    low: Value | None = None
    high: Value | None = None
    points: tuple[Value, ...] | None = None

    def above(self, value: Value) -> Bounds:
        return self if self.low is not None and self.low >= value else replace(self, low=value)

    def below(self, value: Value) -> Bounds:
        return self if self.high is not None and self.high <= value else replace(self, high=value)

    def among(self, values: Iterable[Value]) -> Bounds:
        wanted = set(values)
        return replace(self, points=tuple(sorted(wanted if self.points is None else wanted.intersection(self.points))))

    @property
    def values(self) -> tuple[Value, ...] | None:
        """The values that are left one by one, in order; None: they are a range."""
        if self.points is None:
            return None
        return tuple(v for v in self.points if (self.low is None or v >= self.low) and (self.high is None or v <= self.high))

    @property
    def intervals(self) -> list[tuple[Value | None, Value | None]]:
        """The values that are left, as intervals with both ends."""
        if self.values is not None:
            return [(value, value) for value in self.values]
        if self.low is not None and self.high is not None and self.low > self.high:
            return []
        return [(self.low, self.high)]


def bounds_of(filters: Iterable[Filter], columns: Iterable[ColumnInfo], schema: pa.Schema) -> dict[int, Bounds]:
    """Return the bounds of columns by their ids. `schema`: the DataFrame's; a column that its user gave another type has none."""
    known = {column.name.lower(): column for column in columns}
    natural = {
        field.name: known[field.name.lower()]
        for field in schema
        if field.name.lower() in known and column_type(known[field.name.lower()]).arrow == field.type
    }
    found: dict[int, Bounds] = {}
    for one in filters:
        column = _column(one, natural)
        bounds = _narrowed(one, column, found.get(column.id, Bounds())) if column is not None else None
        if column is not None and bounds is not None:
            found[column.id] = bounds
    return found


def _column(one: Filter, columns: Mapping[str, ColumnInfo]) -> ColumnInfo | None:
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    return columns.get(attribute[0]) if len(attribute) == 1 else None


def _narrowed(one: Filter, column: ColumnInfo, bounds: Bounds) -> Bounds | None:
    """None: the filter says nothing about bounds."""
    value: Any = getattr(one, "value", None)
    if isinstance(one, In):
        values = [comparable(column, each) for each in value if each is not None]
        return None if any(v is None for v in values) else bounds.among(values)
    plain = comparable(column, value)
    if plain is None:
        return None
    match one:
        case EqualTo():
            return bounds.among([plain])
        case GreaterThan():
            return bounds.above(plain + 1 if isinstance(plain, int) else plain)
        case GreaterThanOrEqual():
            return bounds.above(plain)
        case LessThan():
            return bounds.below(plain - 1 if isinstance(plain, int) else plain)
        case LessThanOrEqual():
            return bounds.below(plain)
    return None


def comparable(column: ColumnInfo, value: Any) -> Value | None:
    """A value of a filter in the form that bounds of the column have; None: such values are not compared here."""
    match family(column), value:
        case _, bool():
            return None
        case ((Family.INT | Family.YEAR), int()):
            return value
        case ((Family.INT | Family.YEAR), Decimal()) if value == value.to_integral_value():
            return int(value)
        case Family.TIME, datetime() if column.tp == MySQLType.DATETIME and value.tzinfo is None:
            return value
        case Family.TIME, date() if column.tp in (MySQLType.DATE, MySQLType.NEWDATE) and not isinstance(value, datetime):
            return value
        case Family.BYTES, str():
            return value.encode()
        case Family.BYTES, (bytes() | bytearray()):
            return bytes(value)
    return None
