"""The kernel of Avro and Debezium-Avro: ROW records → one message a row. References: `tidemill.protocols.avro.encode` and
`tidemill.protocols.debezium_avro.encode`.

It makes one pass with a bounded buffer, as `kernels.open.open_kernel` does. Before each row it checks the room that the row could need.
If there is too little, or the row falls back to the reference, the call ends with the row's index and is resumed there.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.avro import layout as A
from tidemill.kernels.avro.fields import w_fields
from tidemill.kernels.avro.sums import w_checksum
from tidemill.kernels.avro.values import w_varint
from tidemill.kernels.intrinsics import bswap64, entry, jit, ld32, ld32s, ld64, ldu64, memcpy, put, st8, st16, st64
from tidemill.kernels.rows import layout as L
from tidemill.kernels.rows.keys import key_fits
from tidemill.kernels.rows.locate import invalidate, locate_row
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
    R_START,
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


NULL, VALUE = 0, 2  # the branches of a union that begins with null
TEXT_C, TEXT_U, TEXT_D = 0x6302, 0x7502, 0x6402  # the size and the letter, as a little-endian word
U1, U18 = np.uint64(1), np.uint64(18)
READ_AHEAD = 64  # bytes that writers may write past what they return


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
def w_head(p, word):
    """Write the magic byte and a schema's id."""
    st64(p, word)
    return p + A.HEAD_BYTES


@jit
def w_flat(T, p, table, avro, row, S):
    """Write key and value of a row whose value is the new image. Returns (end of the key, end); end -1: fall back to the reference."""
    flags = ld64(avro + 8 * A.A_FLAGS)
    old_len = ld32s(row + R_OLDLEN)
    a = ld64(row + R_VALUE)
    n = ld32s(row + R_VALLEN)
    has_value = n > 0
    if not has_value:
        a = ld64(row + R_OLD)
        n = old_len
    if not located(table, row, a, n, S):
        return p, -1
    fields = ld64(avro + 8 * A.A_FIELDS)
    keys = ld64(avro + 8 * A.A_KEY_COUNT)
    pool = ld64(avro + 8 * A.A_POOL)
    if keys > 0:
        p = w_fields(T, w_head(p, ld64(avro + 8 * A.A_KEY_HEAD)), fields, keys, pool, table, S)
        if p < 0:
            return p, -1
    if not has_value:
        return p, w_deleted(p, row) if flags & A.FLAG_DELETED else p
    values = w_head(p, ld64(avro + 8 * A.A_VALUE_HEAD))
    end = w_fields(T, values, fields + A.FIELD_BYTES * keys, ld64(avro + 8 * A.A_COUNT), pool, table, S)
    if end >= 0 and flags & A.FLAG_EXTENSION:
        end = w_extension(end, row, old_len)
        if flags & A.FLAG_CHECKSUM:
            end = w_checksum(T, end, values, table, avro, ld64(row + R_KEY), ld32s(row + R_KEYLEN), a, n, ld64(row + R_OLD), old_len, S)
    return p, end


@jit
def w_source(p, avro, pool, row):
    """Write `source`."""
    p = put(p, pool + ld64(avro + 8 * A.A_SOURCE), ld64(avro + 8 * A.A_SOURCE_LEN))
    commit_ts = ldu64(row + R_COMMIT)
    p = w_varint(p, (commit_ts >> U18) << U1)
    p = put(p, pool + ld64(avro + 8 * A.A_MIDDLE), ld64(avro + 8 * A.A_MIDDLE_LEN))
    p = w_varint(p, commit_ts << U1)
    return w_varint(p, ldu64(row + R_START) << U1) if ld64(avro + 8 * A.A_FLAGS) & A.FLAG_START_TS else p


