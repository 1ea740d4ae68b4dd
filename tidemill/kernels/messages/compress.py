"""Compression of one value: a raw Snappy block, or an LZ4 frame with a checksum of its content.

Both look for repeats greedily with one hash table of positions, in larger steps the longer they find nothing. The reference is any library
that expands the result (`protocols.common.compression`). Room needed at p: n + n/6 + 64 bytes; the table has HASH_BYTES.
No library is used, because no Snappy library has a C function that a kernel could call, and lz4's function for frames took 0.97 to 1.8
times as long as `w_lz4` for messages of 150 bytes to 1 MiB.
"""

from __future__ import annotations

from tidemill.kernels.intrinsics import ctz, jit, ld8, ld32, ld64, memcpy, memmove, st8, st16, st32, st64
from tidemill.kernels.wire import w_varint

HASH_BITS = 12
HASH_BYTES = 4 << HASH_BITS
SNAPPY_BLOCK = 1 << 16  # offsets of copies have 16 bits
LZ4_BLOCK = 4 << 20  # as the frame's header says
LZ4_WINDOW = 65535

_MASK32 = 0xFFFFFFFF
_LZ4_MAGIC = int.from_bytes(b"\x04\x22\x4d\x18", "little")
_LZ4_HEADER = int.from_bytes(b"\x64\x70\xb9", "little")  # version 1, independent blocks of up to 4 MiB, content checksum; their checksum


@jit
def hash_bits(n):
    """Return the bits of the hash table for n bytes. Clearing the table should not cost more than compressing."""
    bits = 8
    while bits < HASH_BITS and (1 << bits) < n:
        bits += 1
    return bits


@jit
def clear(table, bits):
    """Empty the table."""
    for at in range(0, 4 << bits, 8):
        st64(table + at, 0)


@jit
def slot_of(a, bits):
    """Return the slot of the four bytes at a."""
    return ((ld32(a) * 0x9E3779B1) & _MASK32) >> (32 - bits)


@jit
def common(a, b, end):
    """Return how many bytes from a up to `end` equal those from b on. b is before a."""
    start = a
    while a + 8 <= end:
        differ = ld64(a) ^ ld64(b)
        if differ:
            return a - start + (ctz(differ) >> 3)
        a += 8
        b += 8
    while a < end and ld8(a) == ld8(b):
        a += 1
        b += 1
    return a - start


# ------------------------------------------------------------------ Snappy


@jit
def w_literal_tag(p, s, n):
    """Write n bytes as a literal. n may be 0."""
    if n == 0:
        return p
    left = n - 1
    if left < 60:
        st8(p, left << 2)
        p += 1
    elif left < 256:
        st16(p, 60 << 2 | left << 8)
        p += 2
    else:
        st8(p, 61 << 2)
        st16(p + 1, left)
        p += 3
    memcpy(p, s, n)
    return p + n


@jit
def w_copy_tag(p, offset, n):
    """Write a copy of n ≥ 4 bytes from `offset` bytes before."""
    while n >= 68:
        st8(p, 63 << 2 | 2)
        st16(p + 1, offset)
        p += 3
        n -= 64
    if n > 64:
        st8(p, 59 << 2 | 2)
        st16(p + 1, offset)
        p += 3
        n -= 60
    if n >= 12 or offset >= 2048:
        st8(p, (n - 1) << 2 | 2)
        st16(p + 1, offset)
        return p + 3
    st16(p, (offset >> 8) << 5 | (n - 4) << 2 | 1 | (offset & 255) << 8)
    return p + 2


@jit
def w_snappy(p, s, n, table):
    """Write the n bytes at s as a Snappy block."""
    p = w_varint(p, n)
    bits = hash_bits(min(n, SNAPPY_BLOCK))
    for first in range(0, n, SNAPPY_BLOCK):
        base = s + first
        size = min(n - first, SNAPPY_BLOCK)
        end = base + size
        literal = base
        clear(table, bits)
        a = base + 1
        missed = 32
        while a + 4 <= end:
            slot = table + 4 * slot_of(a, bits)
            candidate = base + ld32(slot)
            st32(slot, a - base)
            if ld32(candidate) != ld32(a):
                a += missed >> 5
                missed += 1
                continue
            p = w_literal_tag(p, literal, a - literal)
            size = 4 + common(a + 4, candidate + 4, end)
            p = w_copy_tag(p, a - candidate, size)
            a += size
            literal = a
            missed = 32
            if a + 3 <= end:
                st32(table + 4 * slot_of(a - 1, bits), a - 1 - base)
        p = w_literal_tag(p, literal, end - literal)
    return p


