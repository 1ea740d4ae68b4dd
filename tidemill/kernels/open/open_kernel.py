"""The Open Protocol kernel: ROW records → framed and batched messages. Reference: `tidemill.protocols.open.encode` and `batch`.

It makes one pass with bounded buffers. Before each row it checks the room that the row could need. If there is too little, or the row
falls back to the reference, the call ends with the row's index and is resumed there.
Options are bits of the state (MODE_…). A second program has only the handle key's columns, for events that have no others.
"""

from __future__ import annotations

from tidemill.kernels.intrinsics import (
    as_i,
    as_u,
    bswap64,
    copy32,
    entry,
    jit,
    ld8,
    ld16,
    ld32,
    ld32s,
    ld64,
    ldu64,
    memcpy,
    memmove,
    put,
    same_bytes,
    st8,
    st32,
    st64,
)  # fmt: skip
from tidemill.kernels.messages.compress import compress_in_place
from tidemill.kernels.rows import layout as L
from tidemill.kernels.rows.ahead import ask_ahead
from tidemill.kernels.rows.changed import ASK, CHANGED, SAME, is_bytes
from tidemill.kernels.rows.keys import key_fits
from tidemill.kernels.rows.locate import find, invalidate, locate_row, place_map, place_of
from tidemill.kernels.write.numbers import SIGN64, w_i64, w_u64
from tidemill.kernels.write.values import w_json_value
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
    ST_KEYS,  # address of the keys' buffer
    ST_KEYS_SIZE,
    ST_KEYS_USED,
    ST_VALUES,
    ST_VALUES_SIZE,
    ST_VALUES_USED,
    ST_MESSAGES,  # address of the MESSAGE records, as many as there are rows; key and value are offsets here: buffers may still grow
    ST_MESSAGE_COUNT,
    ST_GROUP,  # the group of the next row
    ST_GROUPS,  # address of the groups' first rows (int32)
    ST_READY_KEY,  # an event made by the reference for the row at which the call begins: addresses and lengths, length -1: none
    ST_READY_KEY_LEN,
    ST_READY_VALUE,
    ST_READY_VALUE_LEN,
    ST_MAX_BATCH,
    ST_MAX_BYTES,
    ST_MODE,  # MODE_… bits
    ST_MARKS,  # address of room for a mark of each column (MARK_BYTES)
    ST_HASHES,  # address of the compressors' table
) = range(20)
STATE_WORDS = 24

MODE_NO_OLD = 1  # updates have no p
MODE_UPDATED = 2  # p has only columns whose value changed
MODE_HANDLE_DELETES = 4  # d has only the handle key
MODE_HANDLE_LARGE = 8  # an event that is too large has only the handle key
MODE_SNAPPY = 16
MODE_LZ4 = 32

# Words (int64) that a table has at T_EXTRA: the program of its handle key's columns.
X_COLUMNS, X_COLUMN_COUNT, X_POOL = range(3)
X_WORDS = 4

# The mark of a column of the new image: its text (address, size) and its value (address, size; NULL and absent are negative).
MARK_TEXT, MARK_TEXT_LEN, MARK_VALUE, MARK_VALUE_LEN = range(0, 32, 8)
MARK_BYTES = 32


VERSION_1 = 1 << 56  # the message version, 1, as a big-endian word
_TS, _RID, _PTN, _TAIL, _U, _P, _D, _OHK, _TRUE = (
    int.from_bytes(text, "little")
    for text in (b'{"ts":', b',"rid":', b',"ptn":', b',"t":1}', b'{"u":', b',"p":', b'{"d":', b',"ohk":t', b"rue}")
)
_UFFF = int.from_bytes(b"ufff", "little")
_ZERO_BRACE = int.from_bytes(b"0}", "little")
KEY_ROOM = 192  # most bytes of a message key apart from its names


@jit
def put_text(target, source, size):
    """Copy a program's constant, which mostly has up to 32 bytes. Returns the end."""
    copy32(target, source)
    done = 32
    while done < size:
        copy32(target + done, source + done)
        done += 32
    return target + size


