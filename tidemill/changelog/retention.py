"""Retention: removes segments that no changefeed needs and that are older than the log's retention. It also reports a full disk. Its own
small writes ignore the low-water mark, because they free space.

The order of steps makes each crash harmless. First comes a schema snapshot at the new start, then log.json's start_ts. The files follow a
while later, oldest first, so that readers in the middle of an interval are done with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tidemill import tso
from tidemill.changelog import feeds, imports, initial_load, log_format
from tidemill.changelog.history import load_history
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.options import LogOptions
from tidemill.changelog.reader import LogReader, read_feeds, read_snapshots
from tidemill.changelog.storage.open import Storage
from tidemill.changelog.storage.steady import SteadyClock
from tidemill.errors import DiskLow, SegmentGone, redact
from tidemill.events import Op
from tidemill.tidb.schema.metakeys import META_TABLE_ID
from tidemill.tidb.schema.tracking.history import SchemaHistory

STEPS = 24
"""The start moves when it can move by at least this fraction of the retention: each move costs a schema snapshot."""


class SchemaStream(Protocol):
    """The part of the schema stream's writer that retention uses."""

    def snapshot(self, ts: int, pairs: Mapping[bytes, bytes]) -> str: ...


class RetainedLog(Protocol):
    """The part of a log's writer that retention uses."""

    storage: Storage
    options: LogOptions

    @property
    def identity(self) -> LogIdentity: ...

    @property
    def schema(self) -> SchemaStream: ...

    @property
    def resolved_ts(self) -> int: ...

    def set_identity(self, identity: LogIdentity) -> None: ...


