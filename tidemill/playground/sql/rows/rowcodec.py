"""Rows of one version of a table, to and from bytes, as a TiDB server at that version writes them.

A row is a dict from column id to plain value. Columns that a running DDL has made writable are written too, though no statement
sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill.errors import SqlError
from tidemill.playground.sql.parse.ast import Expr
from tidemill.playground.sql.parse.cursor import Cursor
from tidemill.playground.sql.parse.expressions import Scope, evaluate, parse_expression
from tidemill.playground.sql.rows.partitioning import Router
from tidemill.playground.sql.rows.values import readable, to_fitting, to_plain
from tidemill.tidb.datums import decode_datum
from tidemill.tidb.keys import parse_record_key, record_key, signed_handle
from tidemill.tidb.rows.cells import Plain, as_unsigned, plain_from_datum, plain_from_stored
from tidemill.tidb.rows.defaults import missing_plain
from tidemill.tidb.rows.raw import RawRow, decode_row
from tidemill.tidb.rows.write import key_datum, needs_value, pack_row, sort_key, stored_bytes
from tidemill.tidb.schema.codes import ColumnFlag, HandleKind, SchemaState
from tidemill.tidb.schema.model import ColumnInfo, TableInfo

Row = dict[int, Plain | None]

_WRITABLE = (SchemaState.WRITE_ONLY, SchemaState.WRITE_REORG, SchemaState.PUBLIC)


@dataclass(frozen=True, slots=True)
class _Shadow:
    """The copy of a column that is being changed: its old column is converted on every write."""

    column: ColumnInfo
    source: ColumnInfo


class RowCodec:
    """Encodes and decodes rows of one table version."""

    def __init__(self, table: TableInfo, info: dict[str, Any], *, cuts: bool = False) -> None:
        """`cuts`: a column that is being changed gets what fits of its old value."""
        self.table = table
        self._convert = to_fitting if cuts else to_plain
        self.public = [c for c in table.columns if c.state == SchemaState.PUBLIC and not c.hidden]
        self.by_name = {c.name.lower(): c for c in self.public}
        self.required = [c for c in self.public if c.not_null and not c.is_generated]
        self.given = [c for c in self.public if not c.is_generated]
        self.automatic = [c for c in self.public if _is_automatic(c, info)]
        """Columns whose values the table allocates: AUTO_INCREMENT, AUTO_RANDOM."""
        self.touched_on_update = [c for c in self.public if c.flag & ColumnFlag.ON_UPDATE_NOW]
        self.router = Router(table, info)
        self._stored = [c for c in table.columns if c.state in _WRITABLE and not c.is_virtual]
        self._in_key = _restored_from_key(table)
        self._generated = [(c, _parsed(c)) for c in self.public if c.is_generated]
        self._shadows = _shadows(table, info)
        self._added = [c for c in self._stored if c.state != SchemaState.PUBLIC and not any(s.column is c for s in self._shadows)]

    # writing

    def complete(self, row: Row) -> None:
        """Fill in the columns that statements do not set: generated ones, and those that a running DDL adds or changes. Raises SqlError."""
        for column, expr in self._generated:
            row[column.id] = to_plain(column, evaluate(expr, Scope(self.readable(row))))
        for column in self._added:
            if column.id not in row:
                row[column.id] = missing_plain(column)
        for shadow in self._shadows:
            row[shadow.column.id] = self._convert(shadow.column, readable(shadow.source, row[shadow.source.id]))

    def value(self, row: Row) -> bytes:
        """The row value (format 2)."""
        columns: dict[int, bytes | None] = {}
        for column in self._stored:
            if column.id in self._in_key:
                continue
            plain = row.get(column.id)
            if plain is not None:
                columns[column.id] = stored_bytes(column, plain)
            elif column.default is not None or column.origin_default is not None:
                columns[column.id] = None
        return pack_row(columns)

    def handle(self, row: Row, row_id: int) -> int | bytes:
        """The handle of a row; `row_id` for a table whose handles are hidden. Raises SqlError."""
        table = self.table
        if table.handle_kind is HandleKind.HIDDEN:
            return row_id
        if table.handle_kind is HandleKind.INT:
            assert table.pk_column is not None
            plain = row[table.pk_column.id]
            assert isinstance(plain, int)
            return signed_handle(plain)
        index = table.primary_index
        assert index is not None
        handle = b""
        for part, column in zip(index.columns, table.index_columns(index), strict=True):
            plain = row[column.id]
            assert plain is not None
            handle += key_datum(column, self._sortable(column, plain, part.length))
        return handle

    @staticmethod
    def _sortable(column: ColumnInfo, plain: Plain, length: int) -> Plain:
        if not isinstance(plain, bytes):
            return plain
        if length >= 0:
            plain = (
                plain[:length] if column.is_binary else plain.decode("utf-8", "surrogateescape")[:length].encode("utf-8", "surrogateescape")
            )
        try:
            return sort_key(column, plain)
        except ValueError as error:
            raise SqlError(str(error)) from error

    def keys(self, row: Row, handle: int | bytes) -> list[bytes]:
        """Return the record keys to write: the row's own first, then those of the copies for a running partition DDL. Raises SqlError."""
        if self.table.partitioning is None:
            return [record_key(self.table.id, handle)]
        return [record_key(physical, handle) for physical in self.router.targets(self.readable(row))]

    def unique_values(self, row: Row, index_id: int) -> tuple[object, ...] | None:
        """What an index compares; None when a part is NULL."""
        index = next(i for i in self.table.indices if i.id == index_id)
        values = []
        for part, column in zip(index.columns, self.table.index_columns(index), strict=True):
            plain = row.get(column.id)
            if plain is None:
                return None
            values.append(self._sortable(column, plain, part.length) if isinstance(plain, bytes) else plain)
        return tuple(values)

    # reading

    def row(self, key: bytes, value: bytes) -> Row:
        """All columns that statements see or a DDL writes, from key and value."""
        raw = decode_row(value)
        from_key = self._from_key(key)
        found: Row = {}
        for column in self._stored:
            if column.state != SchemaState.PUBLIC and column.id not in raw.columns:
                continue
            found[column.id] = self._plain(column, raw, from_key)
        for column, expr in self._generated:
            if column.is_virtual:
                found[column.id] = to_plain(column, evaluate(expr, Scope(self.readable(found))))
        return found

    def _plain(self, column: ColumnInfo, raw: RawRow, from_key: Row) -> Plain | None:
        if column.id in raw.columns:
            stored = raw.columns[column.id]
            if stored is None:
                return None
            return plain_from_stored(column, stored) if isinstance(stored, bytes) else plain_from_datum(column, stored)
        if column.id in from_key:
            return from_key[column.id]
        return missing_plain(column)

    def _from_key(self, key: bytes) -> Row:
        handle = parse_record_key(key).handle
        table = self.table
        if table.pk_column is not None and isinstance(handle, int):
            return {table.pk_column.id: as_unsigned(table.pk_column, handle)}
        index = table.primary_index
        if not table.is_common_handle or index is None or isinstance(handle, int):
            return {}
        found: Row = {}
        position = 0
        for column in table.index_columns(index):
            datum, position = decode_datum(handle, position)
            if column.id in self._in_key:
                found[column.id] = plain_from_datum(column, datum)
        return found

    def readable(self, row: Row) -> dict[str, Any]:
        """A row as expressions see it: values by lower-case name."""
        return {c.name.lower(): readable(c, row.get(c.id)) for c in self.public if c.id in row}


def _is_automatic(column: ColumnInfo, info: dict[str, Any]) -> bool:
    return bool(column.flag & ColumnFlag.AUTO_INCREMENT or (info["auto_random_bits"] and column.flag & ColumnFlag.PRIMARY_KEY))


def _parsed(column: ColumnInfo) -> Expr:
    return parse_expression(Cursor(column.generated_expr))


def _restored_from_key(table: TableInfo) -> frozenset[int]:
    """Ids of the columns that the row value leaves out."""
    if table.pk_column is not None:
        return frozenset({table.pk_column.id})
    index = table.primary_index
    if not table.is_common_handle or index is None:
        return frozenset()
    columns = zip(index.columns, table.index_columns(index), strict=True)
    return frozenset(c.id for part, c in columns if part.length < 0 and not needs_value(c))


def _shadows(table: TableInfo, info: dict[str, Any]) -> list[_Shadow]:
    found = []
    for column in info["cols"] or ():
        change = column["change_state_info"]
        if change is not None and column["state"] in _WRITABLE:
            by_id = table.columns_by_id
            source = next(c for c in info["cols"] if c["offset"] == change["relative_col_offset"])
            found.append(_Shadow(by_id[column["id"]], by_id[source["id"]]))
    return found
