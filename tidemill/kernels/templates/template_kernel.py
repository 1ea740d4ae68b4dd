"""The kernel of the text protocols: ROW records → one message a row. Reference: the protocols' own `encode` modules.

It makes one pass with a bounded buffer. Before each row it checks the room that the row could need. If there is too little, or the row
falls back to the reference, the call ends with the row's index and is resumed there.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import (
    as_i,
    as_u,
    bswap64,
    entry,
    f32_bits,
    f64_bits,
    jit,
    ld32,
    ld32s,
    ld64,
    ldu64,
    memcpy,
    put,
    same_bytes,
    st64,
)  # fmt: skip
from tidemill.kernels.messages.compress import compress_at, compress_in_place
from tidemill.kernels.rows import layout as L
from tidemill.kernels.rows.changed import ASK, CHANGED, SAME, integer_changed, is_bytes, is_integer
from tidemill.kernels.rows.keys import key_fits
from tidemill.kernels.rows.locate import find, find_in, invalidate, locate_row, place_map, place_of
from tidemill.kernels.templates import layout as X
from tidemill.kernels.templates.handles import NUMBER_ROOM, w_handle
from tidemill.kernels.write.binary_json import w_json
from tidemill.kernels.write.more_values import w_csv, w_text_value
from tidemill.kernels.write.numbers import SIGN64, bad_width, float_of, uint_of, w_i64, w_u64
from tidemill.kernels.write.values import w_plain, w_vector
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

U0, SIGN32 = np.uint64(0), np.uint64(1 << 31)
INFINITE32, INFINITE64 = np.uint64(0x7F800000), np.uint64(0x7FF0000000000000)
HANDLE_ROOM = 3  # most bytes of a byte of a handle's text, escaped
PHYSICAL = np.uint64(18)  # bits of a ts below its milliseconds


@jit
def w_compared(T, p, stored, fsp, a, n, zone, S):
    """Write a value that is not a string as text, to compare it."""
    if stored == L.OP_JSON:
        return w_json(T, p, a, n, S)
    if stored == L.OP_VECTOR:
        return w_vector(T, p, a, n, S)
    return w_plain(T, p, stored, fsp, a, n, zone)


@jit
def float_bits(stored, a):
    """Return the bits of a stored float as it is delivered: 0 for both zeros, NaN and infinities."""
    if stored == L.OP_FLOAT:
        bits = f32_bits(float_of(a))
        return U0 if (bits & INFINITE32) == INFINITE32 or bits == SIGN32 else bits
    bits = f64_bits(float_of(a))
    return U0 if (bits & INFINITE64) == INFINITE64 or bits == SIGN64 else bits


@jit
def value_changed(T, p, stored, fsp, a, n, b, m, zone, S):
    """Return SAME, CHANGED or ASK for two stored values whose bytes differ. There is room for both texts at p."""
    if is_bytes(stored):
        return CHANGED
    if stored == L.OP_FLOAT or stored == L.OP_DOUBLE:
        if n != 8 or m != 8:
            return ASK
        return SAME if float_bits(stored, a) == float_bits(stored, b) else CHANGED
    if is_integer(stored):
        return integer_changed(stored, a, n, b, m)
    end = w_compared(T, p, stored, fsp, a, n, zone, S)
    if end < 0:
        return ASK
    q = p + 16 * n + 512
    end2 = w_compared(T, q, stored, fsp, b, m, zone, S)
    if end2 < 0:
        return ASK
    return SAME if end - p == end2 - q and same_bytes(p, q, end - p) else CHANGED


@jit
def differs(T, p, column, cache, S, other, S2, zone):
    """Compare a column's values in an image and in `other`: SAME, CHANGED or ASK."""
    slot = ld32s(column + 4 * X.C_SLOT)
    place = place_of(cache, slot)
    place2 = place_of(other, slot)
    if ld32s(column + 4 * X.C_ABSENT) == ld32s(column + 4 * X.C_NULL) and ld32s(column + 4 * X.C_ABSENT_LEN) >= 0:
        # The absent value is NULL: both have the same text, which the pool holds once.
        place = L.PLACE_NULL if place == L.PLACE_ABSENT else place
        place2 = L.PLACE_NULL if place2 == L.PLACE_ABSENT else place2
    absent = place == L.PLACE_ABSENT or place2 == L.PLACE_ABSENT
    null = place == L.PLACE_NULL or place2 == L.PLACE_NULL
    if absent or null:
        if place == place2:
            return SAME
        return ASK if absent else CHANGED
    a, n = find_in(place, cache, S)
    b, m = find_in(place2, other, S2)
    if n < 0 or m < 0:
        return ASK
    if n == m and same_bytes(a, b, n):
        return SAME
    stored = ld32s(column + 4 * X.C_STORED)
    return value_changed(T, p, stored, ld32s(column + 4 * X.C_FSP), a, n, b, m, zone, S)


