"""The object kernel: ROW records → two columns of JSON objects, before and after. Reference: `tidemill.tidb.columns.objects`.

It runs as the column kernel does (`rows.py`), with one row for each change.
"""

from __future__ import annotations

from tidemill.kernels.columns import layout as C
from tidemill.kernels.columns.rows import set_null, set_valid
from tidemill.kernels.columns.values import w_element, w_elements
from tidemill.kernels.intrinsics import entry, jit, ld8, ld32, ld32s, ld64, put, st8, st32, st64
from tidemill.kernels.rows import layout as L
from tidemill.kernels.rows.keys import key_fits
from tidemill.kernels.rows.locate import find, invalidate, locate_row, place_map, place_of
from tidemill.kernels.write.base64 import w_base64
from tidemill.kernels.write.documents import w_json_text
from tidemill.kernels.write.tables import FLOAT_JSON
from tidemill.kernels.write.text import MODE_PLAIN, w_escaped
from tidemill.kernels.write.values import w_plain, w_stored_float, w_vector
from tidemill.records import R_COMMIT, R_KEY, R_KEYLEN, R_OLD, R_OLDLEN, R_START, R_TABLE, R_VALLEN, R_VALUE, ROW_BYTES

NULL_WORD = int.from_bytes(b"null", "little")
MARK, CLOSE = 34, 125


@jit
def w_member(T, p, column, pool, a, n, S):
    """Write a value that is not null, without its quotation marks."""
    form = ld32s(column + 4 * C.J_FORM)
    op = ld32s(column + 4 * C.J_STORED)
    if form == C.J_TEXT:
        return w_escaped(T, p, a, n, MODE_PLAIN, S)
    if form == C.J_BASE64:
        return w_base64(T, p, a, n)
    if form == C.J_ENUM:
        return w_element(p, pool + ld32s(column + 4 * C.J_MEMBERS), ld32s(column + 4 * C.J_MEMBER_COUNT), a, n)
    if form == C.J_SET:
        return w_elements(p, pool + ld32s(column + 4 * C.J_MEMBERS), ld32s(column + 4 * C.J_MEMBER_COUNT), a, n)
    if op == L.OP_JSON:
        return w_json_text(T, p, a, n, S)
    if op == L.OP_VECTOR:
        return w_vector(T, p, a, n, S)
    if op == L.OP_DOUBLE or op == L.OP_FLOAT:
        return w_stored_float(T, p, op, a, n, FLOAT_JSON, S)
    return w_plain(T, p, op, ld32s(column + 4 * C.J_FSP), a, n, 0)


@jit
def w_object(T, p, table, program, S):
    """Write the located row as an object. Returns its end, or -1: fall back to the reference."""
    cache = ld64(table + 8 * L.T_CACHE)
    places, data, large, last = place_map(cache)
    columns = ld64(program + 8 * C.P_COLUMNS)
    pool = ld64(program + 8 * C.P_POOL)
    for i in range(ld64(program + 8 * C.P_COUNT)):
        column = columns + C.COLUMN_BYTES * i
        p = put(p, pool + ld32s(column + 4 * C.J_HEAD), ld32s(column + 4 * C.J_HEAD_LEN))
        place = place_of(cache, ld32s(column + 4 * C.J_SLOT))
        if place == L.PLACE_NULL:
            st32(p, NULL_WORD)
            p += 4
        elif place == L.PLACE_ABSENT:
            size = ld32s(column + 4 * C.J_ABSENT_LEN)
            if size < 0:
                return -1
            p = put(p, pool + ld32s(column + 4 * C.J_ABSENT), size)
        else:
            a, n = find(place, places, data, large, last, S)
            if n < 0:
                return -1
            quote = ld32s(column + 4 * C.J_QUOTE)
            st8(p, MARK)
            p = w_member(T, p + quote, column, pool, a, n, S)
            if p < 0:
                return -1
            st8(p, MARK)
            p += quote
    st8(p, CLOSE)
    return p + 1


@jit
def is_room(out, r, need):
    """Return whether a column has room for `need` bytes more."""
    return need <= ld64(out + 8 * C.O_ROOM) - ld32(ld64(out + 8 * C.O_OFFSETS) + 4 * r)


@entry(8)
def object_rows(i, n, rows, tables, programs, T, S, st):
    """Write rows i to n - 1; returns the row at which the call ended (see ST_OUTCOME). The arguments are those of `column_rows`."""
    outs = ld64(st + 8 * C.ST_COLUMNS)
    r = ld64(st + 8 * C.ST_ROWS)
    outcome = C.DONE
    while i < n:
        row = rows + ROW_BYTES * i
        index = ld32(row + R_TABLE)
        table = tables + L.TABLE_BYTES * index
        program = programs + C.PROGRAM_BYTES * index
        value_len = ld32s(row + R_VALLEN)
        old_len = ld32s(row + R_OLDLEN)
        key_len = ld32s(row + R_KEYLEN)
        flags = ld64(table + 8 * L.T_FLAGS)
        if flags & L.FLAG_SLOW or not key_fits(table, flags, ld64(row + R_KEY), key_len, S):
            outcome = C.SLOW
            break
        done = 0
        for image in range(2):
            out = outs + C.OUT_BYTES * image
            offsets = ld64(out + 8 * C.O_OFFSETS)
            a = ld64(row + (R_VALUE if image else R_OLD))
            size = value_len if image else old_len
            if done != 0:
                continue
            if size < 0:
                set_null(offsets, r)
                continue
            need = ld64(program + 8 * C.P_FIXED) + 16 * (size + key_len)
            if not is_room(out, r, need):
                st64(st + 8 * C.ST_COLUMN, image)
                st64(st + 8 * C.ST_NEED, ld32(offsets + 4 * r) + need)
                outcome = C.GROW
                done = 1
                continue
            end = -1
            if locate_row(table, a, size, S):
                end = w_object(T, ld64(out + 8 * C.O_DATA) + ld32(offsets + 4 * r), table, program, S)
            if end < 0:
                invalidate(table)
                outcome = C.SLOW
                done = 1
                continue
            st32(offsets + 4 * r + 4, end - ld64(out + 8 * C.O_DATA))
            set_valid(out, r)
        if done != 0:
            at = ld64(outs + 8 * C.O_VALID) + (r >> 3)
            st8(at, ld8(at) & ~(1 << (r & 7)))
            break
        change = C.DELETE if value_len < 0 else C.INSERT if old_len < 0 else C.PREIMAGE
        st8(ld64(st + 8 * C.ST_CHANGES) + r, change)
        st64(ld64(st + 8 * C.ST_COMMITS) + 8 * r, ld64(row + R_COMMIT))
        st64(ld64(st + 8 * C.ST_STARTS) + 8 * r, ld64(row + R_START))
        st32(ld64(st + 8 * C.ST_TABLES) + 4 * r, index)
        r += 1
        i += 1
    st64(st + 8 * C.ST_OUTCOME, outcome)
    st64(st + 8 * C.ST_ROWS, r)
    return i
