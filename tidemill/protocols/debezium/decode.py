"""Debezium's JSON → events. Reads messages of TiCDC and Tidemill, with schema blocks and without.

A schema block gives each value its type. Without one a value stays what JSON says.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.budget import Budget
from tidemill.protocols.common.jsonmessage import JsonMessage, shown
from tidemill.protocols.debezium.events import Column, DdlMessage, Event, RowEvent, RowKind, TableChange, Value, Watermark
from tidemill.protocols.open.decode import Fault
from tidemill.tidb.types.times import MAX_FSP, format_duration

KINDS = {"c": RowKind.INSERT, "r": RowKind.INSERT, "u": RowKind.UPDATE, "d": RowKind.DELETE}
_WATERMARK = "m"
_TIME = "io.debezium.time."
_BINARIES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_EPOCH = dt.datetime(1970, 1, 1)
_MOST_MICROSECONDS = 24 * 3600 * 1_000_000 * 3_652_059  # more than any date

_Fields = Mapping[str, Mapping[str, Any]]


def decode(key: bytes | None, value: bytes, *, budget: Budget | None = None) -> Event:
    """Decode a message. Without its key no column is marked as one of the key. Raises JsonMessageError.

    `budget`: what the message may take (None: MESSAGE).
    """
    message = JsonMessage(value, budget)
    payload = message.mapping("payload")
    source = message.mapping("source", payload, path="payload.")
    commit_ts = message.integer("commit_ts", source, path="payload.source.")
    cluster = message.text("name", source, default="", path="payload.source.")
    schema = message.text("db", source, path="payload.source.")
    table = message.text("table", source, default="", path="payload.source.")
    if "ddl" in payload:
        return DdlMessage(commit_ts, cluster, schema, table, message.text("ddl", payload, path="payload."), _changes(message, payload))
    operation = message.text("op", payload, path="payload.")
    if operation == _WATERMARK:
        return Watermark(commit_ts)
    if operation not in KINDS:
        message.fail("payload.op", f"expected c, u, d, r or m, found {shown(operation)}", Fault.READER)
    keys = _keys(key, budget)
    after, before = (_image(message, payload, name, keys) for name in ("after", "before"))
    start_ts = message.integer("start_ts", source, path="payload.source.") if "start_ts" in source else None
    return RowEvent(commit_ts, start_ts, cluster, schema, table, KINDS[operation], after, before)


def _keys(key: bytes | None, budget: Budget | None) -> frozenset[str]:
    return frozenset() if key is None else frozenset(JsonMessage(key, budget).mapping("payload"))


def _objects(message: JsonMessage, members: Mapping[str, Any], name: str, path: str) -> Sequence[Mapping[str, Any]]:
    found = members.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        message.fail(path + name, f"expected a list of objects, found {shown(found)}")
    return found


def _changes(message: JsonMessage, payload: Mapping[str, Any]) -> tuple[TableChange, ...]:
    path = "payload.tableChanges."
    return tuple(
        TableChange(
            message.text("type", change, path=path),
            message.text("id", change, path=path),
            tuple(
                message.text("name", column, path=path + "table.columns.")
                for column in _objects(message, message.mapping("table", change, path=path), "columns", path + "table.")
            ),
        )
        for change in _objects(message, payload, "tableChanges", "payload.")
    )


def _fields(message: JsonMessage, image: str) -> _Fields:
    """Return the schemas of an image's columns by name. Empty: the message has no schema block."""
    for part in _objects(message, message.mapping("schema"), "fields", "schema."):
        if part.get("field") == image:
            path = f"schema.fields.{image}."
            return {message.text("field", one, path=path): one for one in _objects(message, part, "fields", path)}
    return {}


def _image(message: JsonMessage, payload: Mapping[str, Any], name: str, keys: frozenset[str]) -> tuple[Column, ...]:
    row = message.mapping(name, payload, path="payload.")
    fields = _fields(message, name) if row else {}
    columns = []
    for column, value in row.items():
        field = fields.get(column, {})
        path = f"schema.fields.{name}.fields."
        kind = message.text("type", field, default="", path=path)
        meaning = message.text("name", field, default="", path=path)
        tidb_type = message.text("tidb_type", field, default="", path=path)
        typed = _value(message, f"payload.{name}.{column}", kind, meaning, tidb_type, value)
        columns.append(Column(column, kind, meaning, tidb_type, column in keys, typed))
    return tuple(columns)


def _value(message: JsonMessage, field: str, kind: str, meaning: str, tidb_type: str, value: object) -> Value:
    if value is not None and not isinstance(value, bool | int | float | str):
        message.fail(field, f"expected a string, a number, true, false or null, found {shown(value)}")
    if value is None or not kind:
        return value
    try:
        return _typed(kind, meaning, tidb_type, value)
    except (ValueError, OverflowError) as error:
        message.fail(field, f"{error} (its type is {meaning or kind})")


def _typed(kind: str, meaning: str, tidb_type: str, value: bool | int | float | str) -> Value:
    """Return a value by its schema. Raises ValueError, OverflowError."""
    match kind:
        case "string":
            text: str = _expect(value, str)
            return _base64(text) if tidb_type in _BINARIES else text
        case "bytes":
            return int.from_bytes(_base64(_expect(value, str)), "little")
        case "boolean":
            return bool(_expect(value, bool))
        case "float" | "double":
            return float(_expect(value, int | float))
        case "int16" | "int32" | "int64":
            return integer_value(meaning, _expect(value, int))
    return value


def _expect(value: object, kind: Any) -> Any:
    """Return a value of this type. true and false are not numbers here."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{shown(value)} does not fit")
    return value


def integer_value(meaning: str, number: int) -> Value:
    """Return a number by the name of what it means for Debezium. Raises ValueError, OverflowError."""
    if not -_MOST_MICROSECONDS < number < _MOST_MICROSECONDS and meaning.startswith(_TIME):
        raise ValueError(f"{number} is not a time")
    match meaning.removeprefix(_TIME) if meaning.startswith(_TIME) else "":
        case "Date":
            return (_EPOCH.date() + dt.timedelta(days=number)).isoformat()
        case "Timestamp":
            return _moment(1000 * number)
        case "MicroTimestamp":
            return _moment(number)
        case "MicroTime":
            return format_duration(1000 * number, MAX_FSP if number % 1_000_000 else 0)
    return number


def _moment(microseconds: int) -> str:
    return (_EPOCH + dt.timedelta(microseconds=microseconds)).isoformat(" ")


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"expected base64, found {shown(text)}") from None
