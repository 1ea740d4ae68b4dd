"""Memory for large transactions: from a size on it is that of a file, whose pages the system may write out and take away.

The file lies in the Drainer's folder and has no name: it is gone with the memory, also after a crash. All of it is on the disk before it is
used, so a disk that is full is told at once, and not when a page is written. A file system that cannot reserve room at once (NFS before
4.2) gets no file, and the memory is the process's own: writing zeros instead would hold up the event loop for seconds.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import tempfile
from pathlib import Path

import numpy as np

from tidemill.binlog.blocks import Array, plain_memory
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
            return plain_memory(size)
        try:
            with tempfile.TemporaryFile(dir=self._folder, prefix="tidemill-large-") as file:
                if not _reserved(file.fileno(), size):
                    return plain_memory(size)
                return np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
        except OSError as error:
            raise DiskLow(
                f"{self._folder} has no room for {size} bytes of a large transaction: {error.strerror or error}",
                hint="Make room there: a large transaction needs up to twice its size. Nothing is lost: it is pulled again.",
            ) from error


_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def _reserved(handle: int, size: int) -> bool:
    """Give a file so many bytes on the disk. False where the file system cannot. Raises OSError. (`os.posix_fallocate` would write zeros
    then.)"""
    while _libc.fallocate(handle, 0, 0, size):
        number = ctypes.get_errno()
        if number in (errno.EOPNOTSUPP, errno.ENOSYS):
            return False
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
    return True
