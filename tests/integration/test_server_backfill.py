"""A server of which a second changefeed wants further tables from a ts that the log has passed: it has every change since then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.delivery.runs import await_that
from tests.support.server.servers import Server
from tidemill.changelog.reader import LogReader, log_exists
from tidemill.demo.delivered import from_jsonl
from tidemill.demo.session import Upstream

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.thorough("tests/server/changefeeds/test_widening.py decides it, tests/server/test_capture_process.py does it")
def test_a_changefeed_begins_in_the_past_with_tables_that_no_other_wanted(tmp_path: Path) -> None:
    def body(name: str, rule: str, **more: Any) -> dict[str, Any]:
        (tmp_path / name).mkdir()
        sink = f"messages://{tmp_path}/{name}/out.jsonl?protocol=canal-json"
        return {"changefeed_id": name, "sink_uri": sink, "replica_config": {"filter": {"rules": [rule]}}, **more}

    with (
        Upstream(tmp_path, options=("--workload", "none", "--resolved-interval", "0.2")) as upstream,
        Server(tmp_path, upstream.pd, "--trigger-ms", "200") as server,
    ):

        def run(sql: str) -> int:
            upstream.call("sql", text=sql)
            return upstream.rest()

        run("create database a; create table a.t (id int primary key); create database b; create table b.t (id int primary key)")
        server.call("POST", "changefeeds", body("one", "a.*"))
        start = run("insert into b.t values (1)")
        passed = [run(f"insert into a.t values ({i}); insert into b.t values ({i})") for i in range(2, 8)][-1]
        await_that(lambda: log_exists(str(server.log)) and LogReader(server.log).resolved_ts() > passed, "the log has passed the start-ts")
        created = server.call("POST", "changefeeds", body("two", "b.*", start_ts=start))
        assert created.get("start_ts") == start, created
        end = run("insert into b.t values (8)")
        await_that(lambda: min(server.checkpoint("one"), server.checkpoint("two")) >= end, "both deliver")
    for name, wanted in (("one", [2, 3, 4, 5, 6, 7]), ("two", [2, 3, 4, 5, 6, 7, 8])):
        messages = [json.loads(m.value or b"{}") for m in from_jsonl(tmp_path / name / "out.jsonl")]
        assert [int(row["id"]) for m in messages if m["type"] == "INSERT" for row in m["data"]] == wanted
