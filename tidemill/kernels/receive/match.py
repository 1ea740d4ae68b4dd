"""Matches ENTRY records into committed ROW records: the state machine of a subscription, run for all subscriptions.

The rules are those of TiKV's cdc component, checked against TiCDC's own handler in tests/capture/tikv/receive/test_matcher.py:

- Before INITIALIZED, scanned and live rows interleave. A COMMIT is matched at once if its prewrite is there with its value and
  generation 0; else it waits. A ROLLBACK is kept, because the scan may deliver the lock later. INITIALIZED settles both.
- Afterwards a COMMIT must find its prewrite. If it does not, it breaks the protocol and ends the subscription; its range is
  subscribed again from its resolved ts.
- If prewrites of its transaction are on disk, a COMMIT is joined with them: of those of its key, in memory and on disk, the one of the
  highest generation counts. The one in memory may be older: a scan delivers a lock as it was in its snapshot.
- A PREWRITE of op PUT without a value is fake (the lock of a large value was rewritten): it never replaces a real one.
- commit_ts at or below `since` of the subscription is stale; at or below the resolved ts it breaks the protocol.
- A row whose key lies outside of the subscription is dropped (servers that do not filter).
- What a row does by its kind alone, before all that, is in the table of capture/tikv/receive/kinds.py. A row without a kind and a key, as
  TiKV sends it for a lock-only commit, is nothing.
"""

from __future__ import annotations

from tidemill.kernels.intrinsics import entry, jit, ld8, ld16, ld32s, ld64, prefetch, st8, st32, st64
from tidemill.kernels.receive.layout import (
    ACTIVE,
    C_ERROR,
    C_INITIALIZED,
    C_SKIPPED,
    COMMIT,
    COMMITTED,
    DEAD,
    DELETE,
    E_COMMIT,
    E_GENERATION,
    E_KEY,
    E_KEYLEN,
    E_KIND,
    E_OP,
    E_REGION,
    E_REQUEST,
    E_RESOLVED,
    E_START,
    E_STREAM,
    E_VALLEN,
    END,
    ERROR,
    F_DATA,
    F_DONE,
    F_FAKE,
    F_ROLLED,
    F_WAIT,
    GROW_CONTROL,
    GROW_LATE,
    GROW_PART,
    GROW_POOL,
    HANDLE,
    INITIALIZED,
    P_ADDR,
    P_BYTES,
    P_CAP,
    P_COUNT,
    PREWRITE,
    PUT,
    R_CHUNK,
    R_COMMIT,
    R_FLAGS,
    R_GENERATION,
    R_KEY,
    R_KEYLEN,
    R_NEXT,
    R_OP,
    R_START,
    R_SUB,
    R_VALLEN,
    RESOLVED,
    ROLLBACK,
    S_HI,
    S_HILEN,
    S_INIT,
    S_LO,
    S_LOLEN,
    S_PARTITION,
    S_RESOLVED,
    S_SEEN,
    S_SINCE,
    S_STATE,
    S_TOUCHED,
    V_FAKE_ONLY,
    V_UNKNOWN_TYPE,
    V_UNMATCHED,
    VERDICTS_OF_KIND,
    X_CLOCK,
    X_CONTROL_CAP,
    X_COUNT,
    X_DUP,
    X_KINDS,
    X_LATE_CAP,
    X_MUX,
    X_NCONTROL,
    X_NLATE,
    X_PARTS,
    X_POOL,
    X_POOL_CAP,
    X_POOL_FREE,
    X_POOL_TOP,
    X_RANGE,
    X_RING,
    X_ROWS,
    X_SKIPPED,
    X_SLOT_MASK,
    X_SLOTS,
    X_SUBS,
    X_UNKNOWN,
)
from tidemill.kernels.receive.pending import (
    STALE,
    account,
    bump,
    control,
    deliver,
    erase,
    fill,
    find,
    forget_data,
    hold,
    insert,
    judge,
    judge_orphan,
    late,
    op_of,
    reject,
    size_of,
    spilled,
    touch,
)
from tidemill.kernels.receive.subs import find_sub, set_word, word
from tidemill.kernels.receive.text import MASK32, compare, hash32

