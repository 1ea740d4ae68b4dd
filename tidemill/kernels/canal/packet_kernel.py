"""The kernel of TiCDC's protocol canal: ROW records → packets. Reference: `tidemill.protocols.canal.encode`.

One pass with a bounded buffer: before each row the room is checked that it could need at most; if it is not there, or the row is one
for the reference, the call ends with the row's index and is resumed there. Before it ends the open packet gets its head, which stands
right before the body, so nothing is moved; a packet that goes on in the next call gets it again.
"""

from __future__ import annotations

from tidemill.kernels.canal import layout as X
from tidemill.kernels.canal.columns import varint_size, w_images
from tidemill.kernels.intrinsics import as_i, entry, jit, ld32, ld32s, ld64, ldu64, memcpy, memmove, st8, st64
from tidemill.kernels.rows import layout as L
from tidemill.kernels.rows.locate import invalidate
from tidemill.kernels.templates.template_kernel import PHYSICAL, located
from tidemill.kernels.wire import w_varint
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
    R_KEYLEN,
    R_OLDLEN,
    R_TABLE,
    R_TARGET,
    R_VALLEN,
    RECORD_OVERHEAD,
    ROW_BYTES,
)

PACKET_ROOM = X.PACKET_ROOM


@jit
def close(message, values, body, end):
    """Write the head of the packet whose entries end at `end`, and where it is."""
    size = end - body
    head = body - varint_size(size) - 5
    st8(head, 0x10)
    st8(head + 1, 1)  # version
    st8(head + 2, 0x18)
    st8(head + 3, 7)  # type MESSAGES
    st8(head + 4, 0x2A)  # body
    w_varint(head + 5, size)
    st64(message + M_VALUE, head - values)
    st64(message + M_VALLEN, end - head)


@jit
def w_entry(p, ahead, end, text, kind, milliseconds):
    """Put the rest of an entry of Messages before the row's columns, which lie from p + ahead to end; returns the new end.

    The bytes before them are as many as `ahead` says if the entry before was like this one; else they are moved.
    """
    pool = ld64(text + 8 * X.X_POOL)
    head_len = ld64(text + 8 * X.X_HEAD_LEN)
    tail_len = ld64(kind + 8 * X.K_TAIL_LEN)
    change_len = ld64(kind + 8 * X.K_CHANGE_LEN)
    row = end - p - ahead
    change = change_len + 1 + varint_size(row) + row
    header = head_len + tail_len
    if milliseconds:
        header += 1 + time_size(milliseconds)
    size = 1 + varint_size(header) + header + 3 + varint_size(change) + change
    needed = 1 + varint_size(size) + size - row
    if needed != ahead:
        memmove(p + needed, p + ahead, row)
        end = p + needed + row
    st8(p, X.TAG_MESSAGE)
    p = w_varint(p + 1, size)
    st8(p, X.TAG_HEADER)
    p = w_varint(p + 1, header)
    memcpy(p, pool + ld64(text + 8 * X.X_HEAD), head_len)
    p += head_len
    if milliseconds:
        st8(p, X.TAG_EXECUTE_TIME)
        p = w_varint(p + 1, milliseconds)
    memcpy(p, pool + ld64(kind + 8 * X.K_TAIL), tail_len)
    p += tail_len
    st8(p, 0x10)  # entryType
    st8(p + 1, 2)  # ROWDATA
    st8(p + 2, X.TAG_STORE_VALUE)
    p = w_varint(p + 3, change)
    memcpy(p, pool + ld64(kind + 8 * X.K_CHANGE), change_len)
    p += change_len
    st8(p, X.TAG_ROW)
    w_varint(p + 1, row)
    return end


@jit
def time_size(milliseconds):
    """Bytes of the varint of a time."""
    return varint_size(milliseconds) if milliseconds < 1 << 35 else 5 + varint_size(milliseconds >> 35)


