"""Runs the scenario files of the batch machine: a driver that does what the file says, and prints what the machine asks it to do.

tests/delivery/machine/scenarios/README.md explains the notation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.support.delivery.saved import saved
from tests.support.simulation.scenarios import Block
from tidemill.delivery.machine import actions as A
from tidemill.delivery.machine import events as E
from tidemill.delivery.machine.batch_machine import BatchMachine, under_way
from tidemill.delivery.machine.failures import ExecutorLost, JobLost
from tidemill.delivery.machine.retry import RetryPolicy
from tidemill.delivery.machine.state import Phase
from tidemill.delivery.position import Plan, Position, Ranges, SavedPosition
from tidemill.delivery.work_item import TaskFailure, TaskResult, TaskStats, WorkItem
from tidemill.errors import (
    DiskLow,
    Fenced,
    LogUnavailable,
    MessageRefused,
    RegistryUnavailable,
    SchemaIncompatible,
    SegmentGone,
    SinkError,
    SinkUnavailable,
    TidemillError,
)
from tidemill.tidb.schema.events import DdlEvent

ERRORS: dict[str, TidemillError] = {
    "sink_away": SinkUnavailable("no broker answers"),
    "sink_refuses": SinkError("not authorized"),
    "topic_gone": SinkUnavailable("topic t is not there"),
    "topic_not_made": SinkError("topic t does not exist and auto-create-topic is false"),
    "message_refused": MessageRefused("MSG_SIZE_TOO_LARGE"),
    "registry_away": RegistryUnavailable("503"),
    "registry_refuses": SchemaIncompatible("subject t-value: column a"),
    "log_away": LogUnavailable("time-out"),
    "disk_full": DiskLow("no room"),
    "segment_gone": SegmentGone("rows/0/x.arrow is not there"),
    "job_lost": JobLost("a worker died"),
    "executor_lost": ExecutorLost("Spark ran it again (its run 2)"),
    "fenced": Fenced("another driver has begun"),
}


def request_name(kind: type) -> str:
    """RunJob → run-job."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def ddl(ts: int, query: str) -> DdlEvent:
    return DdlEvent(ts, ts, 1, 1, 0, 3, "d", "t", "", "", 5, query, "", True)


def work_item(attempt: A.Attempt, number: int) -> WorkItem:
    return WorkItem("f", attempt.batch, attempt.epoch, number, attempt.from_ts, attempt.to_ts, (0,), (), 0, 1, "pack", "sink", "fence")


def done(item: WorkItem) -> TaskStats:
    return TaskStats(item.number, messages=2, acked=2)


def interval(from_ts: int, to_ts: int, ranges: Ranges = ()) -> str:
    parts = " " + " ".join(f"({a},{b}]" for a, b in ranges) if ranges else ""
    return f"({from_ts},{to_ts}]{parts}"


class Killed(Exception):
    """The driver's process dies."""


@dataclass
class Surroundings:
    """The surroundings of a machine: Spark, the sink, the log, the fence and the checkpoint. They outlive it."""

    items: tuple[int, ...] = (2,)  # work items of the next attempts; the last number stays
    rows_left_out: int = 0
    ddls: list[DdlEvent] = field(default_factory=list)
    bootstraps: int = 0
    topics_change: bool = False
    barriers: tuple[int, ...] = ()
    epoch: int = 0
    planned: tuple[int, int] | None = None
    planned_ranges: Ranges = ()
    other_driver: bool = False

    def advance(self, plan: Plan | None) -> int:
        if self.other_driver:
            raise ERRORS["fenced"]
        self.epoch += 1
        self.planned, self.planned_ranges = ((plan.from_ts, plan.to_ts), plan.ranges) if plan is not None else (None, ())
        return self.epoch

    def answer(self, request: A.Request, now: float) -> Iterator[E.Event]:
        """Return the events of an answer without a failure."""
        match request:
            case A.LearnSchemas(from_ts, to_ts):
                yield E.SchemasLearned(tuple(ts for ts in self.barriers if from_ts < ts <= to_ts))
            case A.ListBootstraps():
                yield E.BootstrapsListed(tuple(("t", b"k", b"v", (0,)) for _ in range(self.bootstraps)))
            case A.TakeEpoch(plan):
                yield E.EpochTaken(self.advance(plan))
            case A.SendBootstraps():
                yield E.BootstrapsSent()
            case A.CheckTopics():
                yield E.TopicsChecked(self.topics_change)
            case A.BeginAttempt():
                yield E.AttemptBegun()
            case A.PlanRows(attempt):
                yield E.RowsPlanned(tuple(work_item(attempt, number) for number in range(self.items[0])))
                self.items = self.items[1:] or self.items
            case A.RunJob(items):
                yield from [E.ItemReported(done(item)) for item in items]
                yield E.JobEnded(now)
            case A.CheckFence():
                if self.other_driver:
                    raise ERRORS["fenced"]
                yield E.FenceHeld()
            case A.ListDdls(from_ts, to_ts):
                yield E.DdlsListed(tuple(d for d in self.ddls if from_ts < d.ts <= to_ts))
            case A.SendDdl():
                yield E.DdlSent()
            case A.SendResolved():
                yield E.ResolvedSent()
            case A.FinishAttempt():
                yield E.AttemptFinished()
            case A.AnnounceDdls():
                yield E.DdlsAnnounced()
            case A.SaveCheckpoint(report):
                yield E.CheckpointSaved(saved(report.end))
            case A.EndEpoch(plan):
                self.advance(plan)
                yield E.EpochEnded()
            case A.Wait():
                yield E.Waited()