@jit
def big_endian(v):
    """Return an int64 with its bytes in network order."""
    return as_i(bswap64(as_u(v)))


@jit
def has_lost_bytes(a, n):
    """Return whether JSON text at a has an escaped U+FFFD. Different bytes can have such a text."""
    for i in range(n - 5):
        if ld8(a + i) == 92 and ld32(a + i + 1) == _UFFF and ld8(a + i + 5) == 100:
            return True
    return False


@jit
def is_zero_text(a):
    """Return whether the number at a, which is followed by a brace, is 0 or -0."""
    a += 1 if ld8(a) == 45 else 0
    return ld16(a) == _ZERO_BRACE


@jit
def value_state(op, prefix, mark, text, size, a, n):
    """Compare a value with the mark's: SAME, CHANGED or ASK. The value is n bytes at a. Its column's text has `size` bytes, the first
    `prefix` before the value."""
    m = ld64(mark + MARK_VALUE_LEN)
    if n < 0 and n == m:
        return SAME
    if n >= 0 and m >= 0 and is_bytes(op):
        return SAME if n == m and same_bytes(a, ld64(mark + MARK_VALUE), n) else CHANGED
    if size == ld64(mark + MARK_TEXT_LEN) and same_bytes(text, ld64(mark + MARK_TEXT), size):
        return ASK if op == L.OP_TEXT and has_lost_bytes(text, size) else SAME
    if op == L.OP_DOUBLE or op == L.OP_FLOAT:
        return SAME if is_zero_text(text + prefix) and is_zero_text(ld64(mark + MARK_TEXT) + prefix) else CHANGED
    return CHANGED


@jit
def w_columns(T, p, table, program, count, pool, marks, against, S):
    """Write {"column":{…},…} of the row that was located; -1: fall back to the reference.

    marks: 0, or room for a mark of each column. With `against`, columns whose value equals the mark are left out; if all are, p stays.
    """
    zone = ld64(table + 8 * L.T_ZONE)
    cache = ld64(table + 8 * L.T_CACHE)
    offsets, data, large, last = place_map(cache)
    start = p
    for i in range(count):
        column = program + L.COLUMN_BYTES * i
        place = place_of(cache, ld32s(column + 4 * L.P_SLOT))
        text = p
        a = 0
        n = place
        if place == L.PLACE_NULL:
            p = put_text(p, pool + ld32s(column + 4 * L.P_NULL), ld32s(column + 4 * L.P_NULL_LEN))
        elif place == L.PLACE_ABSENT:
            size = ld32s(column + 4 * L.P_ABSENT_LEN)
            if size < 0:
                return -1
            p = put_text(p, pool + ld32s(column + 4 * L.P_ABSENT), size)
        else:
            a, n = find(place, offsets, data, large, last, S)
            if n < 0:
                return -1
            p = put_text(p, pool + ld32s(column + 4 * L.P_PREFIX), ld32s(column + 4 * L.P_PREFIX_LEN))
            p = w_json_value(T, p, ld32s(column + 4 * L.P_OP), ld32s(column + 4 * L.P_FSP), a, n, zone, S)
            if p < 0:
                return -1
            p = put_text(p, pool + ld32s(column + 4 * L.P_SUFFIX), ld32s(column + 4 * L.P_SUFFIX_LEN))
        if marks:
            mark = marks + MARK_BYTES * i
            if against:
                prefix = ld32s(column + 4 * L.P_PREFIX_LEN)
                state = value_state(ld32s(column + 4 * L.P_OP), prefix, mark, text, p - text, a, n)
                if state == ASK:
                    return -1
                if state == SAME:
                    p = text
                    continue
                st8(text, 123 if text == start else 44)
                if i == count - 1:  # its text includes the end of the image, which is written below
                    p -= 1
            else:
                st64(mark + MARK_TEXT, text)
                st64(mark + MARK_TEXT_LEN, p - text)
                st64(mark + MARK_VALUE, a)
                st64(mark + MARK_VALUE_LEN, n)
    if against and p != start:
        st8(p, 125)
        p += 1
    return p


