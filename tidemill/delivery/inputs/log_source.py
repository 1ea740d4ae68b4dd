"""The log, as the batches of a changefeed use it: what an interval holds, where DDLs stand, which pack is valid."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from datetime import tzinfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.changelog import imports, initial_load
from tidemill.changelog.files.bounds import begin_of_changes, within
from tidemill.changelog.files.segment import check_columns, read_batch
from tidemill.changelog.history import follow
from tidemill.changelog.log_format import Interval, LogIdentity
from tidemill.changelog.reader import LogReader, open_segment
from tidemill.changelog.spread import home_of
from tidemill.delivery.inputs.bootstrap_ddl import creating
from tidemill.delivery.inputs.coverage import CoverageCheck
from tidemill.delivery.inputs.table_pack import PackStore
from tidemill.delivery.plan import MAX_BATCH_BYTES, MAX_INTERVAL, PartitionInput, batch_end, end_by_size
from tidemill.delivery.position import Position, Ranges, end_of, levelled
from tidemill.delivery.task.reader import Sources, commits
from tidemill.delivery.time_plan import Sample
from tidemill.events import RAW_CHANGE
from tidemill.kernels.flow import layout as f
from tidemill.tidb.schema.events import DdlEvent, grouped
from tidemill.tidb.schema.tracking.history import SchemaHistory, SchemaSnapshot, TableVersion
from tidemill.tidb.types.jsonstyle import JsonStyle, style_of
from tidemill.tso import next_multiple

COUNTED_FILES = 64
"""Rows of an interval are counted if it has no more files than this in a log partition, and these can be mapped."""
SAMPLE_ROWS = 512
"""Of so many rows one is looked at to divide a batch by commit ts."""
KEPT_HISTORY = 6 * MAX_INTERVAL
"""How far the schema history goes back behind the last batch: forgetting costs a copy of the table list."""


def count_rows(paths: Iterable[str], from_ts: int, to_ts: int) -> int:
    """About how many rows of (from_ts, to_ts] the files have; 0 only if there is none.

    A batch that reaches beyond the interval counts by its share of time and is not read. Only where no batch lies inside as a whole, or a
    file does not tell its batches' times, are batches read and their rows counted.
    """
    files = [(path, open_segment(path)) for path in paths]
    for path, file in files:
        check_columns(file, RAW_CHANGE, path)
    told = [file.count_within(from_ts, to_ts) for _, file in files]
    rows = sum(inside for inside, _, _ in told)
    is_busy = rows > 0
    for (path, file), (_, about, others) in zip(files, told, strict=True):
        if is_busy and file.has_sums:
            rows += about
        else:
            rows += sum(_rows_within(read_batch(file, number, path), from_ts, to_ts) for number in others)
    return rows


def _rows_within(batch: pa.RecordBatch, from_ts: int, to_ts: int) -> int:
    begin, end = np.searchsorted(commits(batch), np.array([from_ts, to_ts], np.uint64), "right")
    return int(end - begin)


def samples_of(partition_input: PartitionInput, from_ts: int, to_ts: int) -> list[Sample]:
    """How a partition's rows are spread over time: by its rows where they were counted, else by the sizes of its files."""
    if partition_input.rows is None:
        return [Sample(one.to_ts, size) for one, size in zip(partition_input.intervals, partition_input.sizes, strict=False)]
    found = []
    sources = Sources(partition_input.chains, from_ts, to_ts)
    for number, words in enumerate(sources.words[: len(sources)]):
        while words[f.S_MORE]:
            sources.begin_chunk()
            sources.advance(number)
            batch, begin, end = sources.all[number].batch, int(words[f.S_POS]), int(words[f.S_END])
            if batch is not None and end > begin:
                found += _every(commits(batch)[begin:end])
    return found


