"""`tidemill run --workers 2`: the main job with a capture in groups, one of which is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.delivery.runs import assert_equal, audited, await_that, gone, settled, tidemill
from tidemill.demo.delivered import from_files
from tidemill.demo.session import Delivery, Upstream

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.thorough("test_groups_spark.py kills such a group; test_bad_input.py has a run with --workers 2")
def test_a_run_with_a_capture_in_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told() -> dict[int, dict[str, Any]]:
        file = tmp_path / "data" / "changefeeds" / "demo" / "capture" / "status.json"
        groups = json.loads(file.read_text())["groups"] if file.exists() else []
        return {g["group"]: g for g in groups if g["state"] == "running" and all(g["heads"].values())}

    workload = ("--resolved-interval", "0.3", "--ddl-every", "100", "--region-every", "60")
    with Upstream(tmp_path, seed=8, rate=15, options=workload) as upstream:
        sink = f"file://{tmp_path}/delivered?protocol=open-protocol&partition-num=3"
        options = ("--trigger-ms", "50", "--workers", "2", "--log-partitions", "3")
        with Delivery(tmp_path, upstream, sink, options=options, start_ts=upstream.began_ts) as delivery:
            await_that(lambda: len(told()) == 2, "both groups capture", delivery)
            assert sorted(g["partitions"] for g in told().values()) == [[0, 2], [1]]
            victim = told()[0]["pid"]
            psutil.Process(victim).kill()
            found: list[dict[int, dict[str, Any]]] = [{}]

            def is_back() -> bool:
                found[0] = told()
                return len(found[0]) == 2 and found[0][0]["pid"] != victim

            await_that(is_back, "the group is back", delivery)
            code, out, _ = tidemill(capsys, "status", "--data-dir", tmp_path / "data")
            assert code == 0
            assert f"process {found[0][0]['pid']} on" in out
            assert "partitions 0, 2 up to" in out
            end_ts, truth = settled(upstream, delivery)
            everyone = psutil.Process(delivery.process.pid).children(recursive=True) if delivery.process is not None else []
            assert {g["pid"] for g in told().values()} <= {p.pid for p in everyone}, "the groups are processes of the run"
            assert delivery.stop() == 0
            assert gone(everyone) == []
        assert_equal(audited(from_files(tmp_path / "delivered")), delivery.log, truth, end_ts)


def test_what_a_run_cannot_divide_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("run", "--pd", "127.0.0.1:1", "--sink-uri", "blackhole://", "--log", tmp_path / "log", "--data-dir", tmp_path / "data")
    code, _, err = tidemill(capsys, *arguments, "--workers", "9")
    assert code == 1
    assert "Error TM:ErrConfig: --workers 9: the log has 4 partitions" in err
    assert not (tmp_path / "data").exists()
