"""Compares the tables that a consumer made with the upstream's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemill.consumer.tables.shapes import from_stored, quoted
from tidemill.consumer.tables.sqlite import SqliteTables
from tidemill.tidb.schema.model import ColumnInfo, TableInfo

Name = tuple[str, str]
Value = None | int | float | str
"""A cell in the form that is compared: see `plain`."""
Truth = Mapping[Name, tuple[TableInfo, list[Mapping[str, Value]]]]
"""The upstream's tables: (definition, rows of plain values) by name."""
Rows = dict[tuple[Value, ...], dict[str, Value]]

ABSENT = "(absent)"


def plain(value: object) -> Value:
    """A value in the form compared: text for bytes, numbers as they are."""
    if value is None:
        return None
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return "0x" + value.hex()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float | str):
        return value
    raise TypeError(f"a cell of type {type(value).__name__}")


@dataclass(frozen=True, slots=True)
class Difference:
    """One row or table in which the two sides differ."""

    name: Name
    what: str

    def __str__(self) -> str:
        return f"{'.'.join(self.name)}: {self.what}"


def rows_of(tables: SqliteTables, name: Name) -> list[dict[str, Value]]:
    """Return the rows of a table downstream, in any order; none if the table is missing."""
    table = tables.catalog.find(name)
    if table is None:
        return []
    columns = table.value_columns
    listed = ", ".join(quoted(c.name) for c in columns) or "1"
    found = tables.connection.execute(f"SELECT {listed} FROM {quoted(table.stored)}")
    return [{c.name: plain(from_stored(c, v)) for c, v in zip(columns, row, strict=False)} for row in found]


def compare(tables: SqliteTables, truth: Truth) -> Iterator[Difference]:
    """Every difference between the tables downstream and the upstream's. Tables without a key are compared by all columns and by their
    number of rows."""
    known = {name.lower() for name in map(".".join, truth)}
    for table in tables.catalog:
        if ".".join(table.name).lower() not in known and (left := rows_of(tables, table.name)):
            yield Difference(table.name, f"{len(left)} rows were delivered for a table that is not there")
    for name, (info, rows) in sorted(truth.items()):
        yield from compare_table(name, info, rows, rows_of(tables, name))


def compare_table(
    name: Name, info: TableInfo, rows: Sequence[Mapping[str, Value]], delivered: Sequence[Mapping[str, Value]]
) -> Iterator[Difference]:
    """Every difference between the rows of a table upstream and those downstream."""
    handle = handle_names(info) or tuple(c.name for c in info.output_columns)
    expected, got = _keyed(rows, handle), _keyed(delivered, handle)
    for key in expected.keys() - got.keys():
        yield Difference(name, f"row {_shown(handle, key)} was not delivered")
    for key in got.keys() - expected.keys():
        yield Difference(name, f"row {_shown(handle, key)} was delivered but is not there")
    if len(rows) != len(delivered):
        yield Difference(name, f"{len(delivered)} rows were delivered, the upstream has {len(rows)}")
    for key in expected.keys() & got.keys():
        yield from _compare_row(name, _shown(handle, key), info.output_columns, expected[key], got[key])


def handle_names(info: TableInfo) -> tuple[str, ...]:
    """Return the names of the columns that identify a row."""
    wanted = set(info.handle_key_ids)
    return tuple(sorted(c.name for c in info.output_columns if c.id in wanted))


def _keyed(rows: Iterable[Mapping[str, Value]], handle: Iterable[str]) -> dict[tuple[Value, ...], Mapping[str, Value]]:
    return {tuple(_comparable(row.get(name)) for name in handle): row for row in rows}


def _comparable(value: Value) -> Value:
    return float(value) if isinstance(value, float) else None if value is None else str(value)


def _compare_row(
    name: Name, row: str, columns: Iterable[ColumnInfo], expected: Mapping[str, Value], delivered: Mapping[str, Value]
) -> Iterator[Difference]:
    for column in columns:
        want, got = expected[column.name], delivered.get(column.name, ABSENT)
        if not _same(want, got):
            yield Difference(name, f"row {row}, column {column.name}: delivered {got!r}, upstream {want!r}")


def _same(want: Value, got: Value) -> bool:
    """Return whether two cells are equal. Floats may differ by the precision of 32 bits, which FLOAT has."""
    if isinstance(want, float) and isinstance(got, float):
        return math.isclose(want, got, rel_tol=2.0**-23)
    return want == got and isinstance(want, str) == isinstance(got, str)


def _shown(handle: Iterable[str], key: tuple[Value, ...]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in zip(handle, key, strict=True))
