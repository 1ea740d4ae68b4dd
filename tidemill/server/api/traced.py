"""Traces of requests to the API: an ASGI application around it. A request that came with a `traceparent` becomes part of its trace.

Names and attributes are those of OpenTelemetry's conventions for HTTP servers, without the request's query and headers: those hold secrets.
"""

from __future__ import annotations

import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemill.server.api.requests import is_id
from tidemill.traces.process import Tracer, tracer
from tidemill.traces.span import Kind, Parent, Span, Value

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
"""Others are called `_OTHER`, as the conventions say: a span's name is not what anybody sends."""
LONGEST_STATE = 512
"""Characters of `tracestate`, as W3C's Trace Context says."""


def traced(app: ASGIApp) -> ASGIApp:
    """The application, with traces if this process sends any."""
    found = tracer()
    return app if found is None else Traced(app, found)


class Traced:
    """Sends a span for each request below /api."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app, self._tracer = app, tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/api/"):
            await self._app(scope, receive, send)
            return
        begun_ns, begun, status = time.time_ns(), time.perf_counter_ns(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            ended_ns = begun_ns + time.perf_counter_ns() - begun
            self._tracer.send(_span(scope, status, begun_ns, ended_ns), _parent(scope))


def _span(scope: Scope, status: int, begun_ns: int, ended_ns: int) -> Span:
    method = scope["method"] if scope["method"] in METHODS else "_OTHER"
    attributes: dict[str, Value] = {"http.request.method": method, "url.scheme": scope.get("scheme", "http")}
    route = getattr(scope.get("route"), "path", "")
    if route:
        attributes["http.route"] = route
    feed = scope.get("path_params", {}).get("changefeed_id")
    if isinstance(feed, str) and is_id(feed):
        attributes["tidemill.changefeed"] = feed
    if status:
        attributes["http.response.status_code"] = status
    error = "" if 0 < status < 500 else str(status or "no answer")
    return Span(f"{method} {route}".strip(), begun_ns, ended_ns, attributes, error=error, kind=Kind.SERVER)


def _parent(scope: Scope) -> Parent | None:
    found: dict[bytes, str] = {}
    headers: Any = scope.get("headers", ())
    for name, value in headers:
        if name in (b"traceparent", b"tracestate"):
            found[name] = value.decode("latin-1")
    if b"traceparent" not in found:
        return None
    state = found.get(b"tracestate", "")
    return Parent(found[b"traceparent"], state if len(state) <= LONGEST_STATE else "")
