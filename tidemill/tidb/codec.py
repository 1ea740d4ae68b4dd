"""TiDB's primitive encodings: memcomparable bytes and numbers, and varints. Datums are made of them (`datums`).

Decoders take a buffer and a position and return the value with the position after it. They trust nothing: whatever they cannot
read raises MalformedBytes with the position and what they expected there. The rules are those of TiDB's `util/codec`.
"""

from __future__ import annotations

import struct

from tidemill.errors import MalformedBytes

GROUP = 8
"""Data bytes of a group of memcomparable bytes; a marker follows each group."""

SIGN = 1 << 63
_MASK64 = (1 << 64) - 1
_MAX_VARINT = 10  # bytes of a 64-bit LEB128


def take(buf: bytes, pos: int, size: int, what: str) -> bytes:
    """Return `size` bytes at `pos`. Raises MalformedBytes when the buffer ends before."""
    end = pos + size
    if size < 0 or end > len(buf):
        raise MalformedBytes(f"{what} at byte {pos} needs {size} bytes, {len(buf) - pos} are left")
    return buf[pos:end]


# Memcomparable bytes


def encode_bytes(data: bytes) -> bytes:
    """Encode bytes in groups of 8, each followed by a marker. The result sorts as the plain bytes do, and its end can be found."""
    out = bytearray()
    for start in range(0, len(data) + 1, GROUP):
        group = data[start : start + GROUP]
        pad = GROUP - len(group)
        out += group + bytes(pad)
        out.append(0xFF - pad)
    return bytes(out)


def decode_bytes(buf: bytes, pos: int = 0) -> tuple[bytes, int]:
    """Return the inverse of encode_bytes. Raises MalformedBytes."""
    out = bytearray()
    while True:
        group = take(buf, pos, GROUP + 1, "a group of memcomparable bytes")
        pad = 0xFF - group[GROUP]
        if pad > GROUP:
            raise MalformedBytes(f"memcomparable bytes: the marker at byte {pos + GROUP} is {group[GROUP]:#04x}, expected 0xf7 to 0xff")
        if any(group[GROUP - pad : GROUP]):
            raise MalformedBytes(f"memcomparable bytes: the padding of the group at byte {pos} is not zero")
        out += group[: GROUP - pad]
        pos += GROUP + 1
        if pad:
            return bytes(out), pos


# Fixed-size numbers


def encode_int(value: int) -> bytes:
    """Encode a signed 64-bit integer: sign bit flipped, big-endian."""
    return (value + SIGN).to_bytes(8, "big")


def decode_int(buf: bytes, pos: int = 0) -> tuple[int, int]:
    """Return the inverse of encode_int. Raises MalformedBytes."""
    return int.from_bytes(take(buf, pos, 8, "an integer"), "big") - SIGN, pos + 8


def encode_uint(value: int) -> bytes:
    """Encode an unsigned 64-bit integer, big-endian."""
    return value.to_bytes(8, "big")


def decode_uint(buf: bytes, pos: int = 0) -> tuple[int, int]:
    """Return the inverse of encode_uint. Raises MalformedBytes."""
    return int.from_bytes(take(buf, pos, 8, "an unsigned integer"), "big"), pos + 8


def encode_uint_desc(value: int) -> bytes:
    """Encode an unsigned 64-bit integer so that it sorts in descending order, as the timestamp of an MVCC key does."""
    return (value ^ _MASK64).to_bytes(8, "big")


def decode_uint_desc(buf: bytes, pos: int = 0) -> tuple[int, int]:
    """Return the inverse of encode_uint_desc. Raises MalformedBytes."""
    value, pos = decode_uint(buf, pos)
    return value ^ _MASK64, pos


def encode_float(value: float) -> bytes:
    """Encode a double so that it sorts by value: numbers from 0 up get the sign bit set, negative ones all bits inverted.

    -0.0 is written as 0.0, because TiDB tests `value >= 0`.
    """
    (bits,) = struct.unpack(">Q", struct.pack(">d", value))
    bits = bits | SIGN if value >= 0 else bits ^ _MASK64
    return encode_uint(bits)


def decode_float(buf: bytes, pos: int = 0) -> tuple[float, int]:
    """Return the inverse of encode_float. Raises MalformedBytes."""
    bits, pos = decode_uint(buf, pos)
    bits = bits ^ SIGN if bits & SIGN else bits ^ _MASK64
    (value,) = struct.unpack(">d", struct.pack(">Q", bits))
    return value, pos


# Varints


def encode_uvarint(value: int) -> bytes:
    """Encode as LEB128."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uvarint(buf: bytes, pos: int = 0) -> tuple[int, int]:
    """Decode a LEB128 of at most 64 bits. Raises MalformedBytes."""
    value = 0
    for index in range(_MAX_VARINT):
        byte = take(buf, pos + index, 1, "a varint")[0]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if value > _MASK64:
                break
            return value, pos + index + 1
    raise MalformedBytes(f"the varint at byte {pos} has more than 64 bits")


def encode_varint(value: int) -> bytes:
    """Encode as zig-zag, then LEB128."""
    return encode_uvarint((value << 1 ^ value >> 63) & _MASK64)


def decode_varint(buf: bytes, pos: int = 0) -> tuple[int, int]:
    """Return the inverse of encode_varint. Raises MalformedBytes."""
    value, pos = decode_uvarint(buf, pos)
    return value >> 1 ^ -(value & 1), pos


def encode_compact_bytes(data: bytes) -> bytes:
    """Return the length as a varint, then the bytes."""
    return encode_varint(len(data)) + data


def decode_compact_bytes(buf: bytes, pos: int = 0) -> tuple[bytes, int]:
    """Return the inverse of encode_compact_bytes. Raises MalformedBytes."""
    size, start = decode_varint(buf, pos)
    return take(buf, start, size, "compact bytes"), start + size
