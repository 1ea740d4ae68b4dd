"""One partition of the change log: seals waiting rows into segments of closed intervals."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from tidemill.capture.tikv.receive.memory import Array, Chunks, records
from tidemill.capture.tikv.sort.bounds import ALL_HANDLES, Bound, Bounds
from tidemill.capture.tikv.sort.runs import Merger, Packer, Run, merge_runs, write_run
from tidemill.capture.tikv.sort.sorter import Plan, Sorter
from tidemill.changelog.log_format import MAX_BATCH_ROWS
from tidemill.changelog.spread import HandleRange
from tidemill.changelog.writer import PartitionWriter
from tidemill.errors import DiskLow, LogUnavailable
from tidemill.events import RAW_CHANGE
from tidemill.kernels.address import address
from tidemill.kernels.receive.layout import ROW
from tidemill.kernels.receive.seal import arrange, moved
from tidemill.kernels.receive.spill import same_tail

PIECE_ROWS = 1 << 18
"""Rows of a large seal that are sorted at a time; then they are merged."""
NOT_NOW = (DiskLow, LogUnavailable)
"""Errors of a seal after which the same seal is tried again."""


class KeyFilter(Protocol):
    """Decides which keys a partition keeps."""

    def __call__(self, key: bytes) -> bool: ...


@dataclass(slots=True)
class Sealed:
    """The result of a seal: the new head, the segments and rows written, and the number of holds to release per chunk."""

    head: int
    files: list[str] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    holds: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0  # of the attempt that succeeded
    sort_seconds: float = 0.0  # of sorting in it
    batches: list[pa.RecordBatch] = field(default_factory=list)  # of a partition with a key filter: copies of what was written

    def note_release(self, rows: Array) -> None:
        """Note that the holds of these rows are to be released."""
        for at in range(0, len(rows), MAX_BATCH_ROWS):  # a piece's copies stay in a CPU's cache
            counts = np.bincount(rows["chunk"][at : at + MAX_BATCH_ROWS] + 1)  # a row that points into no chunk has -1
            for chunk in (np.flatnonzero(counts) - 1).tolist():
                self.holds[chunk] = self.holds.get(chunk, 0) + int(counts[chunk + 1])

    def release_holds(self, chunks: Chunks) -> None:
        """Release the holds of the sealed rows. Call it on the matcher's thread."""
        for chunk, n in self.holds.items():
            if chunk >= 0:
                chunks.refs[chunk] -= n
        chunks.collect()


