"""Compiles a table version and Avro's options to the program that the kernel runs besides the table's program: fields, constants, heads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from weakref import WeakKeyDictionary

import numpy as np

from tidemill.errors import TidemillError
from tidemill.kernels.avro.layout import (
    A_COUNT,
    A_FIELDS,
    A_FIXED,
    A_FLAGS,
    A_KEY_COUNT,
    A_KEY_HEAD,
    A_POOL,
    A_ROOM,
    A_VALUE_HEAD,
    AVRO_WORDS,
    FIELD_WORDS,
    FLAG_CHECKSUM,
    FLAG_DELETED,
    FLAG_EXTENSION,
    AvroOp,
)
from tidemill.kernels.rows.layout import ValueOp
from tidemill.kernels.rows.program import Pool, TableProgram
from tidemill.protocols.avro import wire
from tidemill.protocols.avro.encode import AvroTable, encode_cell
from tidemill.protocols.avro.schema import Field, Form
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.rows.cells import cell
from tidemill.tidb.rows.checksum import summed_bytes
from tidemill.tidb.rows.defaults import missing_plain

VALUE_ROOM = 192  # most bytes of a number or time, and the bytes that a writer may touch after it
_EXTENSION_ROOM = 128
_ROOM = 16

_STORED_BYTES = (ValueOp.TEXT, ValueOp.QUOTED, ValueOp.BLOB)
_OPS = {
    Form.FLOAT: AvroOp.FLOAT,
    Form.DOUBLE: AvroOp.DOUBLE,
    Form.BYTES: AvroOp.BYTES,
    Form.BIT: AvroOp.BIT,
    Form.DECIMAL: AvroOp.DECIMAL,
    Form.ENUM: AvroOp.ENUM,
    Form.SET: AvroOp.SET,
}


def avro_op(field: Field, stored: ValueOp) -> AvroOp:
    """Return how stored bytes of this kind are written to a field."""
    if stored is ValueOp.UNKNOWN:
        return AvroOp.UNKNOWN
    if field.form is Form.INTEGER:
        return AvroOp.UINT if stored is ValueOp.UINT else AvroOp.INT
    if field.form is not Form.TEXT:
        return _OPS[field.form]
    if stored in _STORED_BYTES:
        return AvroOp.BYTES
    if stored is ValueOp.JSON:
        return AvroOp.JSON
    return AvroOp.VECTOR if stored is ValueOp.VECTOR else AvroOp.PLAIN_TEXT


def pool_members(pool: Pool, elements: Sequence[str], op: int) -> tuple[int, int]:
    """Put the elements of an ENUM or SET into the pool. Returns the offset of their table, and the most bytes of a value."""
    elems = [elem.encode("utf-8", "surrogateescape") for elem in elements]
    if op == AvroOp.ENUM:
        texts = [wire.sized(elem) for elem in (b"", *elems)]
        longest = max(map(len, texts))
    elif op == AvroOp.SET:
        texts, longest = elems, sum(len(elem) + 1 for elem in elems)
    else:
        return 0, 0
    at, pairs = 8 * len(texts), []
    for text in texts:
        pairs += [at, len(text)]
        at += len(text)
    return pool.add(np.array(pairs, np.int32).tobytes() + b"".join(texts))[0], longest


class AvroProgram:
    """One table version for the Avro kernel. `avro` is the reference for its rows; the kernel reads `words` with the table program's words.

    The memory that the words point to lives as long as the table program.
    """

    def __init__(self, table: TableProgram, options: EncodingOptions, schema_ids: tuple[int, int]) -> None:
        self.name = table.name
        self.avro = AvroTable(table.schema, table.table, table.info, table.zone, options, schema_ids, table.json)
        self.words = np.zeros(AVRO_WORDS, np.int64)
        self._pool = Pool()
        self._fixed = _EXTENSION_ROOM
        self._lay_out(table, options)

    @classmethod
    def of(cls, table: TableProgram, options: EncodingOptions, schema_ids: tuple[int, int]) -> AvroProgram:
        """Return the program, the same object for the same arguments: encoders are rebuilt whenever a table joins them."""
        made = _MADE.setdefault(table, {})
        if (options, schema_ids) not in made:
            made[options, schema_ids] = cls(table, options, schema_ids)
        return made[options, schema_ids]

    def _lay_out(self, table: TableProgram, options: EncodingOptions) -> None:
        key, value = self.avro.key_fields, self.avro.value_fields
        rows = [self._field(table, field) for field in (*key, *value)]
        keep, words = table.keep, self.words
        words[A_FIELDS] = keep(np.array(rows, np.int32).reshape(-1, FIELD_WORDS))
        words[A_KEY_COUNT], words[A_COUNT], words[A_ROOM] = len(key), len(value), _ROOM
        words[A_POOL], words[A_FIXED] = keep(self._pool.array()), self._fixed
        key_id, value_id = self.avro.schema_ids
        words[A_KEY_HEAD] = int.from_bytes(wire.head(key_id), "little") if key else 0
        words[A_VALUE_HEAD] = int.from_bytes(wire.head(value_id), "little")
        if options.enable_tidb_extension:
            words[A_FLAGS] = FLAG_EXTENSION | (FLAG_CHECKSUM if options.row_checksum else 0)
        if options.avro.enable_watermark:
            words[A_FLAGS] |= FLAG_DELETED

    def _field(self, table: TableProgram, field: Field) -> list[int]:
        """Return the words of a field, and put its constants into the pool."""
        column, slot = field.column, table.slots[field.column.id]
        stored = table.ops[slot]
        op = avro_op(field, stored)
        try:
            absent = self._pool.add(encode_cell(field, table.absent_cell(column)))
            plain = missing_plain(column)
            absent_sum = self._pool.add(summed_bytes(column, None if plain is None else cell(column, plain, UTC, table.json)))
        except TidemillError:
            absent, absent_sum = (0, -1), (0, 0)  # such a row falls back to the reference, which raises the error
        members, longest = pool_members(self._pool, column.elems, op)
        self._fixed += VALUE_ROOM + max(absent[1], 0) + longest
        digits = field.scale if op is AvroOp.DECIMAL else min(max(column.decimal, 0), 6)
        branches = (0, 0, -1) if field.null_branch is None else (2 - 2 * field.null_branch, 1, 2 * field.null_branch)
        words = [slot, op, stored, digits, *branches, *absent, members, len(column.elems), *absent_sum]
        return words + [0] * (FIELD_WORDS - len(words))


_MADE: WeakKeyDictionary[TableProgram, dict[tuple[EncodingOptions, tuple[int, int]], AvroProgram]] = WeakKeyDictionary()
