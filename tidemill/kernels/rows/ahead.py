"""Asks for the memory of the rows that come next, while one is encoded: rows of a chunk lie all over the log, and so do tables."""

from __future__ import annotations

from tidemill.kernels.intrinsics import jit, ld32, ld64, prefetch
from tidemill.kernels.rows import layout as L
from tidemill.records import R_OLD, R_TABLE, R_VALUE, ROW_BYTES

FAR, NEAR = 4, 2
"""How many rows ahead: the table's words and the row's bytes first, then what the words point to."""


@jit
def ask_ahead(i, n, rows, tables):
    """Prefetch for rows i + NEAR and i + FAR of n."""
    if i + FAR < n:
        row = rows + ROW_BYTES * (i + FAR)
        table = tables + L.TABLE_BYTES * ld32(row + R_TABLE)
        value = ld64(row + R_VALUE)
        old = ld64(row + R_OLD)
        for line in range(0, 192, 64):
            prefetch(table + line)
            prefetch(value + line)
            prefetch(old + line)
    if i + NEAR < n:
        table = tables + L.TABLE_BYTES * ld32(rows + ROW_BYTES * (i + NEAR) + R_TABLE)
        cache = ld64(table + 8 * L.T_CACHE)
        for line in range(0, 192, 64):
            prefetch(cache + line)
        prefetch(ld64(table + 8 * L.T_KEY_HEAD))
        prefetch(ld64(table + 8 * L.T_COLUMNS))
