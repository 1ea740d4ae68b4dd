"""Row events above the frontier, by commit ts: in memory, and beyond a quota in runs on disk.

Pure except for the runs, which a `Spill` makes (see `spill`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tidemill.consumer.order.progress import TopicPartition
from tidemill.protocols.open.events import RowEvent

ROW_BYTES = 700
"""The approximate bytes of an event in memory besides its values."""


class Item(NamedTuple):
    """A row event and its source. `turn` counts how often its partition went back to older rows of the table."""

    source: TopicPartition
    offset: int
    turn: int
    row: RowEvent


MOST_RUNS = 64
_END_OF_TIME = 1 << 64

Group = tuple[int, list[Item]]
"""The events of one commit ts, in order of arrival."""


class Run(Protocol):
    """Groups on disk, in order of ts."""

    first_ts: int | None
    offsets: dict[TopicPartition, int]

    def until(self, ts: int) -> Iterator[Group]:
        """Yield and remove the groups up to a ts."""

    def close(self) -> None:
        """Free the disk space."""


class Spill(Protocol):
    """Makes runs."""

    def write(self, groups: Iterable[Group], offsets: dict[TopicPartition, int]) -> Run:
        """Write groups, given in order of ts, to a new run. `offsets` has the first offset of each partition in it."""


@dataclass(slots=True)
class _Bucket:
    items: list[Item] = field(default_factory=list)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    bytes: int = 0


class Pending:
    """See the module. `quota` bounds the estimated bytes in memory."""

    def __init__(self, quota: int, spill: Spill) -> None:
        self._quota, self._spill = quota, spill
        self._buckets: dict[int, _Bucket] = {}
        self._order: list[int] = []  # a heap of the buckets' ts
        self._runs: list[Run] = []
        self.bytes = self.rows = self.spilled_rows = 0

    def add(self, item: Item, size: int) -> None:
        """Store an event. `size` is its approximate share of the message's bytes."""
        ts = item.row.ts
        bucket = self._buckets.get(ts)
        if bucket is None:
            bucket = self._buckets[ts] = _Bucket()
            heapq.heappush(self._order, ts)
        bucket.items.append(item)
        bucket.offsets[item.source] = min(item.offset, bucket.offsets.get(item.source, item.offset))
        self.rows += 1
        bucket.bytes += ROW_BYTES + 4 * size
        self.bytes += ROW_BYTES + 4 * size
        if self.bytes > self._quota:
            self._spill_all()

    def _spill_all(self) -> None:
        if len(self._runs) >= MOST_RUNS:
            self._join_runs()
        offsets = self._offsets_in_memory()
        self.spilled_rows += sum(len(bucket.items) for bucket in self._buckets.values())
        self._runs.append(self._spill.write(self._in_memory(max(self._order)), offsets))

    def _join_runs(self) -> None:
        """Merge all runs into one, because each keeps a file open."""
        runs = self._runs
        offsets: dict[TopicPartition, int] = {}
        for run in runs:
            for source, offset in run.offsets.items():
                offsets[source] = min(offset, offsets.get(source, offset))
        groups = heapq.merge(*(run.until(_END_OF_TIME) for run in runs), key=lambda group: group[0])
        self._runs = [self._spill.write(groups, offsets)]
        for run in runs:
            run.close()

    def _in_memory(self, upto: int) -> Iterator[Group]:
        while self._order and self._order[0] <= upto:
            ts = heapq.heappop(self._order)
            bucket = self._buckets.pop(ts)
            self.bytes -= bucket.bytes
            yield ts, bucket.items

    @property
    def first_ts(self) -> int | None:
        """The smallest stored commit ts."""
        known = [*self._order[:1], *(run.first_ts for run in self._runs if run.first_ts is not None)]
        return min(known, default=None)

    def until(self, upto: int) -> Iterator[Group]:
        """Yield and remove everything at or below a ts, in order of ts."""
        sources = [run.until(upto) for run in self._runs]
        joined: Group | None = None
        for ts, items in heapq.merge(*sources, self._in_memory(upto), key=lambda group: group[0]):
            self.rows -= len(items)
            if joined is not None and joined[0] == ts:
                joined[1].extend(items)
                continue
            if joined is not None:
                yield joined
            joined = ts, items
        if joined is not None:
            yield joined
        self._close_empty_runs()

    def _close_empty_runs(self) -> None:
        for run in self._runs:
            if run.first_ts is None:
                run.close()
        self._runs = [run for run in self._runs if run.first_ts is not None]

    def offsets(self) -> dict[TopicPartition, int]:
        """Return for each partition the first offset of a stored event."""
        found = self._offsets_in_memory()
        for run in self._runs:
            for source, offset in run.offsets.items():
                found[source] = min(offset, found.get(source, offset))
        return found

    def _offsets_in_memory(self) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for bucket in self._buckets.values():
            for source, offset in bucket.offsets.items():
                found[source] = min(offset, found.get(source, offset))
        return found

    def clear(self) -> None:
        """Forget everything."""
        for run in self._runs:
            run.close()
        self._runs, self._order = [], []
        self._buckets.clear()
        self.bytes = self.rows = 0
