"""The receive path without sockets: messages in; sealed segments, and events for the region state machine, out.

Threads: the event loop puts messages into the `Inbox`. One ingest thread owns scanner, matcher and budgets. One or more sealing threads
sort, gather, write and sync. One more writes what does not fit into memory (`workers`). Kernels and file calls release the GIL.

The ingest thread never waits for a disk. When memory is used up and all that can go to disk is on its way, it takes no messages until some
of it is written: the inbox fills, the streams are not read, and flow control stops the stores.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tidemill.capture.tikv.feed.inbox import EndOfStream, Inbox, Message
from tidemill.capture.tikv.receive.decode import Batch, Scanner, lots
from tidemill.capture.tikv.receive.matcher import FOREVER, Control, Initialized, Matcher, RegionError, Skipped, Violation
from tidemill.capture.tikv.receive.memory import Array
from tidemill.capture.tikv.receive.seal_spans import SealTraces
from tidemill.capture.tikv.receive.workers import Threads, Workers
from tidemill.capture.tikv.regions.actions import RowSeen
from tidemill.capture.tikv.sort.partition import PartitionLog, Sealed
from tidemill.capture.tikv.sort.runs import Run
from tidemill.capture.tikv.sort.sealing import AGAIN, Sealing
from tidemill.capture.tikv.sort.spill import PrewriteSpill, RowSpill
from tidemill.capture.tikv.watchdog.detect import Survey
from tidemill.changelog.storage.retry import StorageRetry
from tidemill.kernels.receive.layout import ACTIVE, P_BYTES, X_NLATE, X_NSUBS
from tidemill.metrics.histogram import Histograms
from tidemill.process import threads

LATE_JOIN = 65536
LEAST_LOT = 1 << 16
"""Bytes of rows that are worth a file on disk."""
NOBODY = -1
"""The sub-range of a subscription that was replaced or dropped."""
TRIM_S = 10.0
"""After so many seconds without use free memory goes back to the system."""
QUIET_S = 1.0
"""How often an ingest thread to which nothing comes looks around."""


@dataclass(frozen=True, slots=True)
class ScanDone:
    """The incremental scan of a sub-range is complete."""

    sub_range: int


@dataclass(frozen=True, slots=True)
class SubRangeFailed:
    """The store ended the subscription of a sub-range; `error` is a serialised cdcpb.Error."""

    sub_range: int
    resolved: int
    error: bytes


@dataclass(frozen=True, slots=True)
class ProtocolBroken:
    """The store broke the protocol, as `row` shows, and the subscription was ended here. The sub-range is complete up to `resolved`, which
    may be less than reported before."""

    sub_range: int
    resolved: int
    cause: str
    row: RowSeen


@dataclass(frozen=True, slots=True)
class RowLost:
    """Like ProtocolBroken, but the log is already complete up to `head` and `row` is not above it, so the row cannot be written.
    The sub-range may have ended already."""

    sub_range: int
    region: int
    cause: str
    row: RowSeen
    head: int


@dataclass(frozen=True, slots=True)
class SubRangeFrozen:
    """The watchdog ended the sub-range's subscription."""

    sub_range: int
    resolved: int


@dataclass(frozen=True, slots=True)
class StreamLost:
    """A stream ended (`reason`), and with it the subscriptions of these sub-ranges, given with their resolved ts. `bad`: its bytes are
    malformed, so it has to be cancelled."""

    stream: int
    sub_ranges: tuple[tuple[int, int], ...]
    reason: str
    bad: bool = False


@dataclass(frozen=True, slots=True)
class RowSkipped:
    """The store sent a row without a key, of a kind that this version does not know. Only the first is reported."""

    sub_range: int


Event = ScanDone | SubRangeFailed | ProtocolBroken | RowLost | SubRangeFrozen | StreamLost | RowSkipped