@jit
def w_columns(T, p, columns, count, pool, zone, cache, S, other, S2, changed, st):
    """Write the columns of a list from the located image. With `changed` only those whose value differs in the image `other`."""
    offsets, data, large, last = place_map(cache)
    skip = 0
    if count:
        skip = ld32s(columns + 4 * X.C_SEPARATOR)  # the first column that is written has no separator
    for i in range(count):
        column = columns + X.COLUMN_BYTES * i
        if changed:
            found = differs(T, p, column, cache, S, other, S2, zone)
            if found == SAME:
                continue
            if found == ASK:
                return -1
        place = place_of(cache, ld32s(column + 4 * X.C_SLOT))
        if place == L.PLACE_NULL:
            p = put(p, pool + ld32s(column + 4 * X.C_NULL) + skip, ld32s(column + 4 * X.C_NULL_LEN) - skip)
        elif place == L.PLACE_ABSENT:
            size = ld32s(column + 4 * X.C_ABSENT_LEN)
            if size < 0:
                return -1
            p = put(p, pool + ld32s(column + 4 * X.C_ABSENT) + skip, size - skip)
        else:
            a, n = find(place, offsets, data, large, last, S)
            if n < 0:
                return -1
            p = put(p, pool + ld32s(column + 4 * X.C_PREFIX) + skip, ld32s(column + 4 * X.C_PREFIX_LEN) - skip)
            p = w_text_value(T, p, column, pool, a, n, zone, st, S)
            if p < 0:
                return -1
            p = put(p, pool + ld32s(column + 4 * X.C_SUFFIX), ld32s(column + 4 * X.C_SUFFIX_LEN))
        skip = 0
    return p


@jit
def w_promoted(p, column, pool, least, cache, S):
    """Write a column's text by its value: the prefix from `least` on, else the suffix. The texts for NULL and absent are ready-made."""
    place = place_of(cache, ld32s(column + 4 * X.C_SLOT))
    if place == L.PLACE_NULL:
        return put(p, pool + ld32s(column + 4 * X.C_NULL), ld32s(column + 4 * X.C_NULL_LEN))
    if place == L.PLACE_ABSENT:
        size = ld32s(column + 4 * X.C_ABSENT_LEN)
        return put(p, pool + ld32s(column + 4 * X.C_ABSENT), size) if size >= 0 else -1
    a, n = find_in(place, cache, S)
    if bad_width(n):
        return -1
    if uint_of(a, n) >= as_u(least):
        return put(p, pool + ld32s(column + 4 * X.C_PREFIX), ld32s(column + 4 * X.C_PREFIX_LEN))
    return put(p, pool + ld32s(column + 4 * X.C_SUFFIX), ld32s(column + 4 * X.C_SUFFIX_LEN))


