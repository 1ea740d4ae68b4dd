"""Writes what a Drainer reads into a change log. Rows wait in memory until the position is saved, or until there are many."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill import tso
from tidemill.binlog.drainer.rows.batching import Pieces
from tidemill.binlog.drainer.savepoint import Position
from tidemill.binlog.source.reading import LogEntry, SchemaRow
from tidemill.changelog.log_format import MAX_BATCH_ROWS
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.retry import StorageRetry
from tidemill.changelog.writer import LogWriter, PartitionWriter
from tidemill.errors import DiskLow, LogError, LogUnavailable
from tidemill.events import RAW_CHANGE, Op
from tidemill.tidb.schema.metakeys import META_TABLE_ID

MOST_WAITING = 64 << 20
"""Bytes of keys and values that wait in memory; one transaction may be larger."""
ROOM_S = 10.0
"""Seconds between two looks whether a full disk has room again."""

Run: TypeAlias = pa.RecordBatch | Pieces
"""Rows in the order of RAW_CHANGE's sort key: some, or those of a large transaction, which are made when they are written."""

_log = logging.getLogger(__name__)


class LogOutlet:
    """Belongs to one writer of a whole log. `load` to `save` come one at a time, from any thread; `close` and `end` from another one."""

    def __init__(self, writer: LogWriter, retry: StorageRetry) -> None:
        self.writer, self._retry = writer, retry
        self._ended = threading.Event()
        self._runs: dict[PartitionWriter, list[Run]] = defaultdict(list)
        self._waiting = 0
        self.paused = ""
        """Why nothing is published: the disk is low."""
        self.rows = self.bytes = self.segments = 0

    is_behind = False

    def load(self) -> Position:
        """Return up to where all folders are complete."""
        return Position(self.resolved_ts)

    @property
    def resolved_ts(self) -> int:
        """The log is complete up to here."""
        return self.writer.resolved_ts

    def write(self, entries: Sequence[LogEntry]) -> None:
        """Take entries. Where many wait, those are published that no other transaction of the same ts can follow. Raises LogError."""
        for entry in entries:
            self._take(entry)
            if self._waiting > MOST_WAITING:
                self._publish(entry.commit_ts - 1)

    def flush(self) -> None:
        """Nothing: `save` publishes."""

    def save(self, position: Position) -> None:
        """Publish what waits: the log is complete up to the position. After `end`, rows that cannot be written stay away."""
        try:
            self._publish(position.commit_ts)
            self.writer.sync_heads()  # the registry tells Pumps what they need not keep: that has to survive a crash of the machine
        except (LogUnavailable, DiskLow) as error:
            if not self._ended.is_set():
                raise
            _log.warning("rows that could not be written are pulled again at the next start: %s", error.message)

    def end(self) -> None:
        """Stop waiting for storage and room."""
        self._ended.set()
        self._retry.end()

    def close(self) -> None:
        """Let another one write the log."""
        self.writer.close()

    # ---- rows

    def _take(self, entry: LogEntry) -> None:
        for row in entry.schema:
            if row.commit_ts <= self.writer.schema.head:
                self._check_written(row)
            self._add(self.writer.schema, _schema_batch(row))
        for partition, run in (*entry.changes, *entry.large):
            self._add(self.writer.partition(partition), run)

    def _check_written(self, row: SchemaRow) -> None:
        """Raise LogError unless the log has this row: then it was published before a crash. A description that is needed before its own
        binlog comes stands right below the rows that need it, and the head may have passed that ts."""
        reader = LogReader(self.writer.storage)
        if row.commit_ts > reader.start_ts:
            found = reader.read_schema(row.commit_ts - 1, row.commit_ts)
            if pc.any(pc.equal(found["key"], pa.scalar(row.key, pa.binary()))).as_py():
                return
        raise LogError(
            f"rows at {tso.describe(row.commit_ts + 1)} need a table's description before them, and the log is complete up to there",
            hint="Begin a new log, with an earlier --start-ts: what is read from there has the description in its place.",
        )

    def _add(self, writer: PartitionWriter, run: Run) -> None:
        _, above = _cut([run], writer.head)  # what is at or below the head was published before a crash
        for rest in above:
            self._runs[writer].append(rest)
            self._waiting += rest.nbytes

    # ---- publishing

    def _publish(self, ts: int) -> None:
        """Publish all rows up to `ts` and move all heads there. The schema stream goes first: rows are read with its tables."""
        for writer in (self.writer.schema, *(self.writer.partition(p) for p in self.writer.partitions)):
            if ts > writer.head:
                self._patiently(lambda writer=writer: self._publish_one(writer, ts))  # type: ignore[misc]
        self._waiting = sum(run.nbytes for runs in self._runs.values() for run in runs)

    def _publish_one(self, writer: PartitionWriter, ts: int) -> None:
        runs = in_order(self._runs.pop(writer, []))
        try:
            while runs or ts > writer.head:
                pledged = writer.pledged_to
                end = ts if pledged is None else pledged
                if end > ts:
                    break  # a segment of a previous writer has to end there: it waits until all its rows are here
                now, rest = _cut(runs, end)
                if now or pledged is not None:
                    writer.publish(end, batches_of(now))
                    self._count(now)
                    runs = rest
                else:
                    writer.set_head(end)
                if runs and end == ts:
                    break
        finally:
            if runs:
                self._runs[writer] = runs

    def _count(self, runs: Iterable[Run]) -> None:
        self.segments += 1
        for run in runs:
            self.rows += run.num_rows
            if isinstance(run, Pieces):
                self.bytes += run.nbytes
            else:
                self.bytes += sum(_bytes_of(run.column(name)) for name in ("key", "value", "old_value"))

    def _patiently(self, work: Callable[[], None]) -> None:
        """Work until there is room and the storage answers. Raises DiskLow, LogUnavailable after `end`, LogError."""
        while True:
            try:
                self._retry.call(work)
                self.paused = ""
                return
            except DiskLow as error:
                if not self.paused:
                    _log.warning("the capture pauses: %s; it goes on by itself when there is room", error.message)
                self.paused = f"disk low: {error.message}"
                if self._ended.wait(ROOM_S):
                    raise


