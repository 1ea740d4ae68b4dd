"""Durations of batches, stages and tasks."""

from __future__ import annotations

from tidemill.delivery.machine import actions as A
from tidemill.delivery.measure.timings import STAGES, STEPS, Timings
from tidemill.delivery.work_item import TaskFailure, TaskStats
from tidemill.metrics.histogram import all_from, from_dict


def test_what_counts() -> None:
    timings = Timings()
    timings.answered(A.LearnSchemas(1, 2), 0.5)
    timings.answered(A.Wait(5.0), 5.0)  # pauses do not count as a stage
    timings.tasks([TaskStats(0, route_ns=10**9, flush_ns=2 * 10**9), TaskFailure(1, "TM:ErrX", "", True)])
    timings.delivered(A.Report(0, 1, 2, 1, 1, TaskStats(-1, rows=7), ()), 1.5)
    timings.registry(0.25)
    told = timings.as_dict()
    stages, steps = all_from(told["stages"]), all_from(told["steps"])
    assert set(stages) == set(STAGES.values())
    assert {name: one.count for name, one in stages.items() if one.count} == {"schemas": 1}
    assert {name: (one.count, one.sum) for name, one in steps.items()} == {
        "route": (1, 1.0), "encode": (1, 0.0), "deliver": (1, 0.0), "flush": (1, 2.0)
    }  # fmt: skip
    assert tuple(steps) == STEPS
    assert [(one.count, one.sum) for name in ("batch", "rows", "registry") if (one := from_dict(told[name]))] == [
        (1, 1.5),
        (1, 7.0),
        (1, 0.25),
    ]