AHEAD = 12  # entries looked ahead; the ring of their hashes is in the context
IN_CACHE = 4096  # this many pending entries fit into the processor's cache anyway


@jit
def look_ahead(ctx, entries, n, i, sub, base):
    """Prefetch the memory that later entries need: slot, then record, then key. It is only a hint, so the current subscription is
    assumed."""
    j = i + AHEAD
    if j < n:
        ent = entries + 64 * j
        kind = ld8(ent + E_KIND)
        code = -1
        if PREWRITE <= kind <= ROLLBACK:
            code = hash32(sub, ld64(ent + E_START), base + ld32s(ent + E_KEY), ld32s(ent + E_KEYLEN))
            prefetch(word(ctx, X_SLOTS) + 8 * (code & word(ctx, X_SLOT_MASK)))
        set_word(ctx, X_RING + (j & 15), code)
    j = i + AHEAD // 2
    if j < n:
        code = word(ctx, X_RING + (j & 15))
        row = 0
        if code >= 0:
            slot = ld64(word(ctx, X_SLOTS) + 8 * (code & word(ctx, X_SLOT_MASK)))
            if slot != 0 and (slot >> 32) & MASK32 == code:
                row = word(ctx, X_POOL) + 64 * ((slot & MASK32) - 1)
                prefetch(row)
        set_word(ctx, X_RING + 16 + (j & 15), row)
    j = i + AHEAD // 4
    if j < n:
        row = word(ctx, X_RING + 16 + (j & 15))
        if row != 0:
            prefetch(ld64(row + R_KEY))


@jit
def lacking(ctx):
    """Return what has to grow before any entry can be taken, or 0."""
    if word(ctx, X_NCONTROL) >= word(ctx, X_CONTROL_CAP):
        return GROW_CONTROL
    if word(ctx, X_POOL_FREE) < 0 and word(ctx, X_POOL_TOP) >= word(ctx, X_POOL_CAP):
        return GROW_POOL
    if 2 * word(ctx, X_COUNT) > word(ctx, X_SLOT_MASK):
        return GROW_POOL
    if word(ctx, X_NLATE) >= word(ctx, X_LATE_CAP):
        return GROW_LATE
    return 0


@jit
def settle(ctx, sub_at, sub, i, row):
    """Settle an entry whose COMMIT or ROLLBACK came before INITIALIZED."""
    flags = ld8(row + R_FLAGS)
    start, key, key_len = ld64(row + R_START), ld64(row + R_KEY), ld32s(row + R_KEYLEN)
    commit = ld64(row + R_COMMIT)
    if flags & F_WAIT:
        op = ld32s(row + R_GENERATION) >> 30 & 3 if flags & F_DATA == 0 else ld8(row + R_OP)
        verdict = judge_orphan(sub_at, commit, 0)
        if flags & F_DATA and not (flags & F_FAKE):
            deliver(ctx, sub_at, sub, i, row, commit, 0)
        elif verdict != 0:
            reject(ctx, sub_at, sub, i, verdict, commit, start, key, key_len)
        elif spilled(ctx, start):
            late(ctx, sub, start, commit, key, key_len, ld32s(row + R_CHUNK), op_of(op), F_WAIT)
        # Else the scan sent its row as COMMITTED.
    elif flags & F_ROLLED and spilled(ctx, start):
        late(ctx, sub, start, 0, key, key_len, ld32s(row + R_CHUNK), 0, 0)


@jit
def on_initialized(ctx, sub_at, sub, part, i):
    """Settle all touched entries. Return what has to grow first, or 0."""
    pool = word(ctx, X_POOL)
    x = ld32s(sub_at + S_TOUCHED)
    while x >= 0:
        if ld64(part + 8 * P_COUNT) >= ld64(part + 8 * P_CAP):
            return GROW_PART
        if word(ctx, X_NLATE) >= word(ctx, X_LATE_CAP):
            return GROW_LATE
        row = pool + 64 * x
        st32(sub_at + S_TOUCHED, ld32s(row + R_NEXT))
        settle(ctx, sub_at, sub, i, row)
        if ld32s(sub_at + S_STATE) != ACTIVE:
            return 0  # the rest is freed with the subscription
        start, key, key_len = ld64(row + R_START), ld64(row + R_KEY), ld32s(row + R_KEYLEN)
        if ld8(row + R_FLAGS) & F_DATA:
            account(ctx, row, -1)
        hold(ctx, ld32s(row + R_CHUNK), -1)
        _, place = find(ctx, hash32(sub, start, key, key_len), sub, start, key, key_len)
        erase(ctx, x, place)
        x = ld32s(sub_at + S_TOUCHED)
    st32(sub_at + S_INIT, 1)
    control(ctx, C_INITIALIZED, sub, i, 0)
    return 0


