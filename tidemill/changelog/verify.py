"""Verifies a log: names, chains, heads, and, unless `quick`, every row.

Nothing is changed. Faults are listed, not raised, so that one run shows all damage. A log may be verified while it is written: what changes
meanwhile is checked again before it counts as damage.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.changelog import initial_load, log_format
from tidemill.changelog.files.arrowfile import ArrowFile
from tidemill.changelog.files.segment import Inspector, Order, batch_bytes, numpy_of, order_at, read_batch
from tidemill.changelog.history import follow, load_history
from tidemill.changelog.log_format import Affinity, Chain, Interval, LogIdentity
from tidemill.changelog.ownership import Owner
from tidemill.changelog.reader import LOOKS, LogReader, read_head_and_last, read_synced
from tidemill.changelog.spread import RECORD_PREFIX, SplitTable
from tidemill.changelog.storage.open import Storage, open_storage
from tidemill.errors import LogError, LogRefused, LogUnavailable, SegmentGone, TidemillError, redact
from tidemill.events import Op
from tidemill.tidb.keys import record_prefix
from tidemill.tidb.schema.metakeys import META_TABLE_ID
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tso import MAX_TS

_KNOWN = {log_format.HEAD, log_format.SYNCED, log_format.OWNER}


@dataclass(frozen=True, slots=True)
class Problem:
    """Damage: the file or folder, and what is wrong with it."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(slots=True)
class Report:
    """The result. `notes` are harmless oddities."""

    location: str
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    files: int = 0
    rows: int = 0
    size: int = 0
    unsummed: int = 0  # files without checksums: a flipped bit in a value is not found there
    tables: int = 0
    start_ts: int = 0
    resolved_ts: int = 0

    @property
    def is_whole(self) -> bool:
        return not self.problems


def verify(location: str | Path | Storage, *, quick: bool = False) -> Report:
    """Verify a log. `quick` reads only the end of each segment, not its rows. Raises LogError if there is no log."""
    check = _Check(open_storage(location), quick)
    check.run()
    return check.report


_NOT_SEEN = (LogUnavailable, LogRefused)
"""If the storage does not answer, nothing is known of a file: that is not damage."""


