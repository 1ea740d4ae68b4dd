"""The rows of transactions → RAW_CHANGE batches, by the kernels of `tidemill.kernels.binlog`. Pure.

Reference: `tidemill.binlog.records`, which also reads what the kernels leave to it.
"""

from __future__ import annotations

import ctypes
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import overload

import numpy as np
import pyarrow as pa

from tidemill.binlog.blocks import Array, Binlogs, Room, plain_memory
from tidemill.binlog.records import ROW_ID, Record
from tidemill.changelog.log_format import MAX_BATCH_ROWS
from tidemill.changelog.spread import RECORD_PREFIX, Layout, home_of
from tidemill.events import RAW_CHANGE, Op
from tidemill.kernels.address import address
from tidemill.kernels.binlog import layout as L
from tidemill.kernels.binlog.gather import G_WORDS, gather
from tidemill.kernels.binlog.records import records
from tidemill.tidb.rows.cells import Family, family
from tidemill.tidb.schema.codes import HandleKind
from tidemill.tidb.schema.model import TableInfo

MAX_BATCH_BYTES = 256 << 20
"""Bytes of keys and values of a batch, at most; one row may be larger."""
LARGE_BYTES, PIECE_BYTES, PIECE_ROWS = 64 << 20, 16 << 20, 1 << 17
"""Bytes of a binlog above which its changes are not all in memory at once, and what each piece of them has at most."""
FIRST_STEPS, FIRST_KEYS, KEPT_KEYS = 8192, 1 << 20, 64 << 20
"""Room for changes, and for bytes of keys: at first, and as much as is kept after a large transaction."""

ANY_VERSION = (1 << 63) - 1
"""A table is read alike, whatever schema version a transaction has."""

Changes = tuple[tuple[int, pa.RecordBatch], ...]
"""Partitions of the log, and changes for them, in commit order."""


@dataclass(frozen=True, slots=True)
class KnownTable:
    """How the kernel reads a table: `TABLE` and `PART` of its layout."""

    table_id: int
    physical_id: int
    kind: int
    column: int = 0
    parts: tuple[tuple[int, bool], ...] = ()
    version: int = ANY_VERSION

    @classmethod
    def of(cls, table_id: int, info: TableInfo, version: int = ANY_VERSION) -> KnownTable:
        """Return how the rows of a table are read, of transactions with a schema version up to this."""
        index, physical = info.primary_index, info.physical_ids[0]
        if info.handle_kind is not HandleKind.COMMON or index is None:
            return cls(table_id, physical, L.T_NUMBER, info.pk_column.id if info.pk_column is not None else ROW_ID, (), version)
        parts = tuple((column.id, family(column) is Family.DURATION) for column in info.index_columns(index))
        return cls(table_id, physical, L.T_COMMON if len(parts) <= L.MOST_PARTS else L.T_TWIN, 0, parts, version)

    @classmethod
    def left_out(cls, table_id: int) -> KnownTable:
        """A table whose rows are not kept."""
        return cls(table_id, 0, L.T_LEFT_OUT)

    @classmethod
    def row_by_row(cls, table_id: int) -> KnownTable:
        """A table whose transactions are left to the reference."""
        return cls(table_id, 0, L.T_TWIN)


class KnownTables:
    """The tables whose rows can be read."""

    def __init__(self) -> None:
        self._tables: dict[int, KnownTable] = {}
        self._lay_out()

    def forget(self) -> None:
        """Forget all: a DDL changed some of them."""
        self._tables.clear()
        self._lay_out()

    def add(self, table: KnownTable) -> None:
        """Add a table."""
        self._tables[table.table_id] = table
        self._lay_out()

    def _lay_out(self) -> None:
        """Write the arrays that the kernel reads."""
        self.ids = sorted(self._tables)
        ordered = [self._tables[table_id] for table_id in self.ids]
        self.parts: Array = np.array([part for one in ordered for part in one.parts], L.PART)
        self.table: Array = np.zeros(len(ordered), L.TABLE)
        first = 0
        for row, one in zip(self.table, ordered, strict=True):
            row["id"], row["physical"], row["column"], row["kind"] = one.table_id, one.physical_id, one.column, one.kind
            row["first"], row["parts"], row["version"] = first, len(one.parts), one.version
            first += len(one.parts)