@jit
def on_committed(ctx, sub_at, sub, part, ent, base, chunk, i):
    op, commit = ld8(ent + E_OP), ld64(ent + E_COMMIT)
    verdict = judge(sub_at, commit, op, ld32s(ent + E_VALLEN))
    if verdict != 0:
        reject(ctx, sub_at, sub, i, verdict, commit, ld64(ent + E_START), base + ld32s(ent + E_KEY), ld32s(ent + E_KEYLEN))
    else:
        out = ld64(part + 8 * P_ADDR) + 64 * ld64(part + 8 * P_COUNT)
        fill(ctx, out, ent, base, chunk)
        st64(out + R_START, ld64(ent + E_START))
        st32(out + R_SUB, sub)
        if op == DELETE:
            st32(out + R_VALLEN, 0)
        st64(part + 8 * P_COUNT, ld64(part + 8 * P_COUNT) + 1)
        st64(part + 8 * P_BYTES, ld64(part + 8 * P_BYTES) + size_of(out))
        bump(ctx, X_ROWS)
    return 0


@jit
def on_prewrite(ctx, sub_at, sub, ent, base, chunk, i, code, x, place):
    op = ld8(ent + E_OP)
    fake = F_FAKE if op == PUT and ld32s(ent + E_VALLEN) == 0 else 0
    pool = word(ctx, X_POOL)
    if x < 0:
        x = insert(ctx, code, place, sub, ld64(ent + E_START), ent, base, chunk, F_DATA | fake)
        account(ctx, pool + 64 * x, 1)
        return 0
    row = pool + 64 * x
    flags = ld8(row + R_FLAGS)
    if flags & (F_DONE | F_ROLLED):
        return 0
    if flags & F_DATA:
        if fake or ld32s(ent + E_GENERATION) < ld32s(row + R_GENERATION):
            return 0
        account(ctx, row, -1)
    commit = ld64(row + R_COMMIT)
    hold(ctx, ld32s(row + R_CHUNK), -1)
    fill(ctx, row, ent, base, chunk)
    account(ctx, row, 1)
    flags = flags & F_WAIT | F_DATA | fake
    if flags & F_WAIT:
        st64(row + R_COMMIT, commit)
        if not fake and ld32s(ent + E_GENERATION) == 0:
            deliver(ctx, sub_at, sub, i, row, commit, 0)
            account(ctx, row, -1)
            flags = F_DONE
    st8(row + R_FLAGS, flags)
    return 0


@jit
def on_orphan(ctx, sub_at, sub, ent, key, key_len, chunk, i, cause):
    """Handle a COMMIT after INITIALIZED whose prewrite is not in memory: it is on disk, or the store broke the protocol by `cause` at
    least."""
    start, commit = ld64(ent + E_START), ld64(ent + E_COMMIT)
    verdict = judge_orphan(sub_at, commit, cause)
    if verdict == cause and spilled(ctx, start):
        late(ctx, sub, start, commit, key, key_len, chunk, op_of(ld8(ent + E_OP)), 0)
    else:
        reject(ctx, sub_at, sub, i, verdict, commit, start, key, key_len)
    return 0


@jit
def on_commit_live(ctx, sub_at, sub, ent, key, key_len, chunk, i, x, place):
    """Handle a COMMIT after INITIALIZED."""
    commit, op = ld64(ent + E_COMMIT), ld8(ent + E_OP)
    if x < 0:
        return on_orphan(ctx, sub_at, sub, ent, key, key_len, chunk, i, V_UNMATCHED)
    row = word(ctx, X_POOL) + 64 * x
    fake = ld8(row + R_FLAGS) & F_FAKE
    if not fake:
        deliver(ctx, sub_at, sub, i, row, commit, op)
    forget_data(ctx, row)
    erase(ctx, x, place)
    if fake:
        return on_orphan(ctx, sub_at, sub, ent, key, key_len, chunk, i, V_FAKE_ONLY)
    return 0


