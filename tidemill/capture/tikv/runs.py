"""Rows on disk instead of in memory: runs of ROW records in sorted order whose bytes lie in a mapped file.

Run files are scratch: unlinked as soon as they are open, worthless after a crash (the interval is captured again). The records
hold addresses inside the mapping, so everything that works on rows in memory works on them; the page cache decides what stays in
memory.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tidemill.capture.tikv.chunks import Array, Chunks
from tidemill.capture.tikv.matcher import CAUSES, Matcher
from tidemill.capture.tikv.sealer import Plan, Sealer
from tidemill.kernels.receive.layout import ACTIVE, ROW, V_UNMATCHED, address
from tidemill.kernels.receive.spill import join, pack

BOUNCE = 16 << 20  # bytes that are packed at once


@dataclass(slots=True)
class Run:
    """Sorted rows in a mapped file."""

    rows: Array  # mapped ROW records
    chunk: int
    at: int = 0  # rows before it have been sealed


class _Scratch:
    """An unlinked file that is written once and then mapped."""

    def __init__(self, folder: Path, size: int) -> None:
        self._handle, name = tempfile.mkstemp(dir=folder, prefix=".run-")
        os.unlink(name)  # noqa: PTH108
        os.ftruncate(self._handle, max(size, 1))
        self.map = mmap.mmap(self._handle, max(size, 1))
        self.base = address(np.frombuffer(self.map, np.uint8))
        self._end = 0

    def write(self, data: memoryview) -> None:
        while len(data):
            n = os.pwrite(self._handle, data, self._end)
            self._end += n
            data = data[n:]

    def done(self) -> None:
        os.close(self._handle)


def write_run(folder: Path, plan: Plan, chunks: Chunks) -> Run:
    """The plan's rows as a run. The caller releases the rows' old chunks; the new records hold the run's."""
    total = int(plan.cuts[:, 1:].sum())
    data = _Scratch(folder, total + 64)
    index = _Scratch(folder, ROW.itemsize * plan.count)
    chunk = chunks.add((data, index))
    largest = int(plan.cuts[:, 1:].sum(axis=1).max()) if len(plan.cuts) else 0
    out = np.empty(largest + 128, np.uint8)
    lo = base = 0
    for end in plan.cuts[:, 0].tolist():
        rows = np.empty(end - lo, ROW)
        n = pack(address(plan.rows), address(plan.order), lo, end, data.base + base, address(out), address(rows))
        rows["chunk"] = chunk
        data.write(out[:n].data)
        index.write(rows.view(np.uint8).data)
        base += n
        lo = end
    data.done()
    index.done()
    chunks.refs[chunk] = plan.count
    return Run(np.frombuffer(index.map, ROW, plan.count), chunk)


@dataclass(slots=True, eq=False)
class _Spilled:
    """A run of prewrites: which have been consumed (a mark per row), and how many have not."""

    run: Run
    used: Array
    left: int


class PrewriteSpill:
    """Keeps the matcher's pending prewrites within a budget: the largest transactions go to disk, and their COMMITs are joined in
    bulk."""

    def __init__(self, matcher: Matcher, folder: Path, budget: int = 256 << 20) -> None:
        self.matcher, self.folder, self.budget = matcher, folder, budget
        self.written = 0
        self._sealer = Sealer(max_bytes=BOUNCE)
        self._runs: list[_Spilled] = []
        self.some_ended = False  # subscriptions: their prewrites on disk are of no use

    def relieve(self) -> bool:
        """Move prewrites to disk if they are above the budget, down to half of it."""
        matcher = self.matcher
        if matcher.prewrite_bytes() <= self.budget:
            return False
        which = matcher.victims(matcher.prewrite_bytes() - self.budget // 2)
        if not len(which):
            return False
        run = write_run(self.folder, self._by_transaction(matcher.pool[which]), matcher.chunks)
        run.rows["start_ts"] = run.rows["commit_ts"]
        run.rows["commit_ts"] = 0
        matcher.mark_spilled(set(np.unique(run.rows["start_ts"]).tolist()))
        matcher.discard(which)
        self._runs.append(_Spilled(run, np.zeros(len(run.rows), np.uint8), len(run.rows)))
        self.written += len(run.rows)
        return True

    def _by_transaction(self, rows: Array) -> Plan:
        """Order by (start_ts, sub, key): the row order with other words in the first two places."""
        rows["commit_ts"] = rows["start_ts"]
        rows["start_ts"] = rows["sub"]
        return self._sealer.plan(rows)

    def join(self) -> list[tuple[int, str]]:
        """Join the late COMMITs and ROLLBACKs. Returns subscriptions that broke the protocol, and how."""
        matcher = self.matcher
        late = matcher.take_late()
        if not len(late):
            return []
        plan = self._by_transaction(late.copy())
        found = np.zeros(len(late), np.uint8)
        for spilled in reversed(self._runs):  # the newest run has the newest generation
            self._join_run(spilled, late, plan, found)
        once = np.zeros(len(late), bool)
        once[plan.order[: plan.count]] = True
        bad = late[once & (found == 0) & (late["op"] != 0) & (matcher.subs[late["sub"]]["state"] == ACTIVE)]
        matcher.release(late)
        self._forget([s for s in self._runs if not s.left])
        return [(int(sub), CAUSES[V_UNMATCHED]) for sub in np.unique(bad["sub"])]

    def _join_run(self, spilled: _Spilled, late: Array, plan: Plan, found: Array) -> None:
        matcher, run, used = self.matcher, spilled.run, spilled.used
        out = np.empty(plan.count, ROW)
        before = np.count_nonzero(used)
        got = join(
            address(late), address(plan.order), plan.count, address(run.rows), len(run.rows), address(out), address(found), address(used)
        )
        consumed = int(np.count_nonzero(used) - before)
        rows = out[:got]
        subs = matcher.subs[rows["sub"]]
        fresh = rows["commit_ts"] > subs["checkpoint"]
        for p in np.unique(subs["partition"]).tolist():
            matcher.append(p, rows[fresh & (subs["partition"] == p)])
        matcher.chunks.refs[run.chunk] -= consumed - int(fresh.sum())
        spilled.left -= consumed

    def drop_ended(self) -> None:
        """Forget runs of which every prewrite that is left belongs to an ended subscription. Call it before ids are used again."""
        if self.some_ended:
            self.some_ended = False
            state = self.matcher.subs["state"]
            self._forget([s for s in self._runs if not ((s.used == 0) & (state[s.run.rows["sub"]] == ACTIVE)).any()])

    def _forget(self, gone: list[_Spilled]) -> None:
        matcher = self.matcher
        if not gone:
            return
        self._runs = [s for s in self._runs if s not in gone]
        for spilled in gone:
            matcher.chunks.refs[spilled.run.chunk] -= spilled.left
        left = {int(ts) for s in self._runs for ts in np.unique(s.run.rows["start_ts"])}
        matcher.forget_spilled({int(ts) for s in gone for ts in np.unique(s.run.rows["start_ts"])} - left)
        matcher.chunks.collect()
