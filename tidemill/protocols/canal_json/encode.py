"""The reference encoder of Canal-JSON: row cells → message values; DDL and watermark messages. Rules: TYPES.md.

The kernel writes the same bytes, hands rows back to this code, and takes the constants of its programs from it. Bytes equal those of TiCDC,
except for `ts` (the wall clock) and the order of `mysqlType`, which is random in TiCDC and that of the table here.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING

from tidemill.errors import MalformedRow, TidemillError
from tidemill.protocols.canal_json.codes import BINARY_STRINGS, JAVA_TYPES, PROMOTED, JavaType, MessageType
from tidemill.protocols.canal_json.text import string
from tidemill.protocols.common.ddltypes import ddl_kind
from tidemill.protocols.common.gotext import json_string
from tidemill.protocols.common.mysqltypes import full_type
from tidemill.protocols.open.codes import ColumnFlag
from tidemill.protocols.open.encode import column_flags
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.rows import RowReader
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.schema.typenames import attributes, type_name
from tidemill.tidb.types.floats import go_float_plain
from tidemill.tidb.types.jsonstyle import JsonStyle

if TYPE_CHECKING:
    from tidemill.tidb.rows import Cell
    from tidemill.tidb.schema.events import DdlEvent

PHYSICAL_SHIFT = 18
"""The bits of a ts below its milliseconds since 1970."""


class Large(enum.Enum):
    """What is sent instead of a message that would be too large."""

    HANDLE_KEY_ONLY = enum.auto()
    CLAIM_CHECK = enum.auto()


def java_type(column: ColumnInfo) -> JavaType:
    """Return the `sqlType` of a column whose value is small or NULL."""
    if column.tp in BINARY_STRINGS and column.is_binary:
        return JavaType.BLOB
    return JAVA_TYPES.get(column.tp, JavaType.VARCHAR)


def promotion(column: ColumnInfo) -> tuple[int, JavaType] | None:
    """Return the value from which on a column has another `sqlType`, and that type. None if it has only one."""
    return PROMOTED.get(column.tp) if column.unsigned else None


def sql_type(column: ColumnInfo, cell: Cell) -> JavaType:
    """Return the `sqlType` of a column with this value."""
    higher = promotion(column)
    if higher is not None and isinstance(cell, int) and cell >= higher[0]:
        return higher[1]
    return java_type(column)


def value_text(column: ColumnInfo, cell: Cell) -> bytes:
    """Return a value in `data` or `old`: a string, or null."""
    if cell is None:
        return b"null"
    if isinstance(cell, float):
        return b'"' + go_float_plain(cell, 32 if column.tp == MySQLType.FLOAT else 64).encode() + b'"'
    if isinstance(cell, int):
        return b'"%d"' % cell
    if isinstance(cell, str):
        return string(cell.encode())
    return string(cell.decode("latin-1").encode() if column.is_binary else cell)


class CanalJsonTable:
    """One table version: turns raw changes into message values. Compiled once for many rows."""

    def __init__(
        self, schema: str, table: str, info: TableInfo, zone: tzinfo, options: EncodingOptions, json: JsonStyle = JsonStyle.GO
    ) -> None:
        self.schema, self.table, self.info, self.options = schema, table, info, options
        self.reader = RowReader(info, zone, json=json)
        self.columns = info.output_columns
        handle = frozenset(info.handle_key_ids)
        self.handle_columns = tuple(c for c in self.columns if c.id in handle)
        flags = column_flags(info)
        primary = [string(c.name.encode()) for c in self.columns if flags[c.id] & ColumnFlag.PRIMARY_KEY]
        self.head = b'{"id":0,"database":%s,"table":%s,"pkNames":[%s],"isDdl":false,"type":"' % (
            string(schema.encode()), string(table.encode()), b",".join(primary)
        )  # fmt: skip
        self._places = {c.id: i for i, c in enumerate(self.columns)}

    @property
    def only_updated(self) -> bool:
        """Whether `old` of an update has only the columns that changed."""
        return self.options.only_output_updated_columns or self.options.content_compatible

    def mysql_type(self, column: ColumnInfo) -> str:
        """Return a column's `mysqlType`, the full type with content-compatible."""
        return (full_type if self.options.content_compatible else type_name)(column) + attributes(column)

    def listed(self, kind: MessageType, large: Large | None) -> Sequence[ColumnInfo]:
        """Return the columns of a message: only the handle key's for one that is too large, and for deletes if so configured."""
        cut = kind is MessageType.DELETE and self.options.delete_only_handle_key_columns
        return self.handle_columns if large or cut else self.columns

    def types_text(self, columns: Sequence[ColumnInfo]) -> bytes:
        """Return the text of `mysqlType`."""
        pairs = (string(c.name.encode()) + b":" + string(self.mysql_type(c).encode()) for c in columns)
        return b"{" + b",".join(pairs) + b"}"

    def _image(self, columns: Sequence[ColumnInfo], cells: Sequence[Cell], other: Sequence[Cell] | None = None) -> bytes:
        """Return the columns with their values, without those whose value is the same in `other`."""
        chosen = (
            (c, cells[self._places[c.id]]) for c in columns if other is None or cells[self._places[c.id]] != other[self._places[c.id]]
        )
        return b"[{" + b",".join(string(c.name.encode()) + b":" + value_text(c, cell) for c, cell in chosen) + b"}]"

    def _sql_types(self, columns: Sequence[ColumnInfo], cells: Sequence[Cell]) -> bytes:
        pairs = [string(c.name.encode()) + b":%d" % sql_type(c, cells[self._places[c.id]]) for c in columns]
        return b"{" + b",".join(pairs) + b"}" if pairs else b"null"

    def tail(self, commit_ts: int, large: Large | None = None, location: str = "") -> bytes:
        """Return the text after the data, with the TiDB extension if it is on."""
        if not self.options.enable_tidb_extension:
            return b"}"
        only = b',"onlyHandleKey":true' if large is Large.HANDLE_KEY_ONLY else b""
        claim = b',"claimCheckLocation":' + string(location.encode()) if large is Large.CLAIM_CHECK else b""
        return b',"_tidb":{"commitTs":%d%s%s}}' % (commit_ts, only, claim)

    def row(
        self,
        key: bytes,
        value: bytes | None,
        old_value: bytes | None,
        commit_ts: int,
        now_ms: int,
        large: Large | None = None,
        location: str = "",
    ) -> bytes:
        """Encode the message of a change. An empty image counts as none. `large` and the claim check's `location` make the replacement of a
        message that is too large. Raises MalformedRow naming table, key and commit_ts."""
        try:
            cut = not value and self.options.delete_only_handle_key_columns  # then no other column of the row is decoded
            read = partial(self.reader.read_only, self.info.handle_key_ids) if cut else self.reader.read
            after = read(key, value) if value else None
            before = read(key, old_value) if old_value else None
            if after is None and before is None:
                raise MalformedRow("neither a new nor an old value")
        except TidemillError as error:
            place = f"table {self.schema}.{self.table}, key {key.hex()}, commit_ts {commit_ts}"
            raise MalformedRow(f"{place}: {error.message}", hint=error.hint) from error
        kind = MessageType.DELETE if after is None else MessageType.INSERT if before is None else MessageType.UPDATE
        shown = after if after is not None else before
        assert shown is not None
        columns = self.listed(kind, large)
        old = b"null"
        if kind is MessageType.UPDATE and before is not None:
            old = self._image(columns, before, after if self.only_updated else None)
        return b'%s%s","es":%d,"ts":%d,"sql":"","sqlType":%s,"mysqlType":%s,"old":%s,"data":%s%s' % (
            self.head, kind.value.encode(), commit_ts >> PHYSICAL_SHIFT, now_ms, self._sql_types(columns, shown),
            self.types_text(columns), old, self._image(columns, shown), self.tail(commit_ts, large, location),
        )  # fmt: skip


