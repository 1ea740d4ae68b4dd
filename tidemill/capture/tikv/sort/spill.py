"""Writes what does not fit into memory to disk, in parallel with ingest: rows that wait to be sealed, and prewrites.

One worker writes, in the order of the requests. The ingest thread takes records out of the matcher and goes on; the records hold their
bytes until they are written. `finish` takes in what has been written since. Nothing here waits for a disk.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tidemill.capture.tikv.receive.matcher import CAUSES, Matcher, Violation, size_of
from tidemill.capture.tikv.receive.memory import Array, Chunks
from tidemill.capture.tikv.regions.actions import RowSeen
from tidemill.capture.tikv.sort.partition import PartitionLog
from tidemill.capture.tikv.sort.runs import Packer, Run, write_run
from tidemill.capture.tikv.sort.sorter import Plan, Sorter
from tidemill.changelog.storage.outcomes import Outcome, outcome_of
from tidemill.kernels.address import address
from tidemill.kernels.receive.layout import ACTIVE, DELETE, F_DATA, F_WAIT, P_BYTES, P_COUNT, PUT, ROW, V_EMPTY_PUT, V_NO_OP, V_UNMATCHED
from tidemill.kernels.receive.seal import release
from tidemill.kernels.receive.spill import commit_best, join

LOT = 128 << 20  # bytes of rows and their records that go to disk at a time, where nothing else is said


@dataclass(slots=True, eq=False)
class _Writing:
    """Records that are being written to disk. They hold their bytes until then; `chunk` is reserved for the run."""

    rows: Array
    chunk: int
    job: Callable[[], Run]
    future: Future[Run]
    bytes: int  # of memory
    partition: int = -1
    starts: frozenset[int] = frozenset()  # transactions of the prewrites
    merged: tuple[Run, ...] = ()  # runs that are being merged, instead of `rows`

    @property
    def refusal(self) -> str:
        """Why the records could not be written now (no space, a disk that does not answer); empty if they were, or while it is not known.
        They are still in memory."""
        error = self.future.exception() if self.future.done() else None
        return str(error) if isinstance(error, OSError) and outcome_of(error) in (Outcome.FULL, Outcome.AWAY) else ""

    def taken(self, chunks: Chunks) -> Run:
        """Return the written run, which holds its bytes from now on; the records in memory no longer hold theirs. Raises OSError."""
        run = self.future.result()
        chunks.fill(self.chunk, run.files, len(run.rows))
        if self.merged:
            for one in self.merged:
                chunks.refs[one.chunk] -= len(one.rows) - one.at
        else:
            release(address(chunks.refs), address(self.rows), len(self.rows))
        return run


class _Spill:
    """The base of both kinds: records being written, the oldest first."""

    def __init__(self, disk: Executor) -> None:
        self._disk = disk
        self._writing: deque[_Writing] = deque()
        self._packer, self._used = Packer(), False

    @property
    def bytes(self) -> int:
        """Bytes of memory that are freed when all is written."""
        return sum(one.bytes for one in tuple(self._writing))

    @property
    def refusal(self) -> str:
        """Why some records could not be written (no space); empty: all could. Any thread may ask: it reads a copy."""
        return next((text for one in tuple(self._writing) if (text := one.refusal)), "")

    def try_again(self) -> None:
        """Write again what could not be written."""
        for one in self._writing:
            if one.refusal:
                one.future = self._disk.submit(one.job)

    def trim(self) -> None:
        """Free the memory that writing takes, if nothing was written since the last call."""
        if not self._used and not self._writing:
            self._packer = Packer()
        self._used = bool(self._writing)

    def futures(self) -> list[Future[Run]]:
        """Return the futures of the writes."""
        return [one.future for one in self._writing]


class RowSpill(_Spill):
    """Spills rows of partitions, `lot` bytes at a time. `logs` get the runs, at most about `most_runs` in all: beyond that, `fan_in` runs
    are merged into one."""

    def __init__(
        self, matcher: Matcher, logs: Sequence[PartitionLog], disk: Executor, most_runs: int = 512, fan_in: int = 32, lot: int = LOT
    ) -> None:
        super().__init__(disk)
        self.lot = lot
        self.matcher, self.logs = matcher, logs
        self.most_runs, self.fan_in = most_runs, fan_in
        self.merges = 0

    def busy(self, partition: int) -> bool:
        """Return whether rows of the partition are being written: it cannot be sealed without them."""
        return any(one.partition == partition for one in self._writing)

    def begin(self) -> int:
        """Send rows of the largest partition to disk, the newest. Return their number."""
        matcher = self.matcher
        p = int(np.argmax(matcher.parts[:, P_BYTES]))
        if not matcher.parts[p, P_COUNT]:
            return 0
        rows, size = matcher.take_newest(p, self.lot)
        chunk = matcher.chunks.reserve()
        job = partial(self.logs[p].write, rows, chunk, self._packer)
        self._used = True
        self._writing.append(_Writing(rows, chunk, job, self._disk.submit(job), size, p))
        return len(rows)

    def finish(self, sealing: Container[int]) -> None:
        """Give what is written to its partitions, except those that are being sealed."""
        self._leave_as_they_were()
        done = [one for one in self._writing if one.future.done() and not one.refusal and one.partition not in sealing]
        for one in done:
            self._writing.remove(one)
            self.logs[one.partition].add(one.taken(self.matcher.chunks))
            if not one.merged:
                self.matcher.recycle(one.rows)
        if done:
            self.matcher.chunks.collect()
            self._bound(sealing)

    def _bound(self, sealing: Container[int]) -> None:
        """Merge runs if there are too many: a catch-up may last for days, and a seal merges all runs again."""
        if sum(log.runs for log in self.logs) <= self.most_runs or any(one.merged for one in self._writing):
            return
        p = max((p for p in range(len(self.logs)) if p not in sealing), key=lambda p: self.logs[p].runs, default=-1)
        if p < 0 or self.logs[p].runs < 2:
            return
        runs = tuple(self.logs[p].take_smallest(self.fan_in))
        chunk = self.matcher.chunks.reserve()
        job = partial(self.logs[p].merge, runs, chunk, self._packer)
        self._used = True
        self._writing.append(_Writing(np.empty(0, ROW), chunk, job, self._disk.submit(job), 0, p, merged=runs))
        self.merges += 1

    def _leave_as_they_were(self) -> None:
        """Keep the runs that could not be merged for lack of disk space; allow this many runs from now on."""
        for one in [one for one in self._writing if one.merged and one.refusal]:
            self._writing.remove(one)
            for run in one.merged:
                self.logs[one.partition].add(run)
            self.matcher.chunks.refs[one.chunk] = 0
            self.matcher.chunks.let_go(one.chunk)
            self.most_runs = 2 * sum(log.runs for log in self.logs)

    def last(self, partition: int) -> int:
        """Return the largest commit_ts of a partition's rows that are being written; 0: none."""
        rows = [array for one in self._writing if one.partition == partition for array in (one.rows, *(run.rows for run in one.merged))]
        return max((int(array["commit_ts"].max()) for array in rows if len(array)), default=0)