@jit
def on_commit(ctx, sub_at, sub, ent, base, key, key_len, chunk, i, code, x, place):
    row = word(ctx, X_POOL) + 64 * x
    if x >= 0 and ld8(row + R_FLAGS) & (F_DONE | F_WAIT):
        bump(ctx, X_DUP)
        return 0
    if x >= 0 and ld8(row + R_FLAGS) & F_ROLLED:  # both cannot be true: a new scan has the truth
        verdict = judge_orphan(sub_at, ld64(ent + E_COMMIT), V_UNMATCHED)
        reject(ctx, sub_at, sub, i, verdict, ld64(ent + E_COMMIT), ld64(ent + E_START), key, key_len)
        return 0
    if ld32s(sub_at + S_INIT) != 0:
        return on_commit_live(ctx, sub_at, sub, ent, key, key_len, chunk, i, x, place)
    commit, op = ld64(ent + E_COMMIT), ld8(ent + E_OP)
    if x < 0:
        x = insert(ctx, code, place, sub, ld64(ent + E_START), ent, base, chunk, F_WAIT)
        row = word(ctx, X_POOL) + 64 * x
        st32(row + R_GENERATION, op << 30)  # without data the generation has no use: keep the commit's op
    elif not (ld8(row + R_FLAGS) & F_FAKE) and ld32s(row + R_GENERATION) == 0:
        deliver(ctx, sub_at, sub, i, row, commit, op)
        account(ctx, row, -1)
        st8(row + R_FLAGS, F_DONE)
    else:
        st64(row + R_COMMIT, commit)
        st8(row + R_FLAGS, ld8(row + R_FLAGS) | F_WAIT)
    touch(sub_at, row, x)
    return 0


@jit
def on_rollback(ctx, sub_at, sub, ent, base, key, key_len, chunk, code, x, place):
    start = ld64(ent + E_START)
    row = word(ctx, X_POOL) + 64 * x
    if ld32s(sub_at + S_INIT) != 0:
        if x >= 0:
            if ld8(row + R_FLAGS) & F_DATA:
                account(ctx, row, -1)
            hold(ctx, ld32s(row + R_CHUNK), -1)
            erase(ctx, x, place)
        if spilled(ctx, start):
            late(ctx, sub, start, 0, key, key_len, chunk, 0, 0)
        return 0
    if x < 0:
        x = insert(ctx, code, place, sub, start, ent, base, chunk, F_ROLLED)
        touch(sub_at, word(ctx, X_POOL) + 64 * x, x)
    elif ld8(row + R_FLAGS) & (F_WAIT | F_DONE | F_ROLLED) == 0:
        account(ctx, row, -1)
        st8(row + R_FLAGS, F_ROLLED)
        touch(sub_at, row, x)
    return 0


@jit
def outside(sub_at, key, key_len):
    """Return whether the key is outside of the subscription's range."""
    lo_len, hi_len = ld32s(sub_at + S_LOLEN), ld32s(sub_at + S_HILEN)
    if lo_len > 0 and compare(key, key_len, ld64(sub_at + S_LO), lo_len) < 0:
        return True
    return hi_len > 0 and compare(key, key_len, ld64(sub_at + S_HI), hi_len) >= 0


@jit
def on_row(ctx, sub_at, sub, part, ent, kind, base, chunk, i):
    """Handle PREWRITE, COMMIT, ROLLBACK or COMMITTED, with room for all it may need."""
    key, key_len = base + ld32s(ent + E_KEY), ld32s(ent + E_KEYLEN)
    if outside(sub_at, key, key_len):
        bump(ctx, X_RANGE)
        return 0
    if kind == COMMITTED:
        return on_committed(ctx, sub_at, sub, part, ent, base, chunk, i)
    start = ld64(ent + E_START)
    code = hash32(sub, start, key, key_len)
    x, place = find(ctx, code, sub, start, key, key_len)
    if kind == PREWRITE:
        return on_prewrite(ctx, sub_at, sub, ent, base, chunk, i, code, x, place)
    if kind == COMMIT:
        return on_commit(ctx, sub_at, sub, ent, base, key, key_len, chunk, i, code, x, place)
    return on_rollback(ctx, sub_at, sub, ent, base, key, key_len, chunk, code, x, place)


