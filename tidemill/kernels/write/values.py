"""One value: stored bytes → text, by the column's `layout.ValueOp`. All writers return the end, or -1: fall back to the reference."""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import as_i, as_u, f32_bits, f64_bits, jit, ld32, st8
from tidemill.kernels.rows import layout as L
from tidemill.kernels.rows.changed import is_bytes
from tidemill.kernels.rows.locate import json_end
from tidemill.kernels.write.binary_json import w_json
from tidemill.kernels.write.numbers import bad_width, decimal_size, float_of, int_of, uint_of, w_decimal, w_float, w_i64, w_u64
from tidemill.kernels.write.tables import FLOAT_JSON, FLOAT_PLAIN
from tidemill.kernels.write.text import MODE_HTML, w_base64, w_escaped, w_quoted
from tidemill.kernels.write.times import MAX_DURATION, bad_time, no_day, w_date, w_datetime, w_duration, zone_shift

INFINITE32 = np.uint64(0x7F800000)


@jit
def w_stored_float(T, p, op, a, n, style, S):
    """Write FLOAT and DOUBLE."""
    if n != 8:
        return -1
    if op == L.OP_DOUBLE:
        return w_float(T, p, f64_bits(float_of(a)), False, style, S)
    return w_float(T, p, f32_bits(float_of(a)), True, style, S)


@jit
def w_vector(T, p, a, n, S):
    """Write VECTOR: a count and float32 numbers → [1,2.5,-3]."""
    if n < 4 or n != 4 + 4 * ld32(a):
        return -1
    st8(p, 91)
    p += 1
    for i in range(4, n, 4):
        bits = as_u(ld32(a + i))
        if (bits & INFINITE32) == INFINITE32:
            return -1
        if i > 4:
            st8(p, 44)
            p += 1
        p = w_float(T, p, bits, True, FLOAT_PLAIN, S)
    st8(p, 93)
    return p + 1


@jit
def w_plain(T, p, op, fsp, a, n, zone):
    """Write the values whose text needs no escapes: numbers and times."""
    if op == L.OP_DECIMAL:
        return w_decimal(T, p, a, n)
    if bad_width(n):
        return -1
    if op == L.OP_INT or op == L.OP_YEAR:
        return w_i64(p, int_of(a, n))
    if op == L.OP_UINT:
        return w_u64(p, uint_of(a, n))
    if op == L.OP_DURATION:
        nanoseconds = int_of(a, n)
        if nanoseconds > MAX_DURATION or nanoseconds < -MAX_DURATION:
            return -1
        return w_duration(T, p, nanoseconds, fsp)
    u = as_i(uint_of(a, n))
    if bad_time(u):
        return -1
    if op == L.OP_DATETIME:
        return w_datetime(T, p, u, fsp)
    if op == L.OP_DATE:
        return w_date(T, p, u >> 41)
    if op == L.OP_TIMESTAMP:
        if u:
            if no_day(u):
                return -1
            if zone:
                u = zone_shift(u, zone)
                if u < 0:
                    return -1
        return w_datetime(T, p, u, fsp)
    return -1


@jit
def w_json_value(T, p, op, fsp, a, n, zone, S):
    """Write the value as Open Protocol writes it, without quotation marks (they stand in the program)."""
    if op == L.OP_TEXT:
        return w_escaped(T, p, a, n, MODE_HTML, S)
    if op == L.OP_BLOB:
        return w_base64(T, p, a, n)
    if op == L.OP_DOUBLE or op == L.OP_FLOAT:
        return w_stored_float(T, p, op, a, n, FLOAT_JSON, S)
    if op == L.OP_QUOTED:
        return w_quoted(T, p, a, n, S)
    if op == L.OP_JSON:
        return w_json(T, p, a, n, S)
    if op == L.OP_VECTOR:
        return w_vector(T, p, a, n, S)
    return w_plain(T, p, op, fsp, a, n, zone)


@jit
def value_fits(op, a, n):
    """Return whether n bytes can be a value of this kind. Checks sizes and the parts of times, not the inside of decimals and documents."""
    if is_bytes(op):
        return True
    if op == L.OP_DOUBLE or op == L.OP_FLOAT:
        return n == 8
    if op == L.OP_DECIMAL:
        return decimal_size(a, n) == n
    if op == L.OP_JSON:
        return json_end(a, a + n) == a + n
    if op == L.OP_VECTOR:
        return n >= 4 and n == 4 + 4 * ld32(a)
    if op == L.OP_UNKNOWN or bad_width(n):
        return False
    if op == L.OP_DATE or op == L.OP_DATETIME or op == L.OP_TIMESTAMP:
        u = as_i(uint_of(a, n))
        return not bad_time(u) and (op != L.OP_TIMESTAMP or u == 0 or not no_day(u))
    return True
