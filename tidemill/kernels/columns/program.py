"""Compiles the columns of a table version to the program that the kernel runs besides the table's program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidemill.errors import TidemillError
from tidemill.kernels.columns.layout import (
    ABSENT_NULL,
    ABSENT_SLOW,
    COLUMN_WORDS,
    P_COLUMNS,
    P_COUNT,
    P_POOL,
    PROGRAM_WORDS,
)
from tidemill.kernels.rows.layout import ValueOp
from tidemill.kernels.rows.program import Pool, TableProgram
from tidemill.tidb.columns.forms import Form, TimeAs
from tidemill.tidb.columns.values import TypedReader, stored
from tidemill.tidb.schema.model import ColumnInfo

_PLAIN_ROOM = 192  # most bytes of a number or time as text, and what its writer may touch after it


class ColumnProgram:
    """Some columns of one table version. `plain` is the reference for its rows; the kernel reads `words` with the table program's words.

    The memory that the words point to lives as long as the table program.
    """

    def __init__(
        self, table: TableProgram, columns: Sequence[ColumnInfo] | None = None, *, time_as: TimeAs = TimeAs.STRING, strict: bool = False
    ) -> None:
        self.table, self.strict = table, strict
        self.plain = TypedReader(table.info, columns, time_as=time_as, strict=strict, json=table.json)
        self.types = self.plain.types
        self.words = np.zeros(PROGRAM_WORDS, np.int64)
        self._pool = Pool()
        rows = [self._column(at) for at in range(len(self.types))]
        self.words[P_COLUMNS] = table.keep(np.array(rows, np.int32).reshape(-1, COLUMN_WORDS))
        self.words[P_COUNT], self.words[P_POOL] = len(rows), table.keep(self._pool.array())

    def _column(self, at: int) -> list[int]:
        column, kind = self.plain.columns[at], self.types[at]
        slot = self.table.slots[column.id]
        fsp = min(max(column.decimal, 0), 6)
        scale, digits = (kind.arrow.scale, kind.arrow.precision) if kind.form is Form.DECIMAL else (0, 0)
        op = self.table.ops[slot]
        assert op is not ValueOp.UNKNOWN, "column_type refuses types that are not known"
        absent, absent_len = self._absent(at)
        members, longest = 0, 0
        if kind.form in (Form.ENUM, Form.SET):
            members, longest = members_of(self._pool, column.elems, is_enum=kind.form is Form.ENUM)
        words = [slot, kind.form, kind.width, op, fsp, 10 ** (6 - fsp), scale, digits, absent, absent_len]
        words += [members, len(column.elems), _PLAIN_ROOM + longest]
        return words + [0] * (COLUMN_WORDS - len(words))

    def _absent(self, at: int) -> tuple[int, int]:
        """The value in a row that is older than the column, in the pool."""
        try:
            found = stored(self.types[at], self.plain.absent(at))
        except TidemillError:
            return 0, ABSENT_SLOW  # the reference raises the error for such a row
        return (0, ABSENT_NULL) if found is None else self._pool.add(found)


def members_of(pool: Pool, elems: Sequence[str], *, is_enum: bool) -> tuple[int, int]:
    """Put the table of an ENUM's or SET's elements into the pool. Returns its offset, and the most bytes of a value."""
    texts = [elem.encode("utf-8", "surrogateescape") for elem in elems]
    longest = sum(len(text) + 1 for text in texts)
    if is_enum:
        texts = [b"", *texts]
    at, pairs = 8 * len(texts), []
    for text in texts:
        pairs += [at, len(text)]
        at += len(text)
    return pool.add(np.array(pairs, np.int32).tobytes() + b"".join(texts))[0], longest


def program_words(programs: Sequence[ColumnProgram]) -> npt.NDArray[np.int64]:
    """Return the words of several programs in one array, which the kernel indexes by ROW.table."""
    return np.array([program.words for program in programs] or [np.zeros(PROGRAM_WORDS, np.int64)], np.int64)
