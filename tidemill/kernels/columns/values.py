"""Values in Arrow's layout. Reference: `tidemill.tidb.columns.values`.

Writers of values of one size take the place of the value, and return OK, UNFIT (the Arrow type cannot have it) or BAD (fall back to the
reference). Writers of other values take the place where the column ends and return its new end, or BAD.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.columns import layout as C
from tidemill.kernels.intrinsics import (
    as_i,
    as_u,
    ctz,
    f32_bits,
    f64_bits,
    jit,
    ld8,
    ld32,
    ld32s,
    ld64,
    memcpy,
    put,
    put_exact_source,
    st8,
    st16,
    st32,
    st64,
)
from tidemill.kernels.rows import layout as L
from tidemill.kernels.write.documents import w_json_text
from tidemill.kernels.write.numbers import bad_width, float_of, int_of, uint_of
from tidemill.kernels.write.times import MAX_DURATION, bad_time, days_of, no_day
from tidemill.kernels.write.unscaled import unscaled
from tidemill.kernels.write.values import w_plain

OK, UNFIT, BAD = 0, -2, -1
U0, U1 = np.uint64(0), np.uint64(1)
FLOAT_SPECIAL, DOUBLE_SPECIAL = np.uint64(0x7F800000), np.uint64(0x7FF0000000000000)
DAY_US = 86_400_000_000


@jit
def w_integer(p, stored, width, a, n):
    """Write an integer of 1, 2, 4 or 8 bytes."""
    if bad_width(n):
        return BAD
    if stored == L.OP_UINT:
        v = as_i(uint_of(a, n))
        if v < 0:
            return UNFIT
    else:
        v = int_of(a, n)
    if width == 8:
        st64(p, v)
        return OK
    shift = 64 - 8 * width
    if (v << shift) >> shift != v:
        return UNFIT
    if width == 4:
        st32(p, v)
    elif width == 2:
        st16(p, v)
    else:
        st8(p, v)
    return OK


@jit
def w_unsigned(p, a, n):
    """Write an unsigned number as a decimal128."""
    if bad_width(n):
        return BAD
    st64(p, uint_of(a, n))
    st64(p + 8, 0)
    return OK


@jit
def w_floating(p, form, a, n):
    """Write FLOAT and DOUBLE; NaN and infinities are 0."""
    if n != 8:
        return BAD
    if form == C.F_DOUBLE:
        bits = f64_bits(float_of(a))
        st64(p, U0 if bits & DOUBLE_SPECIAL == DOUBLE_SPECIAL else bits)
        return OK
    bits = f32_bits(float_of(a))
    st32(p, U0 if bits & FLOAT_SPECIAL == FLOAT_SPECIAL else bits)
    return OK


@jit
def w_decimal128(T, p, column, a, n, S):
    """Write a decimal. One that is stored with more digits than its column has falls back to the reference."""
    limbs, v = unscaled(T, a, n, ld32s(column + 4 * C.C_SCALE), S)
    if limbs < 0 or ld32s(column + 4 * C.C_DIGITS) < ld8(a):
        return BAD
    if limbs == 0:
        st64(p, v)
        st64(p + 8, v >> 63)
    else:
        st64(p, ld64(S))
        st64(p + 8, ld64(S + 8))
    return OK


@jit
def w_day(p, a, n):
    """Write a DATE as days since 1970-01-01."""
    if bad_width(n):
        return BAD
    u = as_i(uint_of(a, n))
    if bad_time(u):
        return BAD
    if no_day(u):
        return UNFIT
    st32(p, days_of(u >> 41))
    return OK


@jit
def w_moment(p, stored, step, a, n):
    """Write a DATETIME or TIMESTAMP as microseconds since 1970-01-01 00:00:00."""
    if bad_width(n):
        return BAD
    u = as_i(uint_of(a, n))
    if bad_time(u):
        return BAD
    if no_day(u):
        return BAD if stored == L.OP_TIMESTAMP and u != 0 else UNFIT
    v = u >> 24
    second = ((v >> 12) & 31) * 3600 + ((v >> 6) & 63) * 60 + (v & 63)
    micro = u & 0xFFFFFF
    st64(p, days_of(v >> 17) * DAY_US + second * 1_000_000 + micro - micro % step)
    return OK


@jit
def w_interval(p, step, a, n):
    """Write a TIME as microseconds."""
    if bad_width(n):
        return BAD
    v = int_of(a, n)
    if v > MAX_DURATION or v < -MAX_DURATION:
        return BAD
    minus = v >> 63
    micro = ((v ^ minus) - minus) // 1000
    micro -= micro % step
    st64(p, (micro ^ minus) - minus)
    return OK


@jit
def w_fixed(T, p, form, column, a, n, S):
    """Write a value of a column whose values have one size."""
    if form == C.F_INTEGER:
        return w_integer(p, ld32s(column + 4 * C.C_STORED), ld32s(column + 4 * C.C_WIDTH), a, n)
    if form == C.F_UNSIGNED:
        return w_unsigned(p, a, n)
    if form == C.F_DECIMAL:
        return w_decimal128(T, p, column, a, n, S)
    if form == C.F_MOMENT:
        return w_moment(p, ld32s(column + 4 * C.C_STORED), ld32s(column + 4 * C.C_STEP), a, n)
    if form == C.F_DATE:
        return w_day(p, a, n)
    if form == C.F_INTERVAL:
        return w_interval(p, ld32s(column + 4 * C.C_STEP), a, n)
    return w_floating(p, form, a, n)


@jit
def w_element(p, table, count, a, n):
    """Write the name of an ENUM's element."""
    if bad_width(n):
        return BAD
    index = uint_of(a, n)
    if index > as_u(count):
        return BAD
    pair = table + 8 * as_i(index)
    return put(p, table + ld32s(pair), ld32s(pair + 4))


