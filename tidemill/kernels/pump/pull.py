"""Records of the value log -> answers of PullBinlogs with gRPC's prefixes, each Commit joined with its Prewrite.

Reference: `Puller.answer` of `tidemill/binlog/pump/pulling.py`, which does what is handed back: a record that is broken or not as TiDB
writes it, a Commit whose Prewrite is not kept. Of a Prewrite that part is kept with which the answer ends: rows, query, job, state.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import as_i, entry, jit, ld8, ld32, ld64, memcpy, st8, st64
from tidemill.kernels.pump.crc32c import crc32c
from tidemill.kernels.pump.layout import (
    BY_REFERENCE,
    DONE,
    K_CAP,
    K_COUNT,
    K_ROOM,
    K_SIZE,
    K_TABLE,
    KEPT_MOST,
    KEPT_SLOTS,
    NO_WINDOW,
    O_CAP,
    O_COUNT,
    O_DATA,
    O_SIZE,
    OUT_FULL,
    POINTER_BYTES,
    RECORD_HEAD,
    RECORD_MAGIC,
    U_NEED,
    U_OUTCOME,
    W_DATA,
    W_FILE,
    W_SIZE,
    W_START,
)
from tidemill.kernels.wire import varint, w_varint

_U63 = np.uint64(63)
_PREWRITE, _COMMIT, _ROLLBACK = 0, 1, 2
_ENVELOPE = 64
"""Bytes of an answer beside its payload, and of a payload beside key and Prewrite, at most."""


@jit
def _varint_size(n):
    size = 1
    while n >= 128:
        n >>= 7
        size += 1
    return size


@jit
def _slot(table, start_ts):
    """Return the address of a Prewrite's slot, or of the free one where it would be."""
    i = as_i((np.uint64(start_ts) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(49))
    while True:
        at = table + 24 * (i & (KEPT_SLOTS - 1))
        kept = ld64(at)
        if kept == start_ts or kept == 0:
            return at
        i += 1


@jit
def _forget_all(u):
    table = ld64(u + 8 * K_TABLE)
    for i in range(KEPT_SLOTS):
        st64(table + 24 * i, 0)
    st64(u + 8 * K_COUNT, 0)
    st64(u + 8 * K_SIZE, 0)


@jit
def _w_bytes(p, tag, a, n):
    st8(p, tag)
    p = w_varint(p + 1, n)
    memcpy(p, a, n)
    return p + n


@jit
def _keep(u, start_ts, value, value_size, query, query_size, job, state):
    """Keep the end of an answer; an absent field has size -1. What is large is not kept."""
    need = _ENVELOPE + max(value_size, 0) + max(query_size, 0)
    cap = ld64(u + 8 * K_CAP)
    if need > cap >> 4 or start_ts == 0:
        return
    if need > cap - ld64(u + 8 * K_SIZE) or ld64(u + 8 * K_COUNT) >= KEPT_MOST:
        _forget_all(u)
    start = ld64(u + 8 * K_ROOM) + ld64(u + 8 * K_SIZE)
    p = start
    if value_size >= 0:
        p = _w_bytes(p, 0x2A, value, value_size)
    if query_size >= 0:
        p = _w_bytes(p, 0x32, query, query_size)
    st8(p, 0x38)
    p = w_varint(p + 1, job)
    st8(p, 0x40)
    p = w_varint(p + 1, state)
    slot = _slot(ld64(u + 8 * K_TABLE), start_ts)
    if ld64(slot) == 0:
        st64(u + 8 * K_COUNT, ld64(u + 8 * K_COUNT) + 1)
    st64(slot, start_ts)
    st64(slot + 8, start)
    st64(slot + 16, p - start)
    st64(u + 8 * K_SIZE, ld64(u + 8 * K_SIZE) + p - start)


@jit
def _out(u, start_ts, commit_ts, head, head_size, key, key_size, end, end_size):
    """Write an answer: its payload is `head`, a key (absent: size -1), and `end`. Returns False if there is no room."""
    payload = head_size + end_size
    if key_size >= 0:
        payload += 1 + _varint_size(key_size) + key_size
    size = ld64(u + 8 * O_SIZE)
    if payload + _ENVELOPE > ld64(u + 8 * O_CAP) - size:
        st64(u + 8 * U_NEED, payload + _ENVELOPE)
        return False
    meta = 2 + _varint_size(start_ts) + _varint_size(commit_ts)
    entity = 2 + 1 + _varint_size(payload) + payload + 2 + meta
    message = 1 + _varint_size(entity) + entity
    p = ld64(u + 8 * O_DATA) + size
    st8(p, 0)
    st8(p + 1, message >> 24)
    st8(p + 2, message >> 16)
    st8(p + 3, message >> 8)
    st8(p + 4, message)
    st8(p + 5, 0x0A)
    p = w_varint(p + 6, entity)
    st8(p, 0x0A)
    st8(p + 1, 0)
    st8(p + 2, 0x12)
    p = w_varint(p + 3, payload)
    memcpy(p, head, head_size)
    p += head_size
    if key_size >= 0:
        p = _w_bytes(p, 0x22, key, key_size)
    memcpy(p, end, end_size)
    p += end_size
    st8(p, 0x22)
    p = w_varint(p + 1, meta)
    st8(p, 0x08)
    p = w_varint(p + 1, start_ts)
    st8(p, 0x10)
    p = w_varint(p + 1, commit_ts)
    st64(u + 8 * O_SIZE, p - ld64(u + 8 * O_DATA))
    st64(u + 8 * O_COUNT, ld64(u + 8 * O_COUNT) + 1)
    return True


@jit
def _binlog(u, a, n, scratch):
    """Take a payload. Returns DONE, BY_REFERENCE or OUT_FULL."""
    end = a + n
    p = a
    last = 0
    tp, start_ts, commit_ts, job, state = -1, 0, -1, 0, 0
    key, value, query = 0, 0, 0
    key_size, value_size, query_size = -1, -1, -1
    while p < end:
        tag = ld8(p)
        p += 1
        field = tag >> 3
        if field <= last or field > 8:
            return BY_REFERENCE
        number, p = varint(p, end)
        if p < 0 or number >> _U63 != np.uint64(0):
            return BY_REFERENCE
        size = as_i(number)
        if field >= 4 and field <= 6:
            if tag & 7 != 2 or size > end - p:
                return BY_REFERENCE
            if field == 4:
                key, key_size = p, size
            elif field == 5:
                value, value_size = p, size
            else:
                query, query_size = p, size
            p += size
        else:
            if tag & 7 != 0:
                return BY_REFERENCE
            if field == 1:
                tp = size
            elif field == 2:
                start_ts = size
            elif field == 3:
                commit_ts = size
            elif field == 7:
                job = size
            else:
                state = size
        last = field
    if tp < 0 or tp > 2 or start_ts == 0 or state > 0x7FFFFFFF:
        return BY_REFERENCE
    if tp == _PREWRITE:
        _keep(u, start_ts, value, value_size, query, query_size, job, state)
        return DONE
    if commit_ts < 0:
        return BY_REFERENCE
    if tp == _ROLLBACK:
        if start_ts == commit_ts and not _out(u, start_ts, commit_ts, a, n, 0, -1, a, 0):
            return OUT_FULL
        return DONE
    slot = _slot(ld64(u + 8 * K_TABLE), start_ts)
    if ld64(slot) == 0:
        return BY_REFERENCE
    st8(scratch, 0x08)
    st8(scratch + 1, _COMMIT)
    st8(scratch + 2, 0x10)
    head = w_varint(scratch + 3, start_ts)
    st8(head, 0x18)
    head = w_varint(head + 1, commit_ts)
    if not _out(u, start_ts, commit_ts, scratch, head - scratch, key, key_size, ld64(slot + 8), ld64(slot + 16)):
        return OUT_FULL
    return DONE


@entry(5)
def pull(T, u, pointers, n, scratch):
    """Take the records of n pointers (u32 file, i64 offset). Returns how many are done; the word U_OUTCOME says why it ended there.
    `scratch` has room for 32 bytes."""
    i = 0
    outcome = DONE
    while i < n:
        at = pointers + POINTER_BYTES * i
        place = ld64(at + 4) - ld64(u + 8 * W_START)
        left = ld64(u + 8 * W_SIZE) - place
        if ld32(at) != ld64(u + 8 * W_FILE) or place < 0 or left < RECORD_HEAD:
            outcome = NO_WINDOW
            break
        record = ld64(u + 8 * W_DATA) + place
        size = ld64(record + 4)
        if ld32(record) != RECORD_MAGIC or size < 0:
            outcome = BY_REFERENCE
            break
        if size > left - RECORD_HEAD:
            outcome = NO_WINDOW
            break
        if crc32c(T, record + RECORD_HEAD, size) != ld32(record + 12):
            outcome = BY_REFERENCE
            break
        outcome = _binlog(u, record + RECORD_HEAD, size, scratch)
        if outcome != DONE:
            break
        i += 1
    st64(u + 8 * U_OUTCOME, outcome)
    return i