@jit
def w_event_value(T, p, table, row, mode, only_handle, marks, S):
    """Write the value JSON of a row; -1: fall back to the reference."""
    value_len = ld32s(row + R_VALLEN)
    old_len = ld32s(row + R_OLDLEN)
    if value_len > 0 and mode & MODE_NO_OLD:
        old_len = 0
    if value_len <= 0 and mode & MODE_HANDLE_DELETES:
        only_handle = True
    program = ld64(table + 8 * L.T_COLUMNS)
    count = ld64(table + 8 * L.T_COLUMN_COUNT)
    pool = ld64(table + 8 * L.T_POOL)
    if only_handle:
        extra = ld64(table + 8 * L.T_EXTRA)
        program = ld64(extra + 8 * X_COLUMNS)
        count = ld64(extra + 8 * X_COLUMN_COUNT)
        pool = ld64(extra + 8 * X_POOL)
        if count == 0:
            return -1
    if not (mode & MODE_UPDATED and value_len > 0 and old_len > 0):
        marks = 0
    st64(p, _U)
    start = p
    a = ld64(row + R_VALUE)
    n = value_len
    for image in range(2):
        if image == 1:
            st64(p, _P if value_len > 0 else _D)
            a = ld64(row + R_OLD)
            n = old_len
        if n <= 0:
            continue
        if not locate_row(table, a, n, S):
            p = -1
            break
        before = p
        p = w_columns(T, p + 5, table, program, count, pool, marks, marks != 0 and image == 1, S)
        if p < 0:
            break
        if p == before + 5:  # nothing changed
            p = before
    if p <= start:
        return -1
    st8(p, 125)
    return p + 1


@jit
def w_event_key(p, table, flags, row, only_handle):
    """Write the key JSON of a row."""
    key = ld64(row + R_KEY)
    st64(p, _TS)
    p = w_u64(p + 6, ldu64(row + R_COMMIT))
    p = put(p, ld64(table + 8 * L.T_KEY_HEAD), ld64(table + 8 * L.T_KEY_HEAD_LEN))
    if not flags & L.FLAG_COMMON:
        handle = as_i(bswap64(ldu64(key + 11)) ^ SIGN64)
        if handle != 0:
            st64(p, _RID)
            p = w_i64(p + 7, handle)
    if flags & L.FLAG_PARTITION:
        st64(p, _PTN)
        p = w_i64(p + 7, as_i(bswap64(ldu64(key + 1)) ^ SIGN64))
    st64(p, _TAIL)
    if only_handle:
        st64(p + 6, _OHK)
        st32(p + 14, _TRUE)
        return p + 18
    return p + 7


