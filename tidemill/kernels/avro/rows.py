"""The Avro kernel: ROW records → one message a row. Reference: `tidemill.protocols.avro.encode`.

It makes one pass with a bounded buffer, as `kernels.open.open_kernel` does. Before each row it checks the room that the row could need.
If there is too little, or the row falls back to the reference, the call ends with the row's index and is resumed there.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.avro import layout as A
from tidemill.kernels.avro.sums import w_checksum
from tidemill.kernels.avro.values import w_avro_value, w_varint
from tidemill.kernels.intrinsics import bswap64, entry, jit, ld32, ld32s, ld64, ldu64, memcpy, put, st8, st16, st64
from tidemill.kernels.rows import layout as L
from tidemill.kernels.rows.keys import key_fits
from tidemill.kernels.rows.locate import find, invalidate, locate_row, place_map, place_of
from tidemill.records import (  # fmt: skip
    M_COMMIT,
    M_KEY,
    M_KEYLEN,
    M_ROWS,
    M_TARGET,
    M_VALLEN,
    M_VALUE,
    MESSAGE_BYTES,
    R_COMMIT,
    R_KEY,
    R_KEYLEN,
    R_OLD,
    R_OLDLEN,
    R_TABLE,
    R_TARGET,
    R_VALLEN,
    R_VALUE,
    RECORD_OVERHEAD,
    ROW_BYTES,
)

# Words (int64) of the state: it outlives the calls for one chunk.
(
    ST_OUTCOME,
    ST_OUT,  # address of the buffer: key and value of each message, one after the other
    ST_OUT_SIZE,
    ST_OUT_USED,
    ST_MESSAGES,  # address of the MESSAGE records, as many as there are rows; key and value are offsets here: the buffer may still grow
    ST_READY,  # 1: the first row of the call was encoded by the reference
    ST_READY_KEY,  # address and length, -1: no key
    ST_READY_KEY_LEN,
    ST_READY_VALUE,
    ST_READY_VALUE_LEN,
    ST_MAX_BYTES,
    ST_NOW,  # the wall clock's milliseconds, for messages that hold the time of encoding
) = range(12)
STATE_WORDS = 16


TEXT_C, TEXT_U = 0x6302, 0x7502  # the size and the letter, as a little-endian word
U1, U18 = np.uint64(1), np.uint64(18)
READ_AHEAD = 64  # bytes that writers may write past what they return


@jit
def w_fields(T, p, table, avro, count, S):
    """Write the first `count` fields of the located row, with heads. Returns (end of the key, end); -1: fall back to the reference."""
    fields = ld64(avro + 8 * A.A_FIELDS)
    keys = ld64(avro + 8 * A.A_KEY_COUNT)
    pool = ld64(avro + 8 * A.A_POOL)
    zone = ld64(table + 8 * L.T_ZONE)
    cache = ld64(table + 8 * L.T_CACHE)
    offsets, data, large, last = place_map(cache)
    key_end = p
    if keys > 0:
        st64(p, ld64(avro + 8 * A.A_KEY_HEAD))
        p += A.HEAD_BYTES
    for i in range(count):
        if i == keys:
            key_end = p
            st64(p, ld64(avro + 8 * A.A_VALUE_HEAD))
            p += A.HEAD_BYTES
        field = fields + A.FIELD_BYTES * i
        place = place_of(cache, ld32s(field + 4 * A.F_SLOT))
        if place == L.PLACE_NULL:
            branch = ld32s(field + 4 * A.F_NULL)
            if branch < 0:
                return key_end, -1
            st8(p, branch)
            p += 1
        elif place == L.PLACE_ABSENT:
            size = ld32s(field + 4 * A.F_ABSENT_LEN)
            if size < 0:
                return key_end, -1
            p = put(p, pool + ld32s(field + 4 * A.F_ABSENT), size)
        else:
            a, n = find(place, offsets, data, large, last, S)
            if n < 0:
                return key_end, -1
            st8(p, ld32s(field + 4 * A.F_BRANCH))
            p += ld32s(field + 4 * A.F_BRANCH_LEN)
            p = w_avro_value(T, p, ld32s(field + 4 * A.F_OP), field, pool, a, n, zone, S)
            if p < 0:
                return key_end, -1
    if count == keys:
        key_end = p
    return key_end, p


@jit
def w_extension(p, row, old_len):
    """Write the fields of enable-tidb-extension: operation, commit ts, its milliseconds."""
    st16(p, TEXT_U if old_len > 0 else TEXT_C)
    commit_ts = ldu64(row + R_COMMIT)
    p = w_varint(p + 2, commit_ts << U1)
    return w_varint(p, (commit_ts >> U18) << U1)


@jit
def w_deleted(p, row):
    """Write the value of a delete with avro-enable-watermark: a kind byte, the commit ts big-endian."""
    st8(p, 3)
    st64(p + 1, bswap64(ldu64(row + R_COMMIT)))
    return p + 9


@jit
def w_row(T, p, table, avro, row, S):
    """Write the key and value of a row's message. Returns (end of the key, end); end -1: fall back to the reference."""
    value_len = ld32s(row + R_VALLEN)
    old_len = ld32s(row + R_OLDLEN)
    flags = ld64(avro + 8 * A.A_FLAGS)
    a = ld64(row + R_VALUE)
    n = value_len
    count = ld64(avro + 8 * A.A_COUNT)
    if value_len <= 0:
        a = ld64(row + R_OLD)
        n = old_len
        count = ld64(avro + 8 * A.A_KEY_COUNT)
    if not locate_row(table, a, n, S):
        return p, -1
    key_end, end = w_fields(T, p, table, avro, count, S)
    if end >= 0 and value_len > 0 and flags & A.FLAG_EXTENSION:
        end = w_extension(end, row, old_len)
        if flags & A.FLAG_CHECKSUM:
            key, key_len, old = ld64(row + R_KEY), ld32s(row + R_KEYLEN), ld64(row + R_OLD)
            end = w_checksum(T, end, key_end + A.HEAD_BYTES, table, avro, key, key_len, a, n, old, old_len, S)
    if end >= 0 and value_len <= 0 and flags & A.FLAG_DELETED:
        end = w_deleted(end, row)
    return key_end, end


