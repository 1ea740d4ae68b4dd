"""The spans of a batch, one trace each: what its driver did, one behind the other, and below the job what its tasks did. Pure.

    batch → schemas → fence → plan → job → ddl … → resolved → finish → checkpoint
                                      └ task → route, encode, deliver, flush

A batch that is tried again has all attempts in its trace, and the pauses between them. A task takes its steps chunk by chunk: the spans of
its steps are their sums, one behind the other from the task's beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nlargest
from operator import attrgetter

from tidemill.delivery.machine import actions as A
from tidemill.delivery.machine.failures import Stopped
from tidemill.delivery.measure.timings import STAGES, STEPS
from tidemill.delivery.position import Position
from tidemill.delivery.work_item import TaskFailure, TaskResult, TaskStats
from tidemill.errors import TidemillError
from tidemill.traces.span import Span, Value

NAMES: Mapping[type[A.Request], str] = {**STAGES, A.RunJob: "job", A.SendBootstraps: "bootstraps", A.Wait: "pause"}
"""Which requests have a span, and its name. The others are short."""
MOST_STAGES, MOST_TASKS = 256, 64
"""Spans below one batch and below one job. Of tasks those are left out that took least time, of stages the later ones: a sink that is away
for hours makes one batch of thousands of attempts."""
SHORTEST_NS = 50_000
"""A DDL, a pause and a stage with tasks have a span however short they were, another stage from this time on."""


class BatchSpans:
    """Collects what is told of one batch. Times are Unix time in nanoseconds."""

    def __init__(self, feed: str, batch: int, begin: Position, end: Position, begun_ns: int) -> None:
        self._begun_ns = begun_ns
        self._stages: list[Span] = []
        self._left_out, self._attempts = 0, 0
        self._results: tuple[TaskResult, ...] = ()
        self._attributes: dict[str, Value] = {
            "tidemill.changefeed": feed,
            "tidemill.batch": batch,
            "tidemill.from_ts": begin.ts,
            "tidemill.to_ts": end.ts,
        }

    def tasks(self, results: Iterable[TaskResult]) -> None:
        """The tasks of the job under way have come back."""
        self._results = tuple(results)

    def answered(self, request: A.Request, begun_ns: int, ended_ns: int, error: TidemillError | None = None) -> None:
        """A request was carried out, or failed."""
        name = NAMES.get(type(request))
        if name is None and error is None:
            return
        if isinstance(request, A.TakeEpoch):
            self._attempts += 1
        results, self._results = self._results, ()
        is_told = error is not None or isinstance(request, A.RunJob | A.SendDdl | A.Wait) or ended_ns - begun_ns >= SHORTEST_NS
        if not is_told:
            return
        if len(self._stages) >= MOST_STAGES:
            self._left_out += 1
            return
        code, message = _said(error)
        below = tuple(_task(one, begun_ns, ended_ns) for one in _longest(results))
        self._stages.append(Span(name or type(request).__name__, begun_ns, ended_ns, _of(request), below, code, message))

    def delivered(self, report: A.Report, ended_ns: int) -> Span:
        """Return the trace of a batch that was delivered."""
        stats = report.stats
        return self._root(
            ended_ns,
            {
                "tidemill.epoch": report.epoch,
                "tidemill.attempts": report.attempts,
                "tidemill.rows": stats.rows,
                "tidemill.messages": stats.messages,
                "tidemill.bytes": stats.bytes_out,
                "tidemill.ddls": len(report.ddls),
                "tidemill.cpu_ms": round(stats.cpu_ns / 1e6, 3),
            },
        )

    def failed(self, error: TidemillError, ended_ns: int) -> Span:
        """Return the trace of a batch that was given up, or stopped."""
        if isinstance(error, Stopped):
            return self._root(ended_ns, {"tidemill.attempts": self._attempts, "tidemill.stopped": True})
        return self._root(ended_ns, {"tidemill.attempts": self._attempts}, error)

    def _root(self, ended_ns: int, more: Mapping[str, Value], error: TidemillError | None = None) -> Span:
        attributes = {**self._attributes, **more}
        if self._left_out:
            attributes["tidemill.spans_left_out"] = self._left_out
        return Span("batch", self._begun_ns, ended_ns, attributes, tuple(self._stages), *_said(error))


def _said(error: TidemillError | None) -> tuple[str, str]:
    return ("", "") if error is None else (error.code, error.message)


def _of(request: A.Request) -> Mapping[str, Value]:
    """What distinguishes a request from others of its kind. The text of a DDL is not in it: it may hold what users wrote."""
    match request:
        case A.PlanRows(attempt) | A.FinishAttempt(attempt):
            return {"tidemill.epoch": attempt.epoch}
        case A.RunJob(items):
            return {"tidemill.epoch": items[0].epoch, "tidemill.tasks": len(items)} if items else {}
        case A.SendDdl(ddl):
            return {"tidemill.schema": ddl.schema, "tidemill.table": ddl.table, "tidemill.ts": ddl.ts, "tidemill.job_id": ddl.job_id}
        case A.SendResolved(ts):
            return {"tidemill.ts": ts}
        case _:
            return {}


def _longest(results: tuple[TaskResult, ...]) -> list[TaskResult]:
    """At most so many tasks, in the order of their numbers; those that failed are among them."""
    found = nlargest(MOST_TASKS, results, key=lambda one: float("inf") if isinstance(one, TaskFailure) else _took(one))
    return sorted(found, key=attrgetter("number"))


def _took(stats: TaskStats) -> int:
    return sum(getattr(stats, f"{step}_ns") for step in STEPS)


def _task(result: TaskResult, begun_ns: int, ended_ns: int) -> Span:
    """A task of the job of this interval. The worker's clock may be another machine's, so its span is moved into the job's."""
    if isinstance(result, TaskFailure):
        return Span("task", begun_ns, ended_ns, {"tidemill.task": result.number}, (), result.code, result.message)
    at = begun = max(begun_ns, min(result.began_ns or begun_ns, ended_ns - _took(result)))
    steps = []
    for step in STEPS:
        took = getattr(result, f"{step}_ns")
        if took:
            steps.append(Span(step, at, at + took))
            at += took
    attributes: dict[str, Value] = {
        "tidemill.task": result.number,
        "process.pid": result.worker,
        "tidemill.rows_read": result.rows_read,
        "tidemill.rows": result.rows,
        "tidemill.messages": result.messages,
        "tidemill.bytes": result.bytes_out,
        "tidemill.cpu_ms": round(result.cpu_ns / 1e6, 3),
    }
    return Span("task", begun, at, attributes, tuple(steps))
