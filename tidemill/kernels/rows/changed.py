"""Whether two stored values of a column are the same value: what the kernels that compare images share."""

from __future__ import annotations

from tidemill.kernels.intrinsics import jit
from tidemill.kernels.rows import layout as L
from tidemill.kernels.write.numbers import bad_width, int_of, uint_of

SAME, CHANGED, ASK = 0, 1, 2
"""Answers of a comparison. ASK: the reference has to decide."""


@jit
def is_bytes(op):
    """Whether a value is its stored bytes, so that equal values have equal bytes."""
    return op == L.OP_TEXT or op == L.OP_QUOTED or op == L.OP_BLOB


@jit
def is_integer(op):
    """Whether `integer_changed` compares such values."""
    return op == L.OP_INT or op == L.OP_YEAR or op == L.OP_UINT


@jit
def integer_changed(op, a, n, b, m):
    """SAME, CHANGED or ASK for two integers, of n bytes at a and of m bytes at b. One number can be stored in several widths."""
    if bad_width(n) or bad_width(m):
        return ASK
    if op == L.OP_UINT:
        return SAME if uint_of(a, n) == uint_of(b, m) else CHANGED
    return SAME if int_of(a, n) == int_of(b, m) else CHANGED