class Pieces(Sequence[pa.RecordBatch]):
    """The changes of one large transaction, in RAW_CHANGE batches that are made each time they are asked for: a reader that goes through
    them has one in memory. It keeps the message that they are of. `nbytes`: of keys and values; `commit_ts`: of all of them."""

    def __init__(self, steps: Array, order: Array, owners: tuple[object, ...]) -> None:
        self._steps, self._order, self._kept = steps, order, owners
        self._ends, self.table_ids, self.nbytes = [0], set[int](), 0
        for piece in _cut(steps, order, PIECE_ROWS, PIECE_BYTES):
            self._ends.append(self._ends[-1] + len(piece))
            self.table_ids |= set(np.unique(steps["physical"][piece]).tolist())
            self.nbytes += int(_bytes_of(steps, piece).sum())
        self.num_rows, self.commit_ts = len(order), int(steps["commit_ts"][order[0]])

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, at: int) -> pa.RecordBatch: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[pa.RecordBatch]: ...

    def __getitem__(self, at: int | slice) -> pa.RecordBatch | Sequence[pa.RecordBatch]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        begin, end = self._ends[:-1][at], self._ends[1:][at]
        return _gathered(self._steps, self._order[begin:end])

    def by_partition(self, tables: KnownTables, layout: Layout, room: Room) -> tuple[tuple[int, Pieces], ...]:
        """Return the changes for each partition. Raises DiskLow."""
        homes = room(4 * self.num_rows).view(np.int32)
        counts: Counter[int] = Counter()
        for begin, end in itertools.pairwise(self._ends):
            homes[begin:end] = found = _homes(self._steps, self._order[begin:end], tables, layout)
            counts.update(dict(zip(*(one.tolist() for one in np.unique(found, return_counts=True)), strict=True)))
        if len(counts) == 1:
            return ((next(iter(counts)), self),)
        return tuple((partition, self._some(homes, partition, room(8 * counts[partition]).view(np.int64))) for partition in sorted(counts))

    def _some(self, homes: Array, partition: int, order: Array) -> Pieces:
        """Return the changes with this home. `order`: room for their places."""
        at = 0
        for begin, end in itertools.pairwise(self._ends):
            found = self._order[begin:end][homes[begin:end] == partition]
            order[at : at + len(found)] = found
            at += len(found)
        return Pieces(self._steps, order, self._kept)


class Stop(Enum):
    """Why not all transactions were read."""

    UNKNOWN_TABLE = L.UNKNOWN_TABLE
    REFERENCE = L.TWIN
    NEWER_SCHEMA = L.NEWER_SCHEMA


@dataclass(frozen=True, slots=True)
class Batched:
    """What was read: transactions before `end`, and why no more of them were; None: all were. `table_id`: of UNKNOWN_TABLE and
    NEWER_SCHEMA, which; `version`: the schema version of the transaction at `end`. `large`: what is not in `changes` of the last one."""

    changes: Changes
    end: int
    stop: Stop | None
    table_id: int = 0
    version: int = 0
    large: Pieces | None = None