@jit
def w_ready(p, st):
    """Copy the message that the reference made. Returns (end of the key, end)."""
    key_len = ld64(st + 8 * ST_READY_KEY_LEN)
    value_len = ld64(st + 8 * ST_READY_VALUE_LEN)
    key_end = p
    if key_len > 0:
        memcpy(p, ld64(st + 8 * ST_READY_KEY), key_len)
        key_end = p + key_len
    end = key_end
    if value_len > 0:
        memcpy(end, ld64(st + 8 * ST_READY_VALUE), value_len)
        end += value_len
    return key_end, end


@jit
def note_message(message, row, out, p, key_end, end, keyless, no_value):
    """Write the MESSAGE record of a row whose message is at p of the buffer `out`."""
    st64(message + M_TARGET, ld32(row + R_TARGET))
    st64(message + M_KEY, p - out)
    st64(message + M_KEYLEN, -1 if keyless else key_end - p)
    st64(message + M_VALUE, key_end - out)
    st64(message + M_VALLEN, -1 if no_value else end - key_end)
    st64(message + M_ROWS, 1)
    st64(message + M_COMMIT, ld64(row + R_COMMIT))


@entry(8)
def avro_rows(i, n, rows, tables, avro_tables, T, S, st):
    """Encode rows i to n - 1; returns the row at which the call ended (see ST_OUTCOME).

    rows: ROW records. tables, avro_tables: words of both layouts, indexed by ROW.table. T: constant tables. S: scratch. st: state.
    """
    out = ld64(st + 8 * ST_OUT)
    out_end = out + ld64(st + 8 * ST_OUT_SIZE)
    p = out + ld64(st + 8 * ST_OUT_USED)
    messages = ld64(st + 8 * ST_MESSAGES)
    max_bytes = ld64(st + 8 * ST_MAX_BYTES)
    ready = ld64(st + 8 * ST_READY)
    outcome = L.DONE
    while i < n:
        row = rows + ROW_BYTES * i
        index = ld32(row + R_TABLE)
        table = tables + L.TABLE_BYTES * index
        avro = avro_tables + A.AVRO_BYTES * index
        keyless = ld64(avro + 8 * A.A_KEY_COUNT) == 0
        deleted = ld32s(row + R_VALLEN) <= 0
        no_value = deleted and not ld64(avro + 8 * A.A_FLAGS) & A.FLAG_DELETED
        if ready:
            if p + ld64(st + 8 * ST_READY_KEY_LEN) + ld64(st + 8 * ST_READY_VALUE_LEN) + READ_AHEAD > out_end:
                outcome = L.GROW
                break
            key_end, end = w_ready(p, st)
            ready = 0
        else:
            key_len = ld32s(row + R_KEYLEN)
            flags = ld64(table + 8 * L.T_FLAGS)
            image_len = ld32s(row + R_OLDLEN) if deleted else ld32s(row + R_VALLEN)
            need = ld64(avro + 8 * A.A_FIXED) + 8 * (image_len + 2 * key_len)
            if p + 2 * need > out_end:
                outcome = L.GROW
                break
            if flags & L.FLAG_SLOW or not key_fits(table, flags, ld64(row + R_KEY), key_len, S):
                outcome = L.UNKNOWN
                break
            key_end, end = w_row(T, p, table, avro, row, S)
            if end < 0:
                invalidate(table)
                outcome = L.UNKNOWN
                break
        if end - p + RECORD_OVERHEAD > max_bytes:
            outcome = L.TOO_LARGE
            break
        note_message(messages + MESSAGE_BYTES * i, row, out, p, key_end, end, keyless, no_value)
        p = end
        i += 1
    st64(st + 8 * ST_OUTCOME, outcome)
    st64(st + 8 * ST_OUT_USED, p - out)
    st64(st + 8 * ST_READY, ready)
    return i
