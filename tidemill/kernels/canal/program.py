"""Canal programs: what a table version's entries consist of, as words that the kernel runs.

Names, types and defaults become protobuf here, once, made by the reference encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidemill.kernels.canal import layout as x
from tidemill.kernels.rows.layout import ValueOp
from tidemill.kernels.rows.program import Pool, TableProgram
from tidemill.kernels.templates.program import absent_text
from tidemill.protocols.canal.codes import EventType
from tidemill.protocols.canal.encode import CanalTable, header
from tidemill.protocols.canal_json.encode import promotion
from tidemill.tidb.codec import encode_uvarint
from tidemill.tidb.rows import Cell
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.wire import canal_entry_pb2 as pb

_VALUE_ROOM = 512  # most bytes of a number or time: a double without exponent has up to 330
_ROOM, _VECTOR_ROOM = 8, 16
"""Most bytes that a stored byte becomes: a character in a document has 7 before its escapes are taken off; 4 bytes of a vector up to 48."""
_WIDE_ROOM = 32
"""The same where two values are compared by their texts, which are written 16 bytes a stored byte apart."""

_KINDS = ((x.ON_DELETE, EventType.DELETE, 2), (x.ON_UPDATE, EventType.UPDATE, 3), (x.ON_INSERT, EventType.INSERT, 1))
"""Kind of row, its event type, and the images that it has (bit 1 << image)."""


def value_op(program: TableProgram, column: ColumnInfo) -> int:
    """How a column's values are written."""
    stored = program.ops[program.slots[column.id]]
    if stored is ValueOp.BLOB or stored is ValueOp.TEXT or stored is ValueOp.QUOTED:
        return x.TextOp.LATIN if column.is_binary else x.TextOp.UTF8
    return stored


def sized(data: bytes) -> bytes:
    """Bytes with their length ahead."""
    return encode_uvarint(len(data)) + data


@dataclass(frozen=True, slots=True)
class ColumnBytes:
    """How a column stands in an image. `make` is the reference: a cell → the column."""

    column: ColumnInfo
    make: Callable[[Cell], pb.Column]
    power: int = 0  # numbers from 2 to this power on have another prefix; 0: none
    empty: bool = False  # whether empty values are written
    members: tuple[bytes, ...] = ()  # the elements of an ENUM or SET that are written by name

    def parts(self, cell: Cell) -> tuple[bytes, bytes]:
        """What stands before and behind the length of a value such as this, and the value."""
        whole = self.make(cell)
        behind = pb.Column(mysql_type=whole.mysql_type)
        whole.ClearField("value")
        whole.ClearField("mysql_type")
        return whole.SerializeToString() + bytes([x.TAG_VALUE]), behind.SerializeToString()

    def all(self, cell: Cell) -> bytes:
        """The column with this value, length included."""
        return sized(self.make(cell).SerializeToString())


