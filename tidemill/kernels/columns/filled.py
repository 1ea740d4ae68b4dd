"""A column that a kernel fills: its validity, offsets and values, and what they are as an Arrow array."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.kernels.columns import layout as C
from tidemill.kernels.messages.buffer import Buffer
from tidemill.kernels.rows.program import PAD
from tidemill.tidb.columns.forms import ColumnType, Form

Words = npt.NDArray[np.int64]


def zeros(size: int) -> npt.NDArray[np.uint8]:
    block = Buffer.room(size + PAD)
    block[:] = 0
    return block


class FilledColumn:
    """One column that is filled."""

    def __init__(self, kind: ColumnType, rows: int, room: int, words: Words) -> None:
        self.kind, self._words = kind, words
        self._valid = zeros(rows // 8 + 1)
        self._offsets = zeros(4 * rows + 4) if kind.width == 0 else None
        self._data = Buffer(room) if kind.width == 0 else zeros(kind.width * rows)
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
