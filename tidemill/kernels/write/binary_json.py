"""Binary JSON → text as TiDB prints it, escaped once more, because the document is a string in a JSON message.

Reference: `tidemill.tidb.types.jsonbin`, then `tidemill.protocols.common.gotext.json_string`.

Entries of a container can point anywhere after its start, so broken bytes can point in a circle, or at one value many times. Depth and
output are bounded, and anything unusual falls back to the reference.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import as_u, copy32, jit, ld8, ld16, ld32, ld64, ldu64, page_safe, st8, st16, st32, st64
from tidemill.kernels.wire import short_varint
from tidemill.kernels.write.numbers import w_float, w_i64, w_u64
from tidemill.kernels.write.tables import O_DOCUMENT_FLOAT
from tidemill.kernels.write.text import MODE_NESTED, mask_html, w_base64, w_escaped
from tidemill.kernels.write.times import MAX_DURATION, bad_time, w_date, w_datetime, w_duration

OBJECT, ARRAY, LITERAL, INT, UINT, DOUBLE, STRING, OPAQUE = 1, 3, 4, 9, 10, 11, 12, 13
DATE, DATETIME, TIMESTAMP, DURATION = 14, 15, 16, 17

U52, U2047 = np.uint64(52), np.uint64(2047)
MAX_DEPTH = 100
STACK = 64  # offset in the scratch of a frame for each open container: base, count, next, type, end
FRAME = 40

_OPAQUE_1 = int.from_bytes(b"base64:t", "little")
_OPAQUE_2 = int.from_bytes(b"ype ", "little")
_TRUE, _FALSE, _NULL = (int.from_bytes(word, "little") for word in (b"true", b"false", b"null"))


@jit
def w_mark(p):
    """Write a quotation mark, escaped: the text stands inside a JSON string."""
    st16(p, 0x225C)
    return p + 2


@jit
def w_literal(p, c):
    """Write null, true, false; -1 for another code."""
    if c > 2:
        return -1
    st64(p, _NULL if c == 0 else _TRUE if c == 1 else _FALSE)  # no branch: it would be mispredicted
    return p + 4 + (c >> 1)


@jit
def w_calendar(T, p, kind, bits):
    """Write a date or time of TiDB's core bits: year 14, month 4, day 5, hour 5, minute 6, second 6, microsecond 20, type 4."""
    months = ((bits >> 50) & 0x3FFF) * 13 + ((bits >> 46) & 15)
    day_time = ((bits >> 41) & 31) << 17 | ((bits >> 36) & 31) << 12 | ((bits >> 30) & 63) << 6 | ((bits >> 24) & 63)
    packed = (months << 22 | day_time) << 24 | ((bits >> 4) & 0xFFFFF)
    if ((bits >> 46) & 15) > 12 or ((bits >> 50) & 0x3FFF) > 9999 or bad_time(packed):
        return -1
    p = w_mark(p)
    p = w_date(T, p, packed >> 41) if kind == DATE else w_datetime(T, p, packed, 6)
    return w_mark(p)


@jit
def w_string(T, p, a, n, S):
    """Write a string with its quotation marks; most are short and have nothing to escape."""
    if 0 < n <= 32 and page_safe(a, 32):
        st16(p, 0x225C)
        copy32(p + 2, a)
        if mask_html(a) & ((1 << n) - 1) == 0:
            st16(p + 2 + n, 0x225C)
            return p + n + 4
    p = w_escaped(T, w_mark(p), a, n, MODE_NESTED, S)
    return w_mark(p)


@jit
def scalar_size(kind, b, end):
    """Return the size of a scalar's body, or -1 if it goes past the end of the container."""
    if b >= end:
        return -1
    if kind == STRING or kind == OPAQUE:
        size, a = short_varint(b + (1 if kind == OPAQUE else 0), end)
        if size < 0:
            return -1
        size += a - b
    elif kind == LITERAL:
        size = 1
    elif kind == DURATION:
        size = 12
    elif INT <= kind <= DOUBLE or DATE <= kind <= TIMESTAMP:
        size = 8
    else:
        return -1
    return size if size <= end - b else -1


