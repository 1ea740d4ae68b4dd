"""Makes many rows at once: millions of a table in a second or two, as columns of bytes.

All rows of a load have the same layout (every stored value of a column has the same width), so keys and values are two-dimensional
byte arrays. Values differ from row to row and depend only on seed and row number.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt

from tidemill.errors import SqlError
from tidemill.playground.sql.catalog import Table
from tidemill.playground.sql.rows.rowcodec import Row
from tidemill.playground.store.blocks import Block
from tidemill.playground.store.cluster import Cluster, CommitMode
from tidemill.playground.workload import samples
from tidemill.tidb import keys
from tidemill.tidb.rows.cells import Family, Plain, family
from tidemill.tidb.rows.write import stored_bytes
from tidemill.tidb.schema.codes import HandleKind, MySQLType
from tidemill.tidb.schema.model import ColumnInfo

Bytes2D = npt.NDArray[np.uint8]

POOL = 256
BLOCK_ROWS = 1_000_000
TRANSACTION_ROWS = 5_000
_WIDE_INTS = {MySQLType.LONG: (4, 1 << 17), MySQLType.LONGLONG: (8, 1 << 33), MySQLType.INT24: (4, 1 << 17)}
_TEXT_WIDTH = 16


@dataclass(frozen=True, slots=True)
class Rows:
    """Encoded rows: `keys` and `values` hold one row a line."""

    keys: Bytes2D
    values: Bytes2D

    def __len__(self) -> int:
        return len(self.keys)

    def mutations(self) -> list[tuple[bytes, bytes | None]]:
        """The rows one by one."""
        key_size, value_size = self.keys.shape[1], self.values.shape[1]
        all_keys, all_values = self.keys.tobytes(), self.values.tobytes()
        return [
            (all_keys[i * key_size : (i + 1) * key_size], all_values[i * value_size : (i + 1) * value_size]) for i in range(len(self))
        ]  # fmt: skip


class RowMaker:
    """Makes rows of one version of a table by row number. Only for integer and hidden handles, not for partitions or generated columns."""

    def __init__(self, table: Table, seed: int) -> None:
        model = table.model
        if model.handle_kind is HandleKind.COMMON or model.partitioning is not None or any(c.is_generated for c in model.columns):
            raise SqlError(
                f"table {table.name} cannot be loaded in bulk: it needs an integer or hidden key, no partitions, no generated columns"
            )
        self._table = table
        random = Random(f"{seed}/{table.name}")
        self._prefix = keys.record_prefix(table.id)
        handle = model.pk_column
        self._columns: list[tuple[int, _Maker]] = []
        row: Row = {}
        for column in table.codec.public:
            if handle is not None and column.id == handle.id:
                row[column.id] = 1
                continue
            maker = _maker(column, random)
            self._columns.append((column.id, maker))
            row[column.id] = maker.plain
        self._template = table.codec.value(row)
        self._places = self._find_places(row)

    def _find_places(self, row: Row) -> list[tuple[int, _Maker]]:
        """Where in the row value each column's bytes begin: columns lie in the order of their ids."""
        width = sum(maker.width for _, maker in self._columns)
        at = len(self._template) - width
        places = []
        for _, maker in sorted(self._columns, key=lambda c: c[0]):
            places.append((at, maker))
            at += maker.width
        return places

    def make(self, first: int, count: int) -> Rows:
        """Rows with the handles first … first + count - 1."""
        numbers = np.arange(first, first + count, dtype=np.uint64)
        record = np.empty((count, len(self._prefix) + 8), np.uint8)
        record[:, : len(self._prefix)] = np.frombuffer(self._prefix, np.uint8)
        handles = (numbers ^ np.uint64(1 << 63)).astype(">u8")
        record[:, len(self._prefix) :] = handles.view(np.uint8).reshape(count, 8)
        values = np.empty((count, len(self._template)), np.uint8)
        values[:] = np.frombuffer(self._template, np.uint8)
        for at, maker in self._places:
            maker.fill(values[:, at : at + maker.width], numbers)
        return Rows(record, values)


class _Maker:
    """Makes one column: `plain` is one of its values, `width` the size of all of them."""

    plain: Plain
    width: int

    def fill(self, out: Bytes2D, numbers: npt.NDArray[np.uint64]) -> None:
        raise NotImplementedError