@jit
def w_handle_field(T, p, kinds, count, row, S, st):
    """Write the handle of a row as the inside of a CSV field. Its plain text is first written after the room of its escaped form."""
    raw = ld32s(row + R_KEYLEN) + NUMBER_ROOM * (count + 1)
    q = p + HANDLE_ROOM * raw
    end = w_handle(T, q, kinds, count, S) if count else w_i64(q, as_i(bswap64(ldu64(ld64(row + R_KEY) + X.HANDLE_AT)) ^ SIGN64))
    return w_csv(p, q, end - q, st, S) if end >= 0 else -1


@jit
def w_message(T, p, text, kind, row, cache, cache2, zone, S, S2, st):
    """Run the steps of a row's kind. Returns the end; -1: fall back to the reference."""
    steps = ld64(kind + 8 * X.X_STEPS)
    columns = ld64(text + 8 * X.X_COLUMNS)
    pool = ld64(text + 8 * X.X_POOL)
    for _ in range(ld64(kind + 8 * X.X_STEP_COUNT)):
        step = ld64(steps)
        a = ld64(steps + 8)
        b = ld64(steps + 16)
        c = ld64(steps + 24)
        steps += X.STEP_BYTES
        if step == X.STEP_CONSTANT:
            p = put(p, pool + a, b)
        elif step == X.STEP_COLUMNS or step == X.STEP_CHANGED:
            old = a == X.OLD
            p = w_columns(
                T,
                p,
                columns + X.COLUMN_BYTES * b,
                c,
                pool,
                zone,
                cache2 if old else cache,
                S2 if old else S,
                cache if old else cache2,
                S if old else S2,
                step == X.STEP_CHANGED,
                st,
            )
        elif step == X.STEP_COMMIT_MS:
            p = w_u64(p, ldu64(row + R_COMMIT) >> PHYSICAL)
        elif step == X.STEP_COMMIT_TS:
            p = w_u64(p, ldu64(row + R_COMMIT))
        elif step == X.STEP_NOW:
            p = w_u64(p, ldu64(st + 8 * X.ST_NOW))
        elif step == X.STEP_PROMOTED:
            old = a == X.OLD
            p = w_promoted(p, columns + X.COLUMN_BYTES * b, pool, c, cache2 if old else cache, S2 if old else S)
        elif step == X.STEP_HANDLE:
            p = w_handle_field(T, p, b, c, row, S2 if a == X.OLD else S, st)
        elif step == X.STEP_START_TS:
            p = w_u64(p, ldu64(row + R_START))
        elif step == X.STEP_KEY_END:
            st64(st + 8 * X.ST_KEY_END, p)
        else:
            p = w_i64(p, as_i(bswap64(ldu64(ld64(row + R_KEY) + a)) ^ SIGN64))
        if p < 0:
            break
    return p


@jit
def located(table, flags, row, image, S):
    """Find the values of an image and of the key. False: fall back to the reference."""
    if not key_fits(table, flags, ld64(row + R_KEY), ld32s(row + R_KEYLEN), S):
        return False
    if image == X.OLD:
        return locate_row(table, ld64(row + R_OLD), ld32s(row + R_OLDLEN), S)
    return locate_row(table, ld64(row + R_VALUE), ld32s(row + R_VALLEN), S)


