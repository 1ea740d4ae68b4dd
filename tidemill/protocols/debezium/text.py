"""JSON as TiCDC's Debezium writer writes it: objects with members in a fixed order, and strings with few escapes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tidemill.protocols.common.gotext import quoted

Json = str | int | bool | None | Mapping[str, "Json"] | Sequence["Json"]

_ESCAPES = {i: f"\\u{i:04x}" for i in range(32)} | {0x22: '\\"', 0x5C: "\\\\", 10: "\\n", 13: "\\r", 9: "\\t"}


def string(data: bytes) -> bytes:
    """Return a quoted JSON string. Only quotes, backslashes and control characters are escaped.

    Bytes that are not UTF-8 become U+FFFD each, written as an escape. TiCDC writes such a byte as it is, which no JSON reader takes.
    """
    return quoted(data, _ESCAPES)


def text(value: str) -> bytes:
    """Return a JSON string."""
    return string(value.encode("utf-8", "surrogateescape"))


def compact(value: Json) -> bytes:
    """Return a value as JSON without spaces, members in the order of the mapping."""
    match value:
        case str():
            return text(value)
        case Mapping():
            return b"{" + b",".join(text(name) + b":" + compact(member) for name, member in value.items()) + b"}"
        case None | bool() | int():
            return json.dumps(value).encode()
    return b"[" + b",".join(compact(one) for one in value) + b"]"
