"""A stored decimal as its unscaled number: 12.50 of DECIMAL(10,2) is 1250. Reference: `tidemill.tidb.types.decimals`."""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import as_i, as_u, jit, ld8, ldu64, mulhi, st64
from tidemill.kernels.write.numbers import be_n, bytes_of_digits, decimal_size
from tidemill.kernels.write.tables import O_POWER

U0, U1, U8, U9, TOP_BIT = (np.uint64(i) for i in (0, 1, 8, 9, 0x80))

NARROW_DIGITS = 18  # decimals of this many digits fit into an int64
MIDDLE_DIGITS = 38  # ... into 128 bits
WIDE_DIGITS = 76  # ... into 256 bits


@jit
def add_digits(limbs, count, power, w):
    """Set limbs = limbs * power + w, the lowest limb first."""
    carry = w
    for i in range(count):
        limb = ldu64(limbs + 8 * i)
        low = limb * power
        high = mulhi(limb, power)
        low = low + carry
        if low < carry:
            high = high + U1
        st64(limbs + 8 * i, low)
        carry = high


@jit
def negate(limbs, count):
    """Negate the limbs (two's complement)."""
    carry = U1
    for i in range(count):
        limb = ~ldu64(limbs + 8 * i) + carry
        if limb != U0:
            carry = U0
        st64(limbs + 8 * i, limb)


@jit
def unscaled(T, a, n, scale, S):
    """Read a stored decimal of `scale` digits of fraction. Returns (limbs, number): limbs 0, the number is an int64; 2 or 4, it is in so
    many words at S, the lowest first; -1, fall back to the reference."""
    if decimal_size(a, n) != n:
        return -1, 0
    digits = ld8(a)
    fraction = ld8(a + 1)
    if fraction != scale or digits > WIDE_DIGITS:
        return -1, 0
    whole = digits - fraction
    a += 2
    negative = (ld8(a) >> 7) ^ 1
    invert = as_u(-negative)  # all ones: every byte is inverted
    flip = TOP_BIT  # the first byte's top bit is inverted too
    lead = as_i(as_u(whole) % U9)
    left = digits
    group = lead if lead else min(left, 9)
    narrow = digits <= NARROW_DIGITS
    limbs = 2 if digits <= MIDDLE_DIGITS else 4
    x = U0
    if not narrow:
        for i in range(limbs):
            st64(S + 8 * i, U0)
    while left > 0:
        size = bytes_of_digits(group)
        bits = as_u(8 * size)
        w = (be_n(a, size) ^ invert ^ (flip << (bits - U8))) & ((U1 << bits) - U1)
        flip = U0
        a += size
        power = ldu64(T + O_POWER + 8 * group)
        if w >= power:
            return -1, 0
        if narrow:
            x = x * power + w
        else:
            add_digits(S, limbs, power, w)
        left -= group
        # Groups of nine digits begin at the point: the rests stand before the first group and after the last.
        group = min(left, 9)
        if left > fraction:
            group = 9
    if narrow:
        v = as_i(x)
        return 0, -v if negative else v
    if negative:
        negate(S, limbs)
    return limbs, 0