@dataclass(frozen=True, slots=True)
class Options:
    """Budgets in bytes, times in seconds."""

    batch_bytes: int = 1 << 20  # fits the second-level cache
    linger: float = 0.005  # a stream hands its messages over together; this gathers those of several
    seal_every: float = 0.05
    prewrite_budget: int = 256 << 20
    row_budget: int = 512 << 20
    memory: int = 1 << 30  # in all; see of_quota
    inbox: int = 64 << 20
    most_runs: int = 512  # runs of rows on disk, over all partitions; more are merged
    fan_in: int = 32

    @classmethod
    def of_quota(cls, quota: int) -> Options:
        """Return the budgets for one quota: half of it for waiting rows, a quarter for prewrites, a sixteenth for messages."""
        return cls(prewrite_budget=quota // 4, row_budget=quota // 2, memory=quota, inbox=min(64 << 20, max(1 << 20, quota // 16)))


@dataclass(slots=True)
class Stats:
    """Counters of the ingest thread. Other threads may read them."""

    messages: int = 0
    bytes: int = 0
    sealed_rows: int = 0
    sealed_bytes: int = 0
    segments: int = 0
    spilled_rows: int = 0
    causes: Counter[str] = field(default_factory=Counter)  # of violations
    cpu: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("scan", "match", "spill", "take", "seal"), 0.0))
    stages: Histograms = field(default_factory=lambda: Histograms(("feed", "sort", "seal")))
    """Seconds: of taking in one lot of messages; of sorting the rows of a seal; of a seal as a whole, until its segments are published."""

    @property
    def violations(self) -> int:
        """How often a store broke the protocol."""
        return self.causes.total()


