"""Hand-made bytes of the change feed: identical to what the recorded TiKV sent for the same content."""

from __future__ import annotations

import pytest

from tests.support.capture.eventfeeds import recorded_messages
from tidemill.playground.store import wirebytes as wb
from tidemill.tidb.codec import encode_uvarint
from tidemill.wire import cdcpb_pb2 as cdcpb

RECORDINGS = [
    "scan_past", "scan_with_lock", "live_2pc", "live_1pc", "live_async_commit", "live_rollback", "region_split", "region_merge",
    "not_leader", "bad_requests", "feed_v2", "filter_loop", "resolved_cadence", "server_busy", "truncate", "partitions",
]  # fmt: skip


def row(r: cdcpb.Event.Row) -> bytes:
    if r.type == cdcpb.Event.INITIALIZED:
        return wb.INITIALIZED_ENTRY
    op = {cdcpb.Event.Row.PUT: wb.OP_PUT, cdcpb.Event.Row.DELETE: wb.OP_DELETE}.get(r.op_type, b"")
    return wb.entry(wb.row_head(r.start_ts, r.commit_ts, wb.RowType(r.type)), op, r.key, r.value, r.old_value, r.txn_source)


def encoded(message: cdcpb.ChangeDataEvent) -> bytes:
    if message.HasField("resolved_ts"):
        resolved = message.resolved_ts
        return wb.resolved_message(resolved.regions, resolved.ts, resolved.request_id)
    events = []
    for event in message.events:
        head = wb.event_head(event.region_id, event.request_id)
        match event.WhichOneof("event"):
            case "entries":
                events.append(wb.entries_event(head, b"".join(row(r) for r in event.entries.entries)))
            case "error":
                events.append(wb.error_event(head, event.error))
            case "resolved_ts":
                events.append(wb.resolved_event(head, event.resolved_ts))
    return wb.events_message(events)


@pytest.mark.parametrize("name", RECORDINGS)
def test_recorded_messages_are_made_again_byte_by_byte(name: str) -> None:
    messages = recorded_messages(name)
    assert messages
    for message in messages:
        assert encoded(cdcpb.ChangeDataEvent.FromString(message)) == message


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 16383, 16384, 1 << 40, (1 << 64) - 1])
def test_varints(number: int) -> None:
    resolved = cdcpb.ResolvedTs(ts=number)
    assert encode_uvarint(number) == (resolved.SerializeToString()[1:] or b"\0")
    if number < 1 << 32:
        assert wb.length(number) == encode_uvarint(number)
