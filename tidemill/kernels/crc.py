"""CRC-32s of both polynomials, eight bytes at a time: IEEE (`write/crc.py`) and Castagnoli (`pump/crc32c.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidemill.kernels.intrinsics import jit, ld8, ld32

IEEE, CASTAGNOLI = 0xEDB88320, 0x82F63B78
"""The polynomials, with the lowest bit first."""
TABLE_BYTES = 8192


def crc_tables(polynomial: int) -> Any:
    """Return 8 tables of 256 uint32: what a byte adds that 0 to 7 others follow."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (polynomial if crc & 1 else 0)
        tables[0, byte] = crc
    for i in range(1, 8):
        tables[i] = tables[i - 1] >> 8 ^ tables[0][tables[i - 1] & 255]
    return tables


@jit
def crc_continued(C, state, a, n):
    """Continue a CRC-32 (not complemented) over n bytes. C: the tables of its polynomial."""
    end = a + n
    while end - a >= 8:
        low = ld32(a) ^ state
        high = ld32(a + 4)
        state = (
            ld32(C + 7168 + 4 * (low & 255))
            ^ ld32(C + 6144 + 4 * ((low >> 8) & 255))
            ^ ld32(C + 5120 + 4 * ((low >> 16) & 255))
            ^ ld32(C + 4096 + 4 * (low >> 24))
            ^ ld32(C + 3072 + 4 * (high & 255))
            ^ ld32(C + 2048 + 4 * ((high >> 8) & 255))
            ^ ld32(C + 1024 + 4 * ((high >> 16) & 255))
            ^ ld32(C + 4 * (high >> 24))
        )
        a += 8
    while a < end:
        state = ld32(C + 4 * ((state ^ ld8(a)) & 255)) ^ (state >> 8)
        a += 1
    return state
