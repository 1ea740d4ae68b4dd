"""How long the parts of batches take: measured around what the driver carries out, once a batch or task, never a row.

A *stage* is one kind of the driver's work, a *step* is a part of a task. Both are counted from the start of the process, failed attempts
included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.delivery.machine import actions as A
from tidemill.delivery.position import Position
from tidemill.delivery.work_item import TaskResult, TaskStats
from tidemill.errors import TidemillError
from tidemill.metrics.histogram import ROWS, Histogram, Histograms

STAGES: Mapping[type[A.Request], str] = {
    A.LearnSchemas: "schemas",
    A.TakeEpoch: "fence",
    A.PlanRows: "plan",
    A.RunJob: "tasks",
    A.SendDdl: "ddl",
    A.SendResolved: "resolved",
    A.FinishAttempt: "finish",
    A.SaveCheckpoint: "checkpoint",
}
"""Which requests of the batch machine count, and as what. The others are short, or only wait."""
STEPS = ("route", "encode", "deliver", "flush")
"""Of a task: rows read, merged and sent to their targets; written as messages; handed to the sink; acknowledged by it."""


class Timings:
    """The durations of one changefeed. `traced.TracedTimings` makes traces of the same."""

    def __init__(self) -> None:
        self._stages, self._steps = Histograms(STAGES.values()), Histograms(STEPS)
        self._batch, self._rows, self._registry = Histogram(), Histogram(ROWS), Histogram()

    def begun(self, batch: int, begin: Position, end: Position) -> None:
        """A batch begins."""

    def answered(self, request: A.Request, seconds: float, error: TidemillError | None = None) -> None:
        """A request of the batch machine was carried out, or failed, in so many seconds."""
        stage = STAGES.get(type(request))
        if stage is not None:
            self._stages.observe(stage, seconds)

    def tasks(self, results: Iterable[TaskResult]) -> None:
        """The tasks of a job have come back."""
        for one in results:
            if isinstance(one, TaskStats):
                for step in STEPS:
                    self._steps.observe(step, getattr(one, f"{step}_ns") / 1e9)

    def delivered(self, report: A.Report, seconds: float) -> None:
        """A batch was delivered, all attempts and pauses together in so many seconds."""
        self._batch.observe(seconds)
        self._rows.observe(report.stats.rows)

    def failed(self, error: TidemillError) -> None:
        """The batch ended without being delivered."""

    def registry(self, seconds: float) -> None:
        """The schema registry answered a request, or failed to, in so many seconds."""
        self._registry.observe(seconds)

    def as_dict(self) -> dict[str, Any]:
        """For delivery.json."""
        return {
            "stages": self._stages.as_dict(),
            "steps": self._steps.as_dict(),
            "batch": self._batch.as_dict(),
            "rows": self._rows.as_dict(),
            "registry": self._registry.as_dict(),
        }
