"""ROW records of any tables → JSON objects before and after each change: programs, and the builder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tidemill.errors import TidemillError
from tidemill.kernels.columns import layout as C
from tidemill.kernels.columns.builder import Builder
from tidemill.kernels.columns.objects import object_rows
from tidemill.kernels.columns.program import members_of
from tidemill.kernels.rows.layout import ValueOp
from tidemill.kernels.rows.program import Pool, TableProgram
from tidemill.kernels.rows.views import RawRecord, RowArray
from tidemill.tidb.columns.forms import ColumnType, Form
from tidemill.tidb.columns.objects import ObjectReader
from tidemill.tidb.rows.cells import Family, family
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.types.jsonbin import json_quote

_TEXT = ColumnType(Form.JSON, pa.string(), 0)
_VALUE_ROOM = 192  # most bytes of a number or time, and what its writer may touch after it
_UNQUOTED = frozenset({ValueOp.INT, ValueOp.UINT, ValueOp.YEAR, ValueOp.FLOAT, ValueOp.DOUBLE, ValueOp.JSON, ValueOp.VECTOR})
CHANGES = ("insert", "update", "update", "delete")
"""The names of changes, by `Built.changes`."""


class ObjectProgram:
    """All columns of one table version. `plain` is the reference for its rows."""

    def __init__(self, table: TableProgram) -> None:
        self.table, self.plain = table, ObjectReader(table.info, table.json)
        self._pool, self._fixed = Pool(), 2 * C.SLACK
        rows = [self._column(at, column) for at, column in enumerate(self.plain.columns)]
        self.words = np.zeros(C.PROGRAM_WORDS, np.int64)
        self.words[C.P_COLUMNS] = table.keep(np.array(rows, np.int32).reshape(-1, C.COLUMN_WORDS))
        self.words[C.P_COUNT], self.words[C.P_FIXED] = len(rows), self._fixed
        self.words[C.P_POOL] = table.keep(self._pool.array())

    def _column(self, at: int, column: ColumnInfo) -> list[int]:
        slot = self.table.slots[column.id]
        op = self.table.ops[slot]
        form, members, longest = C.J_PLAIN, 0, 0
        if column.tp in (MySQLType.ENUM, MySQLType.SET):
            form = C.J_ENUM if column.tp == MySQLType.ENUM else C.J_SET
            texts = [json_quote(elem.encode("utf-8", "surrogateescape"), self.table.json)[1:-1] for elem in column.elems]
            members, longest = members_of(self._pool, texts, is_enum=form == C.J_ENUM)
        elif family(column) is Family.BYTES:
            form = C.J_BASE64 if column.is_binary else C.J_TEXT
        head = self.plain.heads[at]
        try:
            absent = self._pool.add(self.plain.absent(column))
        except TidemillError:
            absent = 0, C.ABSENT_SLOW  # the reference raises the error for such a row
        self._fixed += len(head) + _VALUE_ROOM + longest + max(absent[1], 0)
        quote = 0 if op in _UNQUOTED and form == C.J_PLAIN else 1
        fsp = min(max(column.decimal, 0), 6)
        words = [slot, form, op, fsp, *self._pool.add(head), quote, *absent, members, len(column.elems)]
        return words + [0] * (C.COLUMN_WORDS - len(words))


class ObjectBuilder(Builder):
    """Builds two columns of JSON objects, `before` and `after`, one row for each change. `Built.tables` tells which table it is of."""

    IMAGES_A_CHANGE = 1

    def __init__(self, programs: Sequence[ObjectProgram]) -> None:
        super().__init__([program.table for program in programs], (_TEXT, _TEXT))
        self.programs = list(programs)
        self._words = np.array([program.words for program in programs], np.int64)

    def _begin(self) -> None:
        """There is nothing to choose."""

    def _run(self, at: int, rows: RowArray) -> int:
        words = self._tables.ctypes.data, self._words.ctypes.data
        return int(object_rows(at, len(rows), rows.ctypes.data, *words, *self._places))

    def _plain(self, record: RawRecord) -> list[tuple[int, list[bytes | None]]]:
        plain = self.programs[record.table].plain
        values = [None if image is None else plain.read(record.key, image) for image in (record.old_value, record.value)]
        change = C.DELETE if record.value is None else C.INSERT if record.old_value is None else C.PREIMAGE
        return [(change, values)]
