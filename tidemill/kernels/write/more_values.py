"""Values that only text protocols write: ISO-8859-1, hex, CSV, Go floats. -1: fall back to the reference.

References: `tidemill.protocols.canal_json.encode`, `tidemill.protocols.csv.encode`. Sources are read in steps of 8 or 32 bytes, past
their end only inside one 4 KiB page; targets are written up to 31 bytes past the end.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import (
    as_i,
    as_u,
    byte_mask,
    copy32,
    ctz,
    f32_bits,
    f64_bits,
    jit,
    ld8,
    ld32s,
    ld64,
    ldu64,
    put,
    readable,
    same_bytes,
    st8,
    st16,
    st64,
)  # fmt: skip
from tidemill.kernels.rows import layout as L
from tidemill.kernels.templates import layout as X
from tidemill.kernels.write.binary_json import w_json
from tidemill.kernels.write.connect import w_connect
from tidemill.kernels.write.documents import w_json_text
from tidemill.kernels.write.numbers import (
    HIDDEN32,
    HIDDEN64,
    MANTISSA32,
    MANTISSA64,
    bad_width,
    float_of,
    shortest,
    uint_of,
    w_2,
    w_digits,
    w_u64,
)
from tidemill.kernels.write.tables import FLOAT_JSON, FLOAT_PLAIN
from tidemill.kernels.write.text import MODE_HTML, MODE_RAW, mask_html, w_base64, w_escaped, w_hex2
from tidemill.kernels.write.values import w_plain, w_stored_float, w_vector

ONES, HIGHS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
U0 = np.uint64(0)
LATIN_LENGTH = np.uint64(56)
BACKSLASH = 92


@jit
def w_latin(T, p, s, n, S):
    """Write each byte as the character with its number, as the inside of a JSON string. T: tables with `layout.O_LATIN`.

    Blocks of 32 bytes are copied if no byte needs an escape. Else each byte's text comes from a table, without a branch: random bytes
    would mispredict it.
    """
    i = 0
    while i < n:
        rest = n - i
        a = readable(s + i, rest, 32, S)
        found = mask_html(a)
        if rest < 32:
            found &= (1 << rest) - 1
        else:
            rest = 32
        if found == 0:
            copy32(p, a)
            p += rest
        else:
            for at in range(rest):
                word = ldu64(T + X.O_LATIN + 8 * ld8(a + at))
                st64(p, word)
                p += as_i(word >> LATIN_LENGTH)
        i += rest
    return p


@jit
def w_hex(T, p, s, n):
    """Write two digits a byte."""
    for i in range(n):
        p = w_hex2(T, p, ld8(s + i))
    return p


@jit
def w_doubled(p, s, n, quote, S):
    """Write bytes with each quote doubled."""
    pattern = np.uint64(quote) * ONES
    i = 0
    while i < n:
        rest = n - i
        a = readable(s + i, rest, 8, S)
        word = ldu64(a)
        st64(p, word)
        x = word ^ pattern
        found = (x - ONES) & ~x & HIGHS
        size = rest if rest < 8 else 8
        if found != U0:
            at = ctz(found) >> 3
            if at < size:
                st8(p + at + 1, quote)
                p += at + 2
                i += at + 1
                continue
        p += size
        i += size
    return p


@jit
def w_backslashed(p, s, n, delimiter, size, escaped_len):
    """Write bytes for a field without quotes: CR, LF, backslash and delimiter are escaped. The escaped delimiter is at + 32."""
    i = 0
    while i < n:
        c = ld8(s + i)
        if i + size <= n and same_bytes(s + i, delimiter, size):
            p = put(p, delimiter + 32, escaped_len)
            i += size
            continue
        if c == 13 or c == 10 or c == BACKSLASH:
            st8(p, BACKSLASH)
            p += 1
            if c == 13:
                c = 114
            elif c == 10:
                c = 110
        st8(p, c)
        p += 1
        i += 1
    return p


@jit
def w_csv(p, s, n, st, S):
    """Write the inside of a CSV field."""
    quote = ld64(st + 8 * X.ST_QUOTE)
    if quote >= 0:
        return w_doubled(p, s, n, quote, S)
    return w_backslashed(p, s, n, ld64(st + 8 * X.ST_DELIMITER), ld64(st + 8 * X.ST_DELIMITER_LEN), ld64(st + 8 * X.ST_ESCAPED_LEN))


@jit
def hex_digit(c):
    """Return the value of a lower-case hex digit."""
    return c - 48 if c < 58 else c - 87


mask_backslash = byte_mask("mask_backslash", b"\\")
mask_u = byte_mask("mask_u", b"u")


@jit
def plain_html(s, end):
    """Undo in place the HTML escapes in a JSON string of `w_json`: \\u003c, \\u003e and \\u0026. Returns the new end."""
    at = s
    while at < end and mask_backslash(at) & mask_u(at + 1) == 0:
        at += 32
    if at >= end:
        return end
    p = s
    while s < end:
        c = ld8(s)
        size = 1
        if c == BACKSLASH:
            size = 2
            if ld8(s + 1) == 117 and ld8(s + 4) >= 50:  # \\u002N or \\u003N: a control character has a smaller number
                c = hex_digit(ld8(s + 4)) << 4 | hex_digit(ld8(s + 5))
                s += 5
                size = 1
        st8(p, c)
        if size == 2:
            st8(p + 1, ld8(s + 1))
        p += size
        s += size
    return p


@jit
def w_go_float(T, p, op, a, n, S):
    """Write a float as Go's %v: its shortest digits, with an exponent below 1e-4 and from 1e6 on. NaN and infinities are 0. `op`: the
    column's, or SINGLE_AS_DOUBLE: those of the double that a FLOAT is."""
    if n != 8:
        return -1
    value = float_of(a)
    if op == L.OP_FLOAT:
        bits = f32_bits(value)
        negative = as_i(bits >> np.uint64(31))
        exponent = as_i((bits >> np.uint64(23)) & np.uint64(255))
        c = bits & MANTISSA32
        hidden = HIDDEN32
        last = 255
        q = exponent - 150
    else:
        if op == X.SINGLE_AS_DOUBLE:
            value = np.float64(np.float32(value))
        bits = f64_bits(value)
        negative = as_i(bits >> np.uint64(63))
        exponent = as_i((bits >> np.uint64(52)) & np.uint64(2047))
        c = bits & MANTISSA64
        hidden = HIDDEN64
        last = 2047
        q = exponent - 1075
    if exponent == last:
        st8(p, 48)
        return p + 1
    st8(p, 45)
    p += negative
    if exponent == 0 and c == U0:
        st8(p, 48)
        return p + 1
    closer = c == U0 and exponent > 1
    if exponent == 0:
        q += 1
    else:
        c |= hidden
    digits, k = shortest(T, c, q, closer)
    size = w_u64(S, digits) - S
    k += size - 1
    while size > 1 and ld8(S + size - 1) == 48:
        size -= 1
    if -4 <= k < 6:
        return w_digits(p, S, size, k + 1, FLOAT_PLAIN)
    st16(p, ld8(S) | 46 << 8)
    copy32(p + 2, S + 1)
    p += size + 1 if size > 1 else 1
    st16(p, 101 | (45 if k < 0 else 43) << 8)
    k = -k if k < 0 else k
    if k < 100:
        return w_2(T, p + 2, k)
    return w_u64(p + 2, as_u(k))