class Receiver:
    """Ingests and seals. `on_events`, `on_sealed` and `on_failure` are called on the ingest thread."""

    def __init__(
        self,
        logs: Sequence[PartitionLog],
        scratch: Path,
        on_events: Callable[[list[Event]], None],
        on_sealed: Callable[[int, Sealed], None] = lambda partition, done: None,
        on_failure: Callable[[BaseException], None] = lambda failure: None,
        options: Options | None = None,
        note_import: Callable[[int, int], None] = lambda ts, table_id: None,
        workers: Workers | None = None,
        retry: StorageRetry | None = None,
        traced: SealTraces | None = None,
    ) -> None:
        """`note_import` records that a physical import wrote rows of a table at a commit_ts. It is called on a sealing thread, before any
        segment that reaches that ts. `retry` is told of seals that wait for storage. `traced` makes traces of seals."""
        self._imports: set[tuple[int, int]] = set()  # (commit_ts, physical table id) already recorded
        self.options = options or Options()
        self.inbox = Inbox(self.options.inbox, keep=self.options.memory // 4)
        self._next_trim = 0.0
        self.crowded = False
        """Memory is short: no scan should begin if it can wait. Set by the ingest thread, read by others."""
        self._evacuate_at = 0
        self.logs = list(logs)
        self.matcher = Matcher(len(self.logs))
        self.workers = workers or Threads()
        self.prewrites = PrewriteSpill(self.matcher, scratch, self.workers.spill, self.options.prewrite_budget)
        most_runs, fan_in, lot = self.options.most_runs, self.options.fan_in, max(self.options.row_budget // 4, LEAST_LOT)
        self.spilling = RowSpill(self.matcher, self.logs, self.workers.spill, most_runs, fan_in, lot)
        self.stats = Stats()
        self.failure: BaseException | None = None
        self.ceilings: Array = np.full(len(self.logs), FOREVER, np.int64)
        self._on_events, self._on_sealed, self._on_failure = on_events, on_sealed, on_failure
        self._traced = traced
        self._scanner = Scanner(self.matcher.chunks)
        self._sealing = Sealing(self.logs, self.workers, note_import, retry, on_done=self.inbox.wake)
        self._seal_begun_to: Array = np.zeros(len(self.logs), np.int64)  # how far the latest seal goes
        self.short_of_disk = False
        """The disk of the scratch files is low: nothing is spilled. Set by other threads."""
        self._spill_again_at = 0.0
        self._stop = threading.Event()
        self._calls: deque[Callable[[], None]] = deque()
        self._stirred = True
        self._over: threading.Event | None = None
        """Of the ingest thread: it has ended."""
        self._next_seal = 0.0
        self._ended: set[int] = set()  # ended streams
        self._sub_of: dict[int, int] = {}  # subscription by sub-range; the matcher's records have the way back

    # ------------------------------------------------------------------ from other threads

    def start(self) -> None:
        """Start the ingest thread."""
        self._over = threads.begin(self._run)

    def call(self, function: Callable[[], None]) -> None:
        """Run a function on the ingest thread, before any message that is put into the inbox from now on."""
        self._calls.append(function)
        if len(self._calls) <= 1:  # otherwise another one is still there, and whoever added it wakes the thread, which takes both
            self.inbox.wake()

    def stop(self) -> None:
        """Take what is in the inbox, seal what is resolved, and end. An error stays in `failure`."""
        self._stop.set()
        self.inbox.wake()
        if self._over is not None:
            self._over.wait()
        self.workers.shutdown()

    # ------------------------------------------------------------------ subscriptions (ingest thread, through `call`)

    def place(self, sub_range: int, resolved_ts: int, partition: int) -> None:
        """Add a sub-range without a subscription: it holds its partition's head at `resolved_ts`."""
        self._bind(sub_range, self.matcher.place(resolved_ts, partition))

    def subscribe(
        self,
        sub_range: int,
        stream: int,
        region_id: int,
        request_id: int,
        checkpoint: int,
        lo: bytes,
        hi: bytes,
        partition: int,
        since: int | None = None,
    ) -> None:
        """Add the subscription of a sub-range, before its register is sent. It replaces the sub-range's previous record. lo, hi: raw keys.
        `since`: as in `Matcher.subscribe`."""
        if stream in self._ended:  # the region state machine does not know yet
            self.place(sub_range, checkpoint, partition)
            self._on_events([StreamLost(stream, ((sub_range, checkpoint),), "the stream is over")])
            return
        request = request_id if self.matcher.mux[stream] else 0
        self._bind(sub_range, self.matcher.subscribe(stream, region_id, request, checkpoint, lo, hi, partition, since))

    def _bind(self, sub_range: int, sub: int) -> None:
        before = self._sub_of.get(sub_range)
        self._sub_of[sub_range] = sub
        self.matcher.subs["sub_range"][sub] = sub_range
        if before is not None:
            self._unbind(before)

    def _unbind(self, sub: int) -> None:
        self.matcher.subs["sub_range"][sub] = NOBODY
        self.matcher.drop(sub)
        self.prewrites.some_ended = True

    def _sub_range_of(self, sub: int) -> int | None:
        sub_range = int(self.matcher.subs["sub_range"][sub])
        return sub_range if sub_range != NOBODY else None

    def drop(self, sub_ranges: Sequence[int]) -> None:
        """Forget sub-ranges: others have replaced them, or their span is not captured any more."""
        for sub_range in sub_ranges:
            self._unbind(self._sub_of.pop(sub_range))

    def open_stream(self, stream: int, multiplexed: bool) -> None:
        """Begin a stream in a free slot."""
        self._ended.discard(stream)
        self.matcher.set_multiplexed(stream, multiplexed)

    def end_stream(self, stream: int, reason: str, *, bad: bool = False) -> None:
        """End a stream. Reports the sub-ranges that lost their subscription."""
        self._ended.add(stream)
        subs = self.matcher.end_stream(stream)
        lost = tuple(zip(self.matcher.subs["sub_range"][subs].tolist(), self.matcher.subs["resolved"][subs].tolist(), strict=True))
        self._on_events([StreamLost(stream, lost, reason, bad)])

    def renew(self, sub_range: int) -> None:
        """End the sub-range's subscription, if it has one, so that it is subscribed again from its resolved ts."""
        sub = self._sub_of.get(sub_range)
        if sub is not None and self.matcher.subs[sub]["state"] == ACTIVE:
            self.matcher.end_subscription(sub)
            self._on_events([SubRangeFrozen(sub_range, self.matcher.resolved(sub))])

    def survey(self) -> Survey:
        """Return a copy of all subscriptions."""
        return Survey(self.matcher.subs[: self.matcher.count(X_NSUBS)].copy(), self.matcher.clock())

    def set_ceiling(self, ts: int, partitions: Sequence[int]) -> None:
        """Keep the heads of these partitions at or below `ts`."""
        self.ceilings[list(partitions)] = ts

    def moved_for_good(self, partition: int, table_id: int, ts: int) -> None:
        """Note that a table that moved away from a partition at `ts` is not subscribed there any more."""
        matcher, log = self.matcher, self.logs[partition]
        late = matcher.late[: matcher.count(X_NLATE)]
        waiting = [matcher.pending_rows(partition)["commit_ts"], late["commit_ts"]]
        last = max(
            [
                int(self._seal_begun_to[partition]),
                log.last_waiting,
                self.spilling.last(partition),
                *(int(w.max()) for w in waiting if len(w)),
            ]
        )
        log.moved_for_good(table_id, ts, last)

    # ------------------------------------------------------------------ ingest thread

    def _run(self) -> None:
        try:
            while not self._stop.is_set() or (self.inbox.bytes and not self.withholds):
                if self.full:
                    self._wait_for_disks()
                    self.step([], [])
                else:
                    self.step(*self.inbox.take(self.options.batch_bytes, self._until_next(), self.options.linger))
            self._finish_spills(wait_for=True)
            self._seal(force=True)
            self._finish_seals(wait=True)
        except BaseException as e:  # whatever it is, the owner must see it: the worst failure is a capture that ends silently
            self.failure = e
            self._stop.set()
            self._on_failure(e)

    def step(self, streams: list[int], messages: list[Message] | EndOfStream) -> None:
        """Do one round: calls, a batch, budgets, seals."""
        self._stirred |= bool(self._calls or messages or self._on_the_way())
        while self._calls:
            self._calls.popleft()()
        if isinstance(messages, EndOfStream):
            self.end_stream(streams[0], messages.reason)
        else:
            for lot in lots(streams, messages):
                self._ingest(*lot)
        self._finish_spills()
        if self.workers.now() >= self._next_seal:
            self._stirred = False
            self._seal()
        self._finish_seals()

    def _until_next(self) -> float:
        """How long to wait for a message. If nothing has come since the last look at what can be sealed, and nothing is being written, then
        there is nothing to seal. Seals that end wake this thread."""
        is_quiet = not (self._stirred or self._on_the_way() or self._sealing.refusal)
        return max(QUIET_S, self.options.seal_every) if is_quiet else self.options.seal_every

    def _ingest(self, streams: Sequence[int], messages: Sequence[Message]) -> None:
        begun, begin = time.perf_counter(), time.thread_time()
        batch = self._scanner.scan(messages, streams)
        begin = self._lap("scan", begin)
        self._note(batch)
        self._tell(self.matcher.feed(batch))
        while batch.error:  # the rest of this stream is dropped; other streams go on
            self.end_stream(int(batch.streams[batch.error.index]), batch.error.message, bad=True)
            batch = self._scanner.after_error(batch)
            self._note(batch)
            self._tell(self.matcher.feed(batch))
        begin = self._lap("match", begin)
        self.stats.messages += len(batch.ends)
        self.stats.bytes += int(batch.ends[-1])
        self._budgets()
        self._lap("spill", begin)
        took = time.perf_counter() - begun
        self.stats.stages.observe("feed", took)
        if self._traced is not None:
            self._traced.fed(took)

    def _note(self, batch: Batch) -> None:
        for one in batch.imports:
            if one not in self._imports:
                self._imports.add(one)
                self._sealing.note(*one)

    def _lap(self, name: str, since: float) -> float:
        now = time.thread_time()
        self.stats.cpu[name] += now - since
        return now

    def _tell(self, controls: Sequence[Control]) -> None:
        events: list[Event] = []
        for control in controls:
            sub_range = self._sub_range_of(control.sub)
            if sub_range is None:
                continue
            if isinstance(control, Initialized):
                events.append(ScanDone(sub_range))
                continue
            if isinstance(control, Skipped):
                events.append(RowSkipped(sub_range))
                continue
            self.matcher.end_subscription(control.sub)
            if isinstance(control, RegionError):
                events.append(SubRangeFailed(sub_range, control.resolved, control.error))
            else:
                events.append(self._broken(control, sub_range))
        if events:
            self._on_events(events)

    def _broken(self, control: Violation, sub_range: int) -> Event:
        """Handle a row that must not have come: its range is scanned again from below the row, unless the log is already complete beyond
        it."""
        partition = int(self.matcher.subs[control.sub]["partition"])
        head = max(self.logs[partition].head, int(self._seal_begun_to[partition]))
        if control.complete < head:
            return self._lost(control, head)
        self.stats.causes[control.cause] += 1
        self.matcher.rewind(control.sub, control.complete)
        return ProtocolBroken(sub_range, control.complete, control.cause, control.row)

    def _lost(self, control: Violation, head: int) -> RowLost:
        self.stats.causes[control.cause] += 1
        region_id = int(self.matcher.subs[control.sub]["region_id"])
        return RowLost(self._sub_range_of(control.sub) or 0, region_id, control.cause, control.row, head)

    def _budgets(self) -> None:
        """Keep memory within its budgets: prewrites, rows, then whatever else holds memory."""
        matcher, options = self.matcher, self.options
        if not self.withholds:
            self.prewrites.relieve()
        if matcher.count(X_NLATE) > LATE_JOIN and not self.prewrites.busy:
            self._join()
        if self.withholds:
            return
        while matcher.row_bytes() > options.row_budget:
            self._spill_rows()
        memory = self._staying()
        if memory > options.memory * 3 // 4 and memory > self._evacuate_at:
            worth_a_file = max(options.row_budget // 16 // len(self.logs), LEAST_LOT)
            while matcher.parts[:, P_BYTES].max() > worth_a_file and self._staying() > options.memory // 2:
                self._spill_rows()
            if self._staying() > options.memory // 2:
                matcher.evacuate()
            memory = self._staying()
            self._evacuate_at = memory + options.memory // 16  # what cannot be freed now is tried again when there is more
        elif memory < options.memory // 2:
            self._evacuate_at = 0

    def _weigh(self) -> None:
        """Check whether memory is short: from three quarters of the quota on, until it is half again."""
        used, quota = self.matcher.memory() + self.inbox.bytes, self.options.memory
        self.crowded = used > quota * (2 if self.crowded else 3) // 4

    @property
    def withheld(self) -> str:
        """Why nothing that needs disk space is written now; empty: it is written."""
        return self._sealing.refusal or self.prewrites.refusal or self.spilling.refusal

    @property
    def withholds(self) -> bool:
        """Whether nothing goes to disk before there is space again. Memory then fills up to its quota and no further."""
        return self.short_of_disk or bool(self.withheld)

    @property
    def full(self) -> bool:
        """Whether memory is used up while some of it will be freed when writes are done: no messages are taken."""
        return (self.withholds or bool(self._on_the_way())) and self.matcher.memory() > self.options.memory

    def _staying(self) -> int:
        """Return the bytes of memory that are not being written to disk."""
        return self.matcher.memory() - self.spilling.bytes - self.prewrites.bytes

    def _spill_rows(self) -> None:
        self.stats.spilled_rows += self.spilling.begin()

    def _on_the_way(self) -> list[Future[Run]]:
        return self.spilling.futures() + self.prewrites.futures()

    def _wait_for_disks(self) -> None:
        """Wait until something is written, or for a moment."""
        writing = [one for one in [*self._on_the_way(), *self._sealing.futures()] if not one.done()]
        if writing:
            self.workers.wait_for_any(writing, self.options.seal_every)
        else:
            self._stop.wait(self.options.seal_every)

    def _finish_spills(self, wait_for: bool = False) -> None:
        """Take in what is on disk by now."""
        if wait_for:
            self.workers.wait(self._on_the_way())
            self._finish_seals(wait=True)
        self.spilling.finish(self._sealing)
        self.prewrites.finish()
        if self.workers.now() >= self._spill_again_at and not self.short_of_disk:
            self._spill_again_at = self.workers.now() + AGAIN
            self.spilling.try_again()
            self.prewrites.try_again()

    def _join(self) -> None:
        broken = self.prewrites.join()
        over = [one for one in broken if self.matcher.subs[one.sub]["state"] != ACTIVE]
        self._tell([one for one in broken if one not in over])
        lost: list[Event] = [self._lost(one, one.resolved) for one in over if one.complete < one.resolved]
        if lost:  # their successors begin above the row
            self._on_events(lost)

    def _seal(self, force: bool = False) -> None:
        matcher = self.matcher
        self._next_seal = self.workers.now() + self.options.seal_every
        if matcher.count(X_NLATE):
            self._join()
        begin = time.thread_time()
        limits = np.minimum(matcher.frontiers(), self.ceilings)
        if matcher.count(X_NLATE):
            limits = np.minimum(limits, matcher.late_floors())
        for p, to_ts in enumerate(limits.tolist()):
            if p in self._sealing and force:
                self._finish_seals(wait=True)
            if self.spilling.busy(p):
                continue
            if p not in self._sealing and self.logs[p].head < (end := self.logs[p].end_of_seal(to_ts)) < FOREVER:
                self._sealing.begin(p, matcher.take(p, end), end)
                self._seal_begun_to[p] = end
        self._lap("take", begin)
        self.prewrites.drop_ended()
        if not self.prewrites.busy:  # late COMMITs name subscriptions, so their ids must not be reused
            matcher.sweep()
        self._weigh()
        if self.workers.now() >= self._next_trim:
            self._next_trim = self.workers.now() + TRIM_S
            self.inbox.buffers.trim()
            self.spilling.trim()
            self.prewrites.trim()

    def _finish_seals(self, wait: bool = False) -> None:
        if wait:
            self.workers.wait(self._sealing.futures())
        for p, rows, done in self._sealing.finished():
            self._stirred = True  # the frontier may have moved while this was written
            done.release_holds(self.matcher.chunks)
            self.matcher.recycle(rows)
            self.stats.sealed_rows += done.rows
            self.stats.sealed_bytes += done.bytes
            self.stats.segments += len(done.files)
            if done.files:  # else only the head has moved
                self.stats.stages.observe("sort", done.sort_seconds)
                self.stats.stages.observe("seal", done.seconds)
                if self._traced is not None:
                    self._traced.sealed(p, done)
            self._on_sealed(p, done)
        self.stats.cpu["seal"] = self._sealing.cpu
