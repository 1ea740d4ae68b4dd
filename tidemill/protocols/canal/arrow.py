"""Messages of protocol canal → Arrow: an array of lists, one list of events for each message."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidemill.errors import MalformedMessage
from tidemill.protocols.canal.decode import decode, events_of
from tidemill.protocols.canal.events import Column, DdlMessage, Event, RowEvent, TransactionMark
from tidemill.protocols.canal.parse import EntryError, parse_entry
from tidemill.protocols.common.images import casts_of, image, placed, text_and_bytes
from tidemill.protocols.common.mysqlvalues import BINARIES, base_type
from tidemill.protocols.common.typed import Cast

COLUMN = pa.struct(
    [
        ("mysql_type", pa.string()),
        ("sql_type", pa.int32()),
        ("key", pa.bool_()),
        ("updated", pa.bool_()),
        ("value", pa.string()),  # as text, but for bytes of binary columns
        ("bytes", pa.binary()),  # of binary columns
    ]
)
"""What an entry says of a column."""

IMAGE = pa.map_(pa.string(), COLUMN)


def event_type(schema: pa.StructType | None = None) -> pa.StructType:
    """The struct of an event; images are of `schema`."""
    image = IMAGE if schema is None else schema
    return pa.struct(
        [
            ("type", pa.string()),  # row, ddl, begin, end, other
            ("op", pa.string()),  # of a row: insert, update, delete
            ("es", pa.int64()),  # milliseconds since 1970 of the commit
            ("ts", pa.int64()),  # commit ts, where the entry has it
            ("schema", pa.string()),
            ("table", pa.string()),
            ("before", image),
            ("after", image),
            ("query", pa.string()),  # of a DDL
            ("ddl_type", pa.string()),
        ]
    )


def _described(column: Column) -> dict[str, Any]:
    said = {"mysql_type": column.mysql_type, "sql_type": column.sql_type, "key": column.key, "updated": column.updated}
    return said | text_and_bytes(column.value, binary=base_type(column.mysql_type) in BINARIES)


def _record(event: Event, casts: dict[str, Cast] | None) -> dict[str, Any]:
    """An event as the struct's members; those that are left out are null."""
    if isinstance(event, RowEvent):
        return {
            "type": "row",
            "op": event.kind.value,
            "es": event.es,
            "ts": event.commit_ts,
            "schema": event.schema,
            "table": event.table,
            "before": image(event.before, "beforeColumns", casts, _described, EntryError),
            "after": image(event.after, "afterColumns", casts, _described, EntryError),
        }
    if isinstance(event, DdlMessage):
        head = {"type": "ddl", "es": event.es, "ts": event.commit_ts, "schema": event.schema, "table": event.table}
        return head | {"query": event.query, "ddl_type": event.type}
    if isinstance(event, TransactionMark):
        return {"type": "begin" if event.begins else "end", "es": event.es}
    return {"type": "other", "es": event.es, "query": event.text, "ddl_type": event.type}


def decode_plainly(
    values: pa.Array, schema: pa.StructType | None = None, *, table: tuple[str, str] | None = None, entries: bool = False
) -> pa.ListArray:
    """The events of each message of a binary array; null for null. With `table` (schema, name) rows of others are left out. `entries`: each
    message is a single entry, not a packet.

    Raises MalformedMessage naming the message's place in the array.
    """
    casts = casts_of(schema)
    out: list[list[dict[str, Any]] | None] = []
    for i, value in enumerate(values.cast(pa.binary())):
        if not value.is_valid:
            out.append(None)
            continue
        try:
            events = events_of(parse_entry(value.as_py())) if entries else decode(value.as_py())
            out.append([_record(e, casts) for e in events if table is None or not isinstance(e, RowEvent) or (e.schema, e.table) == table])
        except MalformedMessage as error:
            raise placed(error, i) from None
    return pa.array(out, pa.list_(event_type(schema)))
