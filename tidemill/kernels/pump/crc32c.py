"""CRC-32C (Castagnoli), the checksum of the value log's records. Reference: `crc32c.crc32c`."""

from __future__ import annotations

from tidemill.kernels.crc import crc_continued
from tidemill.kernels.intrinsics import jit
from tidemill.kernels.pump.layout import K_CRC


@jit
def crc32c(T, a, n):
    """Return the CRC-32C of n bytes. T: the constants."""
    return crc_continued(T + K_CRC, 0xFFFFFFFF, a, n) ^ 0xFFFFFFFF
