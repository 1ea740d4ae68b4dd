"""What page and terminal show: changefeeds in each state, what holds the log, tables; no secrets, no number that loses digits."""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.server.page_scenes import HTML, as_json, failure, healthy_capture, held_capture, info, mixed, now_ts, scene
from tidemill.capture.status import CaptureStatus
from tidemill.capture.tikv.watchdog.causes import Cause
from tidemill.changefeed.states import TRANSITIONS, Event, State
from tidemill.changelog.spread import partition_of
from tidemill.server.page import overview as o
from tidemill.server.page.log_lines import FileEnd, Ring
from tidemill.server.page.of_run import RunPage
from tidemill.server.page.remedies import REMEDIES, remedy
from tidemill.server.page.tables import SHOWN, tables
from tidemill.server.service import TableLists, TableName


def told() -> dict[str, Any]:
    return dict(as_json(scene(mixed(), held_capture())[1]))


def test_changefeeds_with_ticdcs_states_and_what_may_be_done() -> None:
    feeds = {one["id"]: one for one in told()["changefeeds"]}
    assert {name: one["state"] for name, one in feeds.items()} == {
        "orders": "normal",
        "replica-mysql": "normal",
        "lake": "normal",
        "orders-eu": "warning",
        "items-avro": "failed",
        "audit": "stopped",
        "backfill": "finished",
    }
    assert feeds["orders"]["may"] == ["pause", "remove"]
    assert feeds["items-avro"]["may"] == ["resume", "skip", "remove"]
    assert feeds["items-avro"]["error"]["hint"].startswith("Change the row")
    assert feeds["orders-eu"]["retry_at"] is not None
    assert feeds["lake"]["checkpoint_lag_s"] == pytest.approx(64, abs=5)


def test_what_may_be_done_is_what_the_states_allow() -> None:
    events = {"pause": Event.PAUSED, "resume": Event.RESUMED, "remove": Event.REMOVED}
    for state, may in o._MAY.items():
        assert all((state, events[name]) in TRANSITIONS for name in may if name in events)
        assert ("skip" in may) <= (state is not State.NORMAL)  # a checkpoint is not overwritten under a changefeed that runs


def test_tsos_are_texts_in_all_of_it() -> None:
    def numbers(value: Any) -> list[float]:
        if isinstance(value, dict):
            return [n for inner in value.values() for n in numbers(inner)]
        if isinstance(value, list):
            return [n for inner in value for n in numbers(inner)]
        return [value] if isinstance(value, int | float) else []

    assert max(numbers(told())) < 2**53
    holding = told()["capture"]["holding"]
    assert re.fullmatch(r"[0-9]{18}", holding["lock"]["start_ts"])
    assert re.fullmatch(r"[0-9]{18}", holding["resolved_ts"])


def test_what_holds_the_log_comes_with_what_to_do() -> None:
    capture = told()["capture"]
    assert capture["holding"]["remedy"].startswith("Let the transaction end")
    assert [one["remedy"] == remedy(one["cause"]) != "" for one in (*capture["held_tables"], *capture["stuck"])] == [True] * 3
    assert capture["resolved_lag_s"] == pytest.approx(340, abs=5)


def test_each_cause_has_a_remedy() -> None:
    assert set(REMEDIES) == set(Cause)
    assert remedy("of another version") == ""


def test_a_capture_that_is_silent_and_one_that_never_wrote() -> None:
    old = replace(healthy_capture(), updated=time.time() - 100)
    assert o.capture(old, time.time())["silent_s"] == pytest.approx(100, abs=5)
    never = o.capture(CaptureStatus(), time.time())
    assert (never["silent_s"], never["pid"], never["resolved_lag_s"], never["holding"]) == (None, None, None, None)
    ended = replace(old, state="stopped")
    assert o.capture(ended, time.time())["silent_s"] is None


def test_no_secret_is_shown() -> None:
    error = failure("TM:ErrSink", "mysql://root:hunter2@db/ refused; sasl-password=hunter2", "try mysql://root:hunter2@db/")
    feed = info("f", State.WARNING, sink="mysql://root:hunter2@db/", error=error, warnings=("password=hunter2",))
    feed = replace(feed, given_config={"sink": {"kafka-config": {"sasl-password": "hunter2"}}})
    capture = replace(held_capture(), log="s3://key:hunter2@bucket/log", storage={"seconds": 3, "message": "token=hunter2"})
    capture.held_tables[0]["last_error"] = "password=hunter2"
    text = json.dumps(as_json(scene([feed], capture)[1]))
    assert "hunter2" not in text
    assert "xxxxx" in text


def test_an_overview_is_made_once_a_second_however_many_ask() -> None:
    service, watch = scene(mixed(), healthy_capture())

    async def work() -> list[Any]:
        return await asyncio.gather(*(watch.overview() for _ in range(20)))

    found = asyncio.run(work())
    assert all(one is found[0] for one in found)
    assert [name for name, _ in service.calls].count("changefeeds") == 1


