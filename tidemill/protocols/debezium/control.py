"""Debezium's control messages: DDLs to every partition, and watermarks with the TiDB extension."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.protocols.common.compression import compressor
from tidemill.protocols.common.messages import KeyValue
from tidemill.protocols.debezium import ddl, encode
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.schema.events import DdlEvent


class DebeziumControl:
    """See `protocols.common.messages.ControlMessages`. Keys and values are compressed like those of rows."""

    ddl_on_first_partition = False

    def __init__(self, options: EncodingOptions, clock: Callable[[], int]) -> None:
        self._options, self._clock = options, clock
        self._compress = compressor(options.large_message.compression)

    def _message(self, key: bytes, value: bytes) -> KeyValue:
        return (key, value) if self._compress is None else (self._compress(key), self._compress(value))

    def ddl_message(self, event: DdlEvent) -> KeyValue | None:
        found = ddl.ddl_message(event, self._clock(), self._options)
        return None if found is None else self._message(*found)

    def resolved_message(self, ts: int) -> KeyValue | None:
        if not self._options.enable_tidb_extension:
            return None
        return self._message(*encode.watermark_message(ts, self._clock(), self._options))


def control_messages(options: EncodingOptions, clock: Callable[[], int]) -> DebeziumControl:
    """Return the control messages of a changefeed."""
    return DebeziumControl(options, clock)