@jit
def w_scalar(T, p, kind, b, size, S):
    """Write a value that is not a container, its body `size` bytes at b; -1 if it is broken."""
    end = b + size
    if kind == STRING:
        length, a = short_varint(b, end)
        return w_string(T, p, a, length, S)
    if kind == LITERAL:
        return w_literal(p, ld8(b))
    if kind == OPAQUE:
        length, a = short_varint(b + 1, end)
        p = w_mark(p)
        st64(p, _OPAQUE_1)
        st32(p + 8, _OPAQUE_2)
        p = w_u64(p + 11, as_u(ld8(b)))
        st8(p, 58)
        p = w_base64(T, p + 1, a, length)
        return w_mark(p)
    if kind == INT:
        return w_i64(p, ld64(b))
    if kind == UINT:
        return w_u64(p, ldu64(b))
    if kind == DOUBLE:
        bits = ldu64(b)
        if (bits >> U52) & U2047 == U2047:
            return -1
        return w_float(T, p, bits, False, ld64(T + O_DOCUMENT_FLOAT), S)
    if kind == DURATION:
        nanoseconds = ld64(b)
        if nanoseconds > MAX_DURATION or nanoseconds < -MAX_DURATION:
            return -1
        p = w_duration(T, w_mark(p), nanoseconds, 6)
        return w_mark(p)
    return w_calendar(T, p, kind, ld64(b))


@jit
def w_json(T, p, a, n, S):
    """Write the n bytes at a (type code and body) as the inside of a JSON string; -1 if they are broken.

    `left` counts the bytes that may still be visited, as in the reference. It bounds the output where parts overlap. The innermost
    container is in variables, the containers around it are in frames.
    """
    if n < 2:
        return -1
    kind = ld8(a)
    b = a + 1
    end = a + n
    if kind != OBJECT and kind != ARRAY:
        size = scalar_size(kind, b, end)
        return w_scalar(T, p, kind, b, size, S) if size == n - 1 else -1
    if n < 9 or ld32(b + 4) != n - 1:
        return -1
    left = n
    bottom = S + STACK
    frame = bottom
    count = ld32(b)
    i = -1  # the container is not open yet
    head_end = b
    entry = b
    while True:
        if i < 0:
            if end - b < 8:
                return -1
            count = ld32(b)
            entry = b + 8 + (6 * count if kind == OBJECT else 0)
            head_end = entry + 5 * count
            after = b + ld32(b + 4)
            left -= head_end - b
            if head_end > after or after > end or left < 0:
                return -1
            end = after
            st8(p, 123 if kind == OBJECT else 91)
            p += 1
            i = 0
        if i == count:
            st8(p, 125 if kind == OBJECT else 93)
            p += 1
            if frame == bottom:
                return p
            frame -= FRAME
            b = ld64(frame)
            count = ld64(frame + 8)
            i = ld64(frame + 16)
            kind = ld64(frame + 24)
            end = ld64(frame + 32)
            entry = b + 8 + (6 * count if kind == OBJECT else 0)
            head_end = entry + 5 * count
            entry += 5 * i
            continue
        if i:
            st16(p, 0x202C)
            p += 2
        if kind == OBJECT:
            key = b + ld32(b + 8 + 6 * i)
            size = ld16(b + 12 + 6 * i)
            left -= size
            if key < head_end or size > end - key or left < 0:
                return -1
            p = w_string(T, p, key, size, S)
            st16(p, 0x203A)
            p += 2
        value_kind = ld8(entry)
        value = b + ld32(entry + 1)
        i += 1
        entry += 5
        if value_kind == LITERAL:
            p = w_literal(p, ld8(entry - 4))
        elif value < head_end or value >= end:
            return -1
        elif value_kind == STRING:
            size = ld8(value)
            at = value + 1
            if size >= 128:
                size, at = short_varint(value, end)
            left -= size + at - value
            if size < 0 or size > end - at or left < 0:
                return -1
            p = w_string(T, p, at, size, S)
        elif value_kind == OBJECT or value_kind == ARRAY:
            if frame >= bottom + FRAME * MAX_DEPTH:
                return -1
            st64(frame, b)
            st64(frame + 8, count)
            st64(frame + 16, i)
            st64(frame + 24, kind)
            st64(frame + 32, end)
            frame += FRAME
            b = value
            kind = value_kind
            i = -1
        else:
            size = scalar_size(value_kind, value, end)
            left -= size
            if size < 0 or left < 0:
                return -1
            p = w_scalar(T, p, value_kind, value, size, S)
        if p < 0:
            return -1
