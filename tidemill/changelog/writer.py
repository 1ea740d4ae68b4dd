"""Writes a change log: intervals of rows become segments that appear atomically, once, and stay.

Each folder (a partition, or the schema stream) has one writer. One LogWriter has all folders of a log, or several share them. Then one of
them, the coordinator, has the schema stream, log.json and retention. Folders are independent of each other. Calls for one folder take
turns, and `LogWriter.maintain` may run beside all of them: every method may be called from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from tidemill.changelog import log_format
from tidemill.changelog.compaction import Compactor
from tidemill.changelog.files.late_rows import LateRows
from tidemill.changelog.files.segment import Inspector, bounded, ipc_options, same_columns, write_file
from tidemill.changelog.files.smallfiles import HeadFile, IdentityFile
from tidemill.changelog.log_format import Affinity, Chain, LogIdentity, SegmentName, UpstreamVersion
from tidemill.changelog.options import DEFAULTS, LogOptions
from tidemill.changelog.ownership import Ownership, Share, check_shareable, lock_of, take_or_pass
from tidemill.changelog.reader import LOOKS, LogReader, read_identity
from tidemill.changelog.retention import Retention, lack_of_room, no_room
from tidemill.changelog.storage.open import Draft, Storage, open_storage
from tidemill.errors import ClusterMismatch, DiskLow, LogCorrupt, LogError, LogUnavailable, SegmentGone, redact
from tidemill.events import META_PAIR, RAW_CHANGE

_WRITE_HINT = "`tidemill log verify` lists all damage. Restore what is missing from a copy, or start a new log."


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The result of `maintain`."""

    joined: int  # files that were joined into larger ones
    removed: int  # files
    start_ts: int  # of the log
    low: DiskLow | None = None  # the disk is below its low-water mark: nothing was joined


