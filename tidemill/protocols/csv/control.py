"""CSV has no control messages. The storage sink's own files hold DDLs and progress."""

from __future__ import annotations

from tidemill.protocols.common.messages import KeyValue
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.schema.events import DdlEvent


class CsvControl:
    """See `protocols.common.messages.ControlMessages`."""

    ddl_on_first_partition = False

    def ddl_message(self, event: DdlEvent) -> KeyValue | None:
        return None

    def resolved_message(self, ts: int) -> KeyValue | None:
        return None


def control_messages(options: EncodingOptions) -> CsvControl:
    """Return the control messages of a changefeed."""
    return CsvControl()
