"""Timings that are also sent as traces, a trace a batch."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tidemill.delivery.machine import actions as A
from tidemill.delivery.measure.batch_spans import BatchSpans
from tidemill.delivery.measure.timings import Timings
from tidemill.delivery.position import Position
from tidemill.delivery.work_item import TaskResult
from tidemill.errors import TidemillError
from tidemill.traces.process import Tracer, tracer
from tidemill.traces.span import Span


def timings_of(feed: str) -> Timings:
    """The timings of a changefeed, traced if this process sends traces."""
    found = tracer()
    return Timings() if found is None else TracedTimings(feed, found)


class TracedTimings(Timings):
    """Sends the spans of each batch when it has ended."""

    def __init__(self, feed: str, tracer: Tracer) -> None:
        super().__init__()
        self._feed, self._tracer = feed, tracer
        self._spans: BatchSpans | None = None
        self._offset_ns = 0
        """Unix time less the clock of durations, as it was when the batch began: a clock that is set does not tear a batch apart."""

    def _now(self) -> int:
        return time.perf_counter_ns() + self._offset_ns

    def begun(self, batch: int, begin: Position, end: Position) -> None:
        self._offset_ns = time.time_ns() - time.perf_counter_ns()
        self._spans = BatchSpans(self._feed, batch, begin, end, self._now())

    def answered(self, request: A.Request, seconds: float, error: TidemillError | None = None) -> None:
        super().answered(request, seconds, error)
        if self._spans is not None:
            now = self._now()
            self._spans.answered(request, now - round(seconds * 1e9), now, error)

    def tasks(self, results: Iterable[TaskResult]) -> None:
        found = tuple(results)
        super().tasks(found)
        if self._spans is not None:
            self._spans.tasks(found)

    def delivered(self, report: A.Report, seconds: float) -> None:
        super().delivered(report, seconds)
        if self._spans is not None:
            self._send(self._spans.delivered(report, self._now()))

    def failed(self, error: TidemillError) -> None:
        super().failed(error)
        if self._spans is not None:
            self._send(self._spans.failed(error, self._now()))

    def _send(self, span: Span) -> None:
        self._spans = None
        self._tracer.send(span)
