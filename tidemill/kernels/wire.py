"""Varints: integers in protobuf, Avro, Snappy and TiDB, seven bits a byte, the lowest first.

Reference: `tidb.codec.decode_uvarint`. `varint` is the general one. `wide_varint` is for the change feed: it has one every few bytes.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import as_i, as_u, ctz, jit, ld8, ldu64, st8

_U0, _U1, _U2, _U4, _U7, _U56, _U63, _U64 = (np.uint64(i) for i in (0, 1, 2, 4, 7, 56, 63, 64))
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_TOPS = np.uint64(0x8080808080808080)
_A1, _B1 = np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00)
_A2, _B2 = np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000)
_A3, _B3 = np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000)


@jit
def varint(a, end):
    """Return (unsigned value, address after it) of a varint of up to ten bytes; address -1 if it is broken."""
    value, shift = _U0, _U0
    while a < end and shift < _U64:
        c = ld8(a)
        a += 1
        if shift == _U63 and c > 1:
            break
        value |= np.uint64(c & 127) << shift
        if c < 128:
            return value, a
        shift += _U7
    return value, -1


@jit
def short_varint(a, end):
    """Return (value, address after it) of a varint of up to five bytes; value -1 if there is none before `end`."""
    value = 0
    shift = 0
    while a < end and shift < 35:
        c = ld8(a)
        a += 1
        value |= (c & 127) << shift
        shift += 7
        if c < 128:
            return value, a
    return -1, a


@jit
def wide_varint(p, end):
    """Return (value, address after it) of a varint of up to ten bytes, without a loop; address 0 if it is broken. Ten bytes from p on
    must be readable."""
    if p >= end:
        return 0, 0
    b = ld8(p)
    if b < 128:
        return b, p + 1
    w = ldu64(p)
    stop = ~w & _TOPS
    hi = _U0
    if stop != _U0:
        n = (ctz(stop) >> 3) + 1
        w &= _ALL >> as_u(64 - 8 * n)
        q = p + n
    else:
        b8 = ld8(p + 8)
        if b8 < 128:
            q = p + 9
            hi = as_u(b8) << _U56
        else:
            b9 = ld8(p + 9)
            if b9 > 1:
                return 0, 0
            q = p + 10
            hi = (as_u(b8 & 127) << _U56) | (as_u(b9) << _U63)
    if q > end:
        return 0, 0
    w = (w & _A1) | ((w & _B1) >> _U1)
    w = (w & _A2) | ((w & _B2) >> _U2)
    w = (w & _A3) | ((w & _B3) >> _U4)
    return as_i(w | hi), q


@jit
def unzigzag(u):
    """Return the signed value of a zig-zag varint."""
    return as_i(u >> _U1) ^ -as_i(u & _U1)


@jit
def w_varint(p, n):
    """Write n, which is not negative. Returns the address after it."""
    while n >= 128:
        st8(p, n & 127 | 128)
        n >>= 7
        p += 1
    st8(p, n)
    return p + 1