def _every(times: npt.NDArray[np.uint64]) -> list[Sample]:
    """A sample for each SAMPLE_ROWS rows, and one for the rest."""
    ends = [*range(SAMPLE_ROWS, len(times), SAMPLE_ROWS), len(times)]
    return [Sample(int(times[end - 1]), end - begin) for begin, end in zip([0, *ends], ends, strict=False)]


def tables_with_rows(chains: Sequence[Sequence[str]], from_ts: int, to_ts: int, physical_ids: Set[int]) -> Set[int]:
    """Those of the physical ids that have rows of (from_ts, to_ts] in the chains. Reads one column, until all are found."""
    sources = Sources(chains, from_ts, to_ts)
    missing = set(physical_ids)
    for number, words in enumerate(sources.words[: len(sources)]):
        while missing and words[f.S_MORE]:
            sources.begin_chunk()
            sources.advance(number)
            batch, begin, end = sources.all[number].batch, int(words[f.S_POS]), int(words[f.S_END])
            if batch is not None and end > begin:
                missing.difference_update(pc.unique(batch.column("table_id").slice(begin, end - begin)).to_pylist())
    return physical_ids - missing


class LogSource:
    """What a log gives to the batches of one changefeed. See `batch.BatchSource`."""

    def __init__(
        self,
        reader: LogReader,
        history: SchemaHistory,
        packs: PackStore,
        wants: Callable[[DdlEvent], bool],
        wants_rows: Callable[[TableVersion], bool] = lambda version: False,
        create_in: tzinfo | None = None,
        divide: Callable[[DdlEvent, Callable[[int], SchemaSnapshot]], Sequence[DdlEvent]] = lambda event, snapshot: (event,),
    ) -> None:
        """`create_in`: tables are created downstream ahead of their initial rows, with TIMESTAMP defaults in that zone. `divide`: see
        `divided_ddls`."""
        self._create_in, self._divide = create_in, divide
        self._reader, self._history, self._packs, self._wants = reader, history, packs, wants
        self._captured = CoverageCheck(reader.identity_now, wants_rows, lambda: imports.noted(reader.storage))
        self._inputs: tuple[int, int, Ranges, list[PartitionInput]] = _NOTHING

    def follow(self, to_ts: int) -> None:
        self._reader.laid_out(to_ts)
        if self._history.resolved_ts < to_ts:
            follow(self._history, self._reader)

    def inputs(self, from_ts: int, to_ts: int, ranges: Ranges = ()) -> list[PartitionInput]:
        if self._inputs[:3] != (from_ts, to_ts, ranges):
            self._captured.check(self._history, from_ts, end_of(to_ts, ranges).furthest)
            if ranges:
                inputs = [replace(self._partition_input(p, *one), range=one) for p, one in enumerate(ranges)]
            else:
                inputs = self._with_tables(
                    [self._partition_input(p, from_ts, to_ts) for p in range(self._reader.partitions)], from_ts, to_ts
                )
            units = self._reader.identity.units_at(from_ts)
            inputs = [replace(partition_input, unit=units[partition_input.partition]) for partition_input in inputs]
            self._inputs = from_ts, to_ts, ranges, inputs
        return self._inputs[3]

    def samples(self, from_ts: int, to_ts: int) -> list[Sample]:
        return [sample for partition_input in self.inputs(from_ts, to_ts) for sample in samples_of(partition_input, from_ts, to_ts)]

    def _with_tables(self, inputs: list[PartitionInput], from_ts: int, to_ts: int) -> list[PartitionInput]:
        """A batch that is the instant of an initial load has its tables too, each in its log partition: see `next_end`."""
        storage = self._reader.storage
        plan = initial_load.read_plan(storage, to_ts) if to_ts == from_ts + 1 else None
        for table_id, files in initial_load.paths(storage, plan).items() if plan is not None else ():
            p = home_of(table_id, self._reader.identity.layout_at(from_ts))
            size = sum(storage.size(storage.name(path)) for path in files)
            inputs[p] = replace(inputs[p], tables=(*inputs[p].tables, files), sizes=(*inputs[p].sizes, size), rows=None)
        return inputs

    def _partition_input(self, partition: int, from_ts: int, to_ts: int) -> PartitionInput:
        intervals = _chain(self._reader, partition, from_ts, to_ts)
        partition_input = PartitionInput(partition, tuple(intervals), tuple(self._reader.partition_bytes(i) for i in intervals))
        if not intervals or not self._reader.storage.local or len(intervals) > COUNTED_FILES:
            return partition_input
        rows = count_rows((path for one in intervals for path in one.parts), from_ts, to_ts)
        return (
            PartitionInput(partition, partition_input.intervals, partition_input.sizes, rows)
            if rows
            else PartitionInput(partition, (), (), 0)
        )

    def barriers(self, from_ts: int, to_ts: int) -> list[int]:
        return _barriers(self._reader, self._history, from_ts, to_ts)

    def ddl_events(self, from_ts: int, to_ts: int) -> list[DdlEvent]:
        events = self._history.ddl_events(from_ts, to_ts)
        wanted = (event for event in (*events, *self._creating(to_ts)) if self._wants(event))
        return grouped(part for event in wanted for part in self._divide(event, self._history.snapshot))

    def _creating(self, to_ts: int) -> list[DdlEvent]:
        """What creates the tables whose rows stand just above `to_ts`."""
        plan = initial_load.read_plan(self._reader.storage, to_ts + 1) if self._create_in is not None else None
        if plan is None or self._create_in is None:
            return []
        tables = self._history.described_snapshot(within(self._history.start_ts, to_ts))
        return creating(plan, tables, self._create_in, first=plan.ts == self._reader.identity.start_ts)

    def pack(self, from_ts: int, to_ts: int, ranges: Ranges = ()) -> str:
        begin, from_ts = from_ts, within(self._history.start_ts, from_ts)
        if from_ts - self._history.start_ts > KEPT_HISTORY:
            self._history.forget(from_ts)

        def with_rows(physical_ids: Set[int]) -> Set[int]:
            found: set[int] = set()
            for partition_input in self.inputs(begin, to_ts, ranges):
                found |= tables_with_rows(partition_input.chains, *(partition_input.range or (begin, to_ts)), physical_ids - found)
            return found

        named = self._packs.names_versions
        snapshot = self._history.described_snapshot(from_ts) if named else self._history.snapshot(from_ts)
        return self._packs.pack(snapshot, with_rows, json_style(self._reader.identity, from_ts))

    def refresh(self) -> None:
        self._reader.refresh()
        self._inputs = _NOTHING


