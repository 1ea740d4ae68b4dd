"""Canal-JSON as TiCDC writes it: one JSON object a message. See TYPES.md for the columns."""

from tidemill.protocols.canal_json.encode import CanalJsonTable, ddl_message, watermark_message
from tidemill.protocols.canal_json.words import words

__all__ = ["CanalJsonTable", "ddl_message", "watermark_message", "words"]