def test_the_watch_notes_the_history() -> None:
    _, watch = scene(mixed()[:2], healthy_capture())
    watch.history = type(watch.history)()

    async def work() -> None:
        noting = asyncio.create_task(watch.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        noting.cancel()

    asyncio.run(work())
    assert watch.history.of("orders")["checkpoint_lag_s"][0] == pytest.approx(1.3, abs=5)


# ---- tables


def lists(*ids: int) -> TableLists:
    names = tuple(TableName("shop", f"t{i}", i, False) for i in ids)
    return TableLists(names, (), names)


def test_a_table_is_as_far_as_its_log_partition() -> None:
    heads = [now_ts(5), now_ts(50), now_ts(500)]
    found = tables(lists(*range(100, 130)), replace(healthy_capture(), heads=heads), time.time())
    assert found["total"] == 30
    for one in found["items"]:
        home = partition_of(one["table_id"], 3)
        assert one["partitions"] == [home]
        assert one["resolved_ts"] == str(heads[home])
        assert one["resolved_lag_s"] == pytest.approx((5, 50, 500)[home], abs=5)


def test_what_is_held_up_comes_first_and_then_what_has_no_key() -> None:
    whole = TableLists((TableName("shop", "a", 1, False), TableName("shop", "items", 2, False)), (TableName("shop", "z", 3, False),), ())
    found = tables(whole, held_capture(), time.time())["items"]
    assert [(one["table"], one["eligible"], one["cause"]) for one in found] == [
        ("items", True, "not subscribed"),
        ("z", False, None),
        ("a", True, None),
    ]
    assert found[0]["held_s"] == 61.0
    assert found[0]["remedy"]


def test_tables_before_there_is_a_log_and_of_a_split_table() -> None:
    (one,) = tables(lists(7), CaptureStatus(), time.time())["items"]
    assert (one["partitions"], one["resolved_lag_s"]) == ([], None)
    split = replace(healthy_capture(), split_tables={"shop.t7": [0, 2, 9]})
    (one,) = tables(lists(7), split, time.time())["items"]
    assert one["partitions"] == [0, 2]


def test_of_very_many_tables_some_are_listed() -> None:
    found = tables(lists(*range(SHOWN + 5)), healthy_capture(), time.time())
    assert (found["total"], len(found["items"])) == (SHOWN + 5, SHOWN)


# ---- of a run


def of_run(tmp_path: Path, **more: Any) -> RunPage:
    status = {
        "changefeed": "one",
        "state": "failed",
        "checkpoint_ts": now_ts(90),
        "rows": 12,
        "rows_per_s": 1.5,
        "target_ts": None,
        "error": {"code": "TM:ErrSink", "message": f"{HTML}\n  Look at it."},
        "resume": "tidemill changefeed resume",
        "failed_at": 5.0,
        "capture": held_capture().as_dict(),
        "processes": [{"name": "capture", "pid": 4, "restarts": 1, "last_error": None}],
        "status_addr": "127.0.0.1:8301",
        "updated_at": time.time(),
        **more,
    }
    file = tmp_path / "log"
    file.write_text("[x] [INFO] one\n")
    return RunPage(lambda: status, version="1", sink_uri="mysql://root:hunter2@db/", ring=Ring(), file=FileEnd(file))


def test_a_run_has_the_same_form_and_nothing_to_change(tmp_path: Path) -> None:
    page = of_run(tmp_path)
    server, run = told(), page.overview()
    assert run.keys() == server.keys()
    assert run["server"].keys() == server["server"].keys()
    assert run["capture"].keys() == server["capture"].keys()
    (feed,) = run["changefeeds"]
    assert feed.keys() == server["changefeeds"][0].keys()
    assert (feed["may"], feed["sink_uri"], run["server"]["read_only"]) == ([], "mysql://root:xxxxx@db/", True)
    assert feed["error"] == {"code": "TM:ErrSink", "message": HTML, "hint": "Look at it. To resume: tidemill changefeed resume", "at": 5.0}


def test_the_pages_of_a_run(tmp_path: Path) -> None:
    page = of_run(tmp_path)
    page.note()
    page.note()  # too soon for another point
    pages = page.pages()
    assert "script-src 'self'" in pages["/"].headers["Content-Security-Policy"]
    assert len(json.loads(pages["/api/page/history"].content({"changefeed": "one"}))["times"]) == 1
    assert json.loads(pages["/api/page/history"].content({}))["checkpoint_lag_s"].keys() == {"one"}
    assert json.loads(pages["/api/page/log"].content({})) == {"last": 1, "lines": ["[x] [INFO] one"]}
    assert json.loads(pages["/api/page/log"].content({"after": "1"})) == {"last": 1, "lines": []}
    assert json.loads(pages["/api/page/log"].content({"after": "9" * 99}))["lines"] != []


def test_a_run_before_its_first_status(tmp_path: Path) -> None:
    page = RunPage(lambda: {"changefeed": "one", "state": "normal"}, version="1", sink_uri="blackhole://", ring=Ring(), file=None)
    page.note()
    (feed,) = page.overview()["changefeeds"]
    assert (feed["checkpoint_lag_s"], feed["error"], feed["rows"]) == (None, None, 0)
    assert "state" in of_run(tmp_path, capture={"state": 7, "heads": "x"}).overview()["capture"]
