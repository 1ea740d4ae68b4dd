"""Protobuf messages that nobody sends on purpose: extreme numbers, unknown enums, texts that are no addresses, versions or UTF-8."""

from __future__ import annotations

from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field

TEXTS = ("", f"v{'9' * 5000}.1.1", "unix:///etc/passwd", "dns:///x", "127.0.0.1:1", "http://[", "a b:c", "x\0y:1", "v8.5.1", "not found")
_DEPTH = 5
_NUMBERS = {
    Field.CPPTYPE_INT32: (0, 1, -1, 2**31 - 1, -(2**31)),
    Field.CPPTYPE_INT64: (0, 1, -1, 2**46, 2**63 - 1, -(2**63)),
    Field.CPPTYPE_UINT32: (0, 1, 2**32 - 1),
    Field.CPPTYPE_UINT64: (0, 1, 7, 2**64 - 1),
    Field.CPPTYPE_DOUBLE: (0.0, -1.0, float("inf"), float("nan")),
    Field.CPPTYPE_FLOAT: (0.0, 1.0),
    Field.CPPTYPE_BOOL: (False, True),
    Field.CPPTYPE_ENUM: (0, 1, 2, 77, -5),
}


def fill(message: Any, random: Random, depth: int = 0) -> Any:
    """Set most fields of a message, and return it."""
    for field in message.DESCRIPTOR.fields:
        if random.random() < 0.25 or (field.message_type is not None and depth >= _DEPTH):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        for _ in range(random.choice((0, 1, 1, 2)) if field.is_repeated else 1):
            if field.message_type is not None:
                inner = getattr(message, field.name)
                fill(inner.add() if field.is_repeated else inner, random, depth + 1)
            elif field.is_repeated:
                getattr(message, field.name).append(_value(field, random))
            else:
                setattr(message, field.name, _value(field, random))
    return message


def _value(field: Any, random: Random) -> Any:
    if field.type == Field.TYPE_BYTES:
        return random.choice((b"", b"\0\xff", b"t\x80" * 9, b"z" * 9))
    return random.choice(TEXTS if field.type == Field.TYPE_STRING else _NUMBERS[field.cpp_type])
