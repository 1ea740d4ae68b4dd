"""Texts and hashes as Java makes them: `String.hashCode`, `Float.toString`, `Double.toString`.

Floats are written as Java up to version 18 does (`FloatingDecimal`), which is what Canal's servers run on: the digits are not always the
shortest ones. Digits are developed one by one until the rest is below half a unit in the last place of the number. Where the numbers fit
into 32 or 64 bits Java computes in these, with their overflows, and compares by > what it compares by >= in big integers; so does this.
"""

from __future__ import annotations

import math
import struct

_FRACTION = 52
"""Bits of a double's fraction."""
_IMPLICIT = 1 << _FRACTION
_EXPONENT_ONE = 1023 << _FRACTION
_BITS_OF_5_POWERS = (0, *((5**n).bit_length() for n in range(1, 27)))
_SMALLEST_PLAIN, _LARGEST_PLAIN = -2, 7
"""Where the point stands in texts without an exponent."""
_MOST_SMALL_EXPONENT = 62
_LEAST_SMALL_EXPONENT = -21


def java_hash(text: str) -> int:
    """Return `String.hashCode` of a text."""
    found = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", data):
        found = found * 31 + unit & 0xFFFFFFFF
    return _wrapped(found, 32)


def java_double(value: float) -> str:
    """Return `Double.toString`."""
    (bits,) = struct.unpack(">Q", struct.pack(">d", value))
    return _text(value, bits >> _FRACTION & 0x7FF, bits & _IMPLICIT - 1, 1023, _FRACTION)


def java_float(value: float) -> str:
    """Return `Float.toString` of a value rounded to a float."""
    (bits,) = struct.unpack(">I", struct.pack(">f", value))
    return _text(struct.unpack(">f", struct.pack(">f", value))[0], bits >> 23 & 0xFF, bits & (1 << 23) - 1, 127, 23)


def _text(value: float, exponent: int, fraction: int, bias: int, width: int) -> str:
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if math.isinf(value):
        return f"{sign}Infinity"
    if not value:
        return f"{sign}0.0"
    if exponent:
        significant = width + 1
        fraction |= 1 << width
    else:
        significant = fraction.bit_length()
        shift = width + 1 - significant
        fraction <<= shift
        exponent = 1 - shift
    digits, point = _digits(exponent - bias, fraction << _FRACTION - width, significant)
    return sign + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    """Digits with the decimal point behind so many of them."""
    if 0 < point <= _LARGEST_PLAIN:
        return f"{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    if _SMALLEST_PLAIN <= point <= 0:
        return f"0.{'0' * -point}{digits}"
    return f"{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _digits(exponent: int, fraction: int, significant: int) -> tuple[str, int]:
    """The digits of fraction / 2**52 * 2**exponent and where the point stands. `significant`: how many bits of it the number has."""
    tail = (fraction & -fraction).bit_length() - 1
    bits = _FRACTION + 1 - tail
    tiny = max(0, bits - exponent - 1)  # bits behind the binary point
    if not tiny and _LEAST_SMALL_EXPONENT <= exponent <= _MOST_SMALL_EXPONENT and bits < 64:
        return _whole(exponent, fraction, significant)
    ten = _estimate(exponent, fraction)
    b5, s5 = max(0, -ten), max(0, ten)
    b2, s2 = b5 + tiny + exponent, s5 + tiny
    m5, m2 = b5, b2 - significant
    fraction >>= tail
    b2 -= bits - 1
    common = min(b2, s2)
    b2, s2, m2 = b2 - common, s2 - common, m2 - common
    if bits == 1:
        m2 -= 1  # below a power of two numbers are half as far apart
    if m2 < 0:
        b2, s2, m2 = b2 - m2, s2 - m2, 0
    b_bits = bits + b2 + _bits_of_power(b5)
    s_bits = s2 + 1 + _bits_of_power(s5 + 1)
    width = 32 if max(b_bits, s_bits) < 32 else 64 if max(b_bits, s_bits) < 64 else 0
    return _developed(fraction * 5**b5 << b2, 5**s5 << s2, 5**m5 << m2, ten, width)


def _bits_of_power(n: int) -> int:
    return _BITS_OF_5_POWERS[n] if n < len(_BITS_OF_5_POWERS) else 3 * n


def _whole(exponent: int, fraction: int, significant: int) -> tuple[str, int]:
    """The digits of a whole number below 2**63. Those that its bits do not decide are rounded away."""
    dropped = exponent - significant - 1
    insignificant = len(str(1 << dropped)) - 1 if dropped > 1 else 0
    number = fraction << exponent - _FRACTION if exponent >= _FRACTION else fraction >> _FRACTION - exponent
    number, rest = divmod(number, 10**insignificant)
    if insignificant and rest >= 10**insignificant >> 1:
        number += 1
    text = str(number)
    return text.rstrip("0"), len(text) + insignificant


def _estimate(exponent: int, fraction: int) -> int:
    """The decimal exponent, or one too many."""
    mantissa: float = struct.unpack(">d", struct.pack(">Q", _EXPONENT_ONE | fraction & _IMPLICIT - 1))[0]
    return math.floor((mantissa - 1.5) * 0.289529654 + 0.176091259 + exponent * 0.301029995663981)


def _wrapped(number: int, width: int) -> int:
    """A number as a signed integer of so many bits; all of it for 0."""
    half = 1 << width - 1 if width else 0
    return (number + half & (1 << width) - 1) - half if width else number


def _developed(b: int, s: int, m: int, ten: int, width: int) -> tuple[str, int]:
    """The digits of b / s, as long as they tell the number from those that are m away."""
    tens = s * 10
    digits: list[int] = []

    def step() -> tuple[int, bool, bool]:
        nonlocal b, m
        q, rest = divmod(b, s)
        b, m = rest * 10, _wrapped(m * 10, width)
        if width and m <= 0:
            return q, True, True
        ahead = _wrapped(b + m, width)
        return q, b < m, ahead > tens or (not width and ahead == tens)

    q, low, high = step()
    if not q and not high:
        ten -= 1
    else:
        digits.append(q)
    if ten < -3 or ten >= 8:
        low = high = False  # with an exponent there is a digit behind the point
    while not (low or high):
        q, low, high = step()
        digits.append(q)
    if high and (not low or 2 * b > tens or (2 * b == tens and digits[-1] & 1)):
        ten += _round_up(digits)
    return "".join(map(str, digits)), ten + 1


def _round_up(digits: list[int]) -> int:
    """Add one to the last digit. Returns 1 if the number got longer. Digits that become 0 stay: so does Java."""
    at = len(digits) - 1
    while at > 0 and digits[at] == 9:
        digits[at] = 0
        at -= 1
    if digits[at] == 9:
        digits[at] = 1
        return 1
    digits[at] += 1
    return 0