def _schema_batch(row: SchemaRow) -> pa.RecordBatch:
    columns = [[META_TABLE_ID], [int(Op.PUT)], [row.start_ts], [row.commit_ts], [row.key], [row.value], [None]]
    return pa.record_batch(columns, schema=RAW_CHANGE)


def _commits(batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = batch.column("commit_ts").to_numpy()
    return found


def _rows_up_to(batch: pa.RecordBatch, ts: int) -> int:
    """Return how many rows of a batch are at or below a ts."""
    return int(np.searchsorted(_commits(batch), np.uint64(ts), "right"))


def _cut(runs: list[Run], ts: int) -> tuple[list[Run], list[Run]]:
    """Return what is at or below a ts, and the rest."""
    now: list[Run] = []
    rest: list[Run] = []
    for run in runs:
        if isinstance(run, Pieces):
            (now if run.commit_ts <= ts else rest).append(run)
            continue
        count = _rows_up_to(run, ts)
        now.append(run.slice(0, count))
        rest.append(run.slice(count))
    return [run for run in now if run.num_rows], [run for run in rest if run.num_rows]


def batches_of(runs: Iterable[Run]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of runs, one after the other."""
    for run in runs:
        yield from run if isinstance(run, Pieces) else (run,)


SORT_KEY = ("commit_ts", "start_ts", "table_id", "key")
"""Of RAW_CHANGE."""


def in_order(runs: list[Run]) -> list[Run]:
    """Return runs in the order of RAW_CHANGE's sort key. Only transactions of one commit ts come in another one, and descriptions of
    tables: where a run has rows before and behind those of another one, all are sorted in memory."""
    if _is_ordered(runs):
        return runs
    runs = sorted(runs, key=_first)
    if _is_ordered(runs):
        return runs
    table = pa.Table.from_batches(list(batches_of(runs)), RAW_CHANGE).sort_by([(name, "ascending") for name in SORT_KEY])
    return list(table.to_batches(max_chunksize=MAX_BATCH_ROWS))


def _is_ordered(runs: list[Run]) -> bool:
    return all(_last(one) < _first(two) for one, two in itertools.pairwise(runs))


def _first(run: Run) -> tuple[Any, ...]:
    return _place(run[0] if isinstance(run, Pieces) else run, 0)


def _last(run: Run) -> tuple[Any, ...]:
    batch = run[-1] if isinstance(run, Pieces) else run
    return _place(batch, batch.num_rows - 1)


def _place(batch: pa.RecordBatch, row: int) -> tuple[Any, ...]:
    return tuple(batch.column(name)[row].as_py() for name in SORT_KEY)


def _bytes_of(column: pa.Array) -> int:
    """Return the bytes of a binary column's values."""
    return pc.sum(pc.binary_length(column)).as_py() or 0
