"""Open Protocol's control messages: DDLs and resolved events, to every partition."""

from __future__ import annotations

from tidemill.protocols.common.compression import compressor
from tidemill.protocols.common.messages import KeyValue
from tidemill.protocols.open import encode
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.schema.events import DdlEvent


class OpenControl:
    """See `protocols.common.messages.ControlMessages`. DDLs are compressed like rows; the empty value of a resolved event is not."""

    ddl_on_first_partition = False

    def __init__(self, options: EncodingOptions) -> None:
        self._compress = compressor(options.large_message.compression)

    def ddl_message(self, event: DdlEvent) -> KeyValue | None:
        return encode.ddl_message(event, self._compress)

    def resolved_message(self, ts: int) -> KeyValue | None:
        return encode.resolved_message(ts)


def control_messages(options: EncodingOptions) -> OpenControl:
    """Return the control messages of a changefeed."""
    return OpenControl(options)