@jit
def w_envelope(T, p, table, table2, avro, row, S, S2, now):
    """Write key and value of a row as Debezium's envelope. Returns (end of the key, end); end -1: fall back to the reference.

    Both images are located once, the old one by table2 and S2, and written by the same fields.
    """
    value_len = ld32s(row + R_VALLEN)
    old_len = ld32s(row + R_OLDLEN)
    is_new = value_len > 0
    is_old = old_len > 0 and (not is_new or ld64(avro + 8 * A.A_FLAGS) & A.FLAG_OLD_VALUE != 0)
    if not is_new and not is_old:
        return p, -1
    if is_new and not located(table, row, ld64(row + R_VALUE), value_len, S):
        return p, -1
    if is_old and not located(table2, row, ld64(row + R_OLD), old_len, S2):
        return p, -1
    fields = ld64(avro + 8 * A.A_FIELDS)
    keys = ld64(avro + 8 * A.A_KEY_COUNT)
    pool = ld64(avro + 8 * A.A_POOL)
    if keys > 0:
        p = w_fields(T, w_head(p, ld64(avro + 8 * A.A_KEY_HEAD)), fields, keys, pool, table if is_new else table2, S if is_new else S2)
        if p < 0:
            return p, -1
    key_end = p
    fields += A.FIELD_BYTES * keys
    p = w_head(p, ld64(avro + 8 * A.A_VALUE_HEAD))
    for image in range(2):
        shown = is_new if image else is_old
        st8(p, VALUE if shown else NULL)
        p += 1
        if shown:
            p = w_fields(T, p, fields, ld64(avro + 8 * A.A_COUNT), pool, table if image else table2, S if image else S2)
            if p < 0:
                return key_end, -1
    p = w_source(p, avro, pool, row)
    st16(p, TEXT_D if not is_new else TEXT_U if old_len > 0 else TEXT_C)
    st8(p + 2, VALUE)
    p = w_varint(p + 3, now << U1)
    st8(p, NULL)  # no transaction
    return key_end, p + 1


@jit
def located(table, row, address, length, S):
    """Find the values of an image and of the key. False: fall back to the reference."""
    if not key_fits(table, ld64(table + 8 * L.T_FLAGS), ld64(row + R_KEY), ld32s(row + R_KEYLEN), S):
        return False
    return locate_row(table, address, length, S)


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
def avro_rows(i, n, rows, tables, programs, T, S, st):
    """Encode rows i to n - 1; returns the row at which the call ended (see ST_OUTCOME).

    rows: ROW records. tables: pairs of table words, for the new and the old image, by ROW.table. programs: words of Avro's programs.
    T: constant tables. S: scratch, twice. st: state.
    """
    out = ld64(st + 8 * ST_OUT)
    out_end = out + ld64(st + 8 * ST_OUT_SIZE)
    p = out + ld64(st + 8 * ST_OUT_USED)
    messages = ld64(st + 8 * ST_MESSAGES)
    max_bytes = ld64(st + 8 * ST_MAX_BYTES)
    ready = ld64(st + 8 * ST_READY)
    now = ldu64(st + 8 * ST_NOW)
    outcome = L.DONE
    while i < n:
        row = rows + ROW_BYTES * i
        index = ld32(row + R_TABLE)
        table = tables + 2 * L.TABLE_BYTES * index
        avro = programs + A.AVRO_BYTES * index
        flags = ld64(avro + 8 * A.A_FLAGS)
        if ready:
            if p + ld64(st + 8 * ST_READY_KEY_LEN) + ld64(st + 8 * ST_READY_VALUE_LEN) + READ_AHEAD > out_end:
                outcome = L.GROW
                break
            key_end, end = w_ready(p, st)
            ready = 0
        else:
            stored = max(ld32s(row + R_VALLEN), 0) + max(ld32s(row + R_OLDLEN), 0) + 2 * ld32s(row + R_KEYLEN)
            if p + 2 * ld64(avro + 8 * A.A_FIXED) + ld64(avro + 8 * A.A_ROOM) * stored > out_end:
                outcome = L.GROW
                break
            if ld64(table + 8 * L.T_FLAGS) & L.FLAG_SLOW:
                outcome = L.UNKNOWN
                break
            if flags & A.FLAG_ENVELOPE:
                key_end, end = w_envelope(T, p, table, table + L.TABLE_BYTES, avro, row, S, S + L.SCRATCH_BYTES, now)
            else:
                key_end, end = w_flat(T, p, table, avro, row, S)
            if end < 0:
                invalidate(table)
                invalidate(table + L.TABLE_BYTES)
                outcome = L.UNKNOWN
                break
        if end - p + RECORD_OVERHEAD > max_bytes:
            outcome = L.TOO_LARGE
            break
        keyless = ld64(avro + 8 * A.A_KEY_COUNT) == 0
        no_value = ld32s(row + R_VALLEN) <= 0 and flags & (A.FLAG_DELETED | A.FLAG_ENVELOPE) == 0
        note_message(messages + MESSAGE_BYTES * i, row, out, p, key_end, end, keyless, no_value)
        p = end
        i += 1
    st64(st + 8 * ST_OUTCOME, outcome)
    st64(st + 8 * ST_OUT_USED, p - out)
    st64(st + 8 * ST_READY, ready)
    return i
