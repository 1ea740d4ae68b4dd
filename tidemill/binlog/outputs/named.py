"""Rows of messages, whose columns have only names and types, and what a database tells of its tables: together they make writes.

Messages have the generated columns too, which a database computes itself, and the `file` form says nothing of keys. So the keys are the
downstream's own, as in the real programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tidemill.binlog.outputs.writes import Column, RowWrite, Target, hashes_of
from tidemill.errors import SchemaError
from tidemill.protocols.sql.predicates import AS_IS, Compared

Values = Mapping[str, str]
"""SQL literals by the column's name."""


@dataclass(frozen=True, slots=True)
class NamedRow:
    """A change of a row. An insert has no `old`, a delete no `new`."""

    schema: str
    table: str
    old: Values | None
    new: Values | None


@dataclass(frozen=True, slots=True)
class NamedRows:
    """A transaction as a message tells it."""

    commit_ts: int
    rows: tuple[NamedRow, ...]


@dataclass(frozen=True, slots=True)
class NamedDdl:
    """A DDL as a message tells it. `schema`: the database to be in; empty: none."""

    commit_ts: int
    schema: str
    query: str


Told = NamedRows | NamedDdl


@dataclass(frozen=True, slots=True)
class KnownColumn:
    """A column downstream. `exact`: two of its values are equal only if their texts are. `compared`: how a row is found by its value.
    `wide_bits`: a BIT that cannot be set to its VALUES() in every server."""

    name: str
    generated: bool = False
    nullable: bool = True
    exact: bool = True
    compared: Compared = AS_IS
    wide_bits: bool = False


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A unique key downstream. `whole`: no column of it counts only with its first characters."""

    name: str
    columns: tuple[str, ...]
    whole: bool = True


@dataclass(frozen=True)
class KnownTable:
    """A table downstream, with the primary key first. Names of columns are compared without regard to case."""

    schema: str
    name: str
    columns: tuple[KnownColumn, ...]
    keys: tuple[KnownKey, ...]
    _targets: dict[tuple[str, ...], Target] = field(default_factory=dict, repr=False, compare=False)

    def known(self, row: NamedRow) -> NamedRow:
        """Return a row without the columns that are not there."""
        here = {column.name.lower() for column in self.columns}

        def kept(values: Values | None) -> Values | None:
            return None if values is None else {name: text for name, text in values.items() if name.lower() in here}

        return NamedRow(row.schema, row.table, kept(row.old), kept(row.new))

    def write(self, row: NamedRow, *, hashed: bool) -> RowWrite:
        """Return the write of a row. Raises SchemaError for a column that is not there."""
        image = row.new if row.old is None else row.old
        assert image is not None
        target = self._target(tuple(image))
        texts = tuple(None if one is None else tuple(one[column.name] for column in target.columns) for one in (row.old, row.new))
        hashes: tuple[int, ...] = ()
        if hashed:
            found = (one for values in (row.old, row.new) if values is not None for one in self._hashes(values))
            hashes = tuple(dict.fromkeys(found))
        return RowWrite(target, texts[0], texts[1], hashes)

    def _target(self, names: tuple[str, ...]) -> Target:
        if names not in self._targets:
            self._targets[names] = self._made(names)
        return self._targets[names]

    def _made(self, names: tuple[str, ...]) -> Target:
        here = {column.name.lower(): column for column in self.columns}
        missing = [name for name in names if name.lower() not in here]
        if missing:
            raise SchemaError(
                f"table {self.schema}.{self.name} has no column {missing[0]}, which a row has",
                hint="Make the table as it was upstream at that time; DDLs that were left out may have changed it.",
            )
        written = [name for name in names if not here[name.lower()].generated]
        lower = [name.lower() for name in written]
        key = next((key for key in self.keys if self._finds(key, lower, here)), None)
        finding = [lower.index(name.lower()) for name in key.columns] if key is not None else list(range(len(written)))
        columns = tuple(Column(name, here[name.lower()].compared, here[name.lower()].wide_bits) for name in written)
        return Target(self.schema, self.name, columns, tuple(finding), key is not None)

    @staticmethod
    def _finds(key: KnownKey, written: list[str], here: Mapping[str, KnownColumn]) -> bool:
        return all(name.lower() in written and not here[name.lower()].nullable for name in key.columns)

    def _hashes(self, values: Values) -> Iterator[int]:
        here = {column.name.lower(): column for column in self.columns}
        given = {name.lower(): text for name, text in values.items()}
        keys: list[list[str]] | None = []
        for key in self.keys:
            usable = [name.lower() for name in key.columns if key.whole and here[name.lower()].exact and name.lower() in given]
            keys = None if keys is None or not usable else [*keys, [given[name] for name in usable]]
        yield from hashes_of((self.schema, self.name), keys or None)
