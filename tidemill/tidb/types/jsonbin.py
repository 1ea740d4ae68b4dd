"""JSON as TiDB stores it, to text and back. A value is a type code and a body; containers point at their members by offsets.

Integers are little-endian; offsets count from the body of their container. A container is
`count u32, size u32, [key offset u32, key length u16]*, [type u8, offset u32 or literal]*`, then keys and bodies.

The reader trusts no offset. All the parts that it visits may together not be longer than the document, so bodies that point at
each other raise MalformedBytes instead of giving endless text.
"""

from __future__ import annotations

import base64
import enum
import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tidemill.errors import MalformedBytes
from tidemill.tidb.codec import decode_uvarint, encode_uvarint, take
from tidemill.tidb.types.floats import go_float, mysql_json_float
from tidemill.tidb.types.jsonstyle import JsonStyle
from tidemill.tidb.types.times import MAX_FSP, format_date, format_datetime, format_duration, from_core


class JsonType(enum.IntEnum):
    """Type codes."""

    OBJECT = 0x01
    ARRAY = 0x03
    LITERAL = 0x04
    INT64 = 0x09
    UINT64 = 0x0A
    DOUBLE = 0x0B
    STRING = 0x0C
    OPAQUE = 0x0D
    DATE = 0x0E
    DATETIME = 0x0F
    TIMESTAMP = 0x10
    DURATION = 0x11


_LITERALS = ("null", "true", "false")
_FIXED_SIZES = {
    JsonType.LITERAL: 1,
    JsonType.INT64: 8,
    JsonType.UINT64: 8,
    JsonType.DOUBLE: 8,
    JsonType.DATE: 8,
    JsonType.DATETIME: 8,
    JsonType.TIMESTAMP: 8,
    JsonType.DURATION: 12,
}
_TYPES = {int(code): code for code in JsonType}
_HEADER, _KEY_ENTRY, _VALUE_ENTRY = 8, 6, 5

_ESCAPES: dict[int, str] = {code: f"\\u{code:04x}" for code in range(0x20)}
_ESCAPES |= {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 0x22: '\\"', 0x5C: "\\\\", 0x2028: "\\u2028", 0x2029: "\\u2029"}
_ESCAPES |= dict.fromkeys(range(0xDC80, 0xDD00), "\\ufffd")  # what surrogateescape makes of a byte that is not UTF-8
"""Inside strings; `<`, `>`, `&` and `/` stay as they are."""
_ESCAPES_OF = {JsonStyle.GO: _ESCAPES | {8: "\\u0008", 12: "\\u000c"}, JsonStyle.MYSQL: _ESCAPES}
_FLOAT_OF = {JsonStyle.GO: go_float, JsonStyle.MYSQL: mysql_json_float}


def json_quote(data: bytes, style: JsonStyle = JsonStyle.GO) -> str:
    """Return a string with quotes and escapes, as TiDB prints it. Each byte that is not UTF-8 becomes `\\ufffd`, six characters."""
    return '"' + data.decode("utf-8", "surrogateescape").translate(_ESCAPES_OF[style]) + '"'


# Reading


class _Value(NamedTuple):
    """A value inside a document: its type, its body, and where the container around it ends."""

    type: JsonType
    start: int
    limit: int


def _type_at(buf: bytes, pos: int) -> JsonType:
    code = take(buf, pos, 1, "a JSON type code")[0]
    found = _TYPES.get(code)
    if found is None:
        raise MalformedBytes(f"the JSON type code at byte {pos} is {code:#04x}, which does not exist")
    return found


def _u32(buf: bytes, pos: int, what: str) -> int:
    return int.from_bytes(take(buf, pos, 4, what), "little")


def _body_size(kind: JsonType, buf: bytes, start: int) -> int:
    """Return the size of a body in bytes. The buffer may end before."""
    fixed = _FIXED_SIZES.get(kind)
    if fixed is not None:
        return fixed
    if kind in (JsonType.OBJECT, JsonType.ARRAY):
        return _u32(buf, start + 4, "the size of a JSON container")
    length_at = start + 1 if kind is JsonType.OPAQUE else start
    length, data = decode_uvarint(buf, length_at)
    return data - start + length


