"""One task: delivers a work item, from mapped segments to an acknowledged sink.

read → merge → filter → split → targets → arrange → encode → deliver, chunk by chunk, then flush. The task checks the fence before it
delivers a chunk and before the flush; the sink checks it while it waits. A TidemillError is returned as a TaskFailure. Any other exception
fails Spark's task, and with it the job.
"""

from __future__ import annotations

import os
import time

import numpy as np
import numpy.typing as npt

from tidemill.changelog.storage.outcomes import error_of, outcome_of
from tidemill.delivery.epoch_fence import FenceCheck
from tidemill.delivery.inputs import table_pack
from tidemill.delivery.task.chunker import MAX_ROWS, Chunk, Chunker
from tidemill.delivery.task.claim import Claim
from tidemill.delivery.task.compiled_tables import Compiled
from tidemill.delivery.task.encoder import limits_of
from tidemill.delivery.task.reader import Sources
from tidemill.delivery.work_item import TaskFailure, TaskResult, TaskStats, WorkItem
from tidemill.errors import TidemillError
from tidemill.kernels.flow.arrange import arrange, hashed_targets, split
from tidemill.records import ROW
from tidemill.sinks.base import BatchContext, CountsMissed
from tidemill.sinks.spec import open_task_sink

Rows = npt.NDArray[np.void]


def run(item: WorkItem) -> TaskResult:
    """Run an item. Returns what it did, or how it failed."""
    try:
        return deliver(item)
    except TidemillError as error:
        return _failure(item, error)
    except FileNotFoundError:  # a path that this machine does not have
        raise
    except OSError as error:  # a disk or mount of this machine, under a pack, a spool or a sink's file
        return _failure(item, error_of(outcome_of(error), str(error.filename or item), error.strerror or error))


def _failure(item: WorkItem, error: TidemillError) -> TaskFailure:
    return TaskFailure(item.number, error.code, str(error), error.retryable)


def deliver(item: WorkItem) -> TaskStats:
    """Run an item. Raises the errors of the log, the rows, the encoder and the sink, and Fenced if another epoch has begun."""
    clock = time.perf_counter_ns
    cpu = time.process_time_ns()
    stats = TaskStats(item.number, worker=os.getpid(), began_ns=time.time_ns())
    check_fence = FenceCheck(item.fence, item.epoch)
    check_fence(now=True)
    compiled = compiled_for(item.pack)
    targets = compiled.pack.targets
    slow, skipped = compiled.slow_rows, compiled.skipped_rows
    compiled.take_corrupted()  # drop what an attempt that failed has left
    compiled.begin()
    sink = open_task_sink(item.sink)
    sink.begin(_context(item, compiled, check_fence))
    try:
        owned = owned_targets(len(targets), item.share, item.shares)
        claim = Claim(compiled, owned) if item.shares > 1 else None
        chunker = Chunker(Sources(item.chains, item.from_ts, item.to_ts, item.ranges, claim), compiled, owned)
        shaper = Shaper(compiled, owned)
        then = clock()
        for chunk in chunker:
            rows, groups = shaper.shape(chunk)
            now = clock()
            stats.route_ns += now - then
            messages = compiled.encode(rows, groups)
            then = clock()
            stats.encode_ns += then - now
            check_fence()
            sink.deliver(messages, targets)
            stats.rows += len(rows)
            stats.messages += len(messages)
            stats.bytes_out += messages.bytes
            now = clock()
            stats.deliver_ns += now - then
            then = now
        now = clock()
        stats.route_ns += now - then
        for messages in compiled.finish():
            sink.deliver(messages, targets)
            stats.messages += len(messages)
            stats.bytes_out += messages.bytes
        check_fence(now=True)
        then = clock()
        stats.deliver_ns += then - now
        stats.acked = sink.flush()
        stats.flush_ns = clock() - then
    except BaseException:
        sink.abandon()
        raise
    if isinstance(sink, CountsMissed):
        stats.missed_rows, stats.missed = sink.missed()
    stats.rows_read = chunker.rows_seen + (claim.left_out if claim is not None else 0)
    stats.corrupted_rows, stats.corrupted = compiled.take_corrupted()
    stats.slow_rows, stats.skipped_rows = compiled.slow_rows - slow, compiled.skipped_rows - skipped
    stats.cpu_ns = time.process_time_ns() - cpu
    return stats


def _context(item: WorkItem, compiled: Compiled, check_fence: FenceCheck) -> BatchContext:
    zone, limit = compiled.pack.output.zone, int(limits_of(compiled.pack).min())
    return BatchContext(item.feed, item.batch, item.epoch, item.from_ts, item.to_ts, item.number, check_fence, zone, limit, item.items)


def owned_targets(targets: int, share: int, shares: int) -> npt.NDArray[np.uint8]:
    """A byte for each target: 1 if it belongs to this share."""
    owned = np.zeros(max(targets, 1), np.uint8)
    owned[share::shares] = 1
    return owned


def compiled_for(path: str) -> Compiled:
    """What this process has built from a pack; built once."""
    loaded = table_pack.load(path)
    if "compiled" not in loaded.made:
        loaded.made["compiled"] = Compiled(loaded)
    compiled: Compiled = loaded.made["compiled"]
    return compiled


class Shaper:
    """Turns a chunk into rows for the encoder: filtered, updates split, targets found, grouped by target and in order.

    Its arrays are reused for every chunk.
    """

    def __init__(self, compiled: Compiled, owned: npt.NDArray[np.uint8], max_rows: int = MAX_ROWS) -> None:
        self._compiled, self._owned = compiled, owned
        self._split = np.zeros(2 * max_rows, ROW)
        self._out = np.zeros(2 * max_rows, ROW)
        self._counts = np.zeros(len(owned), np.int32)
        self._seen, self._order, self._starts = (np.zeros(2 * max_rows + 1, np.int32) for _ in range(3))
        self._places = tuple(a.ctypes.data for a in (owned, self._counts, self._seen, self._order, self._starts, self._out))

    def shape(self, chunk: Chunk) -> tuple[Rows, npt.NDArray[np.int32]]:
        """The rows, and the number of the first row of each group. Valid until the next chunk."""
        rows = self._compiled.kept(chunk.rows)
        if chunk.may_split or chunk.keep:
            rows = self._split_updates(rows, chunk)
        if chunk.hashed:
            hashes = self._hashes(rows)
            hashed_targets(len(rows), rows.ctypes.data, self._compiled.rules_address, hashes.ctypes.data)
        groups = arrange(len(rows), rows.ctypes.data, *self._places)
        return self._out[: self._starts[groups]], self._starts[: groups + 1]

    def _hashes(self, rows: Rows) -> npt.NDArray[np.uint32]:
        """The hashes of the rows that have no target yet."""
        without = rows["target"] < 0
        if without.all():
            return self._compiled.hashes(rows)
        hashes = np.zeros(len(rows), np.uint32)
        hashes[without] = self._compiled.hashes(rows[without])
        return hashes

    def _split_updates(self, rows: Rows, chunk: Chunk) -> Rows:
        changed = self._compiled.changed(rows) if chunk.may_split else None
        flags = changed.ctypes.data if changed is not None else 0
        n = split(len(rows), rows.ctypes.data, flags, chunk.keep, self._split.ctypes.data)
        return self._split[:n]
