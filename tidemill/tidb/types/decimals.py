"""DECIMAL: precision, digits after the point, then MySQL's binary form, in which equal scales sort by value.

Digits are cut into groups of 9 from the point outwards. A full group takes 4 bytes, the rest fewer. The first bit is inverted;
in a negative number all bytes are. Values are text with exactly `frac` digits after the point.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from tidemill.errors import MalformedBytes

MAX_DIGITS = 81
"""Digits that TiDB's decimal can hold: 9 groups of 9. Columns have at most 65."""

_GROUP_DIGITS, _GROUP_BYTES = 9, 4
_BYTES_OF = (0, 1, 1, 2, 2, 3, 3, 4, 4)
"""Bytes of a left-over group by its number of digits."""


def _groups(prec: int, frac: int) -> list[int]:
    """Return the number of digits in each group, from left to right."""
    whole = prec - frac
    groups = [whole % _GROUP_DIGITS] if whole % _GROUP_DIGITS else []
    groups += [_GROUP_DIGITS] * (whole // _GROUP_DIGITS + frac // _GROUP_DIGITS)
    if frac % _GROUP_DIGITS:
        groups.append(frac % _GROUP_DIGITS)
    return groups


def _size(digits: int) -> int:
    return _GROUP_BYTES if digits == _GROUP_DIGITS else _BYTES_OF[digits]


def decimal_size(prec: int, frac: int) -> int:
    """Return the size of the binary form in bytes, without precision and frac."""
    return sum(_size(digits) for digits in _groups(prec, frac))


def decode_decimal(buf: bytes, pos: int = 0) -> tuple[str, int]:
    """Return a stored decimal as text and the position after it. Raises MalformedBytes."""
    if len(buf) - pos < 2:
        raise MalformedBytes(f"a decimal at byte {pos} needs its precision and scale, {max(len(buf) - pos, 0)} bytes are left")
    prec, frac = buf[pos], buf[pos + 1]
    if not 0 < prec <= MAX_DIGITS or frac > prec:
        raise MalformedBytes(f"the decimal at byte {pos} has the impossible precision {prec} and scale {frac}")
    start = pos + 2
    end = start + decimal_size(prec, frac)
    if end > len(buf):
        raise MalformedBytes(f"the decimal({prec},{frac}) at byte {pos} needs {end - start} bytes, {len(buf) - start} are left")
    negative = not buf[start] & 0x80
    data = bytes(b ^ 0xFF for b in buf[start:end]) if negative else buf[start:end]
    data = bytes([data[0] ^ 0x80]) + data[1:]
    digits = _digits(data, prec, frac, start)
    whole = digits[: prec - frac].lstrip("0") or "0"
    text = f"{whole}.{digits[prec - frac :]}" if frac else whole
    return ("-" + text if negative and digits.strip("0") else text), end


def _digits(data: bytes, prec: int, frac: int, start: int) -> str:
    """Return all digits of a binary decimal. Its sign has been removed."""
    digits, pos = "", 0
    for count in _groups(prec, frac):
        size = _size(count)
        number = int.from_bytes(data[pos : pos + size], "big")
        if number >= 10**count:
            raise MalformedBytes(f"the decimal({prec},{frac}) has {number} at byte {start + pos}, where {count} digits stand")
        digits += f"{number:0{count}d}"
        pos += size
    return digits


def round_decimal(text: str, frac: int) -> str:
    """Round a number to exactly `frac` digits after the point, half away from zero. Raises ValueError."""
    try:
        value = Decimal(text).quantize(Decimal(1).scaleb(-frac), ROUND_HALF_UP, Context(prec=MAX_DIGITS + frac + 1))
    except InvalidOperation:
        raise ValueError(f"{text[:100]!r} is not a decimal number") from None
    if not value.is_finite():
        raise ValueError(f"{text[:100]!r} is not a decimal number")
    return f"{abs(value) if value == 0 else value:f}"


def encode_decimal(text: str, prec: int, frac: int) -> bytes:
    """Encode a decimal: precision and scale, then the binary form. Raises ValueError when it does not fit."""
    if not 0 < prec <= MAX_DIGITS or not 0 <= frac <= prec:
        raise ValueError(f"decimal({prec},{frac}) does not exist")
    number = round_decimal(text, frac)
    negative = number.startswith("-")
    whole, _, fraction = number.lstrip("-").partition(".")
    whole = whole.lstrip("0")
    if len(whole) > prec - frac:
        raise ValueError(f"{text[:100]} does not fit into decimal({prec},{frac})")
    digits, data = whole.rjust(prec - frac, "0") + fraction, b""
    for count in _groups(prec, frac):
        data += int(digits[:count]).to_bytes(_size(count), "big")
        digits = digits[count:]
    data = bytes([data[0] ^ 0x80]) + data[1:]
    if negative:
        data = bytes(b ^ 0xFF for b in data)
    return bytes([prec, frac]) + data
