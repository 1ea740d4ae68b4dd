"""The event that is sent for a row: compressed if so configured, and replaced if it is larger than a message may be.

Batching (`batch`) follows. The code is pure except for `keep`, which stores the whole message of a claim check and returns its location.
"""

from __future__ import annotations

from typing import NamedTuple

from tidemill.errors import ConfigError, MessageTooLarge
from tidemill.protocols.common.claim_check import Keep
from tidemill.protocols.common.compression import compressor
from tidemill.protocols.open.batch import event_size
from tidemill.protocols.open.encode import OpenTable, framed
from tidemill.protocols.options import EncodingOptions, LargeMessageOption


class Change(NamedTuple):
    """A raw change of a row."""

    key: bytes
    value: bytes | None
    old_value: bytes | None
    start_ts: int
    commit_ts: int


class Fitter:
    """Makes the events of a changefeed fit into messages."""

    def __init__(self, options: EncodingOptions, keep: Keep | None = None) -> None:
        large = options.large_message
        if large.option is LargeMessageOption.CLAIM_CHECK and large.claim_check_raw_value:
            raise ConfigError("claim-check-raw-value does not go with open-protocol: its messages have a key that would be lost")
        self._option, self._limit, self._keep = large.option, options.max_message_bytes, keep
        self.compress = compressor(large.compression)

    def event(self, table: OpenTable, change: Change) -> tuple[bytes, bytes]:
        """Return the key and value to send. Raises MessageTooLarge, MalformedRow, NoHandleKey."""
        key, value = table.row(change.key, change.value, change.old_value, change.commit_ts)
        return self.fit(table, change, key, self.compress(value) if self.compress else value)

    def fit(self, table: OpenTable, change: Change, key: bytes, value: bytes) -> tuple[bytes, bytes]:
        """Return an event that is already compressed, or its replacement if it is too large. Raises MessageTooLarge and NoHandleKey."""
        size = event_size(key, value)
        if size <= self._limit:
            return key, value
        if self._option is LargeMessageOption.NONE:
            raise self._too_large(table, change, size, "")
        location = ""
        if self._option is LargeMessageOption.CLAIM_CHECK:
            if self._keep is None:
                raise ConfigError("claim-check needs claim-check-storage-uri")
            location = self._keep(*framed(key, value))
        key, value = table.stand_in(change.key, change.value, change.old_value, change.commit_ts, location)
        value = self.compress(value) if self.compress else value
        size = event_size(key, value)
        if size > self._limit:
            raise self._too_large(table, change, size, " with nothing but its handle key")
        return key, value

    def _too_large(self, table: OpenTable, change: Change, size: int, how: str) -> MessageTooLarge:
        return MessageTooLarge(
            f"a row of {table.schema}.{table.table} takes {size} bytes as an Open Protocol event{how}, max-message-bytes is {self._limit}: "
            f"key {change.key.hex()}, start_ts {change.start_ts}, commit_ts {change.commit_ts}",
            hint="raise max-message-bytes of the sink (and max.message.bytes of the topic), or set large-message-handle-option",
        )
