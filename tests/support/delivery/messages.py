"""Messages made by hand, as an encoder would give them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tidemill.protocols.common.messages import Messages
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
