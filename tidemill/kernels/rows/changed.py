"""Comparing two stored values of a column. Shared by the kernels that compare images."""

from __future__ import annotations

from tidemill.kernels.intrinsics import jit
from tidemill.kernels.rows import layout as L
from tidemill.kernels.write.numbers import bad_width, int_of, uint_of

SAME, CHANGED, ASK = 0, 1, 2
"""Answers of a comparison. ASK: the reference has to decide."""


@jit
def is_bytes(op):
    """Return whether values of this kind are equal only if their stored bytes are."""
    return op == L.OP_TEXT or op == L.OP_QUOTED or op == L.OP_BLOB


@jit
def is_integer(op):
    """Return whether `integer_changed` compares such values."""
    return op == L.OP_INT or op == L.OP_YEAR or op == L.OP_UINT


@jit
def integer_changed(op, a, n, b, m):
    """Return SAME, CHANGED or ASK for two integers, of n bytes at a and of m bytes at b. One number can be stored in several widths."""
    if bad_width(n) or bad_width(m):
        return ASK
    if op == L.OP_UINT:
        return SAME if uint_of(a, n) == uint_of(b, m) else CHANGED
    return SAME if int_of(a, n) == int_of(b, m) else CHANGED
