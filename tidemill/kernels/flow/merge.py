"""Merges k sorted sources into row records in the order (commit_ts, start_ts, key), and routes rows by table.

The commit_ts of each source's next row is kept beside it, so most comparisons read one short array.

Reference: `reference.merge`. Addresses are int64. Nothing is allocated, nothing raises: the caller provides the room.
"""

from __future__ import annotations

from tidemill.kernels.flow.layout import (
    DROP,
    NOT_FOUND,
    ONLY,
    ONLY_COMMIT,
    ONLY_KINDS,
    ONLY_START,
    RULE_MAY_SPLIT,
    RULE_SIZE,
    S_BASE,
    S_COMMIT,
    S_END,
    S_KEY_OFFSETS,
    S_KEYS,
    S_MORE,
    S_OLD_BIT,
    S_OLD_OFFSETS,
    S_OLD_VALID,
    S_OLDS,
    S_PICKED,
    S_POS,
    S_SIZE,
    S_START,
    S_TABLE_ID,
    S_VALUE_BIT,
    S_VALUE_OFFSETS,
    S_VALUE_VALID,
    S_VALUES,
    ST_BYTES,
    ST_DROPPED,
    ST_HASHED,
    ST_ID,
    ST_KINDS,
    ST_MAY_SPLIT,
    ST_REASON,
    ST_SEEN,
    ST_SOURCE,
    Stop,
)
from tidemill.kernels.flow.targets import find_rule, target_of
from tidemill.kernels.intrinsics import bswap64, entry, jit, ld8, ld32, ld64, ldu64, memmove, prefetch, st8, st32, st64
from tidemill.records import (
    KIND_DELETE,
    KIND_INSERT,
    KIND_UPDATE,
    R_COMMIT,
    R_KEY,
    R_KEYLEN,
    R_KIND,
    R_OLD,
    R_OLDLEN,
    R_SPLIT,
    R_START,
    R_TABLE,
    R_TARGET,
    R_VALLEN,
    R_VALUE,
    ROW,
)

_ROW = ROW.itemsize
ALL_KINDS = 1 << KIND_DELETE | 1 << KIND_UPDATE | 1 << KIND_INSERT
_FOREVER = 0x7FFFFFFFFFFFFFFF
MANY = 8
"""With more sources than this, what they have next is asked for early: the processor notices a dozen of streams by itself."""
AHEAD_BYTES = 128
_DONE, _FULL, _DRY, _UNKNOWN = int(Stop.DONE), int(Stop.FULL), int(Stop.DRY), int(Stop.UNKNOWN)


@jit
def key_before(p, n, q, m):
    """Return whether the key of n bytes at p is smaller than that of m bytes at q."""
    shorter = n if n < m else m
    i = 0
    while i + 8 <= shorter:
        u = bswap64(ldu64(p + i))
        v = bswap64(ldu64(q + i))
        if u != v:
            return u < v
        i += 8
    while i < shorter:
        a = ld8(p + i)
        b = ld8(q + i)
        if a != b:
            return a < b
        i += 1
    return n < m


@jit
def row_at(s, pos):
    """Return the number of the row at a position of a source."""
    picked = ld64(s + 8 * S_PICKED)
    return pos if picked == 0 else ld32(picked + 4 * pos)


@jit
def row_before(s, i, t, j):
    """Return whether row i of source s comes before row j of source t."""
    a = ld64(ld64(s + 8 * S_COMMIT) + 8 * i)
    b = ld64(ld64(t + 8 * S_COMMIT) + 8 * j)
    if a != b:
        return a < b
    a = ld64(ld64(s + 8 * S_START) + 8 * i)
    b = ld64(ld64(t + 8 * S_START) + 8 * j)
    if a != b:
        return a < b
    o = ld64(s + 8 * S_KEY_OFFSETS) + 4 * i
    r = ld64(t + 8 * S_KEY_OFFSETS) + 4 * j
    return key_before(ld64(s + 8 * S_KEYS) + ld32(o), ld32(o + 4) - ld32(o), ld64(t + 8 * S_KEYS) + ld32(r), ld32(r + 4) - ld32(r))


@jit
def is_null(bitmap, at):
    """Return whether bit `at` of a validity bitmap is 0; without a bitmap no value is null."""
    return bitmap != 0 and (ld8(bitmap + (at >> 3)) >> (at & 7)) & 1 == 0


@jit
def place_by_commit(heads, first, size, commit):
    """Return the place behind those of `size` heads from `first` on whose commit_ts is at most `commit`. No branch depends on them."""
    while size > 1:
        half = size >> 1
        first = first + half if ld64(heads + 8 * (first + half - 1)) <= commit else first
        size -= half
    if size == 1 and ld64(heads + 8 * first) <= commit:
        first += 1
    return first


