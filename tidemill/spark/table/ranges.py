"""Bounds of the key's columns → ranges of record keys. Pure.

A range is given by what follows `_r` in a key: [start, end), an end of None being the table's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime

from tidemill.spark.table.bounds import Bounds, Value
from tidemill.tidb.codec import SIGN, encode_int
from tidemill.tidb.datums import Datum, DatumFlag, encode_datum
from tidemill.tidb.keys import record_prefix, record_range, signed_handle
from tidemill.tidb.rows.cells import Family, family
from tidemill.tidb.schema.codes import HandleKind
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.times import Moment, pack_time

HandleRange = tuple[bytes, bytes | None]
WHOLE: tuple[HandleRange, ...] = ((b"", None),)

MOST_POINTS = 10_000
"""Ranges of an IN, or of several of them together. With more, the columns of the key that come later are not looked at."""

_EXACT = frozenset({"binary", "utf8mb4_0900_bin"})
_WITHOUT_SPACES = frozenset({"utf8mb4_bin", "utf8_bin", "ascii_bin"})
"""Collations whose keys have the bytes of the text, as they are or without trailing spaces. Those of others have weights."""


def handle_ranges(info: TableInfo, bounds: Mapping[int, Bounds]) -> tuple[HandleRange, ...]:
    """Return the ranges of handles that may hold rows within the bounds, in key order and without overlaps. None: there is no such row."""
    match info.handle_kind:
        case HandleKind.INT if info.pk_column is not None and info.pk_column.id in bounds:
            return _merged(_of_integers(info.pk_column, bounds[info.pk_column.id]))
        case HandleKind.COMMON:
            return _merged(_of_primary_key(info, bounds))
    return WHOLE


def key_range(physical_id: int, handles: HandleRange) -> tuple[bytes, bytes]:
    """Return the raw keys of a range of handles of a physical table."""
    start, end = handles
    return record_prefix(physical_id) + start, record_range(physical_id)[1] if end is None else record_prefix(physical_id) + end


def _of_integers(column: ColumnInfo, bounds: Bounds) -> list[HandleRange]:
    least, most = (0, 2 * SIGN - 1) if column.unsigned else (-SIGN, SIGN - 1)
    found: list[HandleRange] = []
    for low, high in bounds.intervals:
        begin, end = max(least, least if low is None else low), min(most, most if high is None else high)
        parts = [(begin, min(end, SIGN - 1)), (max(begin, SIGN), end)]  # from 2^63 on, unsigned handles are negative
        found += [(encode_int(signed_handle(a)), encode_int(signed_handle(b)) + b"\0") for a, b in parts if a <= b]
    return found


def _of_primary_key(info: TableInfo, bounds: Mapping[int, Bounds]) -> list[HandleRange]:
    """Values of the first columns of the key, then a range of the next one."""
    index = info.primary_index
    prefixes = [b""]
    for part, column in zip(index.columns, info.index_columns(index), strict=True) if index is not None else ():
        wanted = bounds.get(column.id)
        if wanted is None or part.length >= 0 or not _is_ordered(column):
            break
        values = wanted.values
        if values is None:
            low = encoded(column, _lowest(column, wanted.low)) if wanted.low is not None else b""
            high = encoded(column, wanted.high) if wanted.high is not None else b""
            return [(prefix + low, _after(prefix + high)) for prefix in prefixes]
        datums = {encoded(column, form) for value in values for form in _forms(column, value)}
        if len(prefixes) * len(datums) > MOST_POINTS:
            break
        prefixes = [prefix + datum for prefix in prefixes for datum in sorted(datums)]
    return [(prefix, _after(prefix)) for prefix in prefixes]


def _is_ordered(column: ColumnInfo) -> bool:
    """Whether keys hold the column in an order that can be told from its values."""
    kind = family(column)
    return kind in (Family.INT, Family.YEAR, Family.TIME) or (kind is Family.BYTES and column.collate in _EXACT | _WITHOUT_SPACES)


def _forms(column: ColumnInfo, value: Value) -> set[Value]:
    """What a key may have of a value: clusters without the new collations keep trailing spaces."""
    return {value, value.rstrip(b" ")} if column.collate in _WITHOUT_SPACES and isinstance(value, bytes) else {value}


def _lowest(column: ColumnInfo, value: Value) -> Value:
    """The lowest form that a key may have of this or any higher value. Without its trailing spaces a text may be lower than one that has
    control characters there."""
    if column.collate not in _WITHOUT_SPACES or not isinstance(value, bytes):
        return value
    return value[: next((at for at, byte in enumerate(value) if byte <= 0x20), len(value))]


def encoded(column: ColumnInfo, value: Value) -> bytes:
    """A value as the key has it."""
    match value:
        case bytes():
            return encode_datum(Datum(DatumFlag.BYTES, value))
        case date():
            clock = (value.hour, value.minute, value.second, value.microsecond) if isinstance(value, datetime) else ()
            return encode_datum(Datum(DatumFlag.UINT, pack_time(Moment(value.year, value.month, value.day, *clock))))
    if column.unsigned and family(column) is Family.INT:
        return encode_datum(Datum(DatumFlag.UINT, min(max(value, 0), 2 * SIGN - 1)))
    return encode_datum(Datum(DatumFlag.INT, min(max(value, -SIGN), SIGN - 1)))


def _after(prefix: bytes) -> bytes | None:
    """The end of all keys that begin with a prefix."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _merged(ranges: list[HandleRange]) -> tuple[HandleRange, ...]:
    found: list[HandleRange] = []
    for start, end in sorted(ranges, key=lambda one: one[0]):
        if end is not None and start >= end:
            continue
        if found and (found[-1][1] is None or start <= found[-1][1]):
            last = found[-1][1]
            found[-1] = found[-1][0], None if last is None or end is None else max(last, end)
        else:
            found.append((start, end))
    return tuple(found)
