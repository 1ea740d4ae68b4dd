"""Requests that reach a server that does not lead."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from tidemill.server.api.forward import HEADER, Forwarding, is_own


@dataclass
class Role:
    """Who leads."""

    id: str
    leads: bool = False
    address: str | None = None

    async def settled(self, seconds: float) -> bool:
        return self.leads or self.address is not None


@dataclass
class Echo:
    """An API that answers with what it was asked."""

    name: str
    heard: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = (await request.body()).decode()
        self.heard.append(
            {"method": request.method, "url": str(request.url), "path": scope["raw_path"], "body": body, "headers": dict(request.headers)}
        )
        await JSONResponse({"by": self.name}, 202, {"X-Told": "yes"})(scope, receive, send)


@dataclass
class Two:
    """A follower before a leader, without sockets."""

    leads: bool = False
    """Whether the one that is asked has just begun to lead."""
    lost: bool = False
    """Whether the other one has just ceased to."""

    def __post_init__(self) -> None:
        self.own, self.others = Echo("follower"), Echo("leader")
        behind = Forwarding(self.others, Role("leader", leads=not self.lost, address="http://third:8300"), httpx.AsyncClient)
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app=behind))
        role = Role("follower", leads=self.leads, address="http://leader:8300")
        self.app = Forwarding(self.own, role, lambda: client)

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def work() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app=self.app), base_url="http://follower:8300") as client:
                return await client.request(method, path, **more)

        return asyncio.run(work())


def test_a_request_goes_to_the_leader_as_it_came_and_its_answer_comes_back() -> None:
    two = Two()
    answer = two.ask(
        "POST",
        "/api/v2/changefeeds?keyspace=default",
        json={"changefeed_id": "f"},
        headers={"Authorization": "Bearer t", "Origin": "http://x"},
    )
    assert (answer.status_code, answer.json(), answer.headers["x-told"]) == (202, {"by": "leader"}, "yes")
    (heard,) = two.others.heard
    assert (heard["method"], heard["body"]) == ("POST", '{"changefeed_id":"f"}')
    assert heard["url"].endswith("/api/v2/changefeeds?keyspace=default")
    told = {name: heard["headers"][name] for name in ("authorization", "origin", "host", HEADER)}
    assert told == {"authorization": "Bearer t", "origin": "http://x", "host": "follower:8300", HEADER: "follower"}
    assert two.own.heard == []


@pytest.mark.parametrize(
    "path", ["/status", "/api/v2/status", "/api/v2/log", "/api/v2/log/redact", "/metrics", "/docs", "/debug/info", "/"]
)
def test_what_concerns_one_server_it_answers_itself(path: str) -> None:
    assert is_own(path)
    assert Two().ask("GET", path).json() == {"by": "follower"}


@pytest.mark.parametrize(
    "path",
    [
        "/api/page/overview",
        "/api/page/history",
        "/api/page/tables",
        "/api/page/log",
        "/api/v2/changefeeds",
        "/api/v2/captures",
        "/api/v2/health",
        "/api/v2/owner/resign",
        "/api/v1/changefeeds",
    ],
)
def test_all_else_the_leader_answers(path: str) -> None:
    assert Two().ask("GET", path).json() == {"by": "leader"}
    assert Two(leads=True).ask("GET", path).json() == {"by": "follower"}


def test_a_request_is_sent_on_once() -> None:
    answer = Two(lost=True).ask("GET", "/api/v2/changefeeds")
    assert (answer.status_code, answer.json()["error_code"]) == (500, "CDC:ErrOwnerNotFound")


def test_a_path_stays_as_it_was_written() -> None:
    two = Two()
    two.ask("GET", "/api/v2/changefeeds/%2E%2E%2Fx%20y")
    assert two.others.heard[0]["path"] == b"/api/v2/changefeeds/%2E%2E%2Fx%20y"


def ask_for(two: Two, path: str, raw_path: bytes) -> None:
    """Ask for a path that no client writes."""
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": raw_path,
        "query_string": b"",
        "headers": [(b"host", b"follower")],
        "server": ("follower", 8300),
        "scheme": "http",
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None: ...

    asyncio.run(two.app(scope, receive, send))


def test_a_path_cannot_name_another_host() -> None:
    """http://leader:8300%2Fapi/@elsewhere/ would be one of `elsewhere`."""
    two = Two()
    ask_for(two, "/api/@elsewhere/x", b"%2Fapi/@elsewhere/x")
    assert two.others.heard[0]["path"] == b"/api/%40elsewhere/x"


@pytest.mark.parametrize("path", ["/api/v2/../../status", "/api/v2/./unsafe/metadata"])
def test_a_path_with_dots_does_not_become_another_one_on_its_way(path: str) -> None:
    """The leader would answer for a page that was not asked for; it answers such a path with 404 itself."""
    two = Two()
    ask_for(two, path, path.encode())
    assert (len(two.own.heard), two.others.heard) == (1, [])


def test_while_nobody_leads_the_answer_says_so() -> None:
    own = Echo("own")
    two = Two()
    two.app = Forwarding(own, Role("alone"), httpx.AsyncClient)
    answer = two.ask("POST", "/api/v2/changefeeds", json={})
    assert (answer.status_code, answer.json()["error_msg"]) == (
        500,
        "[CDC:ErrOwnerNotFound]no server leads at the moment. Try again in some seconds.",
    )
    assert own.heard == []


def test_a_leader_that_does_not_answer() -> None:
    two = Two()
    two.app = Forwarding(two.own, Role("alone", address="http://127.0.0.1:9"), httpx.AsyncClient)
    answer = two.ask("GET", "/api/v2/changefeeds")
    assert answer.json()["error_msg"].startswith("[CDC:ErrOwnerNotFound]the server that leads does not answer at http://127.0.0.1:9: ")
