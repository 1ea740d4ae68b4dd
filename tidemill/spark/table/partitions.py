"""Which partitions of a table may hold rows within bounds: RANGE, LIST and HASH over a single column. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from itertools import pairwise

from tidemill.spark.table.bounds import Bounds, Value
from tidemill.tidb.rows.cells import Family, family
from tidemill.tidb.schema.codes import MySQLType, PartitionType
from tidemill.tidb.schema.model import ColumnInfo, PartitionDefinition, PartitionInfo, TableInfo

Interval = tuple[Value | None, Value | None]

_BARE = re.compile(r"`((?:[^`]|``)+)`")
_OF_DATE = re.compile(r"(year|to_days)\(`((?:[^`]|``)+)`\)", re.IGNORECASE)
_YEAR_0_DAYS = 365
"""TO_DAYS counts from the year 0, Python's ordinals from the year 1."""


def kept_partitions(info: TableInfo, bounds: Mapping[int, Bounds]) -> tuple[PartitionDefinition, ...]:
    """Return the partitions that are to be read; none for a table without partitions."""
    part = info.partitioning
    if part is None:
        return ()
    subject = _subject(info, part)
    if subject is None or subject[0].id not in bounds:
        return part.definitions
    column, of = subject
    wanted = bounds[column.id]
    intervals: list[Interval] = [(_mapped(of, low), _mapped(of, high)) for low, high in wanted.intervals]
    is_plain = of is _itself
    match part.type:
        case PartitionType.RANGE:
            return _of_range(part.definitions, intervals, _reader(column if is_plain else None))
        case PartitionType.LIST:
            return _of_list(part.definitions, intervals, _reader(column if is_plain else None))
        case PartitionType.HASH if is_plain and wanted.values is not None and family(column) is Family.INT:
            n = len(part.definitions)
            numbers = {abs(value) % n for value in wanted.values}
            return tuple(one for number, one in enumerate(part.definitions) if number in numbers)
    return part.definitions


def _itself(value: Value) -> Value:
    return value


def _mapped(of: Callable[[Value], Value], value: Value | None) -> Value | None:
    return None if value is None else of(value)


def _subject(info: TableInfo, part: PartitionInfo) -> tuple[ColumnInfo, Callable[[Value], Value]] | None:
    """The column by which a table is partitioned, and the function of it: one that never falls. None: there is no single such column."""
    columns = {column.name.lower(): column for column in info.columns}
    if part.columns:
        column = columns.get(part.columns[0].lower()) if len(part.columns) == 1 else None
        return None if column is None or part.type == PartitionType.KEY else (column, _itself)
    text = part.expr.strip()
    bare, of_date = _BARE.fullmatch(text), _OF_DATE.fullmatch(text)
    if bare is not None:
        column = columns.get(bare[1].replace("``", "`").lower())
        return (column, _itself) if column is not None else None
    if of_date is not None:
        column = columns.get(of_date[2].replace("``", "`").lower())
        return (column, _year if of_date[1].lower() == "year" else _to_days) if column is not None else None
    return None


def _year(value: date) -> int:
    return value.year


def _to_days(value: date) -> int:
    return value.toordinal() + _YEAR_0_DAYS


def _reader(column: ColumnInfo | None) -> Callable[[str], Value | None]:
    """What reads the literals of a definition, for a column or (None) for a function's integer. It returns None for what it cannot read."""

    def read(text: str) -> Value | None:
        plain = text.strip().strip("'\"")
        try:
            if column is None or family(column) in (Family.INT, Family.YEAR):
                return int(plain)
            if column.tp in (MySQLType.DATE, MySQLType.NEWDATE):
                return date.fromisoformat(plain)
            return datetime.fromisoformat(plain) if column.tp == MySQLType.DATETIME else None
        except ValueError:
            return None

    return read


def _of_range(
    definitions: Sequence[PartitionDefinition], intervals: Sequence[Interval], read: Callable[[str], Value | None]
) -> tuple[PartitionDefinition, ...]:
    ends = [one.less_than[0] if one.less_than else "" for one in definitions]
    values = [None if end.upper() == "MAXVALUE" else read(end) for end in ends]
    if any(value is None and end.upper() != "MAXVALUE" for value, end in zip(values, ends, strict=True)):
        return tuple(definitions)
    return tuple(
        one
        for one, (start, end) in zip(definitions, pairwise([None, *values]), strict=True)
        if any((high is None or start is None or high >= start) and (low is None or end is None or low < end) for low, high in intervals)
    )


def _of_list(
    definitions: Sequence[PartitionDefinition], intervals: Sequence[Interval], read: Callable[[str], Value | None]
) -> tuple[PartitionDefinition, ...]:
    def may_hold(one: PartitionDefinition) -> bool:
        for texts in one.in_values:
            value = read(texts[0]) if len(texts) == 1 else None
            if value is None:
                if texts and texts[0].upper() == "NULL":
                    continue  # no filter that makes bounds lets NULL through
                return True
            if any((low is None or low <= value) and (high is None or value <= high) for low, high in intervals):
                return True
        return not one.in_values  # DEFAULT

    return tuple(one for one in definitions if may_hold(one))
