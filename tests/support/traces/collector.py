"""A collector of traces: OTLP over HTTP, read by OpenTelemetry's own messages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse


@dataclass
class Collector:
    """What came, and how requests are answered."""

    endpoint: str = ""
    status: int = 200
    """Of the answers: 400 is a failure that the sender does not try again at once."""
    hangs: bool = False
    """Answers come only when the collector ends."""
    spans: list[Any] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    parts: dict[str, list[Any]] = field(default_factory=dict)
    """The spans by `tidemill.part`."""
    requests: list[tuple[str, int]] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _over: threading.Event = field(default_factory=threading.Event)

    def take(self, path: str, body: bytes) -> int:
        """Take a request. Return the status of the answer."""
        status = self.status
        if self.hangs:
            self._note(path, status)
            self._over.wait()
            return status
        if status == 200:
            found = ExportTraceServiceRequest.FromString(body)
            with self._changed:
                for one in found.resource_spans:
                    self.resources.append(attributes(one.resource))
                    spans = [span for scope in one.scope_spans for span in scope.spans]
                    self.spans += spans
                    self.parts.setdefault(self.resources[-1].get("tidemill.part", ""), []).extend(spans)
        self._note(path, status)
        return status

    def _note(self, path: str, status: int) -> None:
        with self._changed:
            self.requests.append((path, status))
            self._changed.notify_all()

    def wait(self, holds: Callable[[Collector], bool]) -> None:
        """Wait until something holds of what came."""
        with self._changed:
            assert self._changed.wait_for(lambda: holds(self), 120), (self.requests, len(self.spans))

    def end(self) -> None:
        self._over.set()


def attributes(holder: Any) -> dict[str, Any]:
    """The attributes of a span or a resource, as plain values."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in holder.attributes}


@contextmanager
def collector() -> Iterator[Collector]:
    """Collect on a free port."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status = found.take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    found.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.end()
        server.shutdown()
        server.server_close()
        thread.join(60)
