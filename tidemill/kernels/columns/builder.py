"""ROW records → Arrow arrays: the kernel's calls, the room for its columns, and the fallback to the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.errors import MalformedRow
from tidemill.kernels.columns import layout as C
from tidemill.kernels.columns.program import ColumnProgram, program_words
from tidemill.kernels.columns.rows import column_rows
from tidemill.kernels.messages.buffer import Buffer
from tidemill.kernels.rows.layout import SCRATCH_BYTES
from tidemill.kernels.rows.program import PAD, table_words, tables_of
from tidemill.kernels.rows.views import RawRecord, RowArray, raw_record
from tidemill.tidb.columns.forms import ColumnType, Form
from tidemill.tidb.columns.values import Value, stored

_FIRST_ROOM = 16
"""Bytes for each value of a column whose values differ in size, before a batch has told how many they take."""

Words = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Built:
    """Some rows. `changes`: a byte a row, the index of its name in `layout.IMAGES`."""

    columns: list[pa.Array]
    changes: npt.NDArray[np.uint8]
    commit_ts: npt.NDArray[np.uint64]
    start_ts: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.changes)


def _zeros(size: int) -> npt.NDArray[np.uint8]:
    block = Buffer.room(size + PAD)
    block[:] = 0
    return block


class _Column:
    """One column that is filled."""

    def __init__(self, kind: ColumnType, rows: int, room: int, words: Words) -> None:
        self.kind, self._words = kind, words
        self._valid = _zeros(rows // 8 + 1)
        self._offsets = _zeros(4 * rows + 4) if kind.width == 0 else None
        self._data = Buffer(room) if kind.width == 0 else _zeros(kind.width * rows)
        words[C.O_VALID] = self._valid.ctypes.data
        words[C.O_OFFSETS] = self._offsets.ctypes.data if self._offsets is not None else 0
        self._note()

    def _note(self) -> None:
        words, data = self._words, self._data
        if isinstance(data, Buffer):
            words[C.O_DATA], words[C.O_ROOM] = data.address, data.size - C.SLACK
        else:
            words[C.O_DATA] = data.ctypes.data

    def end(self, row: int) -> int:
        """Where the values before a row end."""
        return int(self._offsets[4 * row : 4 * row + 4].view(np.uint32)[0]) if self._offsets is not None else 0

    def grow(self, need: int, row: int) -> None:
        """Make room for `need` bytes, keeping the rows before `row`."""
        assert isinstance(self._data, Buffer)
        self._data.grow(need + C.SLACK, self.end(row))
        self._note()

    def set(self, row: int, value: bytes | None) -> None:
        """Write a value that the reference gave."""
        if value is not None:
            self._valid[row >> 3] |= 1 << (row & 7)
        if self._offsets is None:
            if value is not None:
                width = self.kind.width
                self._array[width * row : width * row + width] = np.frombuffer(value, np.uint8)
            return
        at, size = self.end(row), len(value or b"")
        self.grow(at + size, row)
        self._array[at : at + size] = np.frombuffer(value or b"", np.uint8)
        self._offsets[4 * row + 4 : 4 * row + 8].view(np.uint32)[0] = at + size

    @property
    def _array(self) -> npt.NDArray[np.uint8]:
        return self._data.array if isinstance(self._data, Buffer) else self._data

    def array(self, rows: int) -> pa.Array:
        """The first rows as an Arrow array."""
        arrow: pa.DataType = self.kind.arrow
        valid = pa.py_buffer(self._valid[: (rows + 7) // 8])
        if self._offsets is None:
            return pa.Array.from_buffers(arrow, rows, [valid, pa.py_buffer(self._array[: self.kind.width * rows])])
        data = pa.py_buffer(self._array[: self.end(rows)])
        offsets = self._offsets[: 4 * rows + 4]
        if self.kind.form is Form.VECTOR:
            counts = pa.py_buffer(offsets.view(np.int32) // 4)
            elements = pa.Array.from_buffers(pa.float32(), self.end(rows) // 4, [None, data])
            return pa.Array.from_buffers(arrow, rows, [valid, counts], children=[elements])
        return _readable(pa.Array.from_buffers(arrow, rows, [valid, pa.py_buffer(offsets), data]))


def _readable(found: pa.Array) -> pa.Array:
    """The array with U+FFFD for bytes of text that are not UTF-8, which readers behind rely on. TiDB stores such text only unchecked."""
    if found.type != pa.string():
        return found
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        raw: Any = found.view(pa.binary())
        return pa.array([None if one is None else one.decode("utf-8", "replace") for one in raw.to_pylist()], pa.string())
    return found


class ColumnBuilder:
    """Builds columns from chunks of rows of one or more tables, whose programs all have columns of the same types.

    `images`: bit 1 << image for each image that is wanted (`layout.IMAGES`). `slow_rows` counts the rows that fell back to the reference.
    Not safe for threads.
    """

    def __init__(self, programs: Sequence[ColumnProgram], images: int = C.ALL_IMAGES) -> None:
        if len({tuple(program.types) for program in programs}) != 1:
            raise ValueError("the programs of a builder have columns of the same types")
        self.slow_rows = 0
        self.programs = list(programs)
        self._types, self._images = programs[0].types, images
        self._tables = table_words([program.table for program in programs])
        self._words = program_words(programs)
        self._constants = tables_of([program.table for program in programs])
        self._scratch = np.zeros(SCRATCH_BYTES, np.uint8)
        self._state = np.zeros(C.STATE_WORDS, np.int64)
        self._rooms = [_FIRST_ROOM] * len(self._types)  # bytes that a value takes, about

    def build(self, rows: RowArray) -> Iterator[Built]:
        """Yield the rows' images, in order, as often as a batch is full. Raises MalformedRow naming table and key."""
        at = 0
        while at < len(rows):
            at, built = self._batch(at, rows)
            if len(built):
                yield built

    def _batch(self, at: int, rows: RowArray) -> tuple[int, Built]:
        """Build one batch from row `at` on. Returns the row after it."""
        capacity = 2 * (len(rows) - at)
        outs = np.zeros((max(len(self._types), 1), C.OUT_WORDS), np.int64)
        rooms = [min(capacity * room, C.LARGEST_COLUMN) + 2 * C.SLACK for room in self._rooms]
        columns = [_Column(kind, capacity, room, outs[i]) for i, (kind, room) in enumerate(zip(self._types, rooms, strict=True))]
        heads = [_zeros(capacity), _zeros(8 * capacity), _zeros(8 * capacity)]
        state = self._state
        state[:] = 0
        state[C.ST_CAPACITY], state[C.ST_COLUMNS], state[C.ST_IMAGES] = capacity, outs.ctypes.data, self._images
        state[C.ST_CHANGES], state[C.ST_COMMITS], state[C.ST_STARTS] = (head.ctypes.data for head in heads)
        state[C.ST_STRICT] = int(self.programs[0].strict)
        while True:
            at = self._run(at, rows)
            filled = int(state[C.ST_ROWS])
            match int(state[C.ST_OUTCOME]):
                case C.GROW:
                    column = columns[int(state[C.ST_COLUMN])]
                    if filled and column.end(filled) > C.LARGEST_COLUMN:
                        break
                    column.grow(int(state[C.ST_NEED]), filled)
                case C.SLOW:
                    self._by_reference(rows, at, columns, heads)
                    at += 1
                case _:
                    break
        for i, column in enumerate(columns):
            self._rooms[i] = max(_FIRST_ROOM, column.end(filled) * 9 // 8 // max(filled, 1))
        changes, commits, starts = heads[0][:filled], heads[1][: 8 * filled], heads[2][: 8 * filled]
        return at, Built([column.array(filled) for column in columns], changes, commits.view(np.uint64), starts.view(np.uint64))

    def _run(self, at: int, rows: RowArray) -> int:
        words = (self._tables.ctypes.data, self._words.ctypes.data, self._constants, self._scratch.ctypes.data, self._state.ctypes.data)
        return int(column_rows(at, len(rows), rows.ctypes.data, *words))

    def _by_reference(self, rows: RowArray, at: int, columns: list[_Column], heads: list[npt.NDArray[np.uint8]]) -> None:
        """Append a row that the kernel does not handle."""
        record = raw_record(rows, at)
        program = self.programs[record.table]
        filled = int(self._state[C.ST_ROWS])
        for change, values in self._images_of(record, program):
            for column, value in zip(columns, values, strict=True):
                column.set(filled, stored(column.kind, value))
            heads[0][filled] = change
            heads[1][8 * filled : 8 * filled + 8].view(np.uint64)[0] = record.commit_ts
            heads[2][8 * filled : 8 * filled + 8].view(np.uint64)[0] = record.start_ts
            filled += 1
        self._state[C.ST_ROWS] = filled
        self.slow_rows += 1

    def _images_of(self, record: RawRecord, program: ColumnProgram) -> list[tuple[int, tuple[Value, ...]]]:
        """What the reference makes of a row."""
        before = C.PREIMAGE if record.value is not None else C.DELETE
        after = C.POSTIMAGE if record.old_value is not None else C.INSERT
        pairs = [(before, record.old_value), (after, record.value)]
        try:
            return [
                (change, program.plain.read(record.key, image))
                for change, image in pairs
                if image is not None and self._images >> change & 1
            ]
        except MalformedRow as error:
            where = f"key {record.key.hex()}, start_ts {record.start_ts}, commit_ts {record.commit_ts}"
            raise MalformedRow(f"{program.table.name}: {error.message} ({where})", hint=error.hint) from None