class PartitionLog:
    """Not thread-safe: `add` belongs to the thread that owns the matcher, `seal` to the sealing thread, and they never run at the same time
    for one partition. `write` and `merge` do not touch the partition's state."""

    def __init__(
        self,
        writer: PartitionWriter,
        scratch: Path,
        *,
        key_filter: KeyFilter | None = None,
        segment_bytes: int = 512 << 20,
        slice_rows: int = 262144,
    ) -> None:
        self.writer, self.scratch, self.key_filter = writer, scratch, key_filter
        self.segment_bytes, self.slice_rows = segment_bytes, slice_rows
        self._sealer = Sorter()
        self._sort_seconds = 0.0  # of the seal under way
        self._runs: list[Run] = []
        self._begun: tuple[Sealed, Array] | None = None  # a seal that has to be tried again, and its rows
        self._reached: list[tuple[Run, int]] = []  # how far the current seal gets in each run
        self._bounds = Bounds()

    @property
    def head(self) -> int:
        """The log is complete up to here."""
        return self.writer.head

    def end_of_seal(self, to_ts: int) -> int:
        """Return how far a seal that could go to `to_ts` may go. If a previous writer announced an interval that it may still publish, the
        seal ends exactly there. It waits until all rows of that interval are here."""
        pledged = self.writer.pledged_to
        if pledged is None:
            return to_ts
        return pledged if to_ts >= pledged else self.head

    @property
    def spilled_rows(self) -> int:
        """Rows of this partition on disk."""
        return sum(len(run.rows) - run.at for run in self._runs)

    def moved_away(self, table_id: int, ts: int, until: int, handles: HandleRange = ALL_HANDLES) -> None:
        """Leave rows of this physical table with ts < commit_ts <= until, and these handles, to another partition."""
        self._bounds = self._bounds.above(self.head).with_one(Bound(table_id, ts, until, handles))

    def came_back(self, table_id: int, ts: int, handles: HandleRange = ALL_HANDLES) -> None:
        """Keep rows of this physical table with commit_ts > ts again. `handles`: as they moved away before, if they did."""
        self._bounds = self._bounds.cut(ts, lambda one: (one.table_id, one.handles) == (table_id, handles))

    def moved_for_good(self, table_id: int, ts: int, last: int) -> None:
        """Note that no more rows come of a table that moved away at `ts`. None of those that have come is above `last`."""
        self._bounds = self._bounds.cut(last, lambda one: (one.table_id, one.ts) == (table_id, ts)).above(self.head)

    @property
    def last_waiting(self) -> int:
        """The largest commit_ts of rows on disk; 0: none."""
        return max((int(run.rows["commit_ts"][-1]) for run in self._runs), default=0)

    def write(self, rows: Array, chunk: int, packer: Packer) -> Run:
        """Write waiting rows (not resolved yet) to a sorted run on disk. See `write_run`."""
        return write_run(self.scratch, packer.sorter.plan(rows), chunk, packer)

    def add(self, run: Run) -> None:
        """Add a run of rows that wait."""
        self._runs.append(run)

    @property
    def runs(self) -> int:
        """Number of runs that wait."""
        return len(self._runs)

    def take_smallest(self, n: int) -> list[Run]:
        """Remove and return the smallest runs, to be merged. The partition must not be sealed until `add` returns the merged run."""
        smallest = sorted(self._runs, key=lambda run: len(run.rows) - run.at)[:n]
        self._runs = [run for run in self._runs if run not in smallest]
        return smallest

    def merge(self, runs: Sequence[Run], chunk: int, packer: Packer) -> Run:
        """Merge runs from `take_smallest` into one. Like `write`, it does not touch the partition's state."""
        return merge_runs(self.scratch, runs, chunk, packer)

    def seal(self, rows: Array, to_ts: int) -> Sealed:
        """Write all rows with head < commit_ts <= to_ts, of `rows` and of the runs, as segments; move the head to to_ts, which `reach` must
        allow. A big interval becomes several segments, each a closed interval. Raises what the log's writer raises.

        After NOT_NOW nothing is lost: call it again with the same arguments, and it continues after the last segment that it published."""
        past, self._sort_seconds = 0, 0.0
        if self._begun is None:
            done = Sealed(to_ts)
            if len(rows):
                done.note_release(rows)
                rows = self._owned(rows)
            self._begun = done, rows
        else:
            done, rows = self._begun
            past = max(self.writer.last_to, self.writer.head)
            rows = rows[rows["commit_ts"] > past]
        self._reached = []
        # The interval announced by a failed attempt may end anywhere below: only a merge splits the rows there.
        if self._runs or len(rows) > 4 * self.slice_rows or self.writer.pledged_to not in (None, to_ts):
            self._seal_merged(done, rows, to_ts, past)
        elif len(rows):
            plan = self._plan(rows)
            self._publish(done, to_ts, self._sealer.batches(plan))
        self.writer.set_head(to_ts)
        self._begun = None
        done.sort_seconds = self._sort_seconds
        self._free_sealed(done)
        return done

    def _free_sealed(self, done: Sealed) -> None:
        """Free what was sealed of the runs."""
        for run, reached in self._reached:
            done.holds[run.chunk] = done.holds.get(run.chunk, 0) + reached - run.at
            run.at = reached
        self._runs = [run for run in self._runs if run.at < len(run.rows)]

    def _plan(self, rows: Array, *, is_sorted: bool = False) -> Plan:
        begun = time.perf_counter()
        plan = self._sealer.plan(rows, is_sorted=is_sorted)
        self._sort_seconds += time.perf_counter() - begun
        return plan

    def _owned(self, rows: Array) -> Array:
        return self._bounds.keep(rows)

    def _publish(self, done: Sealed, to_ts: int | Callable[[], int], batches: Iterator[pa.RecordBatch]) -> None:
        kept: list[pa.RecordBatch] = []
        if self.key_filter is not None:
            kept = [b for b in (_filtered(batch, self.key_filter) for batch in batches) if b.num_rows]
            if not kept:
                return
            batches = iter(kept)
        before, counted = self.writer.last_to, (done.rows, done.bytes)
        try:
            done.files.append(self.writer.publish(to_ts, _counted(done, batches), trusted=True))
        except NOT_NOW:
            if self.writer.last_to == before:
                done.rows, done.bytes = counted
            else:  # the segment is published, only its head is not: another try continues after it
                done.batches += kept
            raise
        done.batches += kept

    # ------------------------------------------------------------------ big intervals

    def _seal_merged(self, done: Sealed, rows: Array, to_ts: int, past: int) -> None:
        if past >= to_ts:  # all segments are published, only the head is not
            for _ in self._slices(rows, to_ts, past, sys.maxsize):
                pass
            return
        pledged = self.writer.pledged_to
        if pledged is not None and pledged < to_ts:  # first the interval that was announced by a failed attempt, exactly as announced
            whole = self._slices(rows, pledged, past, sys.maxsize)
            self._publish(done, pledged, (b for part, _ in whole for b in self._sealer.batches(self._plan(part, is_sorted=True))))
            past, self._reached = pledged, []
        # An interval that a previous writer may still publish must be one segment, as it would be there.
        limit = sys.maxsize if pledged == to_ts else self.segment_bytes
        slices = self._slices(rows, to_ts, past, limit)
        end, more = 0, True

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal end, more
            for part, cut in slices:
                yield from self._sealer.batches(self._plan(part, is_sorted=True))
                if cut is not None:
                    end = cut
                    return
            end, more = to_ts, False

        while more:
            if self.key_filter is None:
                self._publish(done, lambda: end, batches())
            else:
                self._publish(done, to_ts, batches())  # meta keys: few
                more = False

    def _slices(self, rows: Array, to_ts: int, past: int, limit: int) -> Iterator[tuple[Array, int | None]]:
        """Yield the rows of memory and runs up to to_ts, in order, in slices that keep copies of a row together; rows up to `past` are left
        out. A slice is valid until the next is asked for. The second item is the ts at which a segment of about `limit` bytes ends, or
        None."""
        runs = list(self._runs)
        merger = Merger([*(run.rows[run.at :] for run in runs), *self._sorted_pieces(rows)])
        most = min(self.slice_rows, MAX_BATCH_ROWS)
        held, kept, size, more = records(most, ROW), 0, 0, True  # the first `kept` rows are those of the slice before
        while more:
            room = max(most - kept, most // 2, 1)
            if kept + room > len(held):  # many copies of a row
                held, before = records(kept + room, ROW), held
                moved(address(before), kept, address(held))
            n = merger.next(to_ts, held[kept : kept + room])
            more, size = n == room, size + merger.bytes
            n = kept + self._wanted(held[kept : kept + n], past)
            if not more or not n:
                kept = 0
                if n:
                    yield held[:n], None
                continue
            first_of_last = int(np.searchsorted(held["commit_ts"][:n], held["commit_ts"][n - 1])) if size >= limit else 0
            kept = n - first_of_last if first_of_last else same_tail(address(held), n)
            if first_of_last:
                size = 0
                yield held[:first_of_last], int(held["commit_ts"][n - 1]) - 1
            elif kept < n:
                yield held[: n - kept], None
            held[:kept] = held[n - kept : n].copy()
        self._reached += [(run, run.at + n) for run, n in zip(runs, merger.taken(), strict=False)]  # rows of memory have no run

    def _sorted_pieces(self, rows: Array) -> list[Array]:
        """Sort rows where they are, piece by piece: what that takes besides is as large as a piece, and fits into a CPU's cache."""
        begun, pieces = time.perf_counter(), []
        out = records(max(1, min(len(rows), PIECE_ROWS)), ROW)
        for at in range(0, len(rows), PIECE_ROWS):
            piece = rows[at : at + PIECE_ROWS]
            arrange(address(piece), address(self._sealer.order(piece)), len(piece), address(out))
            moved(address(out), len(piece), address(piece))
            pieces.append(piece)
        self._sort_seconds += time.perf_counter() - begun
        return pieces

    def _wanted(self, rows: Array, past: int) -> int:
        """Move the rows that are above `past` and belong here to the front. Return their number."""
        if len(rows) and rows["commit_ts"][0] <= past:
            above = rows[int(np.searchsorted(rows["commit_ts"], past, "right")) :].copy()
            rows = rows[: len(above)]
            rows[:] = above
        return len(self._owned(rows))


def _counted(done: Sealed, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            done.rows += batch.num_rows
            done.bytes += batch.nbytes
            yield batch


def _filtered(batch: pa.RecordBatch, keep: KeyFilter) -> pa.RecordBatch:
    """Return a copy of the rows whose keys pass the filter."""
    mask = pa.array([keep(key) for key in batch.column("key").to_pylist()], pa.bool_())
    chosen = pa.table(batch.filter(mask)).combine_chunks().to_batches()
    return chosen[0] if chosen else pa.RecordBatch.from_pylist([], schema=RAW_CHANGE)
