"""A block of headers (HPACK, RFC 7541) -> the codes of what a call's headers say. Reference: hpack's decoder with `layout.class_of`.

No text is kept: an entry of the table is its size and its class, which is all that later blocks can refer to.
"""

from __future__ import annotations

from tidemill.kernels.intrinsics import entry, jit, ld8, ld64, same_bytes, st8, st64
from tidemill.kernels.pump.layout import (
    C_RING,
    FIELD_BYTES,
    GRPC,
    H_ENCODING,
    H_LIST,
    H_METHOD,
    H_PATH,
    H_TYPE,
    HUFFMAN_COMPLETE,
    HUFFMAN_FAIL,
    HUFFMAN_SYMBOL,
    IDENTITY,
    K_HUFFMAN,
    K_STATIC,
    OTHER_ENCODING,
    OTHER_METHOD,
    OTHER_PATH,
    OTHER_TYPE,
    POST,
    PULL,
    RING,
    STATIC,
    T_COUNT,
    T_MOST,
    T_NEWEST,
    T_SIZE,
    TABLE_BYTES,
    WRITE,
    X_ENCODING,
    X_GRPC,
    X_IDENTITY,
    X_METHOD,
    X_PATH,
    X_POST,
    X_PULL,
    X_TYPE,
    X_WRITE,
)


@jit
def _integer(a, end, bits):
    """Return (number, address after it) of an integer whose first byte has `bits` bits of it; address -1 if it is broken or too large."""
    most = (1 << bits) - 1
    value = ld8(a) & most
    a += 1
    if value < most:
        return value, a
    shift = 0
    while a < end and shift <= 28:
        c = ld8(a)
        a += 1
        value += (c & 127) << shift
        shift += 7
        if c < 128:
            return value, a
    return 0, -1


@jit
def _unpacked(T, a, n, out):
    """Decode n bytes of Huffman code into `out`. Returns how many bytes came out; -1 if they are broken."""
    state = 0
    flags = HUFFMAN_COMPLETE
    o = 0
    for i in range(2 * n):
        byte = ld8(a + (i >> 1))
        nibble = byte & 15 if i & 1 else byte >> 4
        word = ld64(T + K_HUFFMAN + 8 * (16 * state + nibble))
        state = word & 255
        flags = word >> 8 & 255
        if flags & HUFFMAN_FAIL:
            return -1
        if flags & HUFFMAN_SYMBOL:
            st8(out + o, word >> 16)
            o += 1
    return o if flags & HUFFMAN_COMPLETE else -1


@jit
def _string(T, a, end, out):
    """Return (address, length, address after it) of a string, which is unpacked into `out` if it is packed; -1 if it is broken."""
    if a >= end:
        return 0, 0, -1
    packed = ld8(a) & 128
    n, a = _integer(a, end, 7)
    if a < 0 or n > end - a:
        return 0, 0, -1
    if packed == 0:
        return a, n, a + n
    size = _unpacked(T, a, n, out)
    if size < 0:
        return 0, 0, -1
    return out, size, a + n


@jit
def _name(T, a, n):
    """Return the word of a name; 0 for one that does not matter."""
    if n == 5 and same_bytes(a, T + X_PATH, 5):
        return H_PATH
    if n == 7 and same_bytes(a, T + X_METHOD, 7):
        return H_METHOD
    if n == 12 and same_bytes(a, T + X_TYPE, 12):
        return H_TYPE
    if n == 13 and same_bytes(a, T + X_ENCODING, 13):
        return H_ENCODING
    return 0


@jit
def _code(T, name, a, n):
    """Return the code of a value."""
    if name == H_METHOD:
        return POST if n == 4 and same_bytes(a, T + X_POST, 4) else OTHER_METHOD
    if name == H_PATH:
        if n == 24 and same_bytes(a, T + X_WRITE, 24):
            return WRITE
        return PULL if n == 24 and same_bytes(a, T + X_PULL, 24) else OTHER_PATH
    if name == H_TYPE:
        if n < 16 or not same_bytes(a, T + X_GRPC, 16):
            return OTHER_TYPE
        return GRPC if n == 16 or ld8(a + 16) == 0x2B or ld8(a + 16) == 0x3B else OTHER_TYPE
    if name == H_ENCODING:
        return IDENTITY if n == 8 and same_bytes(a, T + X_IDENTITY, 8) else OTHER_ENCODING
    return 0


