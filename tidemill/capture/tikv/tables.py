"""Turns schemas into spans: which physical table is captured into which partition, from when and until when."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from tidemill.capture.tikv.regions.actions import Span
from tidemill.tidb.keys import encode_range, record_range
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tidb.schema.tracking.versions import PhysicalChange, TableVersion

PARTITION_BY = "crc32(logical table id)"
"""How tables are assigned to partitions, as log.json names it."""


def partition_of(table_id: int, partitions: int) -> int:
    """Return the log partition of a logical table: the CRC-32 of its id (8 bytes, big-endian) modulo the number of partitions."""
    return zlib.crc32(table_id.to_bytes(8, "big", signed=True)) % partitions


@dataclass(frozen=True, slots=True)
class Moved:
    """From `ts` on, the rows of a physical table belong to another partition (EXCHANGE PARTITION)."""

    physical_id: int
    ts: int
    old: int
    new: int


@dataclass(slots=True)
class _Retired:
    ts: int
    partition: int
    span_id: int
    moved: Moved | None = None


class TableSpans:
    """The spans of all wanted tables. Pure.

    The callbacks: `add` and `remove` begin and end the capture of a span. `moved`: a table changes its partition. `renamed`: the table of a
    span has a new name. `left`: the old partition has passed a move and no longer captures the table.

    `owned`: the partitions captured here, by default all. The tables of other partitions are followed too, because one may move here.
    Nothing is added or removed for them; `moved` is called if either partition is owned.
    """

    def __init__(
        self,
        partitions: int,
        add: Callable[[Span], None],
        remove: Callable[[int], None],
        moved: Callable[[Moved], None],
        wants: Callable[[TableVersion], bool] = lambda version: True,
        owned: Collection[int] | None = None,
        renamed: Callable[[Span], None] = lambda span: None,
        left: Callable[[Moved], None] = lambda moved: None,
    ) -> None:
        self.partitions = partitions
        self._owned = frozenset(range(partitions) if owned is None else owned)
        self._captured = 0
        self._wants = wants
        self._add, self._remove, self._moved, self._renamed = add, remove, moved, renamed
        self._left = left
        self._next = 1
        self._span_of: dict[int, Span] = {}  # by physical id
        self._retired: list[_Retired] = []

    def __len__(self) -> int:
        """Return the number of physical tables captured here."""
        return self._captured

    def label(self, physical_id: int) -> str | None:
        """Return the name of a physical table; None if it is not captured."""
        span = self._span_of.get(physical_id)
        return span.label if span is not None else None

    def counts(self) -> list[int]:
        """Return the number of physical tables of each partition, owned or not."""
        found = Counter(span.partition for span in self._span_of.values())
        return [found[partition] for partition in range(self.partitions)]

    def begin(self, history: SchemaHistory, heads: list[int]) -> None:
        """Capture all wanted tables. `heads`: the heads of the partitions. The schema is known up to the history's resolved ts."""
        first = min(*heads, history.resolved_ts)
        for version in filter(self._wants, history.snapshot(first).tables.values()):
            partition = partition_of(version.table_id, self.partitions)
            for physical_id in version.physical_ids:
                self._capture(physical_id, version, partition, max(first, heads[partition]))
        self.follow(history.next_table_changes(first, history.resolved_ts), heads)
        self.retire(heads)

    def follow(self, changes: Iterable[PhysicalChange], heads: list[int]) -> None:
        """Apply schema changes, in order of their ts. No head is past them, except for changes that are read from the log again at a
        start."""
        for change in changes:
            begun = {p: version for version in change.begun if self._wants(version) for p in version.physical_ids}
            ended = {p: version for version in change.ended for p in version.physical_ids}
            for physical_id in sorted(ended.keys() - begun.keys()):
                self._retire(physical_id, change.ts)
            for physical_id, version in sorted(begun.items()):
                self._switch(physical_id, version, change.ts, heads)

    def narrow(self, wants: Callable[[TableVersion], bool], history: SchemaHistory, ts: int) -> None:
        """End the spans of tables that are not wanted from `ts` on. `history` covers all tables that have spans."""
        self._wants = wants
        for version in history.snapshot(history.resolved_ts).tables.values():
            if not wants(version):
                for physical_id in version.physical_ids:
                    self._retire(physical_id, ts)

    def _switch(self, physical_id: int, version: TableVersion, ts: int, heads: list[int]) -> None:
        partition = partition_of(version.table_id, self.partitions)
        before = self._span_of.get(physical_id)
        if before is not None and before.partition == partition:
            self._rename(physical_id, before, version)
            return
        if before is not None:
            moved = Moved(physical_id, ts, before.partition, partition)
            self._retire(physical_id, ts, moved)
            if not self._owned.isdisjoint((before.partition, partition)):
                self._moved(moved)
        self._capture(physical_id, version, partition, max(ts, heads[partition]))

    def _capture(self, physical_id: int, version: TableVersion, partition: int, checkpoint: int) -> None:
        start, end = encode_range(*record_range(physical_id))
        span = Span(self._next, start, end, partition, checkpoint, _label(physical_id, version))
        self._next += 1
        self._span_of[physical_id] = span
        if partition in self._owned:
            self._captured += 1
            self._add(span)

    def _rename(self, physical_id: int, span: Span, version: TableVersion) -> None:
        label = _label(physical_id, version)
        if label != span.label:
            self._span_of[physical_id] = span = replace(span, label=label)
            if span.partition in self._owned:
                self._renamed(span)

    def _retire(self, physical_id: int, ts: int, moved: Moved | None = None) -> None:
        span = self._span_of.pop(physical_id, None)
        if span is not None and span.partition in self._owned:
            self._captured -= 1
            self._retired.append(_Retired(ts, span.partition, span.id, moved))

    def retire(self, heads: list[int]) -> None:
        """End the spans of dropped tables whose partition has passed their end."""
        kept = []
        for gone in self._retired:
            if heads[gone.partition] >= gone.ts:
                self._remove(gone.span_id)
                if gone.moved is not None:
                    self._left(gone.moved)
            else:
                kept.append(gone)
        self._retired = kept


def _label(physical_id: int, version: TableVersion) -> str:
    """Return the name of a physical table for messages."""
    return f"{version.schema}.{version.table} ({physical_id})"
