"""The reference encoder of Debezium's Avro: row cells → keys and values of messages. Rules: TYPES.md.

The kernel writes the same bytes, hands rows back to this code, and takes the constants of its programs from it. The fields of a value are
those of the envelope in `schema.py`, in its order. `ts_ms` behind the operation is the clock's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC

from tidemill.errors import MalformedRow, TidemillError
from tidemill.protocols.avro import wire
from tidemill.protocols.debezium.encode import CONNECTOR, DEBEZIUM_VERSION, PHYSICAL_SHIFT, absent_cell, whole
from tidemill.protocols.debezium.values import connected
from tidemill.protocols.debezium_avro.schema import Field, fields_of, key_fields
from tidemill.protocols.debezium_avro.values import encoded
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.rows import Cell, RowReader
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.jsonstyle import JsonStyle

NULL, VALUE = b"\x00", b"\x02"
"""The branches of a union that begins with null."""

INSERT, UPDATE, DELETE = (wire.sized(op) for op in (b"c", b"u", b"d"))


def _string(text: str) -> bytes:
    return wire.sized(text.encode("utf-8", "surrogateescape"))


class Source:
    """The bytes of `source` about one table: those before `ts_ms`, and those between it and `commit_ts`. `start_ts` may follow it."""

    def __init__(self, cluster: str, schema: str, table: str) -> None:
        self.head = _string(DEBEZIUM_VERSION) + _string(CONNECTOR) + _string(cluster)
        snapshot = b"\x00" + _string("false")  # the first branch of its union
        server_id = pos = row = wire.varint(0)
        gtid = thread = query = sequence = NULL
        place = server_id + gtid + _string("") + pos + row
        self.middle = snapshot + _string(schema) + sequence + VALUE + _string(table) + place + thread + query

    def at(self, commit_ts: int, start_ts: int | None) -> bytes:
        """Return the record. `start_ts` None: it has no such field."""
        times = wire.varint(commit_ts) + (b"" if start_ts is None else wire.varint(start_ts))
        return self.head + wire.varint(commit_ts >> PHYSICAL_SHIFT) + self.middle + times


def encode_cell(field: Field, cell: Cell) -> bytes:
    """Encode a field of a row: the branch of its union, and the value. Raises MalformedRow."""
    value = None if cell is None else connected(field.column, cell)
    if value is None:
        if field.null_branch is None:
            raise MalformedRow(f"column {field.column.name} is NOT NULL, but NULL in this row")
        return wire.varint(field.null_branch)
    branch = b"" if field.null_branch is None else wire.varint(1 - field.null_branch)
    return branch + encoded(field.column, field.kind.type, value)


class DebeziumAvroTable:
    """One table version: turns raw changes into messages. `schema_ids`: those of its key's and value's schemas in the registry."""

    def __init__(
        self,
        schema: str,
        table: str,
        info: TableInfo,
        options: EncodingOptions,
        schema_ids: tuple[int, int],
        json: JsonStyle = JsonStyle.GO,
    ) -> None:
        self.schema, self.table, self.info, self.options, self.schema_ids = schema, table, info, options, schema_ids
        self.fields = fields_of(info, options)
        self.key_fields = key_fields(info, self.fields)
        self.source = Source(options.debezium.cluster_id, schema, table)
        self._json = json
        self._places = {field.column.id: i for i, field in enumerate(self.fields)}
        self._reader = RowReader(info, UTC, [whole(field.column) for field in self.fields], json)

    def absent_cell(self, column: ColumnInfo) -> Cell:
        """Return the cell of a column in a row that is older than the column. Raises MalformedRow."""
        return absent_cell(column, self._json)

    def row(
        self, key: bytes, value: bytes | None, old_value: bytes | None, start_ts: int, commit_ts: int, now_ms: int
    ) -> tuple[bytes | None, bytes]:  # fmt: skip
        """Encode key and value of the message of a change. An empty image counts as none.

        Raises MalformedRow naming table, key and commit_ts.
        """
        try:
            if not value and not old_value:
                raise MalformedRow("neither a new nor an old value")
            after = self._reader.read(key, value) if value else None
            needed = after is None or self.options.debezium.output_old_value
            before = self._reader.read(key, old_value) if old_value and needed else None
            images = self._image(before) + self._image(after)
            message_key = self._key(after if after is not None else before or ())
        except TidemillError as error:
            place = f"table {self.schema}.{self.table}, key {key.hex()}, commit_ts {commit_ts}"
            raise MalformedRow(f"{place}: {error.message}", hint=error.hint) from error
        operation = DELETE if after is None else UPDATE if old_value else INSERT
        source = self.source.at(commit_ts, start_ts if self.options.debezium.include_start_ts else None)
        return message_key, wire.head(self.schema_ids[1]) + images + source + operation + VALUE + wire.varint(now_ms) + NULL

    def _key(self, cells: Sequence[Cell]) -> bytes | None:
        if not self.key_fields:
            return None
        return wire.head(self.schema_ids[0]) + b"".join(encode_cell(f, cells[self._places[f.column.id]]) for f in self.key_fields)

    def _image(self, cells: Sequence[Cell] | None) -> bytes:
        if cells is None:
            return NULL
        return VALUE + b"".join(encode_cell(field, cell) for field, cell in zip(self.fields, cells, strict=True))
