"""What protocol canal says besides rows: DDLs, on partition 0. It has no message for a resolved ts."""

from __future__ import annotations

from tidemill.protocols.canal import encode, entries
from tidemill.protocols.common.messages import KeyValue
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.schema.events import DdlEvent


class CanalControl:
    """See `protocols.common.messages.ControlMessages`."""

    ddl_on_first_partition = True

    def ddl_message(self, event: DdlEvent) -> KeyValue | None:
        return None, encode.packet([encode.ddl_entry(event)])

    def resolved_message(self, ts: int) -> KeyValue | None:
        return None


class EntryControl:
    """A DDL as an entry of Canal's own form."""

    ddl_on_first_partition = True

    def __init__(self, server_id: int) -> None:
        self._server_id = server_id

    def ddl_message(self, event: DdlEvent) -> KeyValue | None:
        return None, entries.ddl_entry(event, server_id=self._server_id)

    def resolved_message(self, ts: int) -> KeyValue | None:
        return None


def control_messages(options: EncodingOptions) -> CanalControl | EntryControl:
    """The control messages of a changefeed."""
    return CanalControl() if options.canal_server_id is None else EntryControl(options.canal_server_id)