@entry(8)
def canal_rows(i, n, rows, tables, texts, T, S, st):
    """Encode rows i to n - 1 behind what the state holds; returns the row at which the call ended (see ST_OUTCOME).

    rows: ROW records grouped by target. tables: pairs of table words, for the new and the old image, by ROW.table. texts: words of the
    Canal programs. T: constant tables. S: scratch, twice. st: state.
    """
    values = ld64(st + 8 * X.ST_VALUES)
    values_end = values + ld64(st + 8 * X.ST_VALUES_SIZE)
    vp = values + ld64(st + 8 * X.ST_VALUES_USED)
    messages = ld64(st + 8 * X.ST_MESSAGES)
    count = ld64(st + 8 * X.ST_MESSAGE_COUNT)
    groups = ld64(st + 8 * X.ST_GROUPS)
    group = ld64(st + 8 * X.ST_GROUP)
    max_bytes = ld64(st + 8 * X.ST_MAX_BYTES) - RECORD_OVERHEAD - PACKET_ROOM
    max_rows = ld64(st + 8 * X.ST_MAX_ROWS)
    ready_len = ld64(st + 8 * X.ST_READY_LEN)
    body = values + ld64(st + 8 * X.ST_BODY)
    ahead = ld64(st + 8 * X.ST_AHEAD)
    S2 = S + L.SCRATCH_BYTES
    message = messages + MESSAGE_BYTES * (count - 1)
    held = 0
    if count > 0:
        held = ld64(message + M_ROWS)
    outcome = L.DONE
    while i < n:
        row = rows + ROW_BYTES * i
        number = ld32(row + R_TABLE)
        fresh = count == 0 or held >= max_rows
        next_group = group
        while ld32(groups + 4 * next_group) <= i:  # the first row of a group begins a packet
            fresh = True
            next_group += 1
        at = vp + (PACKET_ROOM if fresh else 0)
        if ready_len >= 0:
            if ready_len + 2 * PACKET_ROOM + 64 > values_end - vp:
                outcome = L.GROW
                break
            st8(at, X.TAG_MESSAGE)
            end = w_varint(at + 1, ready_len)
            memcpy(end, ld64(st + 8 * X.ST_READY), ready_len)
            end += ready_len
            ready_len = -1
        else:
            table = tables + 2 * L.TABLE_BYTES * number
            table2 = table + L.TABLE_BYTES
            text = texts + X.TEXT_BYTES * number
            value_len = ld32s(row + R_VALLEN)
            old_len = ld32s(row + R_OLDLEN)
            stored = value_len + old_len + 2 * ld32s(row + R_KEYLEN) + 2
            need = 2 * ld64(text + 8 * X.X_FIXED) + ld64(text + 8 * X.X_ROOM) * stored + 2 * PACKET_ROOM
            if need > values_end - vp:
                outcome = L.GROW
                break
            flags = ld64(table + 8 * L.T_FLAGS)
            which = X.ON_DELETE
            if value_len > 0:
                which = X.ON_UPDATE if old_len > 0 else X.ON_INSERT
            kind = text + X.KIND_BYTES * which
            fits = flags & L.FLAG_SLOW == 0 and (value_len > 0 or old_len > 0)
            if fits and which != X.ON_DELETE:
                fits = located(table, flags, row, X.NEW, S)
            if fits and which != X.ON_INSERT:
                fits = located(table2, flags, row, X.OLD, S2)
            end = -1
            if fits:
                cache = ld64(table + 8 * L.T_CACHE)
                cache2 = ld64(table2 + 8 * L.T_CACHE)
                end = w_images(
                    T,
                    at + ahead,
                    ld64(kind + 8 * X.K_IMAGES),
                    ld64(text + 8 * X.X_COLUMNS),
                    ld64(kind + 8 * X.K_BEFORE),
                    ld64(kind + 8 * X.K_AFTER),
                    -1,
                    ld64(kind + 8 * X.K_COUNT),
                    ld64(text + 8 * X.X_POOL),
                    ld64(table + 8 * L.T_ZONE),
                    cache,
                    cache2,
                    S,
                    S2,
                )
            if end < 0:
                if flags & L.FLAG_SLOW == 0:
                    invalidate(table)
                    invalidate(table2)
                outcome = L.UNKNOWN
                break
            size = end - at - ahead
            end = w_entry(at, ahead, end, text, kind, as_i(ldu64(row + R_COMMIT) >> PHYSICAL))
            ahead = end - at - size
        size = end - at
        if size > max_bytes:
            outcome = L.TOO_LARGE
            break
        if not fresh and vp - body + size > max_bytes:
            fresh = True
            memmove(at + PACKET_ROOM, at, size)
            at += PACKET_ROOM
            end += PACKET_ROOM
        if fresh:
            if count > 0:
                close(message, values, body, vp)
            message = messages + MESSAGE_BYTES * count
            count += 1
            held = 0
            body = at
            st64(message + M_TARGET, ld32(row + R_TARGET))
            st64(message + M_KEY, 0)
            st64(message + M_KEYLEN, -1)
        vp = end
        held += 1
        group = next_group
        st64(message + M_ROWS, held)
        st64(message + M_COMMIT, ld64(row + R_COMMIT))
        i += 1
    if count > 0:
        close(message, values, body, vp)
    st64(st + 8 * X.ST_OUTCOME, outcome)
    st64(st + 8 * X.ST_VALUES_USED, vp - values)
    st64(st + 8 * X.ST_MESSAGE_COUNT, count)
    st64(st + 8 * X.ST_GROUP, group)
    st64(st + 8 * X.ST_READY_LEN, ready_len)
    st64(st + 8 * X.ST_BODY, body - values)
    st64(st + 8 * X.ST_AHEAD, ahead)
    return i
