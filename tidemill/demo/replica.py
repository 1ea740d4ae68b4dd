"""Tables rebuilt from what was delivered, for comparing with the upstream.

Rows come from decoded messages alone. A DDL's effect on rows that are there already (a column added, a table renamed or
truncated, a partition dropped) is told by the definitions before and after it, as a database that runs the statement would do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo

from tidemill.events import DdlEvent
from tidemill.tidb.rows import RowReader
from tidemill.tidb.schema.codes import Action, PartitionType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.schema.versions import TableVersion

Name = tuple[str, str]
Value = None | int | float | str
"""A cell in the form in which both sides are compared: see `plain`."""

_EMPTIES_PARTITIONS = frozenset({Action.DROP_TABLE_PARTITION, Action.TRUNCATE_TABLE_PARTITION})


@dataclass(frozen=True, slots=True)
class RowChange:
    """One delivered row event: the images by column name, the names of the handle columns, the partition's id if there is one."""

    ts: int
    name: Name
    partition_id: int | None
    handle: tuple[str, ...]
    before: Mapping[str, Value] | None
    after: Mapping[str, Value] | None


@dataclass(slots=True)
class StoredRow:
    columns: dict[str, Value]
    partition_id: int | None


@dataclass
class Replica:
    """Tables by (schema, table), rows by the values of their handle columns."""

    zone: tzinfo
    tables: dict[Name, dict[tuple[Value, ...], StoredRow]] = field(default_factory=dict)
    handles: dict[Name, tuple[str, ...]] = field(default_factory=dict)
    rows_applied: int = 0

    def apply_row(self, change: RowChange) -> None:
        """Applying a change a second time changes nothing."""
        self.rows_applied += 1
        table = self.tables.setdefault(change.name, {})
        self.handles[change.name] = change.handle
        if change.before is not None:
            table.pop(_key(change.before, change.handle), None)
        if change.after is not None:
            table[_key(change.after, change.handle)] = StoredRow(dict(change.after), change.partition_id)

    def apply_ddl(self, event: DdlEvent) -> None:
        """What the DDL does to rows that are there."""
        before, after = event.before, event.after
        if event.type == Action.DROP_SCHEMA:
            for name in [n for n in self.tables if n[0] == event.schema]:
                self._forget(name)
        elif before is not None and after is None:
            self._forget(before.name)
        elif after is not None and before is None:
            self.tables.setdefault(after.name, {})
        elif before is not None and after is not None:
            if event.type == Action.EXCHANGE_PARTITION:
                self._exchange(before, after, (event.pre_schema, event.pre_table))
            self._alter(event.type, before, after)

    def _exchange(self, before: TableVersion, after: TableVersion, plain_table: Name) -> None:
        """The rows of one partition and of a table without partitions change places."""
        partitioned, other = self.tables.setdefault(before.name, {}), self.tables.setdefault(plain_table, {})
        [gone] = set(before.physical_ids) - set(after.physical_ids)
        [come] = set(after.physical_ids) - set(before.physical_ids)
        leaving = {key: row for key, row in partitioned.items() if row.partition_id == gone}
        self.tables[plain_table] = {key: StoredRow(row.columns, None) for key, row in leaving.items()}
        staying = {key: row for key, row in partitioned.items() if key not in leaving}
        self.tables[before.name] = staying | {key: StoredRow(row.columns, come) for key, row in other.items()}

    def _forget(self, name: Name) -> None:
        self.tables.pop(name, None)
        self.handles.pop(name, None)

    def _alter(self, action: int, before: TableVersion, after: TableVersion) -> None:
        rows = self.tables.pop(before.name, {})
        self.handles.pop(before.name, None)
        if action == Action.TRUNCATE_TABLE:
            rows = {}
        if action in _EMPTIES_PARTITIONS:
            gone = set(before.physical_ids) - set(after.physical_ids)
            rows = {key: row for key, row in rows.items() if row.partition_id not in gone}
        change_columns = _column_changes(before.info, after.info, self.zone)
        handle = _handle_names(after.info)
        for row in rows.values():
            row.columns = change_columns.apply(row.columns)
            if row.partition_id not in after.physical_ids:
                row.partition_id = _partition_of(after.info, row.columns)
        self.tables[after.name] = {_key(row.columns, handle): row for row in rows.values()}
        self.handles[after.name] = handle