class _Steps:
    """Memory that the kernel writes to: changes, their places, and bytes of keys."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._make(FIRST_STEPS, FIRST_KEYS)

    def _make(self, steps: int, keys: int) -> None:
        room = self._room
        self.steps, self.order, self.keys = room(L.S_SIZE * steps).view(L.STEP), room(16 * steps).view(np.int64), room(keys)

    def grow(self) -> None:
        """Double it. What it has is lost. Raises DiskLow."""
        steps, keys = len(self.steps), len(self.keys)
        self._make(0, 0)  # given back before there is more
        self._make(max(FIRST_STEPS, 2 * steps), max(FIRST_KEYS, 2 * keys))


class Batcher:
    """Reads transactions; uses its memory again. `in_order`: every change, in the order of the statements, and not what a transaction left
    of each record, by its key. `in_pieces`: a large transaction ends what is read, and comes in pieces. `room`: memory for one."""

    def __init__(self, *, in_order: bool = False, in_pieces: bool = False, room: Room = plain_memory) -> None:
        self._new, self._in_pieces = room, in_pieces
        self._room = _Steps(room)
        self._seen: Array = np.zeros(2 * L.SEEN, np.int64)
        self._words: Array = np.zeros(L.W_WORDS, np.int64)
        self._words[L.W_IN_ORDER] = in_order

    def read(self, binlogs: Binlogs, begin: int, tables: KnownTables, layout: Layout) -> Batched:
        """Read transactions from place `begin` on; none of them may be a DDL."""
        words, changes = self._words, list[tuple[int, pa.RecordBatch]]()
        words[L.W_HEAD] = begin
        while True:
            first = int(words[L.W_HEAD])
            code = self._records(binlogs, tables)
            end = int(words[L.W_HEAD])
            if self._is_large(binlogs, first, end):
                return Batched(tuple(changes), end, None, large=self._pieces(binlogs.owners))
            changes += self._changes(tables, layout)
            if code != L.GROW:
                break
            if not words[L.W_STEPS]:
                self._room.grow()
        if len(self._room.keys) > KEPT_KEYS:
            self._room = _Steps(self._new)
        return Batched(tuple(changes), end, None if code == L.DONE else Stop(code), int(words[L.W_TABLE]), int(words[L.W_VERSION]))

    def _records(self, binlogs: Binlogs, tables: KnownTables) -> int:
        words, room = self._words, self._room
        words[[L.W_STEPS, L.W_KEYS, L.W_ORDER]] = 0
        return int(
            records(
                address(binlogs.heads), len(binlogs), address(tables.table), len(tables.table), address(tables.parts), address(self._seen),
                address(room.steps), len(room.steps), address(room.keys), len(room.keys), address(room.order), address(words),
            )
        )  # fmt: skip

    def _is_large(self, binlogs: Binlogs, first: int, end: int) -> bool:
        """Whether one transaction was read, which is a large one. The merge gives these out alone."""
        return self._in_pieces and end == first + 1 and self._words[L.W_ORDER] > 0 and binlogs.heads["message_len"][first] > LARGE_BYTES

    def _pieces(self, owners: tuple[object, ...]) -> Pieces:
        """Return the changes of what was read. They need the room, so the next transactions get another one."""
        room, self._room = self._room, _Steps(self._new)
        return Pieces(room.steps, room.order[: self._words[L.W_ORDER]], (room, *owners))

    def _changes(self, tables: KnownTables, layout: Layout) -> Iterator[tuple[int, pa.RecordBatch]]:
        order = self._room.order[: self._words[L.W_ORDER]]
        if not len(order):
            return
        homes = _homes(self._room.steps, order, tables, layout)
        for partition in np.unique(homes).tolist():
            for part in _cut(self._room.steps, order[homes == partition], MAX_BATCH_ROWS, MAX_BATCH_BYTES):
                yield partition, _gathered(self._room.steps, part)


def _homes(steps: Array, order: Array, tables: KnownTables, layout: Layout) -> Array:
    """Return the partition of each change."""
    places = steps["table"][order]
    homes: Array = np.array([home_of(table_id, layout) for table_id in tables.ids])[places]
    for split in layout.split_tables:
        if split.table_id in tables.ids:
            for i in np.flatnonzero(places == tables.ids.index(split.table_id)).tolist():
                step = steps[order[i]]
                handle = ctypes.string_at(int(step["key"]) + RECORD_PREFIX, int(step["key_len"]) - RECORD_PREFIX)
                homes[i] = split.partition_of(handle)
    return homes


def _cut(steps: Array, order: Array, most_rows: int, most_bytes: int) -> Iterator[Array]:
    """Cut changes into batches of so many rows and bytes of keys and values at most; one row may be larger."""
    at = 0
    while at < len(order):
        some = order[at : at + most_rows]
        count = max(1, int(np.searchsorted(np.cumsum(_bytes_of(steps, some)), most_bytes, "right")))
        yield some[:count]
        at += count


def _bytes_of(steps: Array, order: Array) -> Array:
    """Return the bytes of each change's key and values."""
    sizes: Array = np.zeros(len(order), np.int64)
    for name in ("key_len", "new_len", "old_len"):
        sizes += np.maximum(steps[name][order], 0)
    return sizes


