"""Frames of messages → lines of JSON. Reference: `tidemill.protocols.open.decode`, which also reads messages that are refused here."""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import as_i, bswap64, entry, jit, ld8, ld32s, ldu64, st8, st32, st64

MAX_FRAME = 1 << 31
VERSION = np.uint64(1 << 56)  # 1 in network order


@jit
def put_line(p, a, n):
    """Write n bytes of JSON as one line, and return its end. -1 if they have a line break, which no writer makes."""
    breaks = 0
    for i in range(n):
        c = ld8(a + i)
        breaks |= 1 if c == 10 or c == 13 else 0
        st8(p + i, c)
    st8(p + n, 10)
    return p + n + 1 if breaks == 0 else -1


@jit
def frame_size(a, end):
    """Return the length at a; -1 if it goes past the end."""
    if end - a < 8:
        return -1
    size = as_i(bswap64(ldu64(a)))
    return size if 0 <= size < MAX_FRAME and size <= end - a - 8 else -1


@entry(10)
def split_messages(n, key_offsets, keys, value_offsets, values, valid, heads, bodies, counts, sizes):
    """Write the texts of all events of n messages to `heads` and `bodies`. Returns the number of events; -1: fall back to the reference.

    Offsets are int32. valid: a byte for each message, 0: skip it. counts: int32, events of each message. sizes: int64 twice, bytes
    written. An empty body becomes {}. One that is not a JSON object, such as a compressed one, falls back to the reference.
    """
    head = heads
    body = bodies
    events = 0
    for i in range(n):
        st32(counts + 4 * i, 0)
        if ld8(valid + i) == 0:
            continue
        a = keys + ld32s(key_offsets + 4 * i)
        a_end = keys + ld32s(key_offsets + 4 * i + 4)
        b = values + ld32s(value_offsets + 4 * i)
        b_end = values + ld32s(value_offsets + 4 * i + 4)
        if a_end - a < 24 or ldu64(a) != VERSION:
            return -1
        a += 8
        count = 0
        while a < a_end:
            size = frame_size(a, a_end)
            value_size = frame_size(b, b_end)
            if size < 2 or value_size < 0 or ld8(a + 8) != 123:
                return -1
            head = put_line(head, a + 8, size)
            if head < 0:
                return -1
            a += 8 + size
            if value_size == 0:
                st8(body, 123)
                st8(body + 1, 125)
                st8(body + 2, 10)
                body += 3
            elif ld8(b + 8) == 123 and (value_size < 2 or ld8(b + 9) == 34 or ld8(b + 9) == 125):
                body = put_line(body, b + 8, value_size)
                if body < 0:
                    return -1
            else:
                return -1
            b += 8 + value_size
            count += 1
        if b != b_end:
            return -1
        st32(counts + 4 * i, count)
        events += count
    st64(sizes, head - heads)
    st64(sizes + 8, body - bodies)
    return events
