"""What protocol canal says besides rows: DDLs, on partition 0. It has no word for a resolved ts."""

from __future__ import annotations

from tidemill.protocols.canal import encode
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.schema.events import DdlEvent


class CanalControl:
    """See `protocols.common.messages.ControlMessages`."""

    ddl_on_first_partition = True

    def ddl_message(self, event: DdlEvent) -> tuple[bytes | None, bytes | None] | None:
        return None, encode.packet([encode.ddl_entry(event)])

    def resolved_message(self, ts: int) -> tuple[bytes | None, bytes | None] | None:
        return None


def control_messages(options: EncodingOptions) -> CanalControl:
    """The control messages of a changefeed. No option changes them."""
    return CanalControl()