@dataclass(frozen=True, slots=True)
class _ColumnChanges:
    renamed: Mapping[str, str]  # by the old name; columns that are not here are dropped
    added: Mapping[str, Value]

    def apply(self, columns: Mapping[str, Value]) -> dict[str, Value]:
        kept = {self.renamed[name]: value for name, value in columns.items() if name in self.renamed}
        return kept | {name: value for name, value in self.added.items() if name not in kept}


def _column_changes(before: TableInfo, after: TableInfo, zone: tzinfo) -> _ColumnChanges:
    """A column keeps its values under its id, or, when its type changed by a rewrite and so its id, under its name."""
    old_ids = {c.id: c.name for c in before.output_columns}
    old_names = set(old_ids.values())
    renamed: dict[str, str] = {}
    added: dict[str, Value] = {}
    absent = RowReader(after, zone).absent
    new_ids = {c.id for c in after.output_columns}
    vanished = {name for id_, name in old_ids.items() if id_ not in new_ids}
    for column, default in zip(after.output_columns, absent, strict=True):
        if column.id in old_ids:
            renamed[old_ids[column.id]] = column.name
        elif column.name in old_names and column.name in vanished:
            renamed[column.name] = column.name
        else:
            added[column.name] = plain(default)
    return _ColumnChanges(renamed, added)


def _partition_of(info: TableInfo, columns: Mapping[str, Value]) -> int | None:
    """Where a row lies in a table partitioned by ranges of a column, or by the remainder of one: partitions that a DDL made anew.

    None for other tables and expressions: their rows are not told apart until they are written again.
    """
    partition = info.partition
    if partition is None:
        return None
    value = columns.get(partition.expr.strip("`"))
    if not isinstance(value, int):
        return partition.definitions[0].id if value is None and partition.type == PartitionType.RANGE else None
    if partition.type == PartitionType.HASH:
        return partition.definitions[abs(value) % len(partition.definitions)].id
    if partition.type == PartitionType.RANGE:
        for definition in partition.definitions:
            if definition.less_than[0] == "MAXVALUE" or value < int(definition.less_than[0]):
                return definition.id
    return None


def _handle_names(info: TableInfo) -> tuple[str, ...]:
    wanted = set(info.handle_key_columns)
    return tuple(sorted(c.name for c in info.output_columns if c.id in wanted))


def _key(columns: Mapping[str, Value], handle: Iterable[str]) -> tuple[Value, ...]:
    return tuple(columns.get(name) for name in handle)


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


def compare(replica: Replica, truth: Mapping[Name, tuple[TableInfo, list[Mapping[str, Value]]]]) -> Iterator[Difference]:
    """Every difference between the replica and the upstream's tables, given as (definition, rows of plain values)."""
    for name in sorted(set(replica.tables) - set(truth)):
        if replica.tables[name]:
            yield Difference(name, f"{len(replica.tables[name])} rows were delivered for a table that is not there")
    for name, (info, rows) in sorted(truth.items()):
        yield from _compare_table(name, info, rows, replica.tables.get(name, {}))


def _compare_table(
    name: Name, info: TableInfo, rows: list[Mapping[str, Value]], delivered: Mapping[tuple[Value, ...], StoredRow]
) -> Iterator[Difference]:
    handle = _handle_names(info)
    expected = {_key(row, handle): row for row in rows}
    for key in expected.keys() - delivered.keys():
        yield Difference(name, f"row {_shown(handle, key)} was not delivered")
    for key in delivered.keys() - expected.keys():
        yield Difference(name, f"row {_shown(handle, key)} was delivered but is not there")
    columns = info.output_columns
    for key in expected.keys() & delivered.keys():
        yield from _compare_row(name, _shown(handle, key), columns, expected[key], delivered[key].columns)


def _compare_row(
    name: Name, row: str, columns: Iterable[ColumnInfo], expected: Mapping[str, Value], delivered: Mapping[str, Value]
) -> Iterator[Difference]:
    for column in columns:
        want, got = expected[column.name], delivered.get(column.name, "(absent)")
        if not _same(want, got):
            yield Difference(name, f"row {row}, column {column.name}: delivered {got!r}, upstream {want!r}")


def _same(want: Value, got: Value) -> bool:
    """A number and its text are the same (a column may have become text); a FLOAT is only as exact as 32 bits are."""
    if isinstance(want, float) and isinstance(got, int | float):
        return math.isclose(want, got, rel_tol=2.0**-23)
    return want == got or (want is not None and got is not None and str(want) == str(got))


def _shown(handle: Iterable[str], key: tuple[Value, ...]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in zip(handle, key, strict=True))
