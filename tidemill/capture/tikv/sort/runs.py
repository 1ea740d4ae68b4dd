"""Rows on disk instead of in memory: runs of sorted ROW records whose bytes are in a mapped file. `spill.py` decides which rows, and when.

Run files are scratch: unlinked as soon as they are open, and worthless after a crash, because the interval is captured again. The records
hold addresses inside the mapping, so all code for rows in memory works on them; the page cache decides what stays in memory. A mapping
needs no descriptor, so the limit of open files does not limit the number of runs.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tidemill.capture.tikv.receive.matcher import FOREVER, sizes_of
from tidemill.capture.tikv.receive.memory import Array, fresh, records
from tidemill.capture.tikv.sort.sorter import Plan, Sorter
from tidemill.changelog.files.arrowfile import PIECE
from tidemill.kernels.address import address
from tidemill.kernels.receive.layout import ROW
from tidemill.kernels.receive.seal import bytes_of
from tidemill.kernels.receive.spill import merge, pack

PAD = 64  # kernels copy in steps and read up to 31 bytes past the end of what they copy: these bytes must be mapped too
BOUNCE = 1 << 20  # bytes packed at a time: they are written while a CPU's cache still has them
MERGE_ROWS = 65_536

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


@dataclass(slots=True, eq=False)
class Run:
    """Sorted rows in a mapped file."""

    rows: Array  # mapped ROW records
    chunk: int
    files: Any  # keeps the mapping alive: the chunk's owner
    at: int = 0  # rows before this one have been sealed


class Packer:
    """The memory of who writes runs: it sorts, packs, and is used again by the next run. For one thread at a time."""

    def __init__(self) -> None:
        self.sorter = Sorter(max_bytes=BOUNCE)
        self._bytes: Array = np.empty(0, np.uint8)
        self._records: Array = np.empty(0, ROW)

    def room(self, size: int, rows: int) -> tuple[Array, Array]:
        """Return `size` bytes at least and so many records. Valid until the next call."""
        if rows > len(self._records):
            self._records = records(rows + rows // 4, ROW)
        if size > 4 * BOUNCE:  # a row that is large alone
            return fresh(size), self._records[:rows]
        if size > len(self._bytes):
            self._bytes = fresh(size + size // 4)
        return self._bytes, self._records[:rows]


class _Mapping:
    """A mapped file, readable while an array of it lives. Python's own mmap keeps a descriptor."""

    def __init__(self, handle: int, size: int) -> None:
        base = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, handle, 0)
        if base == _FAILED:
            error = ctypes.get_errno()
            raise OSError(error, f"a scratch file of {size} bytes cannot be mapped: {os.strerror(error)}")
        self.base = int(base)
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (self.base, False), "version": 3}
        self.close = weakref.finalize(self, _libc.munmap, base, size)
        self.close.atexit = False  # other threads may still read at exit


class _Scratch:
    """An unlinked file for a run: its records, then their bytes. It is mapped at once, because the records hold addresses, and written in
    order."""

    def __init__(self, folder: Path, count: int, size: int, packer: Packer) -> None:
        self._packer = packer
        self._handle, name = tempfile.mkstemp(dir=folder, prefix=".run-")
        try:
            os.unlink(name)  # noqa: PTH108
            self._rows_end, self._end = 0, ROW.itemsize * count
            total = self._end + size + PAD
            os.ftruncate(self._handle, total)
            self._mapping = _Mapping(self._handle, total)
        except BaseException:
            os.close(self._handle)
            raise
        self._count = count

    def add(self, rows: Array, order: Array, lo: int, end: int, size: int, chunk: int) -> None:
        """Append the records order[lo:end] of `rows`, with their `size` bytes."""
        out, packed = self._packer.room(size + 128, end - lo)
        n = pack(address(rows), address(order), lo, end, self._mapping.base + self._end, address(out), address(packed))
        packed["chunk"] = chunk
        self.write(out[:n].data, self._end)
        self._end += n
        self.write(packed.view(np.uint8).data, self._rows_end)
        self._rows_end += packed.nbytes

    def write(self, data: memoryview, at: int) -> None:
        while len(data):
            n = os.pwrite(self._handle, data[:PIECE], at)
            at += n
            data = data[n:]

    def done(self, chunk: int) -> Run:
        os.close(self._handle)
        assert self._rows_end == ROW.itemsize * self._count, "all records are there"
        rows = np.asarray(self._mapping)[: self._rows_end].view(ROW)
        return Run(rows, chunk, self._mapping)

    def discard(self) -> None:
        """Free the disk space now, even if something still refers to the file."""
        os.close(self._handle)
        self._mapping.close()


