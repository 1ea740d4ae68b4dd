"""Why a new schema is incompatible with an old one, column by column: Avro's resolution rules for records of tables. Pure.

A record of a row that is a field of another record, as in Debezium's envelope, is compared column by column too.

The registry decides. This module explains a refusal to people, and finds the changes worth asking the registry about beforehand. Rules:
Avro's specification, "Schema Resolution"; levels: Confluent's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

Schema = Any  # a parsed Avro schema

_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
"""The types that a writer's type may be read as, besides itself."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a column, or with the whole table if `column` is empty."""

    column: str
    text: str

    def __str__(self) -> str:
        return f"column `{self.column}` {self.text}" if self.column else self.text


def faults(old: str, new: str, level: str = "FULL") -> tuple[Fault, ...]:
    """Return why a registry with this compatibility level refuses `new` after `old`. Unknown levels count as FULL.

    BACKWARD: readers with the new schema can read old messages. FORWARD: readers with the old schema can read new messages. FULL: both.
    """
    level = level.upper().removesuffix("_TRANSITIVE")
    if level == "NONE":
        return ()
    before, after = json.loads(old), json.loads(new)
    found: list[Fault] = []
    if full_name(before) != full_name(after):
        found.append(Fault("", f"the record {full_name(before)} is now called {full_name(after)}"))
    if level != "FORWARD":
        found += _unread(after, before, "was added NOT NULL and without default: old messages have no value for it")
    if level != "BACKWARD":
        found += _unread(before, after, "was dropped, and had no default that readers could take in its place")
    return tuple({fault.column: fault for fault in reversed(found)}.values())[::-1]


def full_name(record: Schema) -> str:
    """Return a record's namespace and name."""
    return ".".join(part for part in (record.get("namespace"), record.get("name")) if part)


def _unread(reader: Schema, writer: Schema, missing: str) -> list[Fault]:
    """Return why a reader's schema cannot read a writer's messages."""
    written = {field["name"]: field for field in writer["fields"]}
    found = []
    for field in reader["fields"]:
        name = field["name"]
        reader_row, written_row = _row(field["type"]), _row(written.get(name, {}).get("type"))
        if reader_row is not None and written_row is not None:
            found += _unread(reader_row, written_row, missing)
        elif name not in written:
            if "default" not in field:
                found.append(Fault(name, f"({described(field['type'])}) {missing}"))
        elif not readable(field["type"], written[name]["type"]):
            found.append(
                Fault(name, f"has another type: {described(written[name]['type'])} and {described(field['type'])} do not go together")
            )
    return found


def _row(schema: Schema) -> Schema | None:
    """Return the record that a field is, or holds beside null. None: it is none, or only named here."""
    branches = schema if isinstance(schema, list) else [schema]
    return next((branch for branch in branches if isinstance(branch, dict) and branch.get("type") == "record"), None)


def readable(reader: Schema, writer: Schema) -> bool:
    """Return whether values of the writer's type can be read as the reader's type."""
    if isinstance(writer, list):
        return all(readable(reader, branch) for branch in writer)
    if isinstance(reader, list):
        return any(readable(branch, writer) for branch in reader)
    kind, written = _kind(reader), _kind(writer)
    if kind == written == "bytes" and _logical(reader) != _logical(writer):
        return False
    return kind == written or kind in _PROMOTIONS.get(written, ())


def _kind(schema: Schema) -> str:
    return str(schema["type"] if isinstance(schema, dict) else schema)


def _logical(schema: Schema) -> tuple[object, ...]:
    return tuple(schema.get(name) for name in ("logicalType", "precision", "scale")) if isinstance(schema, dict) else (None, None, None)


def described(schema: Schema) -> str:
    """Return a column's type for people: TiDB's, Avro's, and whether it may be NULL."""
    if isinstance(schema, list):
        return " / ".join(described(branch) for branch in schema if branch != "null") + (" NULL" if "null" in schema else "")
    if not isinstance(schema, dict):
        return str(schema)
    ours = (schema.get("connect.parameters") or {}).get("tidb_type")
    size = f"({schema['precision']},{schema.get('scale', 0)})" if "precision" in schema else ""
    return f"{ours}{size} as {schema['type']}" if ours else str(schema["type"])
