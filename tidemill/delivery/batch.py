"""One batch, driven: rows by work items, then the DDLs at its end, then the resolved event; tried again until all is acknowledged.

    rows of (from_ts, to_ts]   every item, all acknowledged
    DDLs with ts = to_ts       by (schema version, sequence), to the partitions of their topics
    resolved(to_ts)            to every (topic, partition)

In `table` mode each log partition has a range of its own (`position.Ranges`), and from_ts and to_ts are the least of their ends. Rows of a
partition may then be ahead of to_ts; DDLs and resolved events never are.

Then, and only then, the caller moves the checkpoint to to_ts. Each try is an epoch of its own (`epoch_fence`).

A sink that is away is tried again for as long as the policy says. Storage that is away (of the log, of the changefeed's state), or full, is
waited for without end: nothing is lost meanwhile, and a restart would only meet the same.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from tidemill.changelog.layout import Affinity
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.delivery import plan
from tidemill.delivery.corrupted_rows import CorruptedRows
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.inputs.table_pack import Target
from tidemill.delivery.position import Position, Ranges, end_of
from tidemill.delivery.work_item import TaskFailure, TaskResult, TaskStats, WorkItem, total
from tidemill.errors import BatchFailed, DiskLow, Fenced, LogUnavailable, MessageRefused, SegmentGone, TidemillError, made
from tidemill.sinks.base import BatchContext, DriverSink
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tso import describe

log = logging.getLogger(__name__)

LOOK_S = 60.0
"""How long partitions that are added to a topic, and a limit that is raised, may go unnoticed."""
GRACE_S = 3.0
"""How long tasks of a job that Spark gave up may go on: a chunk, a full queue, the end of their worker."""


STORAGE_ERRORS = (LogUnavailable, DiskLow)
"""What is waited for without end."""


class JobLost(TidemillError):
    """Spark gave a job up for a reason that no task told: a worker died, memory ran out, a bug."""

    code = "TM:ErrJobLost"
    retryable = True


class ExecutorLost(TidemillError):
    """Spark ran a task again by itself because its executor went away. Such a second attempt delivers nothing: the batch is run again."""

    code = "TM:ErrExecutorLost"
    retryable = True


class Stopped(TidemillError):
    """A stop was asked for while a batch waited for its next try. The batch is run again after the next start."""

    code = "TM:ErrStopped"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Pauses between tries: they double from `first_s` to `longest_s`; none is made once `total_s` have passed since the first failure.

    A job that Spark gave up is tried `lost_tries` times: where the cause lies in the rows, more do not help. Storage that is away does not
    count: it is tried again until it is back, told `storage_word_s` apart.
    """

    first_s: float = 1.0
    longest_s: float = 30.0
    total_s: float = 300.0
    lost_tries: int = 3
    storage_word_s: float = 60.0
    clock: Callable[[], float] = time.monotonic

    def pauses(self) -> Iterator[float]:
        """Seconds to wait before the second try, the third, …; ends when no more are due. To be asked first at the first failure."""
        pause, began = self.first_s, self.clock()
        while self.clock() - began < self.total_s:
            yield pause
            pause = min(self.longest_s, 2 * pause)

    def pauses_for_storage(self) -> Iterator[float]:
        """The same without an end."""
        pause = self.first_s
        while True:
            yield pause
            pause = min(self.longest_s, 2 * pause)


class JobRunner(Protocol):
    """Runs work items somewhere and returns what each gives back. Raises JobLost."""

    @property
    def parallelism(self) -> int:
        """How many items run at the same time, now."""

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]: ...


class Upstream(Protocol):
    """What a batch asks of the log and its schema history."""

    affinity: Affinity

    def follow(self, to_ts: int) -> None:
        """Learn the schemas up to to_ts, if they are not known yet."""

    def loads(self, from_ts: int, to_ts: int, ranges: Ranges = ()) -> list[plan.Load]:
        """What each log partition holds of the interval; partitions without a row in it may be left out."""

    def barriers(self, from_ts: int, to_ts: int) -> list[int]:
        """Ends that a batch may not pass, in (from_ts, to_ts]."""

    def ddl_events(self, from_ts: int, to_ts: int) -> list[DdlEvent]:
        """DDLs to deliver, in order."""

    def pack(self, from_ts: int, to_ts: int, ranges: Ranges = ()) -> str:
        """Path of the pack for the rows of (from_ts, to_ts]."""

    def refresh(self) -> None:
        """Forget what was remembered of files: one of them is gone."""


class Events(Protocol):
    """DDL and resolved events as the sink's protocol writes them."""

    def ddl(self, event: DdlEvent) -> tuple[str, bytes, bytes | None, Sequence[int]] | None:
        """Topic, key, value and partitions; None if the protocol has none."""

    def resolved(self, ts: int) -> tuple[bytes, bytes | None] | None:
        """Key and value; None if the protocol has none."""

    def targets(self) -> Sequence[Target]:
        """Where resolved events go."""


