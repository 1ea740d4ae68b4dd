"""TiCDC's Open Protocol: messages of up to 16 events, each with key and value JSON after their lengths. See TYPES.md for the columns.

In: rows, DDLs, resolved ts; or messages. Out: messages; or events. Read `events.py`, then `encode.py`.
"""

from tidemill.protocols.open.control import control_messages
from tidemill.protocols.open.decode import Fault, OpenMessageError, decode, texts
from tidemill.protocols.open.encode import OpenTable, ddl_message, resolved_message
from tidemill.protocols.open.events import Column, DdlMessage, Event, ResolvedMessage, RowEvent, RowKind

__all__ = [
    "Column",
    "DdlMessage",
    "Event",
    "Fault",
    "OpenMessageError",
    "OpenTable",
    "ResolvedMessage",
    "RowEvent",
    "RowKind",
    "control_messages",
    "ddl_message",
    "decode",
    "resolved_message",
    "texts",
]
