"""Canal's packets and entries → words of events and columns. Reference: `tidemill.protocols.canal.decode`.

It reads what Canal, TiCDC and Tidemill write: each message's fields in the order of their numbers, and none that is unknown. Anything else,
and entries that are neither rows nor DDLs nor ends of transactions, is for the reference: the result is -1. Texts stay where they are.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.decode import canal_layout as L
from tidemill.kernels.intrinsics import as_i, entry, jit, ld8, ld32s, ld64, st32, st64
from tidemill.kernels.wire import short_varint, varint

_TOPS = -0x7F7F7F7F7F7F7F80
"""The highest bit of each byte."""
_COMMIT = int.from_bytes(b"commit_t", "little")
_START = int.from_bytes(b"start_ts", "little")
_U10, _UMAX, _UREST = np.uint64(10), np.uint64((1 << 63) // 10), np.uint64(7)

S_ES = L.S_HEAD
S_TS = L.S_HEAD + L.E_TS - L.E_ES
S_HAS_TS = L.S_HEAD + L.E_HAS_TS - L.E_ES
S_SCHEMA = L.S_HEAD + L.E_SCHEMA - L.E_ES
S_TABLE = L.S_HEAD + L.E_TABLE - L.E_ES


@jit
def utf8(a, n):
    """Return whether n bytes are UTF-8, as Python understands it."""
    end = a + n
    while a < end:
        if end - a >= 8 and ld64(a) & _TOPS == 0:
            a += 8
            continue
        c = ld8(a)
        if c < 0x80:
            a += 1
            continue
        more = 1 if 0xC2 <= c <= 0xDF else 2 if 0xE0 <= c <= 0xEF else 3 if 0xF0 <= c <= 0xF4 else 0
        if more == 0 or end - a <= more:
            return False
        d = ld8(a + 1)
        low = 0xA0 if c == 0xE0 else 0x90 if c == 0xF0 else 0x80
        high = 0x9F if c == 0xED else 0x8F if c == 0xF4 else 0xBF
        if d < low or d > high:
            return False
        for i in range(2, more + 1):
            if ld8(a + i) & 0xC0 != 0x80:
                return False
        a += 1 + more
    return True


@jit
def length(a, end):
    """Return (length, address after it) of bytes that end before `end`; length -1 if they do not."""
    n, a = short_varint(a, end)
    if n < 0 or n > end - a:
        return -1, a
    return n, a


@jit
def ts_of(a, n, at):
    """Store a ts written in up to 20 digits. -1: it is none."""
    if n < 1 or n > 20:
        return -1
    value = np.uint64(0)
    for i in range(n):
        c = ld8(a + i) - 48
        if c < 0 or c > 9 or value > _UMAX or (value == _UMAX and np.uint64(c) > _UREST):
            return -1
        value = value * _U10 + np.uint64(c)
    st64(at, as_i(value))
    return 0


@jit
def prop(a, end, S):
    """Read a property of a header: the first commit_ts is kept, the first start_ts is checked."""
    key, key_len, value, value_len = end, 0, end, 0
    last = 0
    while a < end:
        tag, a = short_varint(a, end)
        if tag <= last or (tag != 10 and tag != 18):
            return -1
        last = tag
        n, a = length(a, end)
        if n < 0 or not utf8(a, n):
            return -1
        if tag == 10:
            key, key_len = a, n
        else:
            value, value_len = a, n
        a += n
    if key_len == 9 and ld64(key) == _COMMIT and ld8(key + 8) == 115 and ld64(S + 8 * S_HAS_TS) == 0:
        st64(S + 8 * S_HAS_TS, 1)
        return ts_of(value, value_len, S + 8 * S_TS)
    if key_len == 8 and ld64(key) == _START and ld64(S + 8 * L.S_STARTED) == 0:
        found = ts_of(value, value_len, S + 8 * L.S_STARTED)
        st64(S + 8 * L.S_STARTED, 1)
        return found
    return 0


@jit
def header(a, end, S):
    """Read a header into the words of S_HEAD."""
    last = 0
    while a < end:
        tag, a = short_varint(a, end)
        number = tag >> 3
        if tag < 0 or number < last or (number == last and number != 12):
            return -1
        last = number
        if tag == 8 or tag == 24 or tag == 32 or tag == 48 or tag == 56 or tag == 80 or tag == 88:
            v, a = varint(a, end)
            if a < 0:
                return -1
            if tag == 48:
                st64(S + 8 * S_ES, as_i(v))
        elif tag == 18 or tag == 42 or tag == 66 or tag == 74 or tag == 98 or tag == 106:
            n, a = length(a, end)
            if n < 0:
                return -1
            if tag == 98:
                if prop(a, a + n, S) < 0:
                    return -1
            elif not utf8(a, n):
                return -1
            elif tag == 66:
                st64(S + 8 * S_SCHEMA, a)
                st64(S + 8 * S_SCHEMA + 8, n)
            elif tag == 74:
                st64(S + 8 * S_TABLE, a)
                st64(S + 8 * S_TABLE + 8, n)
            a += n
        else:
            return -1
    return 0


@jit
def column(a, end, S):
    """Read a column into the next words of columns."""
    at = ld64(S + 8 * L.S_CELLS)
    st64(S + 8 * L.S_CELLS, at + 1)
    name, name_len, kind, kind_len, value, value_len = end, 0, end, 0, end, 0
    sql, flags, null, last = 0, 0, 0, 0
    while a < end:
        tag, a = short_varint(a, end)
        number = tag >> 3
        if tag < 0 or number <= last:
            return -1
        last = number
        if tag == 26 or tag == 66 or tag == 82:
            n, a = length(a, end)
            if n < 0:
                return -1
            if tag == 66:
                value, value_len = a, n
            elif not utf8(a, n):
                return -1
            elif tag == 26:
                name, name_len = a, n
            else:
                kind, kind_len = a, n
            a += n
        elif tag == 8 or tag == 16 or tag == 32 or tag == 40 or tag == 48 or tag == 72:
            v, a = varint(a, end)
            if a < 0:
                return -1
            if tag == 16:
                sql = as_i(v) << 32 >> 32
            elif v != np.uint64(0):
                if tag == 32:
                    flags |= L.KEY
                elif tag == 40:
                    flags |= L.UPDATED
                elif tag == 48:
                    null = 1
        else:
            return -1
    cells = ld64(S + 8 * L.S_CELLS_AT)
    if cells:
        c = cells + 8 * L.C_WORDS * at
        st64(c + 8 * L.C_NAME, name)
        st64(c + 8 * L.C_NAME + 8, name_len)
        st64(c + 8 * L.C_TYPE, kind)
        st64(c + 8 * L.C_TYPE + 8, kind_len)
        st64(c + 8 * L.C_SQL_TYPE, sql)
        st64(c + 8 * L.C_FLAGS, flags)
        st64(c + 8 * L.C_VALUE, value)
        st64(c + 8 * L.C_VALUE_LEN, -1 if null else value_len)
    return 0


@jit
def event(S, kind, op, sql, sql_len, first, middle):
    """Write an event whose columns end here."""
    at = ld64(S + 8 * L.S_EVENTS)
    st64(S + 8 * L.S_EVENTS, at + 1)
    events = ld64(S + 8 * L.S_EVENTS_AT)
    if events:
        e = events + 8 * L.E_WORDS * at
        st64(e + 8 * L.E_MESSAGE, ld64(S + 8 * L.S_MESSAGE))
        st64(e + 8 * L.E_KIND, kind)
        st64(e + 8 * L.E_OP, op)
        for i in range(L.E_SQL - L.E_ES):
            st64(e + 8 * (L.E_ES + i), ld64(S + 8 * (L.S_HEAD + i)))
        st64(e + 8 * L.E_SQL, sql)
        st64(e + 8 * L.E_SQL + 8, sql_len)
        st64(e + 8 * L.E_CELLS, first)
        st64(e + 8 * L.E_MIDDLE, middle)
        st64(e + 8 * L.E_END, ld64(S + 8 * L.S_CELLS))
    return 0


@jit
def row(a, end, S, op):
    """Read RowData: the image before, then the image after."""
    first = ld64(S + 8 * L.S_CELLS)
    middle, last = first, 10
    while a < end:
        tag, a = short_varint(a, end)
        if tag < last or (tag != 10 and tag != 18):
            return -1
        last = tag
        n, a = length(a, end)
        if n < 0 or column(a, a + n, S) < 0:
            return -1
        if tag == 10:
            middle = ld64(S + 8 * L.S_CELLS)
        a += n
    return event(S, L.ROW, op, a, 0, first, middle)


@jit
def change(a, end, S):
    """Read RowChange: rows, or a DDL."""
    op, ddl, sql, sql_len, rows, last = 2, 0, end, 0, 0, 0
    while a < end:
        tag, a = short_varint(a, end)
        number = tag >> 3
        if tag < 0 or number < last or (number == last and number != 12):
            return -1
        last = number
        if tag == 8 or tag == 16 or tag == 80:
            v, a = varint(a, end)
            if a < 0:
                return -1
            if tag == 16:
                if v < np.uint64(1) or v > np.uint64(15):
                    return -1
                op = as_i(v)
            elif tag == 80:
                ddl = 0 if v == np.uint64(0) else 1
        elif tag == 90 or tag == 98 or tag == 114:
            n, a = length(a, end)
            if n < 0:
                return -1
            if tag == 98:
                if ddl or op > 3 or row(a, a + n, S, op) < 0:
                    return -1
                rows += 1
            elif not utf8(a, n):
                return -1
            elif tag == 90:
                sql, sql_len = a, n
            a += n
        else:
            return -1
    if ddl:
        at = ld64(S + 8 * L.S_CELLS)
        return event(S, L.DDL, op, sql, sql_len, at, at)
    return -1 if rows == 0 and (sql_len > 0 or op > 3) else 0


@jit
def mark(a, end, S, kind):
    """Read TransactionBegin or TransactionEnd."""
    last = 0
    while a < end:
        tag, a = short_varint(a, end)
        if tag <= last:
            return -1
        last = tag
        if tag == 8 or (tag == 32 and kind == L.BEGIN):
            _, a = varint(a, end)
            if a < 0:
                return -1
        elif tag == 18:
            n, a = length(a, end)
            if n < 0 or not utf8(a, n):
                return -1
            a += n
        else:
            return -1
    at = ld64(S + 8 * L.S_CELLS)
    return event(S, kind, 0, end, 0, at, at)


@jit
def whole_entry(a, end, S):
    """Read an entry."""
    for i in range(L.S_HEAD, L.S_WORDS):
        st64(S + 8 * i, 0)
    st64(S + 8 * S_SCHEMA, end)
    st64(S + 8 * S_TABLE, end)
    kind, content, content_len, last = 2, end, 0, 0
    while a < end:
        tag, a = short_varint(a, end)
        if tag <= last:
            return -1
        last = tag
        if tag == 16:
            v, a = varint(a, end)
            if a < 0 or v < np.uint64(1) or v > np.uint64(3):
                return -1
            kind = as_i(v)
        elif tag == 10 or tag == 26:
            n, a = length(a, end)
            if n < 0:
                return -1
            if tag == 26:
                content, content_len = a, n
            elif header(a, a + n, S) < 0:
                return -1
            a += n
        else:
            return -1
    if kind == 2:
        return change(content, content + content_len, S)
    return mark(content, content + content_len, S, L.BEGIN if kind == 1 else L.END)


@jit
def packet(a, end, S):
    """Read a packet of entries."""
    kind, body, body_len, last = 0, end, 0, 0
    while a < end:
        tag, a = short_varint(a, end)
        if tag <= last:
            return -1
        last = tag
        if tag == 42:
            n, a = length(a, end)
            if n < 0:
                return -1
            body, body_len = a, n
            a += n
        elif tag == 8 or tag == 16 or tag == 24 or tag == 32:
            v, a = varint(a, end)
            if a < 0 or (tag == 32 and v > np.uint64(1)):
                return -1
            if tag == 24:
                kind = 7 if v == np.uint64(7) else 0
        else:
            return -1
    if kind != 7:
        return -1
    a, end, last = body, body + body_len, 0
    while a < end:
        tag, a = short_varint(a, end)
        if tag < last or (tag != 18 and (tag != 8 or last == 8)):
            return -1
        last = tag
        if tag == 8:
            _, a = varint(a, end)
            if a < 0:
                return -1
        else:
            n, a = length(a, end)
            if n < 0 or whole_entry(a, a + n, S) < 0:
                return -1
            a += n
    return 0


@entry(7)
def parse_messages(n, offsets, values, valid, packets, counts, S):
    """Write the events and columns of n messages where S says, or count them. Returns 0, or -1: fall back to the reference.

    Offsets are int32. valid: a byte for each message, 0: skip it. packets: whether messages are packets, else they are entries. counts:
    int32, events of each message.
    """
    st64(S + 8 * L.S_EVENTS, 0)
    st64(S + 8 * L.S_CELLS, 0)
    for i in range(n):
        before = ld64(S + 8 * L.S_EVENTS)
        st64(S + 8 * L.S_MESSAGE, i)
        if ld8(valid + i):
            a = values + ld32s(offsets + 4 * i)
            end = values + ld32s(offsets + 4 * i + 4)
            found = packet(a, end, S) if packets else whole_entry(a, end, S)
            if found < 0:
                return -1
        st32(counts + 4 * i, ld64(S + 8 * L.S_EVENTS) - before)
    return 0