@dataclass(frozen=True, slots=True)
class Report:
    """A batch that succeeded."""

    batch: int
    from_ts: int
    to_ts: int
    epoch: int
    tries: int
    stats: TaskStats
    ddls: tuple[DdlEvent, ...]
    ranges: Ranges = ()

    @property
    def end(self) -> Position:
        """How far the changefeed is with it."""
        return end_of(self.to_ts, self.ranges)


@dataclass
class BatchDriver:
    """Runs the batches of one changefeed, one at a time."""

    feed: str
    upstream: Upstream
    events: Events
    sink: DriverSink
    sink_uri: str
    runner: JobRunner
    fence: Fence
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    stop: threading.Event = field(default_factory=threading.Event)
    refresh_topics: Callable[[], bool] = lambda: False
    """Asks the sink for its topics again; whether they differ from before."""
    next_look: float = field(default_factory=lambda: time.monotonic() + LOOK_S)
    bootstraps: Callable[[], Iterable[tuple[str, bytes | None, bytes | None, Sequence[int]]]] | None = None
    """Messages ahead of the first rows: topic, key, value, partitions each."""
    corrupted: CorruptedRows = field(default_factory=CorruptedRows)
    on_failure: Callable[[TidemillError], None] = lambda error: None
    """Called for each failed try that will be followed by another."""
    on_ddl: Callable[[DdlEvent], None] = lambda event: None
    """Called for each DDL once its batch is delivered, before the rows past it."""

    _storage_word: float = 0.0  # when the next word of storage that is away is due

    def run(self, batch: int, from_ts: int, to_ts: int, ranges: Ranges = ()) -> Report:
        """Deliver (from_ts, to_ts], or of each log partition its range. Raises what ended the last try, naming the batch, or Stopped."""
        pauses, for_storage = self.retry.pauses(), self.retry.pauses_for_storage()
        tries = waited = 0
        is_cut = False
        while True:
            tries += 1
            try:
                if not is_cut:
                    self._cut(from_ts, end_of(to_ts, ranges).furthest)
                    is_cut = True
                report = self._try(batch, from_ts, to_ts, ranges, tries)
            except TidemillError as error:
                self._end_epoch(error, from_ts, to_ts, ranges)
                if isinstance(error, STORAGE_ERRORS):
                    waited += 1
                    pauses = self.retry.pauses()  # the sink's time does not run meanwhile
                    self._pause(error, next(for_storage), batch)
                    continue
                for_storage = self.retry.pauses_for_storage()
                lost = isinstance(error, JobLost) and tries - waited >= self.retry.lost_tries
                pause = next(pauses, None) if self._may_go_better(error) and not lost else None
                if pause is None:
                    raise self._named(error, batch, from_ts, to_ts, tries) from error
                self._pause(error, pause, batch)
            else:
                self._storage_word = 0.0
                for event in report.ddls:
                    self.on_ddl(event)
                return report

    def _end_epoch(self, error: TidemillError, from_ts: int, to_ts: int, ranges: Ranges) -> None:
        """What is left of a failed try stops now, not only when the next one begins. Raises Fenced if another driver has taken over."""
        try:
            self.fence.advance(from_ts, to_ts, ranges)
        except Fenced as other:
            raise other from error
        except STORAGE_ERRORS as other:  # the next try is told to wait for it
            log.debug("the epoch of a failed try cannot be ended now: %s", other.message)
        except TidemillError as other:
            log.warning("the epoch of a failed try cannot be ended now, the next try will: %s", other)

    def _cut(self, from_ts: int, to_ts: int) -> None:
        """Learn the schemas, and see that the batch ends where it should: `to_ts` is where the furthest log partition does."""
        with self._coded():
            self.upstream.follow(to_ts)
        inside = [b for b in self.upstream.barriers(from_ts, to_ts) if b < to_ts]
        if inside:
            raise BatchFailed(f"({from_ts}, {to_ts}] has the DDL barrier {inside[0]} inside: it became known after the batch was cut")

    def _may_go_better(self, error: TidemillError) -> bool:
        """Is another try worth it? After a refused message it is if the topics take something else than before."""
        if not isinstance(error, MessageRefused):
            return error.retryable
        try:
            return self.refresh_topics()
        except TidemillError as other:
            return other.retryable

    def _look(self, tries: int) -> None:
        """A failed try may be due to a topic that is gone; otherwise look once in a while."""
        if tries > 1 or time.monotonic() >= self.next_look:
            self.refresh_topics()
            self.next_look = time.monotonic() + LOOK_S

    def _try(self, batch: int, from_ts: int, to_ts: int, ranges: Ranges, tries: int) -> Report:
        with self._coded():
            self._greet(batch, from_ts)
        context = self._context(batch, from_ts, to_ts, ranges)
        moves = to_ts > from_ts or not ranges  # else only some log partitions have got further
        with self._discarding(context):
            self._look(tries)
            self.sink.begin_batch(context)
            stats = self._rows(context, ranges)
            context.look(now=True)
            ddls = self.upstream.ddl_events(from_ts, to_ts) if moves else []
            for event in ddls:
                self._send_ddl(event)
            if stats.skipped_rows:
                log.warning("%d rows of (%d, %d] were left out by name", stats.skipped_rows, from_ts, to_ts)
            self.corrupted.tell(stats)
            if moves:
                self._send_resolved(to_ts)
            self.sink.finish_batch(context)
        return Report(batch, from_ts, to_ts, context.epoch, tries, stats, tuple(ddls), ranges)

    @contextmanager
    def _coded(self) -> Iterator[None]:
        """An error of the operating system, of whatever file, is one of ours: tried again if it may pass."""
        try:
            with storage_errors(f"changefeed {self.feed}"):
                yield
        except FileNotFoundError as error:
            raise made(BatchFailed.code, f"a file is missing: {error}", retryable=True) from error

    @contextmanager
    def _discarding(self, context: BatchContext) -> Iterator[None]:
        """What a try that fails inside has left at the sink is discarded."""
        try:
            with self._coded():
                yield
        except TidemillError:
            self.sink.discard(context)
            raise

    def _greet(self, batch: int, from_ts: int) -> None:
        """Before the first rows of this process: a batch of no time."""
        if self.bootstraps is None:
            return
        self.upstream.pack(from_ts, from_ts)  # which tables there are
        messages = list(self.bootstraps())
        if messages:
            context = self._context(batch, from_ts, from_ts)
            with self._discarding(context):
                self.sink.begin_batch(context)
                for message in messages:
                    self.sink.ddl(*message)
                self.sink.finish_batch(context)
        self.bootstraps = None

    def _context(self, batch: int, from_ts: int, to_ts: int, ranges: Ranges = ()) -> BatchContext:
        epoch = self.fence.advance(from_ts, to_ts, ranges)
        return BatchContext(feed=self.feed, batch=batch, epoch=epoch, from_ts=from_ts, to_ts=to_ts, look=self.fence.look)

    def _rows(self, context: BatchContext, ranges: Ranges) -> TaskStats:
        loads = self.upstream.loads(context.from_ts, context.to_ts, ranges)
        pack = self.upstream.pack(context.from_ts, context.to_ts, ranges)  # also where no row needs it: it makes topics, and refuses tables
        if not any(load.busy for load in loads):
            return TaskStats(-1)
        items = plan.work_items(
            loads,
            self.upstream.affinity,
            self.runner.parallelism,
            feed=context.feed,
            batch=context.batch,
            epoch=context.epoch,
            from_ts=context.from_ts,
            to_ts=context.to_ts,
            pack=pack,
            sink=self.sink_uri,
            fence=self.fence.place,
            targets=len(self.events.targets()),
        )
        return total(_checked(items, self.runner.run(items)))

    def _send_ddl(self, event: DdlEvent) -> None:
        message = self.events.ddl(event)
        if message is not None:
            topic, key, value, partitions = message
            self.sink.ddl(topic, key, value, partitions)
            log.info("DDL at %s: %s", describe(event.ts), event.query)

    def _send_resolved(self, ts: int) -> None:
        message = self.events.resolved(ts)
        if message is not None:
            self.sink.resolved(self.events.targets(), *message)

    def _pause(self, error: TidemillError, pause: float, batch: int) -> None:
        if isinstance(error, SegmentGone):
            self.upstream.refresh()
        if isinstance(error, (JobLost, ExecutorLost)):
            pause = max(pause, GRACE_S)
        if not isinstance(error, STORAGE_ERRORS):
            log.warning("batch %d failed and is tried again in %.0f s: %s", batch, pause, error)
        elif time.monotonic() >= self._storage_word:
            self._storage_word = time.monotonic() + self.retry.storage_word_s
            log.warning("batch %d waits for storage, and is tried again until it is there: %s", batch, error)
        self.on_failure(error)
        if self.stop.wait(pause):
            raise Stopped(f"stopped while batch {batch} waited for its next try ({error.message})")

    def _named(self, error: TidemillError, batch: int, from_ts: int, to_ts: int, tries: int) -> TidemillError:
        text = f"batch {batch} of {self.feed}, ({from_ts}, {to_ts}], failed"
        text += f" {tries} times, last: " if tries > 1 else ": "
        return made(error.code, text + error.message, error.hint, retryable=error.retryable)


def _checked(items: Sequence[WorkItem], results: Sequence[TaskResult]) -> list[TaskStats]:
    """The stats of all items, if each answered and had everything acknowledged. Raises what a task failed with, or BatchFailed."""
    failures = [r for r in results if isinstance(r, TaskFailure)]
    if failures:
        raise error_of(min(failures, key=lambda f: (f.retryable, f.number)))
    stats = [r for r in results if isinstance(r, TaskStats)]
    if sorted(s.number for s in stats) != [item.number for item in items]:
        raise BatchFailed(f"items {[item.number for item in items]} were run, {sorted(s.number for s in stats)} answered")
    unacknowledged = [s for s in stats if s.acked != s.messages]
    if unacknowledged:
        one = unacknowledged[0]
        raise BatchFailed(f"item {one.number}: {one.acked} of {one.messages} messages were acknowledged")
    return stats


def error_of(failure: TaskFailure) -> TidemillError:
    """A task's error as it was raised there."""
    return made(failure.code, failure.message, retryable=failure.retryable)