class _Check:
    def __init__(self, storage: Storage, quick: bool) -> None:
        self.storage, self.quick = storage, quick
        self.reader = LogReader(storage)
        self.report = Report(redact(storage.location))
        self._known: Set[int] = frozenset()
        self._unsummed: set[str] = set()
        # (physical table, number of its moves so far) -> partition -> first and last commit ts
        self._spans: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
        # Which logical table a physical one has belonged to, and up to when.
        self._homes: dict[int, list[tuple[int, int]]] = {}

    @property
    def identity(self) -> LogIdentity:
        return self.reader.identity

    def run(self) -> None:
        report = self.report
        report.start_ts = self.reader.start_ts
        history = self._schema()
        if history is not None:
            self._homes = _homes(history)
        heads = [self._folder(folder, history) for folder in log_format.folders(self.identity.partitions)]
        report.resolved_ts = min(heads)
        self._strangers()
        self._initial_tables()
        self._feeds()
        if history is not None and not self.quick:
            self._affinity(history)
        report.tables = len({table for table, _ in self._spans})

    def problem(self, name: str, text: object) -> None:
        self.report.problems.append(Problem(redact(self.storage.path(name)), redact(str(text))))

    def note(self, name: str, text: str) -> None:
        self.report.notes.append(Problem(redact(self.storage.path(name)), text))

    # ---- the schema stream as a whole

    def _schema(self) -> SchemaHistory | None:
        snapshots = self.reader.snapshots()
        if not any(ts <= self.report.start_ts for ts in snapshots):
            self.problem(log_format.SCHEMA, f"there is no schema snapshot at or before the log's start {self.report.start_ts}")
            return None
        for ts in snapshots:
            try:
                self.reader.read_snapshot(ts)
            except _NOT_SEEN:
                raise
            except TidemillError as e:
                self.problem(f"{log_format.SCHEMA}/{log_format.snapshot_name(ts)}", e.message)
        try:
            return load_history(self.reader)
        except _NOT_SEEN:
            raise
        except TidemillError as e:
            self.problem(log_format.SCHEMA, f"the schema history cannot be read: {e.message}")
            return None

    # ---- folders

    def _folder(self, folder: str, history: SchemaHistory | None) -> int:
        """Check a folder. Return up to where it is complete."""
        head, last = self._head(folder)
        self._owner(folder)
        synced = self._synced(folder)
        chain = self._chain(folder)
        end = chain.to_ts if chain.to_ts is not None else self.report.start_ts
        if chain.fault is not None:
            self.problem(folder, chain.fault.message)
        if chain.from_ts is not None and chain.from_ts > self.report.start_ts:
            self.problem(folder, f"nothing holds ({self.report.start_ts}, {chain.from_ts}] before {chain.intervals[0].parts[0]}")
        for path in chain.incomplete:
            self.note(self.storage.name(path), "other parts of its interval are missing, so it does not count")
        if last > max(end, self.report.start_ts):
            self.problem(folder, f"the last segment is missing: it ends at {last}, and what is there ends at {end}")
        if head is not None and head < end:
            self.note(f"{folder}/{log_format.HEAD}", f"says {head}, the last segment ends at {end}")
        counted = self.report.rows  # a row counts once, not in leftovers too
        for interval in chain.inside:
            self._interval(folder, interval, history)
        self.report.rows = counted
        for interval in chain.intervals:
            self._interval(folder, interval, history)
        self._leftovers(chain)
        return max(head or 0, synced, end)

    def _synced(self, folder: str) -> int:
        try:
            return read_synced(self.storage, folder) or 0
        except LogError as e:
            self.problem(f"{folder}/{log_format.SYNCED}", e.message)
            return 0

    def _head(self, folder: str) -> tuple[int | None, int]:
        """The head, and where the last segment ends: 0 if the file does not say it."""
        try:
            head, last = read_head_and_last(self.storage, folder)
        except _NOT_SEEN:
            raise
        except LogError as e:
            self.problem(f"{folder}/{log_format.HEAD}", e.message)
            return None, 0
        if head is None:
            self.note(f"{folder}/{log_format.HEAD}", "is not there; the last segment's end counts")
        return head, last

    def _owner(self, folder: str) -> None:
        name = f"{folder}/{log_format.OWNER}"
        data = self.storage.read(name)
        if data is None:
            return  # as in a log that was not written since folders have owners
        try:
            Owner.from_json(data, redact(self.storage.path(name)))
        except _NOT_SEEN:
            raise
        except LogError as e:
            self.problem(name, e.message)

    def _chain(self, folder: str) -> Chain:
        for name in self.storage.names(folder):
            try:
                known = name in _KNOWN or log_format.is_temporary(name) or log_format.parse_segment(name) is not None
            except _NOT_SEEN:
                raise
            except LogError as e:
                self.problem(f"{folder}/{name}", e.message)
                return Chain(())
            if not known and not (folder == log_format.SCHEMA and log_format.parse_snapshot(name) is not None):
                self.problem(f"{folder}/{name}", "is not a file of a change log")
            elif log_format.is_temporary(name):
                self.note(f"{folder}/{name}", "was never published")
        for _ in range(LOOKS):
            self.reader.refresh()
            chain = self.reader.listing(folder)
            if chain.fault is None:
                break
        return chain

    def _leftovers(self, chain: Chain) -> None:
        """Check that intervals inside others hold the same rows as those, or fewer if late rows were inserted into those."""
        if self.quick:
            return
        for one in chain.inside:
            around = [i for i in chain.intervals if i.from_ts <= one.from_ts and one.to_ts <= i.to_ts]
            try:
                mine, theirs = self._rows_between(one, one), sum(self._rows_between(i, one) for i in around)
            except TidemillError:
                continue  # reported already
            self.note(self.storage.name(one.parts[0]), f"lies inside {around[0].parts[0]}, which counts")
            more = mine < theirs and self.reader.identity.has_late_rows(one.from_ts, one.to_ts)
            if (self._orders(one, one) - self._orders(around[0], one)) if more else mine != theirs:
                self.problem(self.storage.name(one.parts[0]), f"has {mine} rows, {around[0].parts[0]} has {theirs} in its interval")

    def _orders(self, interval: Interval, limits: Interval) -> set[Order]:
        found = (order_at(batch, row) for path in interval.parts for batch in self._batches(path) for row in range(batch.num_rows))
        return {order for order in found if limits.from_ts < order[0] <= limits.to_ts}

    def _rows_between(self, interval: Interval, limits: Interval) -> int:
        rows = 0
        for path in interval.parts:
            for batch in self._batches(path):
                commit = numpy_of(batch.column("commit_ts"))
                rows += int(((commit > np.uint64(limits.from_ts)) & (commit <= np.uint64(limits.to_ts))).sum())
        return rows

    # ---- segments

    def _interval(self, folder: str, interval: Interval, history: SchemaHistory | None) -> None:
        for path in interval.parts:
            name = self.storage.name(path)
            try:
                self.report.size += self.storage.size(name)
                self.report.files += 1
                if self.quick:
                    self.report.rows += self._open(path).count_rows()
                else:
                    self._segment(folder, path, interval, history)
            except SegmentGone as e:
                if self.storage.read(name) is None and interval in self.reader.listing(folder).intervals:
                    self.problem(name, e.message)
            except _NOT_SEEN:
                raise
            except (TidemillError, pa.ArrowException) as e:
                self.problem(name, e.message if isinstance(e, TidemillError) else f"cannot be read: {e}")

    def _segment(self, folder: str, path: str, interval: Interval, history: SchemaHistory | None) -> None:
        name = self.storage.name(path)
        inspector = Inspector("out of order", interval.from_ts, interval.to_ts)
        for batch in self._batches(path):
            batch.validate(full=True)
            if batch.num_rows > log_format.MAX_BATCH_ROWS:
                self.problem(name, f"a record batch has {batch.num_rows} rows, more than {log_format.MAX_BATCH_ROWS}")
            if batch.num_rows > 1 and batch_bytes(batch) > log_format.MAX_BATCH_BYTES:
                self.problem(name, f"a record batch has {batch_bytes(batch)} bytes, more than {log_format.MAX_BATCH_BYTES}")
            inspector.check(batch)
            for text in _row_faults(batch, folder == log_format.SCHEMA):
                self.problem(name, text)
            if folder != log_format.SCHEMA:
                self._tables(folder, name, batch, history)
        self.report.rows += inspector.rows

    def _tables(self, folder: str, name: str, batch: pa.RecordBatch, history: SchemaHistory | None) -> None:
        partition = int(folder.rpartition("/")[2])
        tables = numpy_of(batch.column("table_id"))
        commit = numpy_of(batch.column("commit_ts"))
        for table in np.unique(tables).tolist():
            rows = tables == table
            moves = sorted({*(ts for ts, _ in self._homes.get(table, [])[:-1]), *self.identity.switches(0, MAX_TS)})
            stages = np.searchsorted(np.array(moves, np.uint64), commit, "left")
            for stage in np.unique(stages[rows]).tolist():
                mine = rows & (stages == stage)
                there = commit[mine]
                spans = self._spans.setdefault((table, stage), {})
                split = self._split(table, int(there[0]))
                if split is None:
                    first, last = spans.get(partition, (int(there[0]), 0))
                    spans[partition] = min(first, int(there[0])), max(last, int(there[-1]))
                elif not _lie_within(batch.column("key").filter(pa.array(mine)), table, split, partition):
                    where = f"{split.name} is split over {list(split.partitions)}"
                    self.problem(name, f"rows of table {table} belong to another partition by their keys: {where}")
            if history is not None and not self._is_known(history, table):
                self.problem(name, f"rows of table {table}, which the schema history does not know")

    def _split(self, table: int, commit_ts: int) -> SplitTable | None:
        """How the logical table is split that a physical one belongs to; None: it is in one partition."""
        logical = next((home for until, home in self._homes.get(table, ()) if commit_ts <= until), table)
        return self.identity.layout_at(commit_ts - 1).split_of(logical)

    def _is_known(self, history: SchemaHistory, table: int) -> bool:
        """Return whether any version of any schema has the physical id."""
        if table not in self._known:  # it may have been created while the log was verified
            self._known = follow(history, self.reader).snapshot(history.resolved_ts).known_ids
        return table in self._known

    def _open(self, path: str) -> ArrowFile:
        file = self.reader.open_segment(path)
        if not file.has_sums and path not in self._unsummed:
            self._unsummed.add(path)
            self.report.unsummed += 1
        return file

    def _batches(self, path: str) -> Iterator[pa.RecordBatch]:
        file = self._open(path)
        for i in range(file.num_record_batches):
            yield read_batch(file, i, path)

    # ---- the rest

    def _affinity(self, history: SchemaHistory) -> None:
        """Check table affinity: a physical table is in one partition at a time. EXCHANGE PARTITION may move it, and back."""
        if self.identity.affinity is not Affinity.TABLE:
            return
        split = set(self.identity.split_tables)
        for (table, _), spans in sorted(self._spans.items()):
            ordered = sorted((first, last, partition) for partition, (first, last) in spans.items())
            for (_, last, one), (first, _, other) in pairwise(ordered):
                if first <= last and table not in split:
                    self.problem("rows", f"table {table} is in partitions {one} and {other} at the same time, against the log's affinity")

    def _strangers(self) -> None:
        expected = {str(p) for p in range(self.identity.partitions)}
        for name in sorted(set(self.storage.subfolders("rows")) - expected):
            self.problem(f"rows/{name}", f"is not a partition: the log has 0 to {self.identity.partitions - 1}")

    def _initial_tables(self) -> None:
        """Check the initial loads."""
        for ts in initial_load.timestamps(self.storage):
            folder = initial_load.folder_of(ts)
            try:
                plan = initial_load.read_plan(self.storage, ts)
            except LogError as error:
                self.problem(f"{folder}/{initial_load.PLAN}", error)
                continue
            lacking = {part.name for part in initial_load.missing(self.storage, plan)} if plan is not None else set()
            if lacking and initial_load.is_complete(self.storage, ts):
                self.problem(f"{folder}/{initial_load.COMPLETE}", f"{len(lacking)} parts are missing, although the file says that none is")
            elif plan is None or ts < self.report.start_ts or lacking:
                why = f"{len(lacking)} parts are still to be read" if lacking else "not needed any more"
                self.note(folder, f"tables as of {ts}: {why}")
            else:
                for part in plan.parts():
                    self._part(part)

    def _part(self, part: initial_load.Part) -> None:
        name = f"{part.folder}/{part.name}"
        inspector = Inspector(redact(self.storage.path(name)), part.ts - 1, part.ts)
        try:
            self.report.size += self.storage.size(name)
            for batch in self._batches(self.storage.path(name)) if not self.quick else ():
                inspector.check(batch)
                for fault in _row_faults(batch, is_schema=False):
                    self.problem(name, fault)
        except LogError as error:
            self.problem(name, error)
        self.report.files += 1
        self.report.rows += inspector.rows

    def _feeds(self) -> None:
        for feed, checkpoint in sorted(self.reader.feeds().items()):
            name = f"{log_format.FEEDS}/{feed}.json"
            if not checkpoint:
                self.problem(name, "has no checkpoint_ts that can be read; retention keeps everything")
            elif checkpoint < self.report.start_ts:
                self.problem(name, f"needs changes from {checkpoint} on, the log begins at {self.report.start_ts}")


