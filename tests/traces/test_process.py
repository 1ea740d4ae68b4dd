"""Traces cost nothing where nobody asks for them, and what is wrong with their settings ends nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tidemill.traces import process

ASKED = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://user:s3cret@127.0.0.1:9"}


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without settings of the machine's own."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    yield
    process.end()


def test_without_the_setting_nothing_is_imported() -> None:
    program = (
        "import sys; from tidemill.traces import process;"
        "from tidemill.delivery.measure.traced import timings_of;"
        "process.begin('x'); assert process.tracer() is None; assert type(timings_of('f')).__name__ == 'Timings';"
        "print([m for m in sys.modules if m.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "the environment has OTEL_EXPORTER_OTLP_PROTOCOL=grpc"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "the environment has OTEL_TRACES_EXPORTER=zipkin"),
        ({"OTEL_ATTRIBUTE_COUNT_LIMIT": "many"}, "although the environment asks for them: "),
        ({"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "9999"}, "although the environment asks for them: "),
    ],
)
def test_settings_that_cannot_be_used_are_one_warning(
    more: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in (ASKED | more).items():
        monkeypatch.setenv(name, value)
    process.begin("test")
    assert process.tracer() is None
    [record] = caplog.records
    assert said in record.getMessage()
    assert "s3cret" not in caplog.text


def test_a_setting_that_does_not_count_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name, value in (ASKED | {"OTEL_TRACES_SAMPLER": "now_and_then"}).items():
        monkeypatch.setenv(name, value)
    process.begin("test")
    assert process.tracer() is not None
    [record] = caplog.records
    assert record.getMessage().startswith("a setting of traces does not count: ")
    assert "now_and_then" in record.getMessage()


def test_without_the_extra_there_are_no_traces(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name, value in ASKED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delitem(sys.modules, "tidemill.traces.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)  # as if it were not installed
    process.begin("test")
    assert process.tracer() is None
    [record] = caplog.records
    assert "no traces are sent, although the environment asks for them: this needs the Python package" in record.getMessage()
    assert "pip install 'tidemill[otel]'" in record.getMessage()


def test_the_end_may_come_twice_or_without_a_beginning() -> None:
    process.end()
    process.end()
