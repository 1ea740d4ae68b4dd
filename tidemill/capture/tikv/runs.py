"""Rows on disk instead of in memory: runs of ROW records in sorted order whose bytes lie in a mapped file. `spilling` says which, and when.

Run files are scratch: unlinked as soon as they are open, worthless after a crash (the interval is captured again). The records
hold addresses inside the mapping, so everything that works on rows in memory works on them; the page cache decides what stays in
memory.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tidemill.capture.tikv.chunks import Array
from tidemill.capture.tikv.sealer import Plan
from tidemill.kernels.receive.layout import ROW, address
from tidemill.kernels.receive.spill import pack

BOUNCE = 16 << 20  # bytes that are packed at once


@dataclass(slots=True)
class Run:
    """Sorted rows in a mapped file."""

    rows: Array  # mapped ROW records
    chunk: int
    files: Any  # what keeps the mappings alive: the chunk's owner
    at: int = 0  # rows before it have been sealed


class _Scratch:
    """An unlinked file that is written once and then mapped."""

    def __init__(self, folder: Path, size: int) -> None:
        self._handle, name = tempfile.mkstemp(dir=folder, prefix=".run-")
        os.unlink(name)  # noqa: PTH108
        os.ftruncate(self._handle, max(size, 1))
        self.map = mmap.mmap(self._handle, max(size, 1))
        self.base = address(np.frombuffer(self.map, np.uint8))
        self._end = 0

    def write(self, data: memoryview) -> None:
        while len(data):
            n = os.pwrite(self._handle, data, self._end)
            self._end += n
            data = data[n:]

    def done(self) -> None:
        os.close(self._handle)
        self._handle = -1

    def discard(self) -> None:
        """Give the room back now, whoever still refers to it."""
        if self._handle >= 0:
            self.done()
        self.map.close()


def write_run(folder: Path, plan: Plan, chunk: int) -> Run:
    """The plan's rows as a run, whose records point into the reserved `chunk`. On any thread: it only reads the rows, which hold their
    bytes meanwhile. Raises OSError."""
    total = int(plan.cuts[:, 1:].sum())
    data = _Scratch(folder, total + 64)
    try:
        index = _Scratch(folder, ROW.itemsize * plan.count)
        try:
            _fill(data, index, plan, chunk)
        except BaseException:
            index.discard()
            raise
    except BaseException:
        data.discard()
        raise
    return Run(np.frombuffer(index.map, ROW, plan.count), chunk, (data, index))


def _fill(data: _Scratch, index: _Scratch, plan: Plan, chunk: int) -> None:
    largest = int(plan.cuts[:, 1:].sum(axis=1).max()) if len(plan.cuts) else 0
    out = np.empty(largest + 128, np.uint8)
    lo = base = 0
    for end in plan.cuts[:, 0].tolist():
        rows = np.empty(end - lo, ROW)
        n = pack(address(plan.rows), address(plan.order), lo, end, data.base + base, address(out), address(rows))
        rows["chunk"] = chunk
        data.write(out[:n].data)
        index.write(rows.view(np.uint8).data)
        base += n
        lo = end
    data.done()
    index.done()
