"""Marks of written records -> the frames that answer their calls; bytes -> DATA frames.

References: `Connection.answer` and `frames.data_frames` of `tidemill/binlog/http2`.
"""

from __future__ import annotations

from tidemill.kernels.intrinsics import entry, jit, ld64, memcpy, st8
from tidemill.kernels.pump.layout import M_SLOT, M_STREAM, MARK_BYTES


@jit
def _be32(a, value):
    st8(a, value >> 24)
    st8(a + 1, value >> 16)
    st8(a + 2, value >> 8)
    st8(a + 3, value)


@entry(8)
def answers(marks, n, slot, model, size, second, third, out):
    """Write an answer for each mark of a connection whose stream is not 0: the `size` bytes of `model` with the stream's id in its three
    frames, which begin at 0, `second` and `third`. Returns how many answers. `out` has room for n of them."""
    o = out
    count = 0
    for i in range(n):
        mark = marks + MARK_BYTES * i
        if ld64(mark + 8 * M_SLOT) != slot:
            continue
        stream = ld64(mark + 8 * M_STREAM)
        if stream == 0:
            continue
        memcpy(o, model, size)
        _be32(o + 5, stream)
        _be32(o + second + 5, stream)
        _be32(o + third + 5, stream)
        o += size
        count += 1
    return count


@entry(5)
def data_frames(a, n, most, stream, out):
    """Cut n bytes into DATA frames of at most `most` bytes. Returns the bytes written."""
    o = out
    while n > 0:
        k = n if n < most else most
        st8(o, k >> 16)
        st8(o + 1, k >> 8)
        st8(o + 2, k)
        st8(o + 3, 0)
        st8(o + 4, 0)
        _be32(o + 5, stream)
        memcpy(o + 9, a, k)
        o += 9 + k
        a += k
        n -= k
    return o - out
