"""A batch as Arrow: the same events as one entry after the other gives."""

from __future__ import annotations

import base64

import pyarrow as pa
import pytest

from tests.support.canal.golden import lines
from tidemill.canal.client.batches import Batch
from tidemill.canal.client.columns import to_arrow
from tidemill.errors import MalformedMessage
from tidemill.protocols.canal.events import RowEvent

BATCHES = [
    Batch(batch["id"], tuple(base64.b64decode(entry) for entry in batch["entries"])) for batch in lines("flat_message")
]  # fmt: skip


def test_all_events() -> None:
    for batch in BATCHES:
        found, events = to_arrow(batch), list(batch.events())
        assert len(found) == len(events)
        assert found.field("es").to_pylist() == [event.es for event in events]


def test_rows_of_a_table() -> None:
    batch = BATCHES[-2]
    schema = pa.struct({"id": pa.int64(), "name": pa.string()})
    found = [row for row in to_arrow(batch, schema, table=("ct", "t1")).to_pylist() if row["type"] == "row"]
    rows = [event for event in batch.events() if isinstance(event, RowEvent) and event.table == "t1"]
    assert [(row["op"], (row["after"] or {}).get("id")) for row in found] == [
        (row.kind.value, next((c.value for c in row.after if c.name == "id"), None)) for row in rows
    ]


def test_nothing_and_what_cannot_be_read() -> None:
    assert len(to_arrow(Batch(-1))) == 0
    with pytest.raises(MalformedMessage, match="message 1 of the batch"):
        to_arrow(Batch(1, (b"", b"\xff")))
