"""Open Protocol messages → an Arrow array of lists, one list of events for each message. Spark's column functions use it.

An event is a struct (`EVENT` and the images). Without a schema an image maps column names to the message's columns. With a schema it is
a struct of the wanted columns, typed; columns that the message does not have are null.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidemill.errors import MalformedMessage
from tidemill.protocols.common.images import casts_of, image, placed, text_and_bytes
from tidemill.protocols.common.typed import Cast
from tidemill.protocols.open.codes import STRINGS, TEXT_BLOBS, ColumnFlag
from tidemill.protocols.open.decode import Fault, Fetch, OpenMessageError, decode
from tidemill.protocols.open.events import Column, DdlMessage, Event, RowEvent

COLUMN = pa.struct(
    [
        ("type", pa.int32()),
        ("flags", pa.int32()),
        ("handle", pa.bool_()),
        ("value", pa.string()),  # the value as text, except of binary columns
        ("bytes", pa.binary()),  # the value of a binary column
    ]
)
"""A column of a message that is read without a schema."""

IMAGE = pa.map_(pa.string(), COLUMN)
_BYTES_TYPES = frozenset(int(t) for t in STRINGS | TEXT_BLOBS)


def event_type(schema: pa.StructType | None = None) -> pa.StructType:
    """Return the struct type of an event whose images have `schema`."""
    image = IMAGE if schema is None else schema
    return pa.struct(
        [
            ("type", pa.string()),  # row, ddl, resolved
            ("op", pa.string()),  # rows: insert, update, delete
            ("ts", pa.int64()),  # commit ts of a row or DDL, or the resolved ts
            ("schema", pa.string()),
            ("table", pa.string()),
            ("row_id", pa.int64()),
            ("partition", pa.int64()),
            ("before", image),
            ("after", image),
            ("only_handle_key", pa.bool_()),
            ("claim_check", pa.string()),
            ("query", pa.string()),  # of a DDL
            ("ddl_type", pa.int32()),
        ]
    )


def _described(column: Column) -> dict[str, Any]:
    binary = bool(column.flags & ColumnFlag.BINARY) and column.type in _BYTES_TYPES
    said = {"type": int(column.type), "flags": int(column.flags), "handle": column.handle}
    return said | text_and_bytes(column.value, binary=binary)


def _misfit(field: str, problem: str) -> MalformedMessage:
    return OpenMessageError("value", 0, f"{field}.v", problem, Fault.READER)


def _record(event: Event, casts: dict[str, Cast] | None) -> dict[str, Any]:
    """Return an event as the struct's members. Those that are left out are null."""
    if isinstance(event, RowEvent):
        return {
            "type": "row",
            "op": event.kind.value,
            "ts": event.ts,
            "schema": event.schema,
            "table": event.table,
            "row_id": event.row_id,
            "partition": event.partition,
            "before": image(event.before, "before", casts, _described, _misfit),
            "after": image(event.after, "after", casts, _described, _misfit),
            "only_handle_key": event.only_handle_key,
            "claim_check": event.claim_check,
        }
    if isinstance(event, DdlMessage):
        head = {"type": "ddl", "ts": event.ts, "schema": event.schema, "table": event.table}
        return head | {"query": event.query, "ddl_type": int(event.type)}
    return {"type": "resolved", "ts": event.ts}


def decode_plainly(
    keys: pa.Array,
    values: pa.Array,
    schema: pa.StructType | None = None,
    *,
    table: tuple[str, str] | None = None,
    fetch: Fetch | None = None,
) -> pa.ListArray:
    """Return the events of each message of two binary arrays, null for a null key. With `table` (schema, name) only its rows are kept.

    Raises MalformedMessage naming the message's place in the array, the place in it, the field and the fault.
    """
    casts = casts_of(schema)
    out: list[list[dict[str, Any]] | None] = []
    for i, (key, value) in enumerate(zip(keys, values, strict=True)):
        if not key.is_valid:
            out.append(None)
            continue
        try:
            events = decode(key.as_py(), value.as_py(), fetch=fetch)
            out.append([_record(e, casts) for e in events if table is None or not isinstance(e, RowEvent) or (e.schema, e.table) == table])
        except MalformedMessage as error:
            raise placed(error, i) from None
    return pa.array(out, pa.list_(event_type(schema)))