class _IntMaker(_Maker):
    """Wide integers: the row number above a base, so that they are unique and of one width."""

    def __init__(self, width: int, base: int) -> None:
        self.width, self._base, self.plain = width, base, base

    def fill(self, out: Bytes2D, numbers: npt.NDArray[np.uint64]) -> None:
        little = (numbers + np.uint64(self._base)).astype("<u8")
        out[:] = little.view(np.uint8).reshape(len(numbers), 8)[:, : self.width]


class _TextMaker(_Maker):
    """Text: the row number, mixed, as hexadecimal digits."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.plain = b"0" * width

    def fill(self, out: Bytes2D, numbers: npt.NDArray[np.uint64]) -> None:
        mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
        digits = np.frombuffer(b"0123456789abcdef", np.uint8)
        for place in range(self.width):
            source = numbers >> np.uint64(4 * place) if place < 8 else mixed >> np.uint64(4 * (place % 16))
            out[:, place] = digits[(source & np.uint64(15)).astype(np.intp)]


class _PoolMaker(_Maker):
    """Any other type: a pool of sampled values whose stored forms have one width."""

    def __init__(self, column: ColumnInfo, random: Random) -> None:
        found: dict[int, list[tuple[Plain, bytes]]] = {}
        for _ in range(POOL * 4):
            plain = _pooled(column, random)
            stored = stored_bytes(column, plain)
            found.setdefault(len(stored), []).append((plain, stored))
        self.width, chosen = max(found.items(), key=lambda item: (len(item[1]), item[0]))
        self.plain = chosen[0][0]
        pool = b"".join(stored for _, stored in chosen[:POOL])
        self._pool = np.frombuffer(pool, np.uint8).reshape(-1, self.width) if self.width else np.empty((1, 0), np.uint8)

    def fill(self, out: Bytes2D, numbers: npt.NDArray[np.uint64]) -> None:
        mixed = (numbers * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
        out[:] = self._pool[(mixed % np.uint64(len(self._pool))).astype(np.intp)]


def _pooled(column: ColumnInfo, random: Random) -> Plain:
    """A value for a pool: bytes of a moderate length, else as in any workload."""
    if family(column) is Family.BYTES:
        width = column.flen if column.tp == MySQLType.STRING else min(_TEXT_WIDTH, column.flen if column.flen > 0 else _TEXT_WIDTH)
        return random.randbytes(width) if column.is_binary else random.randbytes(width).hex()[:width].encode()
    return samples.filled(column, random)


def _maker(column: ColumnInfo, random: Random) -> _Maker:
    kind = family(column)
    if kind is Family.INT and column.tp in _WIDE_INTS:
        return _IntMaker(*_WIDE_INTS[MySQLType(column.tp)])
    if kind is Family.BYTES and not column.is_binary and column.flen > 0:
        return _TextMaker(min(column.flen, _TEXT_WIDTH))
    return _PoolMaker(column, random)


def load(cluster: Cluster, table: Table, count: int, *, seed: int = 0, regions: int = 1) -> int:
    """Add rows to a table and return the commit_ts of the last. The table is cut into `regions`.

    Rows without a subscription go in as blocks; others are written as transactions that the change feed shows.

    Raises SqlError when the table's rows cannot be made in bulk.
    """
    maker = RowMaker(table, seed)
    first = table.row_ids.last + 1
    table.row_ids.rebase(first + count - 1)
    table.unique = {}
    if regions > 1:
        cluster.split(keys.record_key(table.id, first + count * n // regions) for n in range(1, regions))
    start, end = keys.record_range(table.id)
    watched = any(cluster.feeds.watched(r.id) for r in cluster.regions if r.start < end and (not r.end or r.end > start))
    commit_ts = 0
    step = TRANSACTION_ROWS if watched else BLOCK_ROWS
    for at in range(first, first + count, step):
        rows = maker.make(at, min(step, first + count - at))
        commit_ts = cluster.transact(rows.mutations(), CommitMode.TWO_PHASE) if watched else _add_block(cluster, rows)
    return commit_ts


def _add_block(cluster: Cluster, rows: Rows) -> int:
    start_ts, commit_ts = cluster.oracle.next(), cluster.oracle.next()
    ends: npt.NDArray[np.int64] = np.arange(1, len(rows) + 1, dtype=np.int64) * rows.values.shape[1]
    cluster.mvcc.load(Block(start_ts, commit_ts, rows.keys.shape[1], rows.keys.tobytes(), rows.values.tobytes(), ends))
    cluster.rows_written += len(rows)
    return commit_ts