class PartitionWriter:
    """Publishes the segments of one folder and moves its head."""

    def __init__(self, log: LogWriter, folder: str) -> None:
        self._log, self.folder = log, folder
        self._storage = log.storage
        self._turn = threading.Lock()
        start, settled, chain = _found(log.storage, folder)
        if chain.fault is not None:
            raise LogCorrupt(redact(chain.fault.message), hint=_WRITE_HINT)
        if chain.from_ts is not None and chain.from_ts > start:
            raise LogCorrupt(f"nothing holds ({start}, {chain.from_ts}] before {redact(chain.intervals[0].parts[0])}", hint=_WRITE_HINT)
        self._last_to = start if chain.to_ts is None else chain.to_ts
        self._last_segment = chain.to_ts or 0  # its end, for head.json: a listing without it is an old one
        self._head_file = HeadFile(log.storage, folder, log.ownership)
        self._head = max(self._last_to, start, settled, self._head_file.ts)
        if chain.incomplete:  # parts of an interval whose publication was cut short by a crash
            with log.ownership.publishing(folder):
                for path in chain.incomplete:
                    log.storage.delete(log.storage.name(path))
        if self._head > self._head_file.said:
            # A crash came between a segment and head.json, or undid head.json. Readers must see all that this writer continues from.
            with log.ownership.publishing(folder):
                self._head = self._head_file.put(self._head, self._last_segment)

    @property
    def last_to(self) -> int:
        """The start of the next segment."""
        return self._last_to

    @property
    def head(self) -> int:
        """The folder is complete up to here."""
        return self._head

    @property
    def synced_head(self) -> int:
        """The head that survives a crash of the machine."""
        return max(self._last_to, self._head_file.synced)

    def sync_head(self) -> None:
        """Make `head` survive a crash of the machine. Raises LogFenced, DiskLow."""
        with self._turn:
            if self._head > self.synced_head:
                with self._log.ownership.publishing(self.folder):
                    self._head_file.sync(self._head)

    @property
    def pledged_to(self) -> int | None:
        """Where the next segment must end, because a previous writer may still publish it up to there; None: anywhere."""
        pledged = self._pledged
        return pledged if pledged is not None and pledged > self._head else None

    @property
    def _pledged(self) -> int | None:
        """Return the end of a segment that was announced and not published yet."""
        end = self._log.ownership.pledged_to(self.folder)
        return end if end is not None and end > self._last_to else None

    def publish(self, to_ts: int | Callable[[], int], batches: Iterable[pa.RecordBatch], *, trusted: bool = False) -> str:
        """Publish the rows with last_to < commit_ts <= to_ts as one segment and move the head to to_ts. Return the segment's path.

        `batches`: RAW_CHANGE rows sorted by (commit_ts, start_ts, table_id, key), without duplicates, each above the head. Each batch is
        written before the next is requested, so buffers may be reused. `to_ts` may be a function; it is called when the batches are at an
        end. `trusted`: the order inside a batch is not checked (commit times and borders of batches are). Raises LogError for rows that
        break the rules, LogFenced, DiskLow; then nothing was published.
        """
        return self.publish_parts(to_ts, [batches], trusted=trusted)[0]

    def publish_parts(
        self, to_ts: int | Callable[[], int], parts: Sequence[Iterable[pa.RecordBatch]], *, trusted: bool = False
    ) -> list[str]:
        """Like `publish`, for a big interval in several files. Each is sorted; a reader has to merge them. Not on an object store."""
        if not parts:
            raise LogError("an interval has at least one part")
        if len(parts) > 1 and self._storage.can_swap:
            # The interval does not fix how rows are split into parts: a previous writer's late PUT could differ.
            raise LogError("on an object store an interval is one file; cut it into smaller intervals")
        self._log.check_room()
        with self._turn:
            self._keep_pledge(self._head)
            return self._publish(to_ts, parts, trusted)

    def publish_below_head(self, rows: Callable[[int, int], Iterable[pa.RecordBatch]]) -> bool:
        """Publish a segment from the end of the last one up to the head, which readers may have passed: see `files.late_rows`.

        `rows(from_ts, to_ts)`: those of that interval. Return whether the folder has no such gap now: what a previous writer announced
        comes first."""
        self._log.check_room()
        with self._turn:
            self._keep_pledge(self._head)
            if self._last_to < self._head and self._pledged is None:
                self._publish(self._head, [rows(self._last_to, self._head)], trusted=False, floor=self._last_to)
            return self._last_to == self._head

    def _keep_pledge(self, head: int) -> None:
        """A previous writer announced a segment and did not publish it. If the log is complete up to `head`, that interval has no
        rows: publish it empty."""
        pledged = self._pledged
        if pledged is not None and pledged <= head:
            self._publish(pledged, [()], trusted=False)

    def _publish(
        self, to_ts: int | Callable[[], int], parts: Sequence[Iterable[pa.RecordBatch]], trusted: bool, floor: int | None = None
    ) -> list[str]:
        """`floor`: all rows are above it. Readers may have passed the head already: a row at or below it would never be delivered."""
        drafts: list[Draft] = []
        above = max(self._last_to, self._head) if floor is None else floor
        try:
            lasts = [self._write(above, to_ts if isinstance(to_ts, int) else None, part, drafts, trusted) for part in parts]
            end = to_ts if isinstance(to_ts, int) else to_ts()
            self._check_end(end, lasts)
            names = [str(SegmentName(self._last_to, end, k + 1, len(drafts))) for k in range(len(drafts))]
            with self._log.ownership.publishing_to(self.folder, end):
                for draft, name in zip(drafts, names, strict=True):
                    draft.publish(name)
                self._storage.settle(self.folder)
                self._last_to = self._last_segment = end
                self._head = self._head_file.put(max(end, self._head), end)
        finally:
            for draft in drafts:
                draft.discard()
        return [self._storage.path(f"{self.folder}/{name}") for name in names]

    def set_head(self, ts: int) -> None:
        """Move the head to `ts`: the folder is complete up to there, without new rows. A lower ts changes nothing.

        Raises LogFenced.
        """
        with self._turn:
            self._keep_pledge(ts)
            if ts > self._head:
                with self._log.ownership.publishing(self.folder):
                    self._head = self._head_file.put(ts, self._last_segment)

    def _write(self, above: int, to_ts: int | None, batches: Iterable[pa.RecordBatch], drafts: list[Draft], trusted: bool) -> int:
        """Write one file of rows above a ts, without publishing it. Return its largest commit ts, 0 without rows."""
        inspector = Inspector(redact(self._storage.path(self.folder)), above, to_ts, trusted)
        draft = self._storage.draft(self.folder)
        drafts.append(draft)
        write_file(draft, self._storage.path(self.folder), _inspected(batches, inspector), RAW_CHANGE, self._log.options.compression)
        return inspector.last[0] if inspector.last else 0

    def _check_end(self, end: int, lasts: list[int]) -> None:
        pledged = self._pledged
        if pledged is not None and end != pledged:
            raise LogError(
                f"{redact(self._storage.path(self.folder))}: the next segment has to end at {pledged}, not {end}: that was announced before"
            )
        if end <= self._last_to:
            raise LogError(f"{redact(self._storage.path(self.folder))}: a segment up to {end} cannot follow one up to {self._last_to}")
        if max(lasts) > end:
            raise LogError(f"{redact(self._storage.path(self.folder))}: a row of commit_ts {max(lasts)} is above the interval's end {end}")