def json_size(buf: bytes, pos: int = 0) -> int:
    """Return the size of the document at `pos`, type code and body. Raises MalformedBytes when the buffer ends before."""
    size = 1 + _body_size(_type_at(buf, pos), buf, pos + 1)
    take(buf, pos, size, "a JSON document")
    return size


def json_text(document: bytes, style: JsonStyle = JsonStyle.GO) -> str:
    """Print a stored document as TiDB does: `{"a": 1, "b": [1, 2.5]}`. Raises MalformedBytes."""
    size = json_size(document)
    if size != len(document):
        raise MalformedBytes(f"a JSON document of {size} bytes is followed by {len(document) - size} more")
    left = len(document)  # bytes that may still be visited
    out: list[str] = []
    todo: list[_Value | str] = [_Value(_type_at(document, 0), 1, len(document))]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            out.append(item)
            continue
        if item.type in (JsonType.OBJECT, JsonType.ARRAY):
            parts, visited = _members(document, item, style)
            todo += reversed(parts)
        else:
            text, visited = _scalar(document, item, style)
            out.append(text)
        left -= visited
        if left < 0:
            raise MalformedBytes(f"the parts of a JSON document of {len(document)} bytes overlap")
    return "".join(out)


def _members(buf: bytes, value: _Value, style: JsonStyle) -> tuple[list[_Value | str], int]:
    """Return the members of a container with the text around them, and the size of its head and keys."""
    start, is_object = value.start, value.type is JsonType.OBJECT
    count = _u32(buf, start, "the count of a JSON container")
    end = start + _body_size(value.type, buf, start)
    values_at = start + _HEADER + (count * _KEY_ENTRY if is_object else 0)
    head_end = values_at + count * _VALUE_ENTRY
    if not head_end <= end <= value.limit:
        raise MalformedBytes(f"the JSON container at byte {start} has {count} members and ends at {end}, inside of {value.limit} bytes")
    parts: list[_Value | str] = ["{" if is_object else "["]
    visited = head_end - start
    for index in range(count):
        if index:
            parts.append(", ")
        if is_object:
            key = _key(buf, start, index, head_end, end)
            visited += len(key)
            parts.append(json_quote(key, style) + ": ")
        parts.append(_member(buf, start, values_at + index * _VALUE_ENTRY, head_end, end))
    parts.append("}" if is_object else "]")
    return parts, visited


def _key(buf: bytes, start: int, index: int, head_end: int, end: int) -> bytes:
    offset, length = struct.unpack_from("<IH", buf, start + _HEADER + index * _KEY_ENTRY)
    if start + offset < head_end or start + offset + length > end:
        raise MalformedBytes(f"key {index} of the JSON object at byte {start} lies outside of it")
    return buf[start + offset : start + offset + length]


def _member(buf: bytes, start: int, entry: int, head_end: int, end: int) -> _Value:
    kind = _type_at(buf, entry)
    if kind is JsonType.LITERAL:
        return _Value(kind, entry + 1, end)
    offset = _u32(buf, entry + 1, "a JSON offset")
    if not head_end <= start + offset < end:
        raise MalformedBytes(f"the JSON offset at byte {entry + 1} points to {start + offset}, outside of {head_end} to {end}")
    return _Value(kind, start + offset, end)


def _scalar(buf: bytes, value: _Value, style: JsonStyle) -> tuple[str, int]:
    """Return a scalar as text, and the size of its body. A literal has none: it stands in an entry that is already counted."""
    kind, start, limit = value
    size = _body_size(kind, buf, start)
    if start + size > limit:
        raise MalformedBytes(f"the JSON {kind.name.lower()} at byte {start} needs {size} bytes, {limit - start} are left")
    body = buf[start : start + size]
    match kind:
        case JsonType.LITERAL:
            if body[0] >= len(_LITERALS):
                raise MalformedBytes(f"the JSON literal at byte {start} is {body[0]}, expected 0 null, 1 true or 2 false")
            return _LITERALS[body[0]], 0
        case JsonType.INT64:
            return str(int.from_bytes(body, "little", signed=True)), size
        case JsonType.UINT64:
            return str(int.from_bytes(body, "little")), size
        case JsonType.DOUBLE:
            return _double(body, start, style), size
        case JsonType.STRING:
            return json_quote(body[decode_uvarint(body)[1] :], style), size
        case JsonType.OPAQUE:
            data = body[decode_uvarint(body, 1)[1] :]
            return f'"base64:type{body[0]}:{base64.b64encode(data).decode()}"', size
        case JsonType.DURATION:
            return f'"{format_duration(int.from_bytes(body[:8], "little", signed=True), MAX_FSP)}"', size
        case JsonType.DATE:
            return f'"{format_date(from_core(int.from_bytes(body, "little")))}"', size
    return f'"{format_datetime(from_core(int.from_bytes(body, "little")), MAX_FSP)}"', size


