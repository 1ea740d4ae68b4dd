"""Finding the values of a row, in row format 2, row format 1 and the key. Reference: `tidemill.tidb.rows.RowReader`.

After `locate_row` each slot of the table has a place (`layout.PLACE_…`), and `find` returns a value's address and length. Values of
format 1 and of keys are converted to the form of format 2, so writers know one form. Anything unusual is refused here, and the reference
decides whether it is an error.
"""

from __future__ import annotations

from tidemill.kernels.intrinsics import (
    bswap64,
    jit,
    ld8,
    ld16,
    ld32,
    ld32s,
    ld64,
    ldu64,
    put,
    put_exact_source,
    same_bytes,
    st32,
    st64,
)
from tidemill.kernels.rows import layout as L
from tidemill.kernels.wire import short_varint, unzigzag, varint
from tidemill.kernels.write.numbers import SIGN64, decimal_size

MAX_UNKNOWN = 256  # columns of a row of format 1 that the table does not have

# Flags of datums in keys and in rows of format 1.
FLAG_NULL, FLAG_BYTES, FLAG_COMPACT, FLAG_INT, FLAG_UINT, FLAG_FLOAT = range(6)
FLAG_DECIMAL, FLAG_DURATION, FLAG_VARINT, FLAG_UVARINT, FLAG_JSON, FLAG_VECTOR = 6, 7, 8, 9, 10, 20


@jit
def reset_places(table, cache):
    """Set every slot to the place of a value that the row lacks."""
    put(cache + L.CACHE_PLACES, ld64(table + 8 * L.T_TEMPLATE), 4 * ld64(table + 8 * L.T_SLOTS) + 4)


@jit
def is_among(column, a, count, large):
    """Return whether a column id is among the first `count` ids of the header at a."""
    for i in range(count):
        if column == (ld32(a + 6 + 4 * i) if large else ld8(a + 6 + i)):
            return True
    return False


@jit
def unknown_columns_fit(table, a, not_null, null, large):
    """Return whether no unknown column is both NULL and not NULL."""
    slot_of = ld64(table + 8 * L.T_SLOT_OF)
    max_id = ld64(table + 8 * L.T_MAX_ID)
    slots = ld64(table + 8 * L.T_SLOTS)
    for i in range(not_null, not_null + null):
        column = ld32(a + 6 + 4 * i) if large else ld8(a + 6 + i)
        if (column > max_id or ld16(slot_of + 2 * column) == slots) and is_among(column, a, not_null, large):
            return False
    return True


@jit
def map_columns(table, cache, a, not_null, null, large):
    """Set the place of each column in the header at a. False: the ids are not in order, or one occurs twice.

    The headers of rows with NULLs differ from row to row, so there is no branch for each column. Unknown columns go to the place after the
    last slot.
    """
    slot_of = ld64(table + 8 * L.T_SLOT_OF)
    max_id = ld64(table + 8 * L.T_MAX_ID)
    slots = ld64(table + 8 * L.T_SLOTS)
    template = ld64(table + 8 * L.T_TEMPLATE)
    places = cache + L.CACHE_PLACES
    wrong = 0  # negative once ids do not ascend
    before = -1
    for i in range(not_null):
        column = ld32(a + 6 + 4 * i) if large else ld8(a + 6 + i)
        wrong |= column - before - 1
        before = column
        slot = ld16(slot_of + 2 * column) if column <= max_id else slots
        st32(places + 4 * slot, i)
    before = -1
    twice = 0
    for i in range(not_null, not_null + null):
        column = ld32(a + 6 + 4 * i) if large else ld8(a + 6 + i)
        wrong |= column - before - 1
        before = column
        slot = ld16(slot_of + 2 * column) if column <= max_id else slots
        place = places + 4 * slot
        if slot != slots:
            twice |= ld32(place) ^ ld32(template + 4 * slot)
        st32(place, L.PLACE_NULL)
    if wrong < 0 or twice != 0:
        return False
    return ld32s(places + 4 * slots) == L.PLACE_ABSENT or unknown_columns_fit(table, a, not_null, null, large)


