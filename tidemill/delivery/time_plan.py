"""Work items for sinks that want all tables in one order: each item owns a range of commit ts, over all log partitions. Pure.

A transaction has one commit ts, so it is whole in one item. `plan` has the items of all other sinks, which own (table, target) pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tidemill.delivery import plan
from tidemill.delivery.plan import BrokenPlan, PartitionInput, chains_of
from tidemill.delivery.work_item import WorkItem


@dataclass(frozen=True, slots=True)
class Sample:
    """So many rows, or bytes, of a log partition end with this commit_ts."""

    ts: int
    weight: int


def cuts(samples: Sequence[Sample], from_ts: int, to_ts: int, ranges: int) -> list[int]:
    """Where up to `ranges` ranges of (from_ts, to_ts] of about equal weight meet, both ends included."""
    total = sum(sample.weight for sample in samples)
    found, weight = [from_ts], 0
    for sample in sorted(samples, key=lambda one: one.ts):
        weight += sample.weight
        enough = len(found) < ranges and weight * ranges >= total * len(found)
        if enough and found[-1] < sample.ts < to_ts:
            found.append(sample.ts)
    return [*found, to_ts]


def check(bounds: Sequence[tuple[int, int]], from_ts: int, to_ts: int) -> None:
    """The invariant of a batch: its items' ranges follow each other, from its begin to its end. Raises BrokenPlan."""
    if not bounds:
        return
    joined = all(a[1] == b[0] for a, b in pairwise(bounds))
    if not joined or (bounds[0][0], bounds[-1][1]) != (from_ts, to_ts) or any(low >= high for low, high in bounds):
        raise BrokenPlan(f"ranges of commit ts do not make up ({from_ts}, {to_ts}]: {bounds}")


def work_items(
    inputs: Sequence[PartitionInput],
    samples: Sequence[Sample],
    parallelism: int,
    *,
    feed: str,
    batch: int,
    epoch: int,
    from_ts: int,
    to_ts: int,
    pack: str,
    sink: str,
    fence: str,
) -> list[WorkItem]:
    """The items of a batch, checked. None if no log partition has anything."""
    busy = [partition_input for partition_input in inputs if partition_input.busy]
    if not busy:
        return []
    if any(partition_input.range is not None for partition_input in busy):
        raise BrokenPlan("log partitions with ranges of their own have no order over all tables")
    small = plan.is_small(busy)
    places = cuts(samples, from_ts, to_ts, 1 if small else parallelism)
    bounds = list(pairwise(places))
    check(bounds, from_ts, to_ts)
    return [
        WorkItem(
            feed=feed,
            batch=batch,
            epoch=epoch,
            number=number,
            from_ts=low,
            to_ts=high,
            log_partitions=tuple(partition_input.partition for partition_input in busy),
            chains=tuple(chain for partition_input in busy for chain in chains_within(partition_input, low, high)),
            share=0,
            shares=1,
            pack=pack,
            sink=sink,
            fence=fence,
            small=small,
        )
        for number, (low, high) in enumerate(bounds)
    ]


def chains_within(partition_input: PartitionInput, low: int, high: int) -> list[tuple[str, ...]]:
    """The chains of a partition, without files that have no row of (low, high]."""
    parts = [one.parts for one in partition_input.intervals if one.to_ts > low and one.from_ts < high]
    return [*chains_of(parts), *partition_input.tables]
