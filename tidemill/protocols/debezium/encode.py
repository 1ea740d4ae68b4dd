"""The reference encoder of Debezium's JSON: row cells → keys and values of messages; watermark messages. Rules: TYPES.md.

The kernel writes the same bytes, hands rows back to this code, and takes the constants of its programs from it. `payload.ts_ms` is the
clock's. The bytes are those of TiCDC's new architecture (v8.5.4 and newer); TYPES.md says where they differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC

from tidemill.errors import MalformedRow, TidemillError
from tidemill.protocols.debezium.blocks import OPERATION_SCHEMA, TRANSACTION_SCHEMA, source_schema
from tidemill.protocols.debezium.fields import fields
from tidemill.protocols.debezium.names import record_name, sanitized
from tidemill.protocols.debezium.text import compact, text
from tidemill.protocols.debezium.values import value_text
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.rows import RowReader
from tidemill.tidb.rows.cells import Cell, cell
from tidemill.tidb.rows.defaults import missing_plain
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.jsonstyle import JsonStyle
from tidemill.tidb.types.times import MAX_FSP

DEBEZIUM_VERSION = "2.4.0.Final"
CONNECTOR = "TiCDC"
PHYSICAL_SHIFT = 18
"""The bits of a ts below its milliseconds since 1970."""


class Source:
    """`source` of messages about one table, cut where the times stand: head, ts_ms, middle, commit ts, start ts if wanted, tail, ts_ms."""

    def __init__(self, cluster: str, schema: str, table: str) -> None:
        self.head = b'{"version":%s,"connector":%s,"name":%s,"ts_ms":' % (text(DEBEZIUM_VERSION), text(CONNECTOR), text(cluster))
        self.middle = (
            b',"snapshot":"false","db":%s,"table":%s,"server_id":0,"gtid":null,"file":"","pos":0,"row":0,"thread":0,"query":null,"commit_ts":'
        ) % (text(schema), text(table))
        self.start = b',"start_ts":'
        self.tail = b',"cluster_id":%s},"ts_ms":' % text(cluster)

    def at(self, commit_ts: int, now_ms: int, start_ts: int | None = None) -> bytes:
        """Return `source` and the `ts_ms` that follows it. `start_ts` None: it is left out."""
        start = b"" if start_ts is None else self.start + b"%d" % start_ts
        return b"%s%d%s%d%s%s%d" % (self.head, commit_ts >> PHYSICAL_SHIFT, self.middle, commit_ts, start, self.tail, now_ms)


def whole(column: ColumnInfo) -> ColumnInfo:
    """Return a column whose times are read with all digits: they become numbers."""
    return replace(column, decimal=MAX_FSP) if column.tp in (MySQLType.DATETIME, MySQLType.DURATION) else column


def absent_cell(column: ColumnInfo, json: JsonStyle) -> Cell:
    """Return the cell of a column in a row that is older than the column. Raises MalformedRow."""
    read = whole(column)
    plain = missing_plain(read)
    return None if plain is None else cell(read, plain, UTC, json)


class DebeziumTable:
    """One table version: turns raw changes into keys and values of messages. Compiled once for many rows.

    `key_schema` and `value_schema` are what follows the payload, up to the end of the message.
    """

    def __init__(self, schema: str, table: str, info: TableInfo, options: EncodingOptions, json: JsonStyle = JsonStyle.GO) -> None:
        self.schema, self.table, self.info, self.options = schema, table, info, options
        self._json = json
        self.reader = RowReader(info, UTC, [whole(column) for column in info.output_columns], json)
        self.columns = info.output_columns
        handle = frozenset(info.handle_key_ids)
        self.handle_columns = tuple(c for c in self.columns if c.id in handle)
        self._places = {c.id: i for i, c in enumerate(self.columns)}
        cluster = options.debezium.cluster_id
        self.source = Source(cluster, schema, table)
        self.key_schema = self.value_schema = b"}}"
        if not options.debezium.disable_schema:
            name = record_name(cluster, schema, table)
            self.key_schema = b'},"schema":' + self._key_schema(name) + b"}"
            self.value_schema = b'},"schema":' + self._envelope(name) + b"}"

    def _key_schema(self, name: str) -> bytes:
        head = compact({"type": "struct", "name": f"{name}.Key", "optional": False})[:-1]
        return head + b',"fields":[' + fields(self.handle_columns, extension=self.options.enable_tidb_extension) + b"]}"

    def _envelope(self, name: str) -> bytes:
        virtual = [c for c in self.info.public_columns if c.is_virtual and not c.hidden]
        columns = fields((*self.columns, *virtual), extension=self.options.enable_tidb_extension)
        images = [
            compact({"type": "struct", "optional": True, "name": f"{name}.Value", "field": image})[:-1] + b',"fields":[' + columns + b"]}"
            for image in ("before", "after")
        ]
        source = source_schema(start_ts=self.options.debezium.include_start_ts)
        head = compact({"type": "struct", "optional": False, "name": f"{name}.Envelope", "version": 1})[:-1]
        return head + b',"fields":[' + b",".join((*images, source, OPERATION_SCHEMA, TRANSACTION_SCHEMA)) + b"]}"

    def absent_cell(self, column: ColumnInfo) -> Cell:
        """See `absent_cell`."""
        return absent_cell(column, self._json)

    def image(self, columns: Sequence[ColumnInfo], cells: Sequence[Cell]) -> bytes:
        """Return the columns of an image in table order, as the inside of an object."""
        return b",".join(text(c.name) + b":" + value_text(c, cells[self._places[c.id]]) for c in columns)

    def row(
        self, key: bytes, value: bytes | None, old_value: bytes | None, start_ts: int, commit_ts: int, now_ms: int
    ) -> tuple[bytes, bytes]:  # fmt: skip
        """Encode key and value of the message of a change. An empty image counts as none.

        Raises MalformedRow naming table, key and commit_ts.
        """
        try:
            if not value and not old_value:
                raise MalformedRow("neither a new nor an old value")
            after = self.reader.read(key, value) if value else None
            needed = after is None or self.options.debezium.output_old_value
            before = self.reader.read(key, old_value) if old_value and needed else None
            shown = after if after is not None else before
            assert shown is not None
            handle = self.image(self.handle_columns, shown)
            change = self._change(before, after, update=bool(value and old_value))
        except TidemillError as error:
            place = f"table {self.schema}.{self.table}, key {key.hex()}, commit_ts {commit_ts}"
            raise MalformedRow(f"{place}: {error.message}", hint=error.hint) from error
        start = start_ts if self.options.debezium.include_start_ts else None
        source = b'{"payload":{"source":' + self.source.at(commit_ts, now_ms, start)
        return (
            b'{"payload":{' + handle + self.key_schema,
            source + b',"transaction":null,"op":' + change + self.value_schema,
        )

    def _change(self, before: Sequence[Cell] | None, after: Sequence[Cell] | None, *, update: bool) -> bytes:
        """Return the text from the operation up to the end of the last image. `before` of an update may have been left out."""
        new = b"" if after is None else b'"after":{' + self.image(self.columns, after) + b"}"
        old = b"" if before is None else b'"before":{' + self.image(self.columns, before) + b"}"
        if update:
            return b'"u",' + (old + b"," if old else b"") + new
        return b'"d","after":null,' + old if after is None else b'"c","before":null,' + new


def watermark_message(ts: int, now_ms: int, options: EncodingOptions) -> tuple[bytes, bytes]:
    """Return key and value of a watermark message: nothing at or below ts will follow. It is sent only with the TiDB extension."""
    cluster = options.debezium.cluster_id
    source = Source(cluster, "", "").at(ts, now_ms)
    key, value = b'{"payload":{}', b'{"payload":{"source":' + source + b',"transaction":null,"op":"m"}'
    if not options.debezium.disable_schema:
        name = f"{sanitized(cluster)}.watermark"
        key += b',"schema":' + compact({"type": "struct", "name": f"{name}.Key", "optional": False, "fields": []})
        head = compact({"type": "struct", "optional": False, "name": f"{name}.Envelope", "version": 1})[:-1]
        value += b',"schema":' + head + b',"fields":[' + b",".join((source_schema(), OPERATION_SCHEMA, TRANSACTION_SCHEMA)) + b"]}"
    return key + b"}", value + b"}"
