"""Canal-JSON as TiCDC writes it: one JSON object a message. See TYPES.md for the columns."""

from tidemill.protocols.canal_json.decode import decode
from tidemill.protocols.canal_json.encode import CanalJsonTable, ddl_message, watermark_message
from tidemill.protocols.canal_json.events import Column, DdlMessage, Event, RowEvent, RowKind, WatermarkMessage
from tidemill.protocols.canal_json.words import words

__all__ = [
    "CanalJsonTable",
    "Column",
    "DdlMessage",
    "Event",
    "RowEvent",
    "RowKind",
    "WatermarkMessage",
    "ddl_message",
    "decode",
    "watermark_message",
    "words",
]
