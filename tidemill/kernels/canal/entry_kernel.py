"""The kernel of entries for Canal's clients: ROW records in commit order → entries. Reference: `tidemill.protocols.canal.entries`.

Rows of one table and type lie behind each other; the head of their entry is written when the entry is closed, right before the first, so
nothing is moved. A transaction may go on in the next call: what is open is in the state.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.canal import entry_layout as E
from tidemill.kernels.canal import layout as X
from tidemill.kernels.canal.columns import varint_size, w_images
from tidemill.kernels.intrinsics import as_i, as_u, entry, jit, ld32, ld32s, ld64, ldu64, memcpy, memmove, st8, st16, st32, st64
from tidemill.kernels.rows import layout as L
from tidemill.kernels.rows.locate import invalidate
from tidemill.kernels.templates.template_kernel import PHYSICAL, located
from tidemill.kernels.wire import w_varint
from tidemill.kernels.write.numbers import w_u64
from tidemill.protocols.canal.entries import HOUR_MS, LAST_PLACE, PLACE_BITS
from tidemill.records import R_COMMIT, R_KEYLEN, R_OLDLEN, R_START, R_TABLE, R_VALLEN, ROW_BYTES

LOGICAL = (1 << 18) - 1
_TIDB_BIN = int.from_bytes(b"tidb-bin", "little")
_UTF8 = int.from_bytes(b"UTF-", "little")
_NAMES = int.from_bytes(b"\x42\x00\x4a\x00", "little")
_ROWS_COU, _COMMIT_T, _START_TS = (int.from_bytes(text, "little") for text in (b"rowsCoun", b"commit_t", b"start_ts"))
DOT, FILES = 46, np.uint64(100_000_000)


@jit
def w_property(p, word, last, value):
    """A Pair of a name of eight letters (and one more, 0: none) and a number."""
    st8(p, 0x62)
    st8(p + 2, 0x0A)
    size = 9 if last else 8
    st8(p + 3, size)
    st64(p + 4, word)
    st8(p + 12, last)
    q = p + 4 + size
    st8(q, 0x12)
    end = w_u64(q + 2, value)
    st8(q + 1, end - q - 2)
    st8(p + 1, end - p - 2)
    return end


@jit
def w_unsigned(p, v):
    """The varint of a uint64."""
    while v >= np.uint64(128):
        st8(p, as_i(v & np.uint64(127)) | 128)
        v >>= np.uint64(7)
        p += 1
    st8(p, as_i(v))
    return p + 1


@jit
def w_header(p, commit, start, place, server_id, length, event, names, names_len, rows):
    """A header; returns its end. event 0: TRANSACTIONBEGIN or TRANSACTIONEND, whose names are empty."""
    ms = as_i(commit >> PHYSICAL)
    logical = as_i(commit & as_u(LOGICAL))
    st8(p, 0x08)
    st8(p + 1, 1)  # version
    st8(p + 2, 0x12)
    st8(p + 3, 17)
    st64(p + 4, _TIDB_BIN)
    p = w_u64(p + 12, as_u(ms // HOUR_MS) + FILES)  # its 1 makes room for leading zeros and becomes the dot
    st8(p - 9, DOT)
    st8(p, 0x18)
    place = place if place < LAST_PLACE else LAST_PLACE
    p = w_varint(p + 1, ((ms % HOUR_MS) << 18 | logical) << PLACE_BITS | place)
    st8(p, 0x20)
    p = w_unsigned(p + 1, as_u(server_id))
    st16(p, 0x052A)
    st32(p + 2, _UTF8)
    st8(p + 6, 56)
    st8(p + 7, 0x30)
    p = w_varint(p + 8, ms)
    st16(p, 0x0238)  # sourceType MYSQL
    p += 2
    if event:
        memcpy(p, names, names_len)
        p += names_len
    else:
        st32(p, _NAMES)
        p += 4
    st8(p, 0x50)
    p = w_varint(p + 1, length)
    if event:
        st8(p, 0x58)
        st8(p + 1, event)
        p = w_property(p + 2, _ROWS_COU, 116, as_u(rows))
    p = w_property(p, _COMMIT_T, 115, commit)
    return w_property(p, _START_TS, 0, start)


@jit
def record(st, address, end, table, rows, kind, event):
    """Add a record."""
    count = ld64(st + 8 * E.ST_RECORD_COUNT)
    at = ld64(st + 8 * E.ST_RECORDS) + E.ENTRY_SIZE * count
    st64(at + E.E_ADDRESS, address - ld64(st + 8 * E.ST_OUT))
    st64(at + E.E_SIZE, end - address)
    st64(at + E.E_COMMIT, ld64(st + 8 * E.ST_COMMIT))
    st64(at + E.E_START, ld64(st + 8 * E.ST_START))
    st32(at + E.E_TABLE, table)
    st32(at + E.E_ROWS, rows)
    st32(at + E.E_TYPE, kind)
    st32(at + E.E_EVENT, event)
    st64(st + 8 * E.ST_RECORD_COUNT, count + 1)
    st64(st + 8 * E.ST_PLACE, ld64(st + 8 * E.ST_PLACE) + 1)


@jit
def header_of(st, length, event, names, names_len, rows):
    """The header's length; it is written at ST_HEAD."""
    head = ld64(st + 8 * E.ST_HEAD)
    commit = ldu64(st + 8 * E.ST_COMMIT)
    start = ldu64(st + 8 * E.ST_START)
    place = ld64(st + 8 * E.ST_PLACE)
    return w_header(head, commit, start, place, ld64(st + 8 * E.ST_SERVER_ID), length, event, names, names_len, rows) - head


