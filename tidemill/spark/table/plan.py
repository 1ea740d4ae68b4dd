"""Plans the tasks that read a table: its partitions, its regions, and the key ranges that the query's filters leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.model import Region
from tidemill.capture.tikv.read.tables import regions_of
from tidemill.capture.tikv.regions.ranges import cut
from tidemill.spark.table.bounds import Bounds
from tidemill.spark.table.partitions import kept_partitions
from tidemill.spark.table.ranges import WHOLE, handle_ranges, key_range
from tidemill.spark.table.upstream import TableAt
from tidemill.tidb.codec import decode_bytes
from tidemill.tidb.keys import encode_range
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tso import describe

Range = tuple[bytes, bytes]
"""Raw keys [start, end)."""


@dataclass(frozen=True, slots=True)
class TableTask:
    """What a task reads: ranges in key order. `regions`: the ids of the regions that they were in when the query was planned."""

    number: int
    ranges: tuple[Range, ...]
    regions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TablePlan:
    """All tasks. `partitions`: the names of those that are read, and the number of all; none without partitions."""

    name: str
    ts: int
    tasks: tuple[TableTask, ...]
    pushed: bool  # whether filters leave only some ranges
    partitions: tuple[str, ...] = ()
    all_partitions: int = 0

    def __str__(self) -> str:
        ranges = sum(len(task.ranges) for task in self.tasks)
        regions = len({region for task in self.tasks for region in task.regions})
        lines = [f"{self.name} as of {describe(self.ts)}: {ranges} key ranges in {regions} regions, {len(self.tasks)} tasks"]
        if self.all_partitions:
            lines.append(f"partitions: {len(self.partitions)} of {self.all_partitions}: {', '.join(self.partitions) or 'none'}")
        lines.append("key ranges: " + ("those that the filters leave" if self.pushed else "the whole table"))
        for task in self.tasks:
            spans = ", ".join(f"[{start.hex()}, {end.hex()})" for start, end in task.ranges)
            lines.append(f"task {task.number}: region {', '.join(map(str, task.regions)) or 'unknown'}: {spans}")
        return "\n".join(lines)


async def plan_table(pd: PdClient, table: TableAt, bounds: Mapping[int, Bounds], regions_per_task: int, most: int = 0) -> TablePlan:
    """Plan the tasks, `most` at most (0: any number). What PD does not tell of regions does no harm: tasks look for the regions of their
    ranges themselves."""
    version = table.version
    handles = handle_ranges(version.info, bounds)
    names, ids, n = _partitions(version, bounds)
    ranges = [key_range(physical_id, one) for physical_id in sorted(ids) for one in handles]
    regions = await regions_of(pd, [encode_range(*one) for one in ranges]) if ranges else []
    tasks = _tasks(ranges, regions, regions_per_task, most)
    return TablePlan(".".join(version.name), table.ts, tasks, handles != WHOLE, names, n)


def _partitions(version: TableVersion, bounds: Mapping[int, Bounds]) -> tuple[tuple[str, ...], Sequence[int], int]:
    """The names and ids of the partitions that are read, and the number of all."""
    if version.info.partition is None:
        return (), version.physical_ids, 0
    kept = kept_partitions(version.info, bounds)
    return tuple(one.name for one in kept), [one.id for one in kept], len(version.info.partition.definitions)


def _tasks(ranges: Sequence[Range], regions: Sequence[Region], regions_per_task: int, most: int) -> tuple[TableTask, ...]:
    """Cut the ranges by regions. A task has the ranges of one region, or of several that follow each other."""
    pieces: list[tuple[int, Range]] = []  # the region's id, 0: not known
    at = 0
    for one in ranges:
        start, end = encode_range(*one)
        while at < len(regions) - 1 and regions[at].end and regions[at].end <= start:
            at += 1
        cuts, _ = cut(start, end, regions[at : at + 1] if _holds(regions, at, start, end) else regions[at:])
        borders = [one[0], *(decode_bytes(low)[0] for low, _, _ in cuts[1:]), one[1]]
        for (low, high), (_, _, region) in zip(pairwise(borders), cuts, strict=True):
            if low < high:
                pieces.append((region.id if region is not None else 0, (low, high)))
    by_region = [(id_, [one for _, one in group]) for id_, group in groupby(pieces, key=lambda piece: piece[0])]
    tasks = []
    if most:
        regions_per_task = max(regions_per_task, -(-len(by_region) // most))
    for number, begin in enumerate(range(0, len(by_region), regions_per_task)):
        group = by_region[begin : begin + regions_per_task]
        ids = tuple(id_ for id_, _ in group if id_)
        tasks.append(TableTask(number, tuple(one for _, found in group for one in found), ids))
    return tuple(tasks)


def _holds(regions: Sequence[Region], at: int, start: bytes, end: bytes) -> bool:
    """Whether one region holds the whole of an encoded range: an IN has thousands of them."""
    if at >= len(regions):
        return False
    region = regions[at]
    return region.start <= start and (not region.end or end <= region.end)
