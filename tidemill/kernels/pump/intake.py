"""Frames of a connection -> records of the value log. It does what nearly all frames are: a call of WriteBinlog whose request is one DATA
frame that ends the stream. At any other frame it stops, and `tidemill/binlog/http2/connection.py` goes on. That is its reference.

A frame is taken whole or not at all, so that nothing is kept between two reads but the ids of calls whose DATA has not come.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import as_i, bswap64, entry, jit, ld8, ld64, ldu64, memcpy, memmove, st32, st64
from tidemill.kernels.pump.crc32c import crc32c
from tidemill.kernels.pump.headers import read_headers
from tidemill.kernels.pump.layout import (
    BAD_HEADERS,
    BLOCK_LIMIT,
    C_CREDIT,
    C_FLAGS,
    C_FRESH,
    C_LAST,
    C_MOST_OPEN,
    C_NEED,
    C_OPEN,
    C_OUTCOME,
    C_STREAM,
    C_STREAMS,
    C_TAKEN,
    FRAME_FOR_PYTHON,
    FRESH,
    G_CAP,
    G_COUNT,
    G_DATA,
    G_MARKS,
    G_MOST,
    G_SIZE,
    GRPC,
    H_ENCODING,
    H_LIST,
    H_METHOD,
    H_PATH,
    H_TYPE,
    IDENTITY,
    LIST_LIMIT,
    M_AT,
    M_COMMIT,
    M_SIZE,
    M_SLOT,
    M_SPARE,
    M_STREAM,
    M_TP,
    MARK_BYTES,
    MORE,
    NO_ROOM,
    OPENED,
    P_CLUSTER,
    P_PREWRITES,
    POST,
    RECORD_HEAD,
    RECORD_MAGIC,
    WRITE,
)
from tidemill.kernels.wire import varint

DATA, HEADERS = 0, 1
END_STREAM, END_HEADERS, PADDED, PRIORITY = 1, 4, 8, 32
_U63 = np.uint64(63)


@jit
def read_head(a, end, mark):
    """Write type, start_ts and commit_ts of a binlog into a mark. Returns False for a binlog that is not as TiDB writes it: its fields
    ascend, none is unknown, none reaches beyond its end."""
    last = 0
    st64(mark + 8 * M_COMMIT, 0)
    while a < end:
        tag = ld8(a)
        a += 1
        field = tag >> 3
        if field <= last or field > 8:
            return False
        if field >= 4 and field <= 6:
            if tag & 7 != 2:
                return False
            size, a = varint(a, end)
            if a < 0 or size > np.uint64(end - a):
                return False
            a += as_i(size)
        else:
            if tag & 7 != 0:
                return False
            value, a = varint(a, end)
            if a < 0:
                return False
            if field <= 3:
                if field != last + 1 or value >> _U63 != np.uint64(0) or (field == 1 and value > np.uint64(2)):
                    return False
                st64(mark + 8 * (M_TP + field - 1), value)
        last = field
    return last >= 2


@jit
def _framed(T, g, a, n, mark):
    """Put n bytes of a payload into the group as a record; its mark is complete but for the place."""
    size = ld64(g + 8 * G_SIZE)
    out = ld64(g + 8 * G_DATA) + size
    st32(out, RECORD_MAGIC)
    st64(out + 4, n)
    memcpy(out + RECORD_HEAD, a, n)
    st32(out + 12, crc32c(T, out + RECORD_HEAD, n))
    st64(mark + 8 * M_AT, size)
    st64(mark + 8 * M_SIZE, n)
    st64(mark + 8 * M_SPARE, 0)
    st64(g + 8 * G_SIZE, size + RECORD_HEAD + n)
    st64(g + 8 * G_COUNT, ld64(g + 8 * G_COUNT) + 1)


@jit
def _request(T, st, g, policy, a, n, slot, stream):
    """Take a message, a WriteBinlogReq. Returns 0: taken, 1: not for this kernel, 2: the group has no room."""
    end = a + n
    cluster = np.uint64(0)
    if n > 0 and ld8(a) == 0x08:
        cluster, a = varint(a + 1, end)
        if a < 0:
            return 1
    if a >= end or ld8(a) != 0x12 or cluster != ldu64(policy + 8 * P_CLUSTER):
        return 1
    size, a = varint(a + 1, end)
    if a < 0 or size != np.uint64(end - a) or a == end:
        return 1
    n = end - a
    if ld64(g + 8 * G_COUNT) >= ld64(g + 8 * G_MOST) or RECORD_HEAD + n > ld64(g + 8 * G_CAP) - ld64(g + 8 * G_SIZE):
        st64(st + 8 * C_NEED, RECORD_HEAD + n)
        return 2
    mark = ld64(g + 8 * G_MARKS) + MARK_BYTES * ld64(g + 8 * G_COUNT)
    if not read_head(a, end, mark):
        return 1
    if ld64(mark + 8 * M_TP) == 0 and ld64(policy + 8 * P_PREWRITES) == 0:
        return 1
    st64(mark + 8 * M_SLOT, slot)
    st64(mark + 8 * M_STREAM, stream)
    _framed(T, g, a, n, mark)
    return 0


@jit
def _headers(T, st, a, length, flags, stream, scratch):
    """Take a HEADERS frame that opens a stream. Returns 0: a call of WriteBinlog, 1: not for this kernel, OPENED, or BAD_HEADERS."""
    if flags & END_HEADERS == 0 or stream & 1 == 0 or stream <= ld64(st + 8 * C_LAST) or length > BLOCK_LIMIT:
        return 1
    end = a + length
    if flags & PADDED:
        if length < 1 or ld8(a) > length - 1:
            return 1
        end -= ld8(a)
        a += 1
    if flags & PRIORITY:
        if end - a < 5:
            return 1
        a += 5
    if read_headers(T, st, a, end - a, scratch) < 0:
        return BAD_HEADERS
    st64(st + 8 * C_LAST, stream)
    fresh = ld64(st + 8 * C_FRESH)
    if (
        flags & END_STREAM
        or ld64(st + 8 * H_METHOD) != POST
        or ld64(st + 8 * H_PATH) != WRITE
        or ld64(st + 8 * H_TYPE) != GRPC
        or ld64(st + 8 * H_ENCODING) > IDENTITY
        or ld64(st + 8 * H_LIST) > LIST_LIMIT
        or ld64(st + 8 * C_OPEN) >= ld64(st + 8 * C_MOST_OPEN)
        or fresh >= FRESH
    ):
        st64(st + 8 * C_STREAM, stream)
        st64(st + 8 * C_FLAGS, flags)
        return OPENED
    st64(st + 8 * (C_STREAMS + fresh), stream)
    st64(st + 8 * C_FRESH, fresh + 1)
    st64(st + 8 * C_OPEN, ld64(st + 8 * C_OPEN) + 1)
    return 0


@jit
def _fresh(st, stream):
    """Return the place of a stream among the fresh ones; -1 if it is none."""
    for i in range(ld64(st + 8 * C_FRESH)):
        if ld64(st + 8 * (C_STREAMS + i)) == stream:
            return i
    return -1


@jit
def _forget(st, place):
    """A fresh stream is none any more."""
    left = ld64(st + 8 * C_FRESH) - 1
    at = st + 8 * (C_STREAMS + place)
    memmove(at, at + 8, 8 * (left - place))
    st64(st + 8 * C_FRESH, left)


@entry(9)
def intake(T, st, buf, n, g, policy, slot, largest, scratch):
    """Take frames from n received bytes. Returns the bytes that are done; the word C_OUTCOME says why it ended, C_TAKEN how many binlogs
    went into the group. `largest`: bytes of a frame at most. `scratch` has room for 2 * BLOCK_LIMIT bytes."""
    p = 0
    taken = 0
    outcome = MORE
    while n - p >= 9:
        a = buf + p
        length = ld8(a) << 16 | ld8(a + 1) << 8 | ld8(a + 2)
        kind = ld8(a + 3)
        flags = ld8(a + 4)
        stream = (ld8(a + 5) & 127) << 24 | ld8(a + 6) << 16 | ld8(a + 7) << 8 | ld8(a + 8)
        if length > largest or kind > HEADERS:
            outcome = FRAME_FOR_PYTHON
            break
        if length > n - p - 9:
            break
        if kind == HEADERS:
            found = _headers(T, st, a + 9, length, flags, stream, scratch)
            if found == 1:
                outcome = FRAME_FOR_PYTHON
                break
            p += 9 + length
            if found != 0:
                outcome = found
                break
            continue
        place = _fresh(st, stream)
        if place < 0 or flags & END_STREAM == 0 or flags & PADDED or length < 5:
            outcome = FRAME_FOR_PYTHON
            break
        message = as_i(bswap64(ldu64(a + 6)) & np.uint64(0xFFFFFFFFFF))
        if message != length - 5:  # more than one frame, or compressed
            outcome = FRAME_FOR_PYTHON
            break
        found = _request(T, st, g, policy, a + 14, length - 5, slot, stream)
        if found != 0:
            outcome = FRAME_FOR_PYTHON if found == 1 else NO_ROOM
            break
        _forget(st, place)
        st64(st + 8 * C_CREDIT, ld64(st + 8 * C_CREDIT) + length)
        taken += 1
        p += 9 + length
    st64(st + 8 * C_TAKEN, taken)
    st64(st + 8 * C_OUTCOME, outcome)
    return p


@entry(5)
def frame_one(T, g, a, n, mark):
    """Put n bytes of a binlog into the group as a record, with `mark` (type, start_ts, commit_ts, slot, stream). Returns 1;
    0: there is no room."""
    if ld64(g + 8 * G_COUNT) >= ld64(g + 8 * G_MOST) or RECORD_HEAD + n > ld64(g + 8 * G_CAP) - ld64(g + 8 * G_SIZE):
        return 0
    to = ld64(g + 8 * G_MARKS) + MARK_BYTES * ld64(g + 8 * G_COUNT)
    memcpy(to, mark, MARK_BYTES)
    _framed(T, g, a, n, to)
    return 1
