"""Writes what a Drainer reads into a change log. Rows wait in memory until the position is saved, or until there are many."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from tidemill.binlog.drainer.savepoint import Position
from tidemill.binlog.source.reading import LogEntry, TableRecords
from tidemill.changelog.log_format import MAX_BATCH_ROWS
from tidemill.changelog.spread import RECORD_PREFIX, home_of
from tidemill.changelog.storage.retry import StorageRetry
from tidemill.changelog.writer import LogWriter, PartitionWriter
from tidemill.errors import DiskLow, LogUnavailable
from tidemill.events import RAW_CHANGE, Op
from tidemill.tidb.schema.metakeys import META_TABLE_ID

MOST_WAITING = 64 << 20
"""Bytes of keys and values that wait in memory; one transaction may be larger."""
ROOM_S = 10.0
"""Seconds between two looks whether a full disk has room again."""

_log = logging.getLogger(__name__)


class Row(NamedTuple):
    """A row of the log, in the order of RAW_CHANGE's sort key."""

    commit_ts: int
    start_ts: int
    table_id: int
    key: bytes
    value: bytes | None
    old_value: bytes | None


class LogOutlet:
    """Belongs to one writer of a whole log. `load` to `save` come one at a time, from any thread; `close` and `end` from another one."""

    def __init__(self, writer: LogWriter, retry: StorageRetry) -> None:
        self.writer, self._retry = writer, retry
        self._ended = threading.Event()
        self._rows: dict[PartitionWriter, list[Row]] = defaultdict(list)
        self._waiting = 0
        self.paused = ""
        """Why nothing is published: the disk is low."""
        self.rows = self.bytes = self.segments = 0

    def load(self) -> Position:
        """Return up to where all folders are complete."""
        return Position(self.resolved_ts)

    @property
    def resolved_ts(self) -> int:
        """The log is complete up to here."""
        return self.writer.resolved_ts

    def write(self, entries: list[LogEntry]) -> None:
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
        start_ts, commit_ts = entry.start_ts, entry.commit_ts
        for key, value in entry.known_before:
            self._add(self.writer.schema, Row(commit_ts - 1, start_ts - 1, META_TABLE_ID, key, value, None))
        if entry.job is not None:
            self._add(self.writer.schema, Row(commit_ts, start_ts, META_TABLE_ID, *entry.job, None))
        for table in entry.tables:
            place = self._place_of(table)
            for record in table.records:
                row = Row(commit_ts, start_ts, table.physical_id, record.key, record.new, record.old)
                self._add(self.writer.partition(place(record.key)), row)

    def _place_of(self, table: TableRecords) -> Callable[[bytes], int]:
        """Return a function from a record's key to the partition of the log."""
        layout = self.writer.identity.layout
        split = layout.split_of(table.table_id)
        if split is not None:
            return lambda key: split.partition_of(key[RECORD_PREFIX:])
        home = home_of(table.table_id, layout)
        return lambda key: home

    def _add(self, writer: PartitionWriter, row: Row) -> None:
        if row.commit_ts > writer.head:  # else the folder has it: a crash came between the folders
            self._rows[writer].append(row)
            self._waiting += len(row.key) + len(row.value or b"") + len(row.old_value or b"")

    # ---- publishing

    def _publish(self, ts: int) -> None:
        """Publish all rows up to `ts` and move all heads there. The schema stream goes first: rows are read with its tables."""
        for writer in (self.writer.schema, *(self.writer.partition(p) for p in self.writer.partitions)):
            if ts > writer.head:
                self._patiently(lambda writer=writer: self._publish_one(writer, ts))  # type: ignore[misc]
        self._waiting = sum(len(r.key) + len(r.value or b"") + len(r.old_value or b"") for rows in self._rows.values() for r in rows)

    def _publish_one(self, writer: PartitionWriter, ts: int) -> None:
        rows = self._rows.pop(writer, [])
        rows.sort(key=lambda row: row[:4])
        try:
            while rows or ts > writer.head:
                pledged = writer.pledged_to
                end = ts if pledged is None else pledged
                if end > ts:
                    break  # a segment of a previous writer has to end there: it waits until all its rows are here
                count = sum(row.commit_ts <= end for row in rows)
                if count or pledged is not None:
                    writer.publish(end, _batches(rows[:count]))
                    self._count(rows[:count])
                    del rows[:count]
                else:
                    writer.set_head(end)
                if rows and end == ts:
                    break
        finally:
            if rows:
                self._rows[writer] = rows

    def _count(self, rows: Sequence[Row]) -> None:
        self.segments += 1
        self.rows += len(rows)
        self.bytes += sum(len(row.key) + len(row.value or b"") + len(row.old_value or b"") for row in rows)

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


def _batches(rows: Sequence[Row]) -> Iterator[pa.RecordBatch]:
    """Yield rows as RAW_CHANGE batches."""
    for at in range(0, len(rows), MAX_BATCH_ROWS):
        part = rows[at : at + MAX_BATCH_ROWS]
        columns = {
            "table_id": [row.table_id for row in part],
            "op": [int(Op.DELETE if row.value is None else Op.PUT) for row in part],
            "start_ts": [row.start_ts for row in part],
            "commit_ts": [row.commit_ts for row in part],
            "key": [row.key for row in part],
            "value": [row.value for row in part],
            "old_value": [row.old_value for row in part],
        }
        yield pa.record_batch(columns, schema=RAW_CHANGE)