def _row_faults(batch: pa.RecordBatch, is_schema: bool) -> Iterator[str]:
    """Yield what is wrong with single rows, each kind once."""
    op = numpy_of(batch.column("op"))
    if not batch.num_rows:
        return
    strange = (op != Op.PUT) & (op != Op.DELETE)
    if strange.any():
        yield f"row {int(np.argmax(strange))} of a batch has op {op[np.argmax(strange)]}"
    valueless = batch.column("value").is_null().to_numpy(zero_copy_only=False)
    wrong = valueless != (op == Op.DELETE)
    if wrong.any():
        yield f"row {int(np.argmax(wrong))} of a batch is a {'put without' if valueless[np.argmax(wrong)] else 'delete with'} a value"
    start, commit = numpy_of(batch.column("start_ts")), numpy_of(batch.column("commit_ts"))
    if (start > commit).any():
        yield f"row {int(np.argmax(start > commit))} of a batch was committed before it started"
    tables = numpy_of(batch.column("table_id"))
    keys = batch.column("key")
    is_meta = tables == META_TABLE_ID
    if is_meta.any() and not is_schema:
        yield "meta keys among the rows of tables"
    if is_schema and is_meta.any():
        for key in keys.filter(pa.array(is_meta)).to_pylist():
            if key[:1] != b"m":
                yield f"key {key.hex()} with table id 0 is not a meta key"
                return
    yield from _key_faults(tables[~is_meta], keys.filter(pa.array(~is_meta)))


