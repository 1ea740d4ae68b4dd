"""Converts a ScanResponse of TiKV from bytes to Arrow columns of keys and values. Reference: protobuf's parser (wire/kvrpcpb.proto).

It only reads answers that are pairs with a key and a value. The reference reads all others (an error, an unknown field, malformed bytes)
and says what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.kernels.cache import use_cache

use_cache()

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

_PAIRS, _KEY, _VALUE, _COMMIT_TS = 2 << 3 | 2, 2 << 3 | 2, 3 << 3 | 2, 4 << 3  # tags: field number and wire type
_OTHER = -1


class BadAnswer(ValueError):
    """The answer has more than plain pairs: it is for the reference."""


@numba.njit(cache=True)
def _varint(data, at, end):
    """Return the value and where it ends; an end of -1: there is no varint."""
    value, shift = np.int64(0), 0
    while at < end and shift < 63:
        byte = np.int64(data[at])
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return np.int64(0), -1


@numba.njit(cache=True)
def _pair(data, at, end, places, n):
    """Note where key and value of a KvPair are; return False if it has other fields."""
    places[n, :] = 0
    while at < end:
        tag = data[at]
        if tag not in (_KEY, _VALUE, _COMMIT_TS):
            return False
        size, at = _varint(data, at + 1, end)
        if at < 0:
            return False
        if tag == _COMMIT_TS:
            continue
        if size > end - at:
            return False
        column = 0 if tag == _KEY else 2
        places[n, column], places[n, column + 1] = at, size
        at += size
    return True


@numba.njit(cache=True)
def _locate(data, places):
    """Note the places (key, its length, value, its length) of all pairs. Return their number, or _OTHER."""
    at, n, end = 0, 0, len(data)
    while at < end:
        if data[at] != _PAIRS or n == len(places):
            return _OTHER
        size, at = _varint(data, at + 1, end)
        if at < 0 or size > end - at or not _pair(data, at, at + size, places, n):
            return _OTHER
        at += size
        n += 1
    return n


@numba.njit(cache=True)
def _gather(data, places, column, offsets, out):
    at = 0
    for i in range(len(places)):
        offsets[i] = at
        start, size = places[i, column], places[i, column + 1]
        out[at : at + size] = data[start : start + size]
        at += size
    offsets[len(places)] = at


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
        _gather(self.data, self.places, 2 * which, offsets, out)
        return pa.Array.from_buffers(pa.binary(), len(self.places), [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def locate_pairs(answer: bytes, limit: int) -> Pairs:
    """Return the pairs of a serialised ScanResponse with at most `limit` pairs. Raises BadAnswer."""
    data = np.frombuffer(answer, np.uint8)
    places = np.empty((limit, 4), np.int64)
    n = _locate(data, places)
    if n == _OTHER:
        raise BadAnswer("more than plain pairs")
    return Pairs(data, places[:n])
