"""Change feed messages as bytes, in the layout of TiKV's own encoder (see the recordings). They are written by hand, because protobuf would
be too slow here.

Inside an Event the order is region_id (1), request_id (7), then the entries (3), error (5) or resolved_ts (6); inside a Row it is
by field number. Zero and empty fields are left out, as in any proto3 encoder.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from tidemill.tidb.codec import encode_uvarint
from tidemill.wire import cdcpb_pb2 as cdcpb


class RowType(enum.IntEnum):
    """Kinds of rows of the change feed (cdcpb.Event.LogType)."""

    PREWRITE = 1
    COMMIT = 2
    ROLLBACK = 3
    COMMITTED = 4
    INITIALIZED = 5


OP_PUT = b"\x20\x01"
OP_DELETE = b"\x20\x02"

_ONE_BYTE = [bytes((n,)) for n in range(128)]


_LENGTHS = [encode_uvarint(n) for n in range(16384)]


def length(number: int) -> bytes:
    """The varint of a length."""
    return _LENGTHS[number] if number < 16384 else encode_uvarint(number)


def row_head(start_ts: int, commit_ts: int, kind: RowType) -> bytes:
    """Fields 1 to 3 of all rows of a transaction."""
    commit = b"\x10" + encode_uvarint(commit_ts) if commit_ts else b""
    return b"\x08" + encode_uvarint(start_ts) + commit + b"\x18" + _ONE_BYTE[kind]


def entry(head: bytes, op: bytes, key: bytes, value: bytes | None, old_value: bytes | None, source: int = 0) -> bytes:
    """One element of `Entries.entries`, with its tag and length."""
    row = head + op + b"\x2a" + length(len(key)) + key
    if value:
        row += b"\x32" + length(len(value)) + value
    if old_value:
        row += b"\x3a" + length(len(old_value)) + old_value
    if source:
        row += b"\x48" + encode_uvarint(source)
    return b"\x0a" + length(len(row)) + row


INITIALIZED_ENTRY = b"\x0a\x02\x18\x05"
EMPTY_ENTRY = b"\x0a\x00"
"""A row of kind UNKNOWN without a key: what TiKV makes of a key that is only locked."""


def event_head(region_id: int, request_id: int) -> bytes:
    """The fields that all events of a subscription begin with."""
    return b"\x08" + encode_uvarint(region_id) + (b"\x38" + encode_uvarint(request_id) if request_id else b"")


def entries_event(head: bytes, entries: bytes) -> bytes:
    """An Event with these encoded entries, with tag and length as an element of `ChangeDataEvent.events`."""
    body = head + b"\x1a" + length(len(entries)) + entries
    return b"\x0a" + length(len(body)) + body


def error_event(head: bytes, error: cdcpb.Error) -> bytes:
    """An Event with an error."""
    text = error.SerializeToString()
    body = head + b"\x2a" + length(len(text)) + text
    return b"\x0a" + length(len(body)) + body


def resolved_event(head: bytes, ts: int) -> bytes:
    """An Event with the one-region resolved ts that clients older than 4.0.8 get."""
    body = head + b"\x30" + encode_uvarint(ts)
    return b"\x0a" + length(len(body)) + body


def resolved_message(regions: Iterable[int], ts: int, request_id: int) -> bytes:
    """A whole ChangeDataEvent with a batched resolved ts."""
    body = b"".join(b"\x08" + encode_uvarint(region) for region in regions) + b"\x10" + encode_uvarint(ts)
    if request_id:
        body += b"\x18" + encode_uvarint(request_id)
    return b"\x12" + length(len(body)) + body


def events_message(events: Sequence[bytes]) -> bytes:
    """A whole ChangeDataEvent with these events."""
    return events[0] if len(events) == 1 else b"".join(events)
