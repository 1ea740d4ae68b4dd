"""Strings of Canal-JSON. TiCDC's JSON writer has no short escapes for backspace and form feed."""

from __future__ import annotations

from tidemill.protocols.common.gotext import quoted

_ESCAPES = {i: f"\\u{i:04x}" for i in (*range(32), 0x3C, 0x3E, 0x26, 0x2028, 0x2029)} | {
    0x22: '\\"', 0x5C: "\\\\", 10: "\\n", 13: "\\r", 9: "\\t"
}  # fmt: skip


def string(data: bytes) -> bytes:
    """Return a quoted JSON string. Bytes that are not UTF-8 become U+FFFD each, written as an escape."""
    return quoted(data, _ESCAPES)
