"""Canal-JSON messages → an Arrow array of lists, one list of events for each message. Spark's column function uses it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidemill.errors import MalformedMessage
from tidemill.protocols.canal_json.decode import Fetch, decode
from tidemill.protocols.canal_json.events import Column, DdlMessage, Event, RowEvent
from tidemill.protocols.common.images import casts_of, image, placed, text_and_bytes
from tidemill.protocols.common.jsonmessage import JsonMessageError
from tidemill.protocols.common.mysqlvalues import BINARIES, base_type
from tidemill.protocols.common.typed import Cast
from tidemill.protocols.open.decode import Fault

COLUMN = pa.struct(
    [
        ("mysql_type", pa.string()),
        ("sql_type", pa.int32()),
        ("key", pa.bool_()),
        ("value", pa.string()),  # the value as text, except of binary columns
        ("bytes", pa.binary()),  # the value of a binary column
    ]
)
"""A column of a message that is read without a schema."""

IMAGE = pa.map_(pa.string(), COLUMN)


def event_type(schema: pa.StructType | None = None) -> pa.StructType:
    """Return the struct type of an event whose images have `schema`."""
    image = IMAGE if schema is None else schema
    return pa.struct(
        [
            ("type", pa.string()),  # row, ddl, watermark
            ("op", pa.string()),  # rows: insert, update, delete
            ("es", pa.int64()),  # the commit's milliseconds since 1970
            ("ts", pa.int64()),  # the commit ts with the TiDB extension, or the watermark
            ("schema", pa.string()),
            ("table", pa.string()),
            ("before", image),
            ("after", image),
            ("only_handle_key", pa.bool_()),
            ("claim_check", pa.string()),
            ("query", pa.string()),  # of a DDL
            ("ddl_type", pa.string()),
        ]
    )


def _described(column: Column) -> dict[str, Any]:
    said = {"mysql_type": column.mysql_type, "sql_type": column.sql_type, "key": column.key}
    return said | text_and_bytes(column.value, binary=base_type(column.mysql_type) in BINARIES)


def _misfit(field: str, problem: str) -> MalformedMessage:
    return JsonMessageError(0, field, problem, Fault.READER)


def _record(event: Event, casts: dict[str, Cast] | None) -> dict[str, Any]:
    """Return an event as the struct's members. Those that are left out are null."""
    if isinstance(event, RowEvent):
        return {
            "type": "row",
            "op": event.kind.value,
            "es": event.es,
            "ts": event.commit_ts,
            "schema": event.schema,
            "table": event.table,
            "before": image(event.whole_before, "old", casts, _described, _misfit),
            "after": image(event.after, "data", casts, _described, _misfit),
            "only_handle_key": event.only_handle_key,
            "claim_check": event.claim_check,
        }
    if isinstance(event, DdlMessage):
        head = {"type": "ddl", "es": event.es, "ts": event.commit_ts, "schema": event.schema, "table": event.table}
        return head | {"query": event.query, "ddl_type": event.type}
    return {"type": "watermark", "es": event.ts >> 18, "ts": event.ts}


def decode_array(
    values: pa.Array, schema: pa.StructType | None = None, *, table: tuple[str, str] | None = None, fetch: Fetch | None = None
) -> pa.ListArray:
    """Return the events of each message of a binary or string array, null for null. With `table` (schema, name) only its rows are kept.

    Raises MalformedMessage naming the message's place in the array.
    """
    casts = casts_of(schema)
    out: list[list[dict[str, Any]] | None] = []
    for i, value in enumerate(values.cast(pa.binary())):
        if not value.is_valid:
            out.append(None)
            continue
        try:
            events = decode(value.as_py(), fetch=fetch)
            out.append([_record(e, casts) for e in events if table is None or not isinstance(e, RowEvent) or (e.schema, e.table) == table])
        except MalformedMessage as error:
            raise placed(error, i) from None
    return pa.array(out, pa.list_(event_type(schema)))
