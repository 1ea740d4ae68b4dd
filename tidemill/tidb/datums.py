"""Datums: values after a flag byte. Index keys, common handles and rows of format 1 consist of them."""

from __future__ import annotations

import enum
from typing import NamedTuple

from tidemill.errors import MalformedBytes
from tidemill.tidb.codec import (
    decode_bytes,
    decode_compact_bytes,
    decode_float,
    decode_int,
    decode_uint,
    decode_uvarint,
    decode_varint,
    encode_bytes,
    encode_compact_bytes,
    encode_float,
    encode_int,
    encode_uint,
    encode_uvarint,
    encode_varint,
    take,
)
from tidemill.tidb.types.decimals import decode_decimal, encode_decimal
from tidemill.tidb.types.jsonbin import json_size


class DatumFlag(enum.IntEnum):
    """The first byte of a datum: how its body is written."""

    NULL = 0x00
    BYTES = 0x01
    COMPACT_BYTES = 0x02
    INT = 0x03
    UINT = 0x04
    FLOAT = 0x05
    DECIMAL = 0x06
    DURATION = 0x07
    VARINT = 0x08
    UVARINT = 0x09
    JSON = 0x0A
    VECTOR = 0x14
    MAX = 0xFA


_FLAGS = {int(flag): flag for flag in DatumFlag}


class Datum(NamedTuple):
    """A value and the way it was written.

    int: INT, UINT, VARINT, UVARINT, DURATION (nanoseconds); float: FLOAT; str: DECIMAL; bytes: BYTES, COMPACT_BYTES, JSON (type
    code and body), VECTOR (count and elements); None: NULL, MAX.
    """

    flag: DatumFlag
    value: int | float | str | bytes | None


def decode_datum(buf: bytes, pos: int = 0) -> tuple[Datum, int]:
    """Decode a flag byte and its value. Returns the datum and the position after it. Raises MalformedBytes."""
    byte = take(buf, pos, 1, "a datum")[0]
    flag = _FLAGS.get(byte)
    if flag is None:
        raise MalformedBytes(f"the datum at byte {pos} has the unknown flag {byte:#04x}")
    value, end = _decode_body(flag, buf, pos + 1)
    return Datum(flag, value), end


def _decode_body(flag: DatumFlag, buf: bytes, pos: int) -> tuple[int | float | str | bytes | None, int]:
    match flag:
        case DatumFlag.VARINT:
            return decode_varint(buf, pos)
        case DatumFlag.COMPACT_BYTES:
            return decode_compact_bytes(buf, pos)
        case DatumFlag.NULL | DatumFlag.MAX:
            return None, pos
        case DatumFlag.BYTES:
            return decode_bytes(buf, pos)
        case DatumFlag.INT | DatumFlag.DURATION:
            return decode_int(buf, pos)
        case DatumFlag.UINT:
            return decode_uint(buf, pos)
        case DatumFlag.FLOAT:
            return decode_float(buf, pos)
        case DatumFlag.DECIMAL:
            return decode_decimal(buf, pos)
        case DatumFlag.UVARINT:
            return decode_uvarint(buf, pos)
        case DatumFlag.JSON:
            size = json_size(buf, pos)
            return take(buf, pos, size, "a JSON document"), pos + size
        case DatumFlag.VECTOR:
            count = int.from_bytes(take(buf, pos, 4, "the count of a vector"), "little")
            size = 4 + 4 * count
            return take(buf, pos, size, "a vector"), pos + size


def encode_datum(datum: Datum, *, prec: int = 0, frac: int = 0) -> bytes:
    """Return a datum's flag and body; `prec` and `frac` are those of a DECIMAL."""
    flag, value = datum
    head = bytes([flag])
    match flag, value:
        case ((DatumFlag.NULL | DatumFlag.MAX), None):
            return head
        case DatumFlag.BYTES, bytes():
            return head + encode_bytes(value)
        case DatumFlag.COMPACT_BYTES, bytes():
            return head + encode_compact_bytes(value)
        case ((DatumFlag.INT | DatumFlag.DURATION), int()):
            return head + encode_int(value)
        case DatumFlag.UINT, int():
            return head + encode_uint(value)
        case DatumFlag.FLOAT, float():
            return head + encode_float(value)
        case DatumFlag.DECIMAL, str():
            return head + encode_decimal(value, prec, frac)
        case DatumFlag.VARINT, int():
            return head + encode_varint(value)
        case DatumFlag.UVARINT, int():
            return head + encode_uvarint(value)
        case ((DatumFlag.JSON | DatumFlag.VECTOR), bytes()):
            return head + value
    raise TypeError(f"a datum {flag.name} cannot hold {type(value).__name__}")