@jit
def ends_in_order(offsets, count, large):
    """Return whether no value ends before it begins. The loops have no branch, so they become vector code."""
    wrong = 0  # negative once an end is less than the end before it
    before = 0
    if large:
        for i in range(count):
            end = ld32(offsets + 4 * i)
            wrong |= end - before
            before = end
    else:
        for i in range(count):
            end = ld16(offsets + 2 * i)
            wrong |= end - before
            before = end
    return wrong >= 0


@jit
def trailer_size(a, flags, left):
    """Return the size of the checksum at a, where `left` bytes are left. -1 if that does not fit the row's flags."""
    if not flags & 2:
        return 0
    if left < 5:
        return -1
    return 9 if ld8(a) & 8 else 5


@jit
def same_header(a, b, size):
    """Return whether two headers of one size are equal. The last words overlap, so no byte is compared alone."""
    if size < 8:
        return same_bytes(a, b, size)
    done = 0
    while done < size - 8:
        if ld64(a + done) != ld64(b + done):
            return False
        done += 8
    return ld64(a + size - 8) == ld64(b + size - 8)


@jit
def locate_format2(table, cache, a, n):
    """Locate a row of format 2. Rows of a table mostly share their header, and only offsets differ. False: the row is broken."""
    if n < 6:
        return False
    flags = ld8(a + 1)
    not_null = ld16(a + 2)
    null = ld16(a + 4)
    large = flags & 1
    header = 6 + ((not_null + null) << 2 if large else not_null + null)
    offsets = a + header
    data = offsets + (not_null << 2 if large else not_null << 1)
    if flags > 3 or data - a > n:
        return False
    last = 0
    if not_null:
        last = ld32(data - 4) if large else ld16(data - 2)
    left = n - (data + last - a)
    if left < 0 or left != trailer_size(data + last, flags, left):
        return False
    st64(cache + 8 * L.C_OFFSETS, offsets)
    st64(cache + 8 * L.C_DATA, data)
    st64(cache + 8 * L.C_LARGE, large)
    st64(cache + 8 * L.C_LAST, last)
    remembered = cache + L.CACHE_PLACES + ((4 * ld64(table + 8 * L.T_SLOTS) + 67) & ~63)
    if ld64(cache + 8 * L.C_HEADER_LEN) != header or not same_header(remembered, a, header):
        st64(cache + 8 * L.C_HEADER_LEN, -1)
        reset_places(table, cache)
        if not map_columns(table, cache, a, not_null, null, large):
            return False
        if header <= L.HEADER_CACHED:
            put_exact_source(remembered, a, header)
            st64(cache + 8 * L.C_HEADER_LEN, header)
    # Overlapping values would have more bytes than the row, from whose size the room for the output is computed.
    return ends_in_order(offsets, not_null, large)


@jit
def json_end(a, end):
    """Return the address after the binary JSON (type code and body) at a; -1 if it is not all there."""
    if a >= end:
        return -1
    kind = ld8(a)
    a += 1
    size = 8
    if kind == 1 or kind == 3:
        if end - a < 8:
            return -1
        size = ld32(a + 4)
        if size < 8:
            return -1
    elif kind == 4:
        size = 1
    elif kind == 12:
        size, a = short_varint(a, end)
    elif kind == 13:
        size, a = short_varint(a + 1, end)
    elif kind == 17:
        size = 12
    elif kind < 9 or kind > 17:
        return -1
    if size < 0 or size > end - a:
        return -1
    return a + size


@jit
def found(S, index, a, n):
    """Note value `index` as n bytes at a."""
    st64(S + L.FOUND_AT + 16 * index, a)
    st64(S + L.FOUND_AT + 16 * index + 8, n)


