"""Entries → flat messages, byte for byte as Canal writes them, and packets as its MQ mode sends them with flatMessage=false.

One message for each ROWDATA entry. Canal has a fault here: a column that changed in one row counts as changed in all rows behind it in the
same message, so their `old` has columns that did not change; and a row without any has no `old` at all, so that those behind it move up.
`like_canal=True` does the same. Otherwise `old` has one object for each row, with the columns that changed in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from tidemill.canal.flat.javatext import java_double, java_float
from tidemill.protocols.canal.codes import EventType
from tidemill.protocols.canal.encode import packet
from tidemill.protocols.canal.events import Entry, EntryColumn, RowChange, RowData
from tidemill.protocols.canal.packets import Messages, write_packet
from tidemill.protocols.canal.parse import EntryError, parse_entry, text
from tidemill.protocols.common.mysqlvalues import base_type

T = TypeVar("T")
Row = dict[str, str | None]

_ROWS = (EventType.INSERT, EventType.UPDATE, EventType.DELETE)
_ESCAPES = str.maketrans(
    {chr(code): f"\\u{code:04x}" for code in range(32)}
    | {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
)


@dataclass(frozen=True, slots=True)
class FlatMessage:
    """Canal's FlatMessage. None is JSON's null. `id`: of the server's batch. `es`, `ts`: milliseconds of commit and of sending."""

    id: int
    database: str
    table: str
    type: str
    es: int
    ts: int
    ddl: bool = False
    sql: str = ""
    gtid: str = ""
    data: tuple[Row, ...] | None = None
    old: tuple[Row, ...] | None = None
    pk_names: tuple[str, ...] | None = None
    sql_type: dict[str, int] | None = None
    mysql_type: dict[str, str] | None = None

    def to_json(self) -> bytes:
        """The text that Canal sends: members in the order of the alphabet, columns in that of the table."""
        members = (
            ("data", _array(self.data, _object)),
            ("database", _quoted(self.database)),
            ("es", str(self.es)),
            ("gtid", _quoted(self.gtid)),
            ("id", str(self.id)),
            ("isDdl", json.dumps(self.ddl)),
            ("mysqlType", _object(self.mysql_type)),
            ("old", _array(self.old, _object)),
            ("pkNames", _array(self.pk_names, _quoted)),
            ("sql", _quoted(self.sql)),
            ("sqlType", _object(self.sql_type)),
            ("table", _quoted(self.table)),
            ("ts", str(self.ts)),
            ("type", _quoted(self.type)),
        )
        return ("{" + ",".join(f'"{name}":{value}' for name, value in members) + "}").encode()

    def part(self, rows: Iterable[int]) -> FlatMessage:
        """The same message with these of its rows."""
        chosen = list(rows)
        data, old = self.data or (), self.old
        return replace(self, data=tuple(data[i] for i in chosen), old=None if not old else tuple(old[i] for i in chosen if i < len(old)))


def _quoted(value: str | int | None) -> str:
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPES)}"'
    return "null" if value is None else str(value)


def _object(members: Row | dict[str, str] | dict[str, int] | None) -> str:
    if members is None:
        return "null"
    return "{" + ",".join(f"{_quoted(name)}:{_quoted(value)}" for name, value in members.items()) + "}"


def _array(items: tuple[T, ...] | None, write: Callable[[T], str]) -> str:
    return "null" if items is None else "[" + ",".join(map(write, items)) + "]"


def parse_entries(entries: Iterable[bytes]) -> list[Entry]:
    """Entries of their bytes. Raises EntryError."""
    return [parse_entry(data) for data in entries]


def flat_messages(
    entries: Iterable[Entry], batch_id: int, ts: int, *, like_canal: bool = False, java_floats: bool = False
) -> list[FlatMessage]:
    """The messages of a batch. `java_floats`: floats are written as Java does, which Canal's are (Tidemill's entries have TiDB's text).

    Raises EntryError for values that are not text.
    """
    return [
        _message(entry, entry.change, batch_id, ts, like_canal=like_canal, java_floats=java_floats)
        for entry in entries
        if entry.change is not None
    ]


def _message(entry: Entry, change: RowChange, batch_id: int, ts: int, *, like_canal: bool, java_floats: bool) -> FlatMessage:
    header = entry.header
    kind = EventType(change.event_type).name if change.event_type in EventType._value2member_map_ else str(change.event_type)
    message = FlatMessage(
        batch_id, header.schema, header.table, kind, header.execute_time, ts, change.ddl, change.sql, header.gtid
    )  # fmt: skip
    if change.ddl or change.event_type not in _ROWS or not change.rows:
        return message
    shown = [row.before if change.event_type == EventType.DELETE else row.after for row in change.rows]
    columns = [column for image in shown for column in image]
    data = tuple(row for row in (_row(image, java_floats) for image in shown) if row)
    old = _old(change.rows, like_canal, java_floats) if change.event_type == EventType.UPDATE else ()
    return replace(
        message,
        data=data or None,
        old=old or None,
        pk_names=tuple(column.name for column in shown[0] if column.key) or None,
        sql_type={column.name: column.sql_type for column in columns} or None,
        mysql_type={column.name: column.mysql_type for column in columns} or None,
    )


def _row(columns: Iterable[EntryColumn], java_floats: bool) -> Row:
    return {column.name: _value(column, java_floats) for column in columns}


def _old(rows: Iterable[RowData], like_canal: bool, java_floats: bool) -> tuple[Row, ...]:
    found: list[Row] = []
    changed: set[str] = set()
    for row in rows:
        if not like_canal:
            changed = set()
        changed.update(column.name for column in row.after if column.updated)
        old = _row((column for column in row.before if column.name in changed), java_floats)
        if old or not like_canal:
            found.append(old)
    return tuple(found)


def _value(column: EntryColumn, java_floats: bool) -> str | None:
    if column.value is None:
        return None
    found = text(column.value, column.name)
    write = _JAVA.get(base_type(column.mysql_type)) if java_floats else None
    if write is None:
        return found
    try:
        return write(float(found))
    except (ValueError, OverflowError):
        raise EntryError(column.name, f"{found[:60]!r} is not a {column.mysql_type}") from None


_JAVA: dict[str, Callable[[float], str]] = {"float": java_float, "double": java_double}


def mq_packet(entries: Iterable[bytes], batch_id: int | None = None) -> bytes:
    """The Kafka value of entries with flatMessage=false. With a batch's id it is what a client would get; without one (partitions, dynamic
    topics, `memory.rawEntry=false`) it has a version instead."""
    found = tuple(entries)
    return packet(found) if batch_id is None else write_packet(Messages(batch_id, found))
