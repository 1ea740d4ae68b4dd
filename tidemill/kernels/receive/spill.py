"""Rows and prewrites on disk: packs them into runs, merges runs, joins late COMMITs with spilled prewrites."""

from __future__ import annotations

from tidemill.kernels.intrinsics import copy64, entry, jit, ld8, ld32s, ld64, prefetch, put, st8, st32, st64
from tidemill.kernels.receive.layout import (
    AS_PREWRITTEN,
    DELETE,
    R_COMMIT,
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
)
from tidemill.kernels.receive.seal import row_bytes
from tidemill.kernels.receive.text import compare, equal


@entry(7)
def pack(rows, idx, lo, hi, base, out, out_rows):
    """Write the bytes of rows idx[lo:hi] to `out` and their records to `out_rows`, with addresses as if `out` were at `base` (where the
    file will be mapped). Returns the bytes written."""
    p = 0
    for i in range(hi - lo):
        if lo + i + 16 < hi:
            prefetch(rows + 64 * ld32s(idx + 4 * (lo + i + 16)))
        if lo + i + 8 < hi:
            prefetch(ld64(rows + 64 * ld32s(idx + 4 * (lo + i + 8)) + R_KEY))
        r = rows + 64 * ld32s(idx + 4 * (lo + i))
        o = out_rows + 64 * i
        copy64(o, r)
        key = ld64(r + R_KEY)
        klen = ld32s(r + R_KEYLEN)
        vlen = ld32s(r + R_VALLEN)
        olen = ld32s(r + R_OLDLEN)
        put(out + p, key, klen)
        put(out + p + klen, key + ld32s(r + R_VALUE_D), vlen)
        put(out + p + klen + vlen, key + ld32s(r + R_OLD_D), olen)
        st64(o + R_KEY, base + p)
        st32(o + R_VALUE_D, klen)
        st32(o + R_OLD_D, klen + vlen)
        p += klen + vlen + olen
    return p


@jit
def row_less(x, y):
    a = ld64(x + R_COMMIT)
    b = ld64(y + R_COMMIT)
    if a != b:
        return a < b
    a = ld64(x + R_START)
    b = ld64(y + R_START)
    if a != b:
        return a < b
    return compare(ld64(x + R_KEY), ld32s(x + R_KEYLEN), ld64(y + R_KEY), ld32s(y + R_KEYLEN)) < 0


@jit
def sift(heap, n, i):
    c = ld64(heap + 8 * i)
    r = ld64(c)
    while True:
        j = 2 * i + 1
        if j >= n:
            break
        if j + 1 < n and row_less(ld64(ld64(heap + 8 * j + 8)), ld64(ld64(heap + 8 * j))):
            j += 1
        if not row_less(ld64(ld64(heap + 8 * j)), r):
            break
        st64(heap + 8 * i, ld64(heap + 8 * j))
        i = j
    st64(heap + 8 * i, c)


@entry(6)
def merge(heap, n_heap, fresh, limit, out, cap):
    """Write the next rows with commit_ts <= limit of sorted runs, in order, to out. A cursor is 2 words: the address of its next ROW, and
    the end of its rows; heap: cursors' addresses, n_heap: address of their number, behind which the bytes of the keys and values written
    are put; fresh 1: the heap has to be built. Returns the rows: fewer than cap at the end."""
    k = ld64(n_heap)
    size = 0
    if fresh != 0:
        i = k // 2 - 1
        while i >= 0:
            sift(heap, k, i)
            i -= 1
    n = 0
    while k > 0 and n < cap:
        c = ld64(heap)
        r = ld64(c)
        if ld64(r + R_COMMIT) > limit:
            break
        copy64(out + 64 * n, r)
        size += row_bytes(r)
        n += 1
        r += 64
        st64(c, r)
        prefetch(r + 256)
        if r == ld64(c + 8):
            k -= 1
            st64(heap, ld64(heap + 8 * k))
        if k > 0:
            sift(heap, k, 0)
    st64(n_heap, k)
    st64(n_heap + 8, size)
    return n


@entry(2)
def same_tail(rows, n):
    """Return how many of the last of n sorted rows are copies of one row (at least 1)."""
    i = n - 1
    last = rows + 64 * i
    while i > 0 and not row_less(rows + 64 * (i - 1), last):
        i -= 1
    return n - i


@jit
def late_less(start, sub, key, klen, r):
    """Return (start, sub, key) < those of ROW r."""
    a = ld64(r + R_START)
    if start != a:
        return start < a
    s = ld32s(r + R_SUB)
    if sub != s:
        return sub < s
    return compare(key, klen, ld64(r + R_KEY), ld32s(r + R_KEYLEN)) < 0


@entry(7)
def join(lates, idx, n, run, n_run, best, used):
    """Find the prewrites of COMMITs lates[idx[i]] in a run of spilled prewrites (ROWs sorted by (start_ts, sub, key)). best (a word per
    late): the address of the prewrite of the highest generation so far, of several the first; 0: none. used (a byte per run row): the
    prewrite was found, or is not wanted any more; then it is not found again."""
    at = 0
    for i in range(n):
        c = lates + 64 * ld32s(idx + 4 * i)
        start = ld64(c + R_START)
        sub = ld32s(c + R_SUB)
        key = ld64(c + R_KEY)
        klen = ld32s(c + R_KEYLEN)
        # gallop to the first run row that is not before c
        step = 1
        lo = at
        hi = at
        while hi < n_run and late_less(
            ld64(run + 64 * hi + R_START), ld32s(run + 64 * hi + R_SUB), ld64(run + 64 * hi + R_KEY), ld32s(run + 64 * hi + R_KEYLEN), c
        ):
            lo = hi + 1
            hi += step
            step *= 2
        if hi > n_run:
            hi = n_run
        while lo < hi:
            mid = (lo + hi) >> 1
            r = run + 64 * mid
            if late_less(ld64(r + R_START), ld32s(r + R_SUB), ld64(r + R_KEY), ld32s(r + R_KEYLEN), c):
                lo = mid + 1
            else:
                hi = mid
        at = lo
        if at < n_run:
            r = run + 64 * at
            same = ld64(r + R_START) == start and ld32s(r + R_SUB) == sub and ld32s(r + R_KEYLEN) == klen
            if same and ld8(used + at) == 0 and equal(ld64(r + R_KEY), key, klen):
                st8(used + at, 1)
                found = best + 8 * ld32s(idx + 4 * i)
                if ld64(found) == 0 or ld32s(ld64(found) + R_GENERATION) < ld32s(r + R_GENERATION):
                    st64(found, r)
    return 0


@entry(5)
def commit_best(lates, idx, n, best, out):
    """Write COMMITs lates[idx[i]] that found a prewrite to `out` (room for n), as ROWs with the data of the prewrite best[idx[i]]: the late
    itself, or one on disk. Returns the rows."""
    m = 0
    for i in range(n):
        c = lates + 64 * ld32s(idx + 4 * i)
        r = ld64(best + 8 * ld32s(idx + 4 * i))
        op = ld8(c + R_OP)
        if r == 0 or op == 0:
            continue
        if op == AS_PREWRITTEN:
            op = ld32s(r + R_NEXT) if r == c else ld8(r + R_OP)
        o = out + 64 * m
        copy64(o, r)
        st64(o + R_COMMIT, ld64(c + R_COMMIT))
        st8(o + R_OP, op)
        if op == DELETE:
            st32(o + R_VALLEN, 0)
        m += 1
    return m
