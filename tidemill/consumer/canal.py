"""Converts Canal-JSON's events to Open Protocol's, so that the consumer handles one kind. Pure.

Canal-JSON has no row id and no partition, and marks only the primary key as a key. These are missing in the result too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from tidemill import tso
from tidemill.errors import MalformedMessage
from tidemill.protocols import canal_json
from tidemill.protocols.common.mysqlvalues import MEMBERS, TEXTS, base_type
from tidemill.protocols.open.codes import ColumnFlag, ColumnType
from tidemill.protocols.open.events import Column, DdlMessage, Event, ResolvedMessage, RowEvent, RowKind

_TYPES = {
    "tinyint": ColumnType.TINYINT, "smallint": ColumnType.SMALLINT, "mediumint": ColumnType.MEDIUMINT, "int": ColumnType.INT,
    "bigint": ColumnType.BIGINT, "year": ColumnType.YEAR, "bit": ColumnType.BIT, "enum": ColumnType.ENUM, "set": ColumnType.SET,
    "float": ColumnType.FLOAT, "double": ColumnType.DOUBLE, "decimal": ColumnType.DECIMAL, "date": ColumnType.DATE,
    "datetime": ColumnType.DATETIME, "timestamp": ColumnType.TIMESTAMP, "time": ColumnType.TIME, "json": ColumnType.JSON,
    "vector": ColumnType.VECTOR, "char": ColumnType.CHAR, "binary": ColumnType.CHAR, "varchar": ColumnType.VARCHAR,
    "varbinary": ColumnType.VARCHAR, "var_string": ColumnType.VAR_STRING, "tinytext": ColumnType.TINYTEXT, "tinyblob": ColumnType.TINYTEXT,
    "text": ColumnType.TEXT, "blob": ColumnType.TEXT, "mediumtext": ColumnType.MEDIUMTEXT, "mediumblob": ColumnType.MEDIUMTEXT,
    "longtext": ColumnType.LONGTEXT, "longblob": ColumnType.LONGTEXT,
}  # fmt: skip
_DDL_TYPE = 0  # Canal's kinds are coarser than TiDB's


def open_events(events: Iterable[canal_json.Event], *, to_show: bool = False) -> list[Event]:
    """Convert events. Raises MalformedMessage for one without the TiDB extension, because without a commit ts it has no order.

    `to_show`: then it has the ts of its milliseconds, which is enough for people."""
    return [_event(event, to_show=to_show) for event in events]


def _event(event: canal_json.Event, *, to_show: bool) -> Event:
    if isinstance(event, canal_json.WatermarkMessage):
        return ResolvedMessage(event.ts)
    if event.commit_ts is None and to_show:
        event = replace(event, commit_ts=tso.compose(event.es, 0))
    if event.commit_ts is None:
        raise MalformedMessage(
            "field _tidb: it has no commit ts, so its place among others cannot be told",
            hint="Let the changefeed set enable-tidb-extension=true.",
        )
    if isinstance(event, canal_json.DdlMessage):
        return DdlMessage(event.commit_ts, event.schema, event.table, event.query, _DDL_TYPE)
    return RowEvent(
        ts=event.commit_ts,
        schema=event.schema,
        table=event.table,
        row_id=None,
        partition=None,
        kind=event.kind,
        after=tuple(_column(c) for c in event.after),
        before=tuple(_column(c) for c in (event.whole_before if event.kind is RowKind.UPDATE else event.before)),
        only_handle_key=event.only_handle_key,
        claim_check=event.claim_check,
    )


def _column(column: canal_json.Column) -> Column:
    kind, flags = type_of(column.mysql_type)
    if column.key:
        flags = (flags | ColumnFlag.PRIMARY_KEY | ColumnFlag.HANDLE_KEY) & ~ColumnFlag.NULLABLE
    return Column(column.name, kind, flags, column.key, column.value)


@lru_cache(maxsize=4096)
def type_of(text: str) -> tuple[ColumnType | int, ColumnFlag]:
    """Return the code of a type, and the flags that its name shows."""
    name = base_type(text)
    flags = ColumnFlag.NULLABLE
    if name not in TEXTS and name not in MEMBERS:
        flags |= ColumnFlag.BINARY
    if "unsigned" in text.lower().split():
        flags |= ColumnFlag.UNSIGNED
    return _TYPES.get(name, ColumnType.VARCHAR), flags
