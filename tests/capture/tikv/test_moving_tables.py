"""Each row of a wanted table is in the partition where it belongs, and in no other, whatever its physical table has been through."""

from __future__ import annotations

import pytest

from tests.support.capture.moving_tables import PARTITIONS, Run

TOGETHER, APART = [tuple(range(PARTITIONS))], [(0,), (1, 2)]


@pytest.mark.parametrize("groups", [TOGETHER, APART], ids=["one process", "groups"])
@pytest.mark.parametrize(("split", "new_rules"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 40), marks=pytest.mark.thorough("more seeds"))], ids=["few", "more"])
def test_rows_are_where_they_belong(groups: list[tuple[int, ...]], split: bool, new_rules: bool, seeds: range) -> None:
    for seed in seeds:
        run = Run(seed, groups, split=split, new_rules=new_rules)
        try:
            for _ in range(120):
                run.step()
            run.finish()
        except AssertionError as e:
            e.add_note(f"seed {seed}")
            raise
