"""Reads a change log: what it holds, up to when, and which files hold an interval.

A reader needs no lock and no state of its own. Any number may read while the writer publishes, compacts and drops.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidemill import statefile
from tidemill.changelog import log_format
from tidemill.changelog.files import sums
from tidemill.changelog.files.arrowfile import ArrowFile
from tidemill.changelog.files.segment import check_columns, read_batch
from tidemill.changelog.log_format import Chain, Interval, LogIdentity, SegmentName
from tidemill.changelog.storage.open import Storage, open_segment, open_storage
from tidemill.errors import LogCorrupt, LogError, LogUnavailable, SegmentGone, StartTsOutOfLog, redact
from tidemill.events import META_PAIR, RAW_CHANGE
from tidemill.tso import LOGICAL_BITS, MAX_TS, describe

__all__ = ["LogReader", "log_exists", "open_segment"]

FRESH_SECONDS = 30.0
"""Seconds for which a listing may be used for planning. Compaction leaves replaced files for much longer."""

AHEAD = 21_600_000 << LOGICAL_BITS
"""How far beyond a wanted interval names count: six hours. Of an old log a reader knows what it needs; a catch-up lists it that often."""

LOOKS = 3
"""How often a hole or an overlap must be seen before it counts as real."""


@dataclass(slots=True)
class _Folder:
    """What is known of one folder of segments: those that end above `floor` and begin below `ceiling`. It is complete up to `covered`."""

    names: dict[str, SegmentName] = field(default_factory=dict)
    chain: Chain = field(default_factory=lambda: Chain(()))
    covered: int = 0
    listed_at: float = float("-inf")
    floor: int = 0
    ceiling: int = MAX_TS


class LogReader:
    """Reads one log. Cheap to keep: listings are cached, and renewed only if they do not reach far enough."""

    def __init__(self, location: str | Path | Storage, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.storage = open_storage(location)
        self._clock = clock
        self._written = _identity_in(self.storage)  # log.json as last read
        self._identity = self._parsed(self._written)
        self._folders: dict[str, _Folder] = {}
        self._seen_heads: dict[str, int] = {}  # of folders, at the last look
        self._behind = ""  # the folder with the lowest head, at the last look
        self._laid_out_to = self._identity.settled_ts  # a head was here when log.json was read: every layout below is known

    @property
    def location(self) -> str:
        return self.storage.location

    @property
    def identity(self) -> LogIdentity:
        """log.json as last read."""
        return self._identity

    def identity_now(self) -> LogIdentity:
        """Read log.json again and return it."""
        self._read_identity()
        return self._identity

    def _read_identity(self) -> None:
        """Read log.json. It is parsed only if it has changed: a changefeed asks for each batch."""
        written = _identity_in(self.storage)
        if written != self._written:
            self._identity, self._written = self._parsed(written), written

    def _parsed(self, written: bytes) -> LogIdentity:
        return LogIdentity.from_json(written, self.storage.path(log_format.IDENTITY))

    def laid_out(self, ts: int) -> bool:
        """Make sure that the layout of rows up to `ts`, which some head has reached, is known. Return whether it has changed.

        log.json is changed before any head passes the ts of a new layout. So it has to be read after the heads.
        """
        if ts <= self._laid_out_to:
            return False
        before = self._identity.layouts
        found = self.identity_now().layouts
        self._laid_out_to = ts  # only now: if the storage did not answer, the next look has to ask again
        return found != before

    @property
    def partitions(self) -> int:
        return self._identity.partitions

    @property
    def start_ts(self) -> int:
        """The log has all rows above it. Retention moves it, so log.json is read again."""
        return self.identity_now().start_ts

    # ---- heads

    def head(self, partition: int) -> int:
        """Return up to where a partition is complete."""
        return self._head(log_format.rows_folder(partition))

    def schema_head(self) -> int:
        """Return up to where the schema stream is complete."""
        return self._head(log_format.SCHEMA)

    def resolved_ts(self) -> int:
        """Return up to where the log is complete."""
        while True:
            heads = [self._head(folder) for folder in log_format.folders(self.partitions)]
            if not self.laid_out(max(heads)):
                return min(heads)

    def heads(self) -> list[int]:
        """Return up to where each partition is complete, together with the schemas that its rows need."""
        while True:
            heads = [self.head(p) for p in range(self.partitions)]
            schema = self.schema_head()
            if not self.laid_out(max(*heads, schema)):
                return [min(head, schema) for head in heads]

    def resolved_ts_if_above(self, ts: int) -> int:
        """Return `resolved_ts` if it is above `ts`, else some head that is not. It reads no more heads than needed: usually only the one
        that was lowest at the last look."""
        while True:
            heads = []
            for folder in sorted(log_format.folders(self.partitions), key=lambda folder: folder != self._behind):
                heads.append(self._head(folder))
                if heads[-1] <= ts:
                    self._behind = folder
                    return min(heads)
            if not self.laid_out(max(heads)):
                return min(heads)

    def _head(self, folder: str) -> int:
        """Return head.json. If there is none (it is written without a sync), return what survived a crash of the machine."""
        found = self._look_at_head(folder)
        return found if found is not None else self._left(folder)

    def _look_at_head(self, folder: str) -> int | None:
        found = read_head(self.storage, folder)
        if found is not None:
            self._seen_heads[folder] = found
        return found

    def _head_beyond(self, folder: str, ts: int) -> int | None:
        """Return the head of the last look, if it reaches `ts`: a batch ends where its clock has just seen the heads. Else look again."""
        known = self._seen_heads.get(folder, 0)
        return known if known >= ts else self._look_at_head(folder)

    def _left(self, folder: str) -> int:
        end = self._list(folder, None).chain.to_ts
        return max(end or 0, read_synced(self.storage, folder) or 0, self._identity.settled_ts)

    def durable_head(self, folder: str) -> int:
        """Return up to where a folder is complete even after a crash of the machine."""
        self.storage.sync(f"{folder}/{log_format.HEAD}")
        return max(read_head(self.storage, folder) or 0, self._left(folder))

    # ---- segments

    def chain(self, partition: int, from_ts: int, to_ts: int) -> list[Interval]:
        """Return the intervals of a partition that together hold (from_ts, to_ts], oldest first; none if nothing happened.

        Raises StartTsOutOfLog if the log does not cover the interval; LogCorrupt, naming the files, if it should but a file is missing or
        two overlap.
        """
        if not 0 <= partition < self.partitions:
            raise LogError(f"{redact(self.location)} has partitions 0 to {self.partitions - 1}, not {partition}")
        return self._chain(log_format.rows_folder(partition), from_ts, to_ts)

    def schema_chain(self, from_ts: int, to_ts: int) -> list[Interval]:
        """Like `chain`, for the schema stream."""
        return self._chain(log_format.SCHEMA, from_ts, to_ts)

    def partition_bytes(self, interval: Interval) -> int:
        """Return the bytes of an interval's files, for planning."""
        return sum(self.storage.size(self.storage.name(p)) for p in interval.parts)

    def open_segment(self, path: str) -> ArrowFile:
        """Open a part of an interval; it is mapped if the log is local.

        Raises SegmentGone, LogCorrupt.
        """
        return self._open(path, RAW_CHANGE)

    def batches(self, path: str) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a part of an interval, as RAW_CHANGE. Raises as `open_segment`."""
        segment = self.open_segment(path)
        for i in range(segment.num_record_batches):
            yield pa.RecordBatch.from_arrays(read_batch(segment, i, path).columns, schema=RAW_CHANGE)

    def _open(self, path: str, wanted: pa.Schema) -> ArrowFile:
        file: ArrowFile = self.storage.open(self.storage.name(path))
        check_columns(file, wanted, path)
        if self._identity.format >= sums.FORMAT and not file.has_sums:
            raise LogCorrupt(
                f"{redact(path)} has no checksums, and {log_format.IDENTITY} says that all files of this log have them",
                hint="The file is damaged, or somebody else wrote it. Restore it from a copy.",
            )
        return file

    def refresh(self) -> None:
        """Drop the cached listings: the next call lists the folders again."""
        self._folders.clear()
        self._seen_heads.clear()
        self._read_identity()

    def listing(self, folder: str) -> Chain:
        """Return all that a folder holds now, with its faults; for verify and for the writer."""
        return self._list(folder, None).chain

    def _chain(self, folder: str, from_ts: int, to_ts: int) -> list[Interval]:
        if from_ts > to_ts:
            raise LogError(f"({from_ts}, {to_ts}] is not an interval of time")
        if from_ts < self._identity.start_ts:
            self._refuse_start(from_ts)
        if from_ts == to_ts:
            return []
        known = self._folders.get(folder)
        if known is None or from_ts < known.floor or self._clock() - known.listed_at > FRESH_SECONDS:
            known = self._look(folder, from_ts, to_ts)
        elif to_ts > known.covered:
            known = self._with_next(folder, known, to_ts) or self._look(folder, from_ts, to_ts)
        self._check_cover(folder, known, from_ts, to_ts)
        return known.chain.between(from_ts, to_ts)

    def _with_next(self, folder: str, known: _Folder, to_ts: int) -> _Folder | None:
        """Return what is known of a folder, with the file that came since; None unless one file reaches from the last one to the head.

        A reader that keeps pace with the writer sees them come one by one, and needs no listing: the name follows from the ends.
        """
        end, head = known.chain.to_ts, self._head_beyond(folder, to_ts)
        if end is None or head is None or not end < to_ts <= head < known.ceiling or known.chain.fault or known.chain.incomplete:
            return None
        name = SegmentName(end, head)
        path = self.storage.path(f"{folder}/{name}")
        try:
            self.storage.size(self.storage.name(path))
        except SegmentGone:
            return None
        chain = Chain((*known.chain.intervals, Interval(end, head, (path,))), known.chain.inside)
        found = replace(known, names={**known.names, str(name): name}, chain=chain, covered=head)
        self._folders[folder] = found
        return found

    def _look(self, folder: str, from_ts: int, to_ts: int) -> _Folder:
        """List a folder; again if intervals do not join, or the last one is not there: a listing may miss files while others come and go.
        Raises LogUnavailable if the listing stays without the last one."""
        for attempt in range(LOOKS):
            if attempt:
                self._folders.pop(folder, None)
                self._read_identity()
            # Read the head first: what it covers was published before the listing begins, so the listing has it.
            head, last = read_head_and_last(self.storage, folder)
            known = self._list(folder, head if head is not None else read_synced(self.storage, folder), from_ts, to_ts)
            ends = known.chain.to_ts or 0
            is_old = last > known.floor and ends < min(last, known.ceiling)
            if known.chain.fault is None and not is_old:
                break
        if known.chain.from_ts is None:  # nothing happened there, or retention moved the start and removed all of it
            self._refuse_start(from_ts)
        if known.chain.fault is None and is_old:
            self._folders.pop(folder, None)
            raise LogUnavailable(
                f"{redact(self.storage.path(folder))}: its segments end at {ends}, and its {log_format.HEAD} says that one ends at {last}",
                hint="The storage shows an old listing, as NFS may for a minute, or the file is gone: see `tidemill log verify`.",
            )
        return known

    def _check_cover(self, folder: str, known: _Folder, from_ts: int, to_ts: int) -> None:
        fault = known.chain.fault
        if fault is not None and to_ts > fault.at_ts:
            raise LogCorrupt(redact(fault.message), hint=_FAULT_HINT)
        if to_ts > known.covered:
            name = redact(self.storage.path(folder))
            raise StartTsOutOfLog(f"{name} is complete up to {describe(known.covered)} only, not up to {describe(to_ts)}")
        begins = known.chain.from_ts
        if begins is not None and begins > from_ts:
            if from_ts < self.start_ts:  # retention moved the start meanwhile
                self._refuse_start(from_ts)
            if known.floor > self._identity.start_ts:  # name the files on both sides of the hole
                self._check_cover(folder, self._list(folder, None), from_ts, to_ts)
            elif begins > self._identity.start_ts:
                first = redact(known.chain.intervals[0].parts[0])
                raise LogCorrupt(f"nothing holds ({self._identity.start_ts}, {begins}] before {first}", hint=_FAULT_HINT)

    def _refuse_start(self, from_ts: int) -> None:
        if from_ts < self.start_ts:
            raise StartTsOutOfLog(
                f"{redact(self.location)} holds changes from {describe(self._identity.start_ts)} to {describe(self.resolved_ts())}; "
                f"{describe(from_ts)} lies before it"
            )

    def _list(self, folder: str, head: int | None, from_ts: int = 0, to_ts: int = MAX_TS) -> _Folder:
        """List a folder: at least what (from_ts, to_ts] needs. Below the start nothing counts: retention has not removed it yet."""
        known = self._folders.get(folder)
        now = self._clock()
        floor = max(self._identity.start_ts, min(from_ts, known.floor) if known else from_ts)
        ceiling = max(min(to_ts + AHEAD, MAX_TS), known.ceiling if known else 0)
        names: dict[str, SegmentName] = {}
        fresh: list[SegmentName] = []
        old = known.names if known else {}
        for name in log_format.between_names(self.storage.names(folder), floor, ceiling):
            segment = old.get(name)
            if segment is None:
                segment = log_format.parse_segment(name, folder)
                if segment is None:
                    continue
                fresh.append(segment)
            names[name] = segment
        chain = self._extended(folder, known, names, fresh)
        if head is not None and (hole := _hole_above(chain, max(head, floor))) is not None:
            # The segments behind it were published during the listing, which missed some before them. They are left for later: the next
            # listing has to see them as fresh, or what fills the hole would be joined without them.
            names = {name: segment for name, segment in names.items() if segment.to_ts <= hole}
            linked = tuple(one for one in chain.intervals if one.to_ts <= hole)
            chain = Chain(linked, chain.inside, chain.incomplete)
        ends = [t for t in (head, chain.to_ts) if t is not None]
        covered = max([*ends, self._identity.settled_ts])
        found = _Folder(names, chain, min(covered, ceiling), now, floor, ceiling)
        self._folders[folder] = found
        return found

    def _extended(self, folder: str, known: _Folder | None, names: dict[str, SegmentName], fresh: list[SegmentName]) -> Chain:
        """Return the chain of the names: usually the known one with some intervals added at its end."""

        def join(name: str) -> str:
            return self.storage.path(f"{folder}/{name}")

        end = known.chain.to_ts if known else None
        grown = known is not None and len(names) == len(known.names) + len(fresh)
        if known is not None and end is not None and grown and known.chain.fault is None and not known.chain.incomplete:
            if not fresh:
                return known.chain
            intervals, incomplete = log_format.complete_intervals(fresh, join)
            if all(i.from_ts >= end for i in intervals):
                more = log_format.link(intervals, incomplete, before=known.chain.intervals[-1])
                return Chain(known.chain.intervals + more.intervals, known.chain.inside, more.incomplete, more.fault)
        return log_format.link(*log_format.complete_intervals(names.values(), join))

    # ---- the schema stream

    def read_schema(self, from_ts: int, to_ts: int) -> pa.Table:
        """Return RAW_CHANGE rows of the schema stream with from_ts < commit_ts <= to_ts, sorted."""
        intervals = self.schema_chain(from_ts, to_ts)
        if not intervals:
            return RAW_CHANGE.empty_table()
        table = pa.Table.from_batches((batch for one in intervals for path in one.parts for batch in self.batches(path)), RAW_CHANGE)
        commit = table["commit_ts"].to_numpy()
        table = table.filter(pa.array((commit > np.uint64(from_ts)) & (commit <= np.uint64(to_ts))))
        return table.sort_by([(name, "ascending") for name in ("commit_ts", "start_ts", "table_id", "key")])

    def snapshots(self) -> list[int]:
        """Return the ts of the schema snapshots, oldest first."""
        return read_snapshots(self.storage)

    def read_snapshot(self, ts: int) -> pa.Table:
        """Return the meta key-values as of `ts`, as META_PAIR rows. Raises SegmentGone, LogCorrupt."""
        path = self.storage.path(f"{log_format.SCHEMA}/{log_format.snapshot_name(ts)}")
        reader = self._open(path, META_PAIR)
        batches = [read_batch(reader, i, path, META_PAIR) for i in range(reader.num_record_batches)]
        return pa.table(pa.Table.from_batches(batches, reader.schema).columns, schema=META_PAIR)

    # ---- feeds

    def feeds(self) -> dict[str, int]:
        """Return the checkpoint ts of each changefeed that needs the log. A checkpoint that cannot be read counts as 0: everything is
        needed."""
        return read_feeds(self.storage)


def _hole_above(chain: Chain, ts: int) -> int | None:
    """Return where the first hole begins, if it ends above `ts`; None if no such hole is there."""
    if chain.from_ts is not None and chain.from_ts > ts:
        return ts
    if chain.fault is not None and chain.fault.upto_ts > ts:
        return chain.to_ts
    return None


_FAULT_HINT = "`tidemill log verify` lists all damage. Restore the missing file from a copy; without one, start a new log past the gap."


def log_exists(location: str | Path | Storage) -> bool:
    """Return whether there is a change log."""
    return open_storage(location).read(log_format.IDENTITY) is not None


def existing_log(location: str | Path | Storage) -> LogReader | None:
    """Return a reader of the log; None if nobody has made it yet. Raises as LogReader."""
    return LogReader(location) if log_exists(location) else None


def read_identity(storage: Storage) -> LogIdentity:
    """Return log.json. Raises LogError if there is no log."""
    return LogIdentity.from_json(_identity_in(storage), storage.path(log_format.IDENTITY))


def _identity_in(storage: Storage) -> bytes:
    data = storage.read(log_format.IDENTITY)
    if data is None:
        raise LogError(f"{redact(storage.location)} is not a change log: it has no {log_format.IDENTITY}")
    return data


def read_head(storage: Storage, folder: str) -> int | None:
    """Return a folder's head.json; None if it is missing or, after a crash of the machine, empty."""
    name = f"{folder}/{log_format.HEAD}"
    return parse_head(storage.read(name), storage.path(name))


