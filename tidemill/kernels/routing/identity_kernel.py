"""Kernels for a row's key columns: whether an update changed one, and their hash. Reference: `tidemill.protocols.common.celltext`.

Each table has a list of columns as int64 words: its length, the seed of the hash, then X_WORDS words for each column.
"""

from __future__ import annotations

from tidemill.kernels.intrinsics import entry, jit, ld32, ld32s, ld64, same_bytes, st8, st32, st64
from tidemill.kernels.rows import layout as L
from tidemill.kernels.rows.changed import ASK, CHANGED, SAME, integer_changed, is_bytes, is_integer
from tidemill.kernels.rows.keys import key_fits
from tidemill.kernels.rows.locate import find, locate_row, place_map, place_of
from tidemill.kernels.write.crc import crc32
from tidemill.kernels.write.tables import FLOAT_PLAIN
from tidemill.kernels.write.values import w_plain, w_stored_float
from tidemill.records import R_KEY, R_KEYLEN, R_OLD, R_OLDLEN, R_TABLE, R_VALLEN, R_VALUE, ROW_BYTES

X_SLOT, X_OP, X_FSP, X_NAME_STATE, X_NULL_CRC, X_ABSENT_CRC = range(6)  # X_ABSENT_CRC -1: fall back to the reference
X_WORDS = 8
X_BYTES = 8 * X_WORDS
X_HEAD = 16  # bytes before the first column

TEXT_ROOM = 512  # most bytes of a number or time as text
LOW32 = 0xFFFFFFFF


@jit
def w_short_text(T, p, op, fsp, a, n, zone, S):
    """Write a number or a time as text, in at most TEXT_ROOM bytes; -1: fall back to the reference."""
    if op == L.OP_DOUBLE or op == L.OP_FLOAT:
        return w_stored_float(T, p, op, a, n, FLOAT_PLAIN, S)
    if op == L.OP_JSON or op == L.OP_VECTOR:
        return -1
    return w_plain(T, p, op, fsp, a, n, zone)


@jit
def value_changed(T, op, fsp, a, n, b, m, zone, S):
    """Return SAME, CHANGED or ASK for two values of a column."""
    if n == m and same_bytes(a, b, n):
        return SAME
    if is_bytes(op):
        return CHANGED
    if is_integer(op):
        return integer_changed(op, a, n, b, m)
    room = S + L.TEXT_AT
    size = 0
    for image in range(2):
        end = w_short_text(T, room, op, fsp, a if image == 0 else b, n if image == 0 else m, zone, S)
        if end < 0:
            return ASK
        if image == 0:
            size = end - room
            room += TEXT_ROOM
        elif end - room != size:
            return CHANGED
    return SAME if same_bytes(room - TEXT_ROOM, room, size) else CHANGED


@entry(8)
def changed_rows(n, rows, tables, T, S, S2, pairs, out):
    """Write a byte for each row: SAME, CHANGED or ASK, for the listed columns of both images. Rows with one image are SAME.

    S and S2: scratch for the old and the new image. pairs: room for a (place, address, length) of each listed column.
    """
    for i in range(n):
        row = rows + ROW_BYTES * i
        table = tables + L.TABLE_BYTES * ld32(row + R_TABLE)
        extra = ld64(table + 8 * L.T_EXTRA)
        columns = ld64(extra)
        value_len = ld32s(row + R_VALLEN)
        old_len = ld32s(row + R_OLDLEN)
        st8(out + i, SAME)
        if value_len <= 0 or old_len <= 0 or columns == 0:
            continue
        result = ASK
        flags = ld64(table + 8 * L.T_FLAGS)
        key = ld64(row + R_KEY)
        key_len = ld32s(row + R_KEYLEN)
        if flags & L.FLAG_SLOW == 0 and key_fits(table, flags, key, key_len, S) and key_fits(table, flags, key, key_len, S2):
            result = SAME
            zone = ld64(table + 8 * L.T_ZONE)
            cache = ld64(table + 8 * L.T_CACHE)
            for image in range(2):
                scratch = S2 if image else S
                a = ld64(row + (R_VALUE if image else R_OLD))
                if not locate_row(table, a, value_len if image else old_len, scratch):
                    result = ASK
                    break
                offsets, data, large, last = place_map(cache)
                for c in range(columns):
                    column = extra + X_HEAD + X_BYTES * c
                    place = place_of(cache, ld64(column + 8 * X_SLOT))
                    a = 0
                    size = 0
                    kind = 0
                    if place == L.PLACE_NULL or place == L.PLACE_ABSENT:
                        kind = place
                    else:
                        a, size = find(place, offsets, data, large, last, scratch)
                        if size < 0:
                            result = ASK
                            break
                    pair = pairs + 24 * c
                    if image == 0:
                        st64(pair, kind)
                        st64(pair + 8, a)
                        st64(pair + 16, size)
                        continue
                    before = ld64(pair)
                    if before != 0 or kind != 0:
                        if before == kind:
                            continue
                        result = ASK if before == L.PLACE_ABSENT or kind == L.PLACE_ABSENT else CHANGED
                    else:
                        op = ld64(column + 8 * X_OP)
                        result = value_changed(T, op, ld64(column + 8 * X_FSP), ld64(pair + 8), ld64(pair + 16), a, size, zone, S)
                    if result != SAME:
                        break
                if result != SAME:
                    break
        st8(out + i, result)
    return n


@entry(7)
def hash_rows(i, n, rows, tables, T, S, out):
    """Write the 32-bit hash of each row from i on (new image, or a delete's old one). Returns the first row that falls back, or n."""
    while i < n:
        row = rows + ROW_BYTES * i
        table = tables + L.TABLE_BYTES * ld32(row + R_TABLE)
        extra = ld64(table + 8 * L.T_EXTRA)
        columns = ld64(extra)
        result = ld64(extra + 8)
        if columns:
            flags = ld64(table + 8 * L.T_FLAGS)
            a = ld64(row + R_VALUE)
            size = ld32s(row + R_VALLEN)
            if size <= 0:
                a = ld64(row + R_OLD)
                size = ld32s(row + R_OLDLEN)
            if flags & L.FLAG_SLOW or size <= 0 or not key_fits(table, flags, ld64(row + R_KEY), ld32s(row + R_KEYLEN), S):
                return i
            if not locate_row(table, a, size, S):
                return i
            zone = ld64(table + 8 * L.T_ZONE)
            cache = ld64(table + 8 * L.T_CACHE)
            offsets, data, large, last = place_map(cache)
            for c in range(columns):
                column = extra + X_HEAD + X_BYTES * c
                place = place_of(cache, ld64(column + 8 * X_SLOT))
                if place == L.PLACE_NULL:
                    result ^= ld64(column + 8 * X_NULL_CRC)
                    continue
                if place == L.PLACE_ABSENT:
                    crc = ld64(column + 8 * X_ABSENT_CRC)
                    if crc < 0:
                        return i
                    result ^= crc
                    continue
                a, size = find(place, offsets, data, large, last, S)
                if size < 0:
                    return i
                op = ld64(column + 8 * X_OP)
                if not is_bytes(op):
                    end = w_short_text(T, S + L.TEXT_AT, op, ld64(column + 8 * X_FSP), a, size, zone, S)
                    if end < 0:
                        return i
                    a = S + L.TEXT_AT
                    size = end - a
                result ^= crc32(T, ld64(column + 8 * X_NAME_STATE), a, size) ^ LOW32
        st32(out + 4 * i, result)
        i += 1
    return n
