"""FLOAT and DOUBLE as Go prints them: the fewest digits that read back as the same number of the same width."""

from __future__ import annotations

import math
from functools import cache
from types import ModuleType

_PLAIN_FROM, _PLAIN_TO = 1e-6, 1e21
"""encoding/json writes numbers without an exponent from the first of these up to, but not including, the second."""
_MYSQL_PLAIN_FROM, _MYSQL_PLAIN_TO = 1e-15, 1e15


@cache
def _numpy() -> ModuleType:
    """Return numpy. Its import takes a fifth of a second, and who only checks a configuration or asks a server has no float to print."""
    import numpy

    return numpy


def to_float32(value: float) -> float:
    """Return the nearest single-precision number, as a double. It is infinite beyond the range."""
    np = _numpy()
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def shortest_digits(value: float, bits: int) -> tuple[str, int]:
    """Return the shortest digits of a positive finite number, and the exponent k in 0.d1d2… · 10^k."""
    np = _numpy()
    text = np.format_float_scientific(np.float32(value) if bits == 32 else np.float64(value), unique=True, trim="-")
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).rstrip("0")
    return digits, int(exponent) + len(whole)


def go_float_plain(value: float, bits: int = 64) -> str:
    """Return the text of Go's `strconv.FormatFloat(value, 'f', -1, bits)`: no exponent. Raises ValueError for NaN and infinities."""
    if not math.isfinite(value):
        raise ValueError(f"{value} has no text as a column value")
    sign = "-" if math.copysign(1, value) < 0 else ""
    if bits == 32:
        value = to_float32(value)
    if value == 0:
        return sign + "0"
    digits, point = shortest_digits(abs(value), bits)
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return sign + digits + "0" * (point - len(digits))
    return f"{sign}{digits[:point]}.{digits[point:]}"


def mysql_json_float(value: float) -> str:
    """Return a double in a JSON document as newer versions of TiDB print it. Raises ValueError for NaN and infinities.

    It always has a point or an exponent (`1.0`). It has an exponent, without a plus, below 1e-15 and from 1e15 on.
    """
    size = abs(value)
    if size == 0 or _MYSQL_PLAIN_FROM <= size < _MYSQL_PLAIN_TO:
        text = go_float_plain(value)
        return text if "." in text else text + ".0"
    if not math.isfinite(value):
        raise ValueError(f"{value} has no text as a column value")
    digits, point = shortest_digits(size, 64)
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"{'-' if value < 0 else ''}{mantissa}e{point - 1}"


def go_float(value: float, bits: int = 64) -> str:
    """Return a number as Go's encoding/json writes it, of 32 or 64 bits. Raises ValueError for NaN and infinities.

    It has an exponent, without a leading zero, below 1e-6 and from 1e21 on. A float32 is compared with these limits as float32.
    """
    if not math.isfinite(value):
        raise ValueError(f"{value} has no text as a column value")
    size = abs(to_float32(value) if bits == 32 else value)
    low, high = (to_float32(_PLAIN_FROM), to_float32(_PLAIN_TO)) if bits == 32 else (_PLAIN_FROM, _PLAIN_TO)
    if size == 0 or low <= size < high:
        return go_float_plain(value, bits)
    digits, point = shortest_digits(size, bits)
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    exponent = point - 1
    return f"{'-' if value < 0 else ''}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent)}"
