"""Turns schemas into spans: which physical table, or range of one, is captured into which partition, from when and until when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tidemill.capture.tikv.regions.actions import Span
from tidemill.capture.tikv.sort.bounds import ALL_HANDLES
from tidemill.changelog.spread import HandleRange, Layout, partition_of
from tidemill.tidb.keys import encode_range, record_prefix, record_range
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tidb.schema.tracking.versions import PhysicalChange, TableVersion


@dataclass(frozen=True, slots=True)
class Moved:
    """From `ts` on, the rows of a physical table with these handles belong to another partition (EXCHANGE PARTITION)."""

    physical_id: int
    ts: int
    old: int
    new: int
    handles: HandleRange = ALL_HANDLES


_Place = tuple[bytes, bytes, int]  # a range of encoded keys, and its partition


@dataclass(slots=True)
class _Retired:
    physical_id: int
    ts: int
    partition: int
    span_id: int
    moved: Moved | None = None


class TableSpans:
    """The spans of all wanted tables. Pure. A physical table has a span, or, if its logical table is split, one for each range of handles.

    The callbacks: `add` and `remove` begin and end the capture of a span. `moved`: rows of a table change their partition. `renamed`: the
    table of a span has a new name. `left`: the old partition has passed a move and no longer captures the table; it is called with one move
    for each partition and table.

    `owned`: the partitions captured here, by default all. The tables of other partitions are followed too, because one may move here.
    Nothing is added or removed for them; `moved` is called if either partition is owned.
    """

    def __init__(
        self,
        layout: Layout | int,
        add: Callable[[Span], None],
        remove: Callable[[int], None],
        moved: Callable[[Moved], None],
        wants: Callable[[TableVersion], bool] = lambda version: True,
        owned: Collection[int] | None = None,
        renamed: Callable[[Span], None] = lambda span: None,
        left: Callable[[Moved], None] = lambda moved: None,
    ) -> None:
        """`layout`: how rows are spread, for as long as this lives; or the number of partitions of one without split tables."""
        self.layout = layout if isinstance(layout, Layout) else Layout(0, layout)
        self._owned = frozenset(range(self.layout.partitions) if owned is None else owned)
        self._captured = 0
        self._wants = wants
        self._add, self._remove, self._moved, self._renamed = add, remove, moved, renamed
        self._left = left
        self._next = 1
        self._cuts = sorted({key for split in self.layout.split_tables for key in split.keys})
        self._spans_of: dict[int, tuple[Span, ...]] = {}  # by physical id; in the order of their handles
        self._retired: list[_Retired] = []
        self._last: dict[int, int] = {}  # physical id without spans -> logical table of its last ones, if it is in another one now

    def __len__(self) -> int:
        """Return the number of physical tables captured here."""
        return self._captured

    def label(self, physical_id: int) -> str | None:
        """Return the name of a physical table; None if it is not captured."""
        spans = self._spans_of.get(physical_id)
        return spans[0].label if spans else None

    def counts(self) -> list[int]:
        """Return the number of physical tables, or ranges of them, of each partition, owned or not."""
        found = Counter(span.partition for spans in self._spans_of.values() for span in spans)
        return [found[partition] for partition in range(self.layout.partitions)]

    def begin(self, history: SchemaHistory, heads: list[int]) -> None:
        """Capture all wanted tables. `heads`: the heads of the partitions. The schema is known up to the history's resolved ts."""
        first = min(*heads, history.resolved_ts)
        for version in filter(self._wants, history.snapshot(first).tables.values()):
            for physical_id in version.physical_ids:
                self._capture(physical_id, version, first, heads)
        self.follow(history.next_table_changes(first, history.resolved_ts), heads)
        self.retire(heads)

    def follow(self, changes: Iterable[PhysicalChange], heads: list[int]) -> None:
        """Apply schema changes, in order of their ts. No head is past them, except for changes that are read from the log again at a
        start."""
        for change in changes:
            begun = {p: version for version in change.begun if self._wants(version) for p in version.physical_ids}
            ended = {p: version.table_id for version in change.ended for p in version.physical_ids}
            going_on = {p: version.table_id for version in change.begun for p in version.physical_ids}
            for physical_id in sorted(ended.keys() - begun.keys()):
                self._retire(physical_id, change.ts)
                self._remember(physical_id, ended[physical_id], going_on.get(physical_id, ended[physical_id]))
            for physical_id, version in sorted(begun.items()):
                self._switch(physical_id, version, change.ts, heads, ended.get(physical_id, version.table_id))

    def narrow(self, wants: Callable[[TableVersion], bool], history: SchemaHistory, ts: int) -> None:
        """End the spans of tables that are not wanted from `ts` on. `history` covers all tables that have spans. A table whose newest
        version began later may have been wanted until then."""
        self._wants = wants
        for version in history.snapshot(history.resolved_ts).tables.values():
            if not wants(version):
                for physical_id in version.physical_ids:
                    self._retire(physical_id, max(ts, version.from_ts))

    def widen(self, history: SchemaHistory, ts: int, heads: list[int]) -> None:
        """Capture the tables that are wanted from `ts` on and have no spans. The schema is known up to `ts`, which no head has passed."""
        for version in filter(self._wants, history.snapshot(ts).tables.values()):
            for physical_id in version.physical_ids:
                if physical_id not in self._spans_of:
                    self._switch(physical_id, version, ts, heads, version.table_id)

    def _remember(self, physical_id: int, before: int, after: int) -> None:
        """Note the logical table of the last spans of a physical table that has none and is in the table `after` now. That was `before`, if
        nothing else is noted. A table that is dropped stays where it is: it is recovered into the same logical table."""
        last = self._last.pop(physical_id, before)
        if last != after:
            self._last[physical_id] = last

    def _switch(self, physical_id: int, version: TableVersion, ts: int, heads: list[int], ended: int) -> None:
        """Capture a physical table that belongs to this version from `ts` on. `ended`: the logical table that it was in.

        Its rows move from where its last spans were, even if tables that are not wanted had it since: those spans may still be there,
        or rows that came by them, and a partition that it left earlier has to take it back."""
        spans = self._spans_of.get(physical_id)
        places = self._places(physical_id, version.table_id)
        if spans is not None and places == [(s.start, s.end, s.partition) for s in spans]:
            self._rename(physical_id, spans, version)
            return
        if spans is not None:
            self._retire(physical_id, ts)
        before = self._places(physical_id, self._last.pop(physical_id, ended))
        self._move(self._moves(physical_id, ts, before, places))
        self._capture(physical_id, version, ts, heads)

    def _places(self, physical_id: int, table_id: int) -> list[_Place]:
        """Where the rows of a physical table are if it belongs to this logical one: encoded ranges in order, and the partition of each."""
        split = self.layout.split_of(table_id)
        if split is None:
            return [(*encode_range(*record_range(physical_id)), partition_of(table_id, self.layout.partitions))]
        return [(*_range(physical_id, handles), partition) for handles, partition in split.ranges()]

    def _moves(self, physical_id: int, ts: int, before: Sequence[_Place], after: Sequence[_Place]) -> list[Moved]:
        """What of a physical table has another partition after than before. Cut at the keys of all split tables, so that a range that
        moves and comes back is the same range."""
        if before == after:
            return []
        found = []
        for handles in pairwise((b"", *self._cuts, b"")):
            start, _ = _range(physical_id, handles)
            old, new = (next(partition for low, high, partition in places if low <= start < high) for places in (before, after))
            if old != new:
                found.append(Moved(physical_id, ts, old, new, handles))
        return found

    def _move(self, moves: Iterable[Moved]) -> None:
        """Tell of moves of one physical table. An old partition has left them behind when the last of its spans there has ended."""
        told = set()
        for moved in moves:
            if not self._owned.isdisjoint((moved.old, moved.new)):
                self._moved(moved)
            if moved.old in self._owned and moved.old not in told:
                told.add(moved.old)
                last = (moved.physical_id, moved.old)
                waiting = next((gone for gone in reversed(self._retired) if (gone.physical_id, gone.partition) == last), None)
                if waiting is not None:
                    waiting.moved = moved
                else:
                    self._left(moved)

    def _capture(self, physical_id: int, version: TableVersion, ts: int, heads: list[int]) -> None:
        """From `ts` on, or from where each partition is."""
        label, spans = _label(physical_id, version), []
        for start, end, partition in self._places(physical_id, version.table_id):
            spans.append(Span(self._next, start, end, partition, max(ts, heads[partition]), label))
            self._next += 1
        self._spans_of[physical_id] = tuple(spans)
        self._captured += spans[0].partition in self._owned
        for span in spans:
            if span.partition in self._owned:
                self._add(span)

    def _rename(self, physical_id: int, spans: tuple[Span, ...], version: TableVersion) -> None:
        label = _label(physical_id, version)
        if label != spans[0].label:
            self._spans_of[physical_id] = renamed = tuple(replace(span, label=label) for span in spans)
            for span in renamed:
                if span.partition in self._owned:
                    self._renamed(span)

    def _retire(self, physical_id: int, ts: int) -> None:
        spans = self._spans_of.pop(physical_id, ())
        self._captured -= bool(spans) and spans[0].partition in self._owned
        for span in spans:
            if span.partition in self._owned:
                self._retired.append(_Retired(physical_id, ts, span.partition, span.id))

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


def _range(physical_id: int, handles: HandleRange) -> tuple[bytes, bytes]:
    """The encoded keys of a range of handles."""
    (start, end), (low, high) = record_range(physical_id), handles
    return encode_range(record_prefix(physical_id) + low if low else start, record_prefix(physical_id) + high if high else end)
