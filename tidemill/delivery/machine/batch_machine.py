"""The batches of one changefeed: what is done next, and what follows from a failure. A state machine without IO.

The driver tells the machine what happened (`step`) and carries out the actions that it gets back, in their order. A batch goes down this
list. What is in brackets is left out where there is nothing to do.

    phase                  the driver is asked to                           once
    IDLE                   nothing: between two batches
    KEEPING                [make empty intervals that were passed over durable: a batch begins at a durable position]
    LEARNING               learn the schemas up to the end of the batch     a batch
    LISTING_BOOTSTRAPS     [list the messages ahead of the first rows]      a process
    BOOTSTRAP_EPOCH        [take an epoch for them]                         a process
    SENDING_BOOTSTRAPS     [send them]                                      a process
    OPENING                take an epoch                                    an attempt, as all that follow
    CHECKING_TOPICS        [look at the topics: one may be missing, or have new partitions]
    BEGINNING              let the sink get ready
    PLANNING               divide the rows among work items
    RUNNING                [run them as one job; every item must report, with all its messages acknowledged]
    CHECKING_FENCE         look at the fence: has another driver taken over?
    LISTING_DDLS           [list the DDLs that stand at the batch's end]
    SENDING_DDLS           [send them, one after the other]
    RESOLVING              [send the resolved event]
    FINISHING              wait until the sink has everything
    ANNOUNCING             [say which DDLs are delivered]                   a batch
    SAVING                 [make the checkpoint durable]                    a batch
    → IDLE, or → OVER when the target is reached or a stop was asked for

A failure before the sink has everything ends the attempt. Then:

    ENDING_EPOCH           begin another epoch, so that nothing of the attempt goes on
    CHECKING_TOPICS_AGAIN  [look at the topics: did the refusal of a message change anything?]
    WAITING                wait; then the next attempt begins, with an epoch of its own
    → OVER when no attempt follows (`failures.py` says after what), or a stop was asked for

Where only some log partitions get further (`progress = "table"`), the batch's interval is empty: it has rows, but neither DDLs
nor a resolved event. A replay keeps no checkpoint, so nothing is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from tidemill.delivery.machine import actions as A
from tidemill.delivery.machine import events as E
from tidemill.delivery.machine.failures import REACTIONS, Kind, Reaction, Stopped, Then, error_of, kind_of
from tidemill.delivery.machine.retry import Pauses, RetryPolicy
from tidemill.delivery.machine.state import Batch, Phase
from tidemill.delivery.position import Plan, Position, Ranges, SavedPosition, end_of, ranges_of
from tidemill.delivery.work_item import TaskFailure, TaskResult, TaskStats, WorkItem, total
from tidemill.errors import BatchFailed, TidemillError, made

TOPICS_CHECK_S = 60.0
"""For how long partitions that are added to a topic, and a limit that is raised, may go unnoticed."""
GRACE_S = 3.0
"""For how long tasks of a job that Spark gave up may go on: a chunk, a full queue, the end of their worker."""


class BatchMachine:
    """The batches of one changefeed, one at a time."""

    def __init__(
        self,
        feed: str,
        policy: RetryPolicy,
        *,
        now: float,
        sends_bootstraps: bool = False,
        saved: SavedPosition | None = None,
        target: int | None = None,
    ) -> None:
        """`saved`: the checkpoint; None: none is kept. `target`: the ts after which the changefeed is over. `sends_bootstraps`: the
        protocol has messages ahead of the first rows."""
        self.phase = Phase.IDLE
        self.saved = saved
        """The checkpoint: where the next process would begin."""
        self.unkept: A.Report | None = None
        """The empty intervals behind it that were passed over: in memory only."""
        self._target = target
        self.stopping = False
        self._feed, self._policy = feed, policy
        self._sends_bootstraps = sends_bootstraps
        self._messages: tuple[E.BootstrapMessage, ...] = ()
        self._next_topics_check = now + TOPICS_CHECK_S
        self._next_storage_word = now
        self._now = now  # as far as the machine was told
        self._begun: E.BatchBegun | None = None  # the batch that waits in KEEPING
        self._batch: Batch | None = None

    def step(self, event: E.Event) -> tuple[A.Action, ...]:
        """What is to be done after this event. Raises ValueError for an event that cannot come now: a bug in the driver."""
        transition = TRANSITIONS.get((self.phase, type(event)))
        if transition is None:
            raise ValueError(f"{event} cannot come while the batch machine is {self.phase}")
        if isinstance(event, (E.BatchBegun, E.JobEnded, E.Failed)):
            self._now = event.now
        return tuple(transition(self, event))

    @property
    def delivered(self) -> Position | None:
        """What is delivered; empty intervals behind the checkpoint need not be durable. None: no checkpoint is kept."""
        return self.unkept.end if self.unkept is not None else self.saved

    @property
    def reached(self) -> bool:
        """Whether everything up to the target is delivered."""
        return self._target is not None and self.delivered is not None and self.delivered.ts >= self._target

    def passed(self, report: A.Report) -> None:
        """An empty interval behind `delivered` was passed over, between two batches."""
        assert self.phase is Phase.IDLE
        assert self.saved is not None, "a checkpoint is kept"
        self.unkept = report

    def kept(self, at: SavedPosition) -> None:
        """The intervals that were passed over are durable."""
        self.saved, self.unkept = at, None

    @property
    def batch(self) -> Batch:
        assert self._batch is not None, "between two batches"
        return self._batch

    @property
    def _attempt(self) -> A.Attempt:
        assert self.batch.attempt is not None, "between two attempts"
        return self.batch.attempt

    # ------------------------------------------------------------------ a batch begins

    def _begin(self, event: E.BatchBegun) -> Iterable[A.Action]:
        """A batch that was cut before the changefeed was given a target ends there. One that is delivered already is passed over."""
        delivered, end = self.delivered, event.end
        if self._target is not None:
            end = end.capped(self._target)
        if delivered is not None and delivered.covers(end):
            return self._end_batch(None)
        if self.unkept is not None:
            self.phase, self._begun = Phase.KEEPING, event
            return [A.SaveCheckpoint(self.unkept)]
        return self._begin_at(event, self.saved, end)

    def _kept(self, event: E.CheckpointSaved) -> Iterable[A.Action]:
        begun, self._begun = self._begun, None
        assert begun is not None, "a batch waits"
        self.kept(event.at)
        return self._begin(begun)

    def _begin_at(self, event: E.BatchBegun, saved: SavedPosition | None, end: Position) -> Iterable[A.Action]:
        """A batch begins at the checkpoint, if one is kept: there a driver that takes over begins as well, and finds the batch again."""
        begin = event.begin if saved is None else saved
        plan = None if saved is None else Plan(saved, end)
        pauses = Pauses(self._policy), Pauses(self._policy)
        self._batch = Batch(event.batch, begin.ts, max(begin.ts, end.ts), ranges_of(begin, end), plan, *pauses)
        return self._next_attempt()

    def _next_attempt(self, _: object = None) -> Iterable[A.Action]:
        batch = self.batch
        batch.attempts += 1
        if batch.learned:
            return self._bootstrap()
        self.phase = Phase.LEARNING
        return [A.LearnSchemas(batch.from_ts, end_of(batch.to_ts, batch.ranges).furthest)]

    def _learned(self, event: E.SchemasLearned) -> Iterable[A.Action]:
        """The batch was cut by the schemas that were known then: it must still end where it should."""
        batch = self.batch
        furthest = end_of(batch.to_ts, batch.ranges).furthest
        inside = [ts for ts in event.barriers if ts < furthest]
        if inside:
            interval = f"({batch.from_ts}, {furthest}]"
            return self._fail(BatchFailed(f"{interval} has the DDL barrier {inside[0]} inside: it became known after the batch was cut"))
        batch.learned = True
        return self._bootstrap()

    def _bootstrap(self) -> Iterable[A.Action]:
        if not self._sends_bootstraps:
            return self._open()
        self.phase = Phase.LISTING_BOOTSTRAPS
        return [A.ListBootstraps(self.batch.from_ts)]

    def _listed(self, event: E.BootstrapsListed) -> Iterable[A.Action]:
        if not event.messages:
            return self._bootstrapped()
        self._messages = event.messages
        self.phase = Phase.BOOTSTRAP_EPOCH
        return [A.TakeEpoch(self.batch.plan)]

    def _send_bootstraps(self, event: E.EpochTaken) -> Iterable[A.Action]:
        """They are an attempt of their own, without rows. The fence keeps the interval of the batch meanwhile: a driver that takes over
        now has to end the batch where this one would."""
        batch = self.batch
        batch.attempt = A.Attempt(batch.number, event.epoch, batch.from_ts, batch.from_ts)
        self.phase = Phase.SENDING_BOOTSTRAPS
        return [A.SendBootstraps(batch.attempt, self._messages)]

    def _bootstrapped(self, _: object = None) -> Iterable[A.Action]:
        self._sends_bootstraps, self._messages = False, ()
        return self._open()

    # ------------------------------------------------------------------ an attempt

    def _open(self) -> Iterable[A.Action]:
        self.batch.attempt = None
        self.phase = Phase.OPENING
        return [A.TakeEpoch(self.batch.plan)]

    def _opened(self, event: E.EpochTaken) -> Iterable[A.Action]:
        """A failed attempt may be due to a topic that is gone; otherwise the topics are looked at once in a while."""
        batch = self.batch
        batch.attempt = A.Attempt(batch.number, event.epoch, *batch.interval)
        batch.items, batch.results, batch.stats, batch.ddls = (), [], TaskStats(-1), ()
        if batch.attempts == 1 and self._now < self._next_topics_check:
            return self._ready()
        self.phase = Phase.CHECKING_TOPICS
        return [A.CheckTopics()]

    def _topics_checked(self, _: E.TopicsChecked) -> Iterable[A.Action]:
        self._next_topics_check = self._now + TOPICS_CHECK_S
        return self._ready()

    def _ready(self) -> Iterable[A.Action]:
        self.phase = Phase.BEGINNING
        return [A.BeginAttempt(self._attempt)]

    def _plan(self, _: E.AttemptBegun) -> Iterable[A.Action]:
        self.phase = Phase.PLANNING
        return [A.PlanRows(self._attempt)]

    def _planned(self, event: E.RowsPlanned) -> Iterable[A.Action]:
        if not event.items:
            return self._check()
        self.batch.items = event.items
        self.phase = Phase.RUNNING
        return [A.RunJob(event.items)]

    def _reported(self, event: E.ItemReported) -> Iterable[A.Action]:
        self.batch.results.append(event.result)
        return ()

    def _job_ended(self, _: E.JobEnded) -> Iterable[A.Action]:
        error = _error_in(self.batch.items, self.batch.results)
        if error is not None:
            return self._fail(error)
        self.batch.stats = total([r for r in self.batch.results if isinstance(r, TaskStats)])
        return self._check()

    def _check(self) -> Iterable[A.Action]:
        self.phase = Phase.CHECKING_FENCE
        return [A.CheckFence()]

    def _fence_held(self, _: E.FenceHeld) -> Iterable[A.Action]:
        if not self.batch.moves:
            return [*self._report_rows(), *self._finish()]
        self.phase = Phase.LISTING_DDLS
        return [A.ListDdls(self.batch.from_ts, self.batch.to_ts)]

    def _ddls_listed(self, event: E.DdlsListed) -> Iterable[A.Action]:
        self.batch.ddls, self.batch.unsent = event.ddls, [*event.ddls]
        return self._send_ddl()

    def _send_ddl(self, _: object = None) -> Iterable[A.Action]:
        if self.batch.unsent:
            self.phase = Phase.SENDING_DDLS
            return [A.SendDdl(self.batch.unsent.pop(0))]
        self.phase = Phase.RESOLVING
        return [*self._report_rows(), A.SendResolved(self.batch.to_ts)]

    def _report_rows(self) -> Iterable[A.Action]:
        stats = self.batch.stats
        if stats.skipped_rows:
            yield A.Warn(f"{stats.skipped_rows} rows of {self.batch} were left out by name")
        if stats.corrupted_rows or stats.missed_rows:
            yield A.ReportRows(stats)

    def _finish(self, _: object = None) -> Iterable[A.Action]:
        self.phase = Phase.FINISHING
        return [A.FinishAttempt(self._attempt)]

    # ------------------------------------------------------------------ a batch ends

    def _finished(self, _: E.AttemptFinished) -> Iterable[A.Action]:
        self._next_storage_word = self._now
        if not self.batch.ddls:
            return self._save()
        self.phase = Phase.ANNOUNCING
        return [A.AnnounceDdls(self.batch.ddls)]

    def _save(self, _: object = None) -> Iterable[A.Action]:
        if self.saved is None:
            return self._end_batch(self._report())
        self.phase = Phase.SAVING
        return [A.SaveCheckpoint(self._report())]

    def _saved(self, event: E.CheckpointSaved) -> Iterable[A.Action]:
        self.saved = event.at
        return self._end_batch(self._report())

    def _report(self) -> A.Report:
        batch = self.batch
        return A.Report(
            batch.number, batch.from_ts, batch.to_ts, self._attempt.epoch, batch.attempts, batch.stats, batch.ddls, batch.ranges
        )

    def _end_batch(self, report: A.Report | None) -> Iterable[A.Action]:
        self._batch = None
        self.phase = Phase.OVER if self.reached or self.stopping else Phase.IDLE
        yield A.EndBatch(report)
        if self.phase is Phase.OVER:
            yield A.End(A.Over.TARGET_REACHED if self.reached else A.Over.STOPPED)

    def _fail_at_once(self, event: E.Failed) -> Iterable[A.Action]:
        """The checkpoint cannot be written, or the rows are delivered: nothing of the batch is tried again in this process. The next
        one begins at the checkpoint."""
        return self._over(event.error)

    # ------------------------------------------------------------------ an attempt fails

    def _attempt_failed(self, event: E.Failed) -> Iterable[A.Action]:
        return self._fail(event.error)

    def _fail(self, error: TidemillError) -> Iterable[A.Action]:
        batch = self.batch
        batch.error, batch.failed_at = error, self._now
        attempt, batch.attempt = batch.attempt, None
        self.phase = Phase.ENDING_EPOCH
        return [*([A.DiscardAttempt(attempt)] if attempt is not None else []), A.EndEpoch(batch.plan)]

    def _epoch_not_ended(self, event: E.Failed) -> Iterable[A.Action]:
        """The next attempt ends it, and waits for storage; but a driver that has taken over is not disturbed."""
        kind = kind_of(event.error)
        if kind is Kind.FENCED:
            return self._over(event.error, self._error)
        if kind is Kind.STORAGE_AWAY:
            note: A.Action = A.Debug(f"the epoch of a failed attempt cannot be ended now: {event.error.message}")
        else:
            note = A.Warn(f"the epoch of a failed attempt cannot be ended now, the next attempt will: {event.error}")
        return [note, *self._react()]

    def _react(self, _: object = None) -> Iterable[A.Action]:
        then = self._reaction.then
        if then is Then.CHECK_TOPICS:
            self.phase = Phase.CHECKING_TOPICS_AGAIN
            return [A.CheckTopics()]
        if then is Then.WAIT:
            return self._wait_for_storage()
        return self._try_again() if then is Then.RETRY else self._give_up()

    def _topics_checked_again(self, event: E.TopicsChecked) -> Iterable[A.Action]:
        return self._try_again() if event.changed else self._give_up()

    def _topics_not_checked(self, event: E.Failed) -> Iterable[A.Action]:
        return self._try_again() if event.error.retryable else self._give_up()

    def _wait_for_storage(self) -> Iterable[A.Action]:
        """However long it takes. The time that the policy gives a sink does not run meanwhile."""
        batch = self.batch
        batch.pauses = Pauses(self._policy)
        notes: list[A.Action] = []
        if self._now >= self._next_storage_word:
            self._next_storage_word = self._now + self._policy.storage_word_s
            notes.append(A.Warn(self._told(f"batch {batch.number} waits for storage, and is tried again until it is there")))
        return [*notes, *self._wait(batch.storage_pauses.next())]

    def _try_again(self) -> Iterable[A.Action]:
        batch = self.batch
        batch.storage_pauses = Pauses(self._policy)
        batch.lost_attempts += self._reaction.limited
        if batch.lost_attempts >= self._policy.lost_attempts:
            return self._give_up(
                f"Spark has given this batch up {batch.lost_attempts} times in this process; `tidemill run` starts a new one after a pause."
            )
        pause = batch.pauses.after_failure(batch.failed_at)
        if pause is None:
            total = f"{self._policy.total_s:g} s after the first failure"
            return self._give_up(
                f"An attempt that fails later than {total} is the last one, whatever failed (`tidemill run`: --sink-retry)."
            )
        if self._reaction.grace:
            pause = max(pause, GRACE_S)
        notes: list[A.Action] = [A.RefreshLog()] if self._reaction.refresh else []
        notes.append(A.Warn(self._told(f"batch {batch.number} is tried again in {pause:.0f} s")))
        return [*notes, *self._wait(pause)]

    def _told(self, then: str) -> str:
        """The cause first, then what follows from it, then what to do: a line may be cut short."""
        error = self._error
        return f"{error.message}{_gap(error)}({then})" + (f"\n  {error.hint}" if error.hint else "")

    def _wait(self, pause: float) -> Iterable[A.Action]:
        note = A.NoteFailure(self._error)
        if self.stopping:
            return [note, *self._stop()]
        self.phase = Phase.WAITING
        return [note, A.Wait(pause)]

    def _give_up(self, limit: str = "") -> Iterable[A.Action]:
        """`limit`: the limit that is reached, for the error's hint. The message begins with the cause: lists cut it short."""
        batch, error = self.batch, self._error
        attempts = f", {batch.attempts} attempts" if batch.attempts > 1 else ""
        hint = " ".join(filter(None, (error.hint, limit)))
        message = f"{error.message}{_gap(error)}(batch {batch.number} of {self._feed}, {batch}{attempts})"
        return self._over(made(error.code, message, hint, retryable=error.retryable), error)

    # ------------------------------------------------------------------ the end

    def _note_stop(self, _: E.StopAsked) -> Iterable[A.Action]:
        """The attempt goes on: what it delivers need not be delivered again."""
        self.stopping = True
        return ()

    def _stop(self, _: object = None) -> Iterable[A.Action]:
        self.stopping = True
        text = f"stopped while batch {self.batch.number} waited for its next attempt ({self._error.message})"
        return self._over(Stopped(text), self._error)

    def _over(self, error: TidemillError, cause: TidemillError | None = None) -> Iterable[A.Action]:
        self.phase = Phase.OVER
        return [A.Fail(error, cause)]

    @property
    def _error(self) -> TidemillError:
        assert self.batch.error is not None, "no attempt has failed"
        return self.batch.error

    @property
    def _reaction(self) -> Reaction:
        return REACTIONS[kind_of(self._error)]


