"""Canal-JSON as TiCDC writes it: one JSON object a message. See TYPES.md for the columns.

In: rows, DDLs, resolved ts; or messages. Out: messages; or events. Read `encode.py` first.
"""

from tidemill.protocols.canal_json.control import control_messages
from tidemill.protocols.canal_json.decode import decode
from tidemill.protocols.canal_json.encode import CanalJsonTable, ddl_message, watermark_message
from tidemill.protocols.canal_json.events import Column, DdlMessage, Event, RowEvent, RowKind, WatermarkMessage

__all__ = [
    "CanalJsonTable",
    "Column",
    "DdlMessage",
    "Event",
    "RowEvent",
    "RowKind",
    "WatermarkMessage",
    "control_messages",
    "ddl_message",
    "decode",
    "watermark_message",
]