@jit
def _shrink(st, most):
    """Drop the oldest entries until the table has at most so many bytes."""
    size, count, newest = ld64(st + 8 * T_SIZE), ld64(st + 8 * T_COUNT), ld64(st + 8 * T_NEWEST)
    while size > most and count > 0:
        oldest = (newest - count + 1) & (RING - 1)
        size -= ld64(st + 8 * C_RING + 16 * oldest)
        count -= 1
    st64(st + 8 * T_SIZE, size)
    st64(st + 8 * T_COUNT, count)


@jit
def _add(st, size, kind):
    """Put an entry into the table."""
    most = ld64(st + 8 * T_MOST)
    if size > most:
        _shrink(st, 0)
        return
    _shrink(st, most - size)
    newest = (ld64(st + 8 * T_NEWEST) + 1) & (RING - 1)
    st64(st + 8 * C_RING + 16 * newest, size)
    st64(st + 8 * C_RING + 16 * newest + 8, kind)
    st64(st + 8 * T_NEWEST, newest)
    st64(st + 8 * T_COUNT, ld64(st + 8 * T_COUNT) + 1)
    st64(st + 8 * T_SIZE, ld64(st + 8 * T_SIZE) + size)


@jit
def _place(T, st, index):
    """Return the address of an entry by its index; 0 if there is none."""
    if index < 1:
        return 0
    if index <= STATIC:
        return T + K_STATIC + 16 * index
    index -= STATIC + 1
    if index >= ld64(st + 8 * T_COUNT):
        return 0
    return st + 8 * C_RING + 16 * ((ld64(st + 8 * T_NEWEST) - index) & (RING - 1))


@jit
def _take(st, size, kind):
    """A header of the call."""
    st64(st + 8 * H_LIST, ld64(st + 8 * H_LIST) + size)
    word = kind & 0xFFFF
    if word != 0:
        st64(st + 8 * word, kind >> 16 & 0xFFFF)


@jit
def read_headers(T, st, a, n, scratch):
    """Decode n bytes. Returns 0, or -1 if they are broken: then the connection is over. `scratch` has room for 2 * n bytes."""
    for word in range(H_METHOD, H_LIST + 1):
        st64(st + 8 * word, 0)
    end = a + n
    begun = False
    while a < end:
        first = ld8(a)
        if first & 128:
            index, a = _integer(a, end, 7)
            if a < 0:
                return -1
            place = _place(T, st, index)
            if place == 0:
                return -1
            _take(st, ld64(place), ld64(place + 8))
            begun = True
            continue
        if first & 0xE0 == 0x20:
            size, a = _integer(a, end, 5)
            if a < 0 or size > TABLE_BYTES or begun:
                return -1
            st64(st + 8 * T_MOST, size)
            _shrink(st, size)
            continue
        kept = first & 64
        index, a = _integer(a, end, 6 if kept else 4)
        if a < 0:
            return -1
        if index > 0:
            place = _place(T, st, index)
            if place == 0:
                return -1
            word = ld64(place + 8)
            name = word & 0xFFFF
            name_bytes = word >> 32
        else:
            at, name_bytes, a = _string(T, a, end, scratch)
            if a < 0:
                return -1
            name = _name(T, at, name_bytes)
        at, value_bytes, a = _string(T, a, end, scratch)
        if a < 0:
            return -1
        size = name_bytes + value_bytes + FIELD_BYTES
        kind = name_bytes << 32 | _code(T, name, at, value_bytes) << 16 | name
        _take(st, size, kind)
        if kept:
            _add(st, size, kind)
        begun = True
    return 0


@entry(5)
def decode_headers(T, st, a, n, scratch):
    """`read_headers` by itself."""
    return read_headers(T, st, a, n, scratch)
