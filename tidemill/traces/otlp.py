"""Spans by OpenTelemetry's SDK to a collector: OTLP over HTTP. Imported only where traces are asked for.

The SDK keeps ended spans in a queue of a limited length, and a thread of its own sends them. While the collector does not take them, the
thread tries, the queue fills, and further spans are dropped. That is one warning, not one for each span.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from tidemill.errors import redact
from tidemill.extras import extra
from tidemill.traces.settings import names_service
from tidemill.traces.span import Kind, Parent, Span, Value

with extra("otel"):
    from opentelemetry.context import Context
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

END_S = 2.0
"""How long the end of a process waits for spans to be sent."""
_KINDS = {Kind.INTERNAL: SpanKind.INTERNAL, Kind.SERVER: SpanKind.SERVER}

log = logging.getLogger(__name__)


class OtlpTracer:
    """Sends spans. Everything that may be set about it, OpenTelemetry reads from the environment. Raises ValueError for what it refuses.

    `exporter`: what takes them; None: OTLP over HTTP."""

    def __init__(self, part: str, exporter: SpanExporter | None = None) -> None:
        said = Said()
        logger = logging.getLogger("opentelemetry")
        logger.handlers[:], logger.propagate = [said], False
        self._provider = TracerProvider(resource=_resource(part), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(Patient(exporter or OTLPSpanExporter(), said)))
        self._tracer = self._provider.get_tracer("tidemill", _version())
        self._propagator = TraceContextTextMapPropagator()
        self._closing, self._closed = threading.Event(), threading.Event()
        threading.Thread(target=self._close, name="traces", daemon=True).start()
        if said.last:
            log.warning("a setting of traces does not count: %s", said.last)

    def send(self, span: Span, parent: Parent | None = None) -> None:
        """Give a tree of spans to the queue, as far as it is sampled."""
        self._send(span, self._context(parent))

    def _context(self, parent: Parent | None) -> Context:
        if parent is None:
            return Context()
        return self._propagator.extract({"traceparent": parent.traceparent, "tracestate": parent.tracestate}, Context())

    def _send(self, span: Span, context: Context) -> None:
        made = self._tracer.start_span(span.name, context, _KINDS[span.kind], _safe(span.attributes), start_time=span.begun_ns)
        if not made.is_recording():  # not sampled: nothing below it is
            return
        if span.error:
            made.set_attribute("error.type", span.error)
            made.set_status(Status(StatusCode.ERROR, redact(span.message)))
        if span.children:
            below = set_span_in_context(made, context)
            for child in span.children:
                self._send(child, below)
        made.end(max(span.begun_ns, span.ended_ns))

    def close(self) -> None:
        """Send what waits, for some seconds."""
        self._closing.set()
        self._closed.wait(END_S)

    def _close(self) -> None:
        """In a thread that is there from the start: at the end of Python no other can begin, and the SDK would wait for half a minute."""
        self._closing.wait()
        self._provider.shutdown()
        self._closed.set()


class Patient(SpanExporter):
    """An exporter whose failures are told once, and again when they are over. Called in the SDK's thread."""

    def __init__(self, exporter: SpanExporter, said: Said) -> None:
        self._exporter, self._said = exporter, said
        self._dropped = 0
        """Spans that were not taken, since the collector last took some."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans, or drop them."""
        found = SpanExportResult.FAILURE
        try:
            found = self._exporter.export(spans)
        finally:
            self._note(len(spans), found is SpanExportResult.SUCCESS)
        return found

    def _note(self, spans: int, taken: bool) -> None:
        if taken and self._dropped:
            log.info("the collector takes traces again; %d or more spans were dropped", self._dropped)
        elif not taken and not self._dropped:
            reason = self._said.last or "it gave no reason"
            log.warning("the collector does not take traces, and until it does they are dropped: %s", reason)
        self._dropped = 0 if taken else self._dropped + spans

    def shutdown(self) -> None:
        self._exporter.shutdown()


class Said(logging.Handler):
    """Takes the SDK's own log, which has a line for each failure. The last one is the reason that ours gives."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


def _safe(attributes: Mapping[str, Value]) -> dict[str, Value]:
    return {name: redact(value) if isinstance(value, str) else value for name, value in attributes.items()}


def _resource(part: str) -> Resource:
    given = {"service.version": _version(), "process.pid": str(os.getpid()), "host.name": socket.gethostname(), "tidemill.part": part}
    return Resource.create(given if names_service(os.environ) else given | {"service.name": "tidemill"})


def _version() -> str:
    try:
        return version("tidemill")
    except PackageNotFoundError:
        return "unknown"
