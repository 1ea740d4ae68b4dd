"""The column kernel: ROW records → Arrow columns, one row for each image of a change. Reference: `tidemill.tidb.columns.values`.

It makes one pass over the rows. Values of one size go to their place; others are appended, after a look whether they fit. If one does not,
or a row falls back to the reference, the call ends with the row's index and is resumed there: what was written of the row is written again.
"""

from __future__ import annotations

from tidemill.kernels.columns import layout as C
from tidemill.kernels.columns.values import BAD, UNFIT, room_for, w_fixed, w_sized
from tidemill.kernels.intrinsics import entry, jit, ld8, ld32, ld32s, ld64, memcpy, put, st8, st32, st64
from tidemill.kernels.rows import layout as L
from tidemill.kernels.rows.keys import key_fits
from tidemill.kernels.rows.locate import find, invalidate, locate_row, place_map, place_of
from tidemill.records import R_COMMIT, R_KEY, R_KEYLEN, R_OLD, R_OLDLEN, R_START, R_TABLE, R_VALLEN, R_VALUE, ROW_BYTES

WHOLE = -2
"""`w_image` wrote all columns. BAD: fall back to the reference. Else: the column that needs room."""


@jit
def set_null(offsets, r):
    """Note that a value is null: its bit is not set, and it has no bytes."""
    if offsets:
        st32(offsets + 4 * r + 4, ld32(offsets + 4 * r))


@jit
def set_valid(out, r):
    """Note that a value is not null."""
    at = ld64(out + 8 * C.O_VALID) + (r >> 3)
    st8(at, ld8(at) | 1 << (r & 7))


@jit
def w_image(T, table, program, outs, a, n, r, S, st):
    """Write the image of n bytes at a as row r. Returns WHOLE, BAD, or the number of a column that needs room (ST_NEED)."""
    if not locate_row(table, a, n, S):
        return BAD
    cache = ld64(table + 8 * L.T_CACHE)
    places, data, large, last = place_map(cache)
    columns = ld64(program + 8 * C.P_COLUMNS)
    pool = ld64(program + 8 * C.P_POOL)
    strict = ld64(st + 8 * C.ST_STRICT)
    for i in range(ld64(program + 8 * C.P_COUNT)):
        column = columns + C.COLUMN_BYTES * i
        out = outs + C.OUT_BYTES * i
        offsets = ld64(out + 8 * C.O_OFFSETS)
        values = ld64(out + 8 * C.O_DATA)
        place = place_of(cache, ld32s(column + 4 * C.C_SLOT))
        if place == L.PLACE_NULL:
            set_null(offsets, r)
            continue
        if place == L.PLACE_ABSENT:
            size = ld32s(column + 4 * C.C_ABSENT_LEN)
            if size < 0:
                if size == C.ABSENT_SLOW:
                    return BAD
                set_null(offsets, r)
                continue
            source = pool + ld32s(column + 4 * C.C_ABSENT)
            if offsets == 0:
                memcpy(values + size * r, source, size)
            else:
                at = ld32(offsets + 4 * r)
                if size > ld64(out + 8 * C.O_ROOM) - at:
                    st64(st + 8 * C.ST_NEED, at + size)
                    return i
                put(values + at, source, size)
                st32(offsets + 4 * r + 4, at + size)
            set_valid(out, r)
            continue
        p, size = find(place, places, data, large, last, S)
        if size < 0:
            return BAD
        form = ld32s(column + 4 * C.C_FORM)
        if offsets == 0:
            done = w_fixed(T, values + ld32s(column + 4 * C.C_WIDTH) * r, form, column, p, size, S)
            if done == UNFIT and strict == 0:
                continue
            if done < 0:
                return BAD
        else:
            at = ld32(offsets + 4 * r)
            room = room_for(form, column, size)
            if room > ld64(out + 8 * C.O_ROOM) - at:
                st64(st + 8 * C.ST_NEED, at + room)
                return i
            end = w_sized(T, values + at, form, column, pool, p, size, S)
            if end < 0:
                return BAD
            st32(offsets + 4 * r + 4, end - values)
        set_valid(out, r)
    return WHOLE


@jit
def w_head(st, row, r, change):
    """Write what is known of a row besides its columns."""
    st8(ld64(st + 8 * C.ST_CHANGES) + r, change)
    st64(ld64(st + 8 * C.ST_COMMITS) + 8 * r, ld64(row + R_COMMIT))
    st64(ld64(st + 8 * C.ST_STARTS) + 8 * r, ld64(row + R_START))


@jit
def take_back(outs, count, r, images):
    """Undo the rows from r on: none of their values is valid."""
    for i in range(count):
        for j in range(r, r + images):
            at = ld64(outs + C.OUT_BYTES * i + 8 * C.O_VALID) + (j >> 3)
            st8(at, ld8(at) & ~(1 << (j & 7)))


@entry(8)
def column_rows(i, n, rows, tables, programs, T, S, st):
    """Write rows i to n - 1; returns the row at which the call ended (see ST_OUTCOME).

    rows: ROW records. tables, programs: words of both layouts, indexed by ROW.table; all programs fill the same columns. T: tables of
    constants. S: scratch. st: state.
    """
    outs = ld64(st + 8 * C.ST_COLUMNS)
    capacity = ld64(st + 8 * C.ST_CAPACITY)
    images = ld64(st + 8 * C.ST_IMAGES)
    r = ld64(st + 8 * C.ST_ROWS)
    outcome = C.DONE
    while i < n:
        row = rows + ROW_BYTES * i
        index = ld32(row + R_TABLE)
        table = tables + L.TABLE_BYTES * index
        program = programs + C.PROGRAM_BYTES * index
        count = ld64(program + 8 * C.P_COUNT)
        value_len = ld32s(row + R_VALLEN)
        old_len = ld32s(row + R_OLDLEN)
        before = C.PREIMAGE if value_len >= 0 else C.DELETE
        after = C.POSTIMAGE if old_len >= 0 else C.INSERT
        has_before = 1 if old_len >= 0 and (images >> before) & 1 else 0
        has_after = 1 if value_len >= 0 and (images >> after) & 1 else 0
        if has_before + has_after == 0:
            i += 1
            continue
        if r + has_before + has_after > capacity:
            outcome = C.FULL
            break
        flags = ld64(table + 8 * L.T_FLAGS)
        if flags & L.FLAG_SLOW or not key_fits(table, flags, ld64(row + R_KEY), ld32s(row + R_KEYLEN), S):
            outcome = C.SLOW
            break
        done = WHOLE
        at = r
        for image in range(2):
            if done != WHOLE or (has_after if image else has_before) == 0:
                continue
            a = ld64(row + (R_VALUE if image else R_OLD))
            size = value_len if image else old_len
            done = w_image(T, table, program, outs, a, size, at, S, st)
            w_head(st, row, at, after if image else before)
            at += 1
        if done != WHOLE:
            take_back(outs, count, r, has_before + has_after)
            outcome = C.GROW
            if done == BAD:
                invalidate(table)
                outcome = C.SLOW
            st64(st + 8 * C.ST_COLUMN, done)
            break
        r = at
        i += 1
    st64(st + 8 * C.ST_OUTCOME, outcome)
    st64(st + 8 * C.ST_ROWS, r)
    return i
