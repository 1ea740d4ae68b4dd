"""The record key of a row. Reference: `tidemill.tidb.keys.parse_record_key`."""

from __future__ import annotations

from tidemill.kernels.intrinsics import as_i, bswap64, jit, ld8, ld16, ldu64
from tidemill.kernels.rows.layout import FLAG_COMMON
from tidemill.kernels.rows.locate import found_handle, locate_key
from tidemill.kernels.write.numbers import SIGN64


@jit
def key_fits(table, flags, key, key_len, S):
    """Check that the record key fits the table's kind of handle, and note the handle for `find`. False: fall back to the reference."""
    if key_len < 19 or ld8(key) != 0x74 or ld16(key + 9) != 0x725F:
        return False
    if flags & FLAG_COMMON:
        return key_len > 19 and locate_key(table, key, key_len, S)
    if key_len != 19:
        return False
    found_handle(S, as_i(bswap64(ldu64(key + 11)) ^ SIGN64))
    return True
