"""Entries as Canal's own server gives them to its clients, written plainly: the rows of a transaction → TRANSACTIONBEGIN, ROWDATA with
several rows of one table and type each, TRANSACTIONEND; and a DDL. Rules: TYPES.md.

This is what the kernel has to equal, what it hands rows back to, and where the texts of its programs come from. Every field that Canal sets
is written, also where it is zero or empty. Nothing here depends on a run: the same changes are the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING, NamedTuple

from tidemill.errors import MalformedRow, TidemillError
from tidemill.protocols.canal.codes import CHARSET, DDL_EVENTS, MYSQL, VERSION, EntryType, EventType
from tidemill.protocols.canal.values import value_text
from tidemill.protocols.canal_json.codes import JavaType
from tidemill.protocols.canal_json.encode import PHYSICAL_SHIFT, java_type, promotion
from tidemill.protocols.common.ddltypes import ddl_kind
from tidemill.protocols.common.mysqltypes import full_type
from tidemill.protocols.open.codes import ColumnFlag, DdlType
from tidemill.protocols.open.encode import column_flags
from tidemill.tidb.rows import RowReader
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.schema.typenames import attributes
from tidemill.tidb.types.jsonstyle import JsonStyle
from tidemill.tidb.types.members import enum_name, set_names
from tidemill.wire import canal_entry_pb2 as pb

if TYPE_CHECKING:
    from tidemill.tidb.rows import Cell
    from tidemill.tidb.schema.events import DdlEvent

ENTRY_ROWS = 1000
ENTRY_BYTES = 16 << 10
"""An entry has up to so many rows, and up to so many bytes of rows if it has more than one. A client asks for batches in KiB of entries."""

HOUR_MS = 3_600_000
PLACE_BITS = 22
LAST_PLACE = (1 << PLACE_BITS) - 4097
"""Of an entry in a transaction; those behind have the same. DDLs are behind all rows of their ts."""


class Position(NamedTuple):
    """Where an entry stands: `file` and `offset` sort as the entries do."""

    file: bytes
    offset: int


def position(ts: int, place: int) -> Position:
    """The position of the entry at this place in a transaction: a file an hour, in it the rest of the commit ts and the place."""
    ms = ts >> PHYSICAL_SHIFT
    rest = (ms % HOUR_MS) << PHYSICAL_SHIFT | ts & ((1 << PHYSICAL_SHIFT) - 1)
    return Position(b"tidb-bin.%08d" % (ms // HOUR_MS), rest << PLACE_BITS | place)


def position_ts(file: str, offset: int) -> int:
    """The commit ts of a position. Raises ValueError for one that is not of this form."""
    found = re.fullmatch(r"tidb-bin\.(\d{8})", file)
    if found is None or offset < 0:
        raise ValueError(f"{file[:60]!r}:{offset} is not a position of an entry")
    return (int(found[1]) * HOUR_MS << PHYSICAL_SHIFT) + (offset >> PLACE_BITS)


class Change(NamedTuple):
    """A raw change of a row: which of the writer's tables, and its bytes. An empty value is none."""

    table: int
    key: bytes
    value: bytes | None
    old_value: bytes | None


@dataclass(frozen=True, slots=True)
class Made:
    """An entry. `table` is -1 for the ends of a transaction, `rows` 0."""

    type: EntryType
    table: int
    rows: int
    data: bytes