@jit
def w_members(p, column, pool, bits):
    """Write the elements of a SET, joined by the text after the last element; -1: it has a bit without an element."""
    members = pool + ld32s(column + 4 * X.C_MEMBERS)
    count = ld32s(column + 4 * X.C_MEMBER_COUNT)
    if count < 64 and (bits >> np.uint64(count)) != U0:
        return -1
    comma = members + 8 * count
    first = True
    for i in range(count):
        if (bits >> np.uint64(i)) & np.uint64(1):
            if not first:
                p = put(p, pool + ld32s(comma), ld32s(comma + 4))
            first = False
            p = put(p, pool + ld32s(members + 8 * i), ld32s(members + 8 * i + 4))
    return p


@jit
def w_member(p, column, pool, op, a, n):
    """Write ENUM and SET by name; -1: there is no such element."""
    if bad_width(n):
        return -1
    bits = uint_of(a, n)
    if op == X.OP_SET:
        return w_members(p, column, pool, bits)
    index = as_i(bits)
    if index < 1 or index > ld32s(column + 4 * X.C_MEMBER_COUNT):
        return -1
    member = pool + ld32s(column + 4 * X.C_MEMBERS) + 8 * (index - 1)
    return put(p, pool + ld32s(member), ld32s(member + 4))


@jit
def w_connect_value(T, p, column, pool, op, a, n, st, S):
    """Write a value of Kafka Connect."""
    if op == X.OP_CONNECT_TEXT:
        return w_escaped(ld64(st + 8 * X.ST_TEXT_TABLES), p, a, n, MODE_RAW, S)
    if op == X.OP_CONNECT_FLOAT:
        return w_stored_float(T, p, ld32s(column + 4 * X.C_STORED), a, n, FLOAT_JSON, S)
    if op == X.OP_CONNECT_ENUM or op == X.OP_CONNECT_SET:
        if bad_width(n):
            return -1
        end = w_member(p, column, pool, X.OP_ENUM if op == X.OP_CONNECT_ENUM else X.OP_SET, a, n)
        return p if end < 0 else end
    if op == X.OP_CONNECT_DOCUMENT:
        end = w_json(T, p, a, n, S)
        return plain_html(p, end) if end >= 0 else -1
    return w_connect(T, p, op, ld32s(column + 4 * X.C_FSP), a, n, S)