@jit
def place_of(sources, heads, order, first, end, j, row, commit):
    """Return where source j, with this next row, belongs among heads first … end - 1: behind those that are equal."""
    place = place_by_commit(heads, first, end - first, commit)
    if place == first or ld64(heads + 8 * (place - 1)) != commit:
        return place
    first = place_by_commit(heads, first, place - first, commit - 1)
    s = sources + S_SIZE * j
    while first < place:
        middle = (first + place) >> 1
        t = sources + S_SIZE * ld32(order + 4 * middle)
        if row_before(s, row, t, row_at(t, ld64(t + 8 * S_POS))):
            place = middle
        else:
            first = middle + 1
    return first


@jit
def insert_head(sources, heads, order, live, j):
    """Insert source j among the live ones."""
    s = sources + S_SIZE * j
    row = row_at(s, ld64(s + 8 * S_POS))
    commit = ld64(ld64(s + 8 * S_COMMIT) + 8 * row)
    at = place_of(sources, heads, order, 0, live, j, row, commit)
    memmove(heads + 8 * (at + 1), heads + 8 * at, 8 * (live - at))
    memmove(order + 4 * (at + 1), order + 4 * at, 4 * (live - at))
    st64(heads + 8 * at, commit)
    st32(order + 4 * at, j)


@jit
def prefetch_row(commits, starts, ids, key_offsets, keys, value_offsets, old_offsets, i):
    """Ask for the lines of a source's columns that follow row i: with many sources the processor does not see that it reads in order."""
    prefetch(keys + ld32(key_offsets + 4 * i) + AHEAD_BYTES)
    if i & 7 == 0:
        prefetch(commits + 8 * i + AHEAD_BYTES)
        prefetch(starts + 8 * i + AHEAD_BYTES)
        prefetch(ids + 8 * i + AHEAD_BYTES)
        prefetch(key_offsets + 4 * i + AHEAD_BYTES)
        prefetch(value_offsets + 4 * i + AHEAD_BYTES)
        prefetch(old_offsets + 4 * i + AHEAD_BYTES)


