"""Values of a column whose type MODIFY COLUMN has changed, as TiDB converts them: what does not fit is rounded. Pure.

Decimals and texts are rounded half away from zero, FLOAT and DOUBLE to integers half to even, fractions of seconds half up (TiDB's
`MyDecimal.Round`, `RoundFloat` and `RoundFrac`). TiDB itself refuses a DDL for a value that cannot be converted at all.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.sinks.lake.shapes import fraction_digits

_WIDE = pa.decimal256(76, 36)
"""Room for the digits of any number of TiDB, which has 65, 30 of them behind the point."""
_AWAY = "half_towards_infinity"
_TIME = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")


def convert(values: pa.Array, column: pa.Field) -> pa.Array:
    """Return values as those of a column. Raises ArrowInvalid, ArrowNotImplementedError for what is no such value."""
    have, want = values.type, column.type
    if pa.types.is_integer(want) and pa.types.is_floating(have):
        return pc.round(values, 0, "half_to_even").cast(want)
    if (pa.types.is_integer(want) or pa.types.is_decimal(want)) and (_is_text(have) or _is_number(have)):
        return _decimals(values, want)
    if pa.types.is_floating(want) and _is_text(have):
        return pc.utf8_trim_whitespace(values).cast(want)
    if pa.types.is_date(want) and pa.types.is_timestamp(have):
        return pc.floor_temporal(values, unit="day").cast(want)
    digits = fraction_digits(column)
    if digits is None:
        return values.cast(want)
    return _times(values, digits).cast(want) if _is_text(want) else _moments(values.cast(want), digits)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _decimals(values: pa.Array, want: pa.DataType) -> pa.Array:
    """Numbers, or texts of them, as integers or decimals."""
    if pa.types.is_integer(values.type) and pa.types.is_integer(want):
        return values.cast(want)
    if pa.types.is_floating(values.type):
        values = values.cast(pa.float64()).cast(pa.string())  # the digits that TiDB prints, not those of the binary fraction
    if _is_text(values.type):
        wide = pc.utf8_trim_whitespace(values).cast(_WIDE)
    elif pa.types.is_integer(values.type):
        wide = values.cast(pa.decimal128(20, 0)).cast(_WIDE)
    else:
        wide = values.cast(_WIDE)
    return pc.round(wide, want.scale if pa.types.is_decimal(want) else 0, _AWAY).cast(want)


def _moments(values: pa.Array, digits: int) -> pa.Array:
    if digits >= 6:
        return values
    step = 10 ** (6 - digits)
    micro = values.cast(pa.int64())
    numbers = np.floor_divide(micro.fill_null(0).to_numpy() + step // 2, step) * step
    return pa.array(numbers, pa.int64(), mask=micro.is_null().to_numpy(zero_copy_only=False)).cast(values.type)


def _times(values: pa.Array, digits: int) -> pa.Array:
    """TIME as text. Each text is rounded once."""
    found = values.cast(pa.string()).dictionary_encode()
    texts = pa.array([None if text is None else _time(text, digits) for text in found.dictionary.to_pylist()], pa.string())
    return texts.take(found.indices)


def _time(text: str, digits: int) -> str:
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise pa.ArrowInvalid(f"{text!r} is not a TIME")
    sign, hours, minutes, seconds, fraction = match.groups()
    micro = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    step = 10 ** (6 - digits)
    rounded = ((-micro if sign else micro) + step // 2) // step * step
    whole, rest = divmod(abs(rounded), 1_000_000)
    point = f".{rest:06d}"[: digits + 1] if digits else ""
    return f"{'-' if rounded < 0 else ''}{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}{point}"