def _found(storage: Storage, folder: str) -> tuple[int, int, Chain]:
    """Return the log's start, the ts that every folder has reached at least, and what a folder holds. If they do not fit together, read
    again: retention or a previous writer may be changing them."""
    for _ in range(LOOKS):
        reader = LogReader(storage)
        start, chain = reader.identity.start_ts, reader.listing(folder)
        if chain.fault is None and (chain.from_ts is None or chain.from_ts <= start):
            break
    return start, reader.identity.settled_ts, chain


class SchemaWriter(PartitionWriter):
    """The schema stream's writer: DDL jobs and meta keys, and snapshots of the latter."""

    def snapshot(self, ts: int, pairs: pa.Table | Mapping[bytes, bytes]) -> str:
        """Write all meta key-values as of `ts`. The low-water mark is ignored: retention begins with a snapshot. Return the file's path."""
        table = pairs if isinstance(pairs, pa.Table) else pairs_table(pairs)
        return write_snapshot(self._storage, ts, table, self._log.ownership.publishing(self.folder))


def pairs_table(pairs: Mapping[bytes, bytes]) -> pa.Table:
    """Return META_PAIR rows in key order."""
    ordered = sorted(pairs.items())
    columns = [pa.array([k for k, _ in ordered], pa.binary()), pa.array([v for _, v in ordered], pa.binary())]
    return pa.table(columns, schema=META_PAIR)


def write_snapshot(storage: Storage, ts: int, pairs: pa.Table, publishing: AbstractContextManager[None] | None = None) -> str:
    """Write schema/snapshot-<ts>.arrow, in key order. It is published inside `publishing`."""
    if not same_columns(pairs.schema, META_PAIR):
        raise LogError(f"a schema snapshot has the columns key and value, not {', '.join(pairs.column_names)}")
    ordered = pa.table(pairs.columns, schema=META_PAIR).sort_by("key").combine_chunks()
    draft = storage.draft(log_format.SCHEMA)
    name = log_format.snapshot_name(ts)
    try:
        write_file(draft, storage.path(log_format.SCHEMA), ordered.to_batches(max_chunksize=log_format.MAX_BATCH_ROWS), META_PAIR, "none")
        with publishing or nullcontext():
            draft.publish(name)
    finally:
        draft.discard()
    storage.settle(log_format.SCHEMA)
    return storage.path(f"{log_format.SCHEMA}/{name}")


def _inspected(batches: Iterable[pa.RecordBatch], inspector: Inspector) -> Iterable[pa.RecordBatch]:
    for batch in batches:
        inspector.check(batch)
        yield from bounded(batch)


_KEPT = {
    "partitions": "`tidemill log grow` gives a log more partitions; fewer take a new one.",
    "affinity": "A log keeps its affinity; start a new one.",
    "source": "A log keeps its source; start a new one.",
}


