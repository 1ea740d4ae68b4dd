"""large-message-handle-compression: one value ↔ a raw Snappy block or an LZ4 frame.

A message does not say whether its values are compressed; their first bytes do. An LZ4 frame begins with a magic number. A JSON object
begins with a brace and a quotation mark, which no Snappy block does: it would begin by copying bytes that do not exist yet.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tidemill.budget import MESSAGE, Budget
from tidemill.protocols.options import Compression

Compress = Callable[[bytes], bytes]

LZ4_MAGIC = b"\x04\x22\x4d\x18"
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


def expand(data: bytes, budget: Budget | None = None) -> bytes:
    """Expand a value to its JSON text. `budget`: of the message (None: one of MESSAGE). Raises ValueError for broken bytes, OverBudget."""
    kind = kind_of(data)
    if kind is Compression.NONE:
        return data
    budget = budget or Budget(MESSAGE)
    return _expand_snappy(data, budget) if kind is Compression.SNAPPY else _expand_lz4(data, budget)


def _expand_snappy(data: bytes, budget: Budget) -> bytes:
    size = _snappy_size(data)
    if size < 0 or size > _SNAPPY_RATIO * len(data):
        raise ValueError("it is neither JSON nor a Snappy block")
    budget.spend("bytes_out", size)
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


def _expand_lz4(data: bytes, budget: Budget) -> bytes:
    parts = []
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "lz4") as stream:
            while piece := stream.read(min(_CHUNK, budget.left("bytes_out") + 1)):
                budget.spend("bytes_out", len(piece))
                parts.append(piece)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"it is a broken LZ4 frame: {error}") from None
    return b"".join(parts)
