"""Messages of the simple protocol (JSON) → events.

Row messages do not hold the types of their columns. `SimpleDecoder` remembers the descriptions in bootstrap and DDL messages, and types
rows by them. `decode` reads one message, with or without a description.
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from tidemill.budget import Budget
from tidemill.protocols.common.jsonmessage import JsonMessage, shown
from tidemill.protocols.common.mysqlvalues import Value, parse_value
from tidemill.protocols.open.decode import Fault
from tidemill.protocols.simple.encode import VERSION
from tidemill.protocols.simple.events import (
    Bootstrap,
    ColumnSchema,
    DdlMessage,
    Event,
    IndexSchema,
    RowEvent,
    RowKind,
    TableSchema,
    Watermark,
)

_KINDS = {"INSERT": RowKind.INSERT, "UPDATE": RowKind.UPDATE, "DELETE": RowKind.DELETE}
_KEPT_SCHEMAS = 10_000


class SimpleDecoder:
    """Decodes a partition's messages in order. Keeps the newest 10,000 descriptions."""

    def __init__(self) -> None:
        self._schemas: OrderedDict[tuple[str, str, int], TableSchema] = OrderedDict()

    def decode(self, value: bytes, *, budget: Budget | None = None) -> Event:
        """Decode a message. Raises JsonMessageError. A row is not typed if its table's description has not come yet."""
        message = JsonMessage(value, budget)
        event = _event(message, self._schemas.get(_row_schema(message)))
        if isinstance(event, Bootstrap):
            self._learn(event.table)
        elif isinstance(event, DdlMessage):
            self._learn(event.table_before)
            self._learn(event.table)
        return event

    def _learn(self, table: TableSchema | None) -> None:
        if table is None:
            return
        key = table.schema, table.table, table.version
        self._schemas[key] = table
        self._schemas.move_to_end(key)
        while len(self._schemas) > _KEPT_SCHEMAS:
            self._schemas.popitem(last=False)


def decode(value: bytes, schema: TableSchema | None = None, *, budget: Budget | None = None) -> Event:
    """Decode a message. `schema` types a row's values. Raises JsonMessageError.

    `budget`: what the message may take (None: MESSAGE).
    """
    return _event(JsonMessage(value, budget), schema)


def _row_schema(message: JsonMessage) -> tuple[str, str, int]:
    members = message.members
    schema, table, version = members.get("database"), members.get("table"), members.get("schemaVersion")
    named = isinstance(schema, str) and isinstance(table, str) and isinstance(version, int)
    return (schema, table, version) if named else ("", "", 0)  # type: ignore[return-value]


def _event(message: JsonMessage, schema: TableSchema | None) -> Event:
    if (version := message.integer("version")) != VERSION:
        message.fail("version", f"it is {version}, expected {VERSION}", Fault.READER)
    kind, commit_ts = message.text("type"), message.integer("commitTs")
    if kind == "WATERMARK":
        return Watermark(commit_ts)
    if kind == "BOOTSTRAP":
        table = _table(message, "tableSchema")
        if table is None:
            message.fail("tableSchema", "it is missing")
        return Bootstrap(table)
    if kind in _KINDS and "sql" not in message.members:
        return _row(message, _KINDS[kind], commit_ts, schema)
    return DdlMessage(commit_ts, kind, message.text("sql"), _table(message, "tableSchema"), _table(message, "preTableSchema"))


def _row(message: JsonMessage, kind: RowKind, commit_ts: int, schema: TableSchema | None) -> RowEvent:
    columns = {column.name: column for column in schema.columns} if schema is not None else {}
    zones: set[str] = set()
    after, before = (_image(message, name, columns, zones) for name in ("data", "old"))
    return RowEvent(
        commit_ts,
        message.text("database"),
        message.text("table"),
        message.integer("tableID"),
        message.integer("schemaVersion", default=0),
        kind,
        after,
        before,
        schema is not None,
        next(iter(zones), None),
        message.flag("handleKeyOnly"),
        message.text("claimCheckLocation") if "claimCheckLocation" in message.members else None,
    )


def _image(message: JsonMessage, name: str, columns: Mapping[str, ColumnSchema], zones: set[str]) -> Mapping[str, Value]:
    values: dict[str, Value] = {}
    for column, value in message.mapping(name).items():
        text = value
        if isinstance(value, dict):  # a TIMESTAMP
            zones.add(message.text("location", value, path=f"{name}.{column}."))
            text = message.text("value", value, path=f"{name}.{column}.")
        if text is not None and not isinstance(text, str):
            message.fail(f"{name}.{column}", f"expected a string, an object or null, found {shown(value)}")
        values[column] = text if text is None or column not in columns else _typed(message, f"{name}.{column}", columns[column], text)
    return values


def _typed(message: JsonMessage, field: str, column: ColumnSchema, text: str) -> Value:
    try:
        return parse_value(column.mysql_type, text, _base64)
    except ValueError as error:
        message.fail(field, f"{error} (its type is {column.mysql_type})")


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"expected base64, found {shown(text)}") from None


def _table(message: JsonMessage, name: str) -> TableSchema | None:
    members = message.mapping(name)
    if not members:
        return None
    path = f"{name}."
    return TableSchema(
        message.text("schema", members, path=path),
        message.text("table", members, path=path),
        message.integer("tableID", members, path=path),
        message.integer("version", members, path=path),
        tuple(_column(message, path + "columns.", one) for one in _objects(message, members, "columns", path)),
        tuple(_index(message, path + "indexes.", one) for one in _objects(message, members, "indexes", path)),
    )


def _objects(message: JsonMessage, members: Mapping[str, Any], name: str, path: str) -> list[Mapping[str, Any]]:
    found = members.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        message.fail(path + name, f"expected a list of objects, found {shown(found)}")
    return found


def _names(message: JsonMessage, members: Mapping[str, Any], name: str, path: str) -> tuple[str, ...]:
    found = members.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        message.fail(path + name, f"expected a list of strings, found {shown(found)}")
    return tuple(found)


def _column(message: JsonMessage, path: str, members: Mapping[str, Any]) -> ColumnSchema:
    kind = message.mapping("dataType", members, path=path)
    inner = path + "dataType."
    return ColumnSchema(
        message.text("name", members, path=path),
        message.text("mysqlType", kind, path=inner),
        message.text("charset", kind, default="", path=inner),
        message.flag("nullable", members, path=path),
        members.get("default"),
        message.integer("length", kind, default=0, path=inner),
        message.integer("decimal", kind, default=0, path=inner),
        _names(message, kind, "elements", inner),
        message.flag("unsigned", kind, path=inner),
        message.flag("zerofill", kind, path=inner),
    )


def _index(message: JsonMessage, path: str, members: Mapping[str, Any]) -> IndexSchema:
    return IndexSchema(
        message.text("name", members, path=path),
        message.flag("unique", members, path=path),
        message.flag("primary", members, path=path),
        message.flag("nullable", members, path=path),
        _names(message, members, "columns", path),
    )