def read_head_and_last(storage: Storage, folder: str) -> tuple[int | None, int]:
    """Return a folder's head, as `read_head` does, and where its last segment ends; 0 if the file does not say it."""
    name = f"{folder}/{log_format.HEAD}"
    data, path = storage.read(name), storage.path(name)
    head = parse_head(data, path)
    return head, 0 if head is None or data is None else statefile.read(data, path).integer("last", default=0)


def read_synced(storage: Storage, folder: str) -> int | None:
    """Return a folder's synced.json; None if there is none."""
    name = f"{folder}/{log_format.SYNCED}"
    return parse_head(storage.read(name), storage.path(name))


def parse_head(data: bytes | None, name: str) -> int | None:
    """Parse a head.json; None if it is missing or empty. Raises LogCorrupt naming the file."""
    if data is None or not data.strip(b"\0 \n"):
        return None
    return log_format.parse_ts_file(data, "resolved_ts", name)


def read_snapshots(storage: Storage) -> list[int]:
    """Return the ts of the schema snapshots, oldest first."""
    found = (log_format.parse_snapshot(name) for name in storage.names(log_format.SCHEMA))
    return sorted(ts for ts in found if ts is not None)


def read_feeds(storage: Storage) -> dict[str, int]:
    """Return the checkpoints in feeds/; 0 for one that cannot be read."""
    found = {}
    for name in storage.names(log_format.FEEDS):
        if log_format.is_temporary(name) or not name.endswith(".json"):
            continue
        data = storage.read(f"{log_format.FEEDS}/{name}")
        if data is None or data == log_format.REMOVED_FEED:  # removed meanwhile
            continue
        try:
            found[name.removesuffix(".json")] = log_format.parse_ts_file(data, "checkpoint_ts", name)
        except LogCorrupt:
            found[name.removesuffix(".json")] = 0
    return found
