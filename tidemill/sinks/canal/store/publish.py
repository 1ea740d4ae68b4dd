"""The entry store's owner: publishes intervals, moves the head, and removes what earlier attempts left.

An interval is published in one step, by the file that names its segments; then the head moves to its end. Readers use what lies at or below
the head. Who owns the store, and what stops an owner that lost it, is as in the change log (`changelog.ownership`): locally the folder's
lock; on an object store the head moves by compare-and-swap, and what a late owner publishes has an older epoch.

A listing may be behind, as that of a folder of NFS. One that lacks segments of an attempt has other entries than the tasks have flushed.
head.json says where the last interval ends, and each interval where the one before it does: by a listing that lacks one nothing is removed,
and nothing behind it is read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from tidemill.changelog import log_format
from tidemill.changelog.files.smallfiles import HeadFile
from tidemill.changelog.ownership import Ownership
from tidemill.changelog.reader import read_head_and_last
from tidemill.changelog.storage.base import Storage
from tidemill.errors import ConfigError, LogCorrupt, LogUnavailable, SinkUnavailable, redact
from tidemill.sinks.canal.store import names
from tidemill.sinks.canal.store.file import SegmentFile
from tidemill.sinks.canal.store.names import ENTRIES, STORE, Interval, IntervalName, SegmentName, SegmentRef, StoreIdentity
from tidemill.sinks.canal.store.position import Position
from tidemill.sinks.canal.store.segment import Ends
from tidemill.tso import MAX_TS

log = logging.getLogger(__name__)


class StorePublisher:
    """Opening it takes the store: every other publisher is fenced. Raises LogFenced once another one has taken it."""

    def __init__(self, storage: Storage, changefeed: str, begins: int, *, fresh: bool = False) -> None:
        """`begins`: where a new store begins. `fresh`: what the store holds of this changefeed is removed.

        Raises ConfigError for another changefeed's store, except for a `fresh` one that begins before it: that fills the store in
        front of what it holds."""
        self._storage = storage
        self._ownership = Ownership(storage, [ENTRIES])
        self._identity = self._opened(changefeed, begins, fresh=fresh)
        self._head = HeadFile(storage, ENTRIES, self._ownership)
        self._last = read_head_and_last(storage, ENTRIES)[1]  # where the last interval ends; 0: not known
        self._fills = self._begins_of(changefeed, begins)
        self._adopt()

    def __str__(self) -> str:
        return redact(self._storage.location)

    @property
    def epoch(self) -> int:
        """Of this owner."""
        return self._ownership.epoch(ENTRIES)

    @property
    def begins(self) -> int:
        """Entries with a commit_ts above it are in the store."""
        return self._identity.begins

    @property
    def head(self) -> int:
        """Nothing at or below it is missing."""
        return max(self._head.ts, self._identity.begins)

    @property
    def fills(self) -> bool:
        """Whether it fills another changefeed's store in front."""
        return self._fills is not None

    def holds(self, from_ts: int, to_ts: int) -> bool:
        """Whether the entries of (from_ts, to_ts] were published before."""
        return to_ts <= self.head and from_ts >= self.begins

    # ---- opening

    def _opened(self, changefeed: str, begins: int, *, fresh: bool) -> StoreIdentity:
        found = read_identity(self._storage)
        if found is not None and found.changefeed != changefeed and not (fresh and begins < found.begins):
            raise ConfigError(
                f"the entry store {self} belongs to changefeed {found.changefeed!r}, not {changefeed!r}",
                hint="Give each changefeed a store of its own. `tidemill replay` can fill a store in front of what it holds: from a "
                f"--start-ts below {found.begins}.",
            )
        if found is not None and fresh and found.changefeed == changefeed:
            self._empty()
            found = None
        if found is None:
            found = StoreIdentity(changefeed, begins)
            self._note(found)
        return found

    def _begins_of(self, changefeed: str, begins: int) -> int | None:
        """Where the part begins that is put in front of the store; None: the store is continued."""
        return begins if self._identity.changefeed != changefeed else None

    def _empty(self) -> None:
        """Remove all entries. The identity goes first: what a crash leaves has none, and is emptied again."""
        with self._ownership.publishing(ENTRIES):
            self._storage.delete(STORE)
        for file in (log_format.HEAD, log_format.SYNCED):
            self._storage.delete(f"{ENTRIES}/{file}")
        for hour in self._hours():
            self._storage.delete_folder(f"{ENTRIES}/{hour}")

    def _hours(self, first: str = "") -> list[str]:
        return sorted(hour for hour in self._storage.subfolders(ENTRIES) if names.is_hour(hour) and hour >= first)

    def _adopt(self) -> None:
        """Move the head over intervals that an earlier owner published before it died, and remove what no interval names or may name."""
        first = names.hour_of(self.head)
        found: dict[str, list[str]] = {hour: self._storage.names(f"{ENTRIES}/{hour}") for hour in self._hours(first)}
        intervals = [one for files in found.values() for name in files if (one := names.parse_interval(name)) is not None]
        if names.hour_of(self._last) >= first:
            check_listed(self._storage, intervals, self._last, self.begins)
        head = self.head
        for one in names.valid_intervals([one for one in intervals if one.from_ts >= head], head, MAX_TS):
            head = one.to_ts
        if head > self.head:
            self._last = head
            self._head.put(head, self._last)
        kept = {ref.name for one in intervals for ref in read_interval(self._storage, one).segments}
        with self._ownership.publishing(ENTRIES):
            for hour, files in found.items():
                for name in files:
                    segment = names.parse_segment(name)
                    unnamed = segment is not None and f"{hour}/{name}" not in kept and not self._may_be_named(segment)
                    if log_format.is_temporary(name) or unnamed:
                        self._storage.delete(f"{ENTRIES}/{hour}/{name}")

    def _may_be_named(self, segment: SegmentName) -> bool:
        """Whether an interval that was announced, by this owner or one before it, may still appear and name a segment."""
        pledged = self._ownership.pledged_to(ENTRIES)
        return pledged is not None and self.head < segment.to_ts <= pledged

    # ---- publishing

    def attempt(self, from_ts: int, to_ts: int, epoch: int, entries: int | None = None) -> list[SegmentName]:
        """The segments that tasks of this epoch have written for (from_ts, to_ts], in order. `entries`: how many the tasks have flushed;
        None: nobody counted. Raises SinkUnavailable where some are missing: the listing is behind."""
        found: dict[tuple[int, int], SegmentName] = {}
        for one in sorted(self._written(from_ts, to_ts)):
            if one.epoch == epoch:
                found.setdefault((one.from_ts, one.to_ts), one)
        chain = sorted(found.values())
        at = from_ts
        for one in chain:
            if one.from_ts != at:
                raise SinkUnavailable(f"{self}: the segments of ({from_ts}, {to_ts}] do not join between {at} and {one.from_ts}")
            at = one.to_ts
        if chain and at != to_ts:
            raise SinkUnavailable(f"{self}: the segments of ({from_ts}, {to_ts}] end at {at}")
        if entries is not None and (there := sum(self.ends(one)[0].entries for one in chain)) != entries:
            raise SinkUnavailable(f"{self}: the listing of ({from_ts}, {to_ts}] is behind: it has {there} of {entries} entries")
        return chain

    def _written(self, from_ts: int, to_ts: int) -> Iterator[SegmentName]:
        last = names.hour_of(to_ts)
        for hour in self._hours(names.hour_of(from_ts)):
            if hour <= last:
                for name in self._storage.names(f"{ENTRIES}/{hour}"):
                    one = names.parse_segment(name)
                    if one is not None and from_ts <= one.from_ts and one.to_ts <= to_ts:
                        yield one

    def clear_attempt(self, from_ts: int, to_ts: int, epoch: int) -> None:
        """Remove the segments of an attempt, unless they are published or may still be. Raises LogUnavailable if the listing is behind."""
        intervals = [one for one in self._intervals(from_ts, to_ts) if one.from_ts < to_ts and one.to_ts > from_ts]
        if from_ts < self._last <= to_ts:
            check_listed(self._storage, intervals, self._last, self.begins)
        kept = {ref.name for one in intervals for ref in read_interval(self._storage, one).segments}
        for segment in list(self._written(from_ts, to_ts)):
            if segment.epoch == epoch and str(segment) not in kept and not self._may_be_named(segment):
                self._storage.delete(f"{ENTRIES}/{segment}")

    def _intervals(self, from_ts: int, to_ts: int) -> Iterator[IntervalName]:
        for hour in self._hours(names.hour_of(from_ts)):
            if hour <= names.hour_of(to_ts):
                for name in self._storage.names(f"{ENTRIES}/{hour}"):
                    one = names.parse_interval(name)
                    if one is not None:
                        yield one

    def ends(self, segment: SegmentName) -> tuple[Ends, int]:
        """What the end of a segment says, and how many bytes the segment has."""
        file = SegmentFile(self._storage, str(segment))
        return file.ends, file.size

    def next_position(self, to_ts: int, written: Sequence[SegmentName]) -> Position:
        """The position of the next entry at to_ts, behind those of the segments."""
        last = self.ends(written[-1])[0].last if written else None
        return Position(to_ts, last.index + 1 if last is not None and last.commit_ts == to_ts else 0)

    def publish(self, from_ts: int, to_ts: int, written: Sequence[SegmentName], check_fence: Callable[[], None] = lambda: None) -> None:
        """Publish the entries of (from_ts, to_ts] that are not published yet, durably. `check_fence`: called right before; what it raises
        ends the publication."""
        if self._fills is None:
            from_ts = max(from_ts, self.head)
        else:
            to_ts = min(to_ts, self.begins)
        refs: list[SegmentRef] = []
        empty: list[SegmentName] = []
        for one in written:
            ends, size = self.ends(one)
            if ends.last is None:
                empty.append(one)
            else:
                refs.append(SegmentRef(str(one), size, ends.last.commit_ts))
        check_fence()
        if refs:
            self._publish_interval(IntervalName(from_ts, to_ts, self.epoch), Interval(refs, self._last if self._fills is None else 0))
        if self._fills is None:
            if refs:
                self._last = to_ts
            with self._ownership.publishing(ENTRIES):
                self._head.put(max(to_ts, self._head.ts), self._last)
            if not refs:  # no interval says so
                self._head.sync(self._head.ts)
        elif to_ts >= self.begins:
            self._note(replace(self._identity, begins=self._fills))
        for one in empty:
            self._storage.delete(f"{ENTRIES}/{one}")

    def _publish_interval(self, name: IntervalName, interval: Interval) -> None:
        folder, _, file = f"{ENTRIES}/{name}".rpartition("/")
        draft = self._storage.draft(folder)
        try:
            draft.sink.write(interval.to_json())
            draft.seal()
            with self._ownership.publishing_to(ENTRIES, name.to_ts):
                draft.publish(file)
        except BaseException:
            draft.discard()
            raise
        self._storage.settle(folder)

    # ---- store.json

    def begin_at(self, ts: int) -> None:
        """Give up what lies at or below `ts`: clients behind it are told so from now on."""
        if ts > self.begins:
            self._note(replace(self._identity, begins=min(ts, self.head)))

    def _note(self, identity: StoreIdentity) -> None:
        """Write store.json, as the store's owner."""
        if not self._storage.can_swap:
            with self._ownership.publishing(ENTRIES):
                self._storage.replace(STORE, identity.to_json())
        else:
            before = self._storage.versioned(STORE)
            self._ownership.check(ENTRIES)
            if self._storage.swap(STORE, before[1] if before is not None else None, identity.to_json()) is None:
                self._ownership.check(ENTRIES)
                raise LogUnavailable(f"{self}/{STORE} is being written by another process")
        self._identity = identity


def read_identity(storage: Storage) -> StoreIdentity | None:
    """store.json; None if there is none."""
    data = storage.read(STORE)
    return StoreIdentity.from_json(data, storage.path(STORE)) if data is not None else None


def check_listed(storage: Storage, intervals: Iterable[IntervalName], last: int, begins: int) -> None:
    """Raise LogUnavailable if a listing lacks the interval that ends at `last`, as another file says. Retention removes those up to
    `begins`."""
    if last > begins and all(one.to_ts != last for one in intervals):
        raise LogUnavailable(
            f"{redact(storage.path(ENTRIES))}: no interval ends at {last}, and another file says that one does",
            hint="The storage shows an old listing, as NFS may for a minute, or the file is gone: restore it.",
        )


def read_interval(storage: Storage, name: IntervalName) -> Interval:
    """The content of an interval. Raises LogCorrupt if it is not there."""
    data = storage.read(f"{ENTRIES}/{name}")
    if data is None:
        raise LogCorrupt(f"{redact(storage.path(f'{ENTRIES}/{name}'))} is gone")
    return Interval.from_json(data, storage.path(f"{ENTRIES}/{name}"))