@jit
def w_text_value(T, p, column, pool, a, n, zone, st, S):
    """Write a value by the column's op, without the texts around it."""
    op = ld32s(column + 4 * X.C_OP)
    if op == X.OP_JSON_TEXT:
        return w_escaped(ld64(st + 8 * X.ST_TEXT_TABLES), p, a, n, MODE_HTML, S)
    if op == L.OP_FLOAT or op == L.OP_DOUBLE:
        return w_stored_float(T, p, op, a, n, FLOAT_PLAIN, S)
    if op < X.OP_JSON_TEXT and op != L.OP_VECTOR and not ld32s(column + 4 * X.C_ESCAPE):
        return w_plain(T, p, op, ld32s(column + 4 * X.C_FSP), a, n, zone)
    if op >= X.FIRST_CONNECT:
        return w_connect_value(T, p, column, pool, op, a, n, st, S)
    if op == X.OP_CSV_TEXT:
        return w_csv(p, a, n, st, S)
    if op == X.OP_JSON_DOCUMENT:
        return w_json(T, p, a, n, S)
    if op == X.OP_JSON_LATIN:
        return w_latin(ld64(st + 8 * X.ST_TEXT_TABLES), p, a, n, S)
    if op == X.OP_GO_FLOAT:
        return w_go_float(T, p, ld32s(column + 4 * X.C_STORED), a, n, S)
    if op == X.OP_ENUM or op == X.OP_SET:
        return w_member(p, column, pool, op, a, n)
    # Text that may need escapes is first written after the room of its escaped form.
    q = p
    if ld32s(column + 4 * X.C_ESCAPE):
        q = p + 16 * n + 512
    if op == X.OP_BASE64:
        end = w_base64(T, q, a, n)
    elif op == X.OP_HEX:
        end = w_hex(T, q, a, n)
    elif op == L.OP_VECTOR:
        end = w_vector(T, q, a, n, S)
    elif op == X.OP_CSV_DOCUMENT:
        end = w_json_text(T, q, a, n, S)
    else:
        end = w_plain(T, q, op, ld32s(column + 4 * X.C_FSP), a, n, zone)
    if q == p or end < 0:
        return end
    return w_csv(p, q, end - q, st, S)
