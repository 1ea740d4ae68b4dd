"""Row checksums: verifying the CRC-32 in a row's trailer. Decoding a row does not do this.

Version 0 (TiDB 7.1 to 8.2) covers the columns, version 1 (8.3) the row and its record key, version 2 (since 8.4) the row and its handle.
"""

from __future__ import annotations

import enum
import math
import struct
import zlib
from datetime import UTC

from tidemill.errors import MalformedRow
from tidemill.tidb.keys import parse_record_key
from tidemill.tidb.rows.cells import Cell, Family, family
from tidemill.tidb.rows.raw import RowChecksum, decode_row
from tidemill.tidb.rows.reader import RowReader
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.jsonstyle import JsonStyle
from tidemill.tidb.types.vectors import encode_vector, parse_vector

COLUMNS, ROW_AND_KEY, ROW_AND_HANDLE = 0, 1, 2
"""Versions."""

_MASK64 = (1 << 64) - 1
_HANDLE_AT = 11


class Verdict(enum.Enum):
    """The result of verifying a row's checksum."""

    NONE = "the row has no checksum"
    MATCHES = "the checksum matches"
    DIFFERS = "the row was changed after its checksum was made, or is read with another table"
    UNKNOWN = "the checksum is of a version that is not known"


def verify_checksum(key: bytes, value: bytes, table: TableInfo) -> Verdict:
    """Verify a row's checksum. `key` is raw, without a keyspace. A row with two checksums matches if one of them does.

    Only version 0 needs the table. TiDB 7.1 to 8.2 made such sums, over documents as those versions print them, so the cluster's present
    version does not matter. Raises MalformedKey, MalformedRow.
    """
    trailer = decode_row(value).checksum
    if trailer is None:
        return Verdict.NONE
    if trailer.version == COLUMNS:
        return _verdict(trailer, columns_checksum(table, RowReader(table, UTC, json=JsonStyle.GO).read(key, value)))
    if trailer.version in (ROW_AND_KEY, ROW_AND_HANDLE):
        return _verdict(trailer, row_checksum(key, value[: trailer.body_size], trailer.header))
    return Verdict.UNKNOWN


def _verdict(trailer: RowChecksum, found: int) -> Verdict:
    return Verdict.MATCHES if found in (trailer.checksum, trailer.extra) else Verdict.DIFFERS


def row_checksum(key: bytes, body: bytes, header: int) -> int:
    """Return the checksum of version 1 or 2: of the row without its trailer, the trailer's header byte, and the key or its handle."""
    parse_record_key(key)
    rest = key if header & 0b111 == ROW_AND_KEY else key[_HANDLE_AT:]
    return zlib.crc32(rest, zlib.crc32(body + bytes([header])))


def columns_checksum(table: TableInfo, cells: tuple[Cell, ...]) -> int:
    """Return the checksum of version 0, over the columns by ascending id. `cells` are in UTC, in the order of `table.output_columns`."""
    pairs = sorted(zip(table.output_columns, cells, strict=True), key=lambda pair: pair[0].id)
    return zlib.crc32(b"".join(summed_bytes(column, value) for column, value in pairs))


def summed_bytes(column: ColumnInfo, value: Cell) -> bytes:
    """Return the bytes that a column adds to the sum: 8 of an integer, a double of a float, else length and bytes; none for NULL."""
    match value:
        case None:
            return b""
        case int():
            return struct.pack("<Q", value & _MASK64)
        case float():
            return struct.pack("<d", value if math.isfinite(value) else 0.0)
        case bytes():
            return struct.pack("<I", len(value)) + value
        case str() if family(column) is Family.VECTOR:
            return encode_vector(parse_vector(value))
        case str():
            text = value.encode()
            return struct.pack("<I", len(text)) + text
    raise MalformedRow(f"column {column.name} holds {type(value).__name__}, which no column does")
