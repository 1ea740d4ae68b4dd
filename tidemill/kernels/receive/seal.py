"""Sorts committed rows, drops duplicates, cuts batches, and gathers them into Arrow buffers.

The order of a segment is (commit_ts, start_ts, table_id, key). For record keys that equals (commit_ts, start_ts, key), because a key
contains the table id in an order-preserving encoding, and meta keys sort before it.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import (
    as_i,
    as_u,
    bswap64,
    copy64,
    ctz,
    entry,
    jit,
    ld8,
    ld32s,
    ld64,
    ldu64,
    memcpy,
    prefetch,
    put,
    st8,
    st32,
    st64,
)
from tidemill.kernels.receive.layout import (
    R_CHUNK,
    R_COMMIT,
    R_KEY,
    R_KEYLEN,
    R_OLD_D,
    R_OLDLEN,
    R_OP,
    R_START,
    R_VALLEN,
    R_VALUE_D,
)
from tidemill.kernels.receive.text import ALL, U0, compare, equal

SIGN = np.uint64(1 << 63)
BITS, FEW_BITS = 11, 8  # of a pass over all rows, over those of one commit_ts
DIGITS = 1 << BITS


@entry(4)
def split(rows, n, limit, out):
    """Move rows with commit_ts <= limit to `out`, in their order; the rest moves up. Return their number."""
    a = b = 0
    for i in range(n):
        r = rows + 64 * i
        if ld64(r + R_COMMIT) <= limit:
            copy64(out + 64 * a, r)
            a += 1
        else:
            if b != i:
                copy64(rows + 64 * b, r)
            b += 1
    return a


@jit
def row_bytes(row):
    """Return the bytes of a ROW's key and values."""
    return ld32s(row + R_KEYLEN) + ld32s(row + R_VALLEN) + ld32s(row + R_OLDLEN)


@jit
def radix(keys, idx, keys2, idx2, n, bits, hist):
    """Sort n pairs (key, index) stably by key, `bits` a pass; keys2 and idx2 are scratch. Keys move together with their indexes, so every
    pass reads what lies next to each other. Bits that all keys share are skipped."""
    k0 = ldu64(keys)
    diff = U0
    prev = k0
    is_sorted = True
    for i in range(n):
        k = ldu64(keys + 8 * i)
        diff |= k ^ k0
        if k < prev:
            is_sorted = False
        prev = k
    if is_sorted:
        return
    digits = 1 << bits
    low = as_u(digits - 1)
    from_keys, from_idx, to_keys, to_idx = keys, idx, keys2, idx2
    shift = ctz(diff)
    while shift < 64:
        sh = as_u(shift)
        for d in range(digits):
            st32(hist + 4 * d, 0)
        for i in range(n):
            at = hist + 4 * as_i((ldu64(from_keys + 8 * i) >> sh) & low)
            st32(at, ld32s(at) + 1)
        s = 0
        for d in range(digits):
            c = ld32s(hist + 4 * d)
            st32(hist + 4 * d, s)
            s += c
        for i in range(n):
            k = ldu64(from_keys + 8 * i)
            at = hist + 4 * as_i((k >> sh) & low)
            place = ld32s(at)
            st32(at, place + 1)
            st64(to_keys + 8 * place, k)
            st32(to_idx + 4 * place, ld32s(from_idx + 4 * i))
        from_keys, from_idx, to_keys, to_idx = to_keys, to_idx, from_keys, from_idx
        shift += bits
        if shift < 64:
            shift += ctz(diff >> as_u(shift))
    if from_keys != keys:
        memcpy(keys, from_keys, 8 * n)
        memcpy(idx, from_idx, 4 * n)


@jit
def before(rows, i, j):
    """Return whether row i sorts before row j; both have the same commit_ts."""
    x = rows + 64 * i
    y = rows + 64 * j
    a = ld64(x + R_START)
    b = ld64(y + R_START)
    if a != b:
        return a < b
    return compare(ld64(x + R_KEY), ld32s(x + R_KEYLEN), ld64(y + R_KEY), ld32s(y + R_KEYLEN)) < 0


