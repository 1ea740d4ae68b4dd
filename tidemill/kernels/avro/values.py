"""Values in Avro's binary encoding. All writers return the end, or -1: fall back to the reference, `tidemill.protocols.avro.encode`.

`p` has room for 64 bytes more than the value takes; `a` and `n` are the stored bytes.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.avro import layout as A
from tidemill.kernels.intrinsics import (
    as_i,
    as_u,
    bswap64,
    clz,
    ctz,
    f32_bits,
    f64_bits,
    jit,
    ld32s,
    ld64,
    ldu64,
    memcpy,
    memmove,
    put,
    put_exact_source,
    st8,
    st16,
    st32,
    st64,
)  # fmt: skip
from tidemill.kernels.write.documents import w_json_text
from tidemill.kernels.write.numbers import bad_width, float_of, int_of, uint_of
from tidemill.kernels.write.unscaled import unscaled
from tidemill.kernels.write.values import w_plain, w_vector

U0, U1, U2, U4, U7, U8, U9 = (np.uint64(i) for i in (0, 1, 2, 4, 7, 8, 9))
LOW28, HIGH28 = np.uint64(0x000000000FFFFFFF), np.uint64(0x00FFFFFFF0000000)
LOW14, HIGH14 = np.uint64(0x00003FFF00003FFF), np.uint64(0x0FFFC0000FFFC000)
LOW7, HIGH7 = np.uint64(0x007F007F007F007F), np.uint64(0x3F803F803F803F80)
MORE = np.uint64(0x8080808080808080)
U7F, U56, TOP_BIT = np.uint64(0x7F), np.uint64(56), np.uint64(0x80)

FLOAT_SPECIAL, DOUBLE_SPECIAL = np.uint64(0x7F800000), np.uint64(0x7FF0000000000000)
SHORT_TEXT = 64  # a shorter text has one byte of length
TEXT_GAP = 16  # a vector's text is first written this far after its place


@jit
def w_varint(p, u):
    """Write u, which is zig-zagged, seven bits a byte. There is no branch below 2^56, because the numbers of a column differ in size."""
    if (u >> U56) != U0:
        rest = u >> U56
        more = rest >> U7
        st64(p, spread(u) | MORE)
        st8(p + 8, rest & U7F | more << U7)
        st8(p + 9, more)
        return p + 9 + as_i(more)
    size = as_i(as_u(70 - clz(u | U1)) // U7)
    st64(p, spread(u) | (MORE & ((U1 << as_u(8 * size - 8)) - U1)))
    return p + size


@jit
def spread(u):
    """Return the low 56 bits spread over eight bytes, seven bits each, the lowest first."""
    u = (u & LOW28) | (u & HIGH28) << U4
    u = (u & LOW14) | (u & HIGH14) << U2
    return (u & LOW7) | (u & HIGH7) << U1


@jit
def zigzag(v):
    """Return an int64 zig-zagged."""
    return as_u((v << 1) ^ (v >> 63))


@jit
def w_size(p, n):
    """Write the length of text or bytes."""
    return w_varint(p, as_u(n << 1))


@jit
def sized_behind(p, end):
    """Put the size before a text of less than 8192 bytes at p + 1. Returns the end."""
    n = end - p - 1
    if n < SHORT_TEXT:
        st8(p, n << 1)
        return end
    memmove(p + 2, p + 1, n)
    st16(p, (n << 1 & 127) | 128 | n >> 6 << 8)
    return end + 1


@jit
def w_document(T, p, a, n, S):
    """Write binary JSON as text. The length of the text mostly takes as many bytes as that of the document."""
    guess = w_size(p, n)
    end = w_json_text(T, guess, a, n, S)
    if end < 0:
        return -1
    size = end - guess
    after = w_size(S, size) - S + p
    if after != guess:
        memmove(after, guess, size)
    w_size(S, size)
    memcpy(p, S, after - p)
    return after + size


@jit
def w_vector_text(T, p, a, n, S):
    """Write a VECTOR as its text."""
    start = p + TEXT_GAP
    end = w_vector(T, start, a, n, S)
    if end < 0:
        return -1
    q = w_size(p, end - start)
    memmove(q, start, end - start)
    return q + end - start


# ------------------------------------------------------------------ numbers


@jit
def w_bit(p, u):
    """Write a number big-endian without leading zeros, at least one byte."""
    size = (71 - clz(u | U1)) >> 3
    st8(p, size << 1)
    st64(p + 1, bswap64(u << as_u(64 - 8 * size)))
    return p + 1 + size


@jit
def signed_size(v):
    """Return how many bytes an int64 takes."""
    return ((64 - clz(as_u(v ^ (v >> 63)))) >> 3) + 1


@jit
def w_narrow(p, v):
    """Write an int64 big-endian in as few bytes as hold it."""
    size = signed_size(v)
    st8(p, size << 1)
    st64(p + 1, bswap64(as_u(v) << as_u(64 - 8 * size)))
    return p + 1 + size


@jit
def w_wide(p, limbs, count):
    """Write limbs as one number, big-endian, in as few bytes as hold it."""
    top = count - 1
    sign = ld64(limbs + 8 * top) >> 63
    while top > 0 and ld64(limbs + 8 * top) == sign and ld64(limbs + 8 * top - 8) >> 63 == sign:
        top -= 1
    v = ld64(limbs + 8 * top)
    size = signed_size(v)
    st8(p, (size + 8 * top) << 1)
    st64(p + 1, bswap64(as_u(v) << as_u(64 - 8 * size)))
    p += 1 + size
    while top > 0:
        top -= 1
        st64(p, bswap64(ldu64(limbs + 8 * top)))
        p += 8
    return p


@jit
def w_unscaled(T, p, a, n, scale, S):
    """Write a stored decimal of `scale` digits of fraction as its unscaled number. S: 32 bytes of scratch."""
    limbs, v = unscaled(T, a, n, scale, S)
    if limbs < 0:
        return -1
    return w_narrow(p, v) if limbs == 0 else w_wide(p, S, limbs)


# ------------------------------------------------------------------ members


@jit
def w_member(p, table, count, index):
    """Write an element of an ENUM by its index. Its size and text are ready-made."""
    if index > as_u(count):
        return -1
    pair = table + 8 * as_i(index)
    return put(p, table + ld32s(pair), ld32s(pair + 4))


@jit
def w_members(p, table, count, mask):
    """Write the elements of a SET, joined by commas."""
    if count < 64 and (mask >> as_u(count)) != U0:
        return -1
    size = 0
    rest = mask
    while rest != U0:
        size += ld32s(table + 8 * ctz(rest) + 4) + 1
        rest &= rest - U1
    p = w_size(p, size - 1 if size else 0)
    rest = mask
    while rest != U0:
        pair = table + 8 * ctz(rest)
        p = put(p, table + ld32s(pair), ld32s(pair + 4))
        rest &= rest - U1
        if rest != U0:
            st8(p, 44)
            p += 1
    return p


# ------------------------------------------------------------------ any value


@jit
def w_number(p, op, field, pool, a, n):
    """Write a value that is stored as an integer."""
    if bad_width(n):
        return -1
    if op == A.OP_INT:
        return w_varint(p, zigzag(int_of(a, n)))
    u = uint_of(a, n)
    if op == A.OP_UINT:
        return w_varint(p, zigzag(as_i(u)))
    if op == A.OP_BIT:
        return w_bit(p, u)
    table = pool + ld32s(field + 4 * A.F_MEMBERS)
    count = ld32s(field + 4 * A.F_MEMBER_COUNT)
    return w_member(p, table, count, u) if op == A.OP_ENUM else w_members(p, table, count, u)


@jit
def w_float_bits(p, op, a, n):
    """Write FLOAT and DOUBLE; NaN and infinities are 0."""
    if n != 8:
        return -1
    if op == A.OP_DOUBLE:
        bits = f64_bits(float_of(a))
        st64(p, U0 if bits & DOUBLE_SPECIAL == DOUBLE_SPECIAL else bits)
        return p + 8
    bits = f32_bits(float_of(a))
    st32(p, U0 if bits & FLOAT_SPECIAL == FLOAT_SPECIAL else bits)
    return p + 4


@jit
def w_avro_value(T, p, op, field, pool, a, n, zone, S):
    """Write the value of a field that is not null, without its branch."""
    if op == A.OP_BYTES:
        return put_exact_source(w_size(p, n), a, n)
    if op == A.OP_PLAIN_TEXT:
        end = w_plain(T, p + 1, ld32s(field + 4 * A.F_STORED), ld32s(field + 4 * A.F_DIGITS), a, n, zone)
        return sized_behind(p, end) if end >= 0 else -1
    if op == A.OP_DOUBLE or op == A.OP_FLOAT:
        return w_float_bits(p, op, a, n)
    if op == A.OP_DECIMAL:
        return w_unscaled(T, p, a, n, ld32s(field + 4 * A.F_DIGITS), S)
    if op == A.OP_JSON:
        return w_document(T, p, a, n, S)
    if op == A.OP_VECTOR:
        return w_vector_text(T, p, a, n, S)
    if op == A.OP_UNKNOWN:
        return -1
    return w_number(p, op, field, pool, a, n)
