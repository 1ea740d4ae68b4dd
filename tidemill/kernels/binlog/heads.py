"""PullBinlogResp messages → HEAD records. Unknown fields are skipped, of a field that comes twice the last one counts, as in protobuf."""

from __future__ import annotations

from tidemill.kernels.binlog.layout import (
    H_COMMIT,
    H_DDL,
    H_FAKE,
    H_FLAGS,
    H_MESSAGE,
    H_MESSAGE_LEN,
    H_ROWS,
    H_ROWS_LEN,
    H_SIZE,
    H_START,
    H_TYPE,
)
from tidemill.kernels.intrinsics import as_i, entry, jit, ld64, st8, st32, st64
from tidemill.kernels.wire import varint

ROLLBACK = 2
MOST_HEAD = 5  # bytes of a tag, or of a length


@jit
def field_end(wire, p, end):
    """Return the address after the content of a field of that wire type; -1 if it is broken."""
    if wire == 0:
        _, q = varint(p, end)
        return q
    if wire == 2:
        u, q = varint(p, end)
        n = as_i(u)
        if q < 0 or q - p > MOST_HEAD or n < 0 or n > end - q:
            return -1
        return q + n
    if wire == 1:
        return p + 8 if end - p >= 8 else -1
    if wire == 5:
        return p + 4 if end - p >= 4 else -1
    return -1


@jit
def tagged(p, end):
    """Return (tag, address of the content, address after it) of the field at p; address -1 if it is broken. Of bytes the content is what
    follows their length."""
    u, q = varint(p, end)
    tag = as_i(u)
    if q < 0 or q - p > MOST_HEAD or tag < 8 or tag > 0xFFFFFFFF:
        return 0, -1, -1
    after = field_end(tag & 7, q, end)
    if tag & 7 == 2 and after >= 0:
        _, q = varint(q, end)
    return tag, q, after


@jit
def inside(p, end, wanted):
    """Return (address, length) of the last field `wanted`, which holds bytes: (0, 0) if there is none, (-1, 0) if the message is broken."""
    found = size = 0
    while p < end:
        tag, q, p = tagged(p, end)
        if p < 0:
            return -1, 0
        if tag == wanted:
            found = q
            size = p - q
    return found, size


@jit
def one_head(p, end, out):
    """Write the head of a Binlog message. False: it is broken."""
    st64(out + H_MESSAGE, p)
    st32(out + H_MESSAGE_LEN, end - p)
    kind = start = -1
    commit = rows = rows_len = job = key_len = 0
    while p < end:
        tag, q, p = tagged(p, end)
        if p < 0:
            return False
        if tag & 7 == 0:
            value, _ = varint(q, p)
            number = as_i(value)
            if tag == 8:
                if number < 0 or number > ROLLBACK:
                    return False
                kind = number
            elif tag == 16:
                if number < 0:
                    return False
                start = number
            elif tag == 24:
                if number < 0:
                    return False
                commit = number
            elif tag == 56:
                job = number
        elif tag == 34:
            key_len = p - q
        elif tag == 42:
            rows = q
            rows_len = p - q
    if kind < 0 or start < 0:
        return False
    st64(out + H_COMMIT, commit)
    st64(out + H_START, start)
    st64(out + H_ROWS, rows)
    st32(out + H_ROWS_LEN, rows_len)
    st8(out + H_TYPE, kind)
    fake = H_FAKE if kind == ROLLBACK and start == commit and key_len == 0 else 0
    st8(out + H_FLAGS, fake | (H_DDL if job != 0 else 0))
    return True


@entry(4)
def heads(data, ends, count, out):
    """Write the heads of `count` messages that are concatenated at `data`, of which message i ends at ends[i]. Returns how many were
    written: fewer than `count` if the next one is broken."""
    at = data
    for i in range(count):
        end = data + ld64(ends + 8 * i)
        entity, size = inside(at, end, 10)
        if entity < 0:
            return i
        payload, size = inside(entity, entity + size, 18)
        if payload < 0 or not one_head(payload, payload + size, out + H_SIZE * i):
            return i
        at = end
    return count
