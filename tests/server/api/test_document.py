"""The OpenAPI document against the API: requests that hypothesis makes of its paths, parameters and bodies, with a token and without."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.server.apis import Api
from tests.support.server.fake_service import FakeService
from tidemill.budget import Budget
from tidemill.rules.patterns import GoRegex
from tidemill.server.api.requests import role_of
from tidemill.server.api.tokens import Role, Tokens

TOKEN = "0123456789abcdef"
FUZZED = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Api:
    """An API with a token."""
    path: Path = tmp_path_factory.mktemp("tokens") / "tokens"
    path.write_text(f"admin {TOKEN}\n")
    return Api(FakeService(), Tokens(path))


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of each operation."""
    return [(method, path, one) for path, methods in document["paths"].items() for method, one in methods.items()]


def values(schema: dict[str, Any], document: dict[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """Values of a schema, and now and then others."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if depth > 4:
        return ANYTHING
    if "enum" in schema:
        return st.sampled_from(schema["enum"]) | ANYTHING
    if several := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return st.one_of(*(values(one, document, depth + 1) for one in several))
    match schema.get("type"):
        case "object":
            known = {name: values(one, document, depth + 1) for name, one in schema.get("properties", {}).items()}
            return st.fixed_dictionaries({}, optional=known) | ANYTHING
        case "array":
            return st.lists(values(schema.get("items", {}), document, depth + 1), max_size=3) | ANYTHING
        case "integer" | "number":
            return st.integers(-(2**64), 2**65) | ANYTHING
        case "boolean":
            return st.booleans() | ANYTHING
        case "string":
            return st.text(max_size=40) | st.sampled_from(["blackhole://", "mysql://a@b/", "kafka://[", "test"]) | ANYTHING
    return ANYTHING


@st.composite
def requests(draw: st.DrawFn, document: dict[str, Any]) -> tuple[str, str, dict[str, str], bytes | None]:
    """Method, path, query and body of some operation."""
    method, path, one = draw(st.sampled_from(operations(document)))
    query: dict[str, str] = {}
    for parameter in one.get("parameters", ()):
        value = str(draw(values(parameter.get("schema", {}), document)))
        if parameter["in"] == "path":
            path = path.replace("{" + parameter["name"] + "}", quote(value.encode("utf-8", "replace"), safe="") or "x")
        elif parameter["in"] == "query" and draw(st.booleans()):
            query[parameter["name"]] = value.encode("utf-8", "replace").decode()
    body = None
    for content in one.get("requestBody", {}).get("content", {}).values():
        body = json.dumps(draw(values(content.get("schema", {}), document))).encode()
    return method.upper(), path, query, body


@pytest.mark.parametrize(
    "headers", [{"authorization": f"Bearer {TOKEN}"}, {}, {"authorization": "Bearer nobody"}], ids=["token", "none", "wrong"]
)
@FUZZED
@given(data=st.data())
def test_each_request_gets_an_answer_of_ours(guarded: Api, headers: dict[str, str], data: st.DataObject) -> None:
    for _ in range(10):
        method, path, query, body = data.draw(requests(guarded.app.openapi()))
        answer = guarded(method, path, params=query, content=body, headers={**headers, "content-type": "application/json"})
        assert answer.status_code < 500, (method, path, query, body, answer.text)
        if answer.status_code >= 400 and method != "HEAD" and answer.status_code not in (404, 405):
            assert set(answer.json()) == {"error_msg", "error_code"}, (method, path, answer.text)


def routes(api: Api) -> list[tuple[str, APIRoute]]:
    """Each method and route that the application has, in the document or not."""
    return [(method, route) for route in api.app.state.routes if isinstance(route, APIRoute) for method in sorted(route.methods)]


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
