"""What routes declare: which need which role, and that the OpenAPI document says so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from tests.support.server.apis import Api
from tests.support.server.fake_service import FakeService
from tidemill.budget import Budget
from tidemill.rules.patterns import GoRegex
from tidemill.server.api.requests import role_of
from tidemill.server.api.tokens import Role, Tokens

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Api:
    """An API with a token."""
    path: Path = tmp_path_factory.mktemp("tokens") / "tokens"
    path.write_text(f"admin {TOKEN}\n")
    return Api(FakeService(), Tokens(path))


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of each operation."""
    return [(method, path, one) for path, methods in document["paths"].items() for method, one in methods.items()]


def routes(api: Api) -> list[tuple[str, APIRoute]]:
    """Each method and route that the application has, in the document or not."""
    return [(method, route) for route in api.app.state.routes if isinstance(route, APIRoute) for method in sorted(route.methods or ())]


def asked(api: Api, method: str, route: APIRoute, token: str = "") -> httpx.Response:
    """Send a request that names the changefeed that there is, with rules and an address in its body."""
    path = re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: "test" if "id" in found[1] or "name" in found[1] else "x", route.path_format)
    body = {"replica_config": {"filter": {"rules": ["/a{2}/.b"]}}, "config": "[filter]\nrules = ['/a{2}/.b']", "sink_uri": "blackhole://"}
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return api(method, path, json={**body, "changefeed_id": "test"}, headers={**headers, "content-type": "application/json"})


def test_each_route_needs_the_token_or_neither_changes_nor_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the routes declare: a new one without a guard is refused here as soon as it does something."""
    (tmp_path / "tokens").write_text(f"admin {TOKEN}\n")
    api = Api(FakeService(), Tokens(tmp_path / "tokens"))
    body = {"changefeed_id": "test", "sink_uri": "blackhole://"}
    assert api.post("/api/v2/changefeeds", json=body, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    compiled: list[str] = []
    monkeypatch.setattr(GoRegex, "__init__", lambda self, text, **more: compiled.append(text))
    monkeypatch.setattr(Budget, "in_force", lambda self: compiled.append("a budget"))
    before, open_to_all = repr(api.service.feeds), []
    for method, route in routes(api):
        answer = asked(api, method, route)
        if role_of(route) is None:
            open_to_all.append((method, route.path_format))
            assert answer.status_code not in (401, 403), (method, route.path_format)
        else:
            assert answer.status_code in (401, 403), (method, route.path_format, answer.text)
        assert (repr(api.service.feeds), compiled) == (before, []), (method, route.path_format)
    writes = [(method, path) for method, path in open_to_all if method not in ("GET", "HEAD")]
    assert writes == [("POST", "/api/v2/tso")]  # which reads the clock


def test_each_role_is_let_in_where_it_is_enough(tmp_path: Path) -> None:
    tokens = {role: f"0123456789abcdef-{role.name.lower()}" for role in Role}
    (tmp_path / "tokens").write_text("".join(f"{role.name} {token} {role.name.lower()}\n" for role, token in tokens.items()))
    api = Api(FakeService(), Tokens(tmp_path / "tokens"))
    for method, route in routes(api):
        needed = role_of(route)
        for role, token in tokens.items():
            refused = asked(api, method, route, token).status_code == 403
            assert refused == (needed is not None and role < needed), (method, route.path_format, role)


def test_the_document_says_where_a_role_is_needed(guarded: Api) -> None:
    said = {(m.upper(), path): {"401", "403"} & one["responses"].keys() for m, path, one in operations(guarded.app.openapi())}
    for method, route in routes(guarded):
        if route.include_in_schema:
            assert said[method, route.path_format] == ({"401", "403"} if role_of(route) is not None else set()), (method, route.path_format)
