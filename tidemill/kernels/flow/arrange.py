"""Turns merged rows into the rows that an encoder takes: splits updates, finds targets, orders transactions, groups by target.

Reference: `reference.split`, `reference.arrange`.
"""

from __future__ import annotations

from tidemill.kernels.flow.layout import RULE_BASE, RULE_PARTS, RULE_SIZE
from tidemill.kernels.intrinsics import copy64, entry, jit, ld8, ld32, ld32s, ld64, st8, st32, st64
from tidemill.records import (
    KIND_DELETE,
    KIND_INSERT,
    KIND_UPDATE,
    R_COMMIT,
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
    SPLIT_DELETE,
    SPLIT_INSERT,
)

_ROW = ROW.itemsize


@entry(5)
def split(n, rows, changed, keep, out):
    """Turn updates with a set byte in `changed` into a delete and an insert; copy the other rows. Return the number of records in `out`.

    changed: a byte per row, or 0 if no update is to be split. keep: only results of this kind, 0 for all.
    """
    m = 0
    for i in range(n):
        row = rows + _ROW * i
        kind = ld8(row + R_KIND)
        if kind == KIND_UPDATE and changed != 0 and ld8(changed + i) != 0:
            if keep == 0 or keep == KIND_DELETE:
                o = out + _ROW * m
                copy64(o, row)
                st64(o + R_VALUE, 0)
                st32(o + R_VALLEN, -1)
                st8(o + R_KIND, KIND_DELETE)
                st8(o + R_SPLIT, SPLIT_DELETE)
                m += 1
            if keep == 0 or keep == KIND_INSERT:
                o = out + _ROW * m
                copy64(o, row)
                st64(o + R_OLD, 0)
                st32(o + R_OLDLEN, -1)
                st8(o + R_KIND, KIND_INSERT)
                st8(o + R_SPLIT, SPLIT_INSERT)
                m += 1
        elif keep == 0 or kind == keep:
            copy64(out + _ROW * m, row)
            m += 1
    return m


@entry(4)
def hashed_targets(n, rows, rules, hashes):
    """Set the targets of rows that have none yet: the row's uint32 in `hashes` modulo the topic's partitions."""
    for i in range(n):
        row = rows + _ROW * i
        if ld32s(row + R_TARGET) < 0:
            rule = rules + RULE_SIZE * ld32(row + R_TABLE)
            st32(row + R_TARGET, ld64(rule + 8 * RULE_BASE) + ld32(hashes + 4 * i) % ld64(rule + 8 * RULE_PARTS))
    return 0


@jit
def same_transaction(a, b):
    return ld64(a + R_COMMIT) == ld64(b + R_COMMIT) and ld64(a + R_START) == ld64(b + R_START)


@jit
def order_kinds(rows, begin, end, order):
    """Write the numbers of one transaction's rows (begin … end - 1) by kind into order[begin …]; the order within a kind stays."""
    at = begin
    for kind in range(KIND_DELETE, KIND_INSERT + 1):
        for i in range(begin, end):
            if ld8(rows + _ROW * i + R_KIND) == kind:
                st32(order + 4 * at, i)
                at += 1


@jit
def order_transactions(n, rows, order):
    """Write the numbers of all rows: transactions in their order, within each delete, update, insert."""
    begin = 0
    while begin < n:
        end = begin + 1
        sorted_already = True
        while end < n and same_transaction(rows + _ROW * begin, rows + _ROW * end):
            if ld8(rows + _ROW * end + R_KIND) < ld8(rows + _ROW * (end - 1) + R_KIND):
                sorted_already = False
            end += 1
        if sorted_already:
            for i in range(begin, end):
                st32(order + 4 * i, i)
        else:
            order_kinds(rows, begin, end, order)
        begin = end


@entry(8)
def arrange(n, rows, owned, counts, seen, order, starts, out):
    """Write the rows to `out` in the order of delivery, grouped by target. Return the number of targets (groups).

    owned: a byte per target. counts: an int32 per target, all 0 before and after. seen, order: n int32 of scratch.
    starts: group g is out[starts[g]:starts[g + 1]]. Rows of targets that are not owned are left out.
    """
    order_transactions(n, rows, order)
    groups = 0
    for i in range(n):
        target = ld32s(rows + _ROW * i + R_TARGET)
        if ld8(owned + target) == 0:
            continue
        count = ld32(counts + 4 * target)
        if count == 0:
            st32(seen + 4 * groups, target)
            groups += 1
        st32(counts + 4 * target, count + 1)
    at = 0
    for g in range(groups):
        place = counts + 4 * ld32(seen + 4 * g)
        st32(starts + 4 * g, at)
        count = ld32(place)
        st32(place, at)
        at += count
    st32(starts + 4 * groups, at)
    for i in range(n):
        row = rows + _ROW * ld32(order + 4 * i)
        target = ld32s(row + R_TARGET)
        if ld8(owned + target) == 0:
            continue
        place = ld32(counts + 4 * target)
        copy64(out + _ROW * place, row)
        st32(counts + 4 * target, place + 1)
    for g in range(groups):
        st32(counts + 4 * ld32(seen + 4 * g), 0)
    return groups
