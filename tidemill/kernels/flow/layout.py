"""Records that the flow kernels share with Python: sources, routing rules, the states of a merge.

All of them are rows of int64 words; the constants are the numbers of the words.
"""

from __future__ import annotations

import enum

import numpy as np

WORD = 8

# A source: the unread part of one record batch. Addresses are those of the batch's buffers, with offsets applied.
(S_POS, S_END, S_MORE, S_BASE, S_TABLE_ID, S_START, S_COMMIT, S_KEY_OFFSETS, S_KEYS) = range(9)
(S_VALUE_OFFSETS, S_VALUES, S_VALUE_VALID, S_VALUE_BIT) = range(9, 13)
(S_OLD_OFFSETS, S_OLDS, S_OLD_VALID, S_OLD_BIT) = range(13, 17)
S_PICKED = 17
S_WORDS = 20
S_SIZE = WORD * S_WORDS
"""S_MORE: another batch follows this one. S_BASE: number of the batch's row 0 within the whole source.

S_…_VALID: address of the validity bitmap, 0 if no value is null; S_…_BIT: the bit of row 0 in it. S_PICKED: 0, or the address of int32
numbers of rows: only these are read, and S_POS and S_END count them.
"""

# A routing rule: one per table in use.
(RULE_MODE, RULE_BASE, RULE_PARTS, RULE_TARGET, RULE_MAY_SPLIT, RULE_SEED, RULE_STARTS, RULE_DIGITS) = range(8)
RULE_WORDS = 8
RULE_SIZE = WORD * RULE_WORDS
"""RULE_BASE: target of the topic's partition 0. RULE_TARGET: the target if it is always the same, else -1.

RULE_SEED, RULE_STARTS, RULE_DIGITS: of a hash of the integer handle, see `routing.handle_hash`.
"""


class Mode(enum.IntEnum):
    """How a row's target is found: by table, by commit_ts, by a hash of column values, or of the handle in the record key."""

    FIXED = 0
    TS = 1
    HASH = 2
    HANDLE = 3  # a signed integer
    UNSIGNED_HANDLE = 4


NOT_FOUND, DROP = -2, -1
"""Values of the table map: the id is unknown, or its rows are not delivered."""

# Why a merge stopped, and what it counted.
(ST_REASON, ST_SOURCE, ST_ID, ST_BYTES, ST_SEEN, ST_DROPPED, ST_MAY_SPLIT, ST_HASHED, ST_KINDS) = range(9)
ST_WORDS = 16
"""ST_KINDS: for a merge limited to one transaction, bit 1 << kind for each kind that its rows may become."""


class Stop(enum.IntEnum):
    """Why a merge returned."""

    DONE = 0  # no rows are left
    FULL = 1  # the chunk is full
    DRY = 2  # source ST_SOURCE needs its next batch
    UNKNOWN = 3  # the table map does not have ST_ID


# Limits of a merge to a single transaction: word 0 is 0 for no limit.
(ONLY, ONLY_COMMIT, ONLY_START, ONLY_KINDS) = range(4)
ONLY_WORDS = 4
"""ONLY_KINDS: bit 1 << kind is set for each wanted kind. Updates that may be split always pass."""

GOLDEN = 0x9E3779B97F4A7C15
"""Multiplier of the table map's hash (2^64 / golden ratio)."""


class TableMap:
    """Maps a physical table id to a rule number or DROP: open addressing over pairs of words. Ids are never 0."""

    def __init__(self, capacity: int = 64) -> None:
        self.mask = capacity - 1
        self.pairs = np.zeros((capacity, 2), np.int64)
        self.count = 0

    @property
    def address(self) -> int:
        """The address of the pairs; it changes when the map grows."""
        return int(self.pairs.ctypes.data)

    def set(self, table_id: int, rule: int) -> None:
        """Add an id that the map does not have."""
        if self.count * 2 >= self.mask:
            self._grow()
        at = self._slot(table_id)
        self.pairs[at] = table_id, rule
        self.count += 1

    def get(self, table_id: int) -> int:
        """Return the rule number, DROP or NOT_FOUND: the twin of the kernels' look-up."""
        at = self._slot(table_id)
        return int(self.pairs[at, 1]) if self.pairs[at, 0] == table_id else NOT_FOUND

    def _slot(self, table_id: int) -> int:
        at = ((table_id * GOLDEN) & (1 << 64) - 1) >> 40 & self.mask
        while self.pairs[at, 0] not in (0, table_id):
            at = at + 1 & self.mask
        return int(at)

    def _grow(self) -> None:
        old = self.pairs[self.pairs[:, 0] != 0]
        self.mask = 2 * self.mask + 1
        self.pairs = np.zeros((self.mask + 1, 2), np.int64)
        for table_id, rule in old.tolist():
            self.pairs[self._slot(table_id)] = table_id, rule
