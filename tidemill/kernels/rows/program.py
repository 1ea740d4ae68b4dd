"""Compiles a table version to a program that kernels run: words of columns, a pool of ready-made texts, and the slots of values.

Names, types, flags, escapes and defaults become bytes once, here, by the reference encoder itself. Building a program takes well below a
millisecond; no code is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, tzinfo
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tidemill.errors import TidemillError
from tidemill.kernels.rows.layout import (
    CACHE_PLACES,
    COLUMN_WORDS,
    FLAG_COMMON,
    FLAG_PARTITION,
    FLAG_SLOW,
    FOUND_PAIRS,
    HEADER_CACHED,
    PLACE_ABSENT,
    PLACE_FOUND,
    T_CACHE,
    T_COLUMN_COUNT,
    T_COLUMNS,
    T_FIXED,
    T_FLAGS,
    T_HANDLE,
    T_HANDLE_COUNT,
    T_KEY_HEAD,
    T_KEY_HEAD_LEN,
    T_KIND,
    T_MAX_ID,
    T_POOL,
    T_SLOT_OF,
    T_SLOTS,
    T_TEMPLATE,
    T_ZONE,
    TABLE_WORDS,
    ValueOp,
)
from tidemill.kernels.write.tables import tables_at
from tidemill.kernels.write.zones import zone_table
from tidemill.protocols.open.codes import STRINGS, TEXT_BLOBS
from tidemill.protocols.open.encode import OpenTable, json_value
from tidemill.tidb.rows.cells import Cell, cell
from tidemill.tidb.rows.defaults import missing_plain
from tidemill.tidb.schema.codes import HandleKind, MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.jsonstyle import JsonStyle

if TYPE_CHECKING:
    from tidemill.tidb.schema.tracking.history import TableVersion

PAD = 64
"""Readable bytes after every block that kernels copy from in wide steps."""

_equal: WeakValueDictionary[tuple[str, bytes], npt.NDArray[np.generic]] = WeakValueDictionary()
"""Arrays that programs share, by type and content."""
_MAX_COLUMN_ID = 32767
_VALUE_ROOM = 128  # most bytes of a number or time
_OPS: dict[int, ValueOp] = {
    MySQLType.YEAR: ValueOp.YEAR,
    MySQLType.FLOAT: ValueOp.FLOAT,
    MySQLType.DOUBLE: ValueOp.DOUBLE,
    MySQLType.NEWDECIMAL: ValueOp.DECIMAL,
    MySQLType.DATE: ValueOp.DATE,
    MySQLType.NEWDATE: ValueOp.DATE,
    MySQLType.DATETIME: ValueOp.DATETIME,
    MySQLType.TIMESTAMP: ValueOp.TIMESTAMP,
    MySQLType.DURATION: ValueOp.DURATION,
    MySQLType.JSON: ValueOp.JSON,
    MySQLType.VECTOR: ValueOp.VECTOR,
    **dict.fromkeys((MySQLType.ENUM, MySQLType.SET, MySQLType.BIT), ValueOp.UINT),
}
_INTEGERS = frozenset({MySQLType.TINY, MySQLType.SHORT, MySQLType.INT24, MySQLType.LONG, MySQLType.LONGLONG})
_UNQUOTED = frozenset({ValueOp.INT, ValueOp.UINT, ValueOp.YEAR, ValueOp.FLOAT, ValueOp.DOUBLE})


def value_op(column: ColumnInfo) -> ValueOp:
    """Return the form of a column's stored bytes."""
    if column.tp in _INTEGERS:
        return ValueOp.UINT if column.unsigned else ValueOp.INT
    if column.tp in STRINGS:
        return ValueOp.QUOTED if column.is_binary else ValueOp.TEXT
    if column.tp in TEXT_BLOBS:
        return ValueOp.BLOB
    return _OPS.get(column.tp, ValueOp.UNKNOWN)


