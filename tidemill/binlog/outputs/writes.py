"""Row changes as a database takes them: the values as SQL, how the row is found, and hashes of what it may be in the way of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import cached_property

from tidemill.binlog.outputs.literals import literal
from tidemill.binlog.outputs.transactions import TableChanges, Transaction
from tidemill.binlog.rows import Cells, Image, RowChange
from tidemill.protocols.sql.keys import conflict_keys
from tidemill.protocols.sql.predicates import AS_IS, Compared, Condition, compared_as, conditions, is_wide_bits, joined, operand
from tidemill.tidb.names import quote_name
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

KNOWN = 4096
"""Table versions that are kept ready; with more all are made again."""

NULL = "NULL"


@dataclass(frozen=True, slots=True)
class Column:
    """A column that is written."""

    name: str
    compared: Compared = AS_IS
    wide_bits: bool = False


@dataclass(frozen=True, eq=False)
class Target:
    """A table downstream. `finding`: the places in `columns` of those that find a row, a key's if `has_key`."""

    schema: str
    table: str
    columns: tuple[Column, ...]
    finding: tuple[int, ...]
    has_key: bool

    @cached_property
    def name(self) -> str:
        """Its name in a statement."""
        return f"{quote_name(self.schema)}.{quote_name(self.table)}"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns' names in a statement."""
        return tuple(quote_name(column.name) for column in self.columns)

    @cached_property
    def wide_bits(self) -> tuple[int, ...]:
        """The places of columns that an update sets to literals."""
        return tuple(place for place, column in enumerate(self.columns) if column.wide_bits)

    @property
    def key_is_list(self) -> bool:
        """Whether the key is one column whose literals make a list."""
        return self.has_key and len(self.finding) == 1 and self.columns[self.finding[0]].compared.in_list

    @property
    def key_operand(self) -> bytes:
        """What is compared with the values of a list."""
        column = self.columns[self.finding[0]]
        return operand(column.name, column.compared).encode() if self.key_is_list else b""

    @cached_property
    def _conditions(self) -> tuple[Condition, ...]:
        return conditions([(c.name, c.compared) for c in (self.columns[place] for place in self.finding)], has_key=self.has_key)

    def where(self, image: Sequence[str]) -> str:
        """Return the condition that finds the row that looks so."""
        return joined(self._conditions, [image[place] for place in self.finding])

    def key_of(self, image: Sequence[str]) -> str:
        """Return the text of a row's key: a literal if they make a list, else the condition."""
        return image[self.finding[0]] if self.key_is_list else self.where(image)


@dataclass(frozen=True, slots=True)
class RowWrite:
    """A change of a row. `old` and `new` are SQL literals by the target's columns. `hashes`: two rows with one in common must be written in
    order; there are none where nobody asked for them."""

    target: Target
    old: tuple[str, ...] | None
    new: tuple[str, ...] | None
    hashes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """The rows of one transaction upstream. `rows` may be called again, for another attempt; it raises MalformedRow."""

    commit_ts: int
    count: int
    rows: Callable[[], Iterator[RowWrite]]


def hashes_of(table: tuple[str, str], keys: Sequence[Sequence[str]] | None) -> tuple[int, ...]:
    """Return the hashes of a row's unique keys, of which `keys` has the values. None: all rows of the table wait for each other.

    A key with a NULL is in nobody's way.
    """
    if keys is None:
        return (_hash(table),)
    return tuple(_hash((table, number, *key)) for number, key in enumerate(keys) if NULL not in key)


def _hash(value: object) -> int:
    return hash(value) & 0xFFFF_FFFF_FFFF_FFFF or 1


ColumnsOf = Callable[[str, str], Collection[str] | None]
"""The columns that a table downstream has; None: all that it has upstream."""


class Writers:
    """Makes writes of transactions. `hashed`: with hashes. `columns_of`: which columns may be written."""

    def __init__(self, *, hashed: bool, columns_of: ColumnsOf | None = None) -> None:
        self._hashed, self._columns_of = hashed, columns_of
        self._made: dict[int, _Writer] = {}

    def forget(self) -> None:
        """Tables downstream have changed."""
        self._made.clear()

    def work(self, transaction: Transaction) -> Work:
        """Return the writes of a transaction."""
        count = sum(len(changes.rows) for changes in transaction.tables)
        return Work(transaction.commit_ts, count, lambda: self._rows(transaction.tables))

    def _rows(self, tables: Sequence[TableChanges]) -> Iterator[RowWrite]:
        for changes in tables:
            writer = self._writer(changes.version)
            for row in changes.rows:
                yield writer.row(row)

    def _writer(self, version: TableVersion) -> _Writer:
        found = self._made.get(id(version))
        if found is None:
            if len(self._made) >= KNOWN:
                self._made.clear()
            only = self._columns_of(*version.name) if self._columns_of is not None else None
            found = self._made[id(version)] = _Writer(version, only, hashed=self._hashed)
        return found


class _Writer:
    """Makes the writes of one version of a table, which it keeps: its id is the version's name."""

    def __init__(self, version: TableVersion, only: Collection[str] | None, *, hashed: bool) -> None:
        info = version.info
        self.version, self._cells, self._hashed = version, Cells(info, UTC), hashed
        lower = None if only is None else {name.lower() for name in only}
        self._columns = [c for c in info.output_columns if not c.is_generated and (lower is None or c.name.lower() in lower)]
        key = _handle(info, self._columns)
        columns = tuple(Column(c.name, compared_as(c), is_wide_bits(c)) for c in self._columns)
        finding = tuple(self._columns.index(c) for c in key or self._columns)
        self._target = Target(version.schema, info.name, columns, finding, bool(key))
        self._keys = _hashed_columns(info)

    def row(self, row: RowChange) -> RowWrite:
        """Return the write of a change. Raises MalformedRow."""
        hashes: tuple[int, ...] = ()
        if self._hashed:
            hashes = tuple(dict.fromkeys(one for image in (row.old, row.new) if image is not None for one in self._hashes(image)))
        return RowWrite(self._target, self._texts(row.old), self._texts(row.new), hashes)

    def _texts(self, image: Image | None) -> tuple[str, ...] | None:
        return None if image is None else tuple(self._text(column, image) for column in self._columns)

    def _text(self, column: ColumnInfo, image: Image) -> str:
        return literal(column, self._cells.of(column, image))

    def _hashes(self, image: Image) -> tuple[int, ...]:
        keys = self._keys
        return hashes_of(self.version.name, None if keys is None else [[self._text(c, image) for c in key] for key in keys])


def _handle(info: TableInfo, columns: Sequence[ColumnInfo]) -> list[ColumnInfo]:
    """Return the columns of the handle key; none if it cannot find a row among `columns`."""
    found = [info.columns_by_id[number] for number in info.handle_key_ids]
    return found if all(column in columns for column in found) else []


def _hashed_columns(info: TableInfo) -> tuple[tuple[ColumnInfo, ...], ...] | None:
    """Return the columns to hash of each unique key; None: the rows cannot be told apart."""
    keys = conflict_keys(info)
    by_name = {column.name: column for column in info.columns}
    return None if keys is None else tuple(tuple(by_name[name] for name in key) for key in keys)