def write_run(folder: Path, plan: Plan, chunk: int, packer: Packer | None = None) -> Run:
    """Write the plan's rows as a run whose records point into the reserved `chunk`. May run on any thread: it only reads the rows, and they
    hold their bytes meanwhile. Raises OSError."""
    sizes = plan.cuts[:, 1:].sum(axis=1)
    scratch = _Scratch(folder, plan.count, int(sizes.sum()), packer or Packer())
    try:
        lo = 0
        for end, size in zip(plan.cuts[:, 0].tolist(), sizes.tolist(), strict=True):
            scratch.add(plan.rows, plan.order, lo, end, size, chunk)
            lo = end
    except BaseException:
        scratch.discard()
        raise
    return scratch.done(chunk)


def merge_runs(folder: Path, runs: Sequence[Run], chunk: int, packer: Packer | None = None) -> Run:
    """Merge the unsealed rows of several runs into one run. May run on any thread, like `write_run`. Raises OSError."""
    left = [run.rows[run.at :] for run in runs]
    size = sum(bytes_of(address(rows), len(rows)) for rows in left)
    scratch = _Scratch(folder, sum(len(rows) for rows in left), size, packer or Packer())
    try:
        merger = Merger(left)
        out = records(MERGE_ROWS, ROW)
        while n := merger.next(FOREVER, out):
            rows = out[:n]
            order = np.arange(len(rows), dtype=np.int32)
            ends = np.cumsum(sizes_of(rows))
            lo = 0
            while lo < len(rows):
                before = int(ends[lo - 1]) if lo else 0
                end = max(lo + 1, int(np.searchsorted(ends, before + BOUNCE)))
                scratch.add(rows, order, lo, end, int(ends[end - 1]) - before, chunk)
                lo = end
    except BaseException:
        scratch.discard()
        raise
    return scratch.done(chunk)


class Merger:
    """Merges sorted rows of several sources into one order. The sources must live as long."""

    def __init__(self, sources: Sequence[Array]) -> None:
        bases = np.array([address(rows) for rows in sources], np.int64)
        ends = bases + ROW.itemsize * np.array([len(rows) for rows in sources], np.int64)
        self._bases, self._cursors = bases, np.ascontiguousarray(np.stack([bases, ends], axis=1))
        living = np.flatnonzero(bases < ends)
        self._heap: Array = address(self._cursors) + 16 * living
        self._state: Array = np.array([len(living), 0], np.int64)
        self._fresh = 1

    def next(self, limit: int, out: Array) -> int:
        """Write the next rows with commit_ts <= limit to `out`. Return their number: less than `out` has room for if these are the last.
        `bytes` are then those of their keys and values."""
        n = merge(address(self._heap), address(self._state), self._fresh, limit, address(out), len(out))
        self._fresh = 0
        return int(n)

    @property
    def bytes(self) -> int:
        """Bytes of the keys and values of the rows that came last."""
        return int(self._state[1])

    def taken(self) -> list[int]:
        """Return how many rows of each source were taken."""
        found: list[int] = ((self._cursors[:, 0] - self._bases) // ROW.itemsize).tolist()
        return found
