"""A replay of a small log, as a collector of traces sees it."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.changelog.logs import golden_log, golden_span
from tests.support.delivery.deliveries import settings
from tests.support.traces.collector import Collector, attributes, collector
from tests.support.traces.kept import Kept
from tidemill.changefeed.replay import replay
from tidemill.delivery.machine import actions as A
from tidemill.delivery.measure.timings import Timings
from tidemill.delivery.measure.traced import TracedTimings, timings_of
from tidemill.delivery.position import Position
from tidemill.delivery.work_item import TaskStats
from tidemill.errors import SinkUnavailable
from tidemill.traces import process


def test_a_replay_sends_a_trace_for_each_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    with collector() as there:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{there.endpoint}/v1/traces")
        process.begin("replay")
        try:
            start, end = golden_span("ddl_columns")
            done = replay(str(golden_log(tmp_path / "log")), settings(tmp_path / "out"), start_ts=start, target_ts=end)
        finally:
            process.end()
        there.wait(lambda c: sum(one.name == "batch" for one in c.spans) >= done.batches)
        check(there, done.batches, done.rows)


def check(there: Collector, batches: int, rows: int) -> None:
    traces: dict[bytes, list[object]] = {}
    for one in there.spans:
        traces.setdefault(one.trace_id, []).append(one)
    assert len(traces) == batches
    roots = [one for one in there.spans if not one.parent_span_id]
    assert [one.name for one in roots] == ["batch"] * batches
    told = sorted((attributes(one) for one in roots), key=lambda one: one["tidemill.batch"])
    assert [one["tidemill.batch"] for one in told] == [*range(batches)]
    assert sum(one["tidemill.rows"] for one in told) == rows > 0
    assert all(one["tidemill.to_ts"] == after["tidemill.from_ts"] for one, after in pairwise(told))
    by_id = {one.span_id: one for one in there.spans}
    for one in there.spans:
        if one.parent_span_id:
            parent = by_id[one.parent_span_id]
            assert parent.trace_id == one.trace_id
            expected = {"task": "job", "route": "task", "encode": "task", "deliver": "task", "flush": "task"}.get(one.name, "batch")
            assert parent.name == expected
    assert {"plan", "job", "task", "route", "encode", "deliver", "ddl"} <= {one.name for one in there.spans}
    tasks = [attributes(one) for one in there.spans if one.name == "task"]
    assert sum(one["tidemill.rows"] for one in tasks) == rows


def test_timings_are_counted_and_told() -> None:
    tracer = Kept()
    timings = TracedTimings("feed", tracer)
    timings.answered(A.Wait(1.0), 1.0)  # outside a batch there is nothing to tell
    timings.begun(0, Position(1), Position(2))
    timings.answered(A.TakeEpoch(None), 0.5)
    timings.tasks([TaskStats(0, route_ns=10**9)])
    timings.answered(A.RunJob(()), 2.0)
    timings.delivered(A.Report(0, 1, 2, 1, 1, TaskStats(-1, rows=7), ()), 3.0)
    timings.begun(1, Position(2), Position(3))
    timings.failed(SinkUnavailable("away"))
    timings.failed(SinkUnavailable("away"))
    [delivered, failed] = tracer.spans
    fence, job = delivered.children
    assert (fence.name, fence.ended_ns - fence.begun_ns) == ("fence", 500_000_000)
    assert [one.name for one in job.children] == ["task"]
    assert fence.ended_ns <= job.ended_ns <= delivered.ended_ns
    assert (failed.error, failed.attributes["tidemill.batch"]) == (SinkUnavailable.code, 1)
    plain = Timings()
    plain.answered(A.TakeEpoch(None), 0.5)
    plain.tasks([TaskStats(0, route_ns=10**9)])
    plain.answered(A.RunJob(()), 2.0)
    plain.delivered(A.Report(0, 1, 2, 1, 1, TaskStats(-1, rows=7), ()), 3.0)
    assert timings.as_dict() == plain.as_dict()


def test_without_a_tracer_they_are_plain() -> None:
    assert type(timings_of("feed")) is Timings
