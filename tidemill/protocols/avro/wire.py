"""Avro's binary encoding, as far as records of a table need it, and Confluent's header before it."""

from __future__ import annotations

import struct

from tidemill.tidb.codec import encode_uvarint

MAGIC = b"\x00"
HEAD_SIZE = 5
"""Magic byte and schema id, four bytes, big-endian."""

_DELETED = b"\x03"

_MASK64 = (1 << 64) - 1


def head(schema_id: int) -> bytes:
    """Return Confluent's header of a message."""
    return MAGIC + struct.pack(">I", schema_id)


def deleted(commit_ts: int) -> bytes:
    """Return the value of a delete with avro-enable-watermark: a kind byte and the commit ts."""
    return _DELETED + commit_ts.to_bytes(8, "big")


def varint(number: int) -> bytes:
    """Encode an `int` or `long`: zig-zag, seven bits a byte, the lowest first. A number beyond int64 wraps around."""
    number &= _MASK64
    return encode_uvarint((number << 1 & _MASK64) ^ (_MASK64 if number >> 63 else 0))


def sized(data: bytes) -> bytes:
    """Encode `bytes` or a `string`: the length and the bytes."""
    return varint(len(data)) + data


def shortest(number: int) -> bytes:
    """Encode a number as big-endian two's complement in as few bytes as hold it. 0 takes one byte."""
    size = (number + (number < 0)).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True)


def shortest_unsigned(number: int) -> bytes:
    """Encode a number big-endian in as few bytes as hold it. 0 takes one byte."""
    return number.to_bytes(max((number.bit_length() + 7) // 8, 1), "big")
