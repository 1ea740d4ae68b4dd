"""TiCDC's simple protocol as JSON: one object a message, tables described in messages of their own. See TYPES.md."""

from tidemill.protocols.simple.decode import SimpleDecoder, decode
from tidemill.protocols.simple.encode import SimpleTable, ddl_message, watermark_message
from tidemill.protocols.simple.events import Bootstrap, DdlMessage, Event, RowEvent, RowKind, TableSchema, Watermark
from tidemill.protocols.simple.words import words

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
    "ddl_message",
    "decode",
    "watermark_message",
    "words",
]
