"""Groups of rows that conflict: the kernel against its reference, and how groups are dealt out."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidemill.kernels.apply import conflicts, reference

HASHES = st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(st.integers(0, 12), min_size=width, max_size=width), max_size=40))


def as_array(hashes: list[list[int]]) -> np.ndarray:
    return np.array(hashes, np.uint64).reshape(len(hashes), len(hashes[0]) if hashes else 1)


@given(HASHES)
def test_the_kernel_finds_the_groups_of_the_reference(hashes: list[list[int]]) -> None:
    assert conflicts.groups(as_array(hashes)).tolist() == reference.groups(hashes)


@given(HASHES, st.integers(1, 6))
def test_a_group_is_in_one_lane_and_in_order(hashes: list[list[int]], lanes: int) -> None:
    groups = conflicts.groups(as_array(hashes))
    dealt = [rows.tolist() for rows in conflicts.deal(groups, lanes)]
    assert sorted(row for rows in dealt for row in rows) == list(range(len(hashes)))
    assert all(rows == sorted(rows) for rows in dealt)
    for group in set(groups.tolist()):
        assert sum(any(groups[row] == group for row in rows) for rows in dealt) == 1


def test_hashes_that_meet_in_a_slot_are_told_apart() -> None:
    hashes = [[n << 40 | 7] for n in range(1, 2000)]
    assert conflicts.groups(as_array(hashes)).tolist() == list(range(1999))


def test_lanes_have_about_the_same_to_do() -> None:
    groups = np.concatenate([np.zeros(300, np.int64), np.arange(300, 1500)])
    sizes = [len(rows) for rows in conflicts.deal(groups, 5)]
    assert sum(sizes) == 1500
    assert max(sizes) <= 330