@jit
def w_boundary(p, st, kind):
    """TRANSACTIONBEGIN (1) or TRANSACTIONEND (3); returns its end."""
    size = 2
    if kind == 3:
        digits = ld64(st + 8 * E.ST_HEAD) + 1024
        size = w_u64(digits, ldu64(st + 8 * E.ST_START)) - digits + 2
    length = header_of(st, size, 0, 0, 0, 0)
    first = p
    st8(p, 0x0A)
    p = w_varint(p + 1, length)
    memcpy(p, ld64(st + 8 * E.ST_HEAD), length)
    p += length
    st8(p, 0x10)
    st8(p + 1, kind)
    st8(p + 2, 0x1A)
    st8(p + 3, size)
    p += 4
    if kind == 3:
        st8(p, 0x12)
        st8(p + 1, size - 2)
        w_u64(p + 2, ldu64(st + 8 * E.ST_START))
    else:
        st8(p, 0x20)  # threadId
        st8(p + 1, 0)
    p += size
    record(st, first, p, -1, 0, kind, 0)
    return p


@jit
def close_rows(end, texts, st):
    """Write the head of the entry whose rows end at `end`."""
    number = ld64(st + 8 * E.ST_TABLE)
    if number < 0:
        return
    text = texts + X.TEXT_BYTES * number
    kind = text + X.KIND_BYTES * ld64(st + 8 * E.ST_KIND)
    body = ld64(st + 8 * E.ST_OUT) + ld64(st + 8 * E.ST_BODY)
    rows = ld64(st + 8 * E.ST_ROWS)
    pool = ld64(text + 8 * X.X_POOL)
    change_len = ld64(kind + 8 * E.K_CHANGE_LEN)
    stored = change_len + end - body
    event = ld64(kind + 8 * E.K_EVENT)
    length = header_of(st, stored, event, pool + ld64(text + 8 * E.X_NAMES), ld64(text + 8 * E.X_NAMES_LEN), rows)
    first = body - change_len - varint_size(stored) - 3 - length - varint_size(length) - 1
    st8(first, 0x0A)
    p = w_varint(first + 1, length)
    memcpy(p, ld64(st + 8 * E.ST_HEAD), length)
    p += length
    st8(p, 0x10)
    st8(p + 1, 2)  # ROWDATA
    st8(p + 2, 0x1A)
    p = w_varint(p + 3, stored)
    memcpy(p, pool + ld64(kind + 8 * E.K_CHANGE), change_len)
    record(st, first, end, number, rows, 2, event)
    st64(st + 8 * E.ST_TABLE, -1)


