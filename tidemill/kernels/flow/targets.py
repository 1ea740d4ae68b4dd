"""A row's rule, and its target as far as its table, its commit_ts and its record key tell. Reference: `rules.dispatch.partition`."""

from __future__ import annotations

import numpy as np

from tidemill.kernels.flow.layout import (
    GOLDEN,
    NOT_FOUND,
    RULE_BASE,
    RULE_DIGITS,
    RULE_MODE,
    RULE_PARTS,
    RULE_SEED,
    RULE_STARTS,
    RULE_TARGET,
    Mode,
)
from tidemill.kernels.intrinsics import as_i, as_u, bswap64, jit, ld8, ld16, ld64, ldu64
from tidemill.kernels.routing.handle_hash import handle_hash
from tidemill.kernels.write.numbers import SIGN64

_GOLDEN = np.uint64(GOLDEN)
_SHIFT = np.uint64(40)
_ZERO = np.uint64(0)
_TS, _HANDLE, _UNSIGNED_HANDLE = int(Mode.TS), int(Mode.HANDLE), int(Mode.UNSIGNED_HANDLE)
HANDLE_KEY = 19  # bytes of a record key with an integer handle


@jit
def find_rule(pairs, mask, table_id):
    """Return the rule number of a table id, DROP or NOT_FOUND."""
    at = as_i((as_u(table_id) * _GOLDEN) >> _SHIFT) & mask
    while True:
        found = ld64(pairs + 16 * at)
        if found == table_id:
            return ld64(pairs + 16 * at + 8)
        if found == 0:
            return NOT_FOUND
        at = (at + 1) & mask


@jit
def target_of(r, commit, key, key_length):
    """Return a row's target by rule r; -1 if it depends on other columns, or if the key is not that of an integer handle."""
    mode = ld64(r + 8 * RULE_MODE)
    if mode == _TS:
        return ld64(r + 8 * RULE_BASE) + commit % ld64(r + 8 * RULE_PARTS)
    if mode < _HANDLE or key_length != HANDLE_KEY or ld8(key) != 0x74 or ld16(key + 9) != 0x725F:
        return ld64(r + 8 * RULE_TARGET)
    u = bswap64(ldu64(key + 11)) ^ SIGN64
    is_negative = mode != _UNSIGNED_HANDLE and as_i(u) < 0
    if is_negative:
        u = _ZERO - u
    found = handle_hash(ld64(r + 8 * RULE_DIGITS), ld64(r + 8 * RULE_STARTS), ld64(r + 8 * RULE_SEED), is_negative, u)
    return ld64(r + 8 * RULE_BASE) + found % ld64(r + 8 * RULE_PARTS)
