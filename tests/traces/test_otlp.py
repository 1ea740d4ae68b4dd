"""Spans as a collector gets them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from tests.support.traces.collector import Collector, attributes, collector
from tidemill.traces import otlp, process
from tidemill.traces.otlp import OtlpTracer
from tidemill.traces.span import Kind, Parent, Span

TREE = Span(
    "batch",
    1_000,
    9_000,
    {"tidemill.rows": 5, "tidemill.share": 0.5, "tidemill.small": True, "sink": "mysql://root:s3cret@db:3306/"},
    (Span("plan", 1_000, 2_000), Span("job", 2_000, 8_000, {}, (Span("task", 3_000, 7_000),), "TM:ErrX", "kafka://u:s3cret@k/ is away")),
)
CALLER = Parent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1")


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that the environment names."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    with collector() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        yield found


def test_a_tree_arrives_as_one_trace(there: Collector) -> None:
    process.begin("test")
    tracer = process.tracer()
    assert tracer is not None
    tracer.send(TREE)
    process.end()
    there.wait(lambda c: len(c.spans) == 4)
    assert {path for path, _ in there.requests} == {"/v1/traces"}
    spans = {one.name: one for one in there.spans}
    assert len({one.trace_id for one in there.spans}) == 1
    assert spans["batch"].parent_span_id == b""
    assert spans["plan"].parent_span_id == spans["job"].parent_span_id == spans["batch"].span_id
    assert spans["task"].parent_span_id == spans["job"].span_id
    times = {name: (one.start_time_unix_nano, one.end_time_unix_nano) for name, one in spans.items()}
    assert times == {"batch": (1000, 9000), "plan": (1000, 2000), "job": (2000, 8000), "task": (3000, 7000)}
    assert attributes(spans["batch"]) == {
        "tidemill.rows": 5, "tidemill.share": 0.5, "tidemill.small": True, "sink": "mysql://root:xxxxx@db:3306/"
    }  # fmt: skip
    assert attributes(spans["job"]) == {"error.type": "TM:ErrX"}
    assert spans["job"].status.message == "kafka://u:xxxxx@k/ is away"
    assert (spans["job"].status.code, spans["plan"].status.code) == (2, 0)
    [resource] = there.resources
    assert resource["service.name"] == "tidemill"
    assert resource["tidemill.part"] == "test"
    assert resource["process.pid"] == str(os.getpid())


def test_the_name_of_the_service_and_a_callers_trace(there: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "cdc-1")
    tracer = OtlpTracer("test")
    tracer.send(Span("GET", 1, 2, kind=Kind.SERVER), CALLER)
    tracer.send(Span("GET", 1, 2, kind=Kind.SERVER), Parent("00-what-is-this"))
    tracer.send(Span("unsampled", 1, 2, {}, (Span("below", 1, 2),)), Parent(CALLER.traceparent[:-2] + "00"))
    tracer.close()
    there.wait(lambda c: len(c.spans) >= 2)
    assert [one.name for one in there.spans] == ["GET", "GET"]
    first, second = there.spans
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert (first.trace_state, first.kind) == ("vendor=1", 2)
    assert (second.trace_id != first.trace_id, second.parent_span_id) == (True, b"")
    assert there.resources[0]["service.name"] == "cdc-1"


def test_a_collector_that_refuses_is_one_warning_until_it_is_back(
    there: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(otlp, "END_S", 120)
    caplog.set_level(logging.INFO, "tidemill")
    there.status = 400
    tracer = OtlpTracer("test")
    for number in range(3):
        tracer.send(TREE)
        there.wait(lambda c, least=number + 1: len(c.requests) >= least)  # type: ignore[misc]
    there.status = 200
    tracer.send(TREE)
    there.wait(lambda c: bool(c.spans))
    tracer.close()
    warnings = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].getMessage().startswith("the collector does not take traces, and until it does they are dropped: ")
    assert "400" in warnings[0].getMessage()
    assert [one.getMessage() for one in caplog.records if "takes traces again" in one.getMessage()] != []
    assert {one.name.split(".")[0] for one in caplog.records} == {"tidemill"}


def test_a_collector_that_hangs_holds_nothing_up(there: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what is traced nor the end of the process: what finds no place in the queue is dropped."""
    monkeypatch.setattr(otlp, "END_S", 0.01)
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    there.hangs = True
    tracer = OtlpTracer("test")
    for _ in range(100):
        tracer.send(TREE)
    there.wait(lambda c: bool(c.requests))
    for _ in range(100):
        tracer.send(TREE)
    tracer.close()
    assert there.spans == []
