"""CRC-32C (Castagnoli), the checksum of the value log's records. Reference: `crc32c.crc32c`."""

from __future__ import annotations

from tidemill.kernels.intrinsics import jit, ld8, ld32
from tidemill.kernels.pump.layout import K_CRC


@jit
def crc32c(T, a, n):
    """Return the CRC-32C of n bytes, eight at a time. T: the constants."""
    C = T + K_CRC
    end = a + n
    state = 0xFFFFFFFF
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
    return state ^ 0xFFFFFFFF