class Pool:
    """Constants of a program, each kept once."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._at: dict[bytes, int] = {}

    def add(self, text: bytes) -> tuple[int, int]:
        """Add a constant. Returns its (offset, length)."""
        if text not in self._at:
            self._at[text] = len(self._bytes)
            self._bytes += text
        return self._at[text], len(text)

    def array(self) -> npt.NDArray[np.uint8]:
        """Return the bytes, padded."""
        return padded(bytes(self._bytes))


def padded(data: bytes) -> npt.NDArray[np.uint8]:
    """Return a copy that can be read past its end."""
    return np.frombuffer(data + bytes(PAD), np.uint8).copy()


def table_words(programs: Sequence[TableProgram]) -> npt.NDArray[np.int64]:
    """Return the words of several programs in one array, which kernels index by ROW.table."""
    return np.array([program.words for program in programs] or [np.zeros(TABLE_WORDS, np.int64)], np.int64)


def tables_of(programs: Sequence[TableProgram]) -> int:
    """Return the address of the constant tables that print documents as these programs do."""
    styles = {program.json for program in programs}
    if len(styles) > 1:
        raise ValueError(f"the programs of one encoder print JSON documents in {len(styles)} styles")
    return tables_at(*styles)


class TableProgram:
    """One version of one table, compiled for the encode kernels.

    `open` is the reference for its rows; `slots` numbers its output columns in table order. A program holds the place map of the last row's
    header, so only encoders of one thread may share it.
    """

    def __init__(self, schema: str, table: str, info: TableInfo, zone: tzinfo = UTC, json: JsonStyle = JsonStyle.GO) -> None:
        self.schema, self.table, self.info, self.zone, self.json = schema, table, info, zone, json
        self.open = OpenTable(schema, table, info, zone, json=json)
        self.columns = info.output_columns
        self.ops = [value_op(column) for column in self.columns]
        self.slots = {column.id: slot for slot, column in enumerate(self.columns)}
        self._blocks: list[npt.NDArray[np.generic]] = []  # keeps the memory alive that the words point to
        self.words = np.zeros(TABLE_WORDS, np.int64)
        self._lay_out()

    @classmethod
    def of(cls, version: TableVersion, zone: tzinfo = UTC, json: JsonStyle = JsonStyle.GO) -> TableProgram:
        """Return the program of a table version."""
        return cls(version.schema, version.table, version.info, zone, json)

    @cached_property
    def name(self) -> str:
        """`schema.table`, for messages."""
        return f"{self.schema}.{self.table}"

    @cached_property
    def slot_of_name(self) -> dict[str, int]:
        """The slot of each output column, by its name."""
        return {column.name: slot for slot, column in enumerate(self.columns)}

    def absent_cell(self, column: ColumnInfo) -> Cell:
        """Return the cell of a column that a row does not have. Raises MalformedRow when its origin default cannot be read."""
        plain = missing_plain(column)
        return None if plain is None else cell(column, plain, self.zone, self.json)

    def keep(self, block: npt.NDArray[np.generic]) -> int:
        """Keep an array for as long as the program; returns its address."""
        self._blocks.append(block)
        return block.ctypes.data

    def keep_equal(self, block: npt.NDArray[np.generic]) -> int:
        """Like `keep`, for an array that nobody changes: tables of the same columns share it, so that thousands fit the CPU's caches."""
        return self.keep(_equal.setdefault((block.dtype.str, block.tobytes()), block))

    def _lay_out(self) -> None:
        words, info = self.words, self.info
        common = info.handle_kind is HandleKind.COMMON and info.primary_index is not None
        slow = max(self.slots, default=0) > _MAX_COLUMN_ID or len(self.slots) > FOUND_PAIRS // 2
        words[T_FLAGS] = (FLAG_SLOW if slow else 0) | (FLAG_COMMON if common else 0) | (FLAG_PARTITION if info.partition else 0)
        if slow:
            return
        zone = zone_table(self.zone)
        words[T_ZONE] = 0 if zone is None else self.keep(zone)
        self._lay_out_slots(self._lay_out_handle() if common else {})
        self._lay_out_open()

    def _lay_out_handle(self) -> dict[int, int]:
        """Lay out the columns of a common handle. Returns the index of each column whose value the key holds, by column id."""
        index = self.info.primary_index
        assert index is not None, "a common handle is a primary key"
        columns = self.info.index_columns(index)
        self.words[T_HANDLE] = self.keep_equal(np.array([value_op(c) for c in columns], np.uint8))
        self.words[T_HANDLE_COUNT] = len(columns)
        return {c.id: i for i, (part, c) in enumerate(zip(index.columns, columns, strict=True)) if part.length < 0}

    def _lay_out_slots(self, in_key: dict[int, int]) -> None:
        words = self.words
        max_id = max(self.slots, default=0)
        slot_of = np.full(max(max_id, 255) + 1, len(self.slots), np.uint16)
        template = np.full(len(self.slots) + 1 + PAD // 4, PLACE_ABSENT, np.int32)
        for column, slot in self.slots.items():
            slot_of[column] = slot
            if column in in_key:
                template[slot] = PLACE_FOUND - in_key[column]
        if self.info.pk_column is not None and self.info.pk_column.id in self.slots:
            template[self.slots[self.info.pk_column.id]] = PLACE_FOUND
        words[T_SLOT_OF], words[T_MAX_ID], words[T_SLOTS] = self.keep_equal(slot_of), len(slot_of) - 1, len(self.slots)
        words[T_TEMPLATE] = self.keep_equal(template)
        words[T_KIND] = self.keep_equal(np.array([*self.ops, *[0] * PAD], np.uint8))
        cache = np.zeros(CACHE_PLACES + 4 * len(self.slots) + HEADER_CACHED + 3 * PAD, np.uint8)
        cache[:8] = 255  # no header is remembered
        words[T_CACHE] = self.keep(cache)

    def _lay_out_open(self) -> None:
        """Lay out the program of the Open Protocol: columns sorted by the bytes of their names."""
        order = self.open.in_name_order
        if not order:
            self.words[T_FLAGS] |= FLAG_SLOW
            return
        words = self.words
        words[T_COLUMNS], words[T_COLUMN_COUNT], words[T_POOL], words[T_FIXED] = self.open_program(order)
        head = b"," + self.open.key_names
        words[T_KEY_HEAD], words[T_KEY_HEAD_LEN] = self.keep(padded(head)), len(head)

    def open_program(self, columns: Sequence[ColumnInfo]) -> tuple[int, int, int, int]:
        """Build a program that writes these columns. Returns its address, their number, its pool's address, most bytes besides values."""
        pool, rows, fixed = Pool(), [], 64
        for i, column in enumerate(columns):
            op = self.ops[self.slots[column.id]]
            quote = b"" if op in _UNQUOTED else b'"'
            head = (b"," if i else b"{") + self.open.column_head(column)
            end = b"}}" if i == len(columns) - 1 else b"}"
            try:
                absent = pool.add(head + json_value(column, self.absent_cell(column)) + end)
            except TidemillError:
                absent = (0, -1)  # such a row falls back to the reference, which raises the error
            fsp = min(max(column.decimal, 0), 6)
            texts = (*pool.add(head + quote), *pool.add(quote + end), *pool.add(head + b"null" + end), *absent)
            rows.append([self.slots[column.id], op, fsp, *texts, 0, 0, 0, 0, 0])
            fixed += len(head) + len(end) + _VALUE_ROOM + max(absent[1], 0)
        program = np.array(rows, np.int32).reshape(-1, COLUMN_WORDS)
        return self.keep_equal(program), len(rows), self.keep_equal(pool.array()), fixed