def shown(action: A.Action) -> str:
    """An action as scenario files have it."""
    name = request_name(type(action))
    match action:
        case A.TakeEpoch(plan) | A.EndEpoch(plan):
            return f"{name} for {interval(plan.from_ts, plan.to_ts, plan.ranges)}" if plan is not None else name
        case A.LearnSchemas(_, to_ts):
            return f"{name} up to {to_ts}"
        case A.ListBootstraps(ts):
            return f"{name} at {ts}"
        case A.ListDdls(from_ts, to_ts):
            return f"{name} of {interval(from_ts, to_ts)}"
        case A.SendBootstraps(attempt, messages):
            return f"{name} in epoch {attempt.epoch}: {len(messages)} messages"
        case A.BeginAttempt(attempt) | A.PlanRows(attempt) | A.FinishAttempt(attempt) | A.DiscardAttempt(attempt):
            return f"{name} of epoch {attempt.epoch}"
        case A.RunJob(items):
            return f"{name} in epoch {items[0].epoch}: items {' '.join(str(i.number) for i in items)}"
        case A.SendDdl(one):
            return f"{name} {one.ts}: {one.query}"
        case A.AnnounceDdls(ddls):
            return f"{name} {' '.join(str(d.ts) for d in ddls)}"
        case A.SendResolved(ts):
            return f"{name} {ts}"
        case A.SaveCheckpoint(report):
            return f"{name} {report.end}"
        case A.Wait(seconds):
            return f"{name} {seconds:g} s"
        case A.NoteFailure(error):
            return f"{name} {error.code}"
        case A.Warn(text) | A.Debug(text):
            return f"{name}: {text}"
        case A.EndBatch(report):
            return f"{name}: attempts {report.attempts}, epoch {report.epoch}" if report is not None else f"{name}: it was delivered before"
        case A.End(why):
            return f"{name}: {why.value}"
        case A.Fail(error):
            return f"{name} {error.code}: {error.message}"
        case _:
            return name


