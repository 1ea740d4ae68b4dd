"""Canal-JSON's control messages: DDLs to partition 0, and with the TiDB extension watermarks to every partition."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.protocols.canal_json import encode
from tidemill.protocols.common.compression import compressor
from tidemill.protocols.common.messages import KeyValue
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.schema.events import DdlEvent


class CanalJsonControl:
    """See `protocols.common.messages.ControlMessages`. All messages are compressed like rows."""

    ddl_on_first_partition = True

    def __init__(self, options: EncodingOptions, clock: Callable[[], int]) -> None:
        self._extension, self._clock = options.enable_tidb_extension, clock
        self._compress = compressor(options.large_message.compression)

    def _message(self, value: bytes) -> KeyValue:
        return None, self._compress(value) if self._compress else value

    def ddl_message(self, event: DdlEvent) -> KeyValue | None:
        return self._message(encode.ddl_message(event, self._clock(), extension=self._extension))

    def resolved_message(self, ts: int) -> KeyValue | None:
        return self._message(encode.watermark_message(ts, self._clock())) if self._extension else None


def control_messages(options: EncodingOptions, clock: Callable[[], int]) -> CanalJsonControl:
    """Return the control messages of a changefeed."""
    return CanalJsonControl(options, clock)
