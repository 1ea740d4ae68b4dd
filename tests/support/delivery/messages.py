"""Messages made by hand, as an encoder would give them, and those of a file, event by event."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tidemill.protocols.common.messages import Messages
from tidemill.protocols.open import decode
from tidemill.protocols.open.events import DdlMessage, RowEvent
from tidemill.records import MESSAGE
from tidemill.sinks.base import BatchContext


def messages_of(items: Iterable[tuple[int, bytes | None, bytes | None]]) -> Messages:
    """(target, key, value) each."""
    items = list(items)
    table = np.zeros(len(items), MESSAGE)
    keep = []
    for i, (target, key, value) in enumerate(items):
        buffers = [np.frombuffer((part or b"") + b"\0", np.uint8) for part in (key, value)]
        keep += buffers
        lengths = [-1 if part is None else len(part) for part in (key, value)]
        table[i] = (target, buffers[0].ctypes.data, lengths[0], buffers[1].ctypes.data, lengths[1], 1, i)
    return Messages(table, keep)


def context(batch: int = 1, epoch: int = 1, item: int = 0, from_ts: int = 100, to_ts: int = 200, feed: str = "feed") -> BatchContext:
    """An attempt at a batch."""
    return BatchContext(feed, batch, epoch, from_ts, to_ts, item)


class Sent(NamedTuple):
    """An event of Open Protocol in a file of messages."""

    topic: str
    partition: int
    head: dict[str, Any]  # the event's key
    body: dict[str, Any]  # its value, empty without one


def sent_into(file: Path) -> list[Sent]:
    """The events that a `messages://` sink has written."""
    return [sent for line in file.read_text().splitlines() for sent in _events(json.loads(line))]


def decoded_from(file: Path) -> list[RowEvent | DdlMessage]:
    """The rows and DDLs that a `messages://` sink has written in Open Protocol, as a consumer reads them."""
    found: list[RowEvent | DdlMessage] = []
    for line in file.read_text().splitlines():
        key, value = (base64.b64decode(json.loads(line)[part]) for part in ("key", "value"))
        found += [event for event in decode(key, value) if isinstance(event, RowEvent | DdlMessage)]
    return found


def _events(message: dict[str, Any]) -> Iterator[Sent]:
    key, value = base64.b64decode(message["key"]), base64.b64decode(message["value"])
    at, place = 8, 0
    while at < len(key):
        size, length = (int.from_bytes(data[i : i + 8], "big") for data, i in ((key, at), (value, place)))
        head = json.loads(key[at + 8 : at + 8 + size])
        body = json.loads(value[place + 8 : place + 8 + length]) if length else {}
        yield Sent(message["topic"], message["partition"], head, body)
        at, place = at + 8 + size, place + 8 + length