@dataclass(slots=True, eq=False)
class _Spilled:
    """A run of prewrites: a mark per row that was consumed or whose subscription ended, the number of the others, their subscriptions."""

    run: Run
    used: Array
    left: int
    subs: Array

    @classmethod
    def of(cls, run: Run) -> _Spilled:
        n = len(run.rows)
        return cls(run, np.zeros(n, np.uint8), n, np.flatnonzero(np.bincount(run.rows["sub"])))


class PrewriteSpill(_Spill):
    """Keeps the matcher's pending prewrites within a budget. The largest transactions go to disk, and their COMMITs are joined in bulk.
    COMMITs of transactions that are being written wait until they are on disk."""

    def __init__(self, matcher: Matcher, folder: Path, disk: Executor, budget: int = 256 << 20) -> None:
        super().__init__(disk)
        self.matcher, self.folder, self.budget = matcher, folder, budget
        self.written = 0
        self._sealer = Sorter()
        self._runs: list[_Spilled] = []
        self.some_ended = False  # subscriptions ended: their prewrites on disk are useless

    @property
    def busy(self) -> bool:
        """Whether prewrites are being written."""
        return bool(self._writing)

    def relieve(self) -> bool:
        """If prewrites are above the budget, send some to disk, down to half of it."""
        matcher = self.matcher
        if matcher.prewrite_bytes() <= self.budget:
            return False
        which = matcher.victims(matcher.prewrite_bytes() - self.budget // 2)
        if not len(which):
            return False
        rows = matcher.pool[which]
        np.add.at(matcher.chunks.refs, rows["chunk"], 1)
        starts = frozenset(np.unique(rows["start_ts"]).tolist())
        matcher.mark_spilled(set(starts))
        matcher.discard(which)
        chunk = matcher.chunks.reserve()
        job = partial(self._write, rows, chunk, self._packer)
        self._used = True
        self._writing.append(_Writing(rows, chunk, job, self._disk.submit(job), size_of(rows), starts=starts))
        return True

    def _write(self, rows: Array, chunk: int, packer: Packer) -> Run:
        """Write a run, on the disk worker's thread."""
        run = write_run(self.folder, by_transaction(packer.sorter, rows.copy()), chunk, packer)
        run.rows["start_ts"] = run.rows["commit_ts"]
        run.rows["commit_ts"] = 0
        return run

    def finish(self) -> None:
        """Take in what is written, oldest first."""
        if not self._writing or not self._writing[0].future.done():
            return
        while self._writing and self._writing[0].future.done() and not self._writing[0].refusal:
            one = self._writing.popleft()
            run = one.taken(self.matcher.chunks)
            self._runs.append(_Spilled.of(run))
            self.written += len(run.rows)
        self.matcher.chunks.collect()

    def join(self) -> list[Violation]:
        """Join the late COMMITs and ROLLBACKs, except those of transactions that are being written. Return the violations of the protocol:
        for each subscription, the first row that shows one. Some subscriptions may have ended already.

        A key may have been prewritten several times, and a scan delivers an older generation after a newer one: any run, or the late row
        itself, may have the highest. So all runs are searched."""
        matcher = self.matcher
        late = matcher.take_late()
        if self._writing and len(late):
            waits = np.isin(late["start_ts"], np.array(sorted(self._on_the_way()), np.int64))
            matcher.put_late(late[waits])
            late = late[~waits]
        if not len(late):
            return []
        plan = by_transaction(self._sealer, late.copy())
        best = np.where(late["flags"] & F_DATA, address(late) + ROW.itemsize * np.arange(len(late)), 0)
        for spilled in reversed(self._runs):
            self._search(spilled, late, plan, best)
        broken = self._deliver(late, plan, best)
        once = np.zeros(len(late), bool)
        once[plan.order[: plan.count]] = True
        broken += self._broken(late[once & (best == 0) & (late["op"] != 0) & (late["flags"] & F_WAIT == 0)], V_UNMATCHED)
        matcher.release(late)
        self._forget([s for s in self._runs if not s.left])
        first: dict[int, Violation] = {}
        for one in sorted(broken, key=lambda v: v.row.commit_ts):
            first.setdefault(one.sub, one)
        return list(first.values())

    def _broken(self, rows: Array, cause: int) -> list[Violation]:
        """Return the violation that each row shows, one per subscription: the first."""
        found = []
        for sub in np.unique(rows["sub"]).tolist():
            own = rows[rows["sub"] == sub]
            row = own[np.argmin(own["commit_ts"])]
            key = ctypes.string_at(int(row["key"]), int(row["key_len"]))
            seen = RowSeen(int(row["commit_ts"]), int(row["start_ts"]), key)
            found.append(Violation(sub, self.matcher.resolved(sub), CAUSES[cause], seen))
        return found

    def _on_the_way(self) -> set[int]:
        return {ts for one in self._writing for ts in one.starts}

    def _search(self, spilled: _Spilled, late: Array, plan: Plan, best: Array) -> None:
        """Search a run for the prewrites of late rows. What is found is consumed."""
        rows = spilled.run.rows
        join(address(late), address(plan.order), plan.count, address(rows), len(rows), address(best), address(spilled.used))
        self._let_go_used(spilled)

    def _let_go_used(self, spilled: _Spilled) -> None:
        left = len(spilled.used) - int(np.count_nonzero(spilled.used))
        self.matcher.chunks.refs[spilled.run.chunk] -= spilled.left - left
        spilled.left = left

    def _deliver(self, late: Array, plan: Plan, best: Array) -> list[Violation]:
        """Put the COMMITs that found their prewrites among the rows. Each row gets a hold of its own."""
        matcher = self.matcher
        out = np.empty(plan.count, ROW)
        rows = out[: commit_best(address(late), address(plan.order), plan.count, address(best), address(out))]
        subs = matcher.subs[rows["sub"]]
        no_op = ~np.isin(rows["op"], (PUT, DELETE))
        empty = (rows["op"] == PUT) & (rows["value_len"] == 0)
        fresh = (rows["commit_ts"] > subs["since"]) & ~no_op & ~empty
        broken = self._broken(rows[no_op], V_NO_OP) + self._broken(rows[empty], V_EMPTY_PUT)
        for p in np.unique(subs["partition"]).tolist():
            matcher.append(p, rows[fresh & (subs["partition"] == p)])
        np.add.at(matcher.chunks.refs, rows["chunk"][fresh], 1)
        return broken

    def drop_ended(self) -> None:
        """Forget the prewrites of ended subscriptions. Call it before ids are reused: a later subscription with such an id would find them,
        and the transaction may have written the key again since."""
        if self.some_ended and not self._writing:
            self.some_ended = False
            state = self.matcher.subs["state"]
            for spilled in self._runs:
                if (state[spilled.subs] != ACTIVE).any():
                    spilled.used[state[spilled.run.rows["sub"]] != ACTIVE] = 1
                    self._let_go_used(spilled)
                    spilled.subs = spilled.subs[state[spilled.subs] == ACTIVE]
            self._forget([s for s in self._runs if not s.left])

    def _forget(self, gone: list[_Spilled]) -> None:
        matcher = self.matcher
        if not gone:
            return
        self._runs = [s for s in self._runs if s not in gone]
        for spilled in gone:
            matcher.chunks.refs[spilled.run.chunk] -= spilled.left
        left = self._on_the_way() | {int(ts) for s in self._runs for ts in np.unique(s.run.rows["start_ts"])}
        matcher.forget_spilled({int(ts) for s in gone for ts in np.unique(s.run.rows["start_ts"])} - left)
        matcher.chunks.collect()


def by_transaction(sealer: Sorter, rows: Array) -> Plan:
    """Order by (start_ts, sub, key): sort rows as usual, with start_ts and sub in the first two fields."""
    rows["commit_ts"] = rows["start_ts"]
    rows["start_ts"] = rows["sub"]
    return sealer.plan(rows)
