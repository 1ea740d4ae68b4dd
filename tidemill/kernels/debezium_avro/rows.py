"""The kernel: ROW records → one message a row. Reference: `tidemill.protocols.debezium_avro.encode`.

It makes one pass with a bounded buffer, as `kernels.avro.rows` does, whose state it has. Both images of a row are located once, each with
its own place map and scratch, and written by the same fields.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.avro import layout as A
from tidemill.kernels.avro import rows as R
from tidemill.kernels.avro.values import w_avro_value, w_varint
from tidemill.kernels.debezium_avro import layout as E
from tidemill.kernels.debezium_avro.values import w_branch, w_connect_field
from tidemill.kernels.intrinsics import entry, jit, ld32, ld32s, ld64, ldu64, put, st8, st16, st64
from tidemill.kernels.rows import layout as L
from tidemill.kernels.rows.keys import key_fits
from tidemill.kernels.rows.locate import find, invalidate, locate_row, place_map, place_of
from tidemill.kernels.templates.layout import FIRST_CONNECT
from tidemill.records import (  # fmt: skip
    MESSAGE_BYTES,
    R_COMMIT,
    R_KEY,
    R_KEYLEN,
    R_OLD,
    R_OLDLEN,
    R_START,
    R_TABLE,
    R_VALLEN,
    R_VALUE,
    RECORD_OVERHEAD,
    ROW_BYTES,
)

NULL, VALUE = 0, 2  # the branches of a union that begins with null
TEXT_C, TEXT_U, TEXT_D = 0x6302, 0x7502, 0x6402  # the size and the letter, as a little-endian word
U1, U18 = np.uint64(1), np.uint64(18)


@jit
def w_fields(T, p, fields, count, pool, table, S):
    """Write fields of the row that is located in the table's place map. Returns the end; -1: fall back to the reference."""
    cache = ld64(table + 8 * L.T_CACHE)
    offsets, data, large, last = place_map(cache)
    for i in range(count):
        field = fields + A.FIELD_BYTES * i
        place = place_of(cache, ld32s(field + 4 * A.F_SLOT))
        if place == L.PLACE_NULL:
            branch = ld32s(field + 4 * A.F_NULL)
            if branch < 0:
                return -1
            st8(p, branch)
            p += 1
        elif place == L.PLACE_ABSENT:
            size = ld32s(field + 4 * A.F_ABSENT_LEN)
            if size < 0:
                return -1
            p = put(p, pool + ld32s(field + 4 * A.F_ABSENT), size)
        else:
            a, n = find(place, offsets, data, large, last, S)
            if n < 0:
                return -1
            op = ld32s(field + 4 * A.F_OP)
            if op >= FIRST_CONNECT:
                p = w_connect_field(T, p, op, field, a, n)
            else:
                p = w_branch(p, field)
                p = w_avro_value(T, p, op, field, pool, a, n, 0, S)
            if p < 0:
                return -1
    return p


@jit
def located(table, flags, row, address, length, S):
    """Find the values of an image and of the key. False: fall back to the reference."""
    if not key_fits(table, flags, ld64(row + R_KEY), ld32s(row + R_KEYLEN), S):
        return False
    return locate_row(table, address, length, S)


@jit
def w_source(p, words, pool, row):
    """Write `source`."""
    p = put(p, pool + ld64(words + 8 * E.E_SOURCE), ld64(words + 8 * E.E_SOURCE_LEN))
    commit_ts = ldu64(row + R_COMMIT)
    p = w_varint(p, (commit_ts >> U18) << U1)
    p = put(p, pool + ld64(words + 8 * E.E_MIDDLE), ld64(words + 8 * E.E_MIDDLE_LEN))
    p = w_varint(p, commit_ts << U1)
    return w_varint(p, ldu64(row + R_START) << U1) if ld64(words + 8 * E.E_FLAGS) & E.FLAG_START_TS else p


