"""Requests of people who mean harm, or do not know better: each gets a short answer that says why, never a trace and never a secret."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.server.apis import Api
from tests.support.server.fake_service import FakeService
from tidemill.server.api.requests import BODY_LIMIT, checked_id, is_id
from tidemill.server.errors import InvalidParameter

LIST = "/api/v2/changefeeds"
WITH_BODY = [
    ("POST", LIST), ("PUT", f"{LIST}/test"), ("POST", f"{LIST}/test/resume"), ("POST", "/api/v2/verify_table"), ("POST", "/api/v2/tso"),
    ("POST", "/api/v2/log"), ("POST", "/api/v2/log/redact"), ("POST", "/api/v2/unsafe/resolve_lock"), ("PUT", "/api/v1/captures/drain"),
    ("DELETE", "/api/v2/unsafe/service_gc_safepoint"), ("POST", "/api/v2/get_all_tables"),
]  # fmt: skip


def said(answer: Any, status: int = 400) -> str:
    assert answer.status_code == status, answer.text
    found = answer.json()
    assert set(found) == {"error_msg", "error_code"}
    assert len(answer.content) < 2000
    message: str = found["error_msg"]
    return message


@pytest.mark.parametrize(("method", "path"), WITH_BODY)
def test_huge_bodies(api: Api, method: str, path: str) -> None:
    assert f"larger than {BODY_LIMIT} bytes" in said(api(method, path, content=b" " * (BODY_LIMIT + 1)), 413)
    assert api.service.calls == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "the body is empty"),
        (b"{", "line 1, column 2"),
        (b'{"sink_uri": "x",\n "a" 1}', "line 2, column 6"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"start_ts": NaN}', "NaN is not a number"),
        (b'{"start_ts": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"start_ts": -1}', "start_ts: "),
        (b'{"start_ts": 1e3}', "start_ts: expected a valid integer"),
        (b'{"start_ts": "5"}', "start_ts: expected a valid integer"),
        (b'{"start_ts": 18446744073709551616}', "start_ts: "),
        (b'{"sink_uri": 5}', "sink_uri: expected a valid string"),
        (b'{"sink_uri": "blackhole://\\ud800"}', "half of a surrogate pair"),
        (b'{"pd_addrs": "x"}', "pd_addrs: expected a valid list"),
        (b'{"sinkuri": "x"}', "unknown field sinkuri; did you mean `sink_uri`?"),
        (b'{"replica_config": []}', "replica_config: expected a valid dictionary"),
        (b'{"a":' * 3000 + b"1" + b"}" * 3000, "nested too deep"),
        (b'{"replica_config": {"filter": {"rules": [' + b",".join([b'"a.b"'] * 10_001) + b"]}}}", "more than 10000 items"),
        (b'{"replica_config": {"filter": {"rules": [' + b",".join([b"[1, 2]"] * 5_000) + b"]}}}", "more than 10000 items"),
        (b'{"replica_config":' * 100 + b"{}" + b"}" * 100, "nested too deep"),
    ],
)
def test_bodies_that_are_wrong_are_answered_with_what_and_where(api: Api, body: bytes, why: str) -> None:
    assert why in said(api.post(LIST, content=body))
    assert api.service.calls == []


@pytest.mark.parametrize(
    "name",
    [
        *(
            "..",
            ".",
            "%2e%2e",
            "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
            "..%2f..%2fx",
            "a%00b",
            "a b",
            "a%0d%0ab",
            "a%c3%a4",
            "a--b",
            "-a",
            "a-",
            "a_b",
        ),
        *("a" * 129, "a/..%5c", "%ff", "a%3fb", "a%23b", "x" * 5000),
    ],
)
def test_names_that_are_no_names(with_feed: Api, name: str) -> None:
    api = with_feed
    for method, below in (("POST", "/pause"), ("POST", "/resume"), ("PUT", ""), ("DELETE", ""), ("GET", ""), ("GET", "/status")):
        answer = api(method, f"{LIST}/{name}{below}", **({"json": {}} if method == "PUT" else {}))
        if answer.status_code == 200:  # `..` and `.` are other paths for any client
            assert name in ("..", ".")
        else:
            assert answer.status_code in (400, 404, 405), answer.text
            assert len(answer.content) < 2000
    assert [what for what in api.service.calls if what[0] != "changefeeds" and not isinstance(what[1], str | None)] == []
    assert list(api.service.feeds) == ["test"]


@given(st.text(max_size=200))
def test_a_name_is_what_ticdc_takes(text: str) -> None:
    by_hand = all(part.isascii() and part.isalnum() for part in text.split("-")) and 0 < len(text) <= 128
    assert is_id(text) == by_hand
    if not by_hand:
        with pytest.raises(InvalidParameter):
            checked_id(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["sink_uri", "start_ts", "target_ts", "replica_config", "changefeed_id", "pd_addrs", "region_id", "ts", "log_level"]
)
KEYS = st.sampled_from(["filter", "sink", "rules", "event_filters", "dispatchers", "kafka_config", "sync_point_interval", "canal", "csv"])
bodies = st.dictionaries(
    FIELDS | st.text(max_size=5), json_values | st.dictionaries(KEYS, json_values | st.dictionaries(KEYS, json_values)), max_size=4
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(WITH_BODY), bodies | st.binary(max_size=40))
def test_any_body_is_answered(one_api: Api, route: tuple[str, str], body: Any) -> None:
    api = one_api
    api.service.forget()
    content = body if isinstance(body, bytes) else json.dumps(body).encode("utf-8", "surrogatepass")
    answer = api(*route, content=content)
    assert answer.status_code in (200, 202, 400), answer.text
    if answer.status_code == 400:
        assert set(answer.json()) == {"error_msg", "error_code"}


SECRETS = ("geheim1", "geheim2", "geheim3")


def test_no_secret_is_answered_or_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "tidemill")
    uri = "kafka://h:1/t?protocol=avro&sasl-user=geheim1&sasl-password=geheim2&schema-registry=http%3A%2F%2Fu%3Ageheim3%40r%3A1"
    told = [api.post(LIST, json={"changefeed_id": "s", "sink_uri": uri}).text]
    told += [api.get(path).text for path in (LIST, f"{LIST}/s", f"{LIST}/s/status", "/debug/info", "/api/v2/unsafe/metadata")]
    told += [api.get(f"{LIST}/s", headers={"accept": "application/toml"}).text]
    told += [api.post(LIST, json={"sink_uri": uri + "&x=1"}).text, api.post(LIST, json={"sink_uri": "mysql://u:geheim1@"}).text]
    told += [api.post(LIST, content=json.dumps({"sink_uri": uri}).encode()[:-1]).text, api.post(LIST, json={"sink_uri": [uri]}).text]
    told += [api.get(f"{LIST}?state={uri}").text[:0], caplog.text]
    assert [secret for secret in SECRETS if any(secret in text for text in told)] == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"origin": "http://127.0.0.1:8300"}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({}, 200),
    ],
)
def test_pages_of_other_sites_change_nothing(with_feed: Api, headers: dict[str, str], status: int) -> None:
    assert with_feed.post(f"{LIST}/test/pause", headers=headers).status_code == status
    assert with_feed.get(LIST, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example:8300", 403),
        ("localhost.evil.example:8300", 403),
        ("localhost:8300", 200),
        ("cdc.localhost:8300", 200),
        ("127.0.0.1:8300", 200),
        ("[::1]:8300", 200),
        (f"{socket.gethostname()}:8300", 200),
        ("bad]host", 403),
    ],
)
def test_a_name_that_was_made_to_lead_here_reads_and_changes_nothing(with_feed: Api, host: str, status: int) -> None:
    """DNS rebinding: to the browser, the page of another site and the API are of one origin."""
    answer = with_feed.post(f"{LIST}/test/pause", headers={"host": host, "origin": f"http://{host}"})
    assert answer.status_code == status, answer.text
    for path in (LIST, "/status", "/metrics", "/debug/info", "/api/page/log", "/api/page/overview", "/", "/docs", "/openapi.json"):
        assert with_feed.get(path, headers={"host": host}).status_code == status, path


@pytest.mark.parametrize("path", [LIST, f"{LIST}/test/pause", "/api/v2/nothing", "/status/", "/"])
@pytest.mark.parametrize("host", ["[", "bad]host", "[::1", "a b", "u:p@h:1", "x" * 5000])
def test_hosts_and_origins_that_are_none_are_no_fault_of_ours(
    with_feed: Api, path: str, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    for headers in ({"host": host}, {"origin": f"http://{host}"}, {"host": host, "origin": f"http://{host}"}):
        for method in ("GET", "POST", "HEAD"):
            assert with_feed(method, path, headers=headers, content=b"{}").status_code < 500
    assert "Traceback" not in caplog.text


def test_answers_are_not_kept_and_not_guessed_at(api: Api) -> None:
    answer = api.get(LIST)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


def test_nothing_of_a_service_is_shared() -> None:
    assert FakeService().feeds is not FakeService().feeds