_NOTHING: tuple[int, int, Ranges, list[PartitionInput]] = (-1, -1, (), [])


def _chain(reader: LogReader, partition: int, from_ts: int, to_ts: int) -> list[Interval]:
    """What a partition holds of an interval: nothing where the interval is one of the instants of tables below the log's start.

    Raises StartTsOutOfLog for what retention has removed."""
    start_ts = begin_of_changes(reader, from_ts)
    return [] if from_ts < start_ts and to_ts <= start_ts else reader.chain(partition, from_ts, to_ts)


def json_style(identity: LogIdentity, ts: int) -> JsonStyle:
    """How the cluster printed documents of rows just above ts; the default where the log does not have its version."""
    return style_of(identity.version_at(ts) or "")


def style_changes(identity: LogIdentity) -> list[int]:
    """The ts up to which documents were printed in one way, and above which in another."""
    before, found = JsonStyle.GO, []
    for entry in identity.upstream_versions:
        if style_of(entry.version) is not before:
            before = style_of(entry.version)
            found.append(entry.from_ts)
    return found


def next_end(reader: LogReader, history: SchemaHistory, from_ts: int, limit_ts: int, every_ms: int = 0) -> int:
    """Where the batch after from_ts ends: at the next DDL, when enough has come together, at the latest at limit_ts.

    And where the cluster was upgraded to a version that prints documents otherwise, and at each multiple of `every_ms` of its clock.

    The history has to reach limit_ts. Time without a row is passed over in ever longer steps. The instant of an initial load is a batch of
    its own, and the one before it ends just below; from_ts is returned while tables are still being read.
    """
    if every_ms:
        limit_ts = min(limit_ts, next_multiple(from_ts, every_ms))
    limit, is_instant = _limit(reader, history, from_ts, limit_ts)
    return limit if is_instant else _end_by_rows(reader, range(reader.partitions), from_ts, limit, MAX_BATCH_BYTES)


