"""The reference encoder of the simple protocol (JSON): row cells → message values; DDL, bootstrap and watermark messages. Rules: TYPES.md.

The kernel writes the same bytes, hands rows back to this code, and takes the constants of its programs from it. `buildTs` is the clock's.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING

from tidemill.errors import MalformedRow, TidemillError
from tidemill.protocols.common.ddltypes import ddl_kind
from tidemill.protocols.common.gotext import json_string
from tidemill.protocols.simple.schema import named_schema, table_schema, text
from tidemill.tidb.keys import physical_table_id
from tidemill.tidb.rows import RowReader
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.floats import go_float_plain
from tidemill.tidb.types.jsonstyle import JsonStyle

if TYPE_CHECKING:
    from tidemill.tidb.rows import Cell
    from tidemill.tidb.schema.events import DdlEvent

VERSION = 1
BINARY_FLAG = 128
"""MySQL's column flag for bytes that are not text."""


def is_base64(column: ColumnInfo) -> bool:
    """Return whether a string column's values are written as base64."""
    return bool(column.flag & BINARY_FLAG) or column.is_binary


def value_text(column: ColumnInfo, cell: Cell, location: str) -> bytes:
    """Return a value in `data` or `old`: a string, for TIMESTAMP an object that names its zone, or null."""
    if cell is None:
        return b"null"
    if isinstance(cell, float):
        return b'"' + go_float_plain(cell, 32 if column.tp == MySQLType.FLOAT else 64).encode() + b'"'
    if isinstance(cell, int):
        return b'"%d"' % cell
    if isinstance(cell, str):
        before, after = around(column, location)
        return before + json_string(cell.encode())[1:-1] + after
    return b'"' + base64.b64encode(cell) + b'"' if is_base64(column) else json_string(cell)


def around(column: ColumnInfo, location: str) -> tuple[bytes, bytes]:
    """Return the bytes before and after the text of a value."""
    if column.tp == MySQLType.TIMESTAMP:
        return b'{"location":%s,"value":"' % text(location), b'"}'
    return b'"', b'"'


class SimpleTable:
    """One table version: turns raw changes into message values. Compiled once for many rows."""

    def __init__(
        self, schema: str, table: str, info: TableInfo, zone: tzinfo, location: str = "UTC", json: JsonStyle = JsonStyle.GO
    ) -> None:
        self.schema, self.table, self.info, self.location = schema, table, info, location
        self.reader = RowReader(info, zone, json=json)
        columns = info.output_columns
        handle = frozenset(info.handle_key_ids)
        self.columns = sorted(columns, key=lambda c: c.name.encode())
        self.handle_columns = [c for c in self.columns if c.id in handle]
        self._places = {c.id: i for i, c in enumerate(columns)}
        self.head = b'{"version":%d,"database":%s,"table":%s,"tableID":' % (VERSION, text(schema), text(table))
        self.version = b',"schemaVersion":%d' % info.update_ts if info.update_ts else b""

    def image(self, columns: Sequence[ColumnInfo], cells: Sequence[Cell]) -> bytes:
        """Return the columns of an image, sorted by the bytes of their names."""
        return b"{" + b",".join(text(c.name) + b":" + value_text(c, cells[self._places[c.id]], self.location) for c in columns) + b"}"

    def row(
        self,
        key: bytes,
        value: bytes | None,
        old_value: bytes | None,
        commit_ts: int,
        now_ms: int,
        *,
        large: bool = False,
        location: str = "",
    ) -> bytes:
        """Encode the message of a change. An empty image counts as none. `large`: only the handle key, because the whole is too large.
        `location`: the claim check's file. Raises MalformedRow naming table, key and commit_ts."""
        try:
            table_id = physical_table_id(key)
            after = self.reader.read(key, value) if value else None
            before = self.reader.read(key, old_value) if old_value else None
            if after is None and before is None:
                raise MalformedRow("neither a new nor an old value")
        except TidemillError as error:
            place = f"table {self.schema}.{self.table}, key {key.hex()}, commit_ts {commit_ts}"
            raise MalformedRow(f"{place}: {error.message}", hint=error.hint) from error
        kind = b"DELETE" if after is None else b"INSERT" if before is None else b"UPDATE"
        columns = self.handle_columns if large else self.columns
        parts = [self.head, b'%d,"type":"%s","commitTs":%d,"buildTs":%d' % (table_id, kind, commit_ts, now_ms), self.version]
        parts += [b',"claimCheckLocation":' + text(location)] if location else []
        parts += [b',"handleKeyOnly":true'] if large else []
        parts += [b',"data":' + self.image(columns, after)] if after is not None and columns else []
        parts += [b',"old":' + self.image(columns, before)] if before is not None and columns else []
        return b"".join(parts) + b"}"

    def bootstrap(self, now_ms: int) -> bytes:
        """Return the message that describes the table."""
        return bootstrap_message(self.schema, self.table, self.info, now_ms)


def bootstrap_message(schema: str, table: str, info: TableInfo, now_ms: int) -> bytes:
    """Return the value of the message that describes a table."""
    described = named_schema(schema, table, info)
    return b'{"version":%d,"type":"BOOTSTRAP","commitTs":0,"buildTs":%d,"tableSchema":%s}' % (VERSION, now_ms, described)


def ddl_message(event: DdlEvent, now_ms: int) -> bytes:
    """Return the value of a DDL's message, with the table after it and, if there was one, before it. For a drop both are the last table."""
    after, before = (event.after, event.other or event.before) if event.after is not None else (event.other or event.before, event.before)
    parts = b',"tableSchema":' + table_schema(after) if after is not None else b""
    parts += b',"preTableSchema":' + table_schema(before) if before is not None else b""
    return b'{"version":%d,"type":"%s","sql":%s,"commitTs":%d,"buildTs":%d%s}' % (
        VERSION, ddl_kind(event.type).value.encode(), text(event.query), event.ts, now_ms, parts
    )  # fmt: skip


def watermark_message(ts: int, now_ms: int) -> bytes:
    """Return the value of a watermark message: nothing at or below ts will follow."""
    return b'{"version":%d,"type":"WATERMARK","commitTs":%d,"buildTs":%d}' % (VERSION, ts, now_ms)
