"""`tableSchema` of the simple protocol: a table's columns by id, and its indexes. TYPES.md describes it for consumers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.protocols.common.gotext import json_string
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, IndexInfo, TableInfo
from tidemill.tidb.schema.tracking.history import TableVersion
from tidemill.tidb.schema.typenames import type_name


def text(value: str) -> bytes:
    """Return a JSON string."""
    return json_string(value.encode())


def table_schema(version: TableVersion) -> bytes:
    """Return the description of a table version."""
    return named_schema(version.schema, version.table, version.info)


def named_schema(schema: str, table: str, info: TableInfo) -> bytes:
    """Return the description of a table. Columns of running DDLs are left out."""
    columns = b",".join(_column(c) for c in sorted(info.public_columns, key=lambda c: c.id))
    return b'{"schema":%s,"table":%s,"tableID":%d,"version":%d,"columns":[%s],"indexes":[%s]}' % (
        text(schema), text(table), info.id, info.update_ts, columns, b",".join(_indexes(info))
    )  # fmt: skip


def _column(column: ColumnInfo) -> bytes:
    nullable = b"false" if column.not_null else b"true"
    return b'{"name":%s,"dataType":%s,"nullable":%s,"default":%s}' % (
        text(column.name), _data_type(column), nullable, _default(column)
    )  # fmt: skip


def _data_type(column: ColumnInfo) -> bytes:
    parts = [b'"mysqlType":' + text(type_name(column)), b'"charset":' + text(column.charset), b'"collate":' + text(column.collate)]
    if column.flen:
        parts.append(b'"length":%d' % column.flen)
    if column.decimal and column.tp not in (MySQLType.FLOAT, MySQLType.DOUBLE):
        parts.append(b'"decimal":%d' % column.decimal)
    if column.elems:
        parts.append(b'"elements":[' + b",".join(map(text, column.elems)) + b"]")
    parts += [b'"unsigned":true'] if column.unsigned else []
    parts += [b'"zerofill":true'] if column.zerofill else []
    return b"{" + b",".join(parts) + b"}"


def _default(column: ColumnInfo) -> bytes:
    """Return the default. That of a BIT is a number."""
    if column.tp == MySQLType.BIT and column.default_bit is not None:
        return b"%d" % int.from_bytes(column.default_bit, "big")
    return _json(column.default)


def _json(value: Any) -> bytes:
    if value is None:
        return b"null"
    return text(value) if isinstance(value, str) else str(value).lower().encode()


def _indexes(info: TableInfo) -> list[bytes]:
    """Return the public indexes. If none is primary, the integer primary key that is the handle, or the first unique index of NOT NULL
    columns (which need not be the handle key), takes its place."""
    indexes = [_index(index, info) for index in info.public_indices]
    if any(index.primary for index in info.public_indices):
        return indexes
    implicit = next((index for index in info.public_indices if index.unique and _tells_apart(info.index_columns(index))), None)
    names = [info.pk_column.name] if info.pk_column is not None else [part.name for part in implicit.columns] if implicit else []
    if names:
        columns = b",".join(map(text, names))
        indexes.append(b'{"name":"primary","unique":true,"primary":true,"nullable":false,"columns":[%s]}' % columns)
    return indexes


def _tells_apart(columns: Sequence[ColumnInfo]) -> bool:
    return bool(columns) and all(column.not_null and not column.hidden for column in columns)


def _index(index: IndexInfo, info: TableInfo) -> bytes:
    columns = info.index_columns(index)
    return b'{"name":%s,"unique":%s,"primary":%s,"nullable":%s,"columns":[%s]}' % (
        text(index.name), _bool(index.unique), _bool(index.primary), _bool(any(not c.not_null for c in columns)),
        b",".join(text(part.name) for part in index.columns),
    )  # fmt: skip


def _bool(value: bool) -> bytes:
    return b"true" if value else b"false"
