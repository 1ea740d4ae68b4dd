"""Pending transaction entries: open addressing on 32 bits of hash(subscription, start_ts, key), with 8-byte slots (hash, index) and a pool
of 64-byte records. A deletion moves the following slots up, so there are no tombstones."""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import as_i, as_u, copy64, entry, jit, ld8, ld32s, ld64, mum, st8, st32, st64
from tidemill.kernels.receive.layout import (
    ACTIVE,
    AS_PREWRITTEN,
    C_VIOLATION,
    DEAD,
    DELETE,
    E_COMMIT,
    E_GENERATION,
    E_KEY,
    E_KEYLEN,
    E_OLD,
    E_OLDLEN,
    E_OP,
    E_VALLEN,
    E_VALUE,
    F_DATA,
    P_ADDR,
    P_BYTES,
    P_COUNT,
    PUT,
    R_CHUNK,
    R_COMMIT,
    R_FLAGS,
    R_GENERATION,
    R_KEY,
    R_KEYLEN,
    R_NEXT,
    R_OLD_D,
    R_OLDLEN,
    R_OP,
    R_START,
    R_SUB,
    R_VALLEN,
    R_VALUE_D,
    S_PARTITION,
    S_RESOLVED,
    S_SINCE,
    S_STATE,
    S_TOUCHED,
    V_EMPTY_PUT,
    V_LATE,
    V_NO_OP,
    X_CONTROL,
    X_COUNT,
    X_LATE,
    X_NCONTROL,
    X_NLATE,
    X_NSPILLED,
    X_PARTS,
    X_PENDING_BYTES,
    X_POOL,
    X_POOL_FREE,
    X_POOL_TOP,
    X_REFS,
    X_ROWS,
    X_SLOT_MASK,
    X_SLOTS,
    X_SPILLED,
    X_STALE,
    X_SUBS,
)
from tidemill.kernels.receive.seal import row_bytes
from tidemill.kernels.receive.subs import set_word, word
from tidemill.kernels.receive.text import M1, M2, MASK32, equal, hash32

U1 = np.uint64(1)
STALE = -1
ROW_OVERHEAD = 80  # bytes that a row costs besides its key and values


@jit
def find(ctx, code, sub, start, key, key_len):
    """Return (pool index or -1, place in the slot table) for hash `code`."""
    slots = word(ctx, X_SLOTS)
    mask = word(ctx, X_SLOT_MASK)
    pool = word(ctx, X_POOL)
    i = code & mask
    while True:
        slot = ld64(slots + 8 * i)
        if slot == 0:
            return -1, i
        if (slot >> 32) & MASK32 == code:
            x = (slot & MASK32) - 1
            row = pool + 64 * x
            if (
                ld64(row + R_START) == start
                and ld32s(row + R_SUB) == sub
                and ld32s(row + R_KEYLEN) == key_len
                and equal(ld64(row + R_KEY), key, key_len)
            ):
                return x, i
        i = (i + 1) & mask


@jit
def erase(ctx, x, place):
    """Remove entry x, at its place in the table, and free it."""
    slots = word(ctx, X_SLOTS)
    mask = word(ctx, X_SLOT_MASK)
    i = place
    j = place
    while True:
        j = (j + 1) & mask
        slot = ld64(slots + 8 * j)
        if slot == 0:
            break
        home = (slot >> 32) & MASK32 & mask
        if ((j - home) & mask) >= ((j - i) & mask):
            st64(slots + 8 * i, slot)
            i = j
    st64(slots + 8 * i, 0)
    row = word(ctx, X_POOL) + 64 * x
    st8(row + R_FLAGS, 0)
    st32(row + R_NEXT, word(ctx, X_POOL_FREE))
    set_word(ctx, X_POOL_FREE, x)
    set_word(ctx, X_COUNT, word(ctx, X_COUNT) - 1)


@jit
def insert(ctx, code, place, sub, start, ent, base, chunk, flags):
    """Add an entry from ENTRY `ent` (capacity has been checked); it holds the chunk. Return its pool index."""
    x = word(ctx, X_POOL_FREE)
    pool = word(ctx, X_POOL)
    if x >= 0:
        set_word(ctx, X_POOL_FREE, ld32s(pool + 64 * x + R_NEXT))
    else:
        x = word(ctx, X_POOL_TOP)
        set_word(ctx, X_POOL_TOP, x + 1)
    row = pool + 64 * x
    st64(row + R_START, start)
    st32(row + R_SUB, sub)
    st8(row + R_FLAGS, flags)
    st32(row + R_NEXT, -1)
    fill(ctx, row, ent, base, chunk)
    st64(word(ctx, X_SLOTS) + 8 * place, code << 32 | x + 1)
    set_word(ctx, X_COUNT, word(ctx, X_COUNT) + 1)
    return x


@jit
def hold(ctx, chunk, change):
    """Count a record that points into the chunk (-1: one less)."""
    at = word(ctx, X_REFS) + 8 * chunk
    st64(at, ld64(at) + change)


