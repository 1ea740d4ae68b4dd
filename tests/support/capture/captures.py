"""Captures of the playground for tests: run one, wait for it, and compare its log with what the playground's store holds."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tidemill.capture.capture import Capture
from tidemill.capture.config import CaptureConfig
from tidemill.changelog.history import load_history
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.spread import RECORD_PREFIX, Layout, partition_of
from tidemill.errors import MalformedKey
from tidemill.playground.server import Playground
from tidemill.playground.store.cluster import Cluster
from tidemill.playground.store.feed import LOSSY_DDL_MASK
from tidemill.tidb.keys import parse_record_key
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tidb.schema.tracking.versions import TableVersion

PATIENCE = 300.0


class Change(NamedTuple):
    """One committed change, as truth and log are compared."""

    table_id: int  # physical
    key: bytes
    start_ts: int
    commit_ts: int
    value: bytes | None
    old_value: bytes | None


def config(playground: Playground, log: Path | str, **more: Any) -> CaptureConfig:
    """A capture of the playground into `log`."""
    return CaptureConfig(pd=(playground.pd_address,), log=str(log), **more)


@asynccontextmanager
async def running(settings: CaptureConfig) -> AsyncIterator[Capture]:
    """Run a capture until the block ends. Its failure is raised there."""
    capture = Capture(settings)
    task = asyncio.ensure_future(capture.run())
    try:
        await until(lambda: capture.status.state == "running" or task.done())
        if task.done():
            await task
        yield capture
        if task.done():
            await task
    finally:
        if not task.done():
            capture.stop()
        await task


async def until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Check a condition repeatedly."""
    async with asyncio.timeout(patience):
        while not condition():
            await asyncio.sleep(0.02)


async def caught_up(capture: Capture, ts: int) -> None:
    """The log is complete up to `ts`."""
    await until(lambda: (hasattr(capture, "writer") and capture.writer.resolved_ts >= ts) or capture.status.state in ("failed", "stopped"))


def log_changes(log: Path | str) -> dict[int, list[Change]]:
    """The rows of every partition, in the order of the log."""
    reader = LogReader(log)
    return {p: partition_changes(reader, p, reader.start_ts, reader.head(p)) for p in range(reader.partitions)}


def partition_changes(reader: LogReader, partition: int, from_ts: int, to_ts: int) -> list[Change]:
    """The rows of one partition in (from_ts, to_ts], in the order of the log."""
    rows = []
    for interval in reader.chain(partition, from_ts, to_ts):
        for path in interval.parts:
            segment = reader.open_segment(path)
            for i in range(segment.num_record_batches):
                for row in segment.get_batch(i).to_pylist():
                    rows.append(Change(row["table_id"], row["key"], row["start_ts"], row["commit_ts"], row["value"], row["old_value"]))
    return [row for row in rows if from_ts < row.commit_ts <= to_ts]


def stored_changes(cluster: Cluster, from_ts: int, to_ts: int) -> list[Change]:
    """Every version of a row key that the store holds in (from_ts, to_ts]."""
    found = []
    for key, versions in cluster.mvcc.items(b"t", b"u"):
        try:
            table_id = parse_record_key(key).table_id
        except MalformedKey:
            continue
        before: bytes | None = None
        for commit_ts, start_ts, value in sorted(versions):
            if from_ts < commit_ts <= to_ts:
                found.append(Change(table_id, key, start_ts, commit_ts, value, before))
            before = value
    return found


def compare(cluster: Cluster, log: Path | str) -> tuple[int, SchemaHistory]:
    """compare_changes with what the playground's store holds."""
    reader = LogReader(log)
    return compare_changes(told_changes(cluster, reader.start_ts, reader.resolved_ts()), log)


def told_changes(cluster: Cluster, from_ts: int, to_ts: int) -> Iterator[Change]:
    """Return the stored changes that a store sends: not those that a DDL wrote."""
    sources = cluster.mvcc.sources
    return (c for c in stored_changes(cluster, from_ts, to_ts) if not sources.get(c.start_ts, 0) & LOSSY_DDL_MASK)


def compare_changes(stored: Iterable[Change], log: Path) -> tuple[int, SchemaHistory]:
    """Check that every change of a table in force is in the log once, in its table's partition; all other rows belong to ids that were not
    in force. Returns the number of changes, and the log's schema history."""
    reader = LogReader(log)
    history = load_history(reader)
    spans = [(reader.start_ts, reader.resolved_ts())] * reader.partitions
    return compare_rows(stored, history, log_changes(log), spans, reader.identity), history


def compare_rows(
    stored: Iterable[Change],
    history: SchemaHistory,
    logged: Mapping[int, list[Change]],
    spans: Sequence[tuple[int, int]],
    identity: LogIdentity | None = None,
) -> int:
    """Like compare_changes, for the rows of each partition in its (from_ts, to_ts]; there may be later ones. `identity`: of a log that may
    have more partitions now. Returns the number of changes."""
    for rows in logged.values():
        assert len(rows) == len(set(rows)), "a change is there twice"
        assert rows == sorted(rows, key=lambda r: (r.commit_ts, r.start_ts, r.table_id, r.key))
    where = {(c.key, c.commit_ts): (p, c) for p, rows in logged.items() for c in rows}
    assert len(where) == sum(len(rows) for rows in logged.values()), "a change is there in two forms"
    snapshots = _Snapshots(history)
    n = 0
    for change in stored:
        version = snapshots.before(change.commit_ts).get(change.table_id)
        if version is None or (change.value is None and change.old_value is None):
            continue
        layout = Layout(0, len(spans)) if identity is None else identity.layout_at(change.commit_ts - 1)
        split = layout.split_of(version.table_id)
        handle = change.key[RECORD_PREFIX:]
        belongs = split.partition_of(handle) if split is not None else partition_of(version.table_id, layout.partitions)
        if not spans[belongs][0] < change.commit_ts <= spans[belongs][1]:
            continue
        found = where.pop((change.key, change.commit_ts), None)
        assert found is not None, f"a change of {version.schema}.{version.table} is missing: {change}"
        partition, row = found
        assert row == change
        assert partition == belongs
        n += 1
    for partition, row in where.values():
        if row.commit_ts <= spans[partition][1]:
            assert row.table_id not in snapshots.before(row.commit_ts), row
    return n


class _Snapshots:
    """Which physical tables are in force for rows of a commit ts, kept from one switch to the next."""

    def __init__(self, history: SchemaHistory) -> None:
        self._history = history
        self._switches = [change.ts for change in history.next_table_changes(history.start_ts, history.resolved_ts)]
        self._known: dict[int, Mapping[int, TableVersion]] = {}

    def before(self, commit_ts: int) -> Mapping[int, TableVersion]:
        """Table versions by physical id that rows with this commit ts belong to."""
        position = bisect_left(self._switches, commit_ts)
        found = self._known.get(position)
        if found is None:
            found = self._known[position] = self._history.snapshot(commit_ts - 1).by_physical
        return found
