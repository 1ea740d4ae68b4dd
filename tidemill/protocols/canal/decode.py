"""Kafka messages of protocol canal → events: of TiCDC, of Tidemill, and of Canal's own server. Bytes in, objects out.

Values are typed by `mysqlType`, so a message describes itself; a type without a name here passes as text. ENUM and
SET are numbers, or the texts of their elements where `sqlType` is CHAR.
"""

from __future__ import annotations

from tidemill.protocols.canal.codes import EntryType, EventType
from tidemill.protocols.canal.events import (
    Column,
    DdlMessage,
    Entry,
    EntryColumn,
    Event,
    OtherEntry,
    RowChange,
    RowData,
    RowEvent,
    RowKind,
    TransactionMark,
)
from tidemill.protocols.canal.packets import Messages, parse_packet
from tidemill.protocols.canal.parse import EntryError, parse_entry, text
from tidemill.protocols.canal_json.codes import JavaType
from tidemill.protocols.common.mysqlvalues import MEMBERS, TEXTS, base_type, parse_value

_KINDS = {EventType.INSERT: RowKind.INSERT, EventType.UPDATE: RowKind.UPDATE, EventType.DELETE: RowKind.DELETE}
_MOST_DIGITS = 20


def decode(value: bytes) -> list[Event]:
    """The events of a message: a packet with any number of entries. Raises MalformedMessage."""
    body = parse_packet(value)
    if not isinstance(body, Messages):
        raise EntryError("packet", f"expected MESSAGES, found {type(body).__name__}")
    return [event for data in body.entries for event in events_of(parse_entry(data))]


def events_of(entry: Entry) -> list[Event]:
    """The events of an entry: one for each of its rows. Raises EntryError."""
    header, change = entry.header, entry.change
    if entry.transaction is not None:
        return [TransactionMark(header.execute_time, entry.type is EntryType.TRANSACTIONBEGIN, entry.transaction.transaction_id)]
    if change is None:
        return [OtherEntry(header.execute_time, entry.type.name, header.gtid)]
    if change.ddl:
        kind = _word(change.event_type)
        return [DdlMessage(header.execute_time, _ts(entry, "commit_ts"), header.schema, header.table, change.sql, kind)]
    if not change.rows and change.sql:
        return [OtherEntry(header.execute_time, _word(change.event_type), change.sql)]
    if change.event_type not in _KINDS:
        raise EntryError("eventType", f"expected INSERT, UPDATE or DELETE for rows, found {change.event_type}")
    return [_row(entry, change, row) for row in change.rows]


def _word(event_type: int) -> str:
    return EventType(event_type).name if event_type in EventType._value2member_map_ else str(event_type)


def _ts(entry: Entry, name: str) -> int | None:
    """A ts of the header's properties."""
    found = entry.header.prop(name)
    if found is None:
        return None
    if not (found.isascii() and found.isdigit() and len(found) <= _MOST_DIGITS and int(found) < 1 << 63):
        raise EntryError(f"header.props.{name}", f"{found[:60]!r} is not a ts")
    return int(found)


def _row(entry: Entry, change: RowChange, row: RowData) -> RowEvent:
    return RowEvent(
        es=entry.header.execute_time,
        commit_ts=_ts(entry, "commit_ts"),
        start_ts=_ts(entry, "start_ts"),
        schema=entry.header.schema,
        table=entry.header.table,
        kind=_KINDS[EventType(change.event_type)],
        after=tuple(_column("afterColumns", c) for c in row.after),
        before=tuple(_column("beforeColumns", c) for c in row.before),
    )


def _column(image: str, column: EntryColumn) -> Column:
    name, mysql_type, value = column.name, column.mysql_type, column.value
    kind = base_type(mysql_type)
    if value is None or kind in TEXTS or (kind in MEMBERS and column.sql_type == JavaType.CHAR):
        return Column(name, mysql_type, column.sql_type, column.key, column.updated, value)
    place = f"{image}.{name}"
    try:
        typed = parse_value(kind, text(value, place), _latin)
    except ValueError as error:
        raise EntryError(place, f"{error} (its type is {mysql_type})") from None
    return Column(name, mysql_type, column.sql_type, column.key, column.updated, typed)


def _latin(value: str) -> bytes:
    """Bytes of a binary column: each is the character of its number."""
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError(f"{value[:60]!r} has a character that is not a byte") from None