@jit
def by_insertion(rows, idx, lo, hi):
    for i in range(lo + 1, hi):
        j = ld32s(idx + 4 * i)
        k = i - 1
        while k >= lo and before(rows, j, ld32s(idx + 4 * k)):
            st32(idx + 4 * (k + 1), ld32s(idx + 4 * k))
            k -= 1
        st32(idx + 4 * (k + 1), j)


@jit
def ask_ahead(rows, idx, times, i, n):
    """Prefetch what the comparison of later rows reads: the row, then its key. A row whose commit_ts is its own is not compared."""
    j = i + 16
    if j < n and ld64(times + 8 * j) == ld64(times + 8 * j - 8):
        prefetch(rows + 64 * ld32s(idx + 4 * j))
    j = i + 8
    if j < n and ld64(times + 8 * j) == ld64(times + 8 * j - 8):
        prefetch(ld64(rows + 64 * ld32s(idx + 4 * j) + R_KEY))


@entry(8)
def order(rows, n, times, idx, keys, idx2, hist, stack):
    """Set idx to the permutation of n ROWs by (commit_ts, start_ts, key). times: n words; keys: 2 n; hist: DIGITS int32; stack: n // 8 + 16
    words. Small groups of one commit_ts are sorted by insertion. Larger ones are sorted level by level: start_ts, then seven key bytes
    after the prefix that the group shares, and so on."""
    if n == 0:
        return 0
    for i in range(n):
        st64(times + 8 * i, ld64(rows + 64 * i + R_COMMIT))
        st32(idx + 4 * i, i)
    radix(times, idx, keys, idx2, n, BITS, hist)
    lo = 0
    while lo < n:
        c = ld64(times + 8 * lo)
        hi = lo + 1
        while hi < n and ld64(times + 8 * hi) == c:
            ask_ahead(rows, idx, times, hi, n)
            hi += 1
        if hi - lo <= 24:
            by_insertion(rows, idx, lo, hi)
        else:
            top = 1
            st64(stack, lo)
            st64(stack + 8, hi)
            st64(stack + 16, 0)
            while top > 0:
                top -= 1
                a = ld64(stack + 24 * top)
                b = ld64(stack + 24 * top + 8)
                level = ld64(stack + 24 * top + 16)
                if level == 0:
                    for i in range(a, b):
                        st64(keys + 8 * i, ld64(rows + 64 * ld32s(idx + 4 * i) + R_START))
                else:
                    f = rows + 64 * ld32s(idx + 4 * a)
                    fk = ld64(f + R_KEY)
                    shared = ld32s(f + R_KEYLEN)
                    longest = shared
                    for i in range(a + 1, b):
                        r = rows + 64 * ld32s(idx + 4 * i)
                        k = ld64(r + R_KEY)
                        kl = ld32s(r + R_KEYLEN)
                        if kl > longest:
                            longest = kl
                        if kl < shared:
                            shared = kl
                        m = 0
                        while m < shared:
                            d = ldu64(fk + m) ^ ldu64(k + m)
                            if d != U0:
                                m += ctz(d) >> 3
                                break
                            m += 8
                        if m < shared:
                            shared = m
                    if shared == longest:
                        continue  # all have the same key
                    for i in range(a, b):
                        r = rows + 64 * ld32s(idx + 4 * i)
                        left = ld32s(r + R_KEYLEN) - shared
                        # seven bytes, then their number (so "ab" sorts before "ab\0")
                        w = U0
                        if left > 0:
                            w = bswap64(ldu64(ld64(r + R_KEY) + shared)) & (ALL << as_u(64 - 8 * (left if left < 7 else 7)))
                        st64(keys + 8 * i, w | as_u(left if left < 8 else 8))
                radix(keys + 8 * a, idx + 4 * a, keys + 8 * n, idx2, b - a, FEW_BITS, hist)
                i = a
                while i < b:
                    same = ldu64(keys + 8 * i)
                    m = i + 1
                    while m < b and ldu64(keys + 8 * m) == same:
                        m += 1
                    if m - i > 24:
                        st64(stack + 24 * top, i)
                        st64(stack + 24 * top + 8, m)
                        st64(stack + 24 * top + 16, level + 1)
                        top += 1
                    elif m - i > 1:
                        by_insertion(rows, idx, i, m)
                    i = m
        lo = hi
    return n


