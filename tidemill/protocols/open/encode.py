"""The Open Protocol, written plainly: row cells → key and value JSON; DDL and resolved messages.

This is what the encode kernel has to equal, what it hands rows back to, and where the texts of its programs come from. Bytes are
those of TiCDC's encoder with default options. `framed` puts an event into a message of its own.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING

from tidemill.errors import MalformedRow, TidemillError
from tidemill.protocols.open.codes import TEXT_BLOBS, VERSION, ColumnFlag, ColumnType, EventType
from tidemill.protocols.open.gotext import go_quote, json_string
from tidemill.tidb.keys import parse_record_key
from tidemill.tidb.rows import RowReader
from tidemill.tidb.schema.codes import ColumnFlag as SchemaFlag
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.floats import go_float

if TYPE_CHECKING:
    from tidemill.events import DdlEvent
    from tidemill.tidb.rows import Cell


def column_flags(table: TableInfo) -> dict[int, ColumnFlag]:
    """The protocol's flags of each column by id. An index marks all its columns, not only the first as MySQL does."""
    flags = {}
    handle = table.handle_key_columns
    for column in table.columns:
        flag = ColumnFlag(0)
        flag |= ColumnFlag.BINARY if column.is_binary else 0
        flag |= ColumnFlag.HANDLE_KEY if column.id in handle else 0
        flag |= ColumnFlag.GENERATED if column.is_generated else 0
        flag |= ColumnFlag.PRIMARY_KEY if column.flag & SchemaFlag.PRIMARY_KEY else 0
        flag |= ColumnFlag.UNIQUE_KEY if column.flag & SchemaFlag.UNIQUE_KEY else 0
        flag |= ColumnFlag.MULTIPLE_KEY if column.flag & SchemaFlag.MULTIPLE_KEY else 0
        flag |= ColumnFlag.NULLABLE if not column.not_null else 0
        flag |= ColumnFlag.UNSIGNED if column.unsigned else 0
        flags[column.id] = flag
    for index in table.indices:
        mark = ColumnFlag(0)
        mark |= ColumnFlag.PRIMARY_KEY if index.primary else 0
        mark |= ColumnFlag.UNIQUE_KEY if index.unique and not index.primary else 0
        mark |= ColumnFlag.MULTIPLE_KEY if len(index.columns) > 1 else 0
        for column in table.index_columns(index):
            flags[column.id] |= mark
    return flags


def json_value(column: ColumnInfo, cell: Cell) -> bytes:
    """A column's `v`."""
    if cell is None:
        return b"null"
    if isinstance(cell, float):
        return go_float(cell, 32 if column.tp == ColumnType.FLOAT else 64).encode()
    if isinstance(cell, int):
        return b"%d" % cell
    if isinstance(cell, str):
        return json_string(cell.encode())
    if column.tp in TEXT_BLOBS:
        return b'"' + base64.b64encode(cell) + b'"'
    return json_string(go_quote(cell) if column.is_binary else cell)


class OpenTable:
    """One table version: turns raw changes into events. Compiled once for many rows."""

    __slots__ = ("_flags", "_heads", "_names", "info", "reader", "schema", "table")

    def __init__(self, schema: str, table: str, info: TableInfo, zone: tzinfo) -> None:
        self.schema, self.table, self.info = schema, table, info
        self.reader = RowReader(info, zone)
        self._flags = column_flags(info)
        columns = info.output_columns
        order = sorted(range(len(columns)), key=lambda i: columns[i].name.encode())
        self._heads = [(i, columns[i], self.column_head(columns[i])) for i in order]
        self._names = b'"scm":%s,"tbl":%s' % (json_string(schema.encode()), json_string(table.encode()))

    def column_head(self, column: ColumnInfo) -> bytes:
        """What stands before the column's value: its name, type and flags."""
        flag = self._flags[column.id]
        handle = b'"h":true,' if flag & ColumnFlag.HANDLE_KEY else b""
        return b'%s:{"t":%d,%s"f":%d,"v":' % (json_string(column.name.encode()), column.tp, handle, flag)

    @property
    def in_name_order(self) -> list[ColumnInfo]:
        """The columns as they stand in a value."""
        return [column for _, column, _ in self._heads]

    @property
    def key_names(self) -> bytes:
        """The constant part of a row's key: schema and table."""
        return self._names

    def image(self, cells: Sequence[Cell]) -> bytes:
        """All columns of one image of a row."""
        return b"{" + b",".join(head + json_value(column, cells[i]) + b"}" for i, column, head in self._heads) + b"}"

    def row_key(self, key: bytes, commit_ts: int) -> bytes:
        """The key JSON of a row: `rid` is its integer handle unless that is 0, `ptn` the physical table of a partition."""
        record = parse_record_key(key)
        parts = [b'"ts":%d' % commit_ts, self._names]
        if isinstance(record.handle, int) and record.handle:
            parts.append(b'"rid":%d' % record.handle)
        if self.info.partition is not None:
            parts.append(b'"ptn":%d' % record.table_id)
        parts.append(b'"t":%d' % EventType.ROW)
        return b"{" + b",".join(parts) + b"}"

    def row_value(self, key: bytes, value: bytes | None, old_value: bytes | None) -> bytes:
        """The value JSON of a row: u, p or d by which images there are. Raises MalformedRow."""
        parts = []
        if value:
            parts.append(b'"u":' + self.image(self.reader.read(key, value)))
        if old_value:
            parts.append((b'"p":' if value else b'"d":') + self.image(self.reader.read(key, old_value)))
        if not parts:
            raise MalformedRow("neither a new nor an old value")
        return b"{" + b",".join(parts) + b"}"

    def row(self, key: bytes, value: bytes | None, old_value: bytes | None, commit_ts: int) -> tuple[bytes, bytes]:
        """Key and value JSON of a change. An empty value is none. Raises MalformedRow naming table, key and commit_ts."""
        try:
            return self.row_key(key, commit_ts), self.row_value(key, value, old_value)
        except TidemillError as error:
            place = f"table {self.schema}.{self.table}, key {key.hex()}, commit_ts {commit_ts}"
            raise MalformedRow(f"{place}: {error.message}", hint=error.hint) from error


def framed(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """A message with this one event: version and lengths as 8-byte big-endian numbers."""
    return VERSION.to_bytes(8, "big") + len(key).to_bytes(8, "big") + key, len(value).to_bytes(8, "big") + value


def ddl_message(event: DdlEvent) -> tuple[bytes, bytes]:
    """The message of a DDL. A DDL of a schema has no `tbl`."""
    table = b',"tbl":' + json_string(event.table.encode()) if event.table else b""
    key = b'{"ts":%d,"scm":%s%s,"t":%d}' % (event.ts, json_string(event.schema.encode()), table, EventType.DDL)
    return framed(key, b'{"q":%s,"t":%d}' % (json_string(event.query.encode()), event.type))


def resolved_message(ts: int) -> tuple[bytes, bytes]:
    """The message that says: nothing at or below ts will follow. Its event value is empty, so its value is a length of 0."""
    return framed(b'{"ts":%d,"t":%d}' % (ts, EventType.RESOLVED), b"")