@entry(7)
def open_rows(i, n, rows, tables, T, S, st):
    """Encode rows i to n - 1 after those in the state's buffers. Returns the row at which the call ended (see ST_OUTCOME).

    rows: ROW records grouped by target. tables: table words, indexed by ROW.table. T: constant tables. S: scratch. st: state.
    """
    keys = ld64(st + 8 * ST_KEYS)
    keys_end = keys + ld64(st + 8 * ST_KEYS_SIZE)
    kp = keys + ld64(st + 8 * ST_KEYS_USED)
    values = ld64(st + 8 * ST_VALUES)
    values_end = values + ld64(st + 8 * ST_VALUES_SIZE)
    vp = values + ld64(st + 8 * ST_VALUES_USED)
    messages = ld64(st + 8 * ST_MESSAGES)
    count = ld64(st + 8 * ST_MESSAGE_COUNT)
    groups = ld64(st + 8 * ST_GROUPS)
    group = ld64(st + 8 * ST_GROUP)
    max_batch = ld64(st + 8 * ST_MAX_BATCH)
    max_bytes = ld64(st + 8 * ST_MAX_BYTES)
    mode = ld64(st + 8 * ST_MODE)
    marks = ld64(st + 8 * ST_MARKS)
    hashes = ld64(st + 8 * ST_HASHES)
    compressed = mode & (MODE_SNAPPY | MODE_LZ4)
    room = 4 if compressed else 2
    ready_len = ld64(st + 8 * ST_READY_KEY_LEN)
    message = messages + MESSAGE_BYTES * (count - 1)
    events = 0
    if count > 0:
        events = ld64(message + M_ROWS)
    outcome = L.DONE
    while i < n:
        ask_ahead(i, n, rows, tables)
        row = rows + ROW_BYTES * i
        table = tables + L.TABLE_BYTES * ld32(row + R_TABLE)
        flags = ld64(table + 8 * L.T_FLAGS)
        fresh = count == 0 or events >= max_batch
        next_group = group
        while ld32(groups + 4 * next_group) <= i:  # the first row of a group begins a message
            fresh = True
            next_group += 1
        key_start = kp + (8 if fresh else 0)
        key_json = key_start + 8
        value_json = vp + 8
        if ready_len >= 0:
            size = ld64(st + 8 * ST_READY_VALUE_LEN)
            if key_json + ready_len + 64 > keys_end or value_json + size + 64 > values_end:
                outcome = L.GROW
                break
            memcpy(key_json, ld64(st + 8 * ST_READY_KEY), ready_len)
            memcpy(value_json, ld64(st + 8 * ST_READY_VALUE), size)
            key_end = key_json + ready_len
            value_end = value_json + size
            ready_len = -1
        else:
            key_len = ld32s(row + R_KEYLEN)
            value_len = ld32s(row + R_VALLEN)
            old_len = ld32s(row + R_OLDLEN)
            need = 2 * ld64(table + 8 * L.T_FIXED) + 8 * (value_len + old_len + 2 * key_len)
            if vp + room * need > values_end or kp + ld64(table + 8 * L.T_KEY_HEAD_LEN) + KEY_ROOM > keys_end:
                outcome = L.GROW
                break
            if flags & L.FLAG_SLOW or not key_fits(table, flags, ld64(row + R_KEY), key_len, S):
                outcome = L.UNKNOWN
                break
            only_handle = False
            while True:
                value_end = w_event_value(T, value_json, table, row, mode, only_handle, marks, S)
                key_end = w_event_key(key_json, table, flags, row, only_handle)
                if compressed and value_end >= 0:
                    value_end = compress_in_place(value_json, value_end, mode & MODE_SNAPPY, hashes)
                if only_handle or not mode & MODE_HANDLE_LARGE or value_end < 0:
                    break
                if key_end - key_json + value_end - value_json + RECORD_OVERHEAD + 16 + 8 <= max_bytes:
                    break
                only_handle = True
            if value_end < 0:
                invalidate(table)
                outcome = L.UNKNOWN
                break
        key_size = key_end - key_json
        value_size = value_end - value_json
        if key_size + value_size + RECORD_OVERHEAD + 16 + 8 > max_bytes:
            outcome = L.TOO_LARGE
            break
        if not fresh:
            size = ld64(message + M_KEYLEN) + ld64(message + M_VALLEN) + RECORD_OVERHEAD + key_size + value_size + 16
            if size > max_bytes:
                fresh = True
                memmove(key_json + 8, key_json, key_size)
                key_start += 8
                key_json += 8
                key_end += 8
        if fresh:
            message = messages + MESSAGE_BYTES * count
            count += 1
            events = 0
            st64(kp, VERSION_1)
            st64(message + M_TARGET, ld32(row + R_TARGET))
            st64(message + M_KEY, kp - keys)
            st64(message + M_VALUE, vp - values)
        st64(key_start, big_endian(key_size))
        st64(vp, big_endian(value_size))
        kp = key_end
        vp = value_end
        group = next_group
        events += 1
        st64(message + M_KEYLEN, kp - keys - ld64(message + M_KEY))
        st64(message + M_VALLEN, vp - values - ld64(message + M_VALUE))
        st64(message + M_ROWS, events)
        st64(message + M_COMMIT, ld64(row + R_COMMIT))
        i += 1
    st64(st + 8 * ST_OUTCOME, outcome)
    st64(st + 8 * ST_KEYS_USED, kp - keys)
    st64(st + 8 * ST_VALUES_USED, vp - values)
    st64(st + 8 * ST_MESSAGE_COUNT, count)
    st64(st + 8 * ST_GROUP, group)
    st64(st + 8 * ST_READY_KEY_LEN, ready_len)
    return i
