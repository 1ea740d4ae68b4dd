"""The OpenAPI document against the API: requests that hypothesis makes of its paths, parameters and bodies, with a token and without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.server.apis import Api
from tests.support.server.fake_service import FakeService
from tidemill.server.api.tokens import Tokens

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


def test_without_a_token_nothing_that_changes_is_answered_and_the_document_says_so(guarded: Api) -> None:
    for method, path, one in operations(guarded.app.openapi()):
        if method != "get" and path != "/api/v2/tso":  # which reads
            answer = guarded(method.upper(), path.replace("{", "").replace("}", ""), content=b"{}")
            assert answer.status_code in (401, 403), (method, path, answer.text)
            assert {"401", "403"} <= one["responses"].keys(), (method, path)
