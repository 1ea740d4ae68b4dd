"""Changes of rows → the row bytes of a binlog, as TiDB writes them. The inverse of `rows.py`; pure.

Values are plain ones (`tidemill.tidb.rows.cells`) by column id, of all columns that the schema's state lets TiDB write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemill.tidb.codec import encode_varint
from tidemill.tidb.datums import Datum, DatumFlag, decode_datum, encode_datum
from tidemill.tidb.keys import parse_record_key
from tidemill.tidb.rows.cells import Plain
from tidemill.tidb.rows.write import format_1_datum, needs_value
from tidemill.tidb.schema.codes import HandleKind, SchemaState
from tidemill.tidb.schema.model import ColumnInfo, TableInfo

Values = Mapping[int, Plain | None]

ROW_ID = -1
"""The column id of the hidden row id, in updates and deletes of tables without a key."""

_NULL = bytes([DatumFlag.NULL])
_WRITTEN = (SchemaState.WRITE_ONLY, SchemaState.WRITE_REORG, SchemaState.PUBLIC)
_IN_ROWS = {DatumFlag.INT: DatumFlag.VARINT, DatumFlag.UINT: DatumFlag.UVARINT, DatumFlag.BYTES: DatumFlag.COMPACT_BYTES}


def inserted_row(info: TableInfo, key: bytes, values: Values) -> bytes:
    """Return the bytes of an inserted row: its handle, and the columns that its value in TiKV has."""
    in_key = _held_by_key(info)
    columns = [column for column in _written(info) if column.id not in in_key and not (values.get(column.id) is None and _is_free(column))]
    return _handle(info, key) + _pairs(columns, values)


def updated_row(info: TableInfo, key: bytes, old: Values, new: Values) -> bytes:
    """Return the bytes of an updated row: all its columns before, and after. A row whose key changes is deleted and inserted instead."""
    columns, row_id = _written(info), _row_id(info, key)
    return _pairs(columns, old, row_id) + _pairs(columns, new, row_id)


def deleted_row(info: TableInfo, key: bytes, values: Values) -> bytes:
    """Return the bytes of a deleted row: the columns that statements see, also virtual ones."""
    columns = [column for column in info.columns if column.state == SchemaState.PUBLIC]
    return _pairs(columns, values, _row_id(info, key))


def _written(info: TableInfo) -> list[ColumnInfo]:
    return [column for column in info.columns if column.state in _WRITTEN and not column.is_virtual]


def _is_free(column: ColumnInfo) -> bool:
    """Whether TiDB leaves out a NULL of this column: nothing else could be read there."""
    return column.default is None and column.default_bit is None


def _held_by_key(info: TableInfo) -> frozenset[int]:
    """Return the ids of the columns that an inserted row leaves out, because its handle has their exact values."""
    if info.pk_column is not None:
        return frozenset({info.pk_column.id})
    index = info.primary_index
    if info.handle_kind is not HandleKind.COMMON or index is None:
        return frozenset()
    parts = zip(index.columns, info.index_columns(index), strict=True)
    return frozenset(column.id for part, column in parts if part.length < 0 and not needs_value(column))


def _handle(info: TableInfo, key: bytes) -> bytes:
    handle = parse_record_key(key).handle
    if isinstance(handle, int):
        return bytes([DatumFlag.VARINT]) + encode_varint(handle)
    out, at = b"", 0
    while at < len(handle):
        start = at
        datum, at = decode_datum(handle, at)
        flag = _IN_ROWS.get(datum.flag)
        out += handle[start:at] if flag is None else encode_datum(Datum(flag, datum.value))
    return out


def _row_id(info: TableInfo, key: bytes) -> bytes:
    """Return the pair of the hidden row id; empty for a table that has a key."""
    return _column_id(ROW_ID) + _handle(info, key) if info.handle_kind is HandleKind.HIDDEN else b""


def _pairs(columns: Iterable[ColumnInfo], values: Values, row_id: bytes = b"") -> bytes:
    pairs = b"".join(_column_id(column.id) + _datum(column, values.get(column.id)) for column in columns)
    return pairs + row_id or _NULL


def _column_id(number: int) -> bytes:
    return bytes([DatumFlag.VARINT]) + encode_varint(number)


def _datum(column: ColumnInfo, plain: Plain | None) -> bytes:
    return _NULL if plain is None else format_1_datum(column, plain)
