"""Converts Debezium's events to Open Protocol's, to show them. Pure.

They are not written back into tables: a DECIMAL is a double, and NULL may have become the column's default.
"""

from __future__ import annotations

from tidemill.protocols.debezium import events as debezium
from tidemill.protocols.open.codes import ColumnFlag, ColumnType
from tidemill.protocols.open.events import Column, DdlMessage, Event, ResolvedMessage, RowEvent

_MEANINGS = {
    "io.debezium.time.Date": ColumnType.DATE, "io.debezium.time.Timestamp": ColumnType.DATETIME,
    "io.debezium.time.MicroTimestamp": ColumnType.DATETIME, "io.debezium.time.ZonedTimestamp": ColumnType.TIMESTAMP,
    "io.debezium.time.MicroTime": ColumnType.TIME, "io.debezium.data.Json": ColumnType.JSON,
    "io.debezium.data.TiDBVectorFloat32": ColumnType.VECTOR,
}  # fmt: skip
_DDL_TYPE = 0  # messages do not have TiDB's


def open_event(event: debezium.Event) -> Event:
    """Convert an event. Text without a known meaning is a VARCHAR, numbers are what JSON says."""
    match event:
        case debezium.Watermark():
            return ResolvedMessage(event.ts)
        case debezium.DdlMessage():
            return DdlMessage(event.commit_ts, event.schema, event.table, event.query, _DDL_TYPE)
        case debezium.RowEvent():
            after, before = (tuple(map(_column, image)) for image in (event.after, event.before))
            return RowEvent(event.commit_ts, event.schema, event.table, None, None, event.kind, after, before, False, None)


def _column(column: debezium.Column) -> Column:
    kind = _MEANINGS.get(column.meaning, ColumnType.VARCHAR)
    flags = ColumnFlag.HANDLE_KEY if column.key else ColumnFlag.NULLABLE
    if isinstance(column.value, bytes):
        flags |= ColumnFlag.BINARY
    return Column(column.name, kind, flags, column.key, column.value)
