"""The public view: what users see of a table. Two descriptions with the same view are the same version.

It leaves out what a running DDL changes without effect on users' statements: objects that are not public, hidden columns (that of an
expression index is public from the first step on, the index only at the end), and temporary flags and states. It also leaves out the
placement of tables and partitions: TiCDC does not send these DDLs, and later messages name the version before them.
"""

from __future__ import annotations

from typing import Any

from tidemill.tidb.schema.codes import LASTING_FLAGS, ColumnFlag
from tidemill.tidb.schema.model import ColumnInfo, IndexInfo, TableInfo

View = tuple[Any, ...]

_KEY_FLAGS = int(ColumnFlag.PRIMARY_KEY | ColumnFlag.UNIQUE_KEY | ColumnFlag.MULTIPLE_KEY)


def public_view(schema: str, info: TableInfo) -> View:
    """Return name, kind, public columns, public indexes, partitions, and the ids that hold the rows."""
    return _view(schema, info, LASTING_FLAGS)


def statement_view(schema: str, info: TableInfo) -> View:
    """Return the public view without the columns' key flags. TiDB clears these some steps after an index has left the public view."""
    return _view(schema, info, LASTING_FLAGS & ~_KEY_FLAGS)


def _view(schema: str, info: TableInfo, flags: int) -> View:
    return (
        schema,
        info.name,
        info.charset,
        info.collate,
        info.comment,
        info.pk_is_handle,
        info.is_common_handle,
        info.is_view,
        info.is_sequence,
        info.temp_type,
        info.mode,
        tuple(_column(c, flags) for c in info.public_columns if not c.hidden),
        tuple(_index(info, i) for i in info.public_indices),
        _partition(info),
        info.physical_ids,
    )


def _column(column: ColumnInfo, flags: int) -> View:
    return (
        column.id,
        column.name,
        column.tp,
        column.flag & flags,
        column.flen,
        column.decimal,
        column.charset,
        column.collate,
        column.elems,
        column.default,
        column.default_bit,
        column.default_is_expr,
        column.origin_default,
        column.origin_default_bit,
        column.generated_expr,
        column.generated_stored,
        column.comment,
        column.array,
    )


def _index(info: TableInfo, index: IndexInfo) -> View:
    columns = tuple((info.columns[part.offset].id, part.length) for part in index.columns)
    return (index.id, index.name, columns, index.unique, index.primary, index.is_global, index.invisible, index.condition)


def _partition(info: TableInfo) -> View | None:
    if info.partition is None:
        return None
    own = info.partition
    definitions = tuple((d.id, d.name, d.less_than, d.in_values, d.comment) for d in own.definitions)
    return (own.type, own.expr, own.columns, definitions)
