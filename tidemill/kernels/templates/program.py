"""Text programs: the messages of a table version as words that the kernel runs.

A protocol describes the message of each kind of row as steps: constants, times, lists of columns. Names, types, escapes and defaults become
bytes once, here, by the protocol's reference encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidemill.errors import TidemillError
from tidemill.kernels.rows.layout import (
    CACHE_PLACES,
    FLAG_COMMON,
    HEADER_CACHED,
    T_CACHE,
    T_FLAGS,
    T_HANDLE,
    T_HANDLE_COUNT,
    ValueOp,
)
from tidemill.kernels.rows.program import PAD, Pool, TableProgram
from tidemill.kernels.templates import layout as x
from tidemill.tidb.rows import Cell
from tidemill.tidb.schema.model import ColumnInfo

_VALUE_ROOM = 1000  # most bytes of a number or time, with room for its escaped form: a double without exponent has up to 330

# Most bytes of text for a stored byte: a control character in a JSON document in a JSON string takes 7, 4 bytes of a vector up to 48.
# Text that is escaped or compared is first written further on, 16 bytes for each stored byte.
_ROOM, _VECTOR_ROOM, _WIDE_ROOM = 8, 16, 32

StepWords = tuple[int, int, int, int]

COMMIT_TS, COMMIT_MS, NOW = ((int(step), 0, 0, 0) for step in (x.Step.COMMIT_TS, x.Step.COMMIT_MS, x.Step.NOW))
START_TS, KEY_END = ((int(step), 0, 0, 0) for step in (x.Step.START_TS, x.Step.KEY_END))
TABLE_ID = (int(x.Step.KEY_NUMBER), 1, 0, 0)
"""Steps without further words."""

_HANDLE_ROOM = 2000  # most bytes of a number in a handle, escaped, and the room for writing it first


@dataclass(frozen=True, slots=True)
class ColumnText:
    """The texts of a column in a list. `null` and `absent` are whole texts. `absent` None: such rows fall back to the reference."""

    column: ColumnInfo
    op: int  # ValueOp or layout.TextOp
    prefix: bytes
    suffix: bytes
    null: bytes
    absent: bytes | None
    separator: int = 0  # how many bytes of prefix, null and absent are left out for the first column
    members: tuple[bytes, ...] = ()  # of ENUM and SET; of a SET followed by what joins them
    escape: bool = False
    parameter: int | None = None  # of the op, where it is not the digits of a time's fraction
    stored: int | None = None  # as what the op reads the stored value, where it is not what the column's type says


class TextProgram:
    """The steps of one table version. The kernel reads `words`; the object owns the memory that they point to."""

    def __init__(self, program: TableProgram) -> None:
        self.program = program
        self.words = np.zeros(x.TEXT_WORDS, np.int64)
        self._pool = Pool()
        self._columns: list[list[int]] = []
        self._lists: dict[tuple[int, ...], int] = {}
        self._fixed, self._room = 64, _ROOM
        self._kinds: list[tuple[int, list[StepWords], int]] = []
        self._members: list[tuple[int, tuple[bytes, ...]]] = []
        self._blocks: list[npt.NDArray[np.generic]] = []

    def constant(self, text: bytes) -> StepWords:
        """Return a step that writes this text."""
        self._fixed += len(text)
        return (x.Step.CONSTANT, *self._pool.add(text), 0)

    def columns(self, image: int, texts: Sequence[ColumnText], *, changed: bool = False) -> StepWords:
        """Return a step that writes the columns of an image. `changed`: only those whose value differs in the other image."""
        at = len(self._columns)
        for text in texts:
            self._add(text)
            wide = (
                text.escape
                or text.op == x.TextOp.CSV_DOCUMENT
                or (changed and _is_wide(self.program.ops[self.program.slots[text.column.id]]))
            )
            self._room = max(self._room, _WIDE_ROOM if wide else _VECTOR_ROOM if text.op == ValueOp.VECTOR else _ROOM)
        return (x.Step.CHANGED if changed else x.Step.COLUMNS, image, at, len(texts))

    def promoted(self, image: int, column: ColumnInfo, least: int, texts: tuple[bytes, bytes], absent: bytes | None) -> StepWords:
        """Return a step that writes texts[1] for values from `least` on, else texts[0]."""
        at = len(self._columns)
        self._add(ColumnText(column, 0, texts[1], texts[0], texts[0], absent))
        return (x.Step.PROMOTED, image, at, _signed(least))

    def handle(self, image: int) -> StepWords:
        """Return a step that writes the handle as the inside of a CSV field. `image` is one that the row has."""
        words = self.program.words
        count = int(words[T_HANDLE_COUNT]) if words[T_FLAGS] & FLAG_COMMON else 0
        self._fixed += _HANDLE_ROOM * (count + 1)
        return (x.Step.HANDLE, image, int(words[T_HANDLE]), count)

    def kind(self, kind: int, steps: Sequence[StepWords], images: Sequence[int]) -> None:
        """Set the message of a kind of row (ON_DELETE, ON_UPDATE, ON_INSERT), and the images that it needs."""
        self._kinds.append((kind, list(steps), sum(1 << image for image in set(images))))

    def finish(self) -> None:
        """Lay out the words."""
        columns = np.array(self._columns or [[0] * x.COLUMN_WORDS], np.int32).reshape(-1, x.COLUMN_WORDS)
        for row, members in self._members:
            columns[row, x.C_MEMBERS] = self._add_members(members)
        for kind, steps, images in self._kinds:
            at = x.X_KIND_WORDS * kind
            block = np.array(steps, np.int64).reshape(-1, x.STEP_WORDS)
            self.words[at : at + x.X_KIND_WORDS] = self._keep(block), len(steps), images
        self.words[x.X_COLUMNS], self.words[x.X_POOL] = self._keep(columns), self._keep(self._pool.array())
        self.words[x.X_FIXED], self.words[x.X_ROOM] = self._fixed, self._room

    def _keep(self, block: npt.NDArray[np.generic]) -> int:
        self._blocks.append(block)
        return block.ctypes.data

    def _add(self, text: ColumnText) -> None:
        column, pool = text.column, self._pool
        slot = self.program.slots[column.id]
        absent = (0, -1) if text.absent is None else pool.add(text.absent)
        fsp = min(max(column.decimal, 0), 6) if text.parameter is None else text.parameter
        parts = (*pool.add(text.prefix), *pool.add(text.suffix), *pool.add(text.null), *absent)
        count = len(text.members) - (text.op in (x.TextOp.SET, x.TextOp.CONNECT_SET)) if text.members else 0
        stored = self.program.ops[slot] if text.stored is None else text.stored
        row = [slot, text.op, fsp, *parts, stored, 0, count, int(text.escape), text.separator]
        if text.members:
            self._members.append((len(self._columns), text.members))
            self._fixed += sum(map(len, text.members)) * 2
        self._columns.append(row)
        self._fixed += len(text.prefix) + len(text.suffix) + max(len(text.null), len(text.absent or b"")) + _VALUE_ROOM

    def _add_members(self, members: tuple[bytes, ...]) -> int:
        pairs = [self._pool.add(member) for member in members]
        return self._pool.add(np.array(pairs, np.int32).tobytes())[0]


def _is_wide(op: ValueOp) -> bool:
    return op in (ValueOp.JSON, ValueOp.VECTOR)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def absent_text(program: TableProgram, column: ColumnInfo, text: Callable[[Cell], bytes]) -> bytes | None:
    """Return the text of a column that a row lacks, or None if its default cannot be read. The reference then raises the error."""
    try:
        return text(program.absent_cell(column))
    except TidemillError:
        return None


def table_pairs(programs: Sequence[TableProgram]) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.uint8]]]:
    """Return each program's table words twice, and the place maps of the second copies. With two maps both images can be located."""
    pairs = np.array([[p.words, p.words] for p in programs] or np.zeros((1, 2, 1), np.int64), np.int64)
    caches = []
    for pair, program in zip(pairs, programs, strict=False):
        if pair[1][T_FLAGS] & 1:
            continue
        cache = np.zeros(CACHE_PLACES + 4 * len(program.slots) + HEADER_CACHED + 3 * PAD, np.uint8)
        cache[:8] = 255  # no header is remembered
        pair[1][T_CACHE] = cache.ctypes.data
        caches.append(cache)
    return pairs, caches
