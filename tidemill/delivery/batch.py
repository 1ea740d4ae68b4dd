"""Delivers batches: carries out what the batch machine asks for, and tells it what came of it.

    rows of (from_ts, to_ts]   every item, all acknowledged
    DDLs with ts = to_ts       by (schema version, sequence), to the partitions of their topics
    resolved(to_ts)            to every (topic, partition)

In `table` mode each log partition has a range of its own (`position.Ranges`), and from_ts and to_ts are the least of their ends. Rows of a
partition may then be ahead of to_ts; DDLs and resolved events never are.

Then, and only then, the checkpoint moves to to_ts. What is tried again, after how long, and when it is given up is decided in
`machine/batch_machine.py`; here is the IO alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from typing import Any, Protocol

from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.delivery import plan, time_plan
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.inputs.table_pack import Target
from tidemill.delivery.machine import actions as A
from tidemill.delivery.machine import events as E
from tidemill.delivery.machine.batch_machine import BatchMachine
from tidemill.delivery.machine.retry import RetryPolicy
from tidemill.delivery.machine.state import Phase
from tidemill.delivery.measure.timings import Timings
from tidemill.delivery.position import Position, Ranges, SavedPosition, end_of
from tidemill.delivery.row_warnings import RowWarnings
from tidemill.delivery.work_item import TaskResult, TaskStats, WorkItem
from tidemill.errors import BatchFailed, TidemillError, made
from tidemill.sinks.base import BatchContext, DriverSink
from tidemill.sinks.event_messages import MessageDriver
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tso import describe
from tidemill.visible import short_statement

log = logging.getLogger(__name__)


class JobRunner(Protocol):
    """Runs work items somewhere and returns what each gives back. Raises JobLost."""

    @property
    def parallelism(self) -> int:
        """How many items run at the same time, now."""

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]: ...


class BatchSource(Protocol):
    """What a batch asks of the log and its schema history."""

    def follow(self, to_ts: int) -> None:
        """Learn the schemas up to to_ts, if they are not known yet."""

    def inputs(self, from_ts: int, to_ts: int, ranges: Ranges = ()) -> list[plan.PartitionInput]:
        """What each log partition holds of the interval; partitions without a row in it may be left out."""

    def samples(self, from_ts: int, to_ts: int) -> list[time_plan.Sample]:
        """How the rows of the interval are spread over time."""

    def barriers(self, from_ts: int, to_ts: int) -> list[int]:
        """Ends that a batch may not pass, in (from_ts, to_ts]."""

    def ddl_events(self, from_ts: int, to_ts: int) -> list[DdlEvent]:
        """DDLs to deliver, in order."""

    def pack(self, from_ts: int, to_ts: int, ranges: Ranges = ()) -> str:
        """Path of the pack for the rows of (from_ts, to_ts]."""

    def refresh(self) -> None:
        """Forget what was remembered of files: one of them is gone."""


class Events(Protocol):
    """DDLs as the sink gets them."""

    def downstream(self, event: DdlEvent) -> tuple[DdlEvent, str] | None:
        """A DDL under its names downstream, and its topic; None if the sink takes none."""

    def targets(self) -> Sequence[Target]:
        """Where rows may go."""


Save = Callable[[A.Report], SavedPosition]
"""Makes the end of a batch, or of passed intervals, durable. Raises Fenced, LogUnavailable."""


def no_checkpoint(report: A.Report) -> SavedPosition:
    """For a delivery that keeps no checkpoint: its machine never asks for one."""
    raise AssertionError(f"nothing keeps the checkpoint {report.end}")


@dataclass
class BatchDriver:
    """Runs the batches of one changefeed, one at a time."""

    feed: str
    source: BatchSource
    events: Events
    sink: DriverSink
    sink_uri: str
    runner: JobRunner
    fence: Fence
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    stop: threading.Event = field(default_factory=threading.Event)
    by_commit_ts: bool = False
    """Items own ranges of commit ts, because the sink keeps one order over all tables."""
    one_task: bool = False
    """One item has all rows, in the order of their commits."""
    zone: tzinfo = UTC
    """The changefeed's time zone."""
    cluster_id: str = ""
    started_ts: int = 0
    """The upstream's time when this delivery started, see `BatchContext`."""
    refresh_topics: Callable[[], bool] = lambda: False
    """Asks the sink for its topics again; whether they differ from before."""
    bootstraps: Callable[[], Iterable[E.BootstrapMessage]] | None = None
    """Messages ahead of the first rows; None: the protocol has none."""
    row_warnings: RowWarnings = field(default_factory=RowWarnings)
    on_failure: Callable[[TidemillError], None] = lambda error: None
    """Called for each failed attempt that will be followed by another."""
    on_ddl: Callable[[DdlEvent], None] = lambda event: None
    """Called for each DDL once its batch is delivered, before the rows past it."""
    timings: Timings = field(default_factory=Timings)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._machine = self._new_machine()
        self._save: Save = no_checkpoint
        self._acked = 0  # messages of the attempt under way

    def _new_machine(self, saved: SavedPosition | None = None, target: int | None = None) -> BatchMachine:
        bootstraps = self.bootstraps is not None
        return BatchMachine(self.feed, self.retry, now=self.clock(), sends_bootstraps=bootstraps, saved=saved, target=target)

    def keep_checkpoint(self, saved: SavedPosition, target: int | None, save: Save) -> None:
        """Begin at a checkpoint: deliver what is not delivered yet, up to `target`, and make the end of each batch durable by `save`."""
        self._machine, self._save = self._new_machine(saved, target), save

    @property
    def delivered(self) -> Position | None:
        """How far it is, in memory; None: no checkpoint is kept."""
        return self._machine.delivered

    def keep(self) -> None:
        """Make the empty intervals durable that were passed over. Raises Fenced, LogUnavailable."""
        if self._machine.unkept is not None:
            self._machine.kept(self._save(self._machine.unkept))

    @property
    def reached(self) -> bool:
        """Whether everything up to the target is delivered."""
        return self._machine.reached

    @property
    def over(self) -> bool:
        """Whether no further batch may begin."""
        return self._machine.phase is Phase.OVER

    def run(self, batch: int, from_ts: int, to_ts: int, ranges: Ranges = ()) -> A.Report:
        """Deliver (from_ts, to_ts], or of each log partition its range. Raises what ended the last attempt, or Stopped."""
        begin = Position.of([start for start, _ in ranges]) if ranges else Position(from_ts)
        report = self.deliver(batch, begin, end_of(to_ts, ranges))
        assert report is not None, "without a checkpoint every batch is delivered"
        return report

    def deliver(self, batch: int, begin: Position, end: Position) -> A.Report | None:
        """Deliver what lies between two positions; None: it was delivered before. Raises as `run`."""
        report: A.Report | None = None
        begun = time.perf_counter()
        self.timings.begun(batch, begin, end)
        events: deque[E.Event] = deque([E.BatchBegun(batch, begin, end, self.clock())])
        while events:
            for action in self._machine.step(events.popleft()):
                if isinstance(action, A.EndBatch):
                    report = action.report
                elif isinstance(action, A.Fail):
                    self.timings.failed(action.error)
                    raise action.error from action.cause
                else:
                    events.extend(self._carry_out(action))
            if events and self.stop.is_set() and not self._machine.stopping:
                events.appendleft(E.StopAsked())
        if report is not None:
            self.timings.delivered(report, time.perf_counter() - begun)
        return report

    def pass_over(self, batch: int, begin: Position, end: Position) -> A.Report | None:
        """Deliver an interval in which the log has nothing at all: the resolved event alone, in the epoch in force. None: there is
        something, or it failed; `deliver` does it then.

        The end is in memory only, until `keep` or the next batch: a driver that begins before it passes the same empty interval.
        """
        if begin.parts or end.parts or self._machine.phase is not Phase.IDLE or self._machine.saved is None or not self.fence.epoch:
            return None
        attempt = A.Attempt(batch, self.fence.epoch, begin.ts, end.ts)
        try:
            with self._coded():
                if self._is_empty(begin.ts, end.ts):
                    self.fence.check()
                    self._send_only_resolved(attempt)
                    report = A.Report(batch, begin.ts, end.ts, attempt.epoch, 1, TaskStats(-1), ())
                    self._machine.passed(report)
                    return report
        except TidemillError as error:
            log.debug("%s: an empty interval is delivered as a batch: %s", self.feed, error)
        return None

    def _is_empty(self, from_ts: int, to_ts: int) -> bool:
        self.source.follow(to_ts)
        if self.source.barriers(from_ts, to_ts) or any(one.busy for one in self.source.inputs(from_ts, to_ts)):
            return False
        return not self.source.ddl_events(from_ts, to_ts)

    def _send_only_resolved(self, attempt: A.Attempt) -> None:
        context = self._context(attempt)
        try:
            self.sink.begin_batch(context)
            self.sink.resolved(attempt.to_ts)
            self.sink.finish_batch(context)
        except TidemillError:
            self.sink.discard(context)
            raise

    def _carry_out(self, action: A.Action) -> Iterable[E.Event]:
        """The events that follow from an action; none from a note."""
        if isinstance(action, A.Note):
            self._note(action)
            return ()
        begun = time.perf_counter()
        failure: TidemillError | None = None
        try:
            with self._coded():
                return [*self._answer(action)]
        except TidemillError as error:
            failure = error
            return [E.Failed(error, self.clock())]
        finally:
            self.timings.answered(action, time.perf_counter() - begun, failure)

    @contextmanager
    def _coded(self) -> Iterator[None]:
        """An error of the operating system, of whatever file, is one of ours: tried again if it may pass."""
        try:
            with storage_errors(f"changefeed {self.feed}"):
                yield
        except FileNotFoundError as error:
            raise made(BatchFailed.code, f"a file is missing: {error}", retryable=True) from error

    def _note(self, note: A.Note) -> None:
        match note:
            case A.DiscardAttempt(attempt):
                self.sink.discard(self._context(attempt))
            case A.RefreshLog():
                self.source.refresh()
            case A.NoteFailure(error):
                self.on_failure(error)
            case A.ReportRows(stats):
                self.row_warnings.tell(stats)
            case A.Warn(text):
                log.warning("%s", text)
            case A.Debug(text):
                log.debug("%s", text)
            case A.EndBatch() | A.End() | A.Fail():
                pass  # told by what `deliver` returns or raises

    def _answer(self, request: A.Request) -> Iterator[E.Event]:
        match request:
            case A.LearnSchemas(from_ts, to_ts):
                self.source.follow(to_ts)
                yield E.SchemasLearned(tuple(self.source.barriers(from_ts, to_ts)))
            case A.ListBootstraps(ts):
                yield E.BootstrapsListed(self._bootstraps(ts))
            case A.TakeEpoch(plan):
                yield E.EpochTaken(self.fence.advance(plan))
            case A.SendBootstraps(attempt, messages):
                self._send_bootstraps(attempt, messages)
                yield E.BootstrapsSent()
            case A.CheckTopics():
                yield E.TopicsChecked(self.refresh_topics())
            case A.BeginAttempt(attempt):
                self._acked = 0
                self.sink.begin_batch(self._context(attempt))
                yield E.AttemptBegun()
            case A.PlanRows(attempt):
                yield E.RowsPlanned(tuple(self._items(attempt)))
            case A.RunJob(items):
                results = self.runner.run([*items])
                self.timings.tasks(results)
                self._acked += sum(result.acked for result in results if isinstance(result, TaskStats))
                yield from [E.ItemReported(result) for result in results]
                yield E.JobEnded(self.clock())
            case A.CheckFence():
                self.fence.check(now=True)
                yield E.FenceHeld()
            case A.ListDdls(from_ts, to_ts):
                yield E.DdlsListed(tuple(self.source.ddl_events(from_ts, to_ts)))
            case A.SendDdl(ddl):
                self._send_ddl(ddl)
                yield E.DdlSent()
            case A.SendResolved(ts):
                self.sink.resolved(ts)
                yield E.ResolvedSent()
            case A.FinishAttempt(attempt):
                self.sink.finish_batch(replace(self._context(attempt), acked=self._acked))
                yield E.AttemptFinished()
            case A.AnnounceDdls(ddls):
                for ddl in ddls:
                    self.on_ddl(ddl)
                yield E.DdlsAnnounced()
            case A.SaveCheckpoint(report):
                yield E.CheckpointSaved(self._save(report))
            case A.EndEpoch(plan):
                self.fence.advance(plan)
                yield E.EpochEnded()
            case A.Wait(seconds):
                yield E.StopAsked() if self.stop.wait(seconds) else E.Waited()

    def _context(self, attempt: A.Attempt) -> BatchContext:
        return BatchContext(
            feed=self.feed,
            batch=attempt.batch,
            epoch=attempt.epoch,
            from_ts=attempt.from_ts,
            to_ts=attempt.to_ts,
            check_fence=self.fence.check,
            cluster_id=self.cluster_id,
            started_ts=self.started_ts,
            zone=self.zone,
        )

    def _bootstraps(self, ts: int) -> tuple[E.BootstrapMessage, ...]:
        self.source.pack(ts, ts)  # which tables there are
        return tuple(self.bootstraps()) if self.bootstraps is not None else ()

    def _send_bootstraps(self, attempt: A.Attempt, messages: Iterable[E.BootstrapMessage]) -> None:
        context = self._context(attempt)
        self.sink.begin_batch(context)
        assert isinstance(self.sink, MessageDriver), "only messages describe tables"
        for message in messages:
            self.sink.send(*message)
        self.sink.finish_batch(context)

    def _items(self, attempt: A.Attempt) -> list[WorkItem]:
        """Who reads what, for the executors that are there now."""
        inputs = self.source.inputs(attempt.from_ts, attempt.to_ts, attempt.ranges)
        # also where no row needs it: it makes topics, and refuses tables
        pack = self.source.pack(attempt.from_ts, attempt.to_ts, attempt.ranges)
        if not any(one.busy for one in inputs):
            return []
        given: dict[str, Any] = {
            "feed": self.feed,
            "batch": attempt.batch,
            "epoch": attempt.epoch,
            "from_ts": attempt.from_ts,
            "to_ts": attempt.to_ts,
            "pack": pack,
            "sink": self.sink_uri,
            "fence": self.fence.place,
        }
        # The runner may wait for Spark: it is asked only if it matters.
        parallelism = 1 if self.one_task or plan.is_small(inputs) else self.runner.parallelism
        if self.by_commit_ts:
            samples = self.source.samples(attempt.from_ts, attempt.to_ts) if parallelism > 1 else []
            return time_plan.work_items(inputs, samples, parallelism, **given)
        return plan.work_items(inputs, parallelism, **given, targets=len(self.events.targets()))

    def _send_ddl(self, event: DdlEvent) -> None:
        found = self.events.downstream(event)
        if found is not None and self.sink.ddl(*found):
            log.info("DDL at %s: %s", describe(event.ts), short_statement(event.query))