@jit
def same_row(a, b):
    """Return whether two rows are copies of one: the same commit_ts, start_ts and key."""
    if ld64(a + R_COMMIT) != ld64(b + R_COMMIT) or ld64(a + R_START) != ld64(b + R_START):
        return False
    return ld32s(a + R_KEYLEN) == ld32s(b + R_KEYLEN) and equal(ld64(a + R_KEY), ld64(b + R_KEY), ld32s(a + R_KEYLEN))


@entry(7)
def plan(rows, idx, n, max_rows, max_bytes, cuts, cap):
    """Drop duplicates from the order (the fuller copy stays) and cut it into batches. cuts: 4 words per batch: end, key bytes, value bytes,
    old bytes; cuts[-1] (4 * cap) = batches. Returns the number of rows left."""
    m = 0
    nb = 0
    count = kb = vb = ob = 0
    prev = 0
    for i in range(n):
        if i + 16 < n:
            prefetch(rows + 64 * ld32s(idx + 4 * (i + 16)))
        if i + 8 < n:
            prefetch(ld64(rows + 64 * ld32s(idx + 4 * (i + 8)) + R_KEY))
        j = ld32s(idx + 4 * i)
        r = rows + 64 * j
        if m > 0 and same_row(prev, r):
            if ld32s(r + R_OLDLEN) > ld32s(prev + R_OLDLEN) or ld32s(r + R_VALLEN) > ld32s(prev + R_VALLEN):
                vb += ld32s(r + R_VALLEN) - ld32s(prev + R_VALLEN)
                ob += ld32s(r + R_OLDLEN) - ld32s(prev + R_OLDLEN)
                st32(idx + 4 * (m - 1), j)
                prev = r
            continue
        size = row_bytes(r)
        if count > 0 and (count == max_rows or kb + vb + ob + size > max_bytes) and nb < cap - 1:
            c = cuts + 32 * nb
            st64(c, m)
            st64(c + 8, kb)
            st64(c + 16, vb)
            st64(c + 24, ob)
            nb += 1
            count = kb = vb = ob = 0
        st32(idx + 4 * m, j)
        m += 1
        count += 1
        kb += ld32s(r + R_KEYLEN)
        vb += ld32s(r + R_VALLEN)
        ob += ld32s(r + R_OLDLEN)
        prev = r
    c = cuts + 32 * nb
    st64(c, m)
    st64(c + 8, kb)
    st64(c + 16, vb)
    st64(c + 24, ob)
    st64(cuts + 32 * cap, nb + (1 if m > 0 else 0))
    return m


@entry(5)
def gather(rows, idx, lo, hi, out):
    """Gather rows idx[lo:hi] into Arrow buffers. out: addresses of table_id, op, start_ts, commit_ts, key offsets, keys, value offsets,
    values, value validity, old offsets, olds, old validity; then the two null counts are written there."""
    o_table = ld64(out)
    o_op = ld64(out + 8)
    o_start = ld64(out + 16)
    o_commit = ld64(out + 24)
    o_koff = ld64(out + 32)
    keys = ld64(out + 40)
    o_voff = ld64(out + 48)
    vals = ld64(out + 56)
    vmap = ld64(out + 64)
    o_ooff = ld64(out + 72)
    olds = ld64(out + 80)
    omap = ld64(out + 88)
    k = v = o = 0
    vbits = obits = 0
    nv = no = 0
    st32(o_koff, 0)
    st32(o_voff, 0)
    st32(o_ooff, 0)
    for i in range(hi - lo):
        if lo + i + 24 < hi:
            prefetch(rows + 64 * ld32s(idx + 4 * (lo + i + 24)))
        if lo + i + 12 < hi:
            a = rows + 64 * ld32s(idx + 4 * (lo + i + 12))
            p = ld64(a + R_KEY)
            prefetch(p)
            prefetch(p + 64)
            q = p + ld32s(a + R_VALUE_D)
            m = ld32s(a + R_VALLEN)
            m = m if m < 512 else 512
            while m > 64:
                m -= 64
                prefetch(q + m)
            q = p + ld32s(a + R_OLD_D)
            m = ld32s(a + R_OLDLEN)
            m = m if m < 512 else 512
            while m > 0:
                m -= 64
                prefetch(q + m)
        r = rows + 64 * ld32s(idx + 4 * (lo + i))
        key = ld64(r + R_KEY)
        klen = ld32s(r + R_KEYLEN)
        vlen = ld32s(r + R_VALLEN)
        olen = ld32s(r + R_OLDLEN)
        table = 0
        if klen >= 9 and ld8(key) == 116:
            table = as_i(bswap64(ldu64(key + 1)) ^ SIGN)
        st64(o_table + 8 * i, table)
        st8(o_op + i, ld8(r + R_OP))
        st64(o_start + 8 * i, ld64(r + R_START))
        st64(o_commit + 8 * i, ld64(r + R_COMMIT))
        put(keys + k, key, klen)
        k += klen
        st32(o_koff + 4 * i + 4, k)
        b = 1 << (i & 7)
        if vlen > 0:
            put(vals + v, key + ld32s(r + R_VALUE_D), vlen)
            v += vlen
            vbits |= b
            nv += 1
        st32(o_voff + 4 * i + 4, v)
        if olen > 0:
            put(olds + o, key + ld32s(r + R_OLD_D), olen)
            o += olen
            obits |= b
            no += 1
        st32(o_ooff + 4 * i + 4, o)
        if i & 7 == 7:
            st8(vmap + (i >> 3), vbits)
            st8(omap + (i >> 3), obits)
            vbits = obits = 0
    n = hi - lo
    st8(vmap + (n >> 3), vbits)
    st8(omap + (n >> 3), obits)
    st64(out + 96, n - nv)
    st64(out + 104, n - no)
    return n


