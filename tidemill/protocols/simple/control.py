"""The simple protocol's control messages: DDLs, table descriptions and watermarks, to every partition."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.protocols.common.compression import compressor
from tidemill.protocols.common.messages import KeyValue
from tidemill.protocols.options import EncodingOptions
from tidemill.protocols.simple import encode
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.versions import TableVersion


class SimpleControl:
    """See `protocols.common.messages.ControlMessages`. All messages are compressed like rows."""

    ddl_on_first_partition = False

    def __init__(self, options: EncodingOptions, clock: Callable[[], int]) -> None:
        self._compress, self._clock = compressor(options.large_message.compression), clock
        self.sends_bootstrap = options.simple.bootstrap_at_start
        self.bootstrap_first_partition_only = not options.simple.bootstrap_all_partitions

    def _message(self, value: bytes) -> KeyValue:
        return None, self._compress(value) if self._compress else value

    def ddl_message(self, event: DdlEvent) -> KeyValue | None:
        return self._message(encode.ddl_message(event, self._clock()))

    def bootstrap(self, version: TableVersion) -> KeyValue:
        """Return the description of a table, for send-all-bootstrap-at-start."""
        return self._message(encode.bootstrap_message(version.schema, version.table, version.info, self._clock()))

    def resolved_message(self, ts: int) -> KeyValue | None:
        return self._message(encode.watermark_message(ts, self._clock()))


def control_messages(options: EncodingOptions, clock: Callable[[], int]) -> SimpleControl:
    """Return the control messages of a changefeed."""
    return SimpleControl(options, clock)
