"""Compiles a table version and the options to the program that the kernel runs besides the table's program: fields, constants, heads."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from tidemill.errors import TidemillError
from tidemill.kernels.avro import layout as A
from tidemill.kernels.avro.layout import AvroOp
from tidemill.kernels.avro.program import VALUE_ROOM, pool_members
from tidemill.kernels.rows.layout import ValueOp
from tidemill.kernels.rows.program import Pool, TableProgram
from tidemill.kernels.templates.layout import TextOp
from tidemill.protocols.avro import wire
from tidemill.protocols.debezium.values import MILLISECOND_FSP, bit_size
from tidemill.protocols.debezium_avro.encode import DebeziumAvroTable, encode_cell
from tidemill.protocols.debezium_avro.schema import Field
from tidemill.protocols.debezium_avro.values import scale_of
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.schema.codes import MySQLType

_ENVELOPE_ROOM = 256  # most bytes of heads, branches, times and the operation
_ROOM = 32
_MAX_FSP = 6

_TIMES = {
    ValueOp.DATE: TextOp.CONNECT_DAYS, ValueOp.TIMESTAMP: TextOp.CONNECT_TIMESTAMP, ValueOp.DURATION: TextOp.CONNECT_DURATION,
}  # fmt: skip
_OPS = {
    ValueOp.INT: AvroOp.INT, ValueOp.YEAR: AvroOp.INT, ValueOp.UINT: AvroOp.UINT, ValueOp.FLOAT: AvroOp.FLOAT,
    ValueOp.DOUBLE: AvroOp.DOUBLE, ValueOp.DECIMAL: AvroOp.DECIMAL, ValueOp.TEXT: AvroOp.BYTES, ValueOp.QUOTED: AvroOp.BYTES,
    ValueOp.BLOB: AvroOp.BYTES, ValueOp.JSON: AvroOp.JSON, ValueOp.VECTOR: AvroOp.VECTOR,
}  # fmt: skip
_AS_DIGITS = (ValueOp.UINT, ValueOp.DECIMAL)


def field_op(field: Field, stored: ValueOp) -> int:
    """Return how stored bytes of this kind are written to a field."""
    column = field.column
    match column.tp:
        case MySQLType.ENUM:
            return AvroOp.ENUM
        case MySQLType.SET:
            return AvroOp.SET
        case MySQLType.BIT:
            return TextOp.CONNECT_BOOLEAN if column.flen == 1 else TextOp.CONNECT_BITS
        case MySQLType.DATETIME:
            return TextOp.CONNECT_MILLISECONDS if column.decimal <= MILLISECOND_FSP else TextOp.CONNECT_MICROSECONDS
    if stored in _AS_DIGITS and field.kind.type == "string":
        return AvroOp.PLAIN_TEXT
    if stored is ValueOp.FLOAT and field.kind.type == "double":
        return A.OP_WIDE_FLOAT
    return _TIMES.get(stored) or _OPS.get(stored, AvroOp.UNKNOWN)


def _digits(field: Field, op: int) -> int:
    """Return what F_DIGITS is: digits of a decimal's or time's fraction, or the bytes of a BIT."""
    if op == AvroOp.DECIMAL:
        return scale_of(field.column)
    if op == TextOp.CONNECT_BITS:
        return bit_size(field.column)
    return min(max(field.column.decimal, 0), _MAX_FSP)


class DebeziumAvroProgram:
    """One table version for the kernel, which reads `words` with the table program's words. `reference` encodes rows that it hands back.

    The memory that the words point to lives as long as the table program.
    """

    def __init__(self, table: TableProgram, options: EncodingOptions, schema_ids: tuple[int, int]) -> None:
        self.name = table.name
        self.reference = DebeziumAvroTable(table.schema, table.table, table.info, options, schema_ids, table.json)
        self.words = np.zeros(A.AVRO_WORDS, np.int64)
        self._pool = Pool()
        self._lay_out(table, options)

    @classmethod
    def of(cls, table: TableProgram, options: EncodingOptions, schema_ids: tuple[int, int]) -> DebeziumAvroProgram:
        """Return the program, the same object for the same arguments: encoders are rebuilt whenever a table joins them."""
        made = _MADE.setdefault(table, {})
        if (options, schema_ids) not in made:
            made[options, schema_ids] = cls(table, options, schema_ids)
        return made[options, schema_ids]

    def _lay_out(self, table: TableProgram, options: EncodingOptions) -> None:
        reference, words = self.reference, self.words
        rows: list[list[int]] = []
        fixed = _ENVELOPE_ROOM
        for field in (*reference.key_fields, *reference.fields, *reference.fields):  # a row is written twice
            field_words, room = self._field(table, field)
            rows.append(field_words)
            fixed += room
        key_count, count = len(reference.key_fields), len(reference.fields)
        words[A.A_FIELDS] = table.keep(np.array(rows[: key_count + count], np.int32).reshape(-1, A.FIELD_WORDS))
        words[A.A_KEY_COUNT], words[A.A_COUNT] = key_count, count
        key_id, value_id = reference.schema_ids
        words[A.A_KEY_HEAD] = int.from_bytes(wire.head(key_id), "little") if key_count else 0
        words[A.A_VALUE_HEAD] = int.from_bytes(wire.head(value_id), "little")
        debezium = options.debezium
        words[A.A_FLAGS] = A.FLAG_ENVELOPE | A.FLAG_OLD_VALUE * debezium.output_old_value | A.FLAG_START_TS * debezium.include_start_ts
        words[A.A_ROOM] = _ROOM
        source = reference.source
        words[A.A_SOURCE], words[A.A_SOURCE_LEN] = self._pool.add(source.head)
        words[A.A_MIDDLE], words[A.A_MIDDLE_LEN] = self._pool.add(source.middle)
        words[A.A_FIXED] = fixed + len(source.head) + len(source.middle)
        words[A.A_POOL] = table.keep(self._pool.array())

    def _field(self, table: TableProgram, field: Field) -> tuple[list[int], int]:
        """Return the words of a field, whose constants come into the pool, and the most bytes that it takes besides its value."""
        column, slot = field.column, table.slots[field.column.id]
        stored = table.ops[slot]
        op = field_op(field, stored)
        try:
            absent = self._pool.add(encode_cell(field, self.reference.absent_cell(column)))
        except TidemillError:
            absent = (0, -1)  # such a row falls back to the reference, which raises the error
        members, longest = pool_members(self._pool, column.elems, op)
        branches = (0, 0, -1) if field.null_branch is None else (2 - 2 * field.null_branch, 1, 2 * field.null_branch)
        words = [slot, op, stored, _digits(field, op), *branches, *absent, members, len(column.elems)]
        return words + [0] * (A.FIELD_WORDS - len(words)), VALUE_ROOM + max(absent[1], 0) + longest


_MADE: WeakKeyDictionary[TableProgram, dict[tuple[EncodingOptions, tuple[int, int]], DebeziumAvroProgram]] = WeakKeyDictionary()
