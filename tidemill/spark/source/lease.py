"""Lets the log wait for a stream. Which stream it is stands in its offsets, so in its checkpoint: after a restart it is the same, and
nobody has to name it. A checkpoint that is removed is never heard of again, and the log waits for it no longer than for a silent one."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from tidemill.changelog.feeds import Lease
from tidemill.changelog.reader import LogReader

QUERY = "query"
"""The name of the field in an offset."""


class StreamLease:
    """The lease of one stream."""

    def __init__(self, reader: LogReader, silent_s: float) -> None:
        """`silent_s`: how long the log waits without a word; 0: not at all."""
        self._reader, self._silent_s = reader, silent_s
        self._query = uuid.uuid4().hex
        self._lease: Lease | None = None
        self._last = 0

    def offset(self, fields: Mapping[str, Any], start: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return an offset that says which stream it is of: that of `start`, the offset before it."""
        if not self._silent_s:
            return dict(fields)
        return {**fields, QUERY: self._of(start or {})}

    def hold(self, offset: Mapping[str, Any]) -> None:
        """Tell the log that the stream has all up to an offset. Raises StartTsOutOfLog."""
        self._last = max(int(offset["ts"]), self._reader.identity.start_ts)
        if not self._silent_s:
            return
        if self._lease is None:
            self._lease = Lease(self._reader.storage, self._of(offset), self._silent_s)
        self._lease.hold(self._last)

    def stop(self) -> None:
        """Tell it once more where the stream ends."""
        if self._lease is not None:
            self._lease.hold(self._last, now=True)

    def _of(self, offset: Mapping[str, Any]) -> str:
        """Which stream it is. Offsets of earlier versions do not say it."""
        self._query = str(offset.get(QUERY, self._query))
        return self._query
