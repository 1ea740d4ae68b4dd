"""A row's handle as TiDB prints it: a signed number, or the datums of a common handle in braces."""

from __future__ import annotations

import math

from tidemill.errors import MalformedKey
from tidemill.tidb.datums import Datum, DatumFlag, decode_datum
from tidemill.tidb.keys import RecordKey
from tidemill.tidb.types.floats import go_float_plain
from tidemill.tidb.types.times import format_duration

_FULL_FSP = 6
_SHORTEST = 9  # bytes of a handle; shorter ones are padded with zeros


def handle_text(key: RecordKey) -> bytes:
    """Return the text of a handle. Strings are sort keys, which in some collations are not the column's text. Raises MalformedBytes."""
    handle = key.handle
    if isinstance(handle, int):
        return b"%d" % handle
    parts: list[bytes] = []
    at = 0
    while at < len(handle) and not (len(handle) <= _SHORTEST and not handle[at:].strip(b"\0") and parts):
        datum, at = decode_datum(handle, at)
        parts.append(_datum_text(datum))
    return b"{" + b", ".join(parts) + b"}"


def _float_text(value: float) -> str:
    if math.isfinite(value):
        return go_float_plain(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _datum_text(datum: Datum) -> bytes:
    match datum.value:
        case None:
            raise MalformedKey("a handle holds NULL")
        case bytes():
            return datum.value
        case str():
            return datum.value.encode()
        case float():
            return _float_text(datum.value).encode()
    if datum.flag is DatumFlag.DURATION:
        return format_duration(datum.value, _FULL_FSP).encode()
    return b"%d" % datum.value