@dataclass(slots=True)
class Retention:
    """Moves the start of one log, and removes what is before it."""

    log: RetainedLog
    clock: Callable[[], float] = field(default_factory=SteadyClock)
    """Files' ages are compared with it. A reader, or a replay, must not lose files because the machine's clock was set ahead."""

    def advance(self, reader: LogReader, now: int) -> bool:
        """Move the log's start as far as retention and feeds allow, if that is worth it. `now`: a TSO.

        A step that was not taken back, because storage went away or the process died, is taken back first."""
        feeds.forget_silent(self.log.storage, self.clock())
        if self._go_back(reader):
            return False
        identity = self.log.identity
        retention = self.log.options.retention_ms
        kept = [now - tso.compose(retention), reader.resolved_ts(), *read_feeds(self.log.storage).values()]
        kept += [
            plan.ts for plan in initial_load.unfinished(self.log.storage, identity.start_ts) if initial_load.missing(self.log.storage, plan)
        ]
        cut = min(kept)
        if cut - identity.start_ts < max(tso.compose(retention // STEPS), 1) or not self._has_old(reader, cut):
            return False
        history = load_history(reader, cut)
        start = between_ddls(history, cut)
        if start <= identity.start_ts:
            return False
        self.log.schema.snapshot(start, snapshot_at(reader, start))
        self.log.set_identity(identity.moved_to(start))
        if any(checkpoint < start for checkpoint in read_feeds(self.log.storage).values()):
            self.log.set_identity(identity)  # a feed has registered meanwhile; nothing is removed yet
            return False
        return True

    def _go_back(self, reader: LogReader) -> bool:
        """Move the start back to the last schema snapshot before a feed that needs changes below it, if all files are still there."""
        identity = self.log.identity
        lowest = min(read_feeds(self.log.storage).values(), default=identity.start_ts)
        start = max((ts for ts in reader.snapshots() if ts <= lowest), default=0)
        if lowest >= identity.start_ts or not start or not all(self._is_whole(f, start) for f in log_format.folders(identity.partitions)):
            return False
        self.log.set_identity(identity.moved_to(start))
        return True

    def _is_whole(self, folder: str, start: int) -> bool:
        """Whether a folder has all files above `start`. One without a file there never had one: `sweep` keeps them above a snapshot."""
        above = [segment for _, segment in _segments(self.log.storage, folder) if segment.to_ts > start]
        chain = log_format.link(*log_format.complete_intervals(above, lambda name: name))
        return chain.from_ts is None or (chain.from_ts <= start and chain.fault is None)

    def _has_old(self, reader: LogReader, cut: int) -> bool:
        chains = (reader.listing(folder) for folder in log_format.folders(self.log.identity.partitions))
        return any(chain.intervals and chain.intervals[0].to_ts <= cut for chain in chains)

    def sweep(self) -> int:
        """Remove files that are wholly at or below the log's start, when the start has not moved for the grace period. Return their
        number.

        Snapshots go first: as long as one is there, all files above it are, and the start can move back there. A feed below the start
        keeps all that is above the last snapshot before it."""
        storage, start = self.log.storage, self.log.identity.start_ts
        moved = next((e.modified for e in storage.entries("") if e.name == log_format.IDENTITY), None)
        if moved is None or self.clock() - moved < self.log.options.grace_s:
            return 0
        limit = min([start, *read_feeds(storage).values()])
        old = [ts for ts in read_snapshots(storage) if ts <= limit]
        if limit < start:
            limit = max(old, default=0)
        for ts in old[:-1]:
            storage.delete(f"{log_format.SCHEMA}/{log_format.snapshot_name(ts)}")
        removed = len(old[:-1])
        for folder in log_format.folders(self.log.identity.partitions):
            passed = sorted((s.from_ts, name) for name, s in _segments(storage, folder) if s.to_ts <= limit)
            for _, name in passed:
                storage.delete(f"{folder}/{name}")
            removed += len(passed)
        imports.forget(storage, limit)
        for ts in initial_load.timestamps(storage):
            if ts < limit:
                initial_load.remove(storage, ts)
                removed += 1
        return removed


def _segments(storage: Storage, folder: str) -> list[tuple[str, log_format.SegmentName]]:
    found = ((name, log_format.parse_segment(name, folder)) for name in storage.names(folder))
    return [(name, segment) for name, segment in found if segment is not None]


def between_ddls(history: SchemaHistory, cut: int) -> int:
    """Return the latest ts at or below `cut` at which no DDL is half-way. A history that begins in the middle of a DDL whose event was
    already seen would produce the event again at the DDL's end."""
    for event in reversed(history.ddl_events(history.start_ts, cut)):
        if event.ts <= cut and not 0 < event.done_ts <= cut:
            cut = event.ts - 1
    return cut


def snapshot_at(reader: LogReader, ts: int) -> dict[bytes, bytes]:
    """Return the meta key-values as of `ts`, from the newest snapshot before it and the schema stream.

    Raises SegmentGone if another writer has moved the log's start past `ts` meanwhile.
    """
    base = max(t for t in reader.snapshots() if t <= max(ts, reader.start_ts))
    if base > ts:
        raise SegmentGone(f"{redact(reader.location)} begins at {tso.describe(base)} now; what it held at {tso.describe(ts)} is gone")
    table = reader.read_snapshot(base)
    pairs = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    changes = reader.read_schema(base, ts)
    columns = (changes[name].to_pylist() for name in ("table_id", "op", "key", "value"))
    for table_id, op, key, value in zip(*columns, strict=True):
        if table_id != META_TABLE_ID:
            continue
        if op == Op.PUT:
            pairs[key] = value
        else:
            pairs.pop(key, None)
    return pairs


def lack_of_room(log: RetainedLog) -> DiskLow | None:
    """Return the error for publishing below the log's low-water mark, with the changefeed that pins the log; None if there is enough
    space."""
    text = no_room(log.storage, log.options.low_water_bytes)
    if text is None:
        return None
    slowest = feeds.slowest(log.storage)
    if slowest is None:
        return DiskLow(f"{text}; no changefeed pins the log", hint="Free disk space, or shorten the log's retention.")
    feed, checkpoint = slowest
    behind = tso.physical_ms(max(log.resolved_ts - checkpoint, 0)) / 1000
    return DiskLow(
        f"{text}; changefeed {feed} pins the log at {tso.describe(checkpoint)}, {behind:.0f} s behind",
        hint=f"Let {feed} catch up or remove it (`tidemill log forget LOG {feed}`), free disk space, or shorten the log's retention.",
    )


def no_room(storage: Storage, low_water_bytes: int) -> str | None:
    """Return how much disk space is left, as text, if it is less than the low-water mark."""
    free = storage.free_bytes()
    if free is None or free >= low_water_bytes:
        return None
    return no_room_text(storage.place, free, low_water_bytes)


def no_room_text(place: str, free: int, low_water_bytes: int) -> str:
    """Return the text for too little disk space."""
    return f"{redact(place)} has {_mib(free)} left, less than the low-water mark of {_mib(low_water_bytes)}"


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"


FOLDERS = (log_format.ROWS, log_format.SCHEMA, log_format.FEEDS, log_format.FENCES, log_format.SERVER, log_format.SNAPSHOT, imports.FOLDER)
"""Of a log."""


def drop(storage: Storage) -> None:
    """Delete a log that nobody writes: log.json first, so that what a crash leaves behind is not a log. Other files in its folder stay, and
    the folder with them."""
    storage.delete(log_format.IDENTITY)
    storage.settle("")
    for folder in FOLDERS:
        storage.delete_folder(folder)
    storage.delete(f"{log_format.SCHEMA}.lock")
    for name in (log_format.PROBE, log_format.GROWTH, log_format.LOCK):
        storage.delete(name)
