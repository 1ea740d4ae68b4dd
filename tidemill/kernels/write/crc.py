"""CRC-32 (IEEE), as TiDB's row checksums and the dispatchers' hashes use it. Reference: `zlib.crc32`."""

from __future__ import annotations

from tidemill.kernels.intrinsics import jit, ld8, ld32
from tidemill.kernels.write.tables import O_CRC


@jit
def crc32(T, state, a, n):
    """Continue a CRC-32 (not complemented) over n bytes, eight at a time. T: the constant tables."""
    C = T + O_CRC
    end = a + n
    while a + 8 <= end:
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
