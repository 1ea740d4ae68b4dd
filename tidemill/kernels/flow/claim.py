"""Picks the rows of a record batch that may be of owned targets, before they are merged: the others cost no more than this look.

Reference: `reference.claim`.
"""

from __future__ import annotations

from tidemill.kernels.flow.layout import (
    DROP,
    NOT_FOUND,
    RULE_SIZE,
    S_COMMIT,
    S_KEY_OFFSETS,
    S_KEYS,
    S_TABLE_ID,
    ST_ID,
    ST_REASON,
    Stop,
)
from tidemill.kernels.flow.targets import find_rule, target_of
from tidemill.kernels.intrinsics import entry, ld8, ld32, ld64, st32, st64

_DONE, _UNKNOWN = int(Stop.DONE), int(Stop.UNKNOWN)


@entry(10)
def claim(s, i, end, pairs, mask, rules, owned, picked, places, state):
    """Write the numbers of rows i … end - 1 of source s to `picked`, without those of dropped ids and of targets that are not owned.

    A row whose target depends on other columns is picked. places: two words, the count of picked rows (in and out) and the next row.
    state: ST_REASON is DONE, or UNKNOWN for an ST_ID that the table map does not have. Return the count of picked rows.
    """
    n = ld64(places)
    commits = ld64(s + 8 * S_COMMIT)
    ids = ld64(s + 8 * S_TABLE_ID)
    key_offsets = ld64(s + 8 * S_KEY_OFFSETS)
    keys = ld64(s + 8 * S_KEYS)
    last = 0
    rule = DROP
    r = rules
    reason = _DONE
    while i < end:
        table_id = ld64(ids + 8 * i)
        if table_id != last:
            rule = find_rule(pairs, mask, table_id)
            if rule == NOT_FOUND:
                st64(state + 8 * ST_ID, table_id)
                reason = _UNKNOWN
                break
            last = table_id
            r = rules + RULE_SIZE * rule
        if rule != DROP:
            key_at = ld32(key_offsets + 4 * i)
            target = target_of(r, ld64(commits + 8 * i), keys + key_at, ld32(key_offsets + 4 * i + 4) - key_at)
            st32(picked + 4 * n, i)
            if target < 0 or ld8(owned + target) != 0:
                n += 1
        i += 1
    st64(places, n)
    st64(places + 8, i)
    st64(state + 8 * ST_REASON, reason)
    return n