def ddl_message(event: DdlEvent, now_ms: int, *, extension: bool) -> bytes:
    """Return the value of a DDL's message. Its table is empty for a DDL of a schema."""
    tail = b',"_tidb":{"commitTs":%d}' % event.ts if extension else b""
    return (
        b'{"id":0,"database":%s,"table":%s,"pkNames":null,"isDdl":true,"type":"%s","es":%d,"ts":%d,"sql":%s,'
        b'"sqlType":null,"mysqlType":null,"data":null,"old":null%s}'
    ) % (
        json_string(event.schema.encode()), json_string(event.table.encode()), ddl_kind(event.type).value.encode(),
        event.ts >> PHYSICAL_SHIFT, now_ms, json_string(event.query.encode()), tail,
    )  # fmt: skip


def watermark_message(ts: int, now_ms: int) -> bytes:
    """Return the value of a watermark message: nothing at or below ts will follow. It is sent only with the TiDB extension."""
    return (
        b'{"id":0,"database":"","table":"","pkNames":null,"isDdl":false,"type":"TIDB_WATERMARK","es":%d,"ts":%d,"sql":"",'
        b'"sqlType":null,"mysqlType":null,"data":null,"old":null,"_tidb":{"watermarkTs":%d}}'
    ) % (ts >> PHYSICAL_SHIFT, now_ms, ts)