class ColumnLists:
    """The columns of a table's images, as words."""

    def __init__(self, program: TableProgram, pool: Pool, *, four_digits: bool = False) -> None:
        self.program, self.pool, self._four_digits = program, pool, four_digits
        self.fixed, self.room = 0, _ROOM
        self._rows: list[list[int]] = []

    def add(self, columns: Sequence[ColumnBytes], *, compared: bool = False) -> int:
        """Add an image's columns; returns the place of the first. `compared`: with another image."""
        at = len(self._rows)
        fixed = 0
        for column in columns:
            self._rows.append(self._row(column))
            op = self._rows[-1][x.C_STORED]
            wide = compared and op in (ValueOp.JSON, ValueOp.VECTOR)
            self.room = max(self.room, _WIDE_ROOM if wide else _VECTOR_ROOM if op == ValueOp.VECTOR else _ROOM)
            lengths = (x.C_PREFIX_LEN, x.C_SUFFIX_LEN, x.C_NULL_LEN, x.C_ABSENT_LEN, x.C_HIGHER_LEN)
            fixed += sum(max(self._rows[-1][length], 0) for length in lengths) + _VALUE_ROOM
            fixed += sum(len(member) + 1 for member in column.members)
        self.fixed = max(self.fixed, fixed)
        return at

    def array(self) -> npt.NDArray[np.int32]:
        """The words."""
        return np.array(self._rows or [[0] * x.COLUMN_WORDS], np.int32).reshape(-1, x.COLUMN_WORDS)

    def _row(self, made: ColumnBytes) -> list[int]:
        column, pool = made.column, self.pool
        slot = self.program.slots[column.id]
        like: Cell = 0 if made.power else b""  # a cell that is not NULL; its value does not matter
        prefix, suffix = made.parts(like)
        higher = made.parts(1 << made.power)[0] if made.power else prefix
        text = absent_text(self.program, column, made.all)
        absent = (0, -1) if text is None else pool.add(text)
        fsp = min(max(column.decimal, 0), 6)
        parts = (*pool.add(prefix), *pool.add(suffix), *pool.add(made.all(None)), *absent)
        op = value_op(self.program, column)
        if op == ValueOp.YEAR and self._four_digits:
            op = x.TextOp.YEAR4
        behind = pool.add(higher)
        if made.members:
            is_set = column.tp == MySQLType.SET
            op = x.TextOp.SET if is_set else x.TextOp.ENUM
            behind = self._members((*made.members, b",") if is_set else made.members), len(made.members)
        return [slot, op, fsp, *parts, self.program.ops[slot], *behind, made.power, int(made.empty)]

    def _members(self, texts: Sequence[bytes]) -> int:
        """Where the places of the elements' texts lie in the pool."""
        return self.pool.add(np.array([self.pool.add(text) for text in texts], np.int32).tobytes())[0]


class CanalProgram:
    """The program of one table version. `words` are read by the kernel; the object keeps alive what they point to."""

    def __init__(self, program: TableProgram, table: CanalTable) -> None:
        self.words = np.zeros(x.TEXT_WORDS, np.int64)
        pool = Pool()
        lists = ColumnLists(program, pool)
        head, _ = _split_header(header(EventType.INSERT, 1 << 18, table.schema, table.table))
        for kind, event, images in _KINDS:
            tail = _tail(table, event)
            change = pb.RowChange(event_type=event, is_ddl=False).SerializeToString()
            columns = table.listed(event)
            at = lists.add([_bytes(table, column, updated=event is not EventType.DELETE) for column in columns])
            words = (images, at, at, len(columns), *pool.add(tail), *pool.add(change))
            self.words[8 * kind : 8 * kind + 8] = words
            self.words[x.X_FIXED] = max(self.words[x.X_FIXED], len(head) + len(tail) + len(change) + 256)
        self.words[x.X_HEAD : x.X_HEAD_LEN + 1] = pool.add(head)
        self.words[x.X_FIXED] += lists.fixed
        self.words[x.X_ROOM] = lists.room
        self._blocks = (lists.array(), pool.array())
        self.words[x.X_COLUMNS], self.words[x.X_POOL] = (block.ctypes.data for block in self._blocks)


def _bytes(table: CanalTable, column: ColumnInfo, *, updated: bool) -> ColumnBytes:
    higher = promotion(column)
    power = 0 if higher is None else higher[0].bit_length() - 1
    return ColumnBytes(column, lambda cell: table.column(column, cell, updated=updated), power)


def _split_header(made: pb.Header) -> tuple[bytes, bytes]:
    """What stands before and behind a header's executeTime."""
    behind = pb.Header()
    behind.CopyFrom(made)
    for name in ("version", "logfile_name", "logfile_offset", "server_id", "serveren_code", "execute_time"):
        behind.ClearField(name)
    tail = behind.SerializeToString()
    made.ClearField("execute_time")
    whole = made.SerializeToString()
    return whole[: len(whole) - len(tail)], tail


def _tail(table: CanalTable, event: EventType) -> bytes:
    made = header(event, 0, table.schema, table.table)
    made.props.append(pb.Pair(key=b"rowsCount", value=b"1"))
    return _split_header(made)[1]
