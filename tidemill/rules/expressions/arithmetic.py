"""Arithmetic on SQL numbers (int, Decimal, float) with TiDB's results and limits, whatever the decimal context is.

An integer has 64 bits. A DECIMAL has nine words of nine digits; digits after the point that do not fit are cut off. A DOUBLE is finite.
Results beyond these limits raise MalformedRow, as they are errors in TiDB. Casts return the limit instead.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_DOWN, ROUND_HALF_UP, Context, Decimal, DivisionByZero, InvalidOperation

from tidemill.errors import MalformedRow

Number = int | Decimal | float

MASK64 = (1 << 64) - 1
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
"""Limits of a signed integer."""
MAX_DOUBLE = math.ldexp(1 - 2**-53, 1024)

MAX_SCALE = 30
_WORD = 9
_WORDS = 9
_MAX_DIGITS = _WORD * _WORDS

EXACT = Context(prec=400, rounding=ROUND_DOWN, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation, DivisionByZero])
"""Wide enough for products and whole quotients of any two DECIMALs. Only `/` rounds, far after the digits that it keeps."""

_MAX_DECIMAL = Decimal("9" * _MAX_DIGITS)
_INTEGER_PLACES = 20
"""More digits than an integer has."""


def out_of_range(kind: str, found: object) -> MalformedRow:
    return MalformedRow(f"{kind} of a value expression is out of range: {found}")


def integer(found: int) -> int:
    """Return an integer. Raises MalformedRow if it has more than 64 bits."""
    if not LOWEST <= found <= MASK64:
        raise out_of_range("an integer", found)
    return found


def double(found: float) -> float:
    """Return a double. Raises MalformedRow if it is not finite."""
    if not math.isfinite(found):
        raise out_of_range("a DOUBLE", found)
    return found


def _cut(found: Decimal) -> Decimal:
    """Cut off the digits after the point that the nine words cannot hold. There are at most 81 digits before it."""
    words = max(-(-(found.adjusted() + 1) // _WORD), 0) if found else 0
    scale = (_WORDS - words) * _WORD
    return found.quantize(Decimal(1).scaleb(-scale), ROUND_DOWN, EXACT) if _scale(found) > scale else found


def _scale(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def decimal(found: Decimal) -> Decimal:
    """Return a DECIMAL. Raises MalformedRow if it has too many digits before the point."""
    if found.adjusted() >= _MAX_DIGITS and found:
        raise out_of_range("a DECIMAL", found)
    return _cut(found)


def nearest_decimal(found: Decimal) -> Decimal:
    """Return a DECIMAL, or its limit if there are too many digits before the point. The result has no exponent above 0."""
    if not found.is_finite():
        return Decimal(0) if found.is_nan() else _MAX_DECIMAL.copy_sign(found)
    if not found:
        return Decimal(0).scaleb(-min(max(_scale(found), 0), MAX_SCALE))
    if found.adjusted() >= _MAX_DIGITS:
        return _MAX_DECIMAL.copy_sign(found)
    return _cut(found if _scale(found) >= 0 else found.quantize(Decimal(1), ROUND_DOWN, EXACT))


def whole(found: Decimal) -> int | Decimal:
    """Return a number without digits after the point, as an int if it has 64 bits."""
    return int(found) if found.adjusted() < _INTEGER_PLACES and LOWEST <= found <= MASK64 else found


# Operators


def _operator(
    ints: Callable[[int, int], int], decimals: Callable[[Decimal, Decimal], Decimal], doubles: Callable[[float, float], float]
) -> Callable[[Number, Number], Number]:
    """Return an operator that computes in the wider kind of both operands. It raises MalformedRow beyond that kind's range."""

    def call(a: Number, b: Number) -> Number:
        if isinstance(a, float) or isinstance(b, float):
            return double(doubles(float(a), float(b)))
        if isinstance(a, Decimal) or isinstance(b, Decimal):
            return decimal(decimals(Decimal(a), Decimal(b)))
        return integer(ints(a, b))

    return call


add = _operator(operator.add, EXACT.add, operator.add)
subtract = _operator(operator.sub, EXACT.subtract, operator.sub)
multiply = _operator(operator.mul, EXACT.multiply, operator.mul)


def negative(value: Number) -> Number:
    if isinstance(value, Decimal):
        return EXACT.minus(value)
    return -value if isinstance(value, float) else integer(-value)


def absolute(value: Number) -> Number:
    return negative(value) if value < 0 else value


