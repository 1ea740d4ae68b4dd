"""The messages of a view on a topic, as JSON. Pure.

    a row that comes or changes   {"id":1}   {"id":1,"total":"5.00","_resolved_ts":N}
    a row that goes               {"id":1}   no value: a tombstone
    the end of an interval        {"_view":"totals","_feed":"view-totals-1a2b3c4d"}   {"_resolved_ts":N}

A key has the columns that tell rows apart, always in the same order, so equal keys are equal bytes: Kafka's compaction relies on that.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tidemill.budget import MESSAGE, Budget
from tidemill.errors import ConfigError
from tidemill.views import types as t
from tidemill.views.shape import Shape

RESOLVED_TS, VIEW, FEED = "_resolved_ts", "_view", "_feed"
HEADER = "resolved_ts"
"""Of every message, for a tombstone has no value to say it in: the resolved ts in decimal digits."""
_SLICE = 10_000
"""Rows that are Python values at a time."""

Message = tuple[bytes, bytes | None]


class Messages:
    """The messages of one view. Raises ConfigError if its columns have names that messages need."""

    def __init__(self, name: str, feed: str, shape: Shape) -> None:
        taken = {RESOLVED_TS, VIEW, FEED} & {one.name.lower() for one in shape.schema}
        if taken:
            raise ConfigError(f"a view into Kafka cannot have a column {min(taken)}", hint="Name it otherwise, with AS.")
        self._keys, self._names = list(shape.keys), list(shape.schema.names)
        self.mark_key = _bytes({VIEW: name, FEED: feed})

    def mark(self, ts: int) -> Message:
        """Return the message that says: all changes up to `ts` were sent before."""
        return self.mark_key, _bytes({RESOLVED_TS: ts})

    def rows(self, comes: pa.Table, goes: pa.Table, ts: int) -> Iterator[Message]:
        """Yield the messages of rows that come, then of those that go for good."""
        for row in _rows(comes, self._names):
            key = {name: row[name] for name in self._keys}
            row[RESOLVED_TS] = ts
            yield _bytes(key), _bytes(row)
        for row in _rows(goes, self._keys):
            yield _bytes(row), None


def mark_of(key: bytes | None, value: bytes | None) -> tuple[str, int] | None:
    """Return feed and resolved ts of a message that ends an interval; None for any other."""
    if key is None or value is None:
        return None
    try:
        budget = Budget(MESSAGE)
        names, said = budget.json(key), budget.json(value)
    except (ValueError, RecursionError):  # anybody may write to the topic
        return None
    if not isinstance(names, dict) or not isinstance(said, dict) or set(names) != {VIEW, FEED}:
        return None
    feed, ts = names[FEED], said.get(RESOLVED_TS)
    return (feed, ts) if isinstance(feed, str) and isinstance(ts, int) else None


def _rows(found: pa.Table, names: list[str]) -> Iterator[dict[str, Any]]:
    chosen = found.select(names)
    for at in range(0, len(chosen), _SLICE):
        piece = chosen.slice(at, _SLICE)
        columns = [_plain(piece[name]) for name in names]
        for values in zip(*columns, strict=True):
            yield dict(zip(names, values, strict=True))


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """The values as JSON has them. Decimals are text, because many readers of JSON turn its numbers into floats."""
    kind = column.type
    values: list[Any] = column.to_pylist()
    if t.is_decimal(kind):
        return [None if one is None else f"{one:f}" for one in values]
    if t.is_float(kind):
        return [one if one is None or math.isfinite(one) else _unusual(one) for one in values]
    if kind == t.DATE:
        return [None if one is None else one.isoformat() for one in values]
    if kind in (t.DATETIME, t.MOMENT):
        end = "Z" if kind == t.MOMENT else ""
        return [None if one is None else one.replace(tzinfo=None).isoformat(timespec="microseconds") + end for one in values]
    if kind == pa.binary():
        return [None if one is None else base64.b64encode(one).decode() for one in values]
    return values


def _unusual(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _bytes(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
