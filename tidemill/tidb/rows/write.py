"""Rows as TiDB writes them: cells → record key and row value, in format 2 or 1.

As in TiDB the value leaves out columns that the key holds exactly, virtual columns, and a NULL in a column without a default.
Tests, the playground and the resending consumer use this; delivery only reads rows.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo

from tidemill.tidb.codec import encode_float, encode_varint
from tidemill.tidb.datums import Datum, DatumFlag, encode_datum
from tidemill.tidb.keys import record_key, signed_handle
from tidemill.tidb.rows.cells import Cell, Family, Plain, family
from tidemill.tidb.rows.checksum import ROW_AND_HANDLE, row_checksum
from tidemill.tidb.rows.raw import EMPTY_FORMAT_1, FORMAT_2, RowFlag
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, HandleKind, TableInfo
from tidemill.tidb.types.decimals import encode_decimal
from tidemill.tidb.types.jsonbin import encode_printed_json
from tidemill.tidb.types.times import Moment, pack_time, parse_datetime, parse_duration
from tidemill.tidb.types.vectors import encode_vector, parse_vector

_SMALL_ID, _SMALL_DATA = 255, 65535
_MIN_PREC = 1

# Cells to plain values


def plain_from_cell(column: ColumnInfo, value: Cell, zone: tzinfo = UTC) -> Plain | None:
    """Return the inverse of `cells.cell`: times are packed, JSON text becomes its stored form. Raises TypeError, ValueError."""
    if value is None:
        return None
    match family(column), value:
        case ((Family.INT | Family.YEAR | Family.NUMBER), int()):
            return int(value)
        case Family.FLOAT, (int() | float()):
            return float(value)
        case Family.DECIMAL, str():
            return value
        case Family.TIME, str():
            return pack_time(_moment(column, value, zone))
        case Family.DURATION, str():
            return parse_duration(value)
        case Family.BYTES, bytes():
            return value
        case Family.BYTES, str():
            return value.encode("utf-8", "surrogateescape")
        case Family.JSON, str():
            return encode_printed_json(value)
        case Family.VECTOR, str():
            return encode_vector(parse_vector(value))
    raise TypeError(f"column {column.name}: {type(value).__name__} is not a cell of its type")


def _moment(column: ColumnInfo, text: str, zone: tzinfo) -> Moment:
    moment = parse_datetime(text, column.decimal)
    if column.tp != MySQLType.TIMESTAMP or moment.is_zero:
        return moment
    stored = datetime(*moment, tzinfo=zone).astimezone(UTC)
    return Moment(stored.year, stored.month, stored.day, stored.hour, stored.minute, stored.second, stored.microsecond)


# Plain values to bytes


def stored_bytes(column: ColumnInfo, plain: Plain) -> bytes:
    """Encode a plain value for a row of format 2. The inverse of `cells.plain_from_stored`. Raises ValueError when it does not fit."""
    match plain:
        case int():
            signed = family(column) in (Family.YEAR, Family.DURATION) or (family(column) is Family.INT and not column.unsigned)
            return _smallest(plain, signed=signed)
        case float():
            return encode_float(plain)
        case str():
            return encode_decimal(plain, *_precision(column))
        case bytes():
            return plain


def _smallest(number: int, *, signed: bool) -> bytes:
    """Encode an integer in 1, 2, 4 or 8 bytes, as few as hold it, little-endian."""
    for size in (1, 2, 4, 8):
        try:
            return number.to_bytes(size, "little", signed=signed)
        except OverflowError:
            continue
    raise ValueError(f"{number} has more than 64 bits or the wrong sign")


def _precision(column: ColumnInfo) -> tuple[int, int]:
    """Return precision and scale of a DECIMAL column. Without a length it is decimal(10,0)."""
    frac = max(column.decimal, 0)
    return max(column.flen if column.flen > 0 else 10, frac, _MIN_PREC), frac


_KEY_FLAGS = {
    Family.YEAR: DatumFlag.INT,
    Family.NUMBER: DatumFlag.UINT,
    Family.FLOAT: DatumFlag.FLOAT,
    Family.DECIMAL: DatumFlag.DECIMAL,
    Family.TIME: DatumFlag.UINT,
    Family.DURATION: DatumFlag.DURATION,
    Family.BYTES: DatumFlag.BYTES,
}
_FORMAT_1_FLAGS = {
    **_KEY_FLAGS,
    Family.YEAR: DatumFlag.VARINT,
    Family.NUMBER: DatumFlag.UVARINT,
    Family.TIME: DatumFlag.UVARINT,
    Family.DURATION: DatumFlag.VARINT,
    Family.BYTES: DatumFlag.COMPACT_BYTES,
    Family.JSON: DatumFlag.JSON,
    Family.VECTOR: DatumFlag.VECTOR,
}


def _datum_bytes(column: ColumnInfo, plain: Plain, flag: DatumFlag) -> bytes:
    prec, frac = _precision(column)
    return encode_datum(Datum(flag, plain), prec=prec, frac=frac)


def key_datum(column: ColumnInfo, plain: Plain) -> bytes:
    """Encode a plain value for the key of a common handle."""
    own = DatumFlag.UINT if column.unsigned else DatumFlag.INT
    return _datum_bytes(column, plain, _KEY_FLAGS.get(family(column), own))


def format_1_datum(column: ColumnInfo, plain: Plain) -> bytes:
    """Encode a plain value for a row of format 1."""
    own = DatumFlag.UVARINT if column.unsigned else DatumFlag.VARINT
    return _datum_bytes(column, plain, _FORMAT_1_FLAGS.get(family(column), own))


# Rows


def pack_row(columns: Mapping[int, bytes | None]) -> bytes:
    """Build a row of format 2 from stored bytes by column id, None for NULL. Large ids or data make it a large row."""
    filled = sorted((column, data) for column, data in columns.items() if data is not None)
    nulls = sorted(column for column, data in columns.items() if data is None)
    ids = [column for column, _ in filled] + nulls
    data = b"".join(data for _, data in filled)
    large = max(ids, default=0) > _SMALL_ID or len(data) > _SMALL_DATA
    ends, end = [], 0
    for _, part in filled:
        end += len(part)
        ends.append(end)
    id_code, end_code = ("I", "I") if large else ("B", "H")
    head = struct.pack("<BBHH", FORMAT_2, RowFlag.LARGE if large else 0, len(filled), len(nulls))
    return head + struct.pack(f"<{len(ids)}{id_code}{len(ends)}{end_code}", *ids, *ends) + data


def with_checksum(key: bytes, row: bytes) -> bytes:
    """Add the checksum that TiDB writes since 8.4, over row and handle, to a row of format 2."""
    body = row[:1] + bytes([row[1] | RowFlag.CHECKSUM]) + row[2:]
    return body + struct.pack("<BI", ROW_AND_HANDLE, row_checksum(key, body, ROW_AND_HANDLE))


def encode_row_v2(cells: Sequence[Cell], table: TableInfo, zone: tzinfo = UTC) -> bytes:
    """Build the row value of cells in format 2. Cells are in the order of `table.output_columns`, timestamps in `zone`.

    Raises TypeError, ValueError for a cell that does not fit its column.
    """
    values = _value_columns(cells, table, zone)
    return pack_row({column.id: None if plain is None else stored_bytes(column, plain) for column, plain in values})


def encode_row_v1(cells: Sequence[Cell], table: TableInfo, zone: tzinfo = UTC) -> bytes:
    """Build the row value in format 1. TiDB wrote all rows so before 4.0; its DDL sessions still do."""
    null = bytes([DatumFlag.NULL])
    row = b"".join(
        bytes([DatumFlag.VARINT]) + encode_varint(column.id) + (null if plain is None else format_1_datum(column, plain))
        for column, plain in _value_columns(cells, table, zone)
    )
    return row or EMPTY_FORMAT_1


def encode_record_key(cells: Sequence[Cell], table: TableInfo, physical_id: int, row_id: int = 0, zone: tzinfo = UTC) -> bytes:
    """Build the raw record key of a row. `row_id` is the handle where the table has a hidden row id.

    Raises ValueError where the key holds weights of a collation that is not known here.
    """
    plains = _plains(cells, table, zone)
    if table.handle_kind is HandleKind.HIDDEN:
        return record_key(physical_id, row_id)
    if table.handle_kind is HandleKind.INT:
        handle = plains[table.pk_column.id] if table.pk_column is not None else None
        if not isinstance(handle, int):
            raise ValueError(f"table {table.name}: the row has no primary key")
        return record_key(physical_id, signed_handle(handle))
    return record_key(physical_id, _common_handle(table, plains))


def _common_handle(table: TableInfo, plains: Mapping[int, Plain | None]) -> bytes:
    index = table.primary_index
    if index is None:
        raise ValueError(f"table {table.name} has a common handle but no primary index")
    handle = b""
    for part, column in zip(index.columns, table.index_columns(index), strict=True):
        plain = plains[column.id]
        if plain is None:
            raise ValueError(f"table {table.name}: NULL in key column {column.name}")
        if isinstance(plain, bytes):
            plain = sort_key(column, _prefix(column, plain, part.length))
        handle += key_datum(column, plain)
    return handle


def _prefix(column: ColumnInfo, data: bytes, length: int) -> bytes:
    """Return the first `length` characters, or bytes of a binary column. -1 means all."""
    if length < 0:
        return data
    return data[:length] if column.is_binary else data.decode("utf-8", "surrogateescape")[:length].encode("utf-8", "surrogateescape")


_PLAIN_COLLATIONS = ("binary", "utf8mb4_0900_bin")
_TRIMMED_COLLATIONS = ("utf8mb4_bin", "utf8_bin", "latin1_bin", "ascii_bin")


def sort_key(column: ColumnInfo, data: bytes) -> bytes:
    """Return the sort key of a string under TiDB's new collations: its bytes, without trailing spaces where the collation ignores them.

    Case-insensitive collations have weights. Known here is ASCII in a `general_ci`: upper-case letters. Else raises ValueError.
    """
    if column.collate in _PLAIN_COLLATIONS:
        return data
    trimmed = data.rstrip(b" ")
    if column.collate in _TRIMMED_COLLATIONS:
        return trimmed
    if column.collate.endswith("general_ci") and trimmed.isascii():
        return trimmed.decode().upper().encode("utf-16-be")
    raise ValueError(f"column {column.name}: the weights of collation {column.collate} are not known here")


def needs_value(column: ColumnInfo) -> bool:
    """Return whether the row value repeats a key column, because the key does not hold its exact string."""
    if family(column) is not Family.BYTES or column.collate in _PLAIN_COLLATIONS:
        return False
    return not (column.collate in _TRIMMED_COLLATIONS and column.tp == MySQLType.STRING)


def _plains(cells: Sequence[Cell], table: TableInfo, zone: tzinfo) -> dict[int, Plain | None]:
    return {column.id: plain_from_cell(column, value, zone) for column, value in zip(table.output_columns, cells, strict=True)}


def _value_columns(cells: Sequence[Cell], table: TableInfo, zone: tzinfo) -> list[tuple[ColumnInfo, Plain | None]]:
    """Return the columns that a row value holds, with their plain values."""
    plains = _plains(cells, table, zone)
    omitted = _key_columns(table)
    return [
        (column, plains[column.id])
        for column in table.output_columns
        if column.id not in omitted and not (plains[column.id] is None and _has_no_default(column))
    ]


def _has_no_default(column: ColumnInfo) -> bool:
    return column.default is None and column.origin_default is None and column.default_bit is None and column.origin_default_bit is None


def _key_columns(table: TableInfo) -> frozenset[int]:
    """Return the ids of the columns that the key alone holds."""
    if table.pk_column is not None:
        return frozenset({table.pk_column.id})
    index = table.primary_index
    if not table.is_common_handle or index is None:
        return frozenset()
    columns = zip(index.columns, table.index_columns(index), strict=True)
    return frozenset(column.id for part, column in columns if part.length < 0 and not needs_value(column))