def _error_in(items: tuple[WorkItem, ...], results: list[TaskResult]) -> TidemillError | None:
    """What is wrong with a job: a task failed, an item did not answer, or a message was not acknowledged. None: nothing."""
    failures = [r for r in results if isinstance(r, TaskFailure)]
    if failures:
        return error_of(min(failures, key=lambda f: (f.retryable, f.number)))
    stats = [r for r in results if isinstance(r, TaskStats)]
    if sorted(s.number for s in stats) != [item.number for item in items]:
        return BatchFailed(f"items {[item.number for item in items]} were run, {sorted(s.number for s in stats)} answered")
    for one in stats:
        if one.acked != one.messages:
            return BatchFailed(f"item {one.number}: {one.acked} of {one.messages} messages were acknowledged")
    return None


Transition = Callable[[BatchMachine, Any], Iterable[A.Action]]

_M = BatchMachine
_ANSWERS: Mapping[tuple[Phase, type[E.Event]], Transition] = {
    (Phase.IDLE, E.BatchBegun): _M._begin,
    (Phase.KEEPING, E.CheckpointSaved): _M._kept,
    (Phase.LEARNING, E.SchemasLearned): _M._learned,
    (Phase.LISTING_BOOTSTRAPS, E.BootstrapsListed): _M._listed,
    (Phase.BOOTSTRAP_EPOCH, E.EpochTaken): _M._send_bootstraps,
    (Phase.SENDING_BOOTSTRAPS, E.BootstrapsSent): _M._bootstrapped,
    (Phase.OPENING, E.EpochTaken): _M._opened,
    (Phase.CHECKING_TOPICS, E.TopicsChecked): _M._topics_checked,
    (Phase.BEGINNING, E.AttemptBegun): _M._plan,
    (Phase.PLANNING, E.RowsPlanned): _M._planned,
    (Phase.RUNNING, E.ItemReported): _M._reported,
    (Phase.RUNNING, E.JobEnded): _M._job_ended,
    (Phase.CHECKING_FENCE, E.FenceHeld): _M._fence_held,
    (Phase.LISTING_DDLS, E.DdlsListed): _M._ddls_listed,
    (Phase.SENDING_DDLS, E.DdlSent): _M._send_ddl,
    (Phase.RESOLVING, E.ResolvedSent): _M._finish,
    (Phase.FINISHING, E.AttemptFinished): _M._finished,
    (Phase.ANNOUNCING, E.DdlsAnnounced): _M._save,
    (Phase.SAVING, E.CheckpointSaved): _M._saved,
    (Phase.ENDING_EPOCH, E.EpochEnded): _M._react,
    (Phase.CHECKING_TOPICS_AGAIN, E.TopicsChecked): _M._topics_checked_again,
    (Phase.WAITING, E.Waited): _M._next_attempt,
}
_FAILURES: Mapping[tuple[Phase, type[E.Event]], Transition] = {
    **{
        (phase, E.Failed): _M._attempt_failed
        for phase in (
            *(
                Phase.LEARNING,
                Phase.LISTING_BOOTSTRAPS,
                Phase.BOOTSTRAP_EPOCH,
                Phase.SENDING_BOOTSTRAPS,
                Phase.OPENING,
                Phase.CHECKING_TOPICS,
            ),
            *(Phase.BEGINNING, Phase.PLANNING, Phase.RUNNING, Phase.CHECKING_FENCE, Phase.LISTING_DDLS, Phase.SENDING_DDLS),
            *(Phase.RESOLVING, Phase.FINISHING),
        )
    },
    (Phase.KEEPING, E.Failed): _M._fail_at_once,
    (Phase.ANNOUNCING, E.Failed): _M._fail_at_once,
    (Phase.SAVING, E.Failed): _M._fail_at_once,
    (Phase.ENDING_EPOCH, E.Failed): _M._epoch_not_ended,
    (Phase.CHECKING_TOPICS_AGAIN, E.Failed): _M._topics_not_checked,
}
_STOPS: Mapping[tuple[Phase, type[E.Event]], Transition] = {
    **{(phase, E.StopAsked): _M._note_stop for phase in Phase if phase not in (Phase.IDLE, Phase.WAITING, Phase.OVER)},
    (Phase.WAITING, E.StopAsked): _M._stop,
}
TRANSITIONS: Mapping[tuple[Phase, type[E.Event]], Transition] = MappingProxyType({**_ANSWERS, **_FAILURES, **_STOPS})
"""What follows an event in a phase. A pair that is not here cannot be; nothing follows OVER."""


def under_way(saved: SavedPosition, planned: tuple[int, int] | None, ranges: Ranges) -> Position | None:
    """After a restart: where the batch that was under way has to end, by the interval of the newest attempt, which the fence keeps.
    None: that batch is delivered, or begins elsewhere."""
    if planned is None:
        return None
    starts = Position.of([start for start, _ in ranges]) if ranges else Position(planned[0])
    end = end_of(planned[1], ranges)
    return end if starts == saved and not saved.covers(end) else None


def _gap(error: TidemillError) -> str:
    """What stands between an error's message and what is said behind it: some show a statement in lines of its own."""
    return "\n" if "\n" in error.message else " "