def _gathered(steps: Array, order: Array) -> pa.RecordBatch:
    """Return the changes at some places as a batch."""
    count, order = len(order), np.ascontiguousarray(order)
    lengths = [steps[name][order].astype(np.int64) for name in ("key_len", "new_len", "old_len")]
    numbers: list[Array] = [np.empty(count, kind) for kind in (np.int64, np.uint8, np.int64, np.int64)]
    offsets: list[Array] = [np.zeros(count + 1, np.int32) for _ in lengths]
    data: list[Array] = [np.empty(max(1, int(np.maximum(one, 0).sum())), np.uint8) for one in lengths]
    bits: list[Array] = [np.zeros(count // 8 + 1, np.uint8) for _ in lengths]
    words = np.array(
        [
            *map(address, numbers), address(offsets[0]), address(data[0]), address(offsets[1]), address(data[1]), address(bits[1]),
            address(offsets[2]), address(data[2]), address(bits[2]),
        ]
    )  # fmt: skip
    assert len(words) == G_WORDS
    gather(address(steps), address(order), count, address(words))
    columns = [
        pa.Array.from_buffers(one.type, count, [None, pa.py_buffer(values)], 0) for one, values in zip(RAW_CHANGE, numbers, strict=False)
    ]
    for i, length in enumerate(lengths):
        missing = int((length < 0).sum())
        there = pa.py_buffer(bits[i]) if missing else None
        columns.append(pa.Array.from_buffers(pa.binary(), count, [there, pa.py_buffer(offsets[i]), pa.py_buffer(data[i])], missing))
    return pa.RecordBatch.from_arrays(columns, schema=RAW_CHANGE)


def batched(start_ts: int, commit_ts: int, tables: Mapping[KnownTable, Iterable[Record]], layout: Layout) -> Changes:
    """Return the changes of one transaction as the reference read them: the records of each table are sorted by key."""
    found: dict[int, list[tuple[int, Record]]] = {}
    for table in sorted(tables, key=lambda one: one.physical_id):
        split, home = layout.split_of(table.table_id), home_of(table.table_id, layout)
        for record in tables[table]:
            partition = home if split is None else split.partition_of(record.key[RECORD_PREFIX:])
            found.setdefault(partition, []).append((table.physical_id, record))
    return tuple((partition, batch) for partition in sorted(found) for batch in _batches(start_ts, commit_ts, found[partition]))


def _batches(start_ts: int, commit_ts: int, rows: Sequence[tuple[int, Record]]) -> Iterator[pa.RecordBatch]:
    at = size = 0
    for end, (_, record) in enumerate(rows):
        size += len(record.key) + len(record.new or b"") + len(record.old or b"")
        if end > at and (size > MAX_BATCH_BYTES or end - at == MAX_BATCH_ROWS):
            yield _batch(start_ts, commit_ts, rows[at:end])
            at, size = end, 0
    yield _batch(start_ts, commit_ts, rows[at:])


def _batch(start_ts: int, commit_ts: int, rows: Sequence[tuple[int, Record]]) -> pa.RecordBatch:
    columns = {
        "table_id": [physical for physical, _ in rows],
        "op": [int(Op.DELETE if record.new is None else Op.PUT) for _, record in rows],
        "start_ts": [start_ts] * len(rows),
        "commit_ts": [commit_ts] * len(rows),
        "key": [record.key for _, record in rows],
        "value": [record.new for _, record in rows],
        "old_value": [record.old for _, record in rows],
    }
    return pa.record_batch(columns, schema=RAW_CHANGE)