@jit
def w_row(T, p, table, table2, words, row, S, S2, now):
    """Write the key and value of a row's message. Returns (end of the key, end); end -1: fall back to the reference.

    table2, S2: table words and scratch of the old image.
    """
    flags = ld64(table + 8 * L.T_FLAGS)
    value_len = ld32s(row + R_VALLEN)
    old_len = ld32s(row + R_OLDLEN)
    is_new = value_len > 0
    is_old = old_len > 0 and (not is_new or ld64(words + 8 * E.E_FLAGS) & E.FLAG_OLD_VALUE != 0)
    if not is_new and not is_old:
        return p, -1
    if is_new and not located(table, flags, row, ld64(row + R_VALUE), value_len, S):
        return p, -1
    if is_old and not located(table2, flags, row, ld64(row + R_OLD), old_len, S2):
        return p, -1
    fields = ld64(words + 8 * E.E_FIELDS)
    keys = ld64(words + 8 * E.E_KEY_COUNT)
    pool = ld64(words + 8 * E.E_POOL)
    if keys > 0:
        st64(p, ld64(words + 8 * E.E_KEY_HEAD))
        p = w_fields(T, p + A.HEAD_BYTES, fields, keys, pool, table if is_new else table2, S if is_new else S2)
        if p < 0:
            return p, -1
    key_end = p
    fields += A.FIELD_BYTES * keys
    count = ld64(words + 8 * E.E_COUNT)
    st64(p, ld64(words + 8 * E.E_VALUE_HEAD))
    p += A.HEAD_BYTES
    for image in range(2):
        shown = is_new if image else is_old
        st8(p, VALUE if shown else NULL)
        p += 1
        if shown:
            p = w_fields(T, p, fields, count, pool, table if image else table2, S if image else S2)
            if p < 0:
                return key_end, -1
    p = w_source(p, words, pool, row)
    st16(p, TEXT_D if not is_new else TEXT_U if old_len > 0 else TEXT_C)
    st8(p + 2, VALUE)
    p = w_varint(p + 3, now << U1)
    st8(p, NULL)  # no transaction
    return key_end, p + 1


@entry(8)
def envelope_rows(i, n, rows, tables, envelopes, T, S, st):
    """Encode rows i to n - 1; returns the row at which the call ended (see ST_OUTCOME of `kernels.avro.rows`).

    rows: ROW records. tables: pairs of table words, for the new and the old image, by ROW.table. envelopes: words of the programs.
    T: constant tables. S: scratch, twice. st: state.
    """
    out = ld64(st + 8 * R.ST_OUT)
    out_end = out + ld64(st + 8 * R.ST_OUT_SIZE)
    p = out + ld64(st + 8 * R.ST_OUT_USED)
    messages = ld64(st + 8 * R.ST_MESSAGES)
    max_bytes = ld64(st + 8 * R.ST_MAX_BYTES)
    ready = ld64(st + 8 * R.ST_READY)
    now = ldu64(st + 8 * R.ST_NOW)
    S2 = S + L.SCRATCH_BYTES
    outcome = L.DONE
    while i < n:
        row = rows + ROW_BYTES * i
        index = ld32(row + R_TABLE)
        table = tables + 2 * L.TABLE_BYTES * index
        words = envelopes + E.ENVELOPE_BYTES * index
        if ready:
            if p + ld64(st + 8 * R.ST_READY_KEY_LEN) + ld64(st + 8 * R.ST_READY_VALUE_LEN) + R.READ_AHEAD > out_end:
                outcome = L.GROW
                break
            key_end, end = R.w_ready(p, st)
            ready = 0
        else:
            stored = max(ld32s(row + R_VALLEN), 0) + max(ld32s(row + R_OLDLEN), 0) + 2 * ld32s(row + R_KEYLEN)
            if p + 2 * ld64(words + 8 * E.E_FIXED) + 32 * stored > out_end:
                outcome = L.GROW
                break
            if ld64(table + 8 * L.T_FLAGS) & L.FLAG_SLOW:
                outcome = L.UNKNOWN
                break
            table2 = table + L.TABLE_BYTES
            key_end, end = w_row(T, p, table, table2, words, row, S, S2, now)
            if end < 0:
                invalidate(table)
                invalidate(table2)
                outcome = L.UNKNOWN
                break
        if end - p + RECORD_OVERHEAD > max_bytes:
            outcome = L.TOO_LARGE
            break
        keyless = ld64(words + 8 * E.E_KEY_COUNT) == 0
        R.note_message(messages + MESSAGE_BYTES * i, row, out, p, key_end, end, keyless, False)
        p = end
        i += 1
    st64(st + 8 * R.ST_OUTCOME, outcome)
    st64(st + 8 * R.ST_OUT_USED, p - out)
    st64(st + 8 * R.ST_READY, ready)
    return i
