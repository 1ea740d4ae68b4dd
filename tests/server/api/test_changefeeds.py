"""Changefeeds over HTTP: what is asked of the service, and what TiCDC's clients are answered."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import pytest

from tests.support.server.apis import Api
from tests.support.server.fake_service import CAPTURE, NO_KEY, NOW, UPSTREAM
from tidemill.changefeed.states import State
from tidemill.config.file import parse_config
from tidemill.config.toml_text import toml_text
from tidemill.server.service import ChangefeedUpdate, NewChangefeed, UpstreamNames

LIST = "/api/v2/changefeeds"


def refused(answer: Any, code: str, status: int = 400) -> str:
    assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.text
    assert set(answer.json()) == {"error_msg", "error_code"}
    message: str = answer.json()["error_msg"]
    assert message.startswith(f"[{code}]")
    return message


def test_create_asks_for_all_that_the_body_says(api: Api) -> None:
    body = {
        "changefeed_id": "a-1", "keyspace": "ignored", "start_ts": NOW - 5, "target_ts": NOW + 5, "sink_uri": "blackhole://",
        "replica_config": {"case_sensitive": True, "ignore_ineligible_table": True, "sync_point_interval": "10m", "filter": None},
        "pd_addrs": ["http://pd:2379"], "ca_path": "/ca", "cert_path": "/cert", "key_path": "/key", "cert_allowed_cn": None,
    }  # fmt: skip
    answer = api.post(LIST, json=body)
    assert answer.status_code == 200
    (name, wanted), *_ = api.service.calls
    assert name == "create"
    assert wanted == NewChangefeed(
        sink_uri="blackhole://",
        changefeed_id="a-1",
        start_ts=NOW - 5,
        target_ts=NOW + 5,
        replica_config={"case-sensitive": True, "ignore-ineligible-table": True, "sync-point-interval": "10m"},
        ignore_ineligible_tables=True,
        upstream=UpstreamNames(("http://pd:2379",), "/ca", "/cert", "/key"),
    )
    assert answer.json() == {
        "upstream_id": UPSTREAM,
        "id": "a-1",
        "namespace": "default",
        "keyspace": "default",
        "sink_uri": "blackhole://",
        "create_time": "2025-11-24T16:00:00.123Z",
        "start_ts": NOW - 5,
        "target_ts": NOW + 5,
        "sort_engine": "unified",
        "config": {
            "case_sensitive": True,
            "ignore_ineligible_table": True,
            "sync_point_interval": 600_000_000_000,
            "filter": {"rules": ["*.*"]},
            "changefeed_error_stuck_duration": 1_800_000_000_000,
        },
        "state": "normal",
        "creator_version": "v0.1.0",
        "resolved_ts": NOW,
        "checkpoint_ts": NOW - 5,
        "checkpoint_time": "2025-11-24 15:59:59.999",
        "task_status": [{"capture_id": CAPTURE, "table_ids": [104, 106], "table_operations": None}],
    }


def test_create_without_a_name_takes_a_uuid(api: Api) -> None:
    assert len(api.post(LIST, json={"sink_uri": "blackhole://"}).json()["id"]) == 36


def test_what_create_refuses(with_feed: Api) -> None:
    api = with_feed

    def create(**body: Any) -> Any:
        return api.post(LIST, json={"sink_uri": "blackhole://", **body})

    refused(create(changefeed_id="test"), "CDC:ErrChangeFeedAlreadyExists")
    refused(create(changefeed_id="-a"), "CDC:ErrAPIInvalidParam")
    refused(create(changefeed_id="a" * 129), "CDC:ErrAPIInvalidParam")
    refused(create(sink_uri=""), "CDC:ErrSinkURIInvalid")
    refused(create(sink_uri="kafka://h:1/t?protocol=x"), "CDC:ErrSinkURIInvalid")
    refused(create(start_ts=NOW + 1), "CDC:ErrAPIInvalidParam")
    refused(create(start_ts=1 << 40), "CDC:ErrStartTsBeforeGC")
    refused(create(start_ts=NOW, target_ts=NOW - 1), "CDC:ErrTargetTsBeforeStartTs")
    assert "filter.rulez: unknown key" in refused(create(replica_config={"filter": {"rulez": []}}), "CDC:ErrInvalidReplicaConfig")
    refused(create(replica_config={"filter": {"rules": [5]}}), "CDC:ErrInvalidReplicaConfig")


def test_tables_without_a_key_are_refused_unless_the_body_agrees(api: Api) -> None:
    api.service.ineligible = (NO_KEY,)
    refused(api.post(LIST, json={"sink_uri": "blackhole://"}), "CDC:ErrTableIneligible")
    agreed = {"sink_uri": "blackhole://", "replica_config": {"ignore_ineligible_table": True}}
    assert api.post(LIST, json=agreed).status_code == 200


def test_gc_is_not_checked_where_the_body_says_so(api: Api) -> None:
    api.post(LIST, json={"sink_uri": "blackhole://", "start_ts": 1 << 41, "replica_config": {"check_gc_safe_point": False}})
    assert api.service.calls[0][1].disable_gc_check


@pytest.mark.parametrize("query", ["", "?keyspace=default", "?namespace=default", "?keyspace=default&namespace=default"])
def test_list_is_ticdcs_envelope(with_feed: Api, query: str) -> None:
    assert with_feed.get(LIST + query).json() == {
        "total": 1,
        "items": [
            {
                "upstream_id": UPSTREAM,
                "namespace": "default",
                "keyspace": "default",
                "id": "test",
                "state": "normal",
                "checkpoint_tso": NOW,
                "checkpoint_time": "2025-11-24 16:00:00.000",
                "error": None,
            }
        ],
    }


def test_other_keyspaces(with_feed: Api) -> None:
    refused(with_feed.get(LIST + "?keyspace=other"), "CDC:ErrInvalidKeyspace")
    refused(with_feed.get(LIST + "?namespace=other"), "CDC:ErrInvalidKeyspace")
    refused(with_feed.get(LIST + "?namespace=a&keyspace=b"), "CDC:ErrAPIInvalidParam")


def test_the_list_is_chosen_by_state(with_feed: Api) -> None:
    api = with_feed
    api.post(LIST + "/test/pause")
    assert api.get(LIST + "?state=stopped").json()["total"] == 1
    assert api.get(LIST + "?state=normal").json() == {"total": 0, "items": []}
    assert api.get(LIST + "?state=all").json()["total"] == 1
    refused(api.get(LIST + "?state=blue"), "CDC:ErrAPIInvalidParam")


def test_errors_are_in_the_answers_as_ticdc_has_them(with_feed: Api) -> None:
    api = with_feed
    api.service.fail("test")
    error = {
        "time": "2025-11-24T16:00:00Z",
        "addr": "127.0.0.1:8300",
        "code": "CDC:ErrKafkaSendMessage",
        "message": "the broker is away. Look at the broker.",
    }
    assert api.get(LIST).json()["items"][0]["error"] == error
    assert api.get(LIST + "/test").json()["error"] == error
    assert api.get(LIST + "/test/status").json() == {"state": "failed", "resolved_ts": NOW, "checkpoint_ts": NOW, "last_error": error}


def test_pending_is_shown_as_warning(with_feed: Api) -> None:
    api = with_feed
    api.service.fail("test")
    api.service.feeds["test"] = replace(api.service.feeds["test"], state=State.PENDING)
    assert api.get(LIST + "/test").json()["state"] == "warning"
    status = api.get(LIST + "/test/status").json()
    assert status["state"] == "warning"
    assert "last_warning" in status
    assert "last_error" not in status


def test_a_normal_changefeed_shows_no_error(with_feed: Api) -> None:
    api = with_feed
    api.service.fail("test")
    api.service.feeds["test"] = replace(api.service.feeds["test"], state=State.NORMAL)
    assert "error" not in api.get(LIST + "/test").json()


@pytest.mark.parametrize("accept", ["application/toml", "Application/TOML; charset=utf-8"])
def test_toml_is_a_file_for_create(api: Api, accept: str) -> None:
    config = {
        "filter": {"rules": ["a.*"], "event_filters": [{"matcher": ["a.b"], "ignore_event": ["delete"]}]},
        "sync_point_interval": "5m",
    }
    api.post(LIST, json={"changefeed_id": "t", "sink_uri": "blackhole://", "replica_config": config})
    answer = api.get(LIST + "/t", headers={"Accept": accept})
    assert answer.headers["content-type"].startswith("application/toml")
    found = tomllib.loads(answer.text)
    assert (found["id"], found["start-ts"]) == ("t", NOW)
    assert parse_config(toml_text(found["config"])).filter.event_filters[0].matcher == ["a.b"]


def test_names_that_do_not_exist(api: Api) -> None:
    for path in ("/no", "/no/status", "/no/synced", "/no/tables", "/no/get_dispatcher_count", "/no..such"):
        code = "CDC:ErrChangeFeedNotExists"
        assert "not exists" in refused(api.get(LIST + path), code)
    for path in ("/no/pause", "/no/resume"):
        refused(api.post(LIST + path), "CDC:ErrChangeFeedNotExists")
    assert api("DELETE", LIST + "/no").json() is None
    assert api("DELETE", LIST + "/no").status_code == 200


def test_update_changes_what_the_body_has(with_feed: Api) -> None:
    api = with_feed
    body = {"sink_uri": "", "target_ts": 0, "start_ts": 0, "replica_config": None}
    assert "stopped or failed" in refused(api("PUT", LIST + "/test", json=body), "CDC:ErrChangefeedUpdateRefused")
    api.post(LIST + "/test/pause")
    api.service.calls.clear()
    assert api("PUT", LIST + "/test", json=body).status_code == 200
    assert api.service.calls[-1:] == [("update", ChangefeedUpdate())]
    api.service.calls.clear()
    answer = api("PUT", LIST + "/test", json={"target_ts": NOW + 9, "replica_config": {"case_sensitive": True}})
    assert answer.json()["config"]["case_sensitive"] is True
    assert api.service.calls[-1:] == [("update", ChangefeedUpdate(target_ts=NOW + 9, replica_config={"case-sensitive": True}))]
    assert "start_ts can not be updated" in refused(api("PUT", LIST + "/test", json={"start_ts": 5}), "CDC:ErrAPIInvalidParam")


@pytest.mark.parametrize(
    ("body", "wanted"), [(b"", None), (b"{}", None), (b'{"overwrite_checkpoint_ts": 0}', None), (b'{"overwrite_checkpoint_ts": 7}', 7)]
)
def test_resume(with_feed: Api, body: bytes, wanted: int | None) -> None:
    api = with_feed
    api.post(LIST + "/test/pause")
    assert api.post(LIST + "/test/resume", content=body).json() == {}
    assert api.service.calls[-1] == ("resume", wanted)


def test_a_life(with_feed: Api) -> None:
    api = with_feed
    assert api.post(LIST + "/test/pause").json() == {}
    assert api.get(LIST + "/test").json()["state"] == "stopped"
    refused(api.post(LIST + "/test/resume", json={"overwrite_checkpoint_ts": NOW + 1}), "CDC:ErrCliCheckpointTsIsInFuture")
    api.post(LIST + "/test/resume", json={"overwrite_checkpoint_ts": NOW - 3})
    assert api.get(LIST + "/test/status").json() == {"state": "normal", "resolved_ts": NOW, "checkpoint_ts": NOW - 3}
    assert api("DELETE", LIST + "/test").json() == {}
    assert api.get(LIST).json() == {"total": 0, "items": []}


def test_tables(with_feed: Api) -> None:
    api = with_feed
    assert api.get(LIST + "/test/tables").json() == {"total": 1, "items": [{"node_id": CAPTURE, "table_ids": [104, 106]}]}
    assert api.get(LIST + "/test/get_dispatcher_count").json() == {"count": 2}
    api.service.ineligible = (NO_KEY,)
    body = {"replica_config": {"filter": {"rules": ["shop.*"]}}, "start_ts": NOW, "sink_uri": "blackhole://"}
    lists = api.post("/api/v2/verify_table", json=body).json()
    assert lists["ineligible_tables"] == [{"database_name": "shop", "table_name": "log_lines", "table_id": 108, "is_partition": False}]
    assert [len(lists[name]) for name in ("eligible_tables", "all_tables")] == [2, 3]
    assert api.service.calls[-1] == ("table_lists", ({"filter": {"rules": ["shop.*"]}}, NOW))


def test_empty_lists_of_tables_are_left_out(api: Api) -> None:
    assert "ineligible_tables" not in api.post("/api/v2/get_all_tables", json={}).json()


@pytest.mark.parametrize("table", ["", "?tableID=", "?tableID=x", "?tableID=-1", "?tableID=99999999999999999999999"])
def test_tables_have_numbers(with_feed: Api, table: str) -> None:
    assert "tableID" in refused(with_feed.post(LIST + "/test/move_table" + table), "CDC:ErrAPIInvalidParam")


def test_version_1_has_bodies_lists_and_statuses_of_its_own(api: Api) -> None:
    body = {
        "changefeed_id": "one", "sink_uri": "blackhole://", "filter_rules": ["shop.*"], "ignore_txn_start_ts": [7], "timezone": "system",
        "force_replicate": True, "mounter_worker_num": 16, "sink_config": {"protocol": "canal-json", "kafka-config": {"partition-num": 3}},
    }  # fmt: skip
    answer = api.post("/api/v1/changefeeds", json=body)
    assert (answer.status_code, answer.json()["id"]) == (202, "one")
    (wanted,) = [what for name, what in api.service.calls if name == "create"]
    assert wanted.replica_config == {
        "force-replicate": True, "ignore-ineligible-table": False, "filter": {"rules": ["shop.*"], "ignore-txn-start-ts": [7]},
        "sink": {"protocol": "canal-json", "kafka-config": {"partition-num": 3}},
    }  # fmt: skip
    assert [one["id"] for one in api.get("/api/v1/changefeeds").json()] == ["one"]
    assert api.get("/api/v1/changefeeds/one").json()["id"] == api.get("/api/v2/changefeeds/one/meta_info").json()["id"] == "one"
    assert (api.post("/api/v1/changefeeds/one/pause").status_code, api.service.feeds["one"].state) == (202, State.STOPPED)
    change = {"filter_rules": ["a.*"], "target_ts": NOW + 9}
    assert api("PUT", "/api/v1/changefeeds/one", json=change).json()["config"]["filter"]["rules"] == ["a.*"]
    assert api.post("/api/v1/changefeeds/one/resume").status_code == 202
    moved = api.post("/api/v1/changefeeds/one/tables/move_table", json={"table_id": 1, "target_capture_id": "x"})
    assert moved.json()["error_code"] == "CDC:ErrTableNotSupportMove"
    assert api.post("/api/v1/changefeeds/one/tables/rebalance_table").status_code == 202
    assert api.post("/api/v1/changefeeds/two/tables/rebalance_table").json()["error_code"] == "CDC:ErrChangeFeedNotExists"
    assert (api("DELETE", "/api/v1/changefeeds/one").json(), api("DELETE", "/api/v1/changefeeds/one").json()) == ({}, None)
    assert api.post("/api/v1/changefeeds", json={"sink_uri": ""}).json()["error_code"] == "CDC:ErrSinkURIInvalid"
