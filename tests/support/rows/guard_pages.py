"""Memory that ends, or begins, at a page without access: a process that reads or writes past it dies with SIGSEGV.

Only for child processes: what such a process was doing when it died is for its parent to tell.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.kernels.rows.views import RawRecord, RowArray, row_array

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Guarded:
    """At least `size` bytes between two pages that cannot be touched."""

    def __init__(self, size: int) -> None:
        pages = -(-size // _PAGE)
        self._map = mmap.mmap(-1, (pages + 2) * _PAGE)
        whole = np.frombuffer(self._map, np.uint8)
        self.bytes: npt.NDArray[np.uint8] = whole[_PAGE : (pages + 1) * _PAGE]
        for guard in (whole.ctypes.data, whole.ctypes.data + (pages + 1) * _PAGE):
            if _libc.mprotect(guard, _PAGE, 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")

    def tail(self, size: int) -> npt.NDArray[np.uint8]:
        """The last `size` bytes: behind them is a guard."""
        return self.bytes[len(self.bytes) - size :]

    def put(self, data: bytes, *, last: bool) -> int:
        """Copy the bytes to the end (or the beginning), the rest becomes 0xFF; returns their address."""
        at = len(self.bytes) - len(data) if last else 0
        self.bytes[:] = 0xFF
        self.bytes[at : at + len(data)] = np.frombuffer(data, np.uint8)
        return self.bytes.ctypes.data + at


def guarded_array(size: int) -> npt.NDArray[np.uint8]:
    """Room of `size` bytes that ends at a guard."""
    return Guarded(size).tail(size)


class GuardedRows:
    """Places ROW records so that each of their byte strings ends at a guard."""

    def __init__(self, size: int = 1 << 20) -> None:
        self._rooms: dict[str, list[Guarded]] = {"key": [], "value": [], "old_value": []}
        self._size = size

    def place(self, records: Sequence[RawRecord], *, last: bool = True) -> tuple[RowArray, Any]:
        """ROW records, and what keeps alive what did not fit. `last`: at the end of their pages, else at their beginning."""
        rows, keep = row_array(records)
        for name, rooms in self._rooms.items():
            while len(rooms) < len(records):
                rooms.append(Guarded(self._size))
            for row, record, room in zip(rows, records, rooms, strict=False):
                data: bytes | None = getattr(record, name)
                if data and len(data) <= len(room.bytes):
                    row[name] = room.put(data, last=last)
        return rows, keep
