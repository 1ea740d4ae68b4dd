"""Avro's binary encoding, as far as records of a table need it, and the head that Confluent puts before it."""

from __future__ import annotations

import struct

MAGIC = b"\x00"
HEAD_SIZE = 5
"""Magic byte and schema id, four bytes, big-endian."""

_MASK64 = (1 << 64) - 1


def head(schema_id: int) -> bytes:
    """What a message begins with."""
    return MAGIC + struct.pack(">I", schema_id)


def varint(number: int) -> bytes:
    """`int` and `long`: zig-zag, seven bits a byte, the lowest first. A number beyond int64 wraps around."""
    number &= _MASK64
    rest = (number << 1 & _MASK64) ^ (_MASK64 if number >> 63 else 0)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def sized(data: bytes) -> bytes:
    """`bytes` and `string`: the length and the bytes."""
    return varint(len(data)) + data


def shortest(number: int) -> bytes:
    """Big-endian two's complement in as few bytes as hold it; 0 is one byte."""
    size = (number + (number < 0)).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True)


def shortest_unsigned(number: int) -> bytes:
    """Big-endian in as few bytes as hold it; 0 is one byte."""
    return number.to_bytes(max((number.bit_length() + 7) // 8, 1), "big")
