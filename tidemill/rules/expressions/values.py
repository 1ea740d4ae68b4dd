"""SQL values of expressions: their types, comparison and conversion, by MySQL's rules.

NULL is None, truth is 1 or 0. Numbers are int, Decimal or float. Other values are instances of the classes below.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from tidemill.rules.expressions.arithmetic import (
    EXACT,
    LOWEST,
    MASK64,
    MAX_DOUBLE,
    MAX_SCALE,
    Number,
    nearest_decimal,
    nearest_integer,
    rounded,
)

BINARY = "binary"
DEFAULT_COLLATION = "utf8mb4_bin"


@dataclass(frozen=True, slots=True)
class Text:
    """A string. `collate` is empty for a literal: the other side of a comparison decides."""

    data: bytes
    collate: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """A value that is both number and text: of an ENUM or SET column, or a hexadecimal or bit literal."""

    number: int
    text: Text


@dataclass(frozen=True, slots=True)
class Moment:
    """A DATE or DATETIME (TIMESTAMP): year, month, day, hour, minute, second, microsecond. Parts may be 0."""

    parts: tuple[int, int, int, int, int, int, int]
    text: str


@dataclass(frozen=True, slots=True)
class Span:
    """A TIME, in microseconds."""

    micros: int
    text: str


Value = None | int | Decimal | float | Text | Choice | Moment | Span

_NUMBER = re.compile(rb"[ \t\n\r\f\v]*(([-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]([-+]?[0-9]+))?)")
_INTEGER = re.compile(rb"[ \t\n\r\f\v]*([-+]?)0*([0-9]*)")
_MOMENT = re.compile(r"\s*(\d{1,4})[^\d\s](\d{1,2})[^\d\s](\d{1,2})(?:[T\s]+(\d{1,2})(?:\D(\d{1,2})(?:\D(\d{1,2})(?:\.(\d*))?)?)?)?\s*")
_DIGITS = re.compile(r"\s*(\d{6}|\d{8}|\d{12}|\d{14})(?:\.(\d*))?\s*")
_SPAN = re.compile(r"\s*(-?)(?:(\d{1,18})\s+)?(\d{1,18}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?\s*")


def number_of(value: Value) -> Number | None:
    """Return a value as a number. A text gives the number that it begins with, a time its digits."""
    match value:
        case None | int() | Decimal() | float():
            return value
        case Text():
            found = _NUMBER.match(value.data)
            return _double(found[1]) if found else 0.0
        case Choice():
            return value.number
        case Moment():
            return _digits(value)
        case Span():
            return _span_digits(value)


def _double(digits: bytes) -> float:
    """Parse a double. Beyond the range it is the limit."""
    return min(max(float(digits), -MAX_DOUBLE), MAX_DOUBLE)


def _digits(moment: Moment) -> Number:
    year, month, day, hour, minute, second, micro = moment.parts
    date = (year * 100 + month) * 100 + day
    if len(moment.text) <= 10:
        return date
    whole = ((date * 100 + hour) * 100 + minute) * 100 + second
    return whole if not micro else Decimal(whole) + Decimal(micro).scaleb(-6)


def _span_digits(span: Span) -> Number:
    seconds, micro = divmod(abs(span.micros), 1_000_000)
    whole = (seconds // 3600 * 100 + seconds // 60 % 60) * 100 + seconds % 60
    found = whole if not micro else Decimal(whole) + Decimal(micro).scaleb(-6)
    return -found if span.micros < 0 else found


def truth(value: Value) -> bool | None:
    """Return whether a value counts as true; None for NULL."""
    number = number_of(value)
    return None if number is None else number != 0


def text_of(value: Value) -> Text | None:
    """Return a value as text."""
    match value:
        case None | Text():
            return value
        case Choice():
            return value.text
        case Moment() | Span():
            return Text(value.text.encode())
        case float():
            return Text(_float_text(value).encode())
        case Decimal():
            exponent = value.as_tuple().exponent
            return Text(f"{value if isinstance(exponent, int) and exponent >= -MAX_SCALE else rounded(value, MAX_SCALE):f}".encode())
    return Text(str(value).encode())


def _float_text(value: float) -> str:
    """Print a float without an exponent."""
    text = repr(value).removesuffix(".0")
    return f"{Decimal(text):f}" if "e" in text else text


def integer_of(value: Value) -> int | None:
    """Return a value as an integer. Numbers are rounded, a text gives its leading digits. Beyond 64 bits it is the limit."""
    if isinstance(value, Text):
        return _leading_integer(value.data)
    number = number_of(value)
    return None if number is None else nearest_integer(number)


def _leading_integer(data: bytes) -> int:
    """Return the integer that a text begins with. Without a sign it is unsigned."""
    found = _INTEGER.match(data)
    if found is None or not found[2]:
        return 0
    size = int(found[2][:21])
    return max(-size, LOWEST) if found[1] == b"-" else min(size, MASK64)


def decimal_of(value: Value) -> Decimal | None:
    """Return a value as a DECIMAL, or the limit beyond its range."""
    if isinstance(value, Text):
        found = _NUMBER.match(value.data)
        return parse_decimal(found[2].decode(), (found[3] or b"0").decode()) if found else Decimal(0)
    number = number_of(value)
    return None if number is None else nearest_decimal(Decimal(str(number)) if isinstance(number, float) else Decimal(number))


def parse_decimal(digits: str, exponent: str = "0") -> Decimal:
    """Parse a number of any length. Digits and exponents far beyond those of a DECIMAL are cut, because only the limit counts there."""
    sign = "-" if exponent.startswith("-") else ""
    size = exponent.lstrip("+-").lstrip("0")
    shift = int(f"{sign}{size or 0}") if len(size) < 9 else int(f"{sign}999999999")
    return nearest_decimal(EXACT.create_decimal(digits).scaleb(shift, EXACT))


def moment_of(value: Value) -> Moment | None:
    """Return a value as a DATE or DATETIME, or None."""
    match value:
        case Moment():
            return value
        case None | Span() | float():
            return None
        case Text():
            return parse_moment(value.data.decode("utf-8", "replace"))
        case Choice():
            return moment_of(value.text)
    return parse_moment(f"{value:f}" if isinstance(value, Decimal) else str(value))


@lru_cache(maxsize=1024)
def parse_moment(text: str) -> Moment | None:
    """Parse a DATE or DATETIME in MySQL's relaxed forms. Returns None for any other text."""
    if found := _MOMENT.fullmatch(text):
        year = _full_year(found[1])
        rest = [int(part or 0) for part in found.groups()[1:6]]
        fraction, has_time = found[7], found[4] is not None
    elif found := _DIGITS.fullmatch(text):
        digits, fraction = found[1], found[2]
        year = _full_year(digits[: len(digits) - 4 if len(digits) <= 8 else len(digits) - 10])
        tail = digits[-4:] if len(digits) <= 8 else digits[-10:]
        rest = [int(tail[i : i + 2]) for i in range(0, len(tail), 2)]
        rest += [0] * (5 - len(rest))
        has_time = len(digits) > 8
    else:
        return None
    month, day, hour, minute, second = rest
    if month > 12 or day > 31 or hour > 23 or minute > 59 or second > 59:
        return None
    micro = int((fraction or "")[:6].ljust(6, "0"))
    plain = f"{year:04d}-{month:02d}-{day:02d}" + (f" {hour:02d}:{minute:02d}:{second:02d}" if has_time else "")
    return Moment((year, month, day, hour, minute, second, micro), plain + (f".{micro:06d}" if micro else ""))


