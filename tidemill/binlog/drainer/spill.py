"""Memory for large transactions: from a size on it is that of a file, whose pages the system may write out and take away.

The file lies in the Drainer's folder and has no name: it is gone with the memory, also after a crash. All of it is on the disk before it is
used, so a disk that is full is told at once, and not when a page is written.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

import numpy as np

from tidemill.binlog.blocks import Array
from tidemill.errors import DiskLow

LEAST = 32 << 20
"""Bytes from which on memory is that of a file."""


class Spill:
    """`folder`: where the files lie. Safe for threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, size: int) -> Array:
        """Return so many bytes, with any content. Raises DiskLow."""
        if size < LEAST:
            return np.empty(size, np.uint8)
        try:
            with tempfile.TemporaryFile(dir=self._folder, prefix="tidemill-large-") as file:
                os.posix_fallocate(file.fileno(), 0, size)
                return np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
        except OSError as error:
            raise DiskLow(
                f"{self._folder} has no room for {size} bytes of a large transaction: {error.strerror or error}",
                hint="Make room there: a large transaction needs up to twice its size. Nothing is lost: it is pulled again.",
            ) from error
