"""TiCDC's simple protocol as JSON: one object a message, tables described in messages of their own. See TYPES.md."""

from tidemill.protocols.simple.encode import SimpleTable, ddl_message, watermark_message
from tidemill.protocols.simple.words import words

__all__ = ["SimpleTable", "ddl_message", "watermark_message", "words"]
