"""The text of a common handle in CSV: its datums in braces. Reference: `tidemill.protocols.csv.handles`."""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import f64_bits, jit, ld8, ld64, ldu64, put_exact_source, st8, st16
from tidemill.kernels.rows import layout as L
from tidemill.kernels.write.numbers import float_of, w_decimal, w_float, w_i64, w_u64
from tidemill.kernels.write.tables import FLOAT_PLAIN
from tidemill.kernels.write.times import MAX_DURATION, w_duration

FULL_FSP = 6
EXPONENT = np.uint64(0x7FF0000000000000)
BRACE, END_BRACE, COMMA = 123, 125, 0x202C
NUMBER_ROOM = 400  # most bytes of a number or time


@jit
def w_datum(T, p, op, a, n, S):
    """Write the datum of a column of this kind, n bytes at a in the form of row format 2; -1: fall back to the reference."""
    if op == L.OP_TEXT or op == L.OP_QUOTED or op == L.OP_BLOB:
        return put_exact_source(p, a, n)
    if op == L.OP_DECIMAL:
        return w_decimal(T, p, a, n)
    if op == L.OP_FLOAT or op == L.OP_DOUBLE:
        bits = f64_bits(float_of(a))
        return -1 if bits & EXPONENT == EXPONENT else w_float(T, p, bits, False, FLOAT_PLAIN, S)
    if op == L.OP_DURATION:
        nanoseconds = ld64(a)
        if nanoseconds > MAX_DURATION or nanoseconds < -MAX_DURATION:
            return -1
        return w_duration(T, p, nanoseconds, FULL_FSP)
    if op == L.OP_INT or op == L.OP_YEAR:
        return w_i64(p, ld64(a))
    return w_u64(p, ldu64(a))


@jit
def w_handle(T, p, kinds, count, S):
    """Write {a, b} of the `count` columns of the handle that was located; -1: fall back to the reference."""
    st8(p, BRACE)
    p += 1
    for i in range(count):
        if i:
            st16(p, COMMA)
            p += 2
        pair = S + L.FOUND_AT + 16 * i
        p = w_datum(T, p, ld8(kinds + i), ld64(pair), ld64(pair + 8), S)
        if p < 0:
            return -1
    st8(p, END_BRACE)
    return p + 1
