"""CRC-32 (IEEE), as TiDB's row checksums and the dispatchers' hashes use it. Reference: `zlib.crc32`."""

from __future__ import annotations

from tidemill.kernels.crc import crc_continued
from tidemill.kernels.intrinsics import jit
from tidemill.kernels.write.tables import O_CRC


@jit
def crc32(T, state, a, n):
    """Continue a CRC-32 (not complemented) over n bytes. T: the constant tables."""
    return crc_continued(T + O_CRC, state, a, n)