# ------------------------------------------------------------------ LZ4


@jit
def rotate(x, bits):
    """Rotate a 32-bit number left."""
    return (x << bits | x >> (32 - bits)) & _MASK32


@jit
def xxh32_lane(lane, word):
    """Return one step of a lane."""
    return rotate((lane + word * 0x85EBCA77) & _MASK32, 13) * 0x9E3779B1 & _MASK32


@jit
def xxh32(a, n):
    """Return XXH32 of n bytes with seed 0."""
    end = a + n
    if n >= 16:
        one = 0x24234428
        two = 0x85EBCA77
        three = 0
        four = 0x61C8864F
        while a + 16 <= end:
            one = xxh32_lane(one, ld32(a))
            two = xxh32_lane(two, ld32(a + 4))
            three = xxh32_lane(three, ld32(a + 8))
            four = xxh32_lane(four, ld32(a + 12))
            a += 16
        h = rotate(one, 1) + rotate(two, 7) + rotate(three, 12) + rotate(four, 18)
    else:
        h = 0x165667B1
    h = (h + n) & _MASK32
    while a + 4 <= end:
        h = rotate((h + ld32(a) * 0xC2B2AE3D) & _MASK32, 17) * 0x27D4EB2F & _MASK32
        a += 4
    while a < end:
        h = rotate((h + ld8(a) * 0x165667B1) & _MASK32, 11) * 0x9E3779B1 & _MASK32
        a += 1
    h = (h ^ h >> 15) * 0x85EBCA77 & _MASK32
    h = (h ^ h >> 13) * 0xC2B2AE3D & _MASK32
    return h ^ h >> 16


@jit
def w_lz4_length(p, n):
    """Write the rest of a length that does not fit into the token."""
    while n >= 255:
        st8(p, 255)
        p += 1
        n -= 255
    st8(p, n)
    return p + 1


@jit
def w_lz4_literals(p, s, n, match):
    """Write a token with n literals and the match's length less 4 (0 at the end), then the literals. The caller writes the match's rest."""
    st8(p, min(n, 15) << 4 | min(match, 15))
    p += 1
    if n >= 15:
        p = w_lz4_length(p, n - 15)
    memcpy(p, s, n)
    return p + n


@jit
def w_lz4_block(p, s, n, table):
    """Write the n bytes at s as the sequences of a block; the last five bytes are literals, no match begins in the last twelve."""
    bits = hash_bits(n)
    clear(table, bits)
    end = s + n
    literal = s
    a = s + 1
    missed = 64
    while a + 12 < end:
        slot = table + 4 * slot_of(a, bits)
        candidate = s + ld32(slot)
        st32(slot, a - s)
        if a - candidate > LZ4_WINDOW or ld32(candidate) != ld32(a):
            a += missed >> 6
            missed += 1
            continue
        more = common(a + 4, candidate + 4, end - 5)
        p = w_lz4_literals(p, literal, a - literal, more)
        st16(p, a - candidate)
        p += 2
        if more >= 15:
            p = w_lz4_length(p, more - 15)
        a += 4 + more
        literal = a
        missed = 64
    return w_lz4_literals(p, literal, end - literal, 0)


@jit
def w_lz4(p, s, n, table):
    """Write the n bytes at s as an LZ4 frame."""
    st32(p, _LZ4_MAGIC)
    st32(p + 4, _LZ4_HEADER)
    p += 7
    for first in range(0, n, LZ4_BLOCK):
        size = min(n - first, LZ4_BLOCK)
        done = w_lz4_block(p + 4, s + first, size, table) - p - 4
        if done >= size:  # stored as it is
            memcpy(p + 4, s + first, size)
            st32(p, size | 1 << 31)
            done = size
        else:
            st32(p, done)
        p += 4 + done
    st32(p, 0)
    st32(p + 4, xxh32(s, n))
    return p + 8


# ------------------------------------------------------------------ both


@jit
def compress_at(p, s, end, snappy, hashes):
    """Write the bytes from s to end, compressed as Snappy or else LZ4. Returns the end. Needs as much room, and a little more."""
    return w_snappy(p, s, end - s, hashes) if snappy else w_lz4(p, s, end - s, hashes)


@jit
def compress_in_place(p, end, snappy, hashes):
    """Compress the bytes from p to end. Returns the new end. Needs as much room behind them, and a little more."""
    room = end + 64
    size = compress_at(room, p, end, snappy, hashes) - room
    memmove(p, room, size)
    return p + size