class LogWriter:
    """The writer of one log, or of its share of one. Close it, or end the process, to let another one write."""

    def __init__(self, storage: Storage, options: LogOptions, share: Share | None = None) -> None:
        """Use `create` or `open`."""
        ipc_options(options.compression)
        self.storage, self.options = storage, options
        self._maintaining = threading.Lock()
        self._identity = read_identity(storage)
        self._folders = share.folders() if share else log_format.folders(self._identity.partitions)
        self._check_share(share)
        self._lock = lock_of(storage) if self._has_schema else None
        if self._lock:
            take_or_pass(self._lock, storage, options.term)
        try:
            self.ownership = Ownership(storage, self._folders, options.term)
            self._identity_file = IdentityFile(storage, self.ownership)
            if self._has_schema:
                self._clean()
                self._identity_file.take()
            self._identity = self._identity_file.read()
            self._writers = {f: (SchemaWriter if f == log_format.SCHEMA else PartitionWriter)(self, f) for f in self._folders}
            self._reader = LogReader(storage)
            self._retention = Retention(self)
            self._compactor = Compactor(storage, self.ownership, options.compression, options.compact_rows, options.grace_s)
        except BaseException:
            self.close()
            raise

    @property
    def _has_schema(self) -> bool:
        return log_format.SCHEMA in self._folders

    def _check_share(self, share: Share | None) -> None:
        if share is None:
            return
        name = redact(self.storage.location)
        strange = sorted(p for p in share.partitions if not 0 <= p < self._identity.partitions)
        if strange:
            raise LogError(f"{name} has partitions 0 to {self._identity.partitions - 1}, not {strange[0]}")
        check_shareable(self.storage)

    @classmethod
    def create(
        cls,
        location: str | Path | Storage,
        identity: LogIdentity,
        *,
        snapshot: pa.Table | Mapping[bytes, bytes] | None = None,
        options: LogOptions = DEFAULTS,
    ) -> LogWriter:
        """Create a log. `snapshot`: the meta key-values as of its start_ts; without it, write them before anything else.

        Raises LogError if there is one already, LogLocked, DiskLow.
        """
        storage = open_storage(location)
        lock = lock_of(storage)
        if lock:
            take_or_pass(lock, storage, options.term)
        try:
            if storage.read(log_format.IDENTITY) is not None:
                raise LogError(f"{redact(storage.location)} is a change log already")
            if (text := no_room(storage, options.low_water_bytes)) is not None:
                error = DiskLow(f"{text}; no log is created there", hint="Free disk space, or create it on another disk.")
                error.retryable = False  # a user who creates a log waits for the answer
                raise error
            if snapshot is not None:
                write_snapshot(storage, identity.start_ts, snapshot if isinstance(snapshot, pa.Table) else pairs_table(snapshot))
            # log.json makes the folder a log, so it is written last.
            data = identity.to_json().encode()
            if not storage.can_swap:
                storage.replace(log_format.IDENTITY, data)
            elif storage.swap(log_format.IDENTITY, None, data) is None:
                raise LogError(f"{redact(storage.location)} was just created by somebody else")
        finally:
            if lock:
                lock.release()
        return cls(storage, options)

    @classmethod
    def open(
        cls,
        location: str | Path | Storage,
        *,
        cluster_id: str | None = None,
        partitions: int | None = None,
        affinity: Affinity | None = None,
        source: str | None = None,
        options: LogOptions = DEFAULTS,
        share: Share | None = None,
    ) -> LogWriter:
        """Open an existing log. The arguments must match the log's identity. `share`: the share to write; None: everything.

        Takes the folders from their previous writers. A share without the schema stream does not take the log's lock. Raises
        ClusterMismatch, LogLocked naming the holder, and LogError, also if the log cannot be shared.
        """
        storage = open_storage(location)
        cls.check(storage, cluster_id=cluster_id, partitions=partitions, affinity=affinity, source=source)
        return cls(storage, options, share)

    @staticmethod
    def check(
        storage: Storage,
        *,
        cluster_id: str | None = None,
        partitions: int | None = None,
        affinity: Affinity | None = None,
        source: str | None = None,
    ) -> None:
        """Check that the arguments match the log's identity, without taking the log. Raises ClusterMismatch, LogError."""
        identity = read_identity(storage)
        name = redact(storage.location)
        if cluster_id is not None and cluster_id != identity.cluster_id:
            raise ClusterMismatch(
                f"{name} holds the changes of cluster {identity.cluster_id}, not of {cluster_id}",
                hint="Give this cluster a log of its own.",
            )
        for what, asked, has in (
            ("partitions", partitions, identity.partitions),
            ("affinity", affinity, identity.affinity),
            ("source", source, identity.source),
        ):
            was = what == "partitions" and asked in {one.partitions for one in identity.layouts}  # it has grown since
            if asked is not None and asked != has and not was:
                raise LogError(f"{name} was created with {what} {has}, not {asked}", hint=_KEPT[what])

    @property
    def identity(self) -> LogIdentity:
        return self._identity

    @property
    def schema(self) -> SchemaWriter:
        """The schema stream's writer. Raises LogError if another writer has it."""
        writer = self._writer(log_format.SCHEMA)
        assert isinstance(writer, SchemaWriter)
        return writer

    def partition(self, p: int) -> PartitionWriter:
        """Return a partition's writer. Raises LogError if another writer has the partition."""
        return self._writer(log_format.rows_folder(p))

    def _writer(self, folder: str) -> PartitionWriter:
        writer = self._writers.get(folder)
        if writer is None:
            raise LogError(f"{redact(self.storage.path(folder))} is not this writer's: it has {', '.join(self._folders)}")
        return writer

    @property
    def partitions(self) -> list[int]:
        """The partitions of this writer, ascending."""
        return [p for p in range(self._identity.partitions) if log_format.rows_folder(p) in self._writers]

    @property
    def resolved_ts(self) -> int:
        """All folders of this writer are complete up to here; the whole log, if this writer has all of it."""
        return min(w.head for w in self._writers.values())

    def sync_heads(self) -> int:
        """Make the heads survive a crash of the machine, as far as the storage allows now. Return the smallest synced head.

        Upstream may collect only history below it. Raises LogFenced."""
        for writer in self._writers.values():
            with suppress(DiskLow, LogUnavailable):
                writer.sync_head()
        return min(writer.synced_head for writer in self._writers.values())

    def declare(self, *, split_tables: Sequence[int | str] | None = None, version: UpstreamVersion | None = None) -> None:
        """Record in log.json which tables are spread over partitions, or from when on the cluster has a version. From any thread."""
        if split_tables is not None:
            self.change_identity(lambda identity: replace(identity, split_tables=tuple(split_tables)))
        if version is not None:
            self.change_identity(lambda identity: identity.with_version(version))

    def change_identity(self, change: Callable[[LogIdentity], LogIdentity]) -> None:
        """Write log.json as `change` makes it of the current one. Waits for `maintain`, which writes it too. From any thread."""
        with self._maintaining:
            self.set_identity(change(self._identity))

    def set_identity(self, identity: LogIdentity) -> None:
        """Write log.json again; beside `maintain` use `change_identity`. Raises LogFenced; LogError if another has the schema stream."""
        self._writer(log_format.SCHEMA)
        self._identity = self._identity_file.write(identity)

    @property
    def low(self) -> DiskLow | None:
        """The error that a publication would raise now, because the disk is below its low-water mark; else None."""
        return lack_of_room(self)

    def check_room(self) -> None:
        """Raise DiskLow below the low-water mark, with the changefeed that pins the log."""
        if (low := self.low) is not None:
            raise low

    def maintain(self, now: int, *, budget_bytes: int = 512 << 20) -> Maintenance:
        """Run retention, then compaction. Call it every few seconds, from any thread. `now`: a TSO.

        Below the low-water mark files are still removed, but none are joined: that needs space before it frees some. A writer joins in its
        own folders only; the coordinator's retention covers all folders. About `budget_bytes` at most are rewritten in one call. Raises
        DiskLow if the disk is completely full, LogFenced.
        """
        with self._maintaining:
            removed = self._run_retention(now)
            low = self.low
            joined = used = 0
            for folder in self._folders:
                if used < budget_bytes and low is None:
                    files, size = self._compact(folder, budget_bytes - used)
                    joined, used = joined + files, used + size
                removed += self._compactor.sweep(self._reader, folder)
            return Maintenance(joined, removed, self._identity.start_ts, low)

    def insert(self, late: LateRows) -> bool:
        """Insert rows that the log has passed. Return False if that has to be called again when the log has gone on. May be repeated.

        Raises LogError if it cannot be done, LogFenced, DiskLow."""
        with self._maintaining:
            self.check_insert(late.from_ts)
            self.set_identity(self._identity.with_late_rows(late.from_ts, late.to_ts))
            reader, folder = LogReader(self.storage), log_format.rows_folder(late.partition)
            return self.partition(late.partition).publish_below_head(late.between) and self._compactor.insert(reader, folder, late)

    def check_insert(self, from_ts: int) -> None:
        """Raise LogError if rows from a ts on cannot be inserted."""
        least = max(self._identity.start_ts, self._identity.settled_ts)
        if from_ts < least:
            raise LogError(f"{redact(self.storage.location)} begins, or has its layout, from {least} on, not from {from_ts}")

    def _run_retention(self, now: int) -> int:
        """Run retention. Return the number of removed files."""
        if not self._has_schema:
            self._identity = self._reader.identity_now()  # the coordinator may have moved the start
            return 0
        try:
            self._retention.advance(self._reader, now)
        finally:  # files before the current start are removed even if there is no space to move the start
            removed = self._retention.sweep()
        return removed

    def _compact(self, folder: str, budget_bytes: int) -> tuple[int, int]:
        try:
            return self._compactor.compact(self._reader, folder, budget_bytes)
        except SegmentGone:  # retention or a successor was faster. A reader reports a file that is really missing
            self._reader.refresh()
            return 0, 0

    def close(self) -> None:
        """Close the writer, so that another one can write."""
        if self._lock:
            self._lock.release()

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _clean(self) -> None:
        """Remove versions of log.json that a dead writer did not publish. A request that another process is just writing may be among them:
        `Storage.replace` writes it again."""
        for name in self.storage.names(""):
            if log_format.is_temporary(name):
                self.storage.delete(name)


__all__ = [
    "DEFAULTS",
    "LogOptions",
    "LogWriter",
    "Maintenance",
    "PartitionWriter",
    "SchemaWriter",
    "Share",
    "pairs_table",
    "write_snapshot",
]
