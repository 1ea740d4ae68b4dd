"""Row checksums: verifying a stored one, and the sum over the columns of a message.

References: `tidemill.tidb.rows.checksum`, `tidemill.protocols.avro.encode.AvroTable.row_sum`. Only versions 1 and 2, over the row's
bytes, are handled here. A row with another version, or a broken or wrong checksum, falls back to the reference.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.avro import layout as A
from tidemill.kernels.intrinsics import as_u, f64_bits, jit, ld8, ld16, ld32, ld32s, ld64, st8, st32, st64
from tidemill.kernels.rows import layout as L
from tidemill.kernels.rows.changed import is_bytes
from tidemill.kernels.rows.locate import find, place_map, place_of
from tidemill.kernels.write.crc import crc32
from tidemill.kernels.write.numbers import float_of, int_of, uint_of, w_u64
from tidemill.kernels.write.values import w_plain

WITH_CHECKSUM, LARGE = 2, 1  # flags of row format 2
VERSION_BITS, EXTRA_BIT = 7, 8  # of a trailer's first byte
ROW_AND_KEY, ROW_AND_HANDLE = 1, 2
HANDLE_AT = 11
FORMAT_2 = 0x80
ALL_ONES = 0xFFFFFFFF
DOUBLE_SPECIAL = np.uint64(0x7FF0000000000000)
NONE, FITS, REFERENCE = 0, 1, 2


@jit
def has_checksum(a, n):
    """Return whether a row value's flags announce a checksum."""
    return n >= 2 and ld8(a) == FORMAT_2 and (ld8(a + 1) & WITH_CHECKSUM) != 0


@jit
def trailer(a, n):
    """Return the address of the checksum of the row value at a, or -1 if the value's end does not fit."""
    if n < 6:
        return -1
    flags = ld8(a + 1)
    not_null = ld16(a + 2)
    count = not_null + ld16(a + 4)
    wide = flags & LARGE
    data = 6 + (count << 2 if wide else count) + (not_null << 2 if wide else not_null << 1)
    if data > n:
        return -1
    at = data
    if not_null:
        at += ld32(a + data - 4) if wide else ld16(a + data - 2)
    if n - at < 5 or n - at != (9 if ld8(a + at) & EXTRA_BIT else 5):
        return -1
    return a + at


@jit
def verdict(T, a, n, key, key_len):
    """Return NONE (the row value has no checksum), FITS (it is right) or REFERENCE (it is wrong, or the reference has to decide)."""
    if not has_checksum(a, n):
        return NONE
    at = trailer(a, n)
    if at < 0:
        return REFERENCE
    version = ld8(at) & VERSION_BITS
    if version != ROW_AND_KEY and version != ROW_AND_HANDLE:
        return REFERENCE
    state = crc32(T, ALL_ONES, a, at + 1 - a)
    skip = 0 if version == ROW_AND_KEY else HANDLE_AT
    state = crc32(T, state, key + skip, key_len - skip) ^ ALL_ONES
    if state == ld32(at + 1) or (ld8(at) & EXTRA_BIT and state == ld32(at + 5)):
        return FITS
    return REFERENCE


@jit
def size_at(p):
    """Return (length, address after it) of a text in a message."""
    c = ld8(p)
    value = c & 127
    shift = 7
    p += 1
    while c >= 128:
        c = ld8(p)
        value |= (c & 127) << shift
        shift += 7
        p += 1
    return value >> 1, p


@jit
def float_word(stored, a):
    """Return a FLOAT or DOUBLE as the double that is summed."""
    number = float_of(a)
    if stored == L.OP_FLOAT:
        number = np.float64(np.float32(number))
    bits = f64_bits(number)
    return np.uint64(0) if bits & DOUBLE_SPECIAL == DOUBLE_SPECIAL else bits


@jit
def sum_text(T, state, a, n, S):
    """Return the state after a text and, before it, its length."""
    st32(S, n)
    return crc32(T, crc32(T, state, S, 4), a, n)


