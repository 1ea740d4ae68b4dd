"""Numbers: stored bytes → decimal text. There is no branch on the number of digits, which differs from row to row.

References: `tidemill.tidb.types.floats` (go_float, go_float_plain) and `tidemill.tidb.types.decimals`.
`T` is the address of `tables.TABLES`, `p` where to write; every writer returns the end of what it wrote, or -1.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import (
    as_i,
    as_u,
    bits_f64,
    bswap64,
    clz,
    copy32,
    ctz,
    jit,
    ld8,
    ld16,
    ld64,
    ldu64,
    mulhi,
    st8,
    st16,
    st64,
)  # fmt: skip
from tidemill.kernels.write.tables import FLOAT_JSON, FLOAT_MYSQL, O_DIGITS2, O_POW10, O_POWER, POW10_MIN

U0, U1, U2, U3, U4, U8, U9, U10 = (np.uint64(i) for i in (0, 1, 2, 3, 4, 8, 9, 10))
U16, U20, U24, U32, U40, U63 = (np.uint64(i) for i in (16, 20, 24, 32, 40, 63))
U100, U1E4, U1E8, U1E9, U1E15, U1E16 = (np.uint64(10**i) for i in (2, 4, 8, 9, 15, 16))
SIGN64 = np.uint64(1 << 63)
MASK32 = np.uint64(0xFFFFFFFF)
MANTISSA64, HIDDEN64 = np.uint64((1 << 52) - 1), np.uint64(1 << 52)
MANTISSA32, HIDDEN32 = np.uint64((1 << 23) - 1), np.uint64(1 << 23)
LOW7 = ~np.uint64(7)

# Division of packed digit pairs by 100 and 10 as multiplications.
K10486, K103 = np.uint64(10486), np.uint64(103)
M7F, M0F = np.uint64(0x0000007F0000007F), np.uint64(0x000F000F000F000F)
ASCII0 = np.uint64(0x3030303030303030)
TOP_DIGIT = np.uint64(1 << 56)


@jit
def dig8(x):
    """Return the eight digits of x < 10^8, one a byte, the first in the lowest byte."""
    high = x // U1E4
    v = high | (x - high * U1E4) << U32
    t = ((v * K10486) >> U20) & M7F
    v = t + ((v - t * U100) << U16)
    t = ((v * K103) >> U10) & M0F
    return t + ((v - t * U10) << U8)


@jit
def w_lead8(p, x):
    """Write x < 10^8 without leading zeros."""
    v = dig8(x)
    zeros = as_u(ctz(v | TOP_DIGIT)) & LOW7
    st64(p, (v | ASCII0) >> zeros)
    return p + 8 - as_i(zeros >> U3)


@jit
def w_u64(p, x):
    """Write a uint64. The numbers of a column differ in digits, and a mispredicted branch costs more than the conversion."""
    if x < U1E8:
        return w_lead8(p, x)
    if x < U1E16:
        high = x // U1E8
        p = w_lead8(p, high)
        st64(p, dig8(x - high * U1E8) | ASCII0)
        return p + 8
    high = x // U1E16
    x -= high * U1E16
    p = w_lead8(p, high)
    high = x // U1E8
    st64(p, dig8(high) | ASCII0)
    st64(p + 8, dig8(x - high * U1E8) | ASCII0)
    return p + 16


@jit
def w_i64(p, v):
    """Write an int64."""
    minus = v >> 63
    st8(p, 45)
    return w_u64(p - minus, as_u((v ^ minus) - minus))


@jit
def w_2(T, p, v):
    """Write two digits of 0 ≤ v < 100."""
    st16(p, ld16(T + O_DIGITS2 + 2 * v))
    return p + 2


@jit
def w_pad(p, x, n):
    """Write x with exactly n ≤ 9 digits."""
    if n == 9:
        high = x // U1E8
        st8(p, 48 + as_i(high))
        st64(p + 1, dig8(x - high * U1E8) | ASCII0)
        return p + 9
    st64(p, (dig8(x) | ASCII0) >> as_u(64 - 8 * n))
    return p + n


# ------------------------------------------------------------------ stored numbers
# At least nine bytes of row header or key precede a value, so an eight-byte load that ENDS with the value reads only valid memory, and
# needs no branch on the width.


@jit
def int_of(a, n):
    """Return a stored signed integer of n bytes."""
    return ld64(a + n - 8) >> (64 - 8 * n)


@jit
def uint_of(a, n):
    """Return a stored unsigned integer of n bytes."""
    return ldu64(a + n - 8) >> as_u(64 - 8 * n)


@jit
def bad_width(n):
    """Return whether no integer is stored in n bytes."""
    return n < 1 or n > 8 or (n & (n - 1)) != 0


@jit
def float_of(a):
    """Return a stored float: memcomparable bits of a double."""
    u = bswap64(ldu64(a))
    return bits_f64(u & ~SIGN64 if (u >> U63) != U0 else ~u)


# ------------------------------------------------------------------ floats


@jit
def round_to_odd(power_high, power_low, x):
    """Return the high part of a 192-bit product. Its lowest bit says that the rest was not zero."""
    cut = mulhi(power_low, x)
    low = power_high * x
    high = mulhi(power_high, x)
    low = low + cut
    if low < cut:
        high = high + U1
    return high | (U1 if low > U1 else U0)


@jit
def shortest(T, c, q, closer):
    """Return the shortest decimal (digits, exponent) in the rounding interval of c·2^q (Schubfach). `closer`: its lower half is shorter."""
    cb = c * U4
    k = (q * 1262611 - (524031 if closer else 0)) >> 22
    h = as_u(q + ((-k * 1741647) >> 19) + 1)
    power = T + O_POW10 + (-k - POW10_MIN) * 16
    high = ldu64(power)
    low = ldu64(power + 8)
    odd = c & U1
    lower = round_to_odd(high, low, (cb - (U1 if closer else U2)) << h) + odd
    value = round_to_odd(high, low, cb << h)
    upper = round_to_odd(high, low, (cb + U2) << h) - odd
    s = value >> U2
    if s >= U10:
        tens = s // U10
        under = lower <= U40 * tens
        over = U40 * tens + U40 <= upper
        if under != over:
            return tens + (U1 if over else U0), k + 1
    under = lower <= U4 * s
    over = U4 * s + U4 <= upper
    if under != over:
        return s + (U1 if over else U0), k
    middle = U4 * s + U2
    return s + (U1 if value > middle or (value == middle and (s & U1) != U0) else U0), k


@jit
def w_zeros(p, n):
    """Write n times the digit 0."""
    for i in range(n):
        st8(p + i, 48)
    return p + n


@jit
def w_digits(p, digits, n, k, style):
    """Write n digits at `digits`, value 0.DIGITS·10^k, with point or exponent."""
    e = k - 1
    if (style == FLOAT_JSON and (e < -6 or e >= 21)) or (style == FLOAT_MYSQL and (e < -15 or e >= 15)):
        st16(p, ld8(digits) | 46 << 8)
        copy32(p + 2, digits + 1)
        p += n + 1 if n > 1 else 1
        st8(p, 101)
        st8(p + 1, 45 if e < 0 else 43)
        p += 1 if style == FLOAT_MYSQL and e > 0 else 2  # no plus
        return w_u64(p, as_u(-e if e < 0 else e))
    if e < 0:
        st16(p, 48 | 46 << 8)
        p = w_zeros(p + 2, -k)
        copy32(p, digits)
        return p + n
    copy32(p, digits)
    if n <= k:
        return w_zeros(p + n, k - n)
    st8(p + k, 46)
    copy32(p + k + 1, digits + k)
    return p + n + 1


@jit
def w_four_decimals(p, m):
    """Write m·10^-4 without trailing zeros. It is not an integer.

    Only one decimal of up to 15 digits is nearest to a double, so it is also the shortest text.
    """
    whole = m // U1E4
    p = w_u64(p, whole)
    v = dig8(m - whole * U1E4)
    st8(p, 46)
    st64(p + 1, (v | ASCII0) >> U32)
    return p + 5 - (clz(v) >> 3)


@jit
def w_long_fraction(T, p, d, n):
    """Write d·10^-n where d has 16 or 17 digits, 1 to 15 of them behind the point; without trailing zeros."""
    unit = ldu64(T + O_POWER + 8 * n)
    whole = d // unit
    p = w_u64(p, whole)
    rest = d - whole * unit
    st8(p, 46)
    p += 1
    if n > 8:
        high = rest // U1E8
        p = w_pad(p, high, n - 8)
        rest -= high * U1E8
        n = 8
    p = w_pad(p, rest, n)
    while ld8(p - 1) == 48:
        p -= 1
    return p


@jit
def w_point_zero(p):
    """Write `.0`, which marks a double."""
    st16(p, 0x302E)
    return p + 2


@jit
def w_float(T, p, bits, single, style, scratch):
    """Write the float of these bits (of a float32 if `single`). NaN and infinities are 0. Styles: `tables.FLOAT_…`."""
    if single:
        negative = (bits >> np.uint64(31)) & U1
        exponent = as_i((bits >> np.uint64(23)) & np.uint64(255))
        mantissa = bits & MANTISSA32
        if exponent == 255:
            st8(p, 48)
            return p + 1
        hidden = HIDDEN32
        q = exponent - 150
        precision = 24
    else:
        negative = bits >> U63
        exponent = as_i((bits >> np.uint64(52)) & np.uint64(2047))
        mantissa = bits & MANTISSA64
        if exponent == 2047:
            st8(p, 48)
            return p + 1
        hidden = HIDDEN64
        q = exponent - 1075
        precision = 53
    c = mantissa
    if exponent != 0:
        c = mantissa | hidden
    else:
        q += 1
    st8(p, 45)
    p += as_i(negative)
    if c == U0:
        st8(p, 48)
        return w_point_zero(p + 1) if style == FLOAT_MYSQL else p + 1
    if q <= 0 and -q < precision and (c & ((U1 << as_u(-q)) - U1)) == U0:
        whole = c >> as_u(-q)
        if style != FLOAT_MYSQL:
            return w_u64(p, whole)
        if whole < U1E15:
            return w_point_zero(w_u64(p, whole))
    if not single:
        x = bits_f64(bits & ~SIGN64)
        if x < 1e11:
            m = int(x * 1e4 + 0.5)
            if m != 0 and m / 1e4 == x:
                return w_four_decimals(p, as_u(m))
    d, k = shortest(T, c, q, mantissa == U0 and exponent > 1)
    if d >= U1E15 and 0 < k + 16 < 16 and not (style == FLOAT_MYSQL and k == -1 and d >= U1E16):
        return w_long_fraction(T, p, d, -k)
    n = w_u64(scratch, d) - scratch
    k += n
    while n > 1 and ld8(scratch + n - 1) == 48:
        n -= 1
    return w_digits(p, scratch, n, k, style)


# ------------------------------------------------------------------ decimals


@jit
def be_n(a, n):
    """Return n (1 to 4) big-endian bytes."""
    return bswap64(ldu64(a + n - 8)) & ((U1 << as_u(8 * n)) - U1)


@jit
def bytes_of_digits(n):
    """Return how many bytes a group of n < 9 digits takes."""
    return 4 if n > 7 else (n + 1) >> 1


@jit
def decimal_size(a, n):
    """Return the size of the decimal at a (precision, fraction, digits), where n bytes are left; -1 if it is broken."""
    if n < 3:
        return -1
    precision = ld8(a)
    fraction = ld8(a + 1)
    whole = precision - fraction
    if precision == 0 or precision > 81 or fraction > 30 or whole < 0:
        return -1
    words = as_i(as_u(whole) // U9)
    fraction_words = as_i(as_u(fraction) // U9)
    size = 2 + bytes_of_digits(whole - 9 * words) + 4 * (words + fraction_words) + bytes_of_digits(fraction - 9 * fraction_words)
    return size if size <= n else -1


@jit
def w_decimal(T, p, a, n):
    """Write precision, fraction and MySQL's binary decimal; -1 if the bytes are not decimal. Needs 8 readable bytes before a + 2."""
    if n < 3:
        return -1
    precision = ld8(a)
    fraction = ld8(a + 1)
    whole = precision - fraction
    if precision == 0 or precision > 81 or fraction > 30 or whole < 0:
        return -1
    words = as_i(as_u(whole) // U9)
    lead = whole - 9 * words
    full = as_i(as_u(fraction) // U9)
    rest = fraction - 9 * full
    if 2 + bytes_of_digits(lead) + 4 * (words + full) + bytes_of_digits(rest) != n:
        return -1
    a += 2
    negative = (ld8(a) >> 7) ^ 1
    invert = as_u(-negative)  # all ones: every byte is inverted
    flip = np.uint64(0x80)  # the first byte's top bit is inverted too
    start = p
    st8(p, 45)
    p += negative
    seen = U0
    x = U0
    if lead:
        size = bytes_of_digits(lead)
        bits = as_u(8 * size)
        x = (be_n(a, size) ^ invert ^ (flip << (bits - U8))) & ((U1 << bits) - U1)
        flip = U0
        a += size
        if x >= ldu64(T + O_POWER + 8 * lead):
            return -1
    if words <= 1:
        if words == 1:
            w = (be_n(a, 4) ^ invert ^ (flip << U24)) & MASK32
            if w >= U1E9:
                return -1
            x = x * U1E9 + w
            flip = U0
            a += 4
        seen = x
        p = w_u64(p, x)
    else:
        started = x != U0
        if started:
            p = w_u64(p, x)
        for _ in range(words):
            w = (be_n(a, 4) ^ invert ^ (flip << U24)) & MASK32
            flip = U0
            a += 4
            if w >= U1E9:
                return -1
            if started:
                p = w_pad(p, w, 9)
            elif w != U0:
                p = w_u64(p, w)
                started = True
        if started:
            seen = U1
        else:
            st8(p, 48)
            p += 1
    if fraction:
        st8(p, 46)
        p += 1
        for _ in range(full):
            w = (be_n(a, 4) ^ invert ^ (flip << U24)) & MASK32
            flip = U0
            a += 4
            if w >= U1E9:
                return -1
            seen |= w
            p = w_pad(p, w, 9)
        if rest:
            size = bytes_of_digits(rest)
            bits = as_u(8 * size)
            w = (be_n(a, size) ^ invert ^ (flip << (bits - U8))) & ((U1 << bits) - U1)
            if w >= ldu64(T + O_POWER + 8 * rest):
                return -1
            seen |= w
            p = w_pad(p, w, rest)
    if negative and seen == U0:  # no minus zero
        for i in range(p - start - 1):
            st8(start + i, ld8(start + i + 1))
        p -= 1
    return p
