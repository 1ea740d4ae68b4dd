"""TiCDC's protocol canal, written plainly: row cells → entries, entries → packets. Rules: TYPES.md.

This is what the kernel has to equal, what it hands rows back to, and where the texts of its programs come from. Bytes are those of TiCDC:
what is zero or empty is left out, but for `isDdl` and `isNull`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING

from tidemill.errors import MalformedRow, TidemillError
from tidemill.protocols.canal.codes import CHARSET, DDL_EVENTS, MYSQL, VERSION, EntryType, EventType, PacketType
from tidemill.protocols.canal.values import value_text
from tidemill.protocols.canal_json.encode import PHYSICAL_SHIFT, sql_type
from tidemill.protocols.common.ddltypes import ddl_kind
from tidemill.protocols.open.codes import ColumnFlag
from tidemill.protocols.open.encode import column_flags
from tidemill.protocols.options import EncodingOptions
from tidemill.records import RECORD_OVERHEAD
from tidemill.tidb.rows import RowReader
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.schema.typenames import attributes, type_name
from tidemill.tidb.types.jsonstyle import JsonStyle
from tidemill.wire import canal_entry_pb2 as pb
from tidemill.wire import canal_packet_pb2 as packets

if TYPE_CHECKING:
    from tidemill.tidb.rows import Cell
    from tidemill.tidb.schema.events import DdlEvent

MAX_ROWS = 2048
"""Rows of a packet, as TiCDC hands them to its encoder."""

PACKET_ROOM = 16
"""What a packet counts as besides its entries: version, type, tag and length of the body, at their longest."""


def item_size(entry: int) -> int:
    """Bytes that an entry of so many takes in a packet: with its tag and length."""
    return 1 + max((entry.bit_length() + 6) // 7, 1) + entry


def packet(entries: Sequence[bytes]) -> bytes:
    """The message of these entries."""
    body = packets.Messages(messages=entries).SerializeToString()
    return packets.Packet(version=VERSION, type=PacketType.MESSAGES, body=body).SerializeToString()


def packets_of(entries: Iterable[bytes], limit: int) -> list[tuple[bytes, int]]:
    """Messages of entries of rows, with their number of rows: each has up to 2048, and up to `limit` bytes if it has more than one."""
    groups: list[list[bytes]] = []
    size = 0
    for entry in entries:
        size += item_size(len(entry))
        if not groups or len(groups[-1]) >= MAX_ROWS or size > limit:
            groups.append([])
            size = RECORD_OVERHEAD + PACKET_ROOM + item_size(len(entry))
        groups[-1].append(entry)
    return [(packet(group), len(group)) for group in groups]


def header(event: EventType, commit_ts: int, schema: str, table: str) -> pb.Header:
    """The header of an entry, as TiCDC fills it."""
    made = pb.Header(version=VERSION, serveren_code=CHARSET, source_type=MYSQL, event_type=event)
    if commit_ts >> PHYSICAL_SHIFT:
        made.execute_time = commit_ts >> PHYSICAL_SHIFT
    if schema:
        made.schema_name = schema.encode()
    if table:
        made.table_name = table.encode()
    return made


class CanalTable:
    """One table version: turns raw changes into entries. Compiled once for many rows."""

    def __init__(
        self, schema: str, table: str, info: TableInfo, zone: tzinfo, options: EncodingOptions, json: JsonStyle = JsonStyle.GO
    ) -> None:
        self.schema, self.table, self.info, self.options = schema, table, info, options
        self.reader = RowReader(info, zone, json=json)
        self.columns = info.output_columns
        handle = frozenset(info.handle_key_ids)
        self.handle_columns = tuple(c for c in self.columns if c.id in handle)
        flags = column_flags(info)
        self._primary = frozenset(c.id for c in self.columns if flags[c.id] & ColumnFlag.PRIMARY_KEY)
        self._places = {c.id: i for i, c in enumerate(self.columns)}

    def listed(self, event: EventType) -> Sequence[ColumnInfo]:
        """The columns of an event: those of the handle key for deletes, if so configured."""
        cut = event is EventType.DELETE and self.options.delete_only_handle_key_columns
        return self.handle_columns if cut else self.columns

    def is_key(self, column: ColumnInfo) -> bool:
        """Whether a column is of the primary key."""
        return column.id in self._primary

    def column(self, column: ColumnInfo, cell: Cell, *, updated: bool) -> pb.Column:
        """A column with its value."""
        made = pb.Column(sql_type=sql_type(column, cell), name=column.name.encode(), is_null=cell is None)
        made.mysql_type = (type_name(column) + attributes(column)).encode()
        if self.is_key(column):
            made.is_key = True
        if updated:
            made.updated = True
        text = value_text(column, cell)
        if text:
            made.value = text
        return made

    def row(self, key: bytes, value: bytes | None, old_value: bytes | None, commit_ts: int) -> bytes:
        """The entry of a change. An empty value is none. Raises MalformedRow naming table, key and commit_ts."""
        try:
            cut = not value and self.options.delete_only_handle_key_columns  # then nothing else of the row is looked at
            read = partial(self.reader.read_only, self.info.handle_key_ids) if cut else self.reader.read
            after = read(key, value) if value else None
            before = read(key, old_value) if old_value else None
            if after is None and before is None:
                raise MalformedRow("neither a new nor an old value")
        except TidemillError as error:
            place = f"table {self.schema}.{self.table}, key {key.hex()}, commit_ts {commit_ts}"
            raise MalformedRow(f"{place}: {error.message}", hint=error.hint) from error
        event = EventType.DELETE if after is None else EventType.INSERT if before is None else EventType.UPDATE
        columns = self.listed(event)
        row = pb.RowData()
        for cells, images in ((before, row.before_columns), (after, row.after_columns)):
            if cells is not None:
                updated = event is not EventType.DELETE
                images.extend(self.column(c, cells[self._places[c.id]], updated=updated) for c in columns)
        head = header(event, commit_ts, self.schema, self.table)
        head.props.append(pb.Pair(key=b"rowsCount", value=b"1"))
        change = pb.RowChange(event_type=event, is_ddl=False, row_datas=[row])
        return _entry(head, change)


def ddl_entry(event: DdlEvent) -> bytes:
    """The entry of a DDL. That of a schema has no table."""
    kind = DDL_EVENTS[ddl_kind(event.type)]
    change = pb.RowChange(event_type=kind, is_ddl=True)
    if event.query:
        change.sql = event.query.encode()
    if event.schema:
        change.ddl_schema_name = event.schema.encode()
    return _entry(header(kind, event.ts, event.schema, event.table), change)


def _entry(head: pb.Header, change: pb.RowChange) -> bytes:
    return pb.Entry(header=head, entry_type=EntryType.ROWDATA, store_value=change.SerializeToString()).SerializeToString()
