"""The index of a block of the entry store, in compiled code: checked and read in one pass, and looked up.

Reference: `plain_index` and `plain_after` of tests/support/canal/store.py. Numbers of a block are not trusted: each is checked here.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import as_u, entry, ld8, ld16, ld32, ld64, ldu64, st8, st64
from tidemill.protocols.canal.codes import EntryType

INDEX_SIZE = 24
"""Bytes of an entry's record; where its fields are is below."""
_SIZE, _NAME, _EVENT, _KIND, _DDL = 8, 16, 20, 22, 23

ORDERED, UNORDERED, UNKNOWN, WITH_DDLS = 0, -1, -2, 1
"""What `read_index` returns: all is well; times fall; a name or a kind that is not there; all is well, and there are DDLs."""
_KINDS = sum(1 << kind for kind in EntryType)


@entry(6)
def read_index(n, index, names, first, offsets, indexes):
    """Read the records of n entries. To `offsets` goes where each begins among the entries, and the end of the last; to `indexes` the
    `Position.index` of each, that of the first being `first`."""
    at = 0
    number = first
    before = np.uint64(0)
    found = ORDERED
    for i in range(n):
        record = index + INDEX_SIZE * i
        time = ldu64(record)
        if time != before or i == 0:
            if time < before:
                return UNORDERED
            if i:
                number = 0
            before = time
        kind = ld8(record + _KIND)
        if ld32(record + _NAME) >= names or kind > 63 or (_KINDS >> kind) & 1 == 0:
            return UNKNOWN
        if ld8(record + _DDL) != 0:
            found = WITH_DDLS
        st64(offsets + 8 * i, at)
        st64(indexes + 8 * i, number)
        at += ld32(record + _SIZE)
        number += 1
    st64(offsets + 8 * n, at)
    return found


@entry(5)
def find_after(n, index, indexes, ts, number):
    """The number of the first entry behind the position (ts, number)."""
    low, high = 0, n
    while low < high:
        middle = (low + high) >> 1
        time = ldu64(index + INDEX_SIZE * middle)
        if time < as_u(ts) or (time == as_u(ts) and ld64(indexes + 8 * middle) <= number):
            low = middle + 1
        else:
            high = middle
    return low


@entry(6)
def passing(n, index, tables, events, last, out):
    """A byte for each entry: whether `tables` has one for its name and `events` for its event type; `last`: of that and all above."""
    for i in range(n):
        record = index + INDEX_SIZE * i
        event = ld16(record + _EVENT)
        st8(out + i, ld8(tables + ld32(record + _NAME)) & ld8(events + (event if event < last else last)))
    return n