@jit
def sum_value(T, state, stored, field, a, n, p, zone, S):
    """Return the state after a column that is not NULL: n stored bytes at a, its value in the message at p. -1: fall back."""
    if stored == L.OP_INT or stored == L.OP_YEAR:
        st64(S, int_of(a, n))
        return crc32(T, state, S, 8)
    if stored == L.OP_UINT:
        st64(S, uint_of(a, n))
        return crc32(T, state, S, 8)
    if stored == L.OP_FLOAT or stored == L.OP_DOUBLE:
        st64(S, float_word(stored, a))
        return crc32(T, state, S, 8)
    if is_bytes(stored):
        return sum_text(T, state, a, n, S)
    if stored == L.OP_VECTOR:
        return crc32(T, state, a, n)
    if ld32s(field + 4 * A.F_OP) == A.OP_DECIMAL:
        return -1
    if stored == L.OP_TIMESTAMP and zone:  # summed in UTC
        text = S + L.TEXT_AT
        end = w_plain(T, text, stored, ld32s(field + 4 * A.F_DIGITS), a, n, 0)
        return sum_text(T, state, text, end - text, S) if end >= 0 else -1
    size, p = size_at(p)
    return sum_text(T, state, p, size, S)


@jit
def behind(op, p):
    """Return the address after a value in a message."""
    if op == A.OP_FLOAT:
        return p + 4
    if op == A.OP_DOUBLE:
        return p + 8
    size, after = size_at(p)
    return after if op == A.OP_INT or op == A.OP_UINT else after + size


@jit
def columns_sum(T, p, table, avro, S):
    """Return the sum over all columns of the row that was located, whose value's fields begin at p. -1: fall back to the reference."""
    fields = ld64(avro + 8 * A.A_FIELDS)
    pool = ld64(avro + 8 * A.A_POOL)
    zone = ld64(table + 8 * L.T_ZONE)
    cache = ld64(table + 8 * L.T_CACHE)
    offsets, data, large, last = place_map(cache)
    state = ALL_ONES
    fields += A.FIELD_BYTES * ld64(avro + 8 * A.A_KEY_COUNT)
    for i in range(ld64(avro + 8 * A.A_COUNT)):
        field = fields + A.FIELD_BYTES * i
        place = place_of(cache, ld32s(field + 4 * A.F_SLOT))
        if place == L.PLACE_NULL:
            p += 1
        elif place == L.PLACE_ABSENT:
            p += ld32s(field + 4 * A.F_ABSENT_LEN)
            state = crc32(T, state, pool + ld32s(field + 4 * A.F_ABSENT_SUM), ld32s(field + 4 * A.F_ABSENT_SUM_LEN))
        else:
            a, n = find(place, offsets, data, large, last, S)
            p += ld32s(field + 4 * A.F_BRANCH_LEN)
            state = sum_value(T, state, ld32s(field + 4 * A.F_STORED), field, a, n, p, zone, S)
            if state < 0:
                return -1
            p = behind(ld32s(field + 4 * A.F_OP), p)
    return state ^ ALL_ONES


@jit
def w_checksum(T, p, fields, table, avro, key, key_len, a, n, old, old_len, S):
    """Write the fields of the row checksum. `fields`: where the value's begin. -1: fall back to the reference."""
    before = verdict(T, old, old_len, key, key_len)
    now = verdict(T, a, n, key, key_len)
    if before == REFERENCE or now == REFERENCE or (now == NONE and before != NONE):
        return -1
    if now == NONE:
        st64(p, 0)  # no text, false, version 0
        return p + 3
    total = columns_sum(T, fields, table, avro, S)
    if total < 0:
        return -1
    end = w_u64(p + 1, as_u(total))
    st8(p, (end - p - 1) << 1)
    st8(end, 0)
    st8(end + 1, (ld8(trailer(a, n)) & VERSION_BITS) << 1)
    return end + 2
