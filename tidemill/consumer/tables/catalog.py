"""The descriptions of tables, and the changes that DDLs make to them. `sqlite` changes the rows by the plans made here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tidemill.consumer.tables.definitions import new_column
from tidemill.consumer.tables.statements import (
    FIRST,
    AddColumn,
    AddPartitions,
    Change,
    ChangeColumn,
    CoalescePartitions,
    DropColumn,
    EmptyPartitions,
    Name,
    RenameColumn,
    ReorganizePartitions,
    SetPartitioning,
)
from tidemill.consumer.tables.values import absent, conversion
from tidemill.protocols.open.codes import ColumnFlag as Shown
from tidemill.protocols.open.events import Column
from tidemill.rules.partitions import Definition, Method, Partitioning
from tidemill.tidb.names import folded, folded_table
from tidemill.tidb.rows.cells import Cell, Family, family
from tidemill.tidb.schema.codes import ColumnFlag, MySQLType
from tidemill.tidb.schema.model import ColumnInfo

_MAX_SMALL_BITS = 63


@dataclass(slots=True)
class Table:
    """A table downstream. `stored` is its name in the file. `columns` include virtual ones, whose values no message holds."""

    name: Name
    stored: str
    columns: tuple[ColumnInfo, ...]
    partitioning: Partitioning | None = None
    key: tuple[str, ...] = ()  # the columns of the handle key; empty: none
    by_row_id: bool = False  # rows without a key have TiDB's hidden row id
    born_ts: int = 0  # rows at or below it belong to an earlier table of this name
    changed_ts: int = 0  # the ts of the last change of its columns

    @property
    def value_columns(self) -> tuple[ColumnInfo, ...]:
        """The columns that rows have."""
        return tuple(c for c in self.columns if not c.is_virtual)

    @property
    def names(self) -> dict[str, str]:
        """Names of the columns that rows have, by lower-case name."""
        return {folded(c.name): c.name for c in self.value_columns}

    def column(self, name: str) -> ColumnInfo | None:
        """Return a column by its name, in any case."""
        return next((c for c in self.columns if folded(c.name) == folded(name)), None)

    def definition(self) -> dict[str, Any]:
        """Return everything except the names, for JSON."""
        return {
            "columns": [_column_json(c) for c in self.columns],
            "partitioning": _partitioning_json(self.partitioning),
            "key": list(self.key),
            "by_row_id": self.by_row_id,
            "born_ts": self.born_ts,
            "changed_ts": self.changed_ts,
        }

    @classmethod
    def restored(cls, name: Name, stored: str, data: dict[str, Any]) -> Table:
        """Build the table from `definition`."""
        return cls(
            name=name,
            stored=stored,
            columns=tuple(new_column(**{**c, "elems": tuple(c["elems"])}) for c in data["columns"]),
            partitioning=_partitioning(data["partitioning"]),
            key=tuple(data["key"]),
            by_row_id=data["by_row_id"],
            born_ts=data["born_ts"],
            changed_ts=data["changed_ts"],
        )


def _column_json(column: ColumnInfo) -> dict[str, Any]:
    return {
        "name": column.name, "tp": int(column.tp), "flag": column.flag, "flen": column.flen, "decimal": column.decimal,
        "charset": column.charset, "elems": list(column.elems), "virtual": column.is_virtual,
    }  # fmt: skip


def _partitioning_json(partitioning: Partitioning | None) -> dict[str, Any] | None:
    if partitioning is None:
        return None
    return {**dataclasses.asdict(partitioning), "method": partitioning.method.value}


def _partitioning(data: dict[str, Any] | None) -> Partitioning | None:
    if data is None:
        return None
    definitions = tuple(
        Definition(d["name"], tuple(d["less_than"]), tuple(tuple(v) for v in d["values"]), d["is_default"]) for d in data["definitions"]
    )
    return Partitioning(Method(data["method"]), data["expression"], tuple(data["columns"]), definitions)


def column_of_event(column: Column) -> ColumnInfo:
    """Return the description of a column from a row event. Elements of ENUM and SET and digits after the point are missing."""
    flag = 0 if column.flags & Shown.NULLABLE else ColumnFlag.NOT_NULL
    if column.flags & Shown.UNSIGNED:
        flag |= ColumnFlag.UNSIGNED
    return new_column(column.name, int(column.type), flag=flag, charset="binary" if column.flags & Shown.BINARY else "utf8mb4")


def fits(known: ColumnInfo | None, shown: Column) -> bool:
    """Return whether values of a row's column can be stored in the known column."""
    if known is None:
        return False
    told = column_of_event(shown)
    if known.tp == told.tp and family(told) is Family.NUMBER:
        return True
    return (known.tp, known.unsigned, known.is_binary) == (told.tp, told.unsigned, told.is_binary) or declared(known) == declared(told)