def _full_year(digits: str) -> int:
    year = int(digits)
    return year if len(digits) > 2 else year + (2000 if year < 70 else 1900)


def span_of(value: Value) -> Span | None:
    """Return a value as a TIME, or None."""
    if isinstance(value, Span):
        return value
    text = text_of(value) if isinstance(value, (Text, Choice)) else None
    return parse_span(text.data.decode("utf-8", "replace")) if text is not None else None


@lru_cache(maxsize=1024)
def parse_span(text: str) -> Span | None:
    """Parse a TIME in MySQL's relaxed forms. Returns None for any other text."""
    found = _SPAN.fullmatch(text)
    if not found:
        return None
    sign, days, hours, minutes, seconds, fraction = found.groups()
    whole = ((int(days or 0) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds or 0)
    micros = whole * 1_000_000 + int((fraction or "")[:6].ljust(6, "0"))
    return Span(-micros if sign else micros, text.strip())


def compare(left: Value, right: Value) -> int | None:
    """Return -1, 0 or 1. None if a side is NULL, or is not a time while the other is."""
    if left is None or right is None:
        return None
    if isinstance(left, Choice) or isinstance(right, Choice):
        return _compare_choice(left, right)
    if isinstance(left, (Moment, Span)) or isinstance(right, (Moment, Span)):
        return _compare_times(left, right)
    if isinstance(left, Text) and isinstance(right, Text):
        key = sort_key(collation(left, right))
        return _order(key(left.data), key(right.data))
    return _compare_numbers(left, right)


def _compare_choice(left: Value, right: Value) -> int | None:
    """Compare as text with a text, else as numbers."""
    as_text = all(isinstance(v, (Choice, Text)) for v in (left, right))
    plain = [(v.text if as_text else v.number) if isinstance(v, Choice) else v for v in (left, right)]
    return compare(plain[0], plain[1])


def _compare_times(left: Value, right: Value) -> int | None:
    if isinstance(left, (int, Decimal, float)) or isinstance(right, (int, Decimal, float)):
        return _compare_numbers(left, right)
    if isinstance(left, Span) or isinstance(right, Span):
        spans = span_of(left), span_of(right)
        return None if spans[0] is None or spans[1] is None else _order(spans[0].micros, spans[1].micros)
    moments = moment_of(left), moment_of(right)
    return None if moments[0] is None or moments[1] is None else _order(moments[0].parts, moments[1].parts)


def _compare_numbers(left: Value, right: Value) -> int | None:
    """Compare exactly, unless a side is a float. A text that is a whole number counts as exact."""
    a, b = _exact(left), _exact(right)
    if a is None or b is None:
        return None
    if isinstance(a, float) or isinstance(b, float):
        return _order(float(a), float(b))
    return _order(a, b)


def _exact(value: Value) -> Number | None:
    if isinstance(value, Text) and re.fullmatch(rb"[-+]?[0-9]{1,64}", value.data):
        return int(value.data)
    return number_of(value)


def _order(a: Any, b: Any) -> int:
    return int(a > b) - int(a < b)


# Collations


def collation(left: Text, right: Text) -> str:
    """Return the collation of the side that has one, or the binary one if both differ."""
    found = {t.collate for t in (left, right) if t.collate}
    if not found:
        return DEFAULT_COLLATION
    if len(found) == 1:
        return found.pop()
    return BINARY if BINARY in found else DEFAULT_COLLATION


class SortKey:
    """The sort key of texts in a collation."""

    def __init__(self, collate: str) -> None:
        self._bytes = collate == BINARY
        self._folds = collate.endswith("_ci")
        self._padded = not self._bytes and "0900" not in collate
        self._splits = "general" not in collate  # one letter may count as two

    def __call__(self, data: bytes) -> bytes | str:
        if self._bytes:
            return data
        if self._padded:
            data = data.rstrip(b" ")
        return self.folded(data.decode("utf-8", "replace")) if self._folds else data

    def folded(self, text: str) -> str:
        """Remove case and accents."""
        return "".join(_folded(char, self._splits) for char in text) if self._folds else text


@lru_cache(maxsize=65_536)
def _folded(char: str, splits: bool) -> str:
    base = "".join(c for c in unicodedata.normalize("NFD", char) if not unicodedata.combining(c)) or char
    upper = base.upper() if not splits else base.casefold().upper()
    return upper if splits or len(upper) == 1 else {"ß": "S"}.get(char, base[:1])


@lru_cache(maxsize=64)
def sort_key(collate: str) -> SortKey:
    """Return the sort key of a collation."""
    return SortKey(collate)