@jit
def fill(ctx, row, ent, base, chunk):
    """Fill the data part of ROW `row` from ENTRY `ent`; it holds the chunk."""
    key = ld32s(ent + E_KEY)
    st64(row + R_KEY, base + key)
    st32(row + R_VALUE_D, ld32s(ent + E_VALUE) - key)
    st32(row + R_OLD_D, ld32s(ent + E_OLD) - key)
    st32(row + R_KEYLEN, ld32s(ent + E_KEYLEN))
    st32(row + R_VALLEN, ld32s(ent + E_VALLEN))
    st32(row + R_OLDLEN, ld32s(ent + E_OLDLEN))
    st32(row + R_CHUNK, chunk)
    st8(row + R_OP, ld8(ent + E_OP))
    st32(row + R_GENERATION, ld32s(ent + E_GENERATION))
    st64(row + R_COMMIT, ld64(ent + E_COMMIT))
    hold(ctx, chunk, 1)


@jit
def size_of(row):
    return row_bytes(row) + ROW_OVERHEAD


@jit
def account(ctx, row, sign):
    """Count the bytes of a pending prewrite: `row` was added (1) or removed (-1)."""
    set_word(ctx, X_PENDING_BYTES, word(ctx, X_PENDING_BYTES) + sign * size_of(row))


@jit
def forget_data(ctx, row):
    """Release the entry's bytes."""
    account(ctx, row, -1)
    hold(ctx, ld32s(row + R_CHUNK), -1)


@jit
def bump(ctx, index):
    set_word(ctx, index, word(ctx, index) + 1)


@jit
def emit(ctx, sub_at, row, commit, op):
    """Add ROW `row`, committed, to its partition's list (room has been checked), with a hold of its own."""
    part = word(ctx, X_PARTS) + 32 * ld32s(sub_at + S_PARTITION)
    n = ld64(part + 8 * P_COUNT)
    out = ld64(part + 8 * P_ADDR) + 64 * n
    copy64(out, row)
    st64(out + R_COMMIT, commit)
    st8(out + R_OP, op)
    if op == DELETE:
        st32(out + R_VALLEN, 0)
    hold(ctx, ld32s(row + R_CHUNK), 1)
    st64(part + 8 * P_COUNT, n + 1)
    st64(part + 8 * P_BYTES, ld64(part + 8 * P_BYTES) + size_of(row))
    bump(ctx, X_ROWS)


@jit
def spilled(ctx, start):
    """Return whether prewrites of this transaction are on disk."""
    mask = word(ctx, X_NSPILLED)
    if mask == 0:
        return False
    table = word(ctx, X_SPILLED)
    i = as_i(mum(as_u(start) ^ M1, M2) >> U1) & mask
    while True:
        found = ld64(table + 8 * i)
        if found == 0:
            return False
        if found == start:
            return True
        i = (i + 1) & mask


@entry(2)
def spilled_add(ctx, start):
    """Note that prewrites of this transaction are on disk (the table has room)."""
    mask = word(ctx, X_NSPILLED)
    table = word(ctx, X_SPILLED)
    i = as_i(mum(as_u(start) ^ M1, M2) >> U1) & mask
    while ld64(table + 8 * i) != 0 and ld64(table + 8 * i) != start:
        i = (i + 1) & mask
    st64(table + 8 * i, start)
    return 0


@jit
def control(ctx, code, sub, i, cause):
    """Report to Python: `code` at entry i (room has been checked)."""
    n = word(ctx, X_NCONTROL)
    at = word(ctx, X_CONTROL) + 64 * n
    st32(at, code)
    st32(at + 4, sub)
    st64(at + 8, i)
    st64(at + 16, cause)
    set_word(ctx, X_NCONTROL, n + 1)


@jit
def violation(ctx, sub_at, sub, i, cause, commit, start, key, key_len):
    """Report that the store broke the protocol, as this row shows, and end the subscription."""
    at = word(ctx, X_CONTROL) + 64 * word(ctx, X_NCONTROL)
    control(ctx, C_VIOLATION, sub, i, cause)
    st64(at + 24, commit)
    st64(at + 32, start)
    st64(at + 40, key)
    st64(at + 48, key_len)
    st32(sub_at + S_STATE, DEAD)


@jit
def late(ctx, sub, start, commit, key, key_len, chunk, op, flags):
    """Store a COMMIT or ROLLBACK (op 0) of a transaction with spilled prewrites, to be joined later in bulk. For a COMMIT see `op_of`;
    flags F_WAIT: its prewrite need not be on disk."""
    n = word(ctx, X_NLATE)
    row = word(ctx, X_LATE) + 64 * n
    st64(row + R_COMMIT, commit)
    st64(row + R_START, start)
    st64(row + R_KEY, key)
    st64(row + R_VALUE_D, 0)
    st32(row + R_KEYLEN, key_len)
    st64(row + R_VALLEN, 0)
    st32(row + R_CHUNK, chunk)
    st32(row + R_SUB, sub)
    st8(row + R_OP, op)
    st8(row + R_FLAGS, flags)
    hold(ctx, chunk, 1)
    set_word(ctx, X_NLATE, n + 1)


