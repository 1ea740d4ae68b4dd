"""Batches divided by commit ts: the ranges make up the batch, and are about even."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tidemill.changelog.log_format import Interval
from tidemill.delivery import plan
from tidemill.delivery.plan import BrokenPlan, PartitionInput
from tidemill.delivery.time_plan import Sample, check, cuts, work_items


@pytest.mark.parametrize("seed", range(50))
def test_cuts(seed: int) -> None:
    rng = random.Random(seed)
    samples = [Sample(rng.randint(101, 1000), rng.randint(1, 5)) for _ in range(rng.randint(0, 400))]
    ranges = rng.randint(1, 9)
    found = cuts(samples, 100, 1000, ranges)
    assert (found[0], found[-1]) == (100, 1000)
    assert found == sorted(set(found))
    assert len(found) - 1 <= ranges
    check(list(pairwise(found)), 100, 1000)
    if len(samples) > 200:
        total = sum(s.weight for s in samples)
        weights = [sum(s.weight for s in samples if low < s.ts <= high) for low, high in pairwise(found)]
        assert len(weights) == ranges
        assert max(weights) < total / ranges + 60


def test_one_transaction_is_one_item() -> None:
    assert cuts([Sample(500, 10_000)] * 9, 100, 1000, 4) == [100, 500, 1000]


@pytest.mark.parametrize("bounds", [[(1, 5), (6, 9)], [(1, 6), (5, 9)], [(2, 9)], [(1, 8)], [(1, 1), (1, 9)]])
def test_what_is_left_out_or_repeated_is_refused(bounds: list[tuple[int, int]]) -> None:
    with pytest.raises(BrokenPlan):
        check(bounds, 1, 9)


def test_each_item_reads_all_partitions_and_only_files_of_its_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SMALL_BYTES", -1)
    inputs = [
        PartitionInput(0, (Interval(0, 40, ("a1", "a2")), Interval(40, 100, ("b",))), (5, 5)),
        PartitionInput(1, (Interval(0, 100, ("c",)),), (5,)),
        PartitionInput(2, (), ()),
    ]
    given = {"feed": "f", "batch": 1, "epoch": 2, "from_ts": 0, "to_ts": 100, "pack": "p", "sink": "s", "fence": "e"}
    items = work_items(inputs, [Sample(40, 5), Sample(100, 5)], 2, **given)  # type: ignore[arg-type]
    assert [(i.from_ts, i.to_ts, i.chains, i.log_partitions) for i in items] == [
        (0, 40, (("a1",), ("a2",), ("c",)), (0, 1)),
        (40, 100, (("b",), ("c",)), (0, 1)),
    ]
    assert work_items(inputs[2:], [], 2, **given) == []  # type: ignore[arg-type]
    with pytest.raises(BrokenPlan, match="order over all tables"):
        work_items([PartitionInput(0, inputs[0].intervals, (5, 5), range=(0, 50))], [], 2, **given)  # type: ignore[arg-type]
