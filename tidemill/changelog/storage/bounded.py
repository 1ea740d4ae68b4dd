"""Reads a small file of somebody else's storage: a store that lies about lengths, or sends without end, must not take all memory. Pure."""

from __future__ import annotations

import errno
from collections.abc import Callable

LARGEST = 256 << 20
"""Bytes of the largest state that is read."""
_CHUNK = 1 << 20


def read_whole(read: Callable[[int], bytes | bytearray | memoryview]) -> bytes:
    """Return what `read(SIZE)` returns until it returns nothing. Raises OSError with EINVAL if that is more than LARGEST."""
    found = bytearray()
    while chunk := read(_CHUNK):
        found += chunk
        if len(found) > LARGEST:
            raise OSError(errno.EINVAL, f"it has more than {LARGEST:,} bytes, so it is no state of ours")
    return bytes(found)