class EntryTable:
    """One table version: turns raw changes into RowData. Compiled once for many rows."""

    def __init__(
        self, schema: str, table: str, info: TableInfo, zone: tzinfo, json: JsonStyle = JsonStyle.GO, *, member_names: bool = False
    ) -> None:
        """`member_names`: ENUM and SET are the texts of their elements."""
        self.schema, self.table, self.info = schema, table, info
        self._member_names = member_names
        self.reader = RowReader(info, zone, json=json)
        self.columns = info.output_columns
        flags = column_flags(info)
        self._primary = frozenset(c.id for c in self.columns if flags[c.id] & ColumnFlag.PRIMARY_KEY)
        shown = [c for c in info.public_columns if not c.hidden]
        self._index = {c.id: i for i, c in enumerate(shown)}

    def by_name(self, column: ColumnInfo) -> bool:
        """Whether a column's values are the texts of its elements."""
        return self._member_names and column.tp in (MySQLType.ENUM, MySQLType.SET)

    def mysql_type(self, column: ColumnInfo) -> str:
        """A column's `mysqlType`, with length."""
        return full_type(column) + attributes(column)

    def column(self, column: ColumnInfo, cell: Cell, *, updated: bool) -> pb.Column:
        """A column with its value. Raises MalformedRow for an ENUM or SET that has no such elements."""
        made = pb.Column(
            index=self._index[column.id],
            sql_type=self._sql_type(column),
            name=column.name.encode(),
            is_key=column.id in self._primary,
            updated=updated,
            is_null=cell is None,
            mysql_type=self.mysql_type(column).encode(),
        )
        text = self._text(column, cell)
        if text is not None:
            made.value = text
        return made

    def _sql_type(self, column: ColumnInfo) -> JavaType:
        if self.by_name(column):
            return JavaType.CHAR
        higher = promotion(column)
        return java_type(column) if higher is None else higher[1]

    def _text(self, column: ColumnInfo, cell: Cell) -> bytes | None:
        if column.tp == MySQLType.YEAR and cell == 0:
            return b"0000"
        if isinstance(cell, int) and self.by_name(column):
            name = enum_name if column.tp == MySQLType.ENUM else set_names
            try:
                return name(cell, column.elems).encode()
            except ValueError as error:
                raise MalformedRow(f"column {column.name}: {error}") from None
        return value_text(column, cell)

    def row(self, key: bytes, value: bytes | None, old_value: bytes | None, commit_ts: int) -> tuple[EventType, pb.RowData]:
        """The type and the images of a change. Raises MalformedRow naming table, key and commit_ts."""
        try:
            after = self.reader.read(key, value) if value else None
            before = self.reader.read(key, old_value) if old_value else None
            if after is None and before is None:
                raise MalformedRow("neither a new nor an old value")
            row = self._images(before, after)
        except TidemillError as error:
            place = f"table {self.schema}.{self.table}, key {key.hex()}, commit_ts {commit_ts}"
            raise MalformedRow(f"{place}: {error.message}", hint=error.hint) from error
        return EventType.DELETE if after is None else EventType.INSERT if before is None else EventType.UPDATE, row

    def _images(self, before: Sequence[Cell] | None, after: Sequence[Cell] | None) -> pb.RowData:
        row = pb.RowData()
        if before is not None:
            row.before_columns.extend(self.column(c, cell, updated=False) for c, cell in zip(self.columns, before, strict=True))
        if after is not None:
            others: Sequence[object] = before if before is not None else [_NOTHING] * len(after)
            row.after_columns.extend(
                self.column(c, cell, updated=cell != other) for c, cell, other in zip(self.columns, after, others, strict=True)
            )
        return row


_NOTHING = object()
"""What no cell equals: all columns of an insert are updated."""


class TransactionWriter:
    """Writes the entries of one transaction, a row after the other."""

    def __init__(self, tables: Sequence[EntryTable], server_id: int, start_ts: int, commit_ts: int) -> None:
        self._tables, self._server_id = tables, server_id
        self._start_ts, self._commit_ts = start_ts, commit_ts
        self._place = 0
        self._rows: list[bytes] = []
        self._size = 0
        self._like: tuple[int, EventType] = (-1, EventType.QUERY)
        self.entries: list[Made] = []
        self._append(EntryType.TRANSACTIONBEGIN, pb.TransactionBegin(thread_id=0).SerializeToString())

    def add(self, change: Change) -> None:
        """A row behind the others. Raises MalformedRow."""
        kind, row = self._tables[change.table].row(change.key, change.value, change.old_value, self._commit_ts)
        data = row.SerializeToString()
        size = row_size(len(data))
        full = len(self._rows) >= ENTRY_ROWS or self._size + size > ENTRY_BYTES
        if self._rows and (self._like != (change.table, kind) or full):
            self._close()
        self._like = change.table, kind
        self._rows.append(data)
        self._size += size

    def end(self) -> list[Made]:
        """All entries of the transaction."""
        if self._rows:
            self._close()
        self._append(EntryType.TRANSACTIONEND, pb.TransactionEnd(transaction_id=b"%d" % self._start_ts).SerializeToString())
        return self.entries

    def _close(self) -> None:
        number, kind = self._like
        change = pb.RowChange(table_id=self._tables[number].info.id, event_type=kind, is_ddl=False)
        change.row_datas.extend(pb.RowData.FromString(row) for row in self._rows)
        self._append(EntryType.ROWDATA, change.SerializeToString(), kind)
        self._rows, self._size = [], 0

    def _append(self, entry_type: EntryType, store_value: bytes, kind: EventType | None = None) -> None:
        number, rows = (self._like[0], len(self._rows)) if kind is not None else (-1, 0)
        names = (self._tables[number].schema, self._tables[number].table) if kind is not None else ("", "")
        head = header(self._commit_ts, min(self._place, LAST_PLACE), self._server_id, len(store_value), kind)
        head.schema_name, head.table_name = names[0].encode(), names[1].encode()
        head.props.extend(row_props(rows, self._commit_ts, self._start_ts))
        self._place += 1
        self.entries.append(Made(entry_type, number, rows, written(head, entry_type, store_value)))