@jit
def locate_format1(table, cache, a, n, S):
    """Locate a row of format 1, a list of (column id, datum). Values that are not bytes are unpacked after the key's. False: fall back."""
    st64(cache + 8 * L.C_HEADER_LEN, -1)  # the places below fit no other row
    reset_places(table, cache)
    end = a + n
    if n == 1 and ld8(a) == FLAG_NULL:
        return True
    slot_of = ld64(table + 8 * L.T_SLOT_OF)
    max_id = ld64(table + 8 * L.T_MAX_ID)
    template = ld64(table + 8 * L.T_TEMPLATE)
    kinds = ld64(table + 8 * L.T_KIND)
    first = ld64(table + 8 * L.T_HANDLE_COUNT) + 1
    room = S + L.UNPACKED_AT + L.MAX_KEY
    slots = ld64(table + 8 * L.T_SLOTS)
    unknown_columns = 0
    while a < end:
        if ld8(a) != FLAG_VARINT:
            return False
        u, a = varint(a + 1, end)
        if a < 0 or a >= end:
            return False
        column = unzigzag(u)
        flag = ld8(a)
        a += 1
        slot = -1
        if 0 <= column <= max_id and ld16(slot_of + 2 * column) < slots:
            slot = ld16(slot_of + 2 * column)
        if slot < 0:
            for i in range(unknown_columns):
                if ld64(S + 8 * i) == column:
                    return False  # named twice
            if unknown_columns == MAX_UNKNOWN:
                return False
            st64(S + 8 * unknown_columns, column)
            unknown_columns += 1
        op = 0
        place = cache + L.CACHE_PLACES
        index = 0
        if slot >= 0:
            place += 4 * slot
            if ld32s(place) != ld32s(template + 4 * slot):
                return False  # named twice
            op = ld8(kinds + slot)
            index = first + slot
            if index >= L.FOUND_PAIRS:
                return False
            st32(place, L.PLACE_FOUND - index)
        if flag == FLAG_NULL:
            if slot >= 0:
                st32(place, L.PLACE_NULL)
            continue
        if flag == FLAG_COMPACT:
            u, a = varint(a, end)
            if a < 0:
                return False
            size = unzigzag(u)
            if size < 0 or size > end - a:
                return False
            if slot >= 0:
                if op != L.OP_TEXT and op != L.OP_QUOTED and op != L.OP_BLOB:
                    return False
                found(S, index, a, size)
            a += size
            continue
        if flag == FLAG_VARINT or flag == FLAG_UVARINT:
            u, a = varint(a, end)
            if a < 0:
                return False
            if slot >= 0:
                if flag == FLAG_VARINT:
                    if op != L.OP_INT and op != L.OP_YEAR and op != L.OP_DURATION:
                        return False
                    st64(room, unzigzag(u))
                else:
                    if op != L.OP_UINT and op != L.OP_DATE and op != L.OP_DATETIME and op != L.OP_TIMESTAMP:
                        return False
                    st64(room, u)
                found(S, index, room, 8)
                room += 64
            continue
        if flag == FLAG_FLOAT:
            if end - a < 8:
                return False
            if slot >= 0:
                if op != L.OP_FLOAT and op != L.OP_DOUBLE:
                    return False
                found(S, index, a, 8)
            a += 8
            continue
        if flag == FLAG_DECIMAL:
            size = decimal_size(a, end - a)
            if size < 0 or op != L.OP_DECIMAL:  # an unknown column's decimal falls back too: the reference checks its digits
                return False
            put_exact_source(room, a, size)
            found(S, index, room, size)
            room += 64
            a += size
            continue
        if flag == FLAG_JSON:
            after = json_end(a, end)
        elif flag == FLAG_VECTOR and end - a >= 4 and 4 * ld32(a) <= end - a - 4:
            after = a + 4 + 4 * ld32(a)
        else:
            return False
        if after < 0:
            return False
        if slot >= 0:
            if op != (L.OP_JSON if flag == FLAG_JSON else L.OP_VECTOR):
                return False
            found(S, index, a, after - a)
        a = after
    return True


@jit
def locate_row(table, a, n, S):
    """Set the place of every slot for the row value of n bytes at a. False: fall back to the reference."""
    cache = ld64(table + 8 * L.T_CACHE)
    if n > 0 and ld8(a) == 0x80:
        return locate_format2(table, cache, a, n)
    return n > 0 and locate_format1(table, cache, a, n, S)


@jit
def unpack_group_bytes(a, end, room):
    """Unpack memcomparable bytes at a to room. Returns (size, address after them); size -1 if they are broken."""
    size = 0
    while end - a >= 9:
        st64(room + size, ld64(a))
        pad = 255 - ld8(a + 8)
        a += 9
        if pad == 0:
            size += 8
            continue
        if pad > 8:
            return -1, a
        for i in range(8 - pad, 8):
            if ld8(a - 9 + i) != 0:
                return -1, a
        return size + 8 - pad, a
    return -1, a