@jit
def w_elements(p, table, count, a, n):
    """Write the names of a SET's elements, joined by commas."""
    if bad_width(n):
        return BAD
    rest = uint_of(a, n)
    if count < 64 and (rest >> as_u(count)) != U0:
        return BAD
    while rest != U0:
        pair = table + 8 * ctz(rest)
        p = put(p, table + ld32s(pair), ld32s(pair + 4))
        rest &= rest - U1
        if rest != U0:
            st8(p, 44)
            p += 1
    return p


@jit
def w_vector_elements(p, a, n):
    """Write the numbers of a VECTOR."""
    if n < 4 or n != 4 + 4 * ld32(a):
        return BAD
    for i in range(4, n, 4):
        if (as_u(ld32(a + i)) & FLOAT_SPECIAL) == FLOAT_SPECIAL:
            return BAD
    memcpy(p, a + 4, n - 4)
    return p + n - 4


@jit
def room_for(form, column, n):
    """Return the most bytes that a value of n stored bytes takes."""
    if form == C.F_BYTES or form == C.F_VECTOR:
        return n
    if form == C.F_JSON:
        return 16 * n + 256
    return ld32s(column + 4 * C.C_MEMBER_ROOM)


@jit
def w_sized(T, p, form, column, pool, a, n, S):
    """Write a value of a column whose values differ in size."""
    if form == C.F_BYTES:
        return put_exact_source(p, a, n)
    if form == C.F_JSON:
        return w_json_text(T, p, a, n, S)
    if form == C.F_VECTOR:
        return w_vector_elements(p, a, n)
    if form == C.F_ENUM:
        return w_element(p, pool + ld32s(column + 4 * C.C_MEMBERS), ld32s(column + 4 * C.C_MEMBER_COUNT), a, n)
    if form == C.F_SET:
        return w_elements(p, pool + ld32s(column + 4 * C.C_MEMBERS), ld32s(column + 4 * C.C_MEMBER_COUNT), a, n)
    return w_plain(T, p, ld32s(column + 4 * C.C_STORED), ld32s(column + 4 * C.C_FSP), a, n, 0)