@jit
def late_with_data(ctx, row, commit, op):
    """Store the COMMIT of prewrite `row`, whose transaction has spilled prewrites: the join compares the generations. The record keeps the
    data of the prewrite (F_DATA), and its op in R_NEXT. For op see `op_of`."""
    n = word(ctx, X_NLATE)
    out = word(ctx, X_LATE) + 64 * n
    copy64(out, row)
    st64(out + R_COMMIT, commit)
    st32(out + R_NEXT, ld8(row + R_OP))
    st8(out + R_OP, op)
    st8(out + R_FLAGS, F_DATA)
    hold(ctx, ld32s(row + R_CHUNK), 1)
    set_word(ctx, X_NLATE, n + 1)


@jit
def op_of(op):
    """Return the op that a COMMIT has while it waits for its PREWRITE."""
    return op if op == PUT or op == DELETE else AS_PREWRITTEN


@jit
def touch(sub_at, row, x):
    """Add an entry to the list that INITIALIZED has to settle."""
    st32(row + R_NEXT, ld32s(sub_at + S_TOUCHED))
    st32(sub_at + S_TOUCHED, x)


@jit
def judge(sub_at, commit, op, value_len):
    """Return 0 if such a row is to be delivered, STALE if it is at or below `since`, else how it breaks the protocol. A resolved ts of an
    earlier subscription of the same keys counts too."""
    if commit <= ld64(sub_at + S_SINCE):
        return STALE
    if op != PUT and op != DELETE:
        return V_NO_OP
    if op == PUT and value_len == 0:
        return V_EMPTY_PUT
    if commit <= ld64(sub_at + S_RESOLVED):
        return V_LATE
    return 0


@jit
def judge_orphan(sub_at, commit, cause):
    """Like `judge`, for a COMMIT of which only the commit_ts is known: it breaks the protocol by `cause` at least."""
    if commit <= ld64(sub_at + S_SINCE):
        return STALE
    return V_LATE if commit <= ld64(sub_at + S_RESOLVED) else cause


@jit
def reject(ctx, sub_at, sub, i, verdict, commit, start, key, key_len):
    """Reject a row: it is stale (and counted), or ends its subscription."""
    if verdict == STALE:
        bump(ctx, X_STALE)
    else:
        violation(ctx, sub_at, sub, i, verdict, commit, start, key, key_len)


@jit
def deliver(ctx, sub_at, sub, i, row, commit, op):
    """Deliver prewrite `row`, committed at `commit`, unless `judge` rejects it. op: that of the COMMIT, 0 for that of the prewrite. If its
    transaction has spilled prewrites, one of the same key may have a higher generation: then the join delivers it."""
    start = ld64(row + R_START)
    waits = spilled(ctx, start)
    if waits:
        verdict = judge_orphan(sub_at, commit, 0)
    else:
        op = op if op != 0 else ld8(row + R_OP)
        verdict = judge(sub_at, commit, op, ld32s(row + R_VALLEN))
    if verdict != 0:
        reject(ctx, sub_at, sub, i, verdict, commit, start, ld64(row + R_KEY), ld32s(row + R_KEYLEN))
    elif waits:
        late_with_data(ctx, row, commit, op_of(op))
    else:
        emit(ctx, sub_at, row, commit, op)


@jit
def discard(ctx, x):
    """Remove one entry, wherever it is."""
    row = word(ctx, X_POOL) + 64 * x
    if ld8(row + R_FLAGS) & F_DATA:
        account(ctx, row, -1)
    hold(ctx, ld32s(row + R_CHUNK), -1)
    sub, start, key, key_len = ld32s(row + R_SUB), ld64(row + R_START), ld64(row + R_KEY), ld32s(row + R_KEYLEN)
    _, place = find(ctx, hash32(sub, start, key, key_len), sub, start, key, key_len)
    erase(ctx, x, place)


@entry(1)
def sweep(ctx):
    """Free the entries of ended subscriptions and return their number. The subscriptions' ids may be reused afterwards."""
    subs = word(ctx, X_SUBS)
    pool = word(ctx, X_POOL)
    n = 0
    for x in range(word(ctx, X_POOL_TOP)):
        row = pool + 64 * x
        if ld8(row + R_FLAGS) != 0 and ld32s(subs + 128 * ld32s(row + R_SUB) + S_STATE) != ACTIVE:
            discard(ctx, x)
            n += 1
    return n


@entry(3)
def discard_many(ctx, which, n):
    """Remove the entries with these pool indexes (int64)."""
    for i in range(n):
        discard(ctx, ld64(which + 8 * i))
    return n


@entry(3)
def rehash(ctx, slots, mask):
    """Move to an empty, larger slot table."""
    old = word(ctx, X_SLOTS)
    for i in range(word(ctx, X_SLOT_MASK) + 1):
        slot = ld64(old + 8 * i)
        if slot != 0:
            j = (slot >> 32) & MASK32 & mask
            while ld64(slots + 8 * j) != 0:
                j = (j + 1) & mask
            st64(slots + 8 * j, slot)
    set_word(ctx, X_SLOTS, slots)
    set_word(ctx, X_SLOT_MASK, mask)
    return 0