def row_size(size: int) -> int:
    """Bytes of a row of so many in an entry, with its tag and length."""
    return 1 + max((size.bit_length() + 6) // 7, 1) + size


def header(ts: int, place: int, server_id: int, event_length: int, kind: EventType | None) -> pb.Header:
    """A header without names and properties. `event_length`: the bytes of what the entry stores."""
    file, offset = position(ts, place)
    made = pb.Header(
        version=VERSION,
        logfile_name=file,
        logfile_offset=offset,
        server_id=server_id,
        serveren_code=CHARSET,
        execute_time=ts >> PHYSICAL_SHIFT,
        source_type=MYSQL,
        event_length=event_length,
    )
    if kind is not None:
        made.event_type = kind
    return made


def row_props(rows: int, commit_ts: int, start_ts: int) -> list[pb.Pair]:
    """The properties of an entry of a transaction."""
    pairs = [(b"rowsCount", rows)] if rows else []
    pairs += [(b"commit_ts", commit_ts), (b"start_ts", start_ts)]
    return [pb.Pair(key=key, value=b"%d" % value) for key, value in pairs]


def written(head: pb.Header, entry_type: EntryType, store_value: bytes) -> bytes:
    """The bytes of an entry."""
    return pb.Entry(header=head, entry_type=entry_type, store_value=store_value).SerializeToString()


def transaction_entries(
    tables: Sequence[EntryTable], changes: Iterable[Change], *, server_id: int, start_ts: int, commit_ts: int
) -> list[Made]:
    """The entries of a transaction, its changes in the order in which they are to come. Raises MalformedRow."""
    writer = TransactionWriter(tables, server_id, start_ts, commit_ts)
    for change in changes:
        writer.add(change)
    return writer.end()


# DDLs

_TABLE_CHANGES = frozenset(
    {DdlType.ALTER_TTL, DdlType.REMOVE_TTL, DdlType.SHARD_ROW_ID, DdlType.EXCHANGE_PARTITION}
)  # fmt: skip
"""Changes of a table that are QUERY for Kafka, as in TiCDC."""

_NAME = r"(?:`(?:[^`]|``)+`|[^\s`.]+)"
_FIRST_ITEM = re.compile(
    rf"\s*ALTER\s+TABLE\s+{_NAME}(?:\s*\.\s*{_NAME})?\s+(ADD|DROP)\s+"
    r"(?:(?:UNIQUE|FULLTEXT|SPATIAL|VECTOR)(?:\s+(?:INDEX|KEY))?|INDEX|KEY|PRIMARY\s+KEY)\b",
    re.IGNORECASE,
)


def ddl_event_type(event: DdlEvent) -> EventType:
    """The event type of a DDL: an ALTER TABLE with several items is known by its first."""
    if event.type in _TABLE_CHANGES:
        return EventType.ALTER
    if event.type == DdlType.CREATE_TABLES:
        return EventType.CREATE
    if event.type == DdlType.MULTI_SCHEMA_CHANGE and (found := _FIRST_ITEM.match(event.query)) is not None:
        return EventType.CINDEX if found[1].upper() == "ADD" else EventType.DINDEX
    return DDL_EVENTS[ddl_kind(event.type)]


def ddl_entry(event: DdlEvent, *, server_id: int) -> bytes:
    """The entry of a DDL; it stands alone. A RENAME has the new name, a DDL of a schema no table."""
    kind = ddl_event_type(event)
    change = pb.RowChange(event_type=kind, is_ddl=True, sql=event.query.encode())
    change.ddl_schema_name = (event.pre_schema or event.schema).encode()
    store_value = change.SerializeToString()
    place = min(LAST_PLACE + 1 + event.seq, (1 << PLACE_BITS) - 1)
    head = header(event.ts, place, server_id, len(store_value), kind)
    head.schema_name = event.schema.encode()
    if event.table:
        head.table_name = event.table.encode()
    head.props.append(pb.Pair(key=b"commit_ts", value=b"%d" % event.ts))
    return written(head, EntryType.ROWDATA, store_value)
