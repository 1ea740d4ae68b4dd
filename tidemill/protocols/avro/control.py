"""Avro's control messages. There are none, except with avro-enable-watermark, TiCDC's switch for its own tests."""

from __future__ import annotations

from tidemill.protocols.common.gotext import json_string
from tidemill.protocols.common.messages import KeyValue
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.schema.events import DdlEvent

DDL = b"\x01"
CHECKPOINT = b"\x02"


class AvroControl:
    """See `protocols.common.messages.ControlMessages`. A message is a kind byte, then JSON or eight bytes of ts. It has no key."""

    ddl_on_first_partition = False

    def __init__(self, options: EncodingOptions) -> None:
        self._speaks = options.avro.enable_watermark

    def ddl_message(self, event: DdlEvent) -> KeyValue | None:
        """Return a message with the statement, its type, schema, table and ts."""
        if not self._speaks:
            return None
        query, schema, table = (json_string(text.encode()) for text in (event.query, event.schema, event.table or ""))
        members = (query, event.type, schema, table, event.ts)
        return None, DDL + b'{"query":%s,"type":%d,"schema":%s,"table":%s,"commitTs":%d}' % members

    def resolved_message(self, ts: int) -> KeyValue | None:
        """Return a message with the ts."""
        return (None, CHECKPOINT + ts.to_bytes(8, "big")) if self._speaks else None


def control_messages(options: EncodingOptions) -> AvroControl:
    """Return the control messages of a changefeed."""
    return AvroControl(options)