@jit
def on_entry(ctx, sub_at, sub, ent, kind, base, chunk, i):
    """Handle one entry of an active subscription. Return what has to grow first, or 0."""
    if kind == RESOLVED:
        if ld32s(sub_at + S_INIT) != 0 and ld64(ent + E_RESOLVED) > ld64(sub_at + S_RESOLVED):
            st64(sub_at + S_RESOLVED, ld64(ent + E_RESOLVED))
        return 0
    if kind == ERROR:
        control(ctx, C_ERROR, sub, i, 0)
        st32(sub_at + S_STATE, DEAD)
        return 0
    part = word(ctx, X_PARTS) + 32 * ld32s(sub_at + S_PARTITION)
    if kind == INITIALIZED:
        return on_initialized(ctx, sub_at, sub, part, i)
    if ld64(part + 8 * P_COUNT) >= ld64(part + 8 * P_CAP):
        return GROW_PART
    return on_row(ctx, sub_at, sub, part, ent, kind, base, chunk, i)


@jit
def leave_out(ctx, sub_at, sub, ent, verdict, base, i):
    """Leave out a row of a kind that is not taken: count it, or end its subscription. The first of a newer kind is reported."""
    if verdict == END:
        commit, start = ld64(ent + E_COMMIT), ld64(ent + E_START)
        cause = STALE if 0 < commit <= ld64(sub_at + S_SINCE) else V_UNKNOWN_TYPE
        reject(ctx, sub_at, sub, i, cause, commit, start, base + ld32s(ent + E_KEY), ld32s(ent + E_KEYLEN))
        return
    if verdict == X_SKIPPED and word(ctx, X_SKIPPED) == 0:
        control(ctx, C_SKIPPED, sub, i, 0)
    bump(ctx, verdict)


@entry(6)
def match(ctx, entries, n, first, base, chunk):
    """Handle entries first..n, whose bytes are in `chunk` at `base`. Returns code << 40 | next entry: code 0 when all were handled, else
    what has to grow before the call is repeated from there."""
    subs = word(ctx, X_SUBS)
    mux = word(ctx, X_MUX)
    kinds = word(ctx, X_KINDS)
    last_region = last_request = last_stream = -1
    sub = -1
    sub_at = subs
    far = word(ctx, X_COUNT) > IN_CACHE
    if far:
        for i in range(32):
            set_word(ctx, X_RING + i, -1 if i < 16 else 0)
    for i in range(first, n):
        if far:
            look_ahead(ctx, entries, n, i, sub, base)
        lack = lacking(ctx)
        if lack != 0:
            return lack << 40 | i
        ent = entries + 64 * i
        kind = ld8(ent + E_KIND)
        stream, region, request = ld16(ent + E_STREAM), ld64(ent + E_REGION), ld64(ent + E_REQUEST)
        if region != last_region or request != last_request or stream != last_stream:
            last_region = region
            last_request = request
            last_stream = stream
            sub = find_sub(ctx, stream, region, request if ld8(mux + stream) != 0 else 0)
            sub_at = subs + 128 * sub
            if sub >= 0:
                st64(sub_at + S_SEEN, word(ctx, X_CLOCK))
        if sub < 0 or ld32s(sub_at + S_STATE) != ACTIVE:
            bump(ctx, X_UNKNOWN)
            continue
        live = 2 if ld32s(sub_at + S_INIT) != 0 else 0
        keyed = 1 if ld32s(ent + E_KEYLEN) > 0 else 0
        verdict = ld8(kinds + VERDICTS_OF_KIND * kind + live + keyed)
        if verdict != HANDLE:
            leave_out(ctx, sub_at, sub, ent, verdict, base, i)
            continue
        lack = on_entry(ctx, sub_at, sub, ent, kind, base, chunk, i)
        if lack != 0:
            return lack << 40 | i
    return n
