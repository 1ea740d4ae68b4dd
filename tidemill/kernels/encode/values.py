"""One value: stored bytes → text, by what the column is (`layout.ValueOp`). All writers return the end, or -1: for the reference."""

from __future__ import annotations

import numpy as np

from tidemill.kernels.encode.binary_json import w_json
from tidemill.kernels.encode.layout import (
    OP_BLOB,
    OP_DATE,
    OP_DATETIME,
    OP_DECIMAL,
    OP_DOUBLE,
    OP_DURATION,
    OP_FLOAT,
    OP_INT,
    OP_JSON,
    OP_QUOTED,
    OP_TEXT,
    OP_TIMESTAMP,
    OP_UINT,
    OP_VECTOR,
    OP_YEAR,
)  # fmt: skip
from tidemill.kernels.encode.numbers import FLOAT_JSON, FLOAT_PLAIN, bad_width, float_of, int_of, uint_of, w_decimal, w_float, w_i64, w_u64
from tidemill.kernels.encode.text import MODE_HTML, w_base64, w_escaped, w_quoted
from tidemill.kernels.encode.times import MAX_DURATION, bad_time, no_day, w_date, w_datetime, w_duration, zone_shift
from tidemill.kernels.intrinsics import as_i, as_u, f32_bits, f64_bits, jit, ld32, put_exact_source, spliced, st8

INFINITE32 = np.uint64(0x7F800000)


@jit
def w_stored_float(T, p, op, a, n, style, S):
    """FLOAT and DOUBLE."""
    if n != 8:
        return -1
    if op == OP_DOUBLE:
        return w_float(T, p, f64_bits(float_of(a)), False, style, S)
    return w_float(T, p, f32_bits(float_of(a)), True, style, S)


@jit
def w_vector(T, p, a, n, S):
    """VECTOR: a count and float32 numbers → [1,2.5,-3]."""
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
    """Values whose text needs no escapes: numbers and times."""
    if op == OP_DECIMAL:
        return w_decimal(p, a, n)
    if bad_width(n):
        return -1
    if op == OP_INT or op == OP_YEAR:
        return w_i64(p, int_of(a, n))
    if op == OP_UINT:
        return w_u64(p, uint_of(a, n))
    if op == OP_DURATION:
        nanoseconds = int_of(a, n)
        if nanoseconds > MAX_DURATION or nanoseconds < -MAX_DURATION:
            return -1
        return w_duration(T, p, nanoseconds, fsp)
    u = as_i(uint_of(a, n))
    if bad_time(u):
        return -1
    if op == OP_DATETIME:
        return w_datetime(T, p, u, fsp)
    if op == OP_DATE:
        return w_date(T, p, u >> 41)
    if op == OP_TIMESTAMP:
        if u:
            if no_day(u):
                return -1
            if zone:
                u = zone_shift(u, zone)
                if u < 0:
                    return -1
        return w_datetime(T, p, u, fsp)
    return -1


@spliced
def w_json_value(T, p, op, fsp, a, n, zone, S):
    """The value as Open Protocol writes it, without quotation marks (they stand in the program)."""
    if op == OP_TEXT:
        return w_escaped(T, p, a, n, MODE_HTML, S)
    if op == OP_BLOB:
        return w_base64(T, p, a, n)
    if op == OP_DOUBLE or op == OP_FLOAT:
        return w_stored_float(T, p, op, a, n, FLOAT_JSON, S)
    if op == OP_QUOTED:
        return w_quoted(T, p, a, n, S)
    if op == OP_JSON:
        return w_json(T, p, a, n, True, S)
    if op == OP_VECTOR:
        return w_vector(T, p, a, n, S)
    return w_plain(T, p, op, fsp, a, n, zone)


@spliced
def w_text_value(T, p, op, fsp, a, n, zone, S):
    """The value as plain text, as dispatchers hash it: bytes as they are, floats without exponent."""
    if op == OP_TEXT or op == OP_BLOB or op == OP_QUOTED:
        return put_exact_source(p, a, n)
    if op == OP_DOUBLE or op == OP_FLOAT:
        return w_stored_float(T, p, op, a, n, FLOAT_PLAIN, S)
    if op == OP_JSON:
        return w_json(T, p, a, n, False, S)
    if op == OP_VECTOR:
        return w_vector(T, p, a, n, S)
    return w_plain(T, p, op, fsp, a, n, zone)