@entry(4)
def arrange(rows, idx, n, out):
    """Copy the ROWs idx[:n] to `out`."""
    for i in range(n):
        if i + 16 < n:
            prefetch(rows + 64 * ld32s(idx + 4 * (i + 16)))
        copy64(out + 64 * i, rows + 64 * ld32s(idx + 4 * i))
    return n


@entry(3)
def moved(rows, n, out):
    """Copy n ROWs to `out`. Return the bytes of their keys and values."""
    total = 0
    for i in range(n):
        row = rows + 64 * i
        copy64(out + 64 * i, row)
        total += row_bytes(row)
    return total


@entry(2)
def bytes_of(rows, n):
    """Return the bytes of the keys and values of n ROWs."""
    total = 0
    for i in range(n):
        row = rows + 64 * i
        total += row_bytes(row)
    return total


@entry(3)
def release(refs, rows, n):
    """Release the rows' holds of their chunks: the rows are written."""
    for i in range(n):
        c = ld32s(rows + 64 * i + R_CHUNK)
        if c >= 0:
            st64(refs + 8 * c, ld64(refs + 8 * c) - 1)
    return 0


@entry(4)
def keep_owned(rows, n, bounds, n_bounds):
    """Remove the rows of tables that belong to another partition at their commit_ts; the rest moves up. Return the number of rows left.

    bounds: 7 words each: a table id; the rows above the second and up to the third word (commit_ts) are removed if their handle, which
    follows 11 bytes of the key, is not below the one at the fourth word (its length: the fifth), and is below the one at the sixth
    (its length: the seventh; 0: no end).
    """
    kept = 0
    for i in range(n):
        row = rows + 64 * i
        key, key_len = ld64(row + R_KEY), ld32s(row + R_KEYLEN)
        gone = False
        if key_len >= 11 and ld8(key) == 116:
            table = as_i(bswap64(ldu64(key + 1)) ^ SIGN)
            commit = ld64(row + R_COMMIT)
            for b in range(n_bounds):
                bound = bounds + 56 * b
                if ld64(bound) == table and ld64(bound + 8) < commit and commit <= ld64(bound + 16):
                    low_len, high_len = ld64(bound + 32), ld64(bound + 48)
                    above = low_len == 0 or compare(key + 11, key_len - 11, ld64(bound + 24), low_len) >= 0
                    if above and (high_len == 0 or compare(key + 11, key_len - 11, ld64(bound + 40), high_len) < 0):
                        gone = True
        if not gone:
            if kept != i:
                copy64(rows + 64 * kept, row)
            kept += 1
    return kept
