"""Constant tables that the encode kernels read. They form one block; its address is passed to every entry point.

Layout (byte offsets): two-digit texts, hex digits, powers of ten, short JSON escapes, base64 pairs, the 128-bit powers of ten of
Schubfach, the bit map of runes that Go prints as they are, the eight CRC-32 tables of `crc.crc32`, 32 bytes of ones and 32 of zeros, the
text of each single-byte rune or invalid byte in strconv.Quote inside JSON (up to seven bytes, and their number), and how TiDB prints
documents: its short escapes and the style of its floats. Each way of printing documents has a block of its own.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from tidemill.kernels.crc import IEEE, crc_tables
from tidemill.protocols.common.gotext import go_quote, json_string, printable_ranges
from tidemill.tidb.types.jsonbin import json_quote
from tidemill.tidb.types.jsonstyle import JsonStyle

O_DIGITS2 = 0
O_HEX = 208
O_POWER = 224  # uint64: 10^0 to 10^19
O_SHORT = 384
O_BASE64 = 512
O_POW10 = O_BASE64 + 8192
POW10_MIN, POW10_MAX = -292, 324
O_PRINTABLE = O_POW10 + (POW10_MAX - POW10_MIN + 1) * 16 + 16
O_CRC = O_PRINTABLE + 0x110000 // 8 + 64
O_MASK = O_CRC + 8192
O_QUOTE = O_MASK + 64
O_DOCUMENT_SHORT = O_QUOTE + 2048 + 64
O_DOCUMENT_FLOAT = O_DOCUMENT_SHORT + 128  # int64: a style of `numbers.w_float`
SIZE = O_DOCUMENT_FLOAT + 64

_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
FLOAT_JSON, FLOAT_PLAIN, FLOAT_MYSQL = 0, 1, 2
"""Styles of `numbers.w_float`: encoding/json's, without exponent, that of documents in newer versions of TiDB."""
_DOCUMENT_FLOATS = {JsonStyle.GO: FLOAT_JSON, JsonStyle.MYSQL: FLOAT_MYSQL}
_SHORT = {0x22: b'"', 0x5C: b"\\", 8: b"b", 12: b"f", 10: b"n", 13: b"r", 9: b"t"}


def _power_of_ten(exponent: int) -> int:
    """Return ceil(10**exponent * 2**s), with s such that it is in [2**127, 2**128). The table of the Schubfach algorithm."""
    if exponent >= 0:
        value: int = 10**exponent
        bits = value.bit_length()
        return value << (128 - bits) if bits <= 128 else -(-value >> (bits - 128))
    divisor: int = 10**-exponent
    shift = 127 + divisor.bit_length()
    value = -(-(1 << shift) // divisor)
    while value >= 1 << 128:
        shift -= 1
        value = -(-(1 << shift) // divisor)
    return value


def _build(style: JsonStyle) -> npt.NDArray[np.uint8]:
    block = bytearray(SIZE)
    block[O_DOCUMENT_FLOAT : O_DOCUMENT_FLOAT + 8] = _DOCUMENT_FLOATS[style].to_bytes(8, "little")
    for char in _SHORT:
        escaped = json_quote(bytes([char]), style)[1:-1]
        block[O_DOCUMENT_SHORT + char] = ord(escaped[1]) if len(escaped) == 2 else 0
    block[O_DIGITS2 : O_DIGITS2 + 200] = b"".join(b"%02d" % i for i in range(100))
    block[O_POWER : O_POWER + 160] = b"".join((10**i).to_bytes(8, "little") for i in range(20))
    block[O_HEX : O_HEX + 16] = b"0123456789abcdef"
    for char, letter in _SHORT.items():
        block[O_SHORT + char] = letter[0]
    block[O_BASE64 : O_BASE64 + 8192] = b"".join(bytes((_BASE64[i >> 6], _BASE64[i & 63])) for i in range(4096))
    for exponent in range(POW10_MIN, POW10_MAX + 1):
        power = _power_of_ten(exponent)
        at = O_POW10 + (exponent - POW10_MIN) * 16
        block[at : at + 16] = (power >> 64).to_bytes(8, "little") + (power & (1 << 64) - 1).to_bytes(8, "little")
    printable = np.zeros(0x110000, np.uint8)
    for first, last in printable_ranges():
        printable[first : last + 1] = 1
    block[O_PRINTABLE : O_PRINTABLE + 0x110000 // 8] = np.packbits(printable, bitorder="little").tobytes()
    block[O_CRC : O_CRC + 8192] = crc_tables(IEEE).tobytes()
    block[O_MASK : O_MASK + 32] = b"\xff" * 32
    for byte in range(256):
        text = json_string(go_quote(bytes([byte])))[1:-1]
        block[O_QUOTE + 8 * byte : O_QUOTE + 8 * byte + 8] = text.ljust(7, b"\0") + bytes([len(text)])
    room = np.zeros(SIZE + 64, np.uint8)
    start = -room.ctypes.data % 64
    aligned = room[start : start + SIZE]
    aligned[:] = np.frombuffer(bytes(block), np.uint8)
    return aligned


TABLES = _build(JsonStyle.GO)
TABLES_AT = TABLES.ctypes.data
_BLOCKS = {JsonStyle.GO: TABLES}


def tables_at(style: JsonStyle = JsonStyle.GO) -> int:
    """Return the address of the block that prints documents in a style."""
    if style not in _BLOCKS:
        _BLOCKS[style] = _build(style)
    return _BLOCKS[style].ctypes.data


def crc_state(data: bytes, state: int = 0xFFFFFFFF) -> int:
    """Return the running state of a CRC32-IEEE after `data`, for a kernel to continue. It is the complement of `zlib.crc32`."""
    return zlib.crc32(data, state ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
