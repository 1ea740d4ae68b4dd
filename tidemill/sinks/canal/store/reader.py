"""Reads an entry store from any position on. Memory does not grow with the store: an hour's names, a few open segments and blocks are kept.

The server calls `refresh` now and then and `read` for each client. Nothing is written. Not for several threads at a time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from tidemill.changelog.reader import read_head_and_last, read_synced
from tidemill.changelog.storage.base import Storage
from tidemill.changelog.storage.open import open_storage
from tidemill.errors import LogError, LogUnavailable, PositionGone, SegmentGone, redact
from tidemill.sinks.canal.store import names
from tidemill.sinks.canal.store.file import SegmentFile
from tidemill.sinks.canal.store.names import ENTRIES, Interval, IntervalName, SegmentRef
from tidemill.sinks.canal.store.position import Position, StoredEntry
from tidemill.sinks.canal.store.publish import check_listed, read_identity, read_interval
from tidemill.sinks.canal.store.segment import Block
from tidemill.tso import describe

HOURS, INTERVALS, FILES, BLOCKS = 4, 256, 64, 64
"""How many are kept: lists of names, contents of intervals, open files, blocks."""
_END = 1 << 62

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Kept(Generic[K, V]):
    """The values that were asked for last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K, make: Callable[[], V]) -> V:
        found = self._values.get(key)
        if found is None:
            found = self._values[key] = make()
            if len(self._values) > self._most:
                self._values.popitem(last=False)
        self._values.move_to_end(key)
        return found

    def drop(self, key: K) -> None:
        self._values.pop(key, None)

    def clear(self) -> None:
        self._values.clear()


class EntryStoreReader:
    """The entries of a store, in order. Raises LogError if there is no store, LogCorrupt, LogUnavailable."""

    def __init__(self, location: str | Storage) -> None:
        self._storage = open_storage(location)
        self._hours: list[str] = []
        self._intervals: _Kept[str, list[IntervalName]] = _Kept(HOURS)
        self._contents: _Kept[IntervalName, Interval] = _Kept(INTERVALS)
        self._files: _Kept[str, SegmentFile] = _Kept(FILES)
        self._blocks: _Kept[tuple[str, int], Block] = _Kept(BLOCKS)
        self._begins = self._head = self._last = 0
        self.refresh()

    @property
    def is_local(self) -> bool:
        """Whether it is a folder."""
        return self._storage.local

    def begins(self) -> int:
        """Entries with a commit_ts above it are there."""
        return self._begins

    def head(self) -> int:
        """Nothing with a commit_ts at or below it is missing."""
        return self._head

    def refresh(self) -> bool:
        """Look at the store again; whether the head moved."""
        identity = read_identity(self._storage)
        if identity is None:
            raise LogError(
                f"{redact(self._storage.location)} is not an entry store: it has no {names.STORE}",
                hint="A changefeed with a canal:// sink makes it.",
            )
        head, last = read_head_and_last(self._storage, ENTRIES)
        head = max(head or read_synced(self._storage, ENTRIES) or 0, identity.begins)
        if identity.begins < self._begins or head < self._head:  # filled in front, or made again
            self._forget()
        moved = head != self._head
        if moved or identity.begins != self._begins:
            hour = names.hour_of(head)
            hours = sorted(h for h in self._storage.subfolders(ENTRIES) if names.is_hour(h) and h <= hour)
            if names.hour_of(last) not in hours:
                check_listed(self._storage, (), last, identity.begins)
            self._hours = hours
            for one in self._hours:
                if one >= names.hour_of(self._head):
                    self._intervals.drop(one)
        self._begins, self._head, self._last = identity.begins, head, last
        return moved

    def read(self, after: Position, most_entries: int, most_bytes: int) -> list[StoredEntry]:
        """Entries behind a position, in order: up to `most_entries`, and up to `most_bytes` of data, but one at least if there is any.

        Fewer are returned at the head. Raises PositionGone for a position before the store's begin.
        """
        found: list[StoredEntry] = []
        for block, first in self.blocks(after):
            fits = block.fitting(first, most_bytes)
            end = min(len(block), first + most_entries - len(found), fits if found else max(fits, first + 1))
            found += block.entries(first, end)
            most_bytes -= int(block.offsets[end] - block.offsets[first])
            if end < len(block) or len(found) >= most_entries or most_bytes < 0:
                break
        return found

    def blocks(self, after: Position) -> Iterator[tuple[Block, int]]:
        """Blocks with entries behind a position, in order, and the number of the first such entry in each. All entries of a block from that
        number on lie at or below the head. Raises as `read`."""
        if after.commit_ts < self._begins:
            raise PositionGone(
                f"the entry store {redact(self._storage.location)} begins at {describe(self._begins)}; what follows "
                f"{describe(after.commit_ts)} is not in it any more",
                hint="Move the client to a later position, or fill the store in front: `tidemill replay` with a --start-ts at or below the "
                "position, while the changefeed is paused.",
            )
        try:
            yield from self._behind(after)
        except (SegmentGone, LogUnavailable):  # by retention, or by a replay; or a listing was behind
            self._forget()
            raise

    def _behind(self, after: Position) -> Iterator[tuple[Block, int]]:
        low = after
        before: list[IntervalName] = []
        for name in self._intervals_from(after.commit_ts):
            low = max(low, Position(name.from_ts, _END))
            interval = self._contents.get(name, lambda name=name: read_interval(self._storage, name))  # type: ignore[misc]
            if interval.after >= after.commit_ts:
                check_listed(self._storage, before, interval.after, self._begins)
            before = [name]
            for ref in interval.segments:
                if ref.last_ts >= low.commit_ts:
                    yield from self._of_segment(ref, low, name.to_ts)
            low = max(low, Position(name.to_ts, _END))  # a late publication of an earlier owner may reach back

    def _of_segment(self, ref: SegmentRef, low: Position, to_ts: int) -> Iterator[tuple[Block, int]]:
        file = self._files.get(ref.name, lambda: SegmentFile(self._storage, ref.name))
        places = file.ends.places
        first = int(places["last_ts"].searchsorted(places["last_ts"].dtype.type(low.commit_ts)))
        for number in range(first, len(places)):
            block = self._blocks.get((ref.name, number), lambda number=number: file.block(number))  # type: ignore[misc]
            if int(places["last_ts"][number]) > to_ts:
                block = block.until(to_ts)
            at = block.after(low)
            if at < len(block):
                yield block, at

    def _intervals_from(self, ts: int) -> Iterator[IntervalName]:
        """Intervals with entries at or above ts."""
        hour = names.hour_of(ts)
        for one in self._hours:
            if one >= hour:
                for interval in self._intervals.get(one, lambda one=one: self._list(one)):  # type: ignore[misc]
                    if interval.to_ts >= ts and interval.to_ts > self._begins:
                        yield interval

    def _list(self, hour: str) -> list[IntervalName]:
        found = [one for name in self._storage.names(f"{ENTRIES}/{hour}") if (one := names.parse_interval(name)) is not None]
        if hour == names.hour_of(self._last):
            check_listed(self._storage, found, self._last, self._begins)
        return names.valid_intervals(found, 0, self._head)

    def _forget(self) -> None:
        for kept in (self._intervals, self._contents, self._files, self._blocks):
            kept.clear()
        self._head = self._last = 0
