"""Bytes of an entry → `Entry`, and which fields were there. For entries of Canal, TiCDC and Tidemill."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from tidemill.errors import MalformedMessage
from tidemill.protocols.canal.codes import MYSQL, VERSION, EntryType, EventType
from tidemill.protocols.canal.events import Entry, EntryColumn, Header, Props, RowChange, RowData, Transaction
from tidemill.wire import canal_entry_pb2 as pb

_Message = TypeVar("_Message", bound=Message)


class EntryError(MalformedMessage):
    """Bytes that are not an entry: `field` says where."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        super().__init__(f"Canal entry, {field}: {problem}", hint="the fault is the sender's")


def parsed(kind: type[_Message], data: bytes, field: str) -> _Message:
    """A protobuf message of these bytes. Raises EntryError."""
    made = kind()
    try:
        made.ParseFromString(data)
    except DecodeError:
        raise EntryError(field, f"{len(data)} bytes that cannot be read as {kind.DESCRIPTOR.name}: {data[:16].hex()}…") from None
    return made


def text(data: bytes, field: str) -> str:
    """A name or a statement. Raises EntryError."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise EntryError(field, f"{data[:60]!r} is not UTF-8") from None


def parse_entry(data: bytes) -> Entry:
    """The entry of these bytes; an entry type without a number or with an unknown one is ROWDATA, as for Canal's clients.

    Raises EntryError.
    """
    return parse_content(*parse_head(data))


def parse_head(data: bytes) -> tuple[EntryType, Header, bytes]:
    """An entry's type and header, and the bytes of its content. Raises EntryError."""
    entry = parsed(pb.Entry, data, "entry")
    kind = EntryType(entry.entry_type) if entry.entry_type in EntryType._value2member_map_ else EntryType.ROWDATA
    return kind, _header(entry.header), entry.store_value


def parse_content(kind: EntryType, header: Header, store_value: bytes) -> Entry:
    """The entry of what `parse_head` gives. Raises EntryError."""
    match kind:
        case EntryType.ROWDATA:
            return Entry(kind, header, change=_change(parsed(pb.RowChange, store_value, "storeValue")))
        case EntryType.TRANSACTIONBEGIN:
            begin = parsed(pb.TransactionBegin, store_value, "storeValue")
            return Entry(kind, header, transaction=Transaction(text(begin.transaction_id, "transactionId"), begin.thread_id))
        case EntryType.TRANSACTIONEND:
            end = parsed(pb.TransactionEnd, store_value, "storeValue")
            return Entry(kind, header, transaction=Transaction(text(end.transaction_id, "transactionId")))
    return Entry(kind, header)


def _header(header: pb.Header) -> Header:
    return Header(
        logfile_name=text(header.logfile_name, "header.logfileName"),
        logfile_offset=header.logfile_offset,
        server_id=header.server_id,
        execute_time=header.execute_time,
        schema=text(header.schema_name, "header.schemaName"),
        table=text(header.table_name, "header.tableName"),
        event_length=header.event_length,
        event_type=header.event_type if header.HasField("event_type") else None,
        props=_props(header.props, "header.props"),
        gtid=text(header.gtid, "header.gtid"),
        version=header.version if header.HasField("version") else VERSION,
        charset=text(header.serveren_code, "header.serverenCode"),
        source_type=header.source_type if header.HasField("source_type") else MYSQL,
    )


def _props(pairs: Iterable[pb.Pair], field: str) -> Props:
    return tuple((text(pair.key, field), text(pair.value, field)) for pair in pairs)


def _change(change: pb.RowChange) -> RowChange:
    return RowChange(
        event_type=change.event_type if change.HasField("event_type") else EventType.UPDATE,
        ddl=change.is_ddl,
        sql=text(change.sql, "sql"),
        ddl_schema=text(change.ddl_schema_name, "ddlSchemaName"),
        rows=tuple(RowData(_image(row.before_columns), _image(row.after_columns)) for row in change.row_datas),
        table_id=change.table_id,
        props=_props(change.props, "props"),
    )


def _image(columns: Iterable[pb.Column]) -> tuple[EntryColumn, ...]:
    return tuple(
        EntryColumn(
            c.index, c.sql_type, text(c.name, "name"), c.is_key, c.updated, None if c.is_null else c.value, text(c.mysql_type, "mysqlType")
        )
        for c in columns
    )