def _double(body: bytes, start: int, style: JsonStyle) -> str:
    (number,) = struct.unpack("<d", body)
    if not math.isfinite(number):
        raise MalformedBytes(f"the JSON double at byte {start} is {number}, which JSON cannot hold")
    return _FLOAT_OF[style](number)


# Writing


def encode_json(value: object) -> bytes:
    """Encode a Python value (None, bool, int, float, str, list, dict with str keys). Keys are sorted by their bytes.

    Integers beyond 64 bits become doubles, as TiDB's parser does it. Raises TypeError, ValueError (NaN, a key over 64 KiB).
    """
    kind, body = _encode(value)
    return bytes([kind]) + body


def _encode(value: object) -> tuple[JsonType, bytes]:
    match value:
        case None:
            return JsonType.LITERAL, b"\x00"
        case bool():
            return JsonType.LITERAL, b"\x01" if value else b"\x02"
        case int() if -(1 << 63) <= value < 1 << 63:
            return JsonType.INT64, value.to_bytes(8, "little", signed=True)
        case int() if 0 < value < 1 << 64:
            return JsonType.UINT64, value.to_bytes(8, "little")
        case int() | float():
            number = float(value)
            if not math.isfinite(number):
                raise ValueError(f"JSON cannot hold {number}")
            return JsonType.DOUBLE, struct.pack("<d", number)
        case str():
            data = value.encode()
            return JsonType.STRING, encode_uvarint(len(data)) + data
        case Mapping():
            return JsonType.OBJECT, _encode_container(
                [_encode(value[k]) for k in _sorted_keys(value)], [k.encode() for k in _sorted_keys(value)]
            )
        case Sequence():
            return JsonType.ARRAY, _encode_container([_encode(member) for member in value], None)
    raise TypeError(f"JSON cannot hold {type(value).__name__}")


def _sorted_keys(value: Mapping[str, object]) -> list[str]:
    return sorted(value, key=str.encode)


def _encode_container(members: list[tuple[JsonType, bytes]], keys: list[bytes] | None) -> bytes:
    head = _HEADER + len(members) * (_VALUE_ENTRY + (_KEY_ENTRY if keys is not None else 0))
    entries, tail = bytearray(), bytearray()
    for key in keys or ():
        if len(key) > 0xFFFF:
            raise ValueError(f"a JSON key of {len(key)} bytes is longer than 65535")
        entries += struct.pack("<IH", head + len(tail), len(key))
        tail += key
    for kind, body in members:
        if kind is JsonType.LITERAL:
            entries += struct.pack("<B4s", kind, body)
        else:
            entries += struct.pack("<BI", kind, head + len(tail))
            tail += body
    return struct.pack("<II", len(members), head + len(tail)) + entries + tail


def encode_json_text(text: str) -> bytes:
    """Encode JSON text that a user wrote, as TiDB stores it: -0 is the integer 0, the last of equal keys counts. Raises ValueError."""
    return _encoded(text, int)


def encode_printed_json(text: str) -> bytes:
    """Encode JSON text that TiDB printed (`json_text`). -0 is a double here: no integer is printed so. Raises ValueError."""
    return _encoded(text, lambda number: -0.0 if number == "-0" else int(number))


def printed_style(text: str) -> JsonStyle:
    """Return the style in which a document was printed, or GO where the text does not show it."""
    if not _TELLING.search(text):
        return JsonStyle.GO
    document = encode_printed_json(text)
    return JsonStyle.MYSQL if json_text(document, JsonStyle.MYSQL) == text != json_text(document) else JsonStyle.GO


_TELLING = re.compile(r"[0-9][.e]|\\[bf]")
"""Text that shows which style printed a document."""


def _encoded(text: str, parse_int: Callable[[str], int | float]) -> bytes:
    try:
        return encode_json(json.loads(text, parse_int=parse_int))
    except RecursionError:
        raise ValueError("the JSON text is nested too deeply") from None
