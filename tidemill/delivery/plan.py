"""Where a batch ends and which work items it consists of. Pure, but for the sizes of files that it is given."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemill.changelog.log_format import Interval
from tidemill.delivery.work_item import WorkItem
from tidemill.errors import TidemillError
from tidemill.tso import LOGICAL_BITS

MAX_INTERVAL = 600_000 << LOGICAL_BITS
"""Longest time that one batch covers, when catching up: 10 minutes."""
MAX_BATCH_BYTES = 512 << 20
"""Of segments in one batch, when catching up; a single interval may have more."""
SMALL_BYTES = 4 << 20
"""A batch of up to this much is one item: a task of its own costs more than it saves."""
ROW_BYTES = 512
"""What a row counts as at most, where rows were counted."""
HEAVY = 1.3
"""A log partition with so many times the bytes of an even share is split among items."""


class BrokenPlan(TidemillError):
    """Two items of a batch would write the same table to the same partition, or none would. A bug."""

    code = "TM:ErrBrokenPlan"


@dataclass(frozen=True, slots=True)
class PartitionInput:
    """What a log partition holds of a batch's interval."""

    partition: int
    intervals: tuple[Interval, ...]
    sizes: tuple[int, ...]  # bytes of each interval's files
    rows: int | None = None  # of the batch's interval, about; 0: it has none; None: not counted
    tables: tuple[tuple[str, ...], ...] = ()  # of a batch that has tables as of its end: the files of each, sorted
    range: tuple[int, int] | None = None  # of this log partition, where not all have the batch's interval
    unit: int | None = None  # log partitions that share tables have the same one; None: this one shares none

    @property
    def busy(self) -> bool:
        """Whether there is anything to read."""
        return bool(self.intervals or self.tables)

    @property
    def bytes(self) -> int:
        """What the batch has to read of it, about: files may reach beyond the batch's interval."""
        whole = sum(self.sizes)
        return whole if self.rows is None else min(whole, ROW_BYTES * self.rows)

    @property
    def chains(self) -> list[tuple[str, ...]]:
        """Files, each chain sorted."""
        return [*chains_of([i.parts for i in self.intervals]), *self.tables]


@dataclass(frozen=True, slots=True)
class Split:
    """What one item does: which log partitions it reads, and for which share of the targets."""

    partitions: tuple[int, ...]
    share: int = 0
    shares: int = 1


def batch_end(from_ts: int, limit_ts: int, barriers: Sequence[int]) -> int:
    """The end of the batch after from_ts: `limit_ts`, or the first barrier before it. `barriers` are sorted."""
    first = next((b for b in barriers if b > from_ts), limit_ts)
    return min(first, limit_ts)


def end_by_size(inputs: Iterable[PartitionInput], limit_ts: int, max_bytes: int = MAX_BATCH_BYTES) -> int:
    """The end of the last interval that still fits into `max_bytes`, all partitions together; `limit_ts` if all do."""
    ends: dict[int, int] = defaultdict(int)
    for one in inputs:
        for interval, size in zip(one.intervals, one.sizes, strict=True):
            ends[interval.to_ts] += size
    total = 0
    for to_ts in sorted(ends):
        total += ends[to_ts]
        if total >= max_bytes:
            return min(to_ts, limit_ts)
    return limit_ts


def is_small(inputs: Iterable[PartitionInput]) -> bool:
    """Whether a batch is one item, however many could run at once."""
    return sum(one.bytes for one in inputs) <= SMALL_BYTES


def splits(inputs: Sequence[PartitionInput], parallelism: int, targets: int) -> list[Split]:
    """How a batch is divided among at most about `parallelism` items.

    Rows of a table stay in one unit: a log partition, or several that tables are spread over. Items take whole units, and a heavy one is
    shared by targets: each of its items reads all its log partitions. There are no more shares than `targets`: an item without one would
    read everything and deliver nothing.
    """
    units = _units(inputs)
    if not units:
        return []
    total = sum(unit.bytes for unit in units)
    if total <= SMALL_BYTES or parallelism == 1:
        return [Split(tuple(one.partition for one in inputs if one.busy))]
    fair = total / parallelism
    found: list[Split] = []
    light: list[_Unit] = []
    for unit in units:
        shares = min(round(unit.bytes / fair), targets)
        if shares > 1 and unit.bytes > HEAVY * fair:
            found += [Split(unit.partitions, share, shares) for share in range(shares)]
        else:
            light.append(unit)
    items = max(1, round(sum(unit.bytes for unit in light) / fair))
    return found + _packed(light, items)


