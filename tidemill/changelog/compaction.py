"""Compaction: joins many small segments into fewer large ones, so that reading a day costs little more than its bytes.

Neighbours are joined into a segment of their joint interval, with the same rows in batches as large as allowed. As soon as that segment has
its name, it counts, and those inside it do not. They stay for a while, because a reader may have listed them. A crash at any point leaves a
complete log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidemill.changelog.files.late_rows import LateRows, distinct, groups, sorted_rows
from tidemill.changelog.files.segment import Inspector, regrouped, write_file
from tidemill.changelog.log_format import Interval, SegmentName
from tidemill.changelog.ownership import Ownership
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import Storage
from tidemill.errors import LogCorrupt, LogError, redact
from tidemill.events import RAW_CHANGE

FAN_IN = 32
"""This many neighbours of a size are joined even if they do not fill a segment: so a row is rewritten three or four times at most."""

TARGET_BYTES = 256 << 20
"""A segment of this size is large enough, however few rows it has."""

MOST_BYTES = 1 << 30
"""Late rows are not inserted into neighbours of more bytes: the rows are sorted in memory."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """An interval in one file, with its size."""

    interval: Interval
    rows: int
    size: int


def plan(chain: Sequence[Weighed | None], target_rows: int, target_bytes: int = TARGET_BYTES) -> list[list[Weighed]]:
    """Return the groups of neighbours to join, oldest first. None in the chain stands for an interval that must not be joined."""
    groups: list[list[Weighed]] = []
    stretch: list[Weighed] = []
    for one in [*chain, None]:
        if one is not None and one.rows < target_rows and one.size < target_bytes:
            stretch.append(one)
            continue
        groups += _groups(stretch, target_rows, target_bytes)
        stretch = []
    return groups


def _groups(stretch: list[Weighed], target_rows: int, target_bytes: int) -> Iterator[list[Weighed]]:
    """Yield groups of neighbours that are all small: first those that fill a segment, then the rest by size."""
    group: list[Weighed] = []
    rows = size = 0
    for one in stretch:
        group.append(one)
        rows += one.rows
        size += one.size
        if rows >= target_rows or size >= target_bytes:
            yield group
            group, rows, size = [], 0, 0
    yield from _tiers(group, target_rows)


def _tiers(rest: list[Weighed], target_rows: int) -> Iterator[list[Weighed]]:
    """Yield neighbours of about the same size, if there are enough. Smaller ones between them are included, but do not count."""
    low, high = 0, FAN_IN
    while low < target_rows:
        run: list[Weighed] = []
        for one in [*rest, None]:
            if one is not None and one.rows < high:
                run.append(one)
                continue
            counted = [k for k, w in enumerate(run) if w.rows >= low]
            if len(counted) >= FAN_IN:
                yield run[counted[0] : counted[-1] + 1]
                return
            run = []
        low, high = high, high * FAN_IN


@dataclass(slots=True)
class Compactor:
    """Joins and removes segments of one log. It caches the row counts of files."""

    storage: Storage
    ownership: Ownership
    compression: str
    target_rows: int
    grace_s: float
    clock: Callable[[], float] = time.time
    _weights: dict[str, Weighed] = field(default_factory=dict)

    def compact(self, reader: LogReader, folder: str, budget_bytes: int) -> tuple[int, int]:
        """Join segments, reading at most about `budget_bytes`. Return the number of files joined, and the bytes read."""
        announced, chain = self._announced(reader, folder)
        joined = used = 0
        for group in [*announced, *plan([self._weigh(reader, i) for i in chain], self.target_rows)]:
            if used >= budget_bytes:
                break
            self._join(reader, folder, group)
            joined += len(group)
            used += sum(w.size for w in group)
        return joined, used

    def insert(self, reader: LogReader, folder: str, late: LateRows) -> bool:
        """Insert the late rows that belong into segments. Return False if there is a single segment, which cannot be replaced until another
        follows. Raises LogError if one is too large."""
        times = late.times()
        chain = self._joinable(reader, folder)
        ends = [(np.uint64(i.from_ts), np.uint64(i.to_ts)) for i in chain]  # as times are: else numpy compares through float64
        wanted = [bool(np.searchsorted(times, high, "right") > np.searchsorted(times, low, "right")) for low, high in ends]
        if not any(wanted):
            return True
        if len(chain) < 2:
            return False
        for begin, end in groups(chain, wanted):
            group = chain[begin:end]
            size = sum(reader.partition_bytes(interval) for interval in group)
            if size > MOST_BYTES:
                raise LogError(f"{redact(group[0].parts[0])} and its neighbours have {size} bytes: too much to insert rows into them")
            rows = distinct([*sorted_rows(reader, group), *late.between(group[0].from_ts, group[-1].to_ts)])
            self._replace(folder, group, regrouped(rows))
        return True

    def _joinable(self, reader: LogReader, folder: str) -> list[Interval]:
        """Do the announced join if it was not done yet, and return the intervals that may be joined now, which are neighbours."""
        announced, chain = self._announced(reader, folder)
        for group in announced:
            self._join(reader, folder, group)
        return list(reader.listing(folder).intervals if announced else chain)

    def _announced(self, reader: LogReader, folder: str) -> tuple[list[list[Weighed]], Sequence[Interval]]:
        """Return the announced join if it was not done yet, and the intervals that another join may use.

        A previous writer may still be working on the announced join, so the joined segment may appear at any time. No segment may overlap
        it in part then. So if the join cannot be done any more, nothing is joined until the log's start is past it: another announcement
        would replace this one.
        """
        chain = reader.listing(folder).intervals
        joining = self.ownership.joining(folder)
        if joining is None:
            return [], chain
        from_ts, to_ts = joining
        if to_ts <= reader.identity.start_ts or any(i.from_ts <= from_ts and to_ts <= i.to_ts for i in chain):
            return [], chain
        group = [self._weigh(reader, i) for i in chain if from_ts <= i.from_ts and i.to_ts <= to_ts]
        weighed = [w for w in group if w is not None]
        if len(weighed) < len(group) or not weighed or (weighed[0].interval.from_ts, weighed[-1].interval.to_ts) != joining:
            return [], []  # retention has removed it since
        return [weighed], [i for i in chain if i.from_ts >= to_ts]

    def _weigh(self, reader: LogReader, interval: Interval) -> Weighed | None:
        if len(interval.parts) > 1:
            return None
        path = interval.parts[0]
        known = self._weights.get(path)
        if known is None:
            file = reader.open_segment(path)  # only its end is read
            known = self._weights[path] = Weighed(interval, file.count_rows(), file.size)
        return known

    def _join(self, reader: LogReader, folder: str, group: list[Weighed]) -> str:
        paths = [path for w in group for path in w.interval.parts]
        expected = sum(w.rows for w in group)
        batches = (batch for path in paths for batch in reader.batches(path))
        return self._replace(folder, [w.interval for w in group], regrouped(batches), expected)

    def _replace(self, folder: str, group: Sequence[Interval], batches: Iterable[pa.RecordBatch], expected: int | None = None) -> str:
        """Publish a segment that counts instead of the neighbours in `group`, of which there are two at least. `expected`: its number of
        rows, if that is known. Return its path."""
        from_ts, to_ts = group[0].from_ts, group[-1].to_ts
        inspector = Inspector(f"compaction of {redact(self.storage.path(folder))}", from_ts, to_ts)
        draft = self.storage.draft(folder)
        try:
            write_file(draft, self.storage.path(folder), _checked(batches, inspector), RAW_CHANGE, self.compression)
            if expected not in (None, inspector.rows):
                raise LogCorrupt(f"{redact(group[0].parts[0])} and its neighbours had {expected} rows, reading them gave {inspector.rows}")
            name = str(SegmentName(from_ts, to_ts))
            with self.ownership.publishing_joined(folder, from_ts, to_ts):
                draft.publish(name)
        finally:
            draft.discard()
        self.storage.settle(folder)
        for one in group:
            self._weights.pop(one.parts[0], None)
        return self.storage.path(f"{folder}/{name}")

    def sweep(self, reader: LogReader, folder: str) -> int:
        """Remove intervals inside others that are old enough. Return the number of files."""
        chain = reader.listing(folder)
        if not chain.inside:
            return 0
        modified = {e.name: e.modified for e in self.storage.entries(folder)}
        limit = self.clock() - self.grace_s
        removed = 0
        for one in chain.inside:
            around = next((i for i in chain.between(one.from_ts, one.to_ts) if i.from_ts <= one.from_ts and one.to_ts <= i.to_ts), None)
            if around is None or any(modified.get(self.storage.name(p).rpartition("/")[2], limit + 1) > limit for p in around.parts):
                continue
            for path in one.parts:
                self.storage.delete(self.storage.name(path))
                self._weights.pop(path, None)
                removed += 1
        return removed


def _checked(batches: Iterable[pa.RecordBatch], inspector: Inspector) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        inspector.check(batch)
        yield batch
