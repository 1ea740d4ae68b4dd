"""Recognises protocols that the consumer cannot read, for error messages. Pure.

Messages of simple have a `version`, those of Debezium a `payload`, those of Maxwell a `ts` beside `database`. Avro begins with a zero byte
and a schema id, Canal's packet with its version and type.
"""

from __future__ import annotations

from tidemill.budget import MESSAGE, Budget
from tidemill.protocols.open.codes import VERSION

_OPEN = VERSION.to_bytes(8, "big")
_CANAL_PACKET = b"\x10\x01\x18\x07"  # version 1, messages
_AVRO_HEAD = 5


def foreign_protocol(key: bytes | None, value: bytes | None) -> str | None:
    """Return the name of a message's protocol if it cannot be read. None: it can, or the protocol is unknown."""
    if key is not None and key[: len(_OPEN)] == _OPEN:
        return None
    if value is None:
        return "avro" if _is_avro(key) else None  # a delete
    if value[:1] == b"{":
        return _json_protocol(value)
    if value.startswith(_CANAL_PACKET):
        return "canal"
    return "avro" if _is_avro(value) and (key is None or _is_avro(key)) else None


def _is_avro(data: bytes | None) -> bool:
    return data is not None and len(data) > _AVRO_HEAD and data[0] == 0


def _json_protocol(value: bytes) -> str | None:
    try:
        members = Budget(MESSAGE).json(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(members, dict) or "isDdl" in members:
        return None
    if {"version", "type", "commitTs"} <= members.keys():
        return "simple"
    if "payload" in members:
        return "debezium"
    return "maxwell" if {"database", "table", "ts", "type"} <= members.keys() else None
