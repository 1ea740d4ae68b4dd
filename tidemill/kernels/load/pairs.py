"""Converts a ScanResponse of TiKV from bytes to Arrow columns of keys and values. Reference: protobuf's parser (wire/kvrpcpb.proto).

It only reads answers that are pairs with a key and a value. The reference reads all others (an error, an unknown field, malformed bytes)
and says what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.kernels.address import address
from tidemill.kernels.intrinsics import as_i, entry, jit, ld8, ld64, memcpy, st32, st64
from tidemill.kernels.wire import varint

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

_PAIRS, _KEY, _VALUE, _COMMIT_TS = 2 << 3 | 2, 2 << 3 | 2, 3 << 3 | 2, 4 << 3  # tags: field number and wire type
_OTHER = -1
PLACE_BYTES = 32


class BadAnswer(ValueError):
    """The answer has more than plain pairs: it is for the reference."""


@jit
def _pair(base, a, end, place):
    """Note where key and value of a KvPair are; return whether it has no other fields."""
    for word in range(4):
        st64(place + 8 * word, 0)
    while a < end:
        tag = ld8(a)
        if tag != _KEY and tag != _VALUE and tag != _COMMIT_TS:
            return False
        number, a = varint(a + 1, end)
        if a < 0:
            return False
        if tag == _COMMIT_TS:
            continue
        size = as_i(number)
        if size < 0 or size > end - a:
            return False
        at = place if tag == _KEY else place + 16
        st64(at, a - base)
        st64(at + 8, size)
        a += size
    return True


@entry(4)
def _locate(base, n, places, limit):
    """Note the places (key, its length, value, its length) of all pairs in n bytes. Return their number, or _OTHER."""
    a = base
    end = base + n
    found = 0
    while a < end:
        if ld8(a) != _PAIRS or found == limit:
            return _OTHER
        number, a = varint(a + 1, end)
        size = as_i(number)
        if a < 0 or size < 0 or size > end - a or not _pair(base, a, a + size, places + PLACE_BYTES * found):
            return _OTHER
        a += size
        found += 1
    return found


@entry(5)
def _gather(n, base, places, offsets, out):
    """Copy n keys or values, one behind the other. `places` points to the first one's."""
    at = 0
    for i in range(n):
        st32(offsets + 4 * i, at)
        size = ld64(places + PLACE_BYTES * i + 8)
        memcpy(out + at, base + ld64(places + PLACE_BYTES * i), size)
        at += size
    st32(offsets + 4 * n, at)
    return n


@dataclass(frozen=True, slots=True)
class Pairs:
    """The bytes of an answer, and for each pair an int64 row (key, length, value, length) of places in them."""

    data: Bytes
    places: Places

    def __len__(self) -> int:
        return len(self.places)

    def key(self, row: int) -> bytes:
        start, size = self.places[row, :2]
        return bytes(self.data[start : start + size])

    def column(self, which: int) -> pa.Array:
        """Return keys (0) or values (1) as a binary array. Raises pa.ArrowInvalid above 2 GiB."""
        size = int(self.places[:, 2 * which + 1].sum())
        if size >= 1 << 31:
            raise pa.ArrowInvalid(f"{size} bytes do not fit into one column")
        offsets, out = np.empty(len(self.places) + 1, np.int32), np.empty(size, np.uint8)
        places = self.places.ctypes.data + 16 * which
        _gather(len(self.places), address(self.data), places, address(offsets), address(out))
        return pa.Array.from_buffers(pa.binary(), len(self.places), [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def locate_pairs(answer: bytes, limit: int) -> Pairs:
    """Return the pairs of a serialised ScanResponse with at most `limit` pairs. Raises BadAnswer."""
    data = np.frombuffer(answer, np.uint8)
    places = np.empty((limit, 4), np.int64)
    n = _locate(address(data), len(data), address(places), limit)
    if n == _OTHER:
        raise BadAnswer("more than plain pairs")
    return Pairs(data, places[:n])
