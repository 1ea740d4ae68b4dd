"""What is compared: tables, and the buckets that their rows are divided into. Pure."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Set
from dataclasses import dataclass, replace
from functools import cached_property

from tidemill.errors import MalformedRow
from tidemill.protocols.sql.literals import SqlTable
from tidemill.tidb.names import quote_name
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.jsonstyle import JsonStyle

_INTEGERS = frozenset({MySQLType.TINY, MySQLType.SHORT, MySQLType.INT24, MySQLType.LONG, MySQLType.LONGLONG})
MOST_BUCKETS = 4096
_FIRST = re.compile(rb"(?:`(?:[^`]|``)*`=)?(-?\d+)")


@dataclass(frozen=True, slots=True)
class Ranges:
    """Buckets by ranges of the key's first column, an integer. `bounds`: where each bucket but the first begins."""

    bounds: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.bounds) + 1

    def of(self, key: bytes) -> int:
        """Return the bucket of a key's text."""
        return bisect_right(self.bounds, first_integer(key))

    def ends(self, bucket: int) -> tuple[int | None, int | None]:
        """Return the least value of a bucket and that of the next one; None: open."""
        low = self.bounds[bucket - 1] if bucket else None
        return low, self.bounds[bucket] if bucket < len(self.bounds) else None


@dataclass(frozen=True, slots=True)
class Hashed:
    """Buckets by a hash of the key's text, where nothing else orders keys alike on both sides."""

    count: int

    def of(self, key: bytes) -> int:
        """Return the bucket of a key's text."""
        return int.from_bytes(hashlib.sha256(key).digest()[:4]) % self.count


Buckets = Ranges | Hashed


def first_integer(key: bytes) -> int:
    """Return the integer that a key's text begins with: the literal itself, or that of its first condition."""
    found = _FIRST.match(key)
    if found is None:
        raise MalformedRow(f"the key {key!r} does not begin with an integer")
    return int(found[1])


@dataclass(frozen=True)
class DiffTable:
    """A table of the upstream at the ts. `number`: its place in the list of all. `touched_only`: the upstream knows only the rows that were
    changed since its log began, so a row that is only downstream may be older."""

    number: int
    schema: str
    table: str
    info: TableInfo
    json: JsonStyle = JsonStyle.GO
    buckets: Buckets = Hashed(1)
    touched_only: bool = False
    origin: TableInfo | None = None
    """The table as it is upstream."""

    @classmethod
    def of(
        cls, number: int, schema: str, info: TableInfo, json: JsonStyle, *, touched_only: bool = False, unknown: Set[int] = frozenset()
    ) -> DiffTable:
        """Return a table. `unknown`: ids of columns that are left out, because the upstream's values are not known."""
        compared = info
        if unknown:
            indices = tuple(i for i in info.indices if unknown.isdisjoint(c.id for c in info.index_columns(i)))
            compared = replace(info, columns=tuple(c for c in info.columns if c.id not in unknown), indices=indices)
        return cls(number, schema, info.name, compared, json, touched_only=touched_only, origin=info)

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of columns whose values are not known."""
        kept = {column.id for column in self.info.columns}
        return tuple(c.name for c in (self.origin or self.info).output_columns if c.id not in kept)

    @property
    def quoted(self) -> str:
        """The name for SQL."""
        return f"{quote_name(self.schema)}.{quote_name(self.table)}"

    @cached_property
    def sql(self) -> SqlTable:
        """How its rows become texts."""
        return SqlTable(self.schema, self.table, self.info, self.json)

    @property
    def range_column(self) -> ColumnInfo | None:
        """The column that may divide the table into ranges: an integer that its key's text begins with, and the index of the key too."""
        first = self.sql.key[0] if self.sql.has_key else None
        if first is None or first.tp not in _INTEGERS:
            return None
        leading = {self.info.pk_column.id} if self.info.pk_column is not None else set()
        leading |= {self.info.index_columns(index)[0].id for index in self.info.indices if index.unique or index.primary}
        return first if first.id in leading else None
