"""How events are batched into messages: TiCDC's rule. This is the reference of the encode kernel."""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.errors import MessageTooLarge
from tidemill.protocols.open.codes import VERSION
from tidemill.protocols.options import EncodingOptions
from tidemill.records import RECORD_OVERHEAD

LENGTHS = 16
"""The two length words of an event."""


def event_size(key: bytes, value: bytes) -> int:
    """Return the size of a message with this one event, as TiCDC counts it."""
    return len(key) + len(value) + RECORD_OVERHEAD + LENGTHS + 8


def batches(events: Iterable[tuple[bytes, bytes]], options: EncodingOptions) -> list[tuple[bytes, bytes, int]]:
    """Batch events (key and value JSON) into messages (key, value, number of events). Raises MessageTooLarge for a too large event.

    Two options count: max-batch-size (events of a message) and max-message-bytes (of key, value and the record's overhead).
    """
    messages: list[tuple[bytearray, bytearray, int]] = []
    for key, value in events:
        if event_size(key, value) > options.max_message_bytes:
            raise MessageTooLarge(f"one event takes {event_size(key, value)} bytes, max-message-bytes is {options.max_message_bytes}")
        if messages:
            head, body, count = messages[-1]
            size = len(head) + len(body) + RECORD_OVERHEAD + len(key) + len(value) + LENGTHS
        if not messages or count >= options.max_batch_size or size > options.max_message_bytes:
            head, body, count = bytearray(VERSION.to_bytes(8, "big")), bytearray(), 0
            messages.append((head, body, count))
        head += len(key).to_bytes(8, "big") + key
        body += len(value).to_bytes(8, "big") + value
        messages[-1] = (head, body, count + 1)
    return [(bytes(head), bytes(body), count) for head, body, count in messages]
