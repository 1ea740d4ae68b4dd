"""Spans of requests."""

from __future__ import annotations

import copy

import pytest

from tests.support.server.apis import Api
from tests.support.traces.kept import Kept
from tidemill.server.api.traced import Traced, traced
from tidemill.traces.span import Kind, Parent

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def tracer(with_feed: Api) -> Kept:
    return Kept()


@pytest.fixture
def watched(with_feed: Api, tracer: Kept) -> Api:
    found = copy.copy(with_feed)
    found.app = Traced(with_feed.app, tracer)  # type: ignore[assignment]
    return found


def test_a_request(watched: Api, tracer: Kept) -> None:
    answer = watched.get("/api/v2/changefeeds/test?token=s3cret", headers={"traceparent": TRACE, "tracestate": "v=1", "cookie": "s3cret"})
    assert answer.status_code == 200
    [span] = tracer.spans
    assert span.name == "GET /api/v2/changefeeds/{changefeed_id}"
    assert span.kind is Kind.SERVER
    assert span.attributes == {
        "http.request.method": "GET",
        "url.scheme": "http",
        "http.route": "/api/v2/changefeeds/{changefeed_id}",
        "http.response.status_code": 200,
        "tidemill.changefeed": "test",
    }
    assert span.begun_ns <= span.ended_ns
    assert (span.error, tracer.parents) == ("", [Parent(TRACE, "v=1")])


def test_what_others_send_is_no_name(watched: Api, tracer: Kept) -> None:
    watched("S3CRET", "/api/v2/changefeeds/test")
    watched.get("/api/v2/s3cret")
    watched.get(f"/api/v2/changefeeds/{'s3cret_' * 50}")
    watched.get("/api/v2/status", headers={"traceparent": TRACE, "tracestate": "s3cret" * 100})
    assert [one.name.split()[0] for one in tracer.spans] == ["_OTHER", "GET", "GET", "GET"]
    assert "s3cret" not in repr(tracer.spans).lower()
    assert tracer.parents == [None, None, None, Parent(TRACE)]
    assert [one.error for one in tracer.spans] == [""] * 4  # a client's mistake is none of the server's


def test_only_the_api_is_traced(watched: Api, tracer: Kept) -> None:
    for path in ("/status", "/metrics", "/docs", "/"):
        watched.get(path)
    assert tracer.spans == []


def test_a_fault_of_the_server(watched: Api, tracer: Kept) -> None:
    watched.service.fails = RuntimeError("s3cret")
    assert watched.get("/api/v2/changefeeds").status_code == 500
    [span] = tracer.spans
    assert (span.error, span.attributes["http.response.status_code"]) == ("500", 500)


def test_without_a_tracer_nothing_is_wrapped(api: Api) -> None:
    assert traced(api.app) is api.app
