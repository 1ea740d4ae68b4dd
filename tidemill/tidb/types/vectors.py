"""VECTOR: a count and single-precision numbers, little-endian. Its text is `[1,2.5,-3]`."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

from tidemill.errors import MalformedBytes
from tidemill.tidb.types.floats import go_float_plain


def decode_vector(data: bytes) -> tuple[float, ...]:
    """Return the elements of a stored vector. Raises MalformedBytes."""
    if len(data) < 4:
        raise MalformedBytes(f"a vector needs 4 bytes for its count, {len(data)} are there")
    count = int.from_bytes(data[:4], "little")
    if len(data) != 4 + 4 * count:
        raise MalformedBytes(f"a vector of {count} elements has {4 + 4 * count} bytes, {len(data)} are there")
    return struct.unpack_from(f"<{count}f", data, 4)


def encode_vector(elements: Sequence[float]) -> bytes:
    """Return the inverse of decode_vector."""
    return struct.pack(f"<I{len(elements)}f", len(elements), *elements)


def vector_text(data: bytes) -> str:
    """Print a stored vector: elements without exponent, no spaces. Raises MalformedBytes."""
    try:
        return "[" + ",".join(go_float_plain(element, 32) for element in decode_vector(data)) + "]"
    except ValueError:
        raise MalformedBytes("a vector holds a NaN or an infinity, which TiDB refuses to store") from None


def parse_vector(text: str) -> tuple[float, ...]:
    """Parse the text of a vector. Raises ValueError."""
    elements = json.loads(text)
    if not isinstance(elements, list) or not all(isinstance(e, int | float) for e in elements):
        raise ValueError(f"{text[:60]!r} is not a vector")
    return tuple(float(e) for e in elements)