def next_position(reader: LogReader, history: SchemaHistory, begin: Position, ends: Sequence[int]) -> Position:
    """Where the batch after `begin` ends if each log partition p goes by itself, up to ends[p] at most; `begin` where nothing is to do yet.

    The history has to reach all of `ends`. No partition passes what `next_end` stops at before all have reached it. Partitions that share
    tables go together, as far as the one that is behind: rows of a table are delivered in the order of their commits.
    """
    furthest = max(ends)
    if furthest <= begin.ts:
        return begin
    limit, is_instant = _limit(reader, history, begin.ts, furthest)
    if is_instant:  # no partition is past what lies just below
        return Position(limit) if min(ends) >= limit else begin
    units = reader.identity.units_at(begin.ts)[: len(ends)]  # a log that has grown since has nothing up to these ends in its new partitions
    goals = [min(end, limit) for end in levelled(ends, units)]
    reached = begin.ends(len(ends))
    moving: dict[int, list[int]] = defaultdict(list)
    for p, unit in enumerate(units):
        if goals[p] > reached[p]:
            moving[unit].append(p)
    for members in moving.values():
        end = _end_by_rows(reader, members, max(reached[p] for p in members), goals[members[0]], MAX_BATCH_BYTES // len(moving))
        for p in members:
            reached[p] = end
    return Position.of(reached)


def _limit(reader: LogReader, history: SchemaHistory, from_ts: int, limit_ts: int) -> tuple[int, bool]:
    """How far a batch after from_ts may go, and whether that is the instant of an initial load, or from_ts because its tables are still
    being read."""
    plan = initial_load.next_plan(reader.storage, from_ts)
    if plan is not None and plan.ts <= limit_ts:
        if plan.ts == from_ts + 1:
            complete = initial_load.is_complete(reader.storage, plan.ts) or not initial_load.missing(reader.storage, plan)
            return plan.ts if complete else from_ts, True
        limit_ts = plan.ts - 1
    return batch_end(from_ts, limit_ts, _barriers(reader, history, from_ts, limit_ts)), False


def _barriers(reader: LogReader, history: SchemaHistory, from_ts: int, to_ts: int) -> list[int]:
    """Where batches end: at changes of schemas, of the log's layout, from which on a table's rows are in another partition,
    and of how documents are printed."""
    styles = [ts for ts in style_changes(reader.identity_now()) if from_ts < ts <= to_ts]
    return sorted({*history.barriers(from_ts, to_ts), *reader.identity.switches(from_ts, to_ts), *styles})


def _end_by_rows(reader: LogReader, partitions: Sequence[int], from_ts: int, limit: int, max_bytes: int) -> int:
    """The end of a batch of these partitions: when enough has come together, at the latest at `limit`."""
    step = MAX_INTERVAL
    while True:
        to_ts = min(limit, from_ts + step)
        found = [(p, _chain(reader, p, from_ts, to_ts)) for p in partitions]
        if to_ts == limit or any(intervals for _, intervals in found):
            break
        step *= 2
    inputs = [PartitionInput(p, tuple(intervals), tuple(reader.partition_bytes(i) for i in intervals)) for p, intervals in found]
    return end_by_size(inputs, to_ts, max_bytes)