def declared(column: ColumnInfo) -> str:
    """Return the SQLite type, whose affinity must not change values. Numbers of 64 bits have no type, because some are stored as text."""
    match family(column):
        case Family.INT:
            return "" if column.unsigned and column.tp == MySQLType.LONGLONG else "INTEGER"
        case Family.NUMBER:
            return "INTEGER" if column.tp == MySQLType.ENUM or 0 < _bits(column) <= _MAX_SMALL_BITS else ""
        case Family.YEAR:
            return "INTEGER"
        case Family.FLOAT:
            return "REAL"
        case Family.BYTES:
            return "BLOB" if column.is_binary else "TEXT"
    return "TEXT"


def _bits(column: ColumnInfo) -> int:
    return len(column.elems) if column.tp == MySQLType.SET else column.flen


class Catalog:
    """Tables by name; case does not matter, as in TiDB."""

    def __init__(self) -> None:
        self._tables: dict[Name, Table] = {}

    def __iter__(self) -> Iterator[Table]:
        return iter(list(self._tables.values()))

    def find(self, name: Name) -> Table | None:
        """Return a table by schema and name."""
        return self._tables.get(folded_table(name))

    def find_unqualified(self, schema: str, table: str) -> Table | None:
        """Return a table whose schema a statement leaves out: it is the event's, or else the only table of that name is meant.

        The event of a RENAME into another schema names only the new schema.
        """
        found = self.find((schema, table))
        if found is None:
            others = [t for t in self._tables.values() if folded(t.name[1]) == folded(table)]
            found = others[0] if len(others) == 1 else None
        return found

    def add(self, table: Table) -> None:
        """Put a table under its name."""
        self._tables[folded_table(table.name)] = table

    def remove(self, table: Table) -> None:
        """Forget a table."""
        self._tables.pop(folded_table(table.name), None)

    def of_schema(self, schema: str) -> list[Table]:
        """Return the tables of a schema."""
        return [t for t in self if folded(t.name[0]) == folded(schema)]


# What ALTER TABLE does to columns


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a column's values when a table is rebuilt: an old column, perhaps converted, or one value for all rows."""

    old: str | None
    convert: Callable[[Cell], Cell] | None = None
    value: Cell = None


@dataclass(slots=True)
class ColumnPlan:
    """The columns of a table during one ALTER TABLE: (column, source of its values)."""

    columns: list[tuple[ColumnInfo, Source]]
    partitioning: Partitioning | None
    renamed: dict[str, str] = field(default_factory=dict)  # old name, lower case → new name

    @classmethod
    def of(cls, table: Table) -> ColumnPlan:
        """Return a plan without changes."""
        return cls([(c, Source(c.name)) for c in table.columns], table.partitioning)

    def take(self, change: Change) -> None:
        """Apply a change of columns or partition definitions. A change of an unknown column does nothing."""
        match change:
            case AddColumn(column, after):
                if self._index(column.name) is None:
                    self._put(column, Source(None, value=None if column.is_virtual else absent(column)), len(self.columns), after)
            case DropColumn(name):
                index = self._index(name)
                if index is not None:
                    del self.columns[index]
            case ChangeColumn(old, column, after):
                self._change(old, column, after)
            case RenameColumn(old, new):
                index = self._index(old)
                if index is not None:
                    column, source = self.columns[index]
                    self._rename(old, new)
                    self.columns[index] = dataclasses.replace(column, name=new), source
            case _:
                self.partitioning = _repartitioned(self.partitioning, change)

    def _index(self, name: str) -> int | None:
        return next((i for i, (c, _) in enumerate(self.columns) if folded(c.name) == folded(name)), None)

    def _put(self, column: ColumnInfo, source: Source, index: int, after: str | None) -> None:
        if after == FIRST:
            index = 0
        elif after is not None:
            found = self._index(after)
            index = index if found is None else found + 1
        self.columns.insert(index, (column, source))

    def _change(self, old: str, column: ColumnInfo, after: str | None) -> None:
        index = self._index(old)
        if index is None:
            return
        before, source = self.columns.pop(index)
        if before.name != column.name:
            self._rename(old, column.name)
        # The column is known from rows only. No message had its exact type, and values look the same in a wider type.
        convert = None if column.is_virtual or before.is_virtual else conversion(before, column)
        self._put(column, _then(source, convert), index, after)

    def _rename(self, old: str, new: str) -> None:
        self.renamed[folded(old)] = new
        if self.partitioning is not None:
            self.partitioning = self.partitioning.renamed(old, new)


def _then(source: Source, convert: Callable[[Cell], Cell] | None) -> Source:
    if convert is None:
        return source
    if source.old is None:
        return Source(None, value=convert(source.value))
    first = source.convert
    return Source(source.old, convert if first is None else lambda value: convert(first(value)))


def _repartitioned(partitioning: Partitioning | None, change: Change) -> Partitioning | None:
    if isinstance(change, SetPartitioning):
        return change.partitioning
    if partitioning is None:
        return None
    match change:
        case EmptyPartitions(names, drop=True):
            return partitioning.without(names)
        case AddPartitions(definitions, count):
            if count:
                return partitioning.counted(len(partitioning.definitions) + count)
            return partitioning.replaced((*partitioning.definitions, *definitions))
        case ReorganizePartitions(names, definitions):
            return partitioning.without(names, definitions)
        case CoalescePartitions(count):
            return partitioning.counted(len(partitioning.definitions) - count)
    return partitioning
