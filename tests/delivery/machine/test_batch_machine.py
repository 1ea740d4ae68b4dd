"""The batch machine in random surroundings: whatever fails, and whenever a stop, a kill or another driver comes, the guarantees hold.
`Witness` sees each action and its answer, and checks them against rules of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from tests.support.delivery.batch_scenarios import ERRORS, Surroundings, ddl
from tests.support.delivery.saved import saved
from tidemill.delivery.machine import actions as A
from tidemill.delivery.machine import events as E
from tidemill.delivery.machine.batch_machine import TRANSITIONS, BatchMachine, under_way
from tidemill.delivery.machine.retry import RetryPolicy
from tidemill.delivery.machine.state import Phase
from tidemill.delivery.position import Position, end_of
from tidemill.delivery.work_item import TaskFailure, TaskResult, TaskStats
from tidemill.errors import TidemillError

LIVES = 600
START = Position(0)
BATCHES = 8


@dataclass
class Witness:
    """Checks each action when it is asked for. It outlives the machines that it watches."""

    epochs: set[int] = field(default_factory=set)  # taken and not used yet
    used: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)  # of attempts that failed
    acknowledged: bool = False  # all rows of the attempt under way
    fence_held: bool = False
    to_send: list[int] | None = None  # DDLs; None: not listed
    resolved_sent: bool = False
    epoch: int = 0
    open: bool = False  # an attempt has begun and is neither finished nor discarded
    newest_resolved: int = 0
    rows_to: Position = START
    checkpoint: Position = START
    target: int | None = None

    def asked(self, action: A.Action) -> None:
        match action:
            case A.SendBootstraps(attempt):
                self._begins(attempt)
            case A.BeginAttempt(attempt):
                self._begins(attempt)
                self.acknowledged = self.fence_held = self.resolved_sent = False
                self.to_send = None
                self._interval = attempt
                assert self.target is None or attempt.to_ts <= self.target, "nothing past the target"
            case A.PlanRows(attempt) | A.FinishAttempt(attempt):
                assert attempt.epoch == self.epoch, "one epoch an attempt"
                if isinstance(action, A.FinishAttempt):
                    moves = attempt.to_ts > attempt.from_ts or not attempt.ranges
                    self._rows_are_safe()
                    assert self.resolved_sent == moves
            case A.RunJob(items):
                assert {item.epoch for item in items} == {self.epoch}, "one epoch an attempt"
            case A.SendDdl(one):
                self._rows_are_safe()
                assert self._interval.from_ts < one.ts <= self._interval.to_ts
                assert self.to_send, "each DDL once"
                assert self.to_send.pop(0) == one.ts, "in order"
            case A.SendResolved(ts):
                self._rows_are_safe()
                assert self.to_send == [], "and after the DDLs"
                assert ts == self._interval.to_ts
            case A.DiscardAttempt(attempt):
                self.ended.add(attempt.epoch)
                self.open = False
                self.acknowledged = False
            case A.TakeEpoch(plan) | A.EndEpoch(plan):
                assert not self.open, "what a failed attempt left at the sink is dropped first"
                assert plan is not None
                assert plan.begin == self.checkpoint, "a batch begins where the next process would"
            case A.SaveCheckpoint(report):
                assert report.end.ts <= max(self.newest_resolved, self.checkpoint.ts), "a checkpoint never beyond a resolved ts"
                assert self.rows_to.covers(report.end)
                assert report.end.covers(self.checkpoint), "it never goes back"

    def _rows_are_safe(self) -> None:
        """What has to be so before a DDL or a resolved event is sent."""
        assert self.acknowledged, "all rows of the batch are acknowledged"
        assert self.fence_held, "no other driver has taken over"

    def _begins(self, attempt: A.Attempt) -> None:
        assert attempt.epoch in self.epochs, "an epoch of its own"
        self.epochs.remove(attempt.epoch)
        self.used.add(attempt.epoch)
        assert attempt.epoch == max(self.used), "epochs grow"
        assert attempt.epoch not in self.ended, "nothing of an attempt that failed"
        self.epoch, self.open = attempt.epoch, True

    def answered(self, request: A.Request, event: E.Event) -> None:
        match request, event:
            case A.TakeEpoch(), E.EpochTaken(epoch):
                self.epochs = {epoch}
            case A.EndEpoch(), E.EpochEnded():
                self.epochs.clear()
            case A.PlanRows(), E.RowsPlanned(items):
                self.acknowledged, self._left = not items, {item.number for item in items}
            case A.RunJob(), E.ItemReported(TaskStats(number=number, messages=messages, acked=acked)) if messages == acked:
                self._left.discard(number)
            case A.RunJob(), E.JobEnded():
                self.acknowledged = not self._left
            case A.CheckFence(), E.FenceHeld():
                self.fence_held = True
            case A.ListDdls(), E.DdlsListed(ddls):
                self.to_send = [one.ts for one in ddls]
            case A.SendResolved(), E.ResolvedSent():
                self.resolved_sent = True
            case A.SendBootstraps(), E.BootstrapsSent():
                self.open = False
            case A.FinishAttempt(attempt), E.AttemptFinished():
                self.open = False
                if self.resolved_sent:
                    self.newest_resolved = attempt.to_ts
                self.rows_to = A.Report(0, attempt.from_ts, attempt.to_ts, 0, 0, TaskStats(-1), (), attempt.ranges).end
            case A.SaveCheckpoint(report), E.CheckpointSaved():
                self.checkpoint = report.end


@dataclass
class Life:
    """A changefeed that anything may happen to."""

    random: Random
    trouble: float
    taken: set[tuple[Phase, type[E.Event]]]
    around: Surroundings = field(default_factory=Surroundings)
    witness: Witness = field(default_factory=Witness)
    now: float = 0.0

    def live(self) -> None:
        random = self.random
        end, batch, heads = 0, 0, Position(0)
        self.witness.target = random.choice((None, 45))
        self.around.ddls = [ddl(ts, "") for ts in (10, 10, 30)]
        while end < 80 and batch < BATCHES:
            self.around.bootstraps, self.around.other_driver = random.choice((0, 2)), False
            machine = BatchMachine(
                "f",
                RetryPolicy(total_s=random.choice((0.0, 20.0, 300.0)), lost_attempts=random.choice((1, 3))),
                now=self.now,
                sends_bootstraps=self.around.bootstraps > 0,
                saved=saved(self.witness.checkpoint),
                target=self.witness.target,
            )
            alive, self.witness.open = True, False
            while alive and machine.phase is Phase.IDLE and batch < BATCHES:
                planned = under_way(saved(self.witness.checkpoint), self.around.planned, self.around.planned_ranges)
                self._checks_planned(planned)
                begin = self.witness.checkpoint
                if planned is None and not begin.parts and random.random() < 0.3:
                    begin = self._passes(machine, batch, begin)
                heads = planned or self._next(heads.joined(begin))
                if random.random() < 0.1:
                    begin = Position(max(0, begin.ts - 5))  # Spark's checkpoint is older
                end = heads.ts
                alive = self._deliver(machine, batch, begin, heads)
                batch += 1
            if machine.phase is Phase.OVER:
                self._nothing_follows(machine)
                if machine.reached:
                    return

    def _checks_planned(self, found: Position | None) -> None:
        """Whatever the process before was doing when it died: its batch is delivered, or ends where it would have ended there."""
        if self.around.planned is not None:
            end = end_of(self.around.planned[1], self.around.planned_ranges)
            assert found == end or self.witness.checkpoint.covers(end)

    def _passes(self, machine: BatchMachine, batch: int, begin: Position) -> Position:
        """An empty interval is passed over."""
        end = Position(begin.ts + 5)
        if self.witness.target is not None and end.ts > self.witness.target:
            return begin
        machine.passed(A.Report(batch, begin.ts, end.ts, self.around.epoch, 1, TaskStats(-1), ()))
        self.witness.newest_resolved, self.witness.rows_to = max(self.witness.newest_resolved, end.ts), end
        return end

    def _next(self, heads: Position) -> Position:
        ahead = heads.furthest + self.random.choice((0, 5, 10))
        return Position.of([self.random.randint(heads.ts, ahead), ahead]) if self.random.random() < 0.3 else Position(ahead)

    def _deliver(self, machine: BatchMachine, batch: int, begin: Position, end: Position) -> bool:
        """Return whether the process goes on."""
        asked: A.Request | None = None
        events: list[E.Event] = [E.BatchBegun(batch, begin, end, self.now)]
        for _ in range(3000):
            if not events:
                break
            event = events.pop(0)
            if asked is not None:
                self.witness.answered(asked, event)
            self.taken.add((machine.phase, type(event)))
            actions = machine.step(event)
            for number, action in enumerate(actions):
                self.witness.asked(action)
                if not isinstance(action, A.Note):
                    assert number == len(actions) - 1, "a request is the last action"
                    assert not events, "and only one is open"
                    if self.random.random() < self.trouble / 20:
                        return False
                    asked = action
                    events = self._answers(machine, action)
        else:
            return False  # storage may be away forever
        assert isinstance(actions[-1], A.EndBatch | A.End | A.Fail)
        return True

    def _answers(self, machine: BatchMachine, request: A.Request) -> list[E.Event]:
        random = self.random
        self.now += request.seconds if isinstance(request, A.Wait) else random.choice((0.0, 0.1, 40.0))
        self.around.items = (random.randint(0, 3),)
        self.around.topics_change = random.random() < 0.5
        self.around.other_driver = self.around.other_driver or random.random() < self.trouble / 50
        stop: list[E.Event] = [E.StopAsked()] if not machine.stopping and random.random() < self.trouble / 10 else []
        if stop and isinstance(request, A.Wait):
            return stop
        try:
            if not isinstance(request, A.Wait) and random.random() < self.trouble:
                raise random.choice([*ERRORS.values()])
            answers = [*self.around.answer(request, self.now)]
        except TidemillError as error:
            return [*stop, E.Failed(error, self.now)]
        told = [E.ItemReported(self._result(a.result)) if isinstance(a, E.ItemReported) else a for a in answers]
        return [*stop, *(a for a in told if not (isinstance(a, E.ItemReported) and random.random() < self.trouble / 20))]

    def _result(self, usual: TaskResult) -> TaskResult:
        if self.random.random() >= self.trouble / 3:
            return usual
        if self.random.random() < 0.2:
            return TaskStats(usual.number, messages=2, acked=1)
        error = self.random.choice([*ERRORS.values()])
        return TaskFailure(usual.number, error.code, error.message, error.retryable)

    def _nothing_follows(self, machine: BatchMachine) -> None:
        with pytest.raises(ValueError, match="cannot come"):
            machine.step(self.random.choice((E.BatchBegun(99, Position(0), Position(9), 0.0), E.Waited(), E.StopAsked())))


def test_whatever_happens_the_promises_hold_and_every_transition_is_taken() -> None:
    """Every pair of the table comes up, and no pair beside it: there are no unreachable ones."""
    taken: set[tuple[Phase, type[E.Event]]] = set()
    for seed in range(LIVES):
        random = Random(seed)
        Life(random, random.choice((0.0, 0.05, 0.2, 0.6)), taken).live()
    assert taken == set(TRANSITIONS)


def test_without_trouble_everything_is_delivered_once() -> None:
    for seed in range(20):
        life = Life(Random(seed), 0.0, set())
        life.live()
        used = life.witness.used
        assert life.witness.checkpoint.ts > 0
        assert used == set(range(1, len(used) + 1)), "every epoch that is taken is used"