@entry(8)
def text_rows(i, n, rows, tables, texts, T, S, st):
    """Encode rows i to n - 1 after those in the state's buffer. Returns the row at which the call ended (see ST_OUTCOME).

    rows: ROW records grouped by target. tables: pairs of table words, for the new and the old image, by ROW.table. texts: words of the
    text programs. T: constant tables. S: scratch, twice. st: state.
    """
    values = ld64(st + 8 * X.ST_VALUES)
    values_end = values + ld64(st + 8 * X.ST_VALUES_SIZE)
    vp = values + ld64(st + 8 * X.ST_VALUES_USED)
    messages = ld64(st + 8 * X.ST_MESSAGES)
    max_bytes = ld64(st + 8 * X.ST_MAX_BYTES)
    ready_len = ld64(st + 8 * X.ST_READY_LEN)
    compression = ld64(st + 8 * X.ST_COMPRESSION)
    hashes = ld64(st + 8 * X.ST_HASHES)
    S2 = S + L.SCRATCH_BYTES
    outcome = L.DONE
    while i < n:
        row = rows + ROW_BYTES * i
        number = ld32(row + R_TABLE)
        key = vp
        value = vp
        if ready_len >= 0:
            if vp + ready_len + 64 > values_end:
                outcome = L.GROW
                break
            memcpy(vp, ld64(st + 8 * X.ST_READY), ready_len)
            end = vp + ready_len
            value_end = end
            key_len = ld64(st + 8 * X.ST_READY_KEY_LEN)
            value = vp + max(key_len, 0)
            ready_len = -1
        else:
            table = tables + 2 * L.TABLE_BYTES * number
            table2 = table + L.TABLE_BYTES
            text = texts + X.TEXT_BYTES * number
            value_len = ld32s(row + R_VALLEN)
            old_len = ld32s(row + R_OLDLEN)
            stored = value_len + old_len + 2 * ld32s(row + R_KEYLEN) + 2
            need = 2 * ld64(text + 8 * X.X_FIXED) + ld64(text + 8 * X.X_ROOM) * stored
            if compression:
                need *= 3
            if vp + need > values_end:
                outcome = L.GROW
                break
            flags = ld64(table + 8 * L.T_FLAGS)
            kind = X.ON_DELETE
            if value_len > 0:
                kind = X.ON_UPDATE if old_len > 0 else X.ON_INSERT
            words = text + X.X_KIND_BYTES * kind
            images = ld64(words + 8 * X.X_IMAGES)
            fits = flags & L.FLAG_SLOW == 0 and images != 0 and (value_len > 0 or old_len > 0)
            if fits and images & 1:
                fits = located(table, flags, row, X.NEW, S)
            if fits and images & 2:
                fits = located(table2, flags, row, X.OLD, S2)
            end = -1
            if fits:
                cache = ld64(table + 8 * L.T_CACHE)
                cache2 = ld64(table2 + 8 * L.T_CACHE)
                st64(st + 8 * X.ST_KEY_END, 0)
                end = w_message(T, vp, text, words, row, cache, cache2, ld64(table + 8 * L.T_ZONE), S, S2, st)
            if end < 0:
                if flags & L.FLAG_SLOW == 0:
                    invalidate(table)
                    invalidate(table2)
                outcome = L.UNKNOWN
                break
            key_len = -1
            key_end = ld64(st + 8 * X.ST_KEY_END)
            if key_end:
                value = key_end
                key_len = key_end - vp
            value_end = end
            if compression:
                value_end = compress_in_place(value, end, compression == X.AS_SNAPPY, hashes)
                end = value_end
                if key_end:  # behind the value: a short key may grow
                    key = value_end
                    end = compress_at(key, vp, key_end, compression == X.AS_SNAPPY, hashes)
                    key_len = end - key
            if value_end - value + max(key_len, 0) + RECORD_OVERHEAD > max_bytes:
                outcome = L.TOO_LARGE
                break
        message = messages + MESSAGE_BYTES * i
        st64(message + M_TARGET, ld32(row + R_TARGET))
        st64(message + M_KEY, key - values if key_len >= 0 else 0)
        st64(message + M_KEYLEN, key_len)
        st64(message + M_VALUE, value - values)
        st64(message + M_VALLEN, value_end - value)
        st64(message + M_ROWS, 1)
        st64(message + M_COMMIT, ld64(row + R_COMMIT))
        vp = end
        i += 1
    st64(st + 8 * X.ST_OUTCOME, outcome)
    st64(st + 8 * X.ST_VALUES_USED, vp - values)
    st64(st + 8 * X.ST_READY_LEN, ready_len)
    return i
