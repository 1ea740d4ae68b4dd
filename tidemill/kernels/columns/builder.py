"""ROW records → Arrow arrays: the kernels' calls, the room for their columns, and the fallback to the reference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.errors import MalformedBytes, MalformedRow
from tidemill.kernels.columns import layout as C
from tidemill.kernels.columns.filled import FilledColumn, zeros
from tidemill.kernels.columns.program import ColumnProgram, program_words
from tidemill.kernels.columns.rows import column_rows
from tidemill.kernels.rows.layout import SCRATCH_BYTES
from tidemill.kernels.rows.program import TableProgram, table_words, tables_of
from tidemill.kernels.rows.views import RawRecord, RowArray, raw_record
from tidemill.tidb.columns.forms import ColumnType
from tidemill.tidb.columns.values import stored

_FIRST_ROOM = 16
"""Bytes for each value of a column whose values differ in size, before a batch has told how many they take."""


@dataclass(frozen=True, slots=True)
class Built:
    """Some rows. `changes`: a byte a row, the index of its name in `layout.IMAGES`. `tables`: the number of each row's program."""

    columns: list[pa.Array]
    changes: npt.NDArray[np.uint8]
    commit_ts: npt.NDArray[np.uint64]
    start_ts: npt.NDArray[np.uint64]
    tables: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.changes)


class _Heads:
    """What is written of each row besides its columns."""

    def __init__(self, capacity: int, state: npt.NDArray[np.int64]) -> None:
        self._changes, self._commits, self._starts, self._tables = (zeros(size * capacity) for size in (1, 8, 8, 4))
        blocks = (self._changes, self._commits, self._starts, self._tables)
        state[[C.ST_CHANGES, C.ST_COMMITS, C.ST_STARTS, C.ST_TABLES]] = [block.ctypes.data for block in blocks]

    def set(self, row: int, change: int, record: RawRecord) -> None:
        self._changes[row] = change
        self._commits[8 * row : 8 * row + 8].view(np.uint64)[0] = record.commit_ts
        self._starts[8 * row : 8 * row + 8].view(np.uint64)[0] = record.start_ts
        self._tables[4 * row : 4 * row + 4].view(np.int32)[0] = record.table

    def built(self, columns: list[pa.Array], rows: int) -> Built:
        commits, starts = (block[: 8 * rows].view(np.uint64) for block in (self._commits, self._starts))
        return Built(columns, self._changes[:rows], commits, starts, self._tables[: 4 * rows].view(np.int32))


class Builder(ABC):
    """Builds columns from chunks of rows. `slow_rows` counts the rows that fell back to the reference. Not safe for threads."""

    IMAGES_A_CHANGE: int

    def __init__(self, tables: Sequence[TableProgram], types: Sequence[ColumnType]) -> None:
        self.slow_rows = 0
        self._kept = list(tables)  # they own the memory that words point to
        self._types = types
        self._tables, self._constants = table_words(tables), tables_of(tables)
        self._scratch = np.zeros(SCRATCH_BYTES, np.uint8)
        self._state = np.zeros(C.STATE_WORDS, np.int64)
        self._rooms = [_FIRST_ROOM] * len(types)  # bytes that a value takes, about

    def build(self, rows: RowArray) -> Iterator[Built]:
        """Yield what becomes of the rows, in order, as often as a batch is full. Raises MalformedRow naming table and key."""
        at = 0
        while at < len(rows):
            at, built = self._batch(at, rows)
            if len(built):
                yield built

    def _batch(self, at: int, rows: RowArray) -> tuple[int, Built]:
        """Build one batch from row `at` on. Returns the row after it."""
        capacity = self.IMAGES_A_CHANGE * (len(rows) - at)
        outs = np.zeros((max(len(self._types), 1), C.OUT_WORDS), np.int64)
        rooms = [min(capacity * room, C.LARGEST_COLUMN) + 2 * C.SLACK for room in self._rooms]
        columns = [FilledColumn(kind, capacity, room, outs[i]) for i, (kind, room) in enumerate(zip(self._types, rooms, strict=True))]
        state = self._state
        state[:] = 0
        state[C.ST_CAPACITY], state[C.ST_COLUMNS] = capacity, outs.ctypes.data
        heads = _Heads(capacity, state)
        self._begin()
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
        return at, heads.built([column.array(filled) for column in columns], filled)

    def _by_reference(self, rows: RowArray, at: int, columns: list[FilledColumn], heads: _Heads) -> None:
        """Append a row that the kernel does not handle."""
        record = raw_record(rows, at)
        filled = int(self._state[C.ST_ROWS])
        try:
            found = self._plain(record)
        except MalformedBytes as error:
            where = f"key {record.key.hex()}, start_ts {record.start_ts}, commit_ts {record.commit_ts}"
            raise MalformedRow(f"{self._kept[record.table].name}: {error.message} ({where})", hint=error.hint) from None
        for change, values in found:
            for column, value in zip(columns, values, strict=True):
                column.set(filled, value)
            heads.set(filled, change, record)
            filled += 1
        self._state[C.ST_ROWS] = filled
        self.slow_rows += 1

    @property
    def _places(self) -> tuple[int, int, int]:
        """The last arguments of a kernel."""
        return self._constants, self._scratch.ctypes.data, self._state.ctypes.data

    @abstractmethod
    def _begin(self) -> None:
        """Write the words that hold for a whole batch into the state."""

    @abstractmethod
    def _run(self, at: int, rows: RowArray) -> int:
        """Call the kernel for the rows from `at` on. Returns the row at which it stopped; the state says why."""

    @abstractmethod
    def _plain(self, record: RawRecord) -> list[tuple[int, list[bytes | None]]]:
        """What the reference makes of a row: images, with the values of their columns as they are kept there."""


class ColumnBuilder(Builder):
    """Builds typed columns from rows of one or more tables, whose programs all have columns of the same types.

    `images`: bit 1 << image for each image that is wanted (`layout.IMAGES`).
    """

    IMAGES_A_CHANGE = 2

    def __init__(self, programs: Sequence[ColumnProgram], images: int = C.ALL_IMAGES) -> None:
        if len({tuple(program.types) for program in programs}) != 1:
            raise ValueError("the programs of a builder have columns of the same types")
        super().__init__([program.table for program in programs], programs[0].types)
        self.programs = list(programs)
        self._images, self._words = images, program_words(programs)

    def _begin(self) -> None:
        self._state[C.ST_IMAGES], self._state[C.ST_STRICT] = self._images, int(self.programs[0].strict)

    def _run(self, at: int, rows: RowArray) -> int:
        words = self._tables.ctypes.data, self._words.ctypes.data
        return int(column_rows(at, len(rows), rows.ctypes.data, *words, *self._places))

    def _plain(self, record: RawRecord) -> list[tuple[int, list[bytes | None]]]:
        program = self.programs[record.table]
        before = C.PREIMAGE if record.value is not None else C.DELETE
        after = C.POSTIMAGE if record.old_value is not None else C.INSERT
        found = []
        for change, image in ((before, record.old_value), (after, record.value)):
            if image is not None and self._images >> change & 1:
                values = program.plain.read(record.key, image)
                found.append((change, [stored(kind, value) for kind, value in zip(self._types, values, strict=True)]))
        return found