def _key_faults(tables: np.ndarray[Any, Any], keys: pa.Array) -> Iterator[str]:
    if not len(keys):
        return
    expected = np.empty((len(tables), RECORD_PREFIX), np.uint8)
    expected[:, 0] = ord("t")
    expected[:, 1:9] = (tables.astype(np.uint64) ^ np.uint64(1 << 63)).astype(">u8").view(np.uint8).reshape(-1, 8)
    expected[:, 9:] = np.frombuffer(b"_r", np.uint8)
    offsets = np.arange(len(tables) + 1, dtype=np.int32) * RECORD_PREFIX
    prefixes = pa.Array.from_buffers(pa.binary(), len(tables), [None, pa.py_buffer(offsets), pa.py_buffer(expected.reshape(-1))])
    same = pc.equal(pc.binary_slice(keys, 0, RECORD_PREFIX), prefixes).to_numpy(zero_copy_only=False)
    if not same.all():
        at = int(np.argmin(same))
        yield f"key {keys[at].as_py().hex()} is not a record key of table {tables[at]}"


__all__ = ["Problem", "Report", "verify"]


def _lie_within(keys: pa.Array, table: int, split: SplitTable, partition: int) -> bool:
    """Whether all of these record keys of a physical table belong to the partition."""
    prefix = record_prefix(table)
    for (low, high), owner in split.ranges():
        if owner == partition:
            is_above = pc.all(pc.greater_equal(keys, pa.scalar(prefix + low, pa.binary()))).as_py()
            return is_above and (not high or pc.all(pc.less(keys, pa.scalar(prefix + high, pa.binary()))).as_py())
    return False


def _homes(history: SchemaHistory) -> dict[int, list[tuple[int, int]]]:
    """The logical tables that physical ones belong to, one after another, and up to which ts each (EXCHANGE PARTITION moves them)."""
    found = {physical: [(MAX_TS, v.table_id)] for physical, v in history.snapshot(history.start_ts).by_physical.items()}
    for change in history.next_table_changes(history.start_ts, history.resolved_ts):
        for version in change.begun:
            for physical in version.physical_ids:
                homes = found.setdefault(physical, [(MAX_TS, version.table_id)])
                if homes[-1][1] != version.table_id:
                    homes[-1:] = [(change.ts, homes[-1][1]), (MAX_TS, version.table_id)]
    return found
