"""ROW records → what the Drainer's messages have of each row: an Event of a file, or a TableMutation of a Kafka message, with its tag and
length. Reference: `tidemill.binlog.outputs.pb` and `.slave`.

A length stands before what it counts: room for it is left, and what follows is moved where it takes another.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.binlog.layout import (
    C_ABSENT,
    C_FSP,
    C_HOW,
    C_NULL,
    C_PREFIX,
    C_PREFIX_LEN,
    C_SLOT,
    C_STORED,
    C_TAG,
    C_WIDTH,
    COLUMN_BYTES,
    FILE,
    HOW_BIT,
    HOW_BYTES,
    HOW_FLOAT,
    HOW_SIGNED,
    HOW_TEXT,
    HOW_UNSIGNED,
    M_ENDS,
    M_FORM,
    M_OUT,
    M_OUT_SIZE,
    M_OUT_USED,
    M_OUTCOME,
    M_READY,
    M_READY_LEN,
    X_BYTES,
    X_COLUMNS,
    X_COUNT,
    X_FIXED,
    X_HEADS,
    X_POOL,
    X_ROOM,
)
from tidemill.kernels.canal.columns import varint_size
from tidemill.kernels.intrinsics import (
    as_i,
    as_u,
    bswap64,
    entry,
    f64_bits,
    jit,
    ld32,
    ld32s,
    ld64,
    memcpy,
    memmove,
    st8,
    st64,
)
from tidemill.kernels.rows import layout as L
from tidemill.kernels.rows.locate import find, invalidate, place_map, place_of
from tidemill.kernels.templates.layout import NEW, OLD
from tidemill.kernels.templates.template_kernel import located
from tidemill.kernels.wire import w_varint
from tidemill.kernels.write.documents import w_json_text
from tidemill.kernels.write.numbers import SIGN64, bad_width, float_of, int_of, uint_of
from tidemill.kernels.write.values import w_plain, w_vector
from tidemill.records import R_KEYLEN, R_OLDLEN, R_TABLE, R_VALLEN, ROW_BYTES

COMPACT, FLOAT, VARINT, UVARINT = 2, 5, 8, 9  # flags of datums
INSERT, UPDATE, DELETE = range(3)  # places in X_HEADS
U0, U7, LOW7, INFINITE = np.uint64(0), np.uint64(7), np.uint64(127), np.uint64(0x7FF0000000000000)
TAG_EVENT, TAG_CELL, TAG_CHANGED = 0x0A, 0x22, 0x2A  # of a file
TAG_MUTATION, TAG_ROW, TAG_CHANGE_ROW, TAG_COLUMN = 0x22, 0x12, 0x1A, 0x0A  # of a Kafka message
TAG_INT64, TAG_UINT64, TAG_DOUBLE, TAG_STRING = 0x10, 0x18, 0x21, 0x32


@jit
def w_unsigned(p, u):
    """Write the varint of a uint64."""
    while u > LOW7:
        st8(p, as_i(u & LOW7) | 128)
        u >>= U7
        p += 1
    st8(p, as_i(u))
    return p + 1


@jit
def sized(at, room, end):
    """Put the length of what lies from at + room to the end at `at`, and that right behind it. Returns the new end."""
    size = end - at - room
    taken = varint_size(size)
    if taken != room:
        memmove(at + taken, at + room, size)
    w_varint(at, size)
    return at + taken + size


@jit
def narrowed(stored, a):
    """Return a stored float as it is delivered."""
    value = float_of(a)
    if stored == L.OP_FLOAT:
        value = np.float64(np.float32(value))
    bits = f64_bits(value)
    return U0 if (bits & INFINITE) == INFINITE else bits


@jit
def w_text(T, p, column, a, n, zone, S):
    """Write a decimal, time, document or vector as text; -1: for the reference."""
    stored = ld32s(column + 4 * C_STORED)
    if stored == L.OP_JSON:
        return w_json_text(T, p, a, n, S)
    if stored == L.OP_VECTOR:
        return w_vector(T, p, a, n, S)
    return w_plain(T, p, stored, ld32s(column + 4 * C_FSP), a, n, zone)


@jit
def w_datum(T, p, column, a, n, zone, S):
    """Write a value as a datum; -1: for the reference."""
    how = ld32s(column + 4 * C_HOW)
    if how == HOW_BYTES or how == HOW_TEXT:
        st8(p, COMPACT)
        if how == HOW_BYTES:
            end = w_varint(p + 1, 2 * n)
            memcpy(end, a, n)
            return end + n
        end = w_text(T, p + 2, column, a, n, zone, S)
        if end < 0:
            return -1
        size = end - p - 2
        taken = varint_size(2 * size)
        if taken != 1:
            memmove(p + 1 + taken, p + 2, size)
        w_varint(p + 1, 2 * size)
        return p + 1 + taken + size
    if how == HOW_FLOAT:
        if n != 8:
            return -1
        bits = narrowed(ld32s(column + 4 * C_STORED), a)
        st8(p, FLOAT)
        is_negative = bits > SIGN64  # -0 is written as 0
        st64(p + 1, as_i(bswap64(~bits if is_negative else bits | SIGN64)))
        return p + 9
    if bad_width(n):
        return -1
    if how == HOW_UNSIGNED or how == HOW_BIT:
        st8(p, UVARINT)
        return w_unsigned(p + 1, uint_of(a, n))
    st8(p, VARINT)
    value = int_of(a, n)
    return w_unsigned(p + 1, as_u(value << 1) ^ as_u(value >> 63))


@jit
def w_bit(p, width, u):
    """Write a number in so many bytes, the first one first; -1: it does not fit."""
    if width < 8 and (u >> np.uint64(8 * width)) != U0:
        return -1
    for i in range(width):
        shift = 8 * (width - 1 - i)
        st8(p + i, as_i((u >> np.uint64(shift)) & np.uint64(255)) if shift < 64 else 0)
    return p + width


@jit
def w_column(T, p, column, a, n, zone, S):
    """Write the content of a Column of a Kafka message; -1: for the reference."""
    how = ld32s(column + 4 * C_HOW)
    if how == HOW_FLOAT:
        if n != 8:
            return -1
        st8(p, TAG_DOUBLE)
        st64(p + 1, as_i(narrowed(ld32s(column + 4 * C_STORED), a)))
        return p + 9
    if how == HOW_SIGNED or how == HOW_UNSIGNED:
        if bad_width(n):
            return -1
        st8(p, TAG_INT64 if how == HOW_SIGNED else TAG_UINT64)
        return w_unsigned(p + 1, as_u(int_of(a, n)) if how == HOW_SIGNED else uint_of(a, n))
    st8(p, ld32s(column + 4 * C_TAG))
    if how == HOW_BYTES:
        end = w_varint(p + 1, n)
        memcpy(end, a, n)
        return end + n
    if how == HOW_BIT:
        if bad_width(n):
            return -1
        end = w_bit(p + 2, ld32s(column + 4 * C_WIDTH), uint_of(a, n))
    else:
        end = w_text(T, p + 2, column, a, n, zone, S)
    return sized(p + 1, 1, end) if end >= 0 else -1


@jit
def w_value(T, p, form, column, pool, zone, cache, S):
    """Write the value that a column has in the located image; -1: for the reference."""
    place = place_of(cache, ld32s(column + 4 * C_SLOT))
    if place == L.PLACE_NULL or place == L.PLACE_ABSENT:
        which = C_NULL if place == L.PLACE_NULL else C_ABSENT
        size = ld32s(column + 4 * (which + 1))
        if size < 0:
            return -1
        memcpy(p, pool + ld32s(column + 4 * which), size)
        return p + size
    offsets, data, large, last = place_map(cache)
    a, n = find(place, offsets, data, large, last, S)
    if n < 0:
        return -1
    if form == FILE:
        return w_datum(T, p, column, a, n, zone, S)
    return w_column(T, p, column, a, n, zone, S)


@jit
def w_file_row(T, p, columns, count, pool, zone, first, S, second, S2):
    """Write the columns of an Event: the value in the image `first`, and, unless it is 0, that in `second`; -1: for the reference."""
    for i in range(count):
        column = columns + COLUMN_BYTES * i
        st8(p, TAG_CELL)
        inside = p + 2
        size = ld32s(column + 4 * C_PREFIX_LEN)
        memcpy(inside, pool + ld32s(column + 4 * C_PREFIX), size)
        q = inside + size
        for image in range(1 if second == 0 else 2):
            st8(q, TAG_CHANGED if image else TAG_CELL)
            end = w_value(T, q + 2, FILE, column, pool, zone, second if image else first, S2 if image else S)
            if end < 0:
                return -1
            q = sized(q + 1, 1, end)
        p = sized(p + 1, 1, q)
    return p


@jit
def w_kafka_row(T, p, tag, columns, count, pool, zone, cache, S):
    """Write a Row of a Kafka message, with its tag; -1: for the reference."""
    st8(p, tag)
    q = p + 3
    for i in range(count):
        st8(q, TAG_COLUMN)
        end = w_value(T, q + 2, 1, columns + COLUMN_BYTES * i, pool, zone, cache, S)
        if end < 0:
            return -1
        q = sized(q + 1, 1, end)
    return sized(p + 1, 2, q)


@entry(8)
def messages(i, n, rows, tables, texts, T, S, words):
    """Write rows i to n - 1 behind what is in the buffer. Returns the row at which the call ended (see M_OUTCOME).

    rows: ROW records. tables: pairs of table words, for the new and the old image, by ROW.table. texts: X_… words by ROW.table. T: constant
    tables. S: scratch, twice. words: M_….
    """
    out = ld64(words + 8 * M_OUT)
    out_end = out + ld64(words + 8 * M_OUT_SIZE)
    p = out + ld64(words + 8 * M_OUT_USED)
    ends = ld64(words + 8 * M_ENDS)
    ready_len = ld64(words + 8 * M_READY_LEN)
    form = ld64(words + 8 * M_FORM)
    S2 = S + L.SCRATCH_BYTES
    outcome = L.DONE
    while i < n:
        row = rows + ROW_BYTES * i
        number = ld32(row + R_TABLE)
        table = tables + 2 * L.TABLE_BYTES * number
        table2 = table + L.TABLE_BYTES
        text = texts + X_BYTES * number
        value_len = ld32s(row + R_VALLEN)
        old_len = ld32s(row + R_OLDLEN)
        stored = value_len + old_len + 2 * ld32s(row + R_KEYLEN) + 2
        need = ld64(text + 8 * X_FIXED) + ld64(text + 8 * X_ROOM) * stored
        need += ready_len if ready_len > 0 else 0
        if need > out_end - p:
            outcome = L.GROW
            break
        what = DELETE
        if value_len >= 0:
            what = UPDATE if old_len >= 0 else INSERT
        st8(p, TAG_EVENT if form == FILE else TAG_MUTATION)
        inside = p + 3
        if ready_len >= 0:
            memcpy(inside, ld64(words + 8 * M_READY), ready_len)
            end = inside + ready_len
            ready_len = -1
        else:
            flags = ld64(table + 8 * L.T_FLAGS)
            fits = flags & L.FLAG_SLOW == 0 and (value_len > 0 or old_len > 0)
            if fits and what != DELETE:
                fits = located(table, flags, row, NEW, S)
            if fits and what != INSERT:
                fits = located(table2, flags, row, OLD, S2)
            end = -1
            if fits:
                pool = ld64(text + 8 * X_POOL)
                head = text + 8 * (X_HEADS + 2 * what)
                memcpy(inside, pool + ld64(head), ld64(head + 8))
                end = inside + ld64(head + 8)
                columns = ld64(text + 8 * X_COLUMNS)
                count = ld64(text + 8 * X_COUNT)
                zone = ld64(table + 8 * L.T_ZONE)
                new = ld64(table + 8 * L.T_CACHE)
                old = ld64(table2 + 8 * L.T_CACHE)
                if form == FILE:
                    first = new if what == INSERT else old
                    second = new if what == UPDATE else 0
                    end = w_file_row(T, end, columns, count, pool, zone, first, S if what == INSERT else S2, second, S)
                for image in range(0 if form == FILE else 2 if what == UPDATE else 1):
                    is_old = image == 1 or what == DELETE
                    if end >= 0:
                        tag = TAG_CHANGE_ROW if image else TAG_ROW
                        end = w_kafka_row(T, end, tag, columns, count, pool, zone, old if is_old else new, S2 if is_old else S)
            if end < 0:
                if flags & L.FLAG_SLOW == 0:
                    invalidate(table)
                    invalidate(table2)
                outcome = L.UNKNOWN
                break
        p = sized(p + 1, 2, end)
        st64(ends + 8 * i, p - out)
        i += 1
    st64(words + 8 * M_OUTCOME, outcome)
    st64(words + 8 * M_OUT_USED, p - out)
    st64(words + 8 * M_READY_LEN, ready_len)
    return i
