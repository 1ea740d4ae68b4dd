"""TiCDC's simple protocol as JSON: one object a message. Separate messages describe the tables. See TYPES.md.

In: rows, DDLs, descriptions of tables; or messages. Out: messages; or events. Read `encode.py` first.
"""

from tidemill.protocols.simple.control import control_messages
from tidemill.protocols.simple.decode import SimpleDecoder, decode
from tidemill.protocols.simple.encode import SimpleTable, ddl_message, watermark_message
from tidemill.protocols.simple.events import Bootstrap, DdlMessage, Event, RowEvent, RowKind, TableSchema, Watermark

__all__ = [
    "Bootstrap",
    "DdlMessage",
    "Event",
    "RowEvent",
    "RowKind",
    "SimpleDecoder",
    "SimpleTable",
    "TableSchema",
    "Watermark",
    "control_messages",
    "ddl_message",
    "decode",
    "watermark_message",
]