@entry(8)
def entry_rows(i, n, rows, tables, texts, T, S, st):
    """Write rows i to n - 1 behind what the state holds; returns the row at which the call ended (see ST_OUTCOME).

    rows: ROW records, the rows of a transaction behind each other. tables: pairs of table words, for the new and the old image, by
    ROW.table. texts: words of the entry programs. T: constant tables. S: scratch, twice. st: state.
    """
    out = ld64(st + 8 * E.ST_OUT)
    out_end = out + ld64(st + 8 * E.ST_OUT_SIZE)
    p = out + ld64(st + 8 * E.ST_OUT_USED)
    max_rows = ld64(st + 8 * E.ST_MAX_ROWS)
    max_bytes = ld64(st + 8 * E.ST_MAX_BYTES)
    ready_len = ld64(st + 8 * E.ST_READY_LEN)
    ahead = ld64(st + 8 * E.ST_AHEAD)
    S2 = S + L.SCRATCH_BYTES
    outcome = L.DONE
    while i < n:
        row = rows + ROW_BYTES * i
        number = ld32(row + R_TABLE)
        table = tables + 2 * L.TABLE_BYTES * number
        table2 = table + L.TABLE_BYTES
        text = texts + X.TEXT_BYTES * number
        value_len = ld32s(row + R_VALLEN)
        old_len = ld32s(row + R_OLDLEN)
        head_room = E.HEAD_ROOM + ld64(text + 8 * E.X_NAMES_LEN)
        stored = value_len + old_len + 2 * ld32s(row + R_KEYLEN) + 2
        need = 2 * ld64(text + 8 * X.X_FIXED) + ld64(text + 8 * X.X_ROOM) * stored + 2 * head_room + 4 * E.HEAD_ROOM
        need += ready_len if ready_len > 0 else 0
        if need > out_end - p:
            outcome = L.GROW
            break
        which = X.ON_DELETE
        if value_len > 0:
            which = X.ON_UPDATE if old_len > 0 else X.ON_INSERT
        kind = text + X.KIND_BYTES * which
        commit = ld64(row + R_COMMIT)
        start = ld64(row + R_START)
        if not ld64(st + 8 * E.ST_OPEN) or commit != ld64(st + 8 * E.ST_COMMIT) or start != ld64(st + 8 * E.ST_START):
            close_rows(p, texts, st)
            if ld64(st + 8 * E.ST_OPEN):
                p = w_boundary(p, st, 3)
            st64(st + 8 * E.ST_OPEN, 1)
            st64(st + 8 * E.ST_COMMIT, commit)
            st64(st + 8 * E.ST_START, start)
            st64(st + 8 * E.ST_PLACE, 0)
            p = w_boundary(p, st, 1)
        held = ld64(st + 8 * E.ST_ROWS)
        if ld64(st + 8 * E.ST_TABLE) >= 0 and (
            ld64(st + 8 * E.ST_TABLE) != number or ld64(st + 8 * E.ST_KIND) != which or held >= max_rows
        ):
            close_rows(p, texts, st)
        fresh = ld64(st + 8 * E.ST_TABLE) < 0
        at = p + (head_room if fresh else 0)
        begun = at + ahead
        if ready_len >= 0:
            memcpy(begun, ld64(st + 8 * E.ST_READY), ready_len)
            end = begun + ready_len
            ready_len = -1
        else:
            flags = ld64(table + 8 * L.T_FLAGS)
            fits = flags & L.FLAG_SLOW == 0 and (value_len > 0 or old_len > 0)
            if fits and which != X.ON_DELETE:
                fits = located(table, flags, row, X.NEW, S)
            if fits and which != X.ON_INSERT:
                fits = located(table2, flags, row, X.OLD, S2)
            end = -1
            if fits:
                end = w_images(
                    T,
                    begun,
                    ld64(kind + 8 * E.K_IMAGES),
                    ld64(text + 8 * X.X_COLUMNS),
                    ld64(kind + 8 * E.K_BEFORE),
                    ld64(kind + 8 * E.K_AFTER),
                    ld64(kind + 8 * E.K_CHANGED),
                    ld64(text + 8 * E.X_COUNT),
                    ld64(text + 8 * X.X_POOL),
                    ld64(table + 8 * L.T_ZONE),
                    ld64(table + 8 * L.T_CACHE),
                    ld64(table2 + 8 * L.T_CACHE),
                    S,
                    S2,
                )
            if end < 0:
                if flags & L.FLAG_SLOW == 0:
                    invalidate(table)
                    invalidate(table2)
                outcome = L.UNKNOWN
                break
        size = end - begun
        taken = 1 + varint_size(size)
        body = out + ld64(st + 8 * E.ST_BODY)
        if not fresh and p - body + taken + size > max_bytes:
            # It begins an entry of its own, behind room for its head.
            fresh = True
            memmove(begun + head_room, begun, size)
            close_rows(p, texts, st)
            at += head_room
            begun += head_room
        if taken != ahead:
            memmove(at + taken, begun, size)
            ahead = taken
        st8(at, X.TAG_ROW)
        w_varint(at + 1, size)
        p = at + taken + size
        if fresh:
            st64(st + 8 * E.ST_TABLE, number)
            st64(st + 8 * E.ST_KIND, which)
            st64(st + 8 * E.ST_BODY, at - out)
            st64(st + 8 * E.ST_ROWS, 0)
        st64(st + 8 * E.ST_ROWS, ld64(st + 8 * E.ST_ROWS) + 1)
        i += 1
    if outcome == L.DONE:
        closing = ld64(st + 8 * E.ST_CLOSING)
        if closing != E.KEEP:
            close_rows(p, texts, st)
        if closing == E.CLOSE_TRANSACTION and ld64(st + 8 * E.ST_OPEN):
            p = w_boundary(p, st, 3)
            st64(st + 8 * E.ST_OPEN, 0)
    st64(st + 8 * E.ST_OUTCOME, outcome)
    st64(st + 8 * E.ST_OUT_USED, p - out)
    st64(st + 8 * E.ST_READY_LEN, ready_len)
    st64(st + 8 * E.ST_AHEAD, ahead)
    return i
