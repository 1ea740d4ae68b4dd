"""Frames of HTTP/2 (RFC 9113), and the headers and trailers of gRPC's answers. Pure functions of bytes.

Headers are written as literals that are not indexed, so there is no table of sent headers, and a peer's SETTINGS_HEADER_TABLE_SIZE is met
whatever it is.
"""

from __future__ import annotations

import struct
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = 9
"""Bytes of a frame before its payload."""
PREFIX = 5
"""Bytes of gRPC before a message: 1 if it is compressed, and its length."""

END_STREAM = ACK = 1
END_HEADERS, PADDED, PRIORITY_FLAG = 4, 8, 32

FIRST_WINDOW, LARGEST_WINDOW = 65535, (1 << 31) - 1
LEAST_FRAME, LARGEST_FRAME = 16384, (1 << 24) - 1


class Frame(IntEnum):
    """Types of frames."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Setting(IntEnum):
    """What one side tells the other of itself."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Code(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Status(IntEnum):
    """How a call of gRPC ended."""

    OK = 0
    UNKNOWN = 2
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15


_HEAD = struct.Struct(">HBBBI")
_MESSAGE_BYTES = 4096
"""Of a grpc-message, at most."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame."""
    return _HEAD.pack(len(payload) >> 8, len(payload) & 255, kind, flags, stream) + payload


def settings(values: dict[Setting, int]) -> bytes:
    """Return a SETTINGS frame."""
    return frame(Frame.SETTINGS, 0, 0, b"".join(struct.pack(">HI", key, value) for key, value in values.items()))


def window_update(stream: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame."""
    return frame(Frame.WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


def rst_stream(stream: int, code: Code) -> bytes:
    """Return a RST_STREAM frame."""
    return frame(Frame.RST_STREAM, 0, stream, struct.pack(">I", code))


def goaway(last: int, code: Code, text: str = "") -> bytes:
    """Return a GOAWAY frame: streams above `last` were not looked at."""
    return frame(Frame.GOAWAY, 0, 0, struct.pack(">II", last, code) + text.encode()[:256])


def data_frames(data: bytes, most: int, stream: int) -> bytes:
    """Cut bytes into DATA frames of at most `most` bytes; the plain twin of the kernel."""
    return b"".join(frame(Frame.DATA, 0, stream, data[at : at + most]) for at in range(0, len(data), most))


def prefixed(message: bytes) -> bytes:
    """Return a message of gRPC with its prefix."""
    return struct.pack(">BI", 0, len(message)) + message


def _integer(value: int, bits: int, first: int = 0) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    out = bytearray([first | most])
    value -= most
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def literal(name: bytes, value: bytes) -> bytes:
    """Return a header that goes into no table."""
    return b"\x00" + _integer(len(name), 7) + name + _integer(len(value), 7) + value


_STATUS_200 = b"\x88"
OPENING = _STATUS_200 + literal(b"content-type", b"application/grpc")
"""The headers of an answer."""


def _quoted(message: str) -> bytes:
    """A grpc-message: bytes that are not printable ASCII, and the percent sign, as %XX."""
    data = message.encode("utf-8", "replace")[:_MESSAGE_BYTES]
    return "".join(chr(byte) if 0x20 <= byte <= 0x7E and byte != 0x25 else f"%{byte:02X}" for byte in data).encode()


def trailers(status: Status, message: str = "") -> bytes:
    """Return the block that ends an answer."""
    block = literal(b"grpc-status", str(int(status)).encode())
    if message:
        block += literal(b"grpc-message", _quoted(message))
    return block


def refusal(http: int, status: Status, message: str) -> bytes:
    """Return the only block of an answer that has nothing but its end. `http`: the status of HTTP."""
    opening = OPENING if http == 200 else b"\x08" + _integer(3, 7) + str(http).encode() + literal(b"content-type", b"application/grpc")
    return opening + literal(b"grpc-accept-encoding", b"identity") + trailers(status, message)