@entry(14)
def merge(k, sources, heads, pairs, mask, rules, owned, rows, origins, n, max_rows, max_bytes, only, state):
    """Write rows of k sources, in order, to `rows` from record n on. Return the number of records then.

    heads: 12 bytes of scratch for each source and 12 more. pairs, mask: the table map. owned: a byte per target. origins: two words per
    record, its source and its number there. only: limit to one transaction. state: counters and the reason for stopping. Rows of dropped
    ids, rows that change nothing and rows of targets that are not owned are skipped. A row's target stays -1 if `target_of` cannot tell it.
    """
    live = 0
    order = heads + 8 * (k + 1)
    for j in range(k):
        s = sources + S_SIZE * j
        if ld64(s + 8 * S_POS) < ld64(s + 8 * S_END):
            insert_head(sources, heads, order, live, j)
            live += 1
        elif ld64(s + 8 * S_MORE) != 0:
            st64(state + 8 * ST_REASON, _DRY)
            st64(state + 8 * ST_SOURCE, j)
            return n
    limited = ld64(only + 8 * ONLY)
    only_commit = ld64(only + 8 * ONLY_COMMIT)
    only_start = ld64(only + 8 * ONLY_START)
    kinds = ld64(only + 8 * ONLY_KINDS)
    size = ld64(state + 8 * ST_BYTES)
    last = 0
    rule = DROP
    r = rules
    while live > 0:
        j = ld32(order)
        s = sources + S_SIZE * j
        pos = ld64(s + 8 * S_POS)
        begin = pos
        end = ld64(s + 8 * S_END)
        commits = ld64(s + 8 * S_COMMIT)
        starts = ld64(s + 8 * S_START)
        ids = ld64(s + 8 * S_TABLE_ID)
        base = ld64(s + 8 * S_BASE)
        key_offsets = ld64(s + 8 * S_KEY_OFFSETS)
        keys = ld64(s + 8 * S_KEYS)
        value_offsets = ld64(s + 8 * S_VALUE_OFFSETS)
        values = ld64(s + 8 * S_VALUES)
        value_valid = ld64(s + 8 * S_VALUE_VALID)
        value_bit = ld64(s + 8 * S_VALUE_BIT)
        old_offsets = ld64(s + 8 * S_OLD_OFFSETS)
        olds = ld64(s + 8 * S_OLDS)
        old_valid = ld64(s + 8 * S_OLD_VALID)
        old_bit = ld64(s + 8 * S_OLD_BIT)
        picked = ld64(s + 8 * S_PICKED)
        limit = ld64(heads + 8) if live > 1 else _FOREVER
        reason = -1
        while pos < end:
            i = pos if picked == 0 else ld32(picked + 4 * pos)
            commit = ld64(commits + 8 * i)
            if pos > begin and commit >= limit:
                break
            if limited != 0 and (commit != only_commit or ld64(starts + 8 * i) != only_start):
                reason = _DONE
                break
            if n >= max_rows or size >= max_bytes:
                reason = _FULL
                break
            table_id = ld64(ids + 8 * i)
            if table_id != last:
                rule = find_rule(pairs, mask, table_id)
                if rule == NOT_FOUND:
                    st64(state + 8 * ST_ID, table_id)
                    reason = _UNKNOWN
                    break
                last = table_id
                r = rules + RULE_SIZE * rule
            pos += 1
            if live > MANY:
                prefetch_row(commits, starts, ids, key_offsets, keys, value_offsets, old_offsets, i)
            if rule == DROP:
                st64(state + 8 * ST_DROPPED, ld64(state + 8 * ST_DROPPED) + 1)
                continue
            value_at = ld32(value_offsets + 4 * i)
            value = -1 if is_null(value_valid, value_bit + i) else ld32(value_offsets + 4 * i + 4) - value_at
            old_at = ld32(old_offsets + 4 * i)
            old = -1 if is_null(old_valid, old_bit + i) else ld32(old_offsets + 4 * i + 4) - old_at
            may_split = 0
            if value < 0:
                if old < 0:
                    continue
                kind = KIND_DELETE
            elif old < 0:
                kind = KIND_INSERT
            else:
                kind = KIND_UPDATE
                may_split = ld64(r + 8 * RULE_MAY_SPLIT)
            if limited != 0:
                found = ALL_KINDS if may_split != 0 else 1 << kind
                st64(state + 8 * ST_KINDS, ld64(state + 8 * ST_KINDS) | found)
                if found & kinds == 0:
                    continue
            key_at = ld32(key_offsets + 4 * i)
            key_length = ld32(key_offsets + 4 * i + 4) - key_at
            target = target_of(r, commit, keys + key_at, key_length)
            if target < 0:
                st64(state + 8 * ST_HASHED, ld64(state + 8 * ST_HASHED) + 1)
            elif ld8(owned + target) == 0:
                continue
            if may_split != 0:
                st64(state + 8 * ST_MAY_SPLIT, ld64(state + 8 * ST_MAY_SPLIT) + 1)
            o = rows + _ROW * n
            st64(o + R_KEY, keys + key_at)
            st64(o + R_VALUE, values + value_at if value >= 0 else 0)
            st64(o + R_OLD, olds + old_at if old >= 0 else 0)
            st64(o + R_START, ld64(starts + 8 * i))
            st64(o + R_COMMIT, commit)
            st32(o + R_KEYLEN, key_length)
            st32(o + R_VALLEN, value)
            st32(o + R_OLDLEN, old)
            st32(o + R_TABLE, rule)
            st32(o + R_TARGET, target)
            st8(o + R_KIND, kind)
            st8(o + R_SPLIT, 0)
            st64(origins + 16 * n, j)
            st64(origins + 16 * n + 8, base + i)
            size += key_length + (value if value > 0 else 0) + (old if old > 0 else 0)
            n += 1
        st64(s + 8 * S_POS, pos)
        st64(state + 8 * ST_SEEN, ld64(state + 8 * ST_SEEN) + pos - begin)
        st64(state + 8 * ST_BYTES, size)
        if reason >= 0:
            st64(state + 8 * ST_REASON, reason)
            return n
        if pos >= end and ld64(s + 8 * S_MORE) != 0:
            st64(state + 8 * ST_REASON, _DRY)
            st64(state + 8 * ST_SOURCE, j)
            return n
        if pos >= end:
            live -= 1
            memmove(heads, heads + 8, 8 * live)
            memmove(order, order + 4, 4 * live)
            continue
        i = pos if picked == 0 else ld32(picked + 4 * pos)
        commit = ld64(commits + 8 * i)
        moved = place_of(sources, heads, order, 1, live, j, i, commit) - 1  # heads that come before source j now
        memmove(heads, heads + 8, 8 * moved)
        memmove(order, order + 4, 4 * moved)
        st64(heads + 8 * moved, commit)
        st32(order + 4 * moved, j)
    st64(state + 8 * ST_REASON, _DONE)
    return n


@entry(4)
def unfinished(k, sources, rows, n):
    """Return whether any source continues the transaction of record n - 1. The sources are at their next rows, and none is DRY."""
    last = rows + _ROW * (n - 1)
    commit = ld64(last + R_COMMIT)
    start = ld64(last + R_START)
    for j in range(k):
        s = sources + S_SIZE * j
        pos = ld64(s + 8 * S_POS)
        if pos >= ld64(s + 8 * S_END):
            continue
        i = row_at(s, pos)
        if ld64(ld64(s + 8 * S_COMMIT) + 8 * i) == commit and ld64(ld64(s + 8 * S_START) + 8 * i) == start:
            return 1
    return 0


@entry(2)
def transaction_begin(rows, n):
    """Return the number of the first record of the transaction of record n - 1."""
    last = rows + _ROW * (n - 1)
    commit = ld64(last + R_COMMIT)
    start = ld64(last + R_START)
    i = n - 1
    while i > 0:
        o = rows + _ROW * (i - 1)
        if ld64(o + R_COMMIT) != commit or ld64(o + R_START) != start:
            break
        i -= 1
    return i


@entry(4)
def first_origins(origins, begin, n, places):
    """Write the smallest row number that records begin … n - 1 have of each source to `places` (-1 before, for each source)."""
    for i in range(begin, n):
        place = places + 8 * ld64(origins + 16 * i)
        number = ld64(origins + 16 * i + 8)
        if ld64(place) < 0 or number < ld64(place):
            st64(place, number)
    return 0