@jit
def locate_key(table, a, n, S):
    """Unpack the columns of a common handle from the key of n bytes at a. False: fall back to the reference."""
    if n > L.MAX_KEY:
        return False
    end = a + n
    a += 11
    start = a
    kinds = ld64(table + 8 * L.T_HANDLE)
    room = S + L.UNPACKED_AT + 16
    for i in range(ld64(table + 8 * L.T_HANDLE_COUNT)):
        if a >= end:
            return False
        op = ld8(kinds + i)
        flag = ld8(a)
        a += 1
        if flag == FLAG_BYTES:
            if op != L.OP_TEXT and op != L.OP_QUOTED and op != L.OP_BLOB:
                return False
            size, a = unpack_group_bytes(a, end, room)
            if size < 0:
                return False
            found(S, i, room, size)
            room += size + 8
            continue
        if flag == FLAG_DECIMAL:
            size = decimal_size(a, end - a)
            if size < 0 or op != L.OP_DECIMAL:
                return False
            found(S, i, a, size)
            a += size
            continue
        if end - a < 8:
            return False
        if flag == FLAG_FLOAT:
            if op != L.OP_FLOAT and op != L.OP_DOUBLE:
                return False
            found(S, i, a, 8)
            a += 8
            continue
        u = bswap64(ldu64(a))
        a += 8
        if flag == FLAG_INT or flag == FLAG_DURATION:
            if (flag == FLAG_DURATION) != (op == L.OP_DURATION) or (op != L.OP_INT and op != L.OP_YEAR and op != L.OP_DURATION):
                return False
            u ^= SIGN64
        elif flag != FLAG_UINT or (op != L.OP_UINT and op != L.OP_DATE and op != L.OP_DATETIME and op != L.OP_TIMESTAMP):
            return False
        st64(room, u)
        found(S, i, room, 8)
        room += 16
    # Handles shorter than nine bytes are padded with zeros, so that they differ from integers.
    if a < end and end - start > 9:
        return False
    while a < end:
        if ld8(a) != 0:
            return False
        a += 1
    return True


@jit
def found_handle(S, handle):
    """Note the integer handle as value 0."""
    st64(S + L.UNPACKED_AT + 16, handle)
    found(S, 0, S + L.UNPACKED_AT + 16, 8)


@jit
def invalidate(table):
    """Forget the place map of a table, so that the next row's header is read and checked again."""
    st64(ld64(table + 8 * L.T_CACHE) + 8 * L.C_HEADER_LEN, -1)


@jit
def place_map(cache):
    """Return the words of a place map that `find` needs. Load them once a row."""
    return ld64(cache + 8 * L.C_OFFSETS), ld64(cache + 8 * L.C_DATA), ld64(cache + 8 * L.C_LARGE), ld64(cache + 8 * L.C_LAST)


@jit
def place_of(cache, slot):
    """Return where the value of a slot is: PLACE_NULL, PLACE_ABSENT, or a place for `find`."""
    return ld32s(cache + L.CACHE_PLACES + 4 * slot)


@jit
def find(place, offsets, data, large, last, S):
    """Return (address, length) of the value at a place that is neither NULL nor absent; length -1 if it is broken.

    offsets, data, large, last: from `place_map`.
    """
    if place < 0:
        pair = S + L.FOUND_AT + 16 * (L.PLACE_FOUND - place)
        return ld64(pair), ld64(pair + 8)
    begin = 0
    if large:
        end = ld32(offsets + 4 * place)
        if place:
            begin = ld32(offsets + 4 * place - 4)
    else:
        end = ld16(offsets + 2 * place)
        if place:
            begin = ld16(offsets + 2 * place - 2)
    if begin > end or end > last:
        return 0, -1
    return data + begin, end - begin


@jit
def find_in(place, cache, S):
    """Find a single value of a row, see `find`."""
    offsets, data, large, last = place_map(cache)
    return find(place, offsets, data, large, last, S)
