"""The groups of rows that conflict. Reference: `reference.groups`."""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import as_i, entry, jit, ld64, ldu64, st64

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
U0 = np.uint64(0)
SLOT_BYTES = 16
"""A slot of the hash table: a hash (0: free) and the row that it was first seen in."""


@jit
def first_of(parents, row):
    """Return the first row of a row's group, and shorten the way there."""
    while True:
        parent = ld64(parents + 8 * row)
        if parent == row:
            return row
        above = ld64(parents + 8 * parent)
        st64(parents + 8 * row, above)
        row = above


@entry(6)
def conflict_groups(n, width, hashes, parents, slots, bits):
    """Write for each of n rows the first row of its group to `parents`. Return n.

    hashes: `width` uint64 a row. slots: 1 << bits slots, all zero; more than there are hashes.
    """
    mask = (1 << bits) - 1
    shift = np.uint64(64 - bits)
    for row in range(n):
        st64(parents + 8 * row, row)
        for k in range(width):
            found = ldu64(hashes + 8 * (row * width + k))
            if found == U0:
                continue
            at = as_i((found * MULTIPLIER) >> shift)
            while True:
                slot = slots + SLOT_BYTES * at
                held = ldu64(slot)
                if held == U0:
                    st64(slot, as_i(found))
                    st64(slot + 8, row)
                    break
                if held == found:
                    a = first_of(parents, row)
                    b = first_of(parents, ld64(slot + 8))
                    if a < b:
                        st64(parents + 8 * b, a)
                    else:
                        st64(parents + 8 * a, b)
                    break
                at = (at + 1) & mask
    for row in range(n):
        st64(parents + 8 * row, first_of(parents, row))
    return n
