"""The dispatchers' hash of a row whose only hashed column is its integer handle: from the record key alone, with a few table look-ups.

A CRC is linear. So the CRC of `id12345` is that of `id` with five zero bytes behind it, XOR what the digits add, each for its place.
`digits` has what each group of three digits adds; `starts` has the rest for each count of digits. Reference: `celltext.hash_cells`.
"""

from __future__ import annotations

import functools
import zlib

import numpy as np
import numpy.typing as npt

from tidemill.kernels.intrinsics import as_i, jit, ld32
from tidemill.kernels.write.tables import crc_state

GROUPS = 7
"""Groups of three digits that the largest integer has."""
GROUP_BYTES = 4000
NEGATIVE = 4 * (3 * GROUPS + 1)
"""Where the starts of negative integers begin."""
_THOUSAND = np.uint64(1000)
_NONE = np.uint64(0)


def _added(data: bytes) -> int:
    """Return what bytes add to a CRC, by themselves."""
    return crc_state(data, 0)


@functools.cache
def digits() -> npt.NDArray[np.uint32]:
    """Return what the digits 000 to 999 add, with 0, 3, 6, … digits behind them."""
    single = np.array([[_added(b"%d" % digit + bytes(place)) for digit in range(10)] for place in range(3 * GROUPS)], np.uint32)
    ones, tens, hundreds = single[0::3], single[1::3], single[2::3]
    return np.ascontiguousarray(hundreds[:, :, None, None] ^ tens[:, None, :, None] ^ ones[:, None, None, :]).reshape(GROUPS, 1000)


@functools.lru_cache(maxsize=4096)
def starts(name: str) -> npt.NDArray[np.uint32]:
    """Return a column's part of the hash for integers of 0, 1, … digits, then for negative ones, without what `digits` says of them."""
    found = np.zeros((2, 3 * GROUPS + 1), np.uint32)
    for negative, head in enumerate((name.encode(), name.encode() + b"-")):
        for count in range(3 * GROUPS + 1):
            padding = -count % 3  # zeros that fill the first group
            found[negative, count] = zlib.crc32(head + bytes(count)) ^ _added(b"0" * padding + bytes(count))
    return found


@jit
def handle_hash(D, starts, seed, is_negative, u):
    """Return the hash of a handle: `u` is its absolute value, uint64. D: the table of `digits`. seed: the hash of schema and table."""
    found = seed
    count = 0
    while True:
        rest = u // _THOUSAND
        group = as_i(u - rest * _THOUSAND)
        found ^= ld32(D + 4 * group)
        count += 3
        if rest == _NONE:
            break
        u = rest
        D += GROUP_BYTES
    count -= (group < 100) + (group < 10)
    return found ^ ld32(starts + 4 * count + (NEGATIVE if is_negative else 0))
