"""Columns of an image as protobuf. Reference: `tidemill.protocols.canal.encode`. -1 for an end means: for the reference.

A length stands before what it counts, so the text of a value is written behind the room that its lengths will probably take; it is moved
where they take another.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.canal import layout as X
from tidemill.kernels.canal.text import w_latin, w_utf8
from tidemill.kernels.intrinsics import (
    as_u,
    jit,
    ld32s,
    memcpy,
    memmove,
    put_short,
    st8,
    st32,
)  # fmt: skip
from tidemill.kernels.rows import layout as L
from tidemill.kernels.rows.changed import CHANGED, SAME
from tidemill.kernels.rows.locate import find, place_map, place_of
from tidemill.kernels.templates.template_kernel import differs
from tidemill.kernels.wire import w_varint
from tidemill.kernels.write.documents import w_json_text
from tidemill.kernels.write.more_values import w_member
from tidemill.kernels.write.numbers import bad_width, int_of, uint_of
from tidemill.kernels.write.tables import FLOAT_PLAIN
from tidemill.kernels.write.values import w_plain, w_stored_float, w_vector

U1 = np.uint64(1)
FOUR_ZEROS = int.from_bytes(b"0000", "little")


@jit
def varint_size(n):
    """Bytes of the varint of n, which is not negative and below 2^35."""
    if n < 1 << 7:
        return 1
    if n < 1 << 14:
        return 2
    if n < 1 << 21:
        return 3
    return 4 if n < 1 << 28 else 5


@jit
def w_year(T, p, a, n, zone):
    """A year, the zero year with its four digits."""
    if not bad_width(n) and int_of(a, n) == 0:
        st32(p, FOUR_ZEROS)
        return p + 4
    return w_plain(T, p, L.OP_YEAR, 0, a, n, zone)


@jit
def w_value(T, p, column, pool, a, n, zone, S):
    """The text of a value."""
    op = ld32s(column + 4 * X.C_OP)
    if op == X.OP_UTF8:
        return w_utf8(p, a, n, S)
    if op == X.OP_LATIN:
        return w_latin(p, a, n, S)
    if op == X.OP_YEAR4:
        return w_year(T, p, a, n, zone)
    if op == L.OP_FLOAT or op == L.OP_DOUBLE:
        return w_stored_float(T, p, op, a, n, FLOAT_PLAIN, S)
    if op == L.OP_VECTOR:
        return w_vector(T, p, a, n, S)
    if op == L.OP_JSON:
        return w_json_text(T, p, a, n, S)
    if op == X.OP_ENUM or op == X.OP_SET:
        return w_member(p, column, pool, op, a, n)
    return w_plain(T, p, op, ld32s(column + 4 * X.C_FSP), a, n, zone)


@jit
def is_higher(column, a, n):
    """Whether an unsigned number does not fit the signed Java type; -1 if it is not a number."""
    power = ld32s(column + 4 * X.C_POWER)
    if power == 0:
        return 0
    if bad_width(n):
        return -1
    return 1 if uint_of(a, n) >= U1 << as_u(power) else 0


@jit
def likely_size(op, n):
    """Bytes that the text of a stored value of n bytes probably has, where they may be more than a number has."""
    if op == X.OP_UTF8 or op == X.OP_LATIN:
        return n
    return (43 * n) >> 6 if op == L.OP_JSON else 0  # two thirds


@jit
def w_lengths(p, body, text, size, prefix, prefix_len, suffix_len):
    """Write the lengths of a column whose tag is at p and whose text of `size` bytes is at `text`, and its prefix. The prefix and the text
    are moved if the lengths need another room than that before `body` and before `text`. Returns the end of the text."""
    inner = varint_size(size)
    around = prefix_len + suffix_len + inner + size
    moved = p + 1 + varint_size(around)
    if moved != body or inner != text - body - prefix_len:
        memmove(moved + prefix_len + inner, text, size)
        memcpy(moved, prefix, prefix_len)
    w_varint(p + 1, around)
    return w_varint(moved + prefix_len, size) + size


@jit
def w_column(T, p, tag, column, pool, a, n, zone, S):
    """A column with a value of n bytes at a, tag and length included."""
    op = ld32s(column + 4 * X.C_OP)
    higher = is_higher(column, a, n)
    if higher < 0:
        return -1
    prefix = pool + ld32s(column + 4 * (X.C_HIGHER if higher else X.C_PREFIX))
    prefix_len = ld32s(column + 4 * (X.C_HIGHER_LEN if higher else X.C_PREFIX_LEN))
    suffix = pool + ld32s(column + 4 * X.C_SUFFIX)
    suffix_len = ld32s(column + 4 * X.C_SUFFIX_LEN)
    around = prefix_len + suffix_len + 1
    likely = likely_size(op, n)
    st8(p, tag)
    body = p + 2
    text = body + prefix_len + 1
    if around + likely >= 128:
        inner = varint_size(likely)
        body = p + 1 + varint_size(around + inner + likely)
        text = body + prefix_len + inner
    put_short(body, prefix, prefix_len)
    end = w_value(T, text, column, pool, a, n, zone, S)
    if end < 0:
        return -1
    size = end - text
    if size == 0 and not ld32s(column + 4 * X.C_EMPTY):
        p = w_varint(p + 1, prefix_len - 1 + suffix_len)
        p = put_short(p, prefix, prefix_len - 1)
    elif around + size < 128 and text - p == prefix_len + 3:
        st8(p + 1, around + size)
        st8(text - 1, size)
        p = end
    else:
        p = w_lengths(p, body, text, size, prefix, prefix_len, suffix_len)
    return put_short(p, suffix, suffix_len)


@jit
def w_image(T, p, tag, columns, count, changed, pool, zone, cache, S, other, S2):
    """The columns of the located image. `changed`: 0, or the words of the columns that have another value in the image `other`."""
    offsets, data, large, last = place_map(cache)
    for i in range(count):
        column = columns + X.COLUMN_BYTES * i
        if changed:
            found = differs(T, p, column, cache, S, other, S2, zone)
            if found == CHANGED:
                column = changed + X.COLUMN_BYTES * i
            elif found != SAME:
                return -1
        place = place_of(cache, ld32s(column + 4 * X.C_SLOT))
        if place == L.PLACE_NULL:
            st8(p, tag)
            p = put_short(p + 1, pool + ld32s(column + 4 * X.C_NULL), ld32s(column + 4 * X.C_NULL_LEN))
        elif place == L.PLACE_ABSENT:
            size = ld32s(column + 4 * X.C_ABSENT_LEN)
            if size < 0:
                return -1
            st8(p, tag)
            p = put_short(p + 1, pool + ld32s(column + 4 * X.C_ABSENT), size)
        else:
            a, n = find(place, offsets, data, large, last, S)
            if n < 0:
                return -1
            p = w_column(T, p, tag, column, pool, a, n, zone, S)
            if p < 0:
                return -1
    return p


@jit
def w_images(T, p, images, columns, before, after, changed, count, pool, zone, cache, cache2, S, S2):
    """RowData: the old image, located in cache2, then the new one. `before`, `after`, `changed`: the first of their columns in `columns`;
    `changed` is for what an update changed, -1: `after` is for all."""
    for image in range(2):  # a loop, so that the code is there once
        old = image == 0
        if not images & (2 if old else 1):
            continue
        p = w_image(
            T,
            p,
            X.TAG_BEFORE if old else X.TAG_AFTER,
            columns + X.COLUMN_BYTES * (before if old else after),
            count,
            0 if old or changed < 0 else columns + X.COLUMN_BYTES * changed,
            pool,
            zone,
            cache2 if old else cache,
            S2 if old else S,
            cache2,
            S2,
        )
        if p < 0:
            break
    return p
