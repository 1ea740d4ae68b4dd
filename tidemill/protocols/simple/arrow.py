"""Messages of the simple protocol → an Arrow array of their events. Spark's column function uses it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemill.errors import MalformedMessage
from tidemill.protocols.common.images import casts_of, image, placed
from tidemill.protocols.common.jsonmessage import JsonMessageError
from tidemill.protocols.common.typed import Cast, Value
from tidemill.protocols.open.decode import Fault
from tidemill.protocols.simple.decode import decode
from tidemill.protocols.simple.events import Bootstrap, DdlMessage, Event, RowEvent

IMAGE = pa.map_(pa.string(), pa.string())
"""Columns of a message that is read without a schema: text as it is in the message, binary columns in base64."""


@dataclass(frozen=True, slots=True)
class _Named:
    name: str
    value: Value


def event_type(schema: pa.StructType | None = None) -> pa.StructType:
    """Return the struct type of an event whose images have `schema`."""
    one = IMAGE if schema is None else schema
    return pa.struct(
        [
            ("type", pa.string()),  # row, ddl, bootstrap, watermark
            ("op", pa.string()),  # rows: insert, update, delete
            ("ts", pa.int64()),  # the commit ts, or the watermark
            ("schema", pa.string()),
            ("table", pa.string()),
            ("schema_version", pa.int64()),
            ("before", one),
            ("after", one),
            ("only_handle_key", pa.bool_()),
            ("claim_check", pa.string()),
            ("query", pa.string()),  # of a DDL
            ("ddl_type", pa.string()),
        ]
    )


def _misfit(field: str, problem: str) -> MalformedMessage:
    return JsonMessageError(0, field, problem, Fault.READER)


class _Images:
    """Images in the columns that a reader wants. Messages give bytes in base64."""

    def __init__(self, schema: pa.StructType | None) -> None:
        self.casts: dict[str, Cast] | None = casts_of(schema)
        self._binary = {one.name for one in schema if pa.types.is_binary(one.type)} if schema is not None else set()

    def of(self, values: Mapping[str, Value], name: str) -> Any:
        if self.casts is None:
            return [(column, value) for column, value in values.items()] or None
        columns = [_Named(column, self._value(column, value, name)) for column, value in values.items()]
        return image(columns, name, self.casts, lambda _: {}, _misfit)

    def _value(self, column: str, value: Value, name: str) -> Value:
        if column not in self._binary or not isinstance(value, str):
            return value
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise _misfit(f"{name}.{column}", "expected base64, for a column that is to be binary") from None


def _record(event: Event, images: _Images) -> dict[str, Any]:
    """Return an event as the struct's members. Those that are left out are null."""
    if isinstance(event, RowEvent):
        return {
            "type": "row",
            "op": event.kind.value,
            "ts": event.commit_ts,
            "schema": event.schema,
            "table": event.table,
            "schema_version": event.schema_version,
            "before": images.of(event.before, "old"),
            "after": images.of(event.after, "data"),
            "only_handle_key": event.only_handle_key,
            "claim_check": event.claim_check,
        }
    if isinstance(event, DdlMessage):
        about = event.table or event.table_before
        named = {"schema": about.schema, "table": about.table} if about is not None else {}
        return {"type": "ddl", "ts": event.commit_ts, **named, "query": event.query, "ddl_type": event.type}
    if isinstance(event, Bootstrap):
        return {"type": "bootstrap", "schema": event.table.schema, "table": event.table.table, "schema_version": event.table.version}
    return {"type": "watermark", "ts": event.ts}


def decode_array(values: pa.Array, schema: pa.StructType | None = None, *, table: tuple[str, str] | None = None) -> pa.ListArray:
    """Return the event of each message of a binary or string array, in a list; null for null. With `table` (schema, name) only its rows
    are kept.

    Raises MalformedMessage naming the message's place in the array.
    """
    images = _Images(schema)
    out: list[list[dict[str, Any]] | None] = []
    for i, value in enumerate(values.cast(pa.binary())):
        if not value.is_valid:
            out.append(None)
            continue
        try:
            event = decode(value.as_py())
            kept = table is None or not isinstance(event, RowEvent) or (event.schema, event.table) == table
            out.append([_record(event, images)] if kept else [])
        except MalformedMessage as error:
            raise placed(error, i) from None
    return pa.array(out, pa.list_(event_type(schema)))
