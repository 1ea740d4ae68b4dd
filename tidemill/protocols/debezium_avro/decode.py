"""Debezium's Avro → events. Reads what Tidemill writes, by the schemas that the messages name. No IO here.

    reader = DebeziumAvroReader(fetch_text_by_id)  # called once for each id; may raise
    event = reader.decode(message.key(), message.value())

A column's value is: int for integers, BIT and YEAR; float; bool for BIT(1); str for text, DECIMAL's digits, dates and times; bytes;
None for NULL. `Column.type` and `Column.meaning` are those of Kafka Connect and Debezium.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

from tidemill.protocols.avro.decode import AvroMessageError, Raw, check_end, read_field, read_fields, schema_id, unscaled
from tidemill.protocols.avro.parse import AvroSchemaError, FieldType, RecordType, parse_schema
from tidemill.protocols.avro.wire import HEAD_SIZE
from tidemill.protocols.debezium.decode import KINDS, integer_value
from tidemill.protocols.debezium.events import Column, RowEvent, Value

_CONNECT_TYPES = {"int": "int32", "long": "int64"}
_BITS = "io.debezium.data.Bits"
_EXACT = Context(prec=200)


@dataclass(frozen=True, slots=True)
class _ColumnType:
    """What a column is for Kafka Connect and Debezium."""

    type: str
    meaning: str
    tidb_type: str


@dataclass(frozen=True, slots=True)
class _Member:
    """A field of the envelope. `branch`: of a record that may be null, the field that says whether it is."""

    name: str
    record: RecordType | None
    branch: FieldType | None
    plain: FieldType | None


@dataclass(frozen=True, slots=True)
class _Envelope:
    members: tuple[_Member, ...]
    row: RecordType
    columns: Mapping[str, _ColumnType]


class DebeziumAvroReader:
    """Decodes messages. `text_of` returns the text of a schema by its id, and may raise. It is called once for each id."""

    def __init__(self, text_of: Callable[[int], str]) -> None:
        self._text_of = text_of
        self._envelopes: dict[int, _Envelope] = {}
        self._keys: dict[int, RecordType] = {}

    def decode(self, key: bytes | None, value: bytes) -> RowEvent:
        """Decode a message. Without its key no column is marked as one of the key.

        Raises AvroMessageError, AvroSchemaError, and what `text_of` raises.
        """
        number = schema_id(value)
        if number not in self._envelopes:
            self._envelopes[number] = _envelope(self._text_of(number))
        envelope = self._envelopes[number]
        found = _read(envelope, value)
        source, keys = found["source"], self._key_names(key)
        operation, commit_ts = str(found["op"]), source.get("commit_ts")
        if operation not in KINDS:
            raise AvroMessageError(0, "op", f"expected c, u, d or r, found {operation[:20]!r}")
        if not isinstance(commit_ts, int):
            raise AvroMessageError(0, "source", "it has no commit_ts: another connector wrote it")
        start_ts = source.get("start_ts")
        after, before = (_columns(envelope, found[image], keys) for image in ("after", "before"))
        started = start_ts if isinstance(start_ts, int) else None
        cluster, schema, table = (str(source.get(part) or "") for part in ("name", "db", "table"))
        return RowEvent(commit_ts, started, cluster, schema, table, KINDS[operation], after, before)

    def _key_names(self, key: bytes | None) -> frozenset[str]:
        if key is None:
            return frozenset()
        number = schema_id(key)
        if number not in self._keys:
            self._keys[number] = parse_schema(self._text_of(number))
        return frozenset(field.name for field in self._keys[number].fields)


# Schemas


def _envelope(text: str) -> _Envelope:
    try:
        schema = json.loads(text)
        fields = {str(field["name"]): field["type"] for field in schema["fields"]}
        row = _without_null(fields["before"])[0]
        members = tuple(_member(name, kind, row) for name, kind in fields.items())
        columns = {str(field["name"]): _column_type(field) for field in row["fields"]}
        found = _Envelope(members, _record(row), columns)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise AvroSchemaError(f"a schema is not an envelope of Debezium: {text[:200]}") from None
    records = {member.name for member in members if member.record is not None}
    if not {"before", "after", "source"} <= records or "op" not in fields:
        raise AvroSchemaError(f"a schema is not an envelope of Debezium: {text[:200]}")
    return found


def _without_null(kind: Any) -> tuple[Any, bool]:
    """Return a type without null, and whether it was there."""
    if not isinstance(kind, list):
        return kind, False
    (found,) = (branch for branch in kind if branch != "null")
    return found, True


def _record(kind: Mapping[str, Any]) -> RecordType:
    return parse_schema(json.dumps(kind))


def _member(name: str, kind: Any, row: Mapping[str, Any]) -> _Member:
    plain, nullable = _without_null(kind)
    if isinstance(plain, str) and plain in (row["name"], row["connect.name"]):
        plain = row
    if isinstance(plain, dict) and plain["type"] == "record":
        branch = _plain("", "int") if nullable else None
        if nullable and kind[0] != "null":
            raise ValueError(f"{name}: null is not the first branch")
        return _Member(name, _record(plain), branch, None)
    return _Member(name, None, None, _plain(name, kind))


def _plain(name: str, kind: Any) -> FieldType:
    return _record({"type": "record", "name": "_", "fields": [{"name": name, "type": kind}]}).fields[0]


def _column_type(field: Mapping[str, Any]) -> _ColumnType:
    kind, _ = _without_null(field["type"])
    attributes = kind if isinstance(kind, dict) else {"type": kind}
    name = str(attributes["type"])
    connect = str(attributes.get("connect.type", _CONNECT_TYPES.get(name, name)))
    return _ColumnType(connect, str(attributes.get("connect.name", "")), str(field.get("tidb_type", "")))


# Messages


def _read(envelope: _Envelope, data: bytes) -> dict[str, Any]:
    at = HEAD_SIZE
    found: dict[str, Any] = {}
    for member in envelope.members:
        found[member.name], at = _read_member(member, data, at)
    check_end(data, at)
    return found


def _read_member(member: _Member, data: bytes, at: int) -> tuple[Any, int]:
    if member.plain is not None:
        return read_field(member.plain, data, at)
    assert member.record is not None
    if member.branch is not None:
        branch, after = read_field(member.branch, data, at)
        if branch not in (0, 1):
            raise AvroMessageError(at, member.name, f"the union has no branch {branch!r}")
        if branch == 0:
            return None, after
        at = after
    return read_fields(member.record, data, at)


def _columns(envelope: _Envelope, row: Mapping[str, Raw] | None, keys: frozenset[str]) -> tuple[Column, ...]:
    if row is None:
        return ()
    columns = []
    for field in envelope.row.fields:
        about = envelope.columns[field.name]
        value = _value(field, about, row[field.name])
        columns.append(Column(field.column, about.type, about.meaning, about.tidb_type, field.name in keys, value))
    return tuple(columns)


def _value(field: FieldType, about: _ColumnType, raw: Raw) -> Value:
    match raw:
        case bool() | None:
            return raw
        case bytes() if field.scale is not None:
            return f"{Decimal(unscaled(field, raw)).scaleb(-field.scale, _EXACT):f}"
        case bytes() if about.meaning == _BITS:
            return int.from_bytes(raw, "little")
        case int():
            try:
                return integer_value(about.meaning, raw)
            except (ValueError, OverflowError) as error:
                raise AvroMessageError(0, field.name, str(error)) from None
    return raw
