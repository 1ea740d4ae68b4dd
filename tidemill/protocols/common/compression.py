"""large-message-handle-compression: one value ↔ a raw Snappy block or an LZ4 frame.

A message does not say whether its values are compressed; their first bytes do. An LZ4 frame begins with a magic number. A JSON object
begins with a brace and a quotation mark, which no Snappy block does: it would begin by copying bytes that do not exist yet.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tidemill.protocols.options import Compression

Compress = Callable[[bytes], bytes]

LZ4_MAGIC = b"\x04\x22\x4d\x18"
MAX_EXPANDED = 256 << 20
"""The default limit for the size of an expanded value. TiDB's largest transaction entries fit, escaped."""

_BLANKS = b" \t\r\n"
_SNAPPY_RATIO = 22  # a tag of 3 bytes gives at most 64
_CHUNK = 1 << 20


def compressor(kind: Compression) -> Compress | None:
    """Return the function that compresses a value, or None for no compression."""
    if kind is Compression.NONE:
        return None
    codec = pa.Codec("snappy" if kind is Compression.SNAPPY else "lz4")
    return lambda data: bytes(codec.compress(data, asbytes=True))


def kind_of(data: bytes) -> Compression:
    """Return the compression of a value that holds a JSON object."""
    if data.startswith(LZ4_MAGIC):
        return Compression.LZ4
    return Compression.NONE if _begins_object(data) else Compression.SNAPPY


def _begins_object(data: bytes) -> bool:
    """Return whether bytes begin like a JSON object, or are too few to tell."""
    text = data[:64].lstrip(_BLANKS)
    return not text or (text.startswith(b"{") and text[1:].lstrip(_BLANKS)[:1] in (b"", b'"', b"}"))


def expand(data: bytes, limit: int = MAX_EXPANDED) -> bytes:
    """Expand a value to its JSON text. Raises ValueError for broken bytes, or where the text would exceed the limit."""
    kind = kind_of(data)
    if kind is Compression.NONE:
        return data
    return _expand_snappy(data, limit) if kind is Compression.SNAPPY else _expand_lz4(data, limit)


def _expand_snappy(data: bytes, limit: int) -> bytes:
    size = _snappy_size(data)
    if size < 0 or size > _SNAPPY_RATIO * len(data):
        raise ValueError("it is neither JSON nor a Snappy block")
    if size > limit:
        raise ValueError(f"expanded it would be {size} bytes, the limit is {limit}")
    try:
        return bytes(pa.decompress(data, decompressed_size=size, codec="snappy", asbytes=True))
    except (OSError, pa.ArrowException):
        raise ValueError("it is neither JSON nor a Snappy block") from None


def _snappy_size(data: bytes) -> int:
    """Return the expanded size that a block states, a varint of 32 bits, or -1 if it is broken."""
    size = 0
    for i, byte in enumerate(data[:5]):
        size |= (byte & 127) << (7 * i)
        if byte < 128:
            return size
    return -1


def _expand_lz4(data: bytes, limit: int) -> bytes:
    parts, size = [], 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "lz4") as stream:
            while piece := stream.read(min(_CHUNK, limit + 1 - size)):
                size += len(piece)
                if size > limit:
                    raise ValueError(f"expanded it is more than the limit of {limit} bytes")
                parts.append(piece)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"it is a broken LZ4 frame: {error}") from None
    return b"".join(parts)
