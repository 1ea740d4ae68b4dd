"""Debezium's JSON as TiCDC writes it: one row a message with its key, DDLs, watermarks; with schema blocks or without. See TYPES.md.

In: rows, DDLs, resolved ts; or messages. Out: messages; or events. Read `encode.py` first, then `values.py` and `fields.py`.
"""

from tidemill.protocols.debezium.control import control_messages
from tidemill.protocols.debezium.ddl import ddl_message
from tidemill.protocols.debezium.decode import decode
from tidemill.protocols.debezium.encode import DebeziumTable, watermark_message
from tidemill.protocols.debezium.events import Column, DdlMessage, Event, RowEvent, RowKind, TableChange, Watermark

__all__ = [
    "Column",
    "DdlMessage",
    "DebeziumTable",
    "Event",
    "RowEvent",
    "RowKind",
    "TableChange",
    "Watermark",
    "control_messages",
    "ddl_message",
    "decode",
    "watermark_message",
]
