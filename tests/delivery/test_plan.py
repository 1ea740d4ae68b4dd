"""Where batches end, how they are divided, and that no plan breaks the promise about pairs of table and target."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.changelog.layout import Affinity, Interval
from tidemill.delivery.plan import SMALL_BYTES, BrokenPlan, Load, Split, batch_end, check, end_by_size, splits, work_items

MB = 1 << 20


def load(partition: int, size: int, parts: int = 1) -> Load:
    if not size:
        return Load(partition, (), ())
    return Load(partition, (Interval(0, 10, tuple(f"{partition}/{k}" for k in range(parts))),), (size,))


def test_a_batch_ends_at_the_first_barrier() -> None:
    assert batch_end(10, 100, []) == 100
    assert batch_end(10, 100, [10, 40, 60]) == 40
    assert batch_end(40, 100, [40]) == 100


def test_a_batch_ends_when_it_has_enough() -> None:
    first = Load(0, (Interval(0, 10, ("a",)), Interval(10, 20, ("b",))), (60, 60))
    second = Load(1, (Interval(0, 15, ("c",)), Interval(15, 40, ("d",))), (30, 30))
    assert end_by_size([first, second], 40, max_bytes=1000) == 40
    assert end_by_size([first, second], 40, max_bytes=90) == 15
    assert end_by_size([first, second], 12, max_bytes=90) == 12
    assert end_by_size([first, second], 40, max_bytes=1) == 10


def test_little_is_one_item() -> None:
    assert splits([load(0, 10), load(1, 20)], Affinity.TABLE, 8, 16) == [Split((0, 1))]
    assert splits([load(0, 0)], Affinity.TABLE, 8, 16) == []


def test_log_partitions_are_taken_whole_where_tables_stay_together() -> None:
    planned = splits([load(p, 64 * MB) for p in range(4)], Affinity.TABLE, 4, 16)
    assert sorted(s.partitions for s in planned) == [(0,), (1,), (2,), (3,)]
    assert {s.shares for s in planned} == {1}


def test_a_heavy_log_partition_is_shared_by_targets() -> None:
    planned = splits([load(0, 300 * MB), load(1, 50 * MB), load(2, 50 * MB)], Affinity.TABLE, 4, 16)
    heavy = [s for s in planned if s.partitions == (0,)]
    assert [(s.share, s.shares) for s in heavy] == [(0, 3), (1, 3), (2, 3)]
    assert Split((1, 2)) in planned


def test_no_item_is_without_a_target() -> None:
    """All rows of one busy log partition may go to a single message partition: then one item does it all."""
    for affinity in Affinity:
        assert splits([load(0, 300 * MB)], affinity, 16, 1) == [Split((0,))]
        assert [s.share for s in splits([load(0, 300 * MB)], affinity, 16, 3)] == [0, 1, 2]


def test_every_item_reads_everything_where_tables_are_spread() -> None:
    planned = splits([load(p, 64 * MB) for p in range(3)], Affinity.KEY, 2, 16)
    assert planned == [Split((0, 1, 2), 0, 2), Split((0, 1, 2), 1, 2)]


@given(
    sizes=st.lists(st.sampled_from([0, 1, SMALL_BYTES, 20 * MB, 300 * MB]), min_size=1, max_size=8),
    affinity=st.sampled_from(list(Affinity)),
    parallelism=st.integers(1, 9),
    targets=st.integers(1, 9),
)
def test_every_plan_has_one_item_for_each_pair(sizes: list[int], affinity: Affinity, parallelism: int, targets: int) -> None:
    """By brute force: a table of a log partition (or, spread, of all of them) and a target have exactly one item that sees all its rows."""
    loads = [load(p, size) for p, size in enumerate(sizes)]
    planned = splits(loads, affinity, parallelism, targets)
    check(planned, loads, affinity)
    busy = [p for p, size in enumerate(sizes) if size]
    tables = [(p,) for p in busy] if affinity is Affinity.TABLE else [tuple(busy)] if busy else []
    for homes, target in product(tables, range(targets)):
        readers = [s for s in planned if target % s.shares == s.share and set(s.partitions) & set(homes)]
        assert len(readers) == 1
        assert set(homes) <= set(readers[0].partitions)
    assert all(s.share < targets for s in planned), "an item reads everything and delivers nothing"


@pytest.mark.parametrize(
    ("planned", "affinity"),
    [
        ([Split((0,)), Split((0, 1))], Affinity.TABLE),  # twice
        ([Split((0,))], Affinity.TABLE),  # partition 1 has no item
        ([Split((0, 1), 0, 2)], Affinity.TABLE),  # half of the targets have none
        ([Split((0, 1), 0, 2), Split((0,), 1, 2), Split((1,), 1, 3)], Affinity.TABLE),
        ([Split((0,)), Split((1,))], Affinity.KEY),  # a table could be in both
        ([Split((0, 1, 2))], Affinity.TABLE),  # there is no partition 2
    ],
)
def test_broken_plans_are_refused(planned: list[Split], affinity: Affinity) -> None:
    with pytest.raises(BrokenPlan):
        check(planned, [load(0, MB), load(1, MB)], affinity)


def test_parts_of_an_interval_are_chains_side_by_side() -> None:
    whole = Load(0, (Interval(0, 10, ("a",)), Interval(10, 20, ("b1", "b2", "b3")), Interval(20, 30, ("c",))), (1, 1, 1))
    assert whole.chains == [("a", "b1", "c"), ("b2",), ("b3",)]
    items = work_items(
        [whole], Affinity.TABLE, 2, feed="f", batch=1, epoch=2, from_ts=0, to_ts=30, pack="p", sink="blackhole://", fence="e", targets=4
    )
    assert [(i.number, i.chains, i.small) for i in items] == [(0, (("a", "b1", "c"), ("b2",), ("b3",)), True)]
