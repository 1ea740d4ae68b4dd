"""Random transactions of random tables, as a TiDB could have written them; few keys, so that a transaction changes some of them often."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tests.support.rows.random_rows import random_plain, random_table
from tidemill.binlog.messages import Binlog, BinlogType, MutationType, Prewritten, TableMutation
from tidemill.tidb.codec import encode_varint
from tidemill.tidb.datums import DatumFlag
from tidemill.tidb.rows.write import format_1_datum
from tidemill.tidb.schema.codes import HandleKind
from tidemill.tidb.schema.model import ColumnInfo, TableInfo

KEYS = 3
"""Values of each column of a key."""


def number(value: int) -> bytes:
    """A number, as a handle, a column id or a value."""
    return bytes([DatumFlag.VARINT]) + encode_varint(value)


def random_tables(rng: random.Random, count: int) -> list[TableInfo]:
    """Tables with ids from 100 on; at most one is partitioned, because all of them have the same partitions."""
    found: list[TableInfo] = []
    while len(found) < count:
        one = replace(random_table(rng), id=100 + len(found))
        if all(other.physical_ids != one.physical_ids for other in found):
            found.append(one)
    return found


class Rows:
    """Makes rows of one table. `ids`: the columns of its key, which stand in updates and deletes."""

    def __init__(self, rng: random.Random, info: TableInfo) -> None:
        self._rng, self.info = rng, info
        index = info.primary_index
        common = info.handle_kind is HandleKind.COMMON and index is not None
        self._parts: Sequence[ColumnInfo] = info.index_columns(index) if common and index is not None else ()
        row_id = info.pk_column.id if info.pk_column is not None else -1
        self.ids = tuple(column.id for column in self._parts) if common else (row_id,)
        self._keys = [[self._datum(column) for _ in range(KEYS)] for column in self._parts]
        if not self._keys:
            low, high = -(1 << 63), (1 << 63) - 1
            self._keys = [[number(rng.choice((0, -1, low, high, rng.randint(low, high)))) for _ in range(KEYS)]]

    def _datum(self, column: ColumnInfo) -> bytes:
        return format_1_datum(column, random_plain(self._rng, column))

    def key(self) -> tuple[bytes, ...]:
        """The datums of a key."""
        return tuple(self._rng.choice(some) for some in self._keys)

    def columns(self) -> list[ColumnInfo]:
        """Some of the columns that are in no key."""
        rest = [column for column in self.info.output_columns if column.id not in self.ids]
        return self._rng.sample(rest, self._rng.randint(0, len(rest)))

    def pairs(self, columns: Sequence[ColumnInfo], key: tuple[bytes, ...] | None) -> bytes:
        """The pairs of a row, with those of its key."""
        found = [number(column.id) + (self._datum(column) if self._rng.random() < 0.8 else b"\0") for column in columns]
        if key is not None:
            found += [number(one) + datum for one, datum in zip(self.ids, key, strict=True)]
        return b"".join(found)

    def inserted(self) -> bytes:
        """An inserted row."""
        key, columns = self.key(), self.columns()
        told = key if self._parts and self._rng.random() < 0.5 else None
        return b"".join(key) + (self.pairs(columns, told) or b"\0")

    def updated(self) -> bytes:
        """An updated row, whose key may change."""
        key, columns = self.key(), self.columns()
        return self.pairs(columns, key) + self.pairs(columns, self.key() if self._rng.random() < 0.4 else key)

    def deleted(self) -> bytes:
        """A deleted row."""
        return self.pairs(self.columns(), self.key())

    def mutation(self) -> TableMutation:
        """Some rows, in any order."""
        made: dict[MutationType, list[bytes]] = {kind: [] for kind in MutationType}
        sequence = tuple(self._rng.choice(list(MutationType)) for _ in range(self._rng.choice((1, 1, 2, 5, 12))))
        for kind in sequence:
            make = {MutationType.INSERT: self.inserted, MutationType.UPDATE: self.updated, MutationType.DELETE_ROW: self.deleted}[kind]
            made[kind].append(make())
        rows = (tuple(made[kind]) for kind in (MutationType.INSERT, MutationType.UPDATE, MutationType.DELETE_ROW))
        return TableMutation(self.info.id, *rows, sequence)


def random_transactions(rng: random.Random, tables: Sequence[TableInfo], count: int) -> Iterator[Binlog]:
    """Transactions, in commit order."""
    makers = [Rows(rng, info) for info in tables]
    ts = 1000
    for _ in range(count):
        ts += rng.randint(2, 9)
        mutations = tuple(rng.choice(makers).mutation() for _ in range(rng.choice((1, 1, 2, 3))))
        yield Binlog(BinlogType.COMMIT, ts - 1, ts, b"k", Prewritten(1, mutations).encode())
