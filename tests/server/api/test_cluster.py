"""Servers, their log, the cluster's time, unsafe routes, and what TiDB Operator calls."""

from __future__ import annotations

import pytest

from tests.support.server.apis import Api
from tests.support.server.fake_service import CAPTURE, NOW, NOW_MS
from tidemill.server.errors import Unhealthy

STATUS = {
    "version": "v8.5.7", "tidemill_version": "v0.1.0", "git_hash": "none", "id": CAPTURE, "cluster_id": "default", "pid": 4711,
    "is_owner": True, "liveness": 0,
}  # fmt: skip


@pytest.mark.parametrize("path", ["/status", "/api/v2/status", "/api/v1/status"])
def test_status(api: Api, path: str) -> None:
    assert api.get(path).json() == STATUS


@pytest.mark.parametrize("path", ["/api/v2/health", "/api/v1/health"])
def test_health(api: Api, path: str) -> None:
    assert (api.get(path).status_code, api.get(path).json()) == (200, {})
    api.service.fails = Unhealthy("the capture does not run")
    answer = api.get(path)
    assert (answer.status_code, answer.json()["error_msg"]) == (500, "[CDC:ErrClusterIsUnhealthy]the capture does not run")


def test_captures(api: Api) -> None:
    one = {"id": CAPTURE, "is_owner": True, "address": "127.0.0.1:8300", "cluster_id": "default"}
    assert api.get("/api/v2/captures").json() == {"total": 1, "items": [one]}
    assert api.get("/api/v1/captures").json() == [one]
    answer = api("PUT", "/api/v1/captures/drain", json={"capture_id": CAPTURE})
    assert "only one capture alive" in answer.json()["error_msg"]
    assert api.post("/api/v2/captures/other/drain").json()["error_code"] == "CDC:ErrCaptureNotExist"
    assert api.post("/api/v1/owner/resign").status_code == 202
    assert api.post("/api/v2/owner/resign").json() == {}


def test_processors(with_feed: Api) -> None:
    api = with_feed
    one = {"namespace": "default", "keyspace": "default", "changefeed_id": "test", "capture_id": CAPTURE}
    assert api.get("/api/v2/processors").json() == {"total": 1, "items": [one]}
    assert api.get(f"/api/v2/processors/test/{CAPTURE}").json() == {"table_ids": [104, 106]}
    assert api.get("/api/v2/processors/test/other").json()["error_code"] == "CDC:ErrCaptureNotExist"


def test_the_log(api: Api) -> None:
    assert api.post("/api/v2/log", json={"log_level": "warn"}).json() == {}
    assert api.post("/api/v2/log", json={}).json() == {}
    assert [what for _, what in api.service.calls] == ["warn", "info"]
    assert api.post("/api/v2/log", json={"log_level": "loud"}).status_code == 400
    assert api.post("/api/v2/log/redact", json={"redact_info_log": "off"}).json() == {"previous_mode": "ON", "current_mode": "ON"}
    assert "missing required field" in api.post("/api/v2/log/redact", json={}).json()["error_msg"]


def test_tso(api: Api) -> None:
    for body in (b"", b"{}", b'{"id": 5, "pd_addrs": ["http://pd:2379"]}'):
        assert api.post("/api/v2/tso", content=body).json() == {"timestamp": NOW_MS, "logic_time": NOW & 0x3FFFF}


def test_unsafe(with_feed: Api) -> None:
    api = with_feed
    assert api.get("/api/v2/unsafe/metadata").json() == [{"key": "/tidemill/changefeeds/test", "value": "blackhole://"}]
    assert api.post("/api/v2/unsafe/resolve_lock", json={"region_id": 5, "ts": NOW}).json() == {}
    assert api.service.calls[-1] == ("resolve_lock", (5, NOW))
    assert api.post("/api/v2/unsafe/resolve_lock", json={}).status_code == 400
    assert api("DELETE", "/api/v2/unsafe/service_gc_safepoint").json() == {}


def test_pages_for_people_and_programs(with_feed: Api) -> None:
    info = with_feed.get("/debug/info")
    assert "/tidemill/changefeeds/test\n\tblackhole://\n" in info.text
    metrics = with_feed.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "tidemill_changefeeds 1.0" in metrics.text