@dataclass
class Scripted:
    """A driver whose work goes as the scenario says."""

    around: Surroundings = field(default_factory=Surroundings)
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    checkpoint: SavedPosition | None = None
    target: int | None = None
    now: float = 0.0
    out: list[str] = field(default_factory=list)
    steps: list[tuple[Phase, type[E.Event]]] = field(default_factory=list)
    _fails: dict[str, list[str]] = field(default_factory=dict)
    _items: list[tuple[int, str]] = field(default_factory=list)
    _stop_at: str = ""
    _other_driver_at: str = ""
    _kill_at: str = ""
    _takes: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.machine = self._new_machine()

    def _new_machine(self) -> BatchMachine:
        sends = self.around.bootstraps > 0
        return BatchMachine("f", self.policy, now=self.now, sends_bootstraps=sends, saved=self.checkpoint, target=self.target)

    def run(self, block: Block) -> list[str]:
        """What a block's commands print."""
        self.out = []
        for text in block.commands:
            name, _, rest = text.partition(" ")
            command: Callable[[str], None] = getattr(self, f"do_{name.replace('-', '_')}")
            command(rest)
        return self.out

    # commands that prepare failures and answers

    def do_items(self, text: str) -> None:
        self.around.items = tuple(int(number) for number in text.split())

    def do_left_out(self, text: str) -> None:
        self.around.rows_left_out = int(text)

    def do_ddl(self, text: str) -> None:
        ts, _, query = text.partition(" ")
        self.around.ddls.append(ddl(int(ts), query))

    def do_barrier(self, text: str) -> None:
        self.around.barriers = (*self.around.barriers, int(text))

    def do_topics(self, text: str) -> None:
        self.around.topics_change = text == "change"

    def do_other_driver_at(self, text: str) -> None:
        self._other_driver_at = text

    def do_fail(self, text: str) -> None:
        request, error, *times = text.split()
        self._fails.setdefault(request, []).extend([error] * int(times[0] if times else 1))

    def do_item(self, text: str) -> None:
        number, what = text.split()
        self._items.append((int(number), what))

    def do_stop_at(self, text: str) -> None:
        self._stop_at = text

    def do_kill_at(self, text: str) -> None:
        self._kill_at = text

    def do_takes(self, text: str) -> None:
        request, seconds = text.split()
        self._takes[request] = float(seconds)

    def do_clock(self, text: str) -> None:
        self.now += float(text)

    def do_pass(self, text: str) -> None:
        """`pass 1 from 10 to 20`: an empty interval is passed over between two batches."""
        found = re.fullmatch(r"(\d+) from (\d+) to (\d+)", text)
        assert found is not None, text
        self.machine.passed(A.Report(int(found[1]), int(found[2]), int(found[3]), self.around.epoch, 1, TaskStats(-1), ()))

    # commands that do something

    def do_start(self, text: str) -> None:
        """A process begins: `start 10 target 50 bootstraps 2`; `start` without a checkpoint is a replay."""
        words = text.split()
        self.checkpoint = SavedPosition(int(words.pop(0))) if words and words[0].isdecimal() else None
        options = dict(zip(words[::2], words[1::2], strict=True))
        self.target = int(options["target"]) if "target" in options else None
        self.around.bootstraps = int(options.get("bootstraps", "0"))
        self.machine = self._new_machine()

    def do_restart(self, _: str) -> None:
        """Another process begins at the checkpoint that was saved."""
        assert self.checkpoint is not None
        self.machine = self._new_machine()
        end = under_way(self.checkpoint, self.around.planned, self.around.planned_ranges)
        self.out.append(f"begins at {self.checkpoint}, " + (f"the batch under way ends at {end}" if end else "no batch is under way"))

    def do_batch(self, text: str) -> None:
        """`batch 1 from 10 to 20`; `from 10,12 to 10,20` of two log partitions."""
        found = re.fullmatch(r"(\d+) from ([\d,]+) to ([\d,]+)", text)
        assert found is not None, text
        begin, end = (Position.of([int(ts) for ts in part.split(",")]) for part in (found[2], found[3]))
        events: list[E.Event] = [E.BatchBegun(int(found[1]), begin, end, self.now)]
        try:
            while events:
                event = events.pop(0)
                phase = self.machine.phase
                actions = self.machine.step(event)
                self.steps.append((phase, type(event)))
                for action in actions:
                    self.out.append(shown(action))
                    if not isinstance(action, A.Note):
                        events += self._answer(action)
        except Killed:
            self.out.append("the process dies")

    def _answer(self, request: A.Request) -> list[E.Event]:
        name = request_name(type(request))
        if name == self._kill_at:
            self._kill_at = ""
            raise Killed
        if name == self._other_driver_at:
            self.out.append("  another driver takes the changefeed")
            self.around.other_driver = True
        stop: list[E.Event] = []
        if name == self._stop_at:
            self._stop_at = ""
            self.out.append("  a stop is asked for")
            stop = [E.StopAsked()]
            if isinstance(request, A.Wait):
                return stop
        self.now += request.seconds if isinstance(request, A.Wait) else self._takes.get(name, 0.0)
        errors = self._fails.get(name)
        if errors:
            return [*stop, self._failed(ERRORS[errors.pop(0)])]
        try:
            answers = [*self.around.answer(request, self.now)]
        except TidemillError as error:
            return [*stop, self._failed(error)]
        if isinstance(request, A.SaveCheckpoint):
            self.checkpoint = saved(request.report.end)
        return [*stop, *self._as_told(answers)]

    def _failed(self, error: TidemillError) -> E.Failed:
        self.out.append(f"  {error.code}: {error.message}")
        return E.Failed(error, self.now)

    def _as_told(self, answers: list[E.Event]) -> Iterator[E.Event]:
        """Return the answers; those of items are as the scenario says."""
        told, left = dict(self._items), self.around.rows_left_out
        for answer in answers:
            if not isinstance(answer, E.ItemReported):
                yield answer
                continue
            number = answer.result.number
            what = told.get(number)
            if what is not None:
                self._items.remove((number, what))
                self.out.append(f"  item {number}: {what}")
            result = _result(number, what, answer.result)
            if result is not None:
                if isinstance(result, TaskStats):
                    result.skipped_rows, left = left, 0
                yield E.ItemReported(result)


def _result(number: int, what: str | None, usual: TaskResult) -> TaskResult | None:
    """What an item reports; None: nothing."""
    match what:
        case None:
            return usual
        case "silent":
            return None
        case "unacknowledged":
            return TaskStats(number, messages=2, acked=1)
        case _:
            error = ERRORS[what]
            return TaskFailure(number, error.code, error.message, error.retryable)
