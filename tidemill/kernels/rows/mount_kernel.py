"""The kernel that only mounts: it finds and checks every value of every row. Reference: `tidemill.tidb.rows.RowReader`."""

from __future__ import annotations

from tidemill.kernels.intrinsics import entry, jit, ld8, ld32, ld32s, ld64
from tidemill.kernels.rows import layout as L
from tidemill.kernels.rows.keys import key_fits
from tidemill.kernels.rows.locate import find, locate_row, place_map, place_of
from tidemill.kernels.write.values import value_fits
from tidemill.records import R_KEY, R_KEYLEN, R_OLD, R_OLDLEN, R_TABLE, R_VALLEN, R_VALUE, ROW_BYTES


@jit
def values_fit(table, S):
    """Return whether every value of the located row is valid."""
    cache = ld64(table + 8 * L.T_CACHE)
    kinds = ld64(table + 8 * L.T_KIND)
    offsets, data, large, last = place_map(cache)
    for slot in range(ld64(table + 8 * L.T_SLOTS)):
        place = place_of(cache, slot)
        if place == L.PLACE_NULL or place == L.PLACE_ABSENT:
            continue
        a, n = find(place, offsets, data, large, last, S)
        if n < 0 or not value_fits(ld8(kinds + slot), a, n):
            return False
    return True


@entry(5)
def mount_rows(i, n, rows, tables, S):
    """Check rows i to n - 1. Returns the first one that falls back to the reference, or n."""
    while i < n:
        row = rows + ROW_BYTES * i
        table = tables + L.TABLE_BYTES * ld32(row + R_TABLE)
        flags = ld64(table + 8 * L.T_FLAGS)
        value_len = ld32s(row + R_VALLEN)
        old_len = ld32s(row + R_OLDLEN)
        if flags & L.FLAG_SLOW or (value_len <= 0 and old_len <= 0):
            return i
        if not key_fits(table, flags, ld64(row + R_KEY), ld32s(row + R_KEYLEN), S):
            return i
        for image in range(2):
            size = old_len if image else value_len
            if size <= 0:
                continue
            if not locate_row(table, ld64(row + (R_OLD if image else R_VALUE)), size, S) or not values_fit(table, S):
                return i
        i += 1
    return n
