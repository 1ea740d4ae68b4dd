"""Byte strings at addresses: order, equality, hash. All functions read up to 7 bytes past the end."""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import as_i, as_u, bswap64, jit, ldu64, mum

U0 = np.uint64(0)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
M1, M2, M3 = np.uint64(0xA0761D6478BD642F), np.uint64(0xE7037ED1A0B428DB), np.uint64(0x8EBC6AF09C88C6E3)
MASK32 = 0xFFFFFFFF


@jit
def compare(a, an, b, bn):
    """Return a negative number, 0 or a positive one as byte string a (an bytes) sorts before, with or after b."""
    n = an if an < bn else bn
    i = 0
    while i < n:
        x = bswap64(ldu64(a + i))
        y = bswap64(ldu64(b + i))
        if n - i < 8:
            s = as_u(64 - 8 * (n - i))
            x >>= s
            y >>= s
        if x != y:
            return -1 if x < y else 1
        i += 8
    return an - bn


@jit
def equal(a, b, n):
    """Return whether two byte strings of n bytes are equal."""
    i = 0
    while i < n:
        x = ldu64(a + i) ^ ldu64(b + i)
        if n - i < 8:
            x <<= as_u(64 - 8 * (n - i))
        if x != U0:
            return False
        i += 8
    return True


@jit
def hash32(sub, start, key, n):
    """Return the 32-bit hash by which a pending entry is found."""
    h = mum(as_u(start) ^ M1, as_u(sub + 1) * M2)
    i = 0
    while i < n:
        w = ldu64(key + i)
        if n - i < 8:
            w &= ALL >> as_u(64 - 8 * (n - i))
        h = mum(h ^ w, M3)
        i += 8
    h = mum(h ^ as_u(n), M2)
    return as_i(h >> np.uint64(32))
