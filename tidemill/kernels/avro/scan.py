"""Kernels that find the fields of Avro messages in Arrow buffers. Reference: `tidemill.protocols.avro.decode`.

`scan` finds every field of messages of one schema; `gather` and `numbers` make Arrow buffers of texts, bytes and decimals from there.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import entry, ld8, ld32, ld32s, ld64, memcpy, st32, st64
from tidemill.kernels.wire import unzigzag, varint

KIND_BOOLEAN, KIND_VARINT, KIND_FLOAT, KIND_DOUBLE, KIND_BYTES = range(5)
HEAD = 5
NULL = -1  # the length of a null


@entry(8)
def scan(n, rows, data, offsets, fields, count, places, lengths):
    """Find the `count` fields of n messages. Returns n, or the index of the first message that is broken.

    rows: int64 numbers of the messages. data, offsets (int32): an Arrow binary array. fields: pairs of int32, kind and null branch (-1: no
    union). places: int64, field after field: the number, the bits of a float, or the offset of bytes in data. lengths: int32, the same.
    """
    for k in range(n):
        row = ld64(rows + 8 * k)
        a = data + ld32(offsets + 4 * row) + HEAD
        end = data + ld32(offsets + 4 * row + 4)
        for f in range(count):
            kind = ld32(fields + 8 * f)
            null_branch = ld32s(fields + 8 * f + 4)
            place = places + 8 * (f * n + k)
            length = lengths + 4 * (f * n + k)
            if null_branch >= 0:
                u, a = varint(a, end)
                branch = unzigzag(u)
                if a < 0 or branch < 0 or branch > 1:
                    return k
                if branch == null_branch:
                    st64(place, 0)
                    st32(length, NULL)
                    continue
            size = 0
            if kind == KIND_VARINT:
                u, a = varint(a, end)
                if a < 0:
                    return k
                st64(place, unzigzag(u))
            elif kind == KIND_BYTES:
                u, a = varint(a, end)
                size = unzigzag(u)
                if a < 0 or size < 0 or size > end - a:
                    return k
                st64(place, a - data)
                a += size
            else:
                width = 8 if kind == KIND_DOUBLE else 4 if kind == KIND_FLOAT else 1
                if width > end - a:
                    return k
                if kind == KIND_DOUBLE:
                    st64(place, ld64(a))
                elif kind == KIND_FLOAT:
                    st64(place, ld32(a))
                else:
                    st64(place, ld8(a))
                a += width
            st32(length, size)
        if a != end:
            return k
    return n


@entry(6)
def gather(n, data, places, lengths, offsets, out):
    """Copy the bytes at n places to the offsets (int32) in `out`."""
    for k in range(n):
        size = ld32s(lengths + 4 * k)
        if size > 0:
            memcpy(out + ld32(offsets + 4 * k), data + ld64(places + 8 * k), size)
    return n


@entry(6)
def numbers(n, data, places, lengths, signed, out):
    """Convert big-endian numbers at n places to 16 bytes each, little-endian. Returns n, or the index of the first that needs more."""
    for k in range(n):
        size = ld32s(lengths + 4 * k)
        low = np.uint64(0)
        high = np.uint64(0)
        if size > 16:
            return k
        if size > 0:
            a = data + ld64(places + 8 * k)
            if signed and ld8(a) >= 128:
                low = ~low
                high = ~high
            for i in range(size):
                high = high << np.uint64(8) | low >> np.uint64(56)
                low = low << np.uint64(8) | np.uint64(ld8(a + i))
        st64(out + 16 * k, low)
        st64(out + 16 * k + 8, high)
    return n
