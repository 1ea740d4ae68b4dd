"""Casting decoded values to the Arrow types that a reader wants.

A value is what decoders return (`open.events.Value`): None, int, float, str or bytes. Dates outside the calendar ('0000-00-00',
'2021-00-10') become NULL in a date or timestamp; read them as a string to see them.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

Value = None | int | float | str | bytes
Cast = Callable[[Any], Any]

_MOMENT = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?\Z")
_DURATION = re.compile(r"(-?)(\d{1,3}):(\d\d):(\d\d)(?:\.(\d{1,6}))?\Z")
_EXACT = decimal.Context(prec=80, traps=[decimal.InvalidOperation, decimal.Inexact])


def _shown(value: Value) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _text(value: Value) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{_shown(value)} is not UTF-8 text; ask for binary") from None
    return value if isinstance(value, str) else repr(value)


def _bytes(value: Value) -> bytes:
    return value if isinstance(value, bytes) else _text(value).encode()


def _integer(low: int, high: int, value: Value) -> int:
    if isinstance(value, str | bytes):
        try:
            value = int(_text(value))
        except ValueError:
            raise ValueError(f"{_shown(value)} is not an integer") from None
    if not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{_shown(value)} is not an integer from {low} to {high}")
    return value


def _float(value: Value) -> float:
    try:
        return float(_text(value)) if isinstance(value, str | bytes) else float(value)  # type: ignore[arg-type]  # NULL has no cast
    except (ValueError, OverflowError):
        raise ValueError(f"{_shown(value)} is not a number") from None


def _boolean(value: Value) -> bool:
    return _integer(-(1 << 63), (1 << 64) - 1, value) != 0


def _decimal(kind: pa.DataType, value: Value) -> decimal.Decimal:
    try:
        number = _EXACT.quantize(decimal.Decimal(_text(value)), decimal.Decimal(1).scaleb(-kind.scale, _EXACT))
    except (decimal.InvalidOperation, decimal.Inexact):
        number = None
    if number is None or not number.is_finite() or (number and number.adjusted() + 1 + kind.scale > kind.precision):
        raise ValueError(f"{_shown(value)} does not fit {kind}")
    return number


def _moment(value: Value) -> dt.datetime | None:
    text = _text(value)
    found = _MOMENT.match(text)
    if found is None:
        raise ValueError(f"{_shown(text)} is not a date or time")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    try:
        return dt.datetime(year, month, day, hour, minute, second, int((found[7] or "").ljust(6, "0")))
    except ValueError:
        return None


def _date(value: Value) -> dt.date | None:
    moment = _moment(value)
    return None if moment is None else moment.date()


def _zoned(value: Value) -> dt.datetime | None:
    moment = _moment(value)
    return None if moment is None else moment.replace(tzinfo=dt.UTC)


def _duration(value: Value) -> dt.timedelta:
    text = _text(value)
    found = _DURATION.match(text)
    if found is None:
        raise ValueError(f"{_shown(text)} is not a TIME")
    hours, minutes, seconds = (int(found[i]) for i in (2, 3, 4))
    length = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds, microseconds=int((found[5] or "").ljust(6, "0")))
    return -length if found[1] else length


def _vector(item: Cast, value: Value) -> list[Any]:
    text = _text(value)
    if not (text.startswith("[") and text.endswith("]")):
        raise ValueError(f"{_shown(text)} is not a vector")
    inside = text[1:-1].strip()
    return [item(part.strip()) for part in inside.split(",")] if inside else []


def _cast_of(kind: pa.DataType) -> Cast | None:
    if pa.types.is_integer(kind):
        bits = kind.bit_width
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if pa.types.is_signed_integer(kind) else (0, (1 << bits) - 1)
        return functools.partial(_integer, low, high)
    if pa.types.is_decimal(kind):
        return functools.partial(_decimal, kind)
    if pa.types.is_timestamp(kind):
        return _moment if kind.tz is None else _zoned
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = _cast_of(kind.value_type)
        return None if item is None else functools.partial(_vector, item)
    simple: tuple[tuple[Callable[[pa.DataType], bool], Cast], ...] = (
        (pa.types.is_string, _text),
        (pa.types.is_large_string, _text),
        (pa.types.is_binary, _bytes),
        (pa.types.is_large_binary, _bytes),
        (pa.types.is_floating, _float),
        (pa.types.is_boolean, _boolean),
        (pa.types.is_date, _date),
        (pa.types.is_duration, _duration),
    )
    return next((cast for fits, cast in simple if fits(kind)), None)


def caster(kind: pa.DataType) -> Cast:
    """Return the function that casts a value (not None) to an Arrow type, or raises ValueError. Raises ValueError for an unusable type."""
    cast = _cast_of(kind)
    if cast is None:
        raise ValueError(f"columns of messages cannot be read as {kind}")
    return cast
