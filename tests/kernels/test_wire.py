"""Varints in kernels read and write what the codec does, refuse what it refuses, and never look behind the end."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemill.errors import MalformedBytes
from tidemill.kernels import wire
from tidemill.kernels.intrinsics import entry, st64
from tidemill.tidb import codec

AHEAD = 16
"""Bytes behind the end that may be read, as `wide_varint` does."""


@entry(3)
def read(a, end, out):
    value, behind = wire.varint(a, end)
    wide, wide_behind = wire.wide_varint(a, end)
    short, short_behind = wire.short_varint(a, end)
    st64(out, value)
    st64(out + 8, behind)
    st64(out + 16, wide)
    st64(out + 24, wide_behind)
    st64(out + 32, short)
    st64(out + 40, short_behind)
    st64(out + 48, wire.unzigzag(value))
    return 7


@entry(2)
def write(p, n):
    return wire.w_varint(p, n)


def found(data: bytes) -> tuple[tuple[int, int] | None, ...]:
    """(value, bytes taken) of each of the three readers, None where it refuses; what the zig-zag means comes last."""
    room = np.frombuffer(data + b"\xff" * AHEAD, np.uint8)
    at = room.ctypes.data
    out = np.zeros(7, np.int64)
    assert read(at, at + len(data), out.ctypes.data) == 7
    value, behind, wide, wide_behind, short, short_behind, signed = out.tolist()
    mask = (1 << 64) - 1
    return (
        (value & mask, behind - at) if behind >= 0 else None,
        (wide & mask, wide_behind - at) if wide_behind else None,
        (short, short_behind - at) if short >= 0 else None,
        (signed, behind - at) if behind >= 0 else None,
    )


@given(st.binary(max_size=12))
@example(b"\xff" * 9 + b"\x01")
@example(b"\xff" * 9 + b"\x02")
@example(b"\xff" * 10 + b"\x01")
@example(b"\x80" * 9 + b"\x00")
@example(b"\xff\xff\xff\xff\x0f")
@example(b"\x80")
@example(b"")
def test_bytes_are_read_as_the_codec_reads_them(data: bytes) -> None:
    try:
        expected = codec.decode_uvarint(data)
    except MalformedBytes:
        expected = None
    plain, wide, short, signed = found(data)
    assert plain == wide == expected
    assert signed == (codec.decode_varint(data) if expected else None)
    if expected and expected[1] <= 5:
        assert short == expected
    elif expected is None and len(data) <= 5:
        assert short is None


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, (1 << 32) - 1, (1 << 63) - 1])
def test_what_is_written_is_read(number: int) -> None:
    out = np.zeros(16, np.uint8)
    size = write(out.ctypes.data, number) - out.ctypes.data
    assert out[:size].tobytes() == codec.encode_uvarint(number)