def divide(left: Number, right: Number) -> Number | None:
    """Compute `/`. Exact numbers give a DECIMAL with four more digits than the left one. Division by 0 is NULL."""
    if right == 0:
        return None
    if isinstance(left, float) or isinstance(right, float):
        return double(float(left) / float(right))
    digits = min(_scale(Decimal(left)) + 4, MAX_SCALE)
    return decimal(EXACT.divide(Decimal(left), Decimal(right)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, EXACT))


def divide_whole(left: Decimal, right: Decimal) -> int | None:
    """Compute `DIV`, rounded towards 0. Division by 0 is NULL. Raises MalformedRow if the quotient is not an integer of 64 bits."""
    if right == 0:
        return None
    found = EXACT.divide_int(left, right)
    if found.adjusted() >= _INTEGER_PLACES:
        raise out_of_range("an integer", found)
    return integer(int(found))


def modulo(left: Number, right: Number) -> Number | None:
    """Compute `%`, with the sign of the left operand. Division by 0 is NULL."""
    if right == 0:
        return None
    if isinstance(left, float) or isinstance(right, float):
        return math.fmod(double(float(left)), float(right))
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return EXACT.remainder(Decimal(left), Decimal(right))
    found = abs(left) % abs(right)
    return -found if left < 0 else found


# Rounding


def to_whole(value: Number, mode: str) -> Number:
    """Compute FLOOR or CEIL, by the decimal module's rounding `mode`."""
    if isinstance(value, int):
        return value
    if isinstance(value, Decimal):
        return whole(value.quantize(Decimal(1), mode, EXACT))
    exact = Decimal(double(value))
    return float(exact.quantize(Decimal(1), mode, EXACT)) if exact.adjusted() < _INTEGER_PLACES else value


def rounded(value: Number, digits: int) -> Number:
    """Compute ROUND: exact numbers half away from zero, a DOUBLE half to even."""
    if isinstance(value, float):
        return _scaled(value, digits, round)
    return value if isinstance(value, int) and digits >= 0 else _placed(value, digits, ROUND_HALF_UP)


def truncated(value: Number, digits: int) -> Number:
    """Compute TRUNCATE, towards 0."""
    if isinstance(value, float):
        return _scaled(value, digits, math.trunc)
    return value if isinstance(value, int) and digits >= 0 else _placed(value, digits, ROUND_DOWN)


def _placed(value: int | Decimal, digits: int, mode: str) -> Number:
    """Round to `digits` after the point. Negative ones count digits before it."""
    places = max(min(digits, MAX_SCALE), -_MAX_DIGITS - 1)
    found = Decimal(value).quantize(Decimal(1).scaleb(-places), mode, EXACT)
    if places < 0:
        found = found.quantize(Decimal(1), mode, EXACT)
    return whole(found) if isinstance(value, int) else found


def _scaled(value: float, digits: int, whole_of: Callable[[float], int]) -> float:
    """Round a double to `digits`. Beyond its precision it stays as it is; it is 0 if no digit is left."""
    if digits > 308:
        return value
    if digits < -308:
        return 0.0
    shift = math.pow(10, digits)
    moved = double(value) * shift
    return float(whole_of(moved)) / shift if math.isfinite(moved) else value


# Casts


def nearest_integer(value: Number, lowest: int = LOWEST, highest: int = HIGHEST) -> int:
    """Round as ROUND does. A Decimal or float beyond a limit becomes the limit. An int stays."""
    if isinstance(value, int):
        return value
    if value != value:
        return 0
    if value <= lowest:
        return lowest
    if value >= highest:
        return highest
    return round(value) if isinstance(value, float) else int(value.quantize(Decimal(1), ROUND_HALF_UP, EXACT))


def signed(found: int) -> int:
    """Return the lowest 64 bits, read as BIGINT."""
    found &= MASK64
    return found - (1 << 64) if found >> 63 else found


def unsigned(value: Number) -> int:
    """Cast to BIGINT UNSIGNED. A negative DECIMAL is 0; other negative numbers count down from 2^64."""
    return nearest_integer(value, 0 if isinstance(value, Decimal) else LOWEST, MASK64) & MASK64


def to_decimal(value: Decimal, precision: int, scale: int) -> Decimal:
    """Cast to DECIMAL(precision, scale): rounded, or the limit if it does not fit."""
    found = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, EXACT)
    limit = Decimal("9" * precision).scaleb(-scale, EXACT)
    return found if found.copy_abs() <= limit else limit.copy_sign(found)
