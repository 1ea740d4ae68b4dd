"""Where batches end, how they are divided, and that no plan breaks the promise about pairs of table and target."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.changelog.log_format import Interval
from tidemill.changelog.spread import Layout, SplitTable
from tidemill.delivery.plan import SMALL_BYTES, BrokenPlan, PartitionInput, Split, batch_end, check, end_by_size, splits, work_items

MB = 1 << 20


def partition_input(partition: int, size: int, parts: int = 1, unit: int | None = None) -> PartitionInput:
    if not size:
        return PartitionInput(partition, (), (), unit=unit)
    return PartitionInput(partition, (Interval(0, 10, tuple(f"{partition}/{k}" for k in range(parts))),), (size,), unit=unit)


def test_a_batch_ends_at_the_first_barrier() -> None:
    assert batch_end(10, 100, []) == 100
    assert batch_end(10, 100, [10, 40, 60]) == 40
    assert batch_end(40, 100, [40]) == 100


def test_a_batch_ends_when_it_has_enough() -> None:
    first = PartitionInput(0, (Interval(0, 10, ("a",)), Interval(10, 20, ("b",))), (60, 60))
    second = PartitionInput(1, (Interval(0, 15, ("c",)), Interval(15, 40, ("d",))), (30, 30))
    assert end_by_size([first, second], 40, max_bytes=1000) == 40
    assert end_by_size([first, second], 40, max_bytes=90) == 15
    assert end_by_size([first, second], 12, max_bytes=90) == 12
    assert end_by_size([first, second], 40, max_bytes=1) == 10


def test_little_is_one_item() -> None:
    assert splits([partition_input(0, 10), partition_input(1, 20)], 8, 16) == [Split((0, 1))]
    assert splits([partition_input(0, 0)], 8, 16) == []


def test_log_partitions_are_taken_whole_where_tables_stay_together() -> None:
    planned = splits([partition_input(p, 64 * MB) for p in range(4)], 4, 16)
    assert sorted(s.partitions for s in planned) == [(0,), (1,), (2,), (3,)]
    assert {s.shares for s in planned} == {1}


def test_a_heavy_log_partition_is_shared_by_targets() -> None:
    planned = splits([partition_input(0, 300 * MB), partition_input(1, 50 * MB), partition_input(2, 50 * MB)], 4, 16)
    heavy = [s for s in planned if s.partitions == (0,)]
    assert [(s.share, s.shares) for s in heavy] == [(0, 3), (1, 3), (2, 3)]
    assert Split((1, 2)) in planned


def test_no_item_is_without_a_target() -> None:
    """All rows of one busy log partition may go to a single message partition: then one item does it all."""
    for unit in (None, 0):
        assert splits([partition_input(0, 300 * MB, unit=unit)], 16, 1) == [Split((0,))]
        assert [s.share for s in splits([partition_input(0, 300 * MB, unit=unit)], 16, 3)] == [0, 1, 2]


def test_every_item_reads_everything_where_tables_are_spread() -> None:
    planned = splits([partition_input(p, 64 * MB, unit=0) for p in range(3)], 2, 16)
    assert planned == [Split((0, 1, 2), 0, 2), Split((0, 1, 2), 1, 2)]


def test_only_partitions_of_a_split_table_are_read_together() -> None:
    inputs = [
        partition_input(0, 40 * MB, unit=0),
        partition_input(1, 60 * MB, unit=1),
        partition_input(2, 60 * MB, unit=0),
        partition_input(3, 0, unit=1),
    ]
    assert sorted((s.partitions, s.share) for s in splits(inputs, 3, 16)) == [((0, 2), 0), ((0, 2), 1), ((1,), 0)]


@pytest.mark.parametrize("parallelism", [2, 4, 8])
def test_light_partitions_are_dealt_evenly(parallelism: int) -> None:
    sizes = [(26 + p % 2) * MB for p in range(16)]
    planned = splits([partition_input(p, size) for p, size in enumerate(sizes)], parallelism, 64)
    loads = [sum(sizes[p] for p in split.partitions) for split in planned]
    assert len(loads) == parallelism
    assert max(loads) - min(loads) <= 2 * MB


def test_units_without_bytes_leave_no_item_empty() -> None:
    tables = [PartitionInput(p, (), (), tables=(("a",),)) for p in (1, 2)]
    planned = splits([partition_input(0, 50 * MB), *tables], 8, 1)
    assert sorted(p for split in planned for p in split.partitions) == [0, 1, 2]
    assert all(split.partitions for split in planned)


@given(sizes=st.lists(st.integers(1, 300), min_size=1, max_size=40), parallelism=st.integers(1, 9))
def test_no_item_has_more_than_an_even_share_and_one_partition(sizes: list[int], parallelism: int) -> None:
    inputs = [partition_input(p, size * MB) for p, size in enumerate(sizes)]
    fair = sum(sizes) * MB / parallelism
    for split in splits(inputs, parallelism, 64):
        parts = [sizes[p] * MB for p in split.partitions]
        assert split.shares > 1 or sum(parts) <= max(1.5 * fair, max(parts)) + max(parts) or sum(sizes) * MB <= SMALL_BYTES


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    n = draw(st.integers(1, 8))
    over = st.lists(st.integers(0, n - 1), min_size=2, max_size=n, unique=True)
    homes = draw(st.lists(over, max_size=3)) if n > 1 else []
    keys = [tuple(bytes([k + 1]) for k in range(len(partitions) - 1)) for partitions in homes]
    return Layout(1, n, tuple(SplitTable(100 + i, "d.t", keys[i], tuple(partitions)) for i, partitions in enumerate(homes)))


@given(layout=layouts(), data=st.data(), parallelism=st.integers(1, 9), targets=st.integers(1, 9))
def test_every_plan_has_one_item_for_each_pair(layout: Layout, data: st.DataObject, parallelism: int, targets: int) -> None:
    """By brute force: a table of a log partition, or split over several, and a target have exactly one item that sees all its rows."""
    units = layout.units()
    sizes = [data.draw(st.sampled_from([0, 1, SMALL_BYTES, 20 * MB, 300 * MB])) for _ in range(layout.partitions)]
    inputs = [partition_input(p, size, unit=units[p]) for p, size in enumerate(sizes)]
    planned = splits(inputs, parallelism, targets)
    check(planned, inputs)
    busy = {p for p, size in enumerate(sizes) if size}
    tables = [{p} for p in busy] + [set(split.partitions) & busy for split in layout.split_tables]
    for homes, target in product([homes for homes in tables if homes], range(targets)):
        readers = [s for s in planned if target % s.shares == s.share and set(s.partitions) & homes]
        assert len(readers) == 1
        assert homes <= set(readers[0].partitions)
    assert all(s.share < targets for s in planned), "an item reads everything and delivers nothing"


@given(layout=layouts())
def test_units_are_the_partitions_that_tables_join(layout: Layout) -> None:
    """Compared with joining by hand until nothing changes any more."""
    joined = [{p} for p in range(layout.partitions)]
    for split in layout.split_tables * layout.partitions:
        together = set[int]().union(*(joined[p] for p in split.partitions))
        for p in together:
            joined[p] = together
    assert [min(one) for one in joined] == list(layout.units())


@pytest.mark.parametrize(
    ("planned", "units"),
    [
        ([Split((0,)), Split((0, 1))], (0, 1)),  # twice
        ([Split((0,))], (0, 1)),  # partition 1 has no item
        ([Split((0, 1), 0, 2)], (0, 1)),  # half of the targets have none
        ([Split((0, 1), 0, 2), Split((0,), 1, 2), Split((1,), 1, 3)], (0, 1)),
        ([Split((0,)), Split((1,))], (0, 0)),  # a table could be in both
        ([Split((0, 1, 2))], (0, 1)),  # there is no partition 2
    ],
)
def test_broken_plans_are_refused(planned: list[Split], units: tuple[int, int]) -> None:
    with pytest.raises(BrokenPlan):
        check(planned, [partition_input(p, MB, unit=unit) for p, unit in enumerate(units)])


def test_parts_of_an_interval_are_chains_side_by_side() -> None:
    whole = PartitionInput(0, (Interval(0, 10, ("a",)), Interval(10, 20, ("b1", "b2", "b3")), Interval(20, 30, ("c",))), (1, 1, 1))
    assert whole.chains == [("a", "b1", "c"), ("b2",), ("b3",)]
    items = work_items([whole], 2, feed="f", batch=1, epoch=2, from_ts=0, to_ts=30, pack="p", sink="blackhole://", fence="e", targets=4)
    assert [(i.number, i.chains, i.small) for i in items] == [(0, (("a", "b1", "c"), ("b2",), ("b3",)), True)]
