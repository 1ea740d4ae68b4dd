"""Turns messages of many partitions, repeated and interleaved in any way, into transactions and DDLs in the source's order. Pure.

The rules:
- A resolved ts promises that no new message at or below it follows in its partition. The smallest promise of all partitions is the
  *frontier*. Everything at or below it is complete, and is drained in order of commit ts.
- Rows of a partition at or below the ts up to which *that partition* was flushed are repeats. Nothing else is dropped because of its
  age: a resolved ts alone does not show what the target holds.
- Repeats above it are found when their transaction is complete: same table, key, kind and commit ts.
- A DDL arrives in every partition, and follows the rows of its ts. Several DDLs of one ts keep their order.
- A resolved ts that goes back was sent again.
- Writers send no more resolved ts to a topic whose tables are gone (see `living`), or that the user names as ended. Its partitions do not
  hold the frontier back if they have been read to their end *after* the frontier was measured: a writer sends a resolved ts only after
  everything below it is sent to all partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tidemill.consumer.order.living import TableLiveness
from tidemill.consumer.order.pending import Group, Item, Pending
from tidemill.consumer.order.progress import PartitionProgress, Progress, TopicPartition
from tidemill.protocols.open.events import Column, DdlMessage, Event, ResolvedMessage, RowEvent, RowKind

_PHASE = {RowKind.DELETE: 0, RowKind.UPDATE: 1, RowKind.INSERT: 2}


@dataclass(frozen=True, slots=True)
class Transaction:
    """All rows of one commit ts, each once. Within a table deletes come first, then updates, then inserts."""

    ts: int
    rows: tuple[RowEvent, ...]


Step = Transaction | DdlMessage


@dataclass(slots=True)
class Partition:
    """The state of one topic partition."""

    next_offset: int
    flushed_ts: int = 0
    resolved_ts: int = 0
    resolved_offset: int = 0  # offset of that resolved message
    turns: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)  # table → (turn, commit ts of its last row)

    def turn(self, row: RowEvent) -> int:
        """Return the turn of a row. A turn begins where rows of a table go back in time, because delivery began again."""
        table = row.schema, row.table
        turn, last = self.turns.get(table, (0, 0))
        turn += row.ts < last
        self.turns[table] = turn, row.ts
        return turn


@dataclass(slots=True)
class _Ddl:
    """A pending DDL, and its first offset in each partition."""

    message: DdlMessage
    offsets: dict[TopicPartition, int]


class Ordering:
    """The state machine. Call `join` for partitions, `take` for messages, `drain` for complete steps, then `flushed`."""

    def __init__(self, pending: Pending, progress: Progress | None = None, ended_topics: Collection[str] = ()) -> None:
        """`ended_topics` get no more resolved ts, although no message shows it."""
        self.pending = pending
        self._ended_topics = ended_topics
        self._living = TableLiveness()
        self.partitions: dict[TopicPartition, Partition] = {}
        self._saved = progress or Progress()
        self.flushed_ts = self._saved.flushed_ts
        self._ddls: dict[int, dict[DdlMessage, _Ddl]] = {}
        self.rows_taken = self.rows_repeated = self.ddls_taken = self.ddls_repeated = self.resolved_ignored = 0

    # Partitions

    def join(self, source: TopicPartition, first_offset: int = 0) -> int:
        """Follow a partition, and return the offset to read from. A new partition begins at `first_offset`."""
        saved = self._saved.partitions.get(source)
        if saved is None:
            self.partitions[source] = Partition(first_offset)
            known = {**self._saved.partitions, source: PartitionProgress(first_offset, 0)}
            self._saved = replace(self._saved, partitions=known)
        else:
            self.partitions[source] = Partition(saved.offset, saved.flushed_ts, saved.flushed_ts)
            self._living.restore(source[0], self._saved.tables.get(source[0], ()), saved.flushed_ts, ended=saved.ended)
        return self.partitions[source].next_offset

    def of_cluster(self, cluster: str) -> None:
        """Set the Kafka cluster of the offsets, for the progress."""
        self._saved = replace(self._saved, cluster=cluster)

    @property
    def frontier(self) -> int:
        """The ts up to which all partitions are complete. 0 while one of them has no resolved ts yet."""
        speaking = [p.resolved_ts for source, p in self.partitions.items() if not self._has_ended(source)]
        return min(speaking) if speaking else max((p.resolved_ts for p in self.partitions.values()), default=0)

    def _has_ended(self, source: TopicPartition) -> bool:
        return source[0] in self._ended_topics or self._living.has_ended(source[0])

    def ended(self, upto: int | None = None) -> dict[TopicPartition, int]:
        """Return the offsets at which ended partitions hold nothing back. With `upto`, only of those without their own promise to it."""
        return {
            source: p.next_offset
            for source, p in self.partitions.items()
            if self._has_ended(source) and (upto is None or p.resolved_ts < upto)
        }

    def holding(self) -> list[TopicPartition]:
        """Return the partitions that hold the frontier back."""
        frontier = self.frontier
        return sorted(source for source, p in self.partitions.items() if p.resolved_ts == frontier and not self._has_ended(source))

    # Messages

    def take(self, source: TopicPartition, offset: int, events: Sequence[Event], size: int = 0) -> None:
        """Take the events of a message. Messages of a partition come in order. `size` is the message's size."""
        partition = self.partitions[source]
        partition.next_offset = offset + 1
        share = size // max(len(events), 1)
        for event in events:
            match event:
                case RowEvent():
                    self.rows_taken += 1
                    turn = partition.turn(event)
                    if event.ts <= partition.flushed_ts:
                        self.rows_repeated += 1
                    else:
                        self._living.tell(source[0], event.schema, event.table, event.ts)
                        self.pending.add(Item(source, offset, turn, event), share)
                case DdlMessage():
                    self._take_ddl(source, partition, offset, event)
                case ResolvedMessage():
                    self.resolved_ignored += event.ts < partition.resolved_ts
                    if event.ts > partition.resolved_ts:
                        partition.resolved_ts, partition.resolved_offset = event.ts, offset

    def _take_ddl(self, source: TopicPartition, partition: Partition, offset: int, ddl: DdlMessage) -> None:
        if ddl.ts <= partition.flushed_ts:
            self.ddls_repeated += 1
            return
        self._living.take_ddl(source[0], ddl)
        waiting = self._ddls.setdefault(ddl.ts, {})
        known = waiting.get(ddl)
        if known is None:
            waiting[ddl] = _Ddl(ddl, {source: offset})
            self.ddls_taken += 1
        else:
            self.ddls_repeated += 1
            known.offsets.setdefault(source, offset)

    # What is complete

    def ready(self, target_ts: int | None = None, frontier: int | None = None) -> int | None:
        """Return the ts up to which new steps can be flushed, at most `target_ts`, or None if there are none.

        `frontier` is an earlier frontier to use instead of the present one.
        """
        upto = self.frontier if frontier is None else min(frontier, self.frontier)
        if target_ts is not None:
            upto = min(upto, target_ts)
        first = min((ts for ts in (self.pending.first_ts, *self._ddls) if ts is not None), default=None)
        if upto > self.flushed_ts or (upto == self.flushed_ts and first is not None and first <= upto):
            return upto
        return None

    def drain(self, upto: int) -> Iterator[Step]:
        """Yield and remove everything at or below a ts, in order. Read it to its end, then call `flushed`."""
        groups = self.pending.until(upto)
        ddls = sorted(ts for ts in self._ddls if ts <= upto)
        group = next(groups, None)
        for ts in ddls:
            while group is not None and group[0] <= ts:
                yield self._transaction(group)
                group = next(groups, None)
            yield from self._ddls[ts]
        while group is not None:
            yield self._transaction(group)
            group = next(groups, None)

    def _transaction(self, group: Group) -> Transaction:
        ts, items = group
        seen: set[object] = set()
        rows: list[RowEvent] = []
        keyless: list[Item] = []
        for item in items:
            identity = row_identity(item.row)
            if identity is None:
                keyless.append(item)
            elif identity not in seen:
                seen.add(identity)
                rows.append(item.row)
        rows += _keyless_rows(keyless)
        self.rows_repeated += len(items) - len(rows)
        rows.sort(key=lambda row: (row.schema, row.table, _PHASE[row.kind]))
        return Transaction(ts, tuple(rows))

    # What has been flushed

    def partly_flushed(self, ts: int) -> Progress:
        """Return the progress to store with everything up to a ts in the middle of `drain`. Offsets stay where they were."""
        self._saved = self._progress(ts, {source: p.offset for source, p in self._saved.partitions.items()})
        return self._saved

    def flushed(self, upto: int) -> Progress:
        """Note that all steps of `drain` are about to be durable, and return the progress to store with them."""
        for ts in [ts for ts in self._ddls if ts <= upto]:
            del self._ddls[ts]
        offsets = self._first_offsets(upto)
        self._saved = self._progress(upto, offsets)
        self.flushed_ts = self._saved.flushed_ts
        for source, p in self.partitions.items():
            p.flushed_ts = self._saved.partitions[source].flushed_ts
        return self._saved

    def _first_offsets(self, upto: int) -> dict[TopicPartition, int]:
        """Return where to read on: behind nothing that is still to be flushed, and not behind a promise that goes further than `upto`.

        A promise must not be kept without reading the rows before it again.
        """
        first = self.pending.offsets()
        for waiting in self._ddls.values():
            for ddl in waiting.values():
                for source, offset in ddl.offsets.items():
                    first[source] = min(offset, first.get(source, offset))
        for source, p in self.partitions.items():
            own = p.resolved_offset if p.resolved_ts > upto else p.next_offset
            first[source] = min(own, first.get(source, own))
        return {source: first[source] for source in self.partitions}

    def _progress(self, ts: int, offsets: dict[TopicPartition, int]) -> Progress:
        """Return the progress. Partitions that are not followed keep their last one."""
        partitions = dict(self._saved.partitions)
        for source, partition in self.partitions.items():
            if source in offsets:
                partitions[source] = PartitionProgress(offsets[source], max(ts, partition.flushed_ts), self._living.has_ended(source[0]))
        tables = {**self._saved.tables, **self._living.living()}
        return Progress(max(ts, self._saved.flushed_ts), partitions, self._saved.cluster, tables)


def row_identity(row: RowEvent) -> object | None:
    """Return what an event shares with its repeats within its commit ts. None for a row without a key, where only whole rows compare."""
    key = _key(row.before if row.kind is RowKind.DELETE else row.after)
    if not key:
        if row.row_id is None:
            return None
        key = ((row.partition, row.row_id),)
    return row.schema, row.table, row.kind, key


def _key(columns: Sequence[Column]) -> tuple[object, ...]:
    return tuple((c.name, c.value) for c in columns if c.handle)


def _keyless_rows(items: Sequence[Item]) -> list[RowEvent]:
    """Return rows without a key. Another turn of a partition repeats them, so the turn with most copies of a row gives their number."""
    counts: dict[RowEvent, Counter[tuple[TopicPartition, int]]] = {}
    for item in items:
        counts.setdefault(item.row, Counter())[item.source, item.turn] += 1
    found: list[RowEvent] = []
    for row, by_turn in counts.items():
        most: dict[TopicPartition, int] = {}
        for (source, _), count in by_turn.items():
            most[source] = max(count, most.get(source, 0))
        found += [row] * sum(most.values())
    return found
