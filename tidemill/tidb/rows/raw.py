"""Row values decoded without the table's schema: format 2 (first byte 0x80) and format 1 (any other first byte).

Format 2: `0x80, flags, count, null count, ids, ends, data [, checksum]`; counts u16, ids u8 and ends u16, or both u32 in a large
row; little-endian. Format 1: pairs of datums, a column id (varint) and a value; a row without columns is one zero byte.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from tidemill.errors import MalformedBytes, MalformedRow
from tidemill.tidb.datums import Datum, DatumFlag, decode_datum

FORMAT_2 = 0x80
EMPTY_FORMAT_1 = b"\x00"


class RowFlag(enum.IntFlag):
    """The second byte of a row of format 2."""

    LARGE = 1
    CHECKSUM = 2


_KNOWN_FLAGS = int(RowFlag.LARGE | RowFlag.CHECKSUM)
_CHECKSUM_VERSION = 0b0111
_CHECKSUM_EXTRA = 0b1000


@dataclass(frozen=True, slots=True)
class RowChecksum:
    """The checksum trailer of a row. `body_size` is the size of the row before it."""

    header: int
    checksum: int
    extra: int | None  # the sum over the other schema while a column is being changed
    body_size: int

    @property
    def version(self) -> int:
        """What the checksum covers: 0 the columns, 1 row and key, 2 row and handle."""
        return self.header & _CHECKSUM_VERSION


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row's columns by id: stored bytes in format 2, datums in format 1, None for NULL. A missing id tells nothing of its column."""

    format: int
    columns: Mapping[int, bytes | Datum | None]
    checksum: RowChecksum | None = None


def decode_row(value: bytes) -> RawRow:
    """Decode a row value. Raises MalformedRow with the position and what was expected there."""
    if not value:
        raise MalformedRow("a row value has no bytes: this is not a row")
    try:
        return _decode_format_2(value) if value[0] == FORMAT_2 else _decode_format_1(value)
    except MalformedRow:
        raise
    except MalformedBytes as error:
        raise MalformedRow(error.message) from None


# Format 1


def _decode_format_1(value: bytes) -> RawRow:
    columns: dict[int, bytes | Datum | None] = {}
    pos = len(EMPTY_FORMAT_1) if value == EMPTY_FORMAT_1 else 0
    while pos < len(value):
        column, value_at = decode_datum(value, pos)
        if column.flag is not DatumFlag.VARINT or not isinstance(column.value, int):
            raise MalformedRow(f"row format 1: byte {pos} is a datum {column.flag.name}, expected a VARINT, a column id")
        if value_at == len(value):
            raise MalformedRow(f"row format 1: column {column.value} at byte {pos} has no value")
        datum, pos = decode_datum(value, value_at)
        if column.value in columns:
            raise MalformedRow(f"row format 1: column {column.value} stands twice, again before byte {value_at}")
        columns[column.value] = None if datum.flag is DatumFlag.NULL else datum
    return RawRow(1, columns)


# Format 2


def _decode_format_2(value: bytes) -> RawRow:
    _need(value, 6, "head")
    flags, count, nulls = struct.unpack_from("<xBHH", value)
    if flags & ~_KNOWN_FLAGS:
        raise MalformedRow(f"row format 2: flags {flags:#04x} at byte 1, only {_KNOWN_FLAGS:#04x} are known")
    id_code, id_size, end_code, end_size = ("I", 4, "I", 4) if flags & RowFlag.LARGE else ("B", 1, "H", 2)
    ends_at = 6 + (count + nulls) * id_size
    data_at = ends_at + count * end_size
    _need(value, data_at, f"{count} columns and {nulls} nulls")
    ids: tuple[int, ...] = struct.unpack_from(f"<{count + nulls}{id_code}", value, 6)
    ends: tuple[int, ...] = struct.unpack_from(f"<{count}{end_code}", value, ends_at)
    _check_ids(ids[:count], "columns")
    _check_ids(ids[count:], "nulls")
    if set(ids[:count]).intersection(ids[count:]):
        raise MalformedRow("row format 2: a column is both NULL and not")
    columns: dict[int, bytes | Datum | None] = {}
    start = 0
    for column, end in zip(ids, ends, strict=False):
        if end < start:
            raise MalformedRow(f"row format 2: column {column} ends at {end}, before its start {start}")
        columns[column] = value[data_at + start : data_at + end]
        start = end
    columns.update(dict.fromkeys(ids[count:]))
    body_size = data_at + start
    _need(value, body_size, "data")
    checksum = _decode_checksum(value, body_size) if flags & RowFlag.CHECKSUM else None
    if checksum is None and body_size != len(value):
        raise MalformedRow(f"row format 2: {len(value) - body_size} bytes follow the data, which ends at byte {body_size}")
    return RawRow(2, columns, checksum)


def _need(value: bytes, size: int, what: str) -> None:
    if len(value) < size:
        raise MalformedRow(f"row format 2: its {what} needs {size} bytes, the row has {len(value)}")


def _check_ids(ids: tuple[int, ...], what: str) -> None:
    for before, after in pairwise(ids):
        if after <= before:
            raise MalformedRow(f"row format 2: ids of {what} do not ascend: {after} after {before}")


def _decode_checksum(value: bytes, body_size: int) -> RowChecksum:
    _need(value, body_size + 5, "checksum")
    header, checksum = struct.unpack_from("<BI", value, body_size)
    end, extra = body_size + 5, None
    if header & _CHECKSUM_EXTRA:
        _need(value, end + 4, "extra checksum")
        (extra,) = struct.unpack_from("<I", value, end)
        end += 4
    if end != len(value):
        raise MalformedRow(f"row format 2: {len(value) - end} bytes follow the checksum, which ends at byte {end}")
    return RowChecksum(header, checksum, extra, body_size)