@dataclass(frozen=True, slots=True)
class _Unit:
    """Log partitions with something to read that share tables: whoever reads one reads all."""

    partitions: tuple[int, ...]
    bytes: int


def _units(inputs: Sequence[PartitionInput]) -> list[_Unit]:
    found: dict[tuple[bool, int], list[PartitionInput]] = {}
    for one in inputs:
        if one.busy:
            found.setdefault((one.unit is None, one.partition if one.unit is None else one.unit), []).append(one)
    return [_Unit(tuple(one.partition for one in members), sum(one.bytes for one in members)) for members in found.values()]


def _packed(units: Sequence[_Unit], items: int) -> list[Split]:
    """Light units in at most so many items: largest first, each to the item that has least."""
    bins: list[tuple[int, int, list[int]]] = [(0, number, []) for number in range(min(items, len(units)))]
    for unit in sorted(units, key=lambda one: (-one.bytes, one.partitions)):
        size, number, partitions = heapq.heappop(bins)
        heapq.heappush(bins, (size + unit.bytes, number, [*partitions, *unit.partitions]))
    # Units without bytes all go to one bin, which stays the emptiest, so another may have got none.
    return [Split(tuple(sorted(partitions))) for _, _, partitions in sorted(bins, key=lambda one: one[1]) if partitions]


def check(planned: Sequence[Split], inputs: Sequence[PartitionInput]) -> None:
    """The invariant of a batch: exactly one item handles a pair (logical table, target). Raises BrokenPlan.

    A logical table is in one unit of log partitions, and may be in all of them. So an item that reads one of a unit must read all, and of
    each unit every target must have exactly one item.
    """
    units = _units(inputs)
    busy = {partition for unit in units for partition in unit.partitions}
    for split in planned:
        if strange := set(split.partitions) - busy:
            raise BrokenPlan(f"{split} reads log partition {min(strange)}, which has nothing")
    for unit in units:
        found = [split for split in planned if set(split.partitions) & set(unit.partitions)]
        for split in found:
            if not set(split.partitions) >= set(unit.partitions):
                raise BrokenPlan(f"{split} does not read all of the log partitions {list(unit.partitions)}, which tables are spread over")
        shares = {split.shares for split in found}
        if len(shares) != 1 or sorted(s.share for s in found) != list(range(shares.pop())):
            raise BrokenPlan(f"targets of the log partitions {list(unit.partitions)} have none or several items: {found}")


def work_items(
    inputs: Sequence[PartitionInput],
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
    targets: int,
) -> list[WorkItem]:
    """The items of a batch, checked. None if no log partition has anything. `targets`: how many (topic, partition)s there are."""
    planned = splits(inputs, parallelism, targets)
    check(planned, inputs)
    chains = {one.partition: one.chains for one in inputs}
    ranges = {one.partition: one.range or (from_ts, to_ts) for one in inputs}
    apart = any(one.range is not None for one in inputs)
    small = is_small(inputs)
    return [
        WorkItem(
            feed=feed,
            batch=batch,
            epoch=epoch,
            number=number,
            from_ts=from_ts,
            to_ts=to_ts,
            log_partitions=split.partitions,
            chains=tuple(chain for p in split.partitions for chain in chains[p]),
            share=split.share,
            shares=split.shares,
            pack=pack,
            sink=sink,
            fence=fence,
            small=small,
            items=len(planned),
            ranges=tuple(ranges[p] for p in split.partitions for _ in chains[p]) if apart else (),
        )
        for number, split in enumerate(planned)
    ]


def chains_of(intervals: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Files of consecutive intervals (the parts of each) -> chains that are sorted each.

    Whole intervals follow each other in one chain. The n parts of a big interval stand side by side: n chains.
    """
    width = max((len(parts) for parts in intervals), default=0)
    return [tuple(parts[k] for parts in intervals if k < len(parts)) for k in range(width)]
