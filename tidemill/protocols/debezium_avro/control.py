"""Debezium's Avro has no control messages: Debezium itself writes DDLs to a topic of their own, and knows no watermarks."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.protocols.common.messages import KeyValue
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.schema.events import DdlEvent


class NoControl:
    """See `protocols.common.messages.ControlMessages`."""

    ddl_on_first_partition = False

    def ddl_message(self, event: DdlEvent) -> KeyValue | None:
        return None

    def resolved_message(self, ts: int) -> KeyValue | None:
        return None


def control_messages(options: EncodingOptions, clock: Callable[[], int]) -> NoControl:
    """Return the control messages of a changefeed."""
    return NoControl()
