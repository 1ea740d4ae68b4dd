"""Delivery on Spark clusters whose executors die, freeze and are cut off, and by drivers that take over from each other."""

from __future__ import annotations

import os
import signal
import socket
from datetime import UTC
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyarrow.fs import LocalFileSystem, copy_files

from tests.support.changelog.logs import golden_log
from tests.support.changelog.steps import halt, thaw
from tests.support.delivery.drivers import FAST, Driver, assert_as_replayed, can_hide, stops
from tests.support.servers.s3 import filesystem, make_bucket, s3_server
from tests.support.spark.standalone import Standalone
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.demo.audit import Audit
from tidemill.demo.delivered import from_kafka
from tidemill.playground.programs.kafka_broker import KafkaBroker

__all__ = ["s3_server"]

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

CLUSTER = "CLUSTER" in os.environ
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
QUICK: dict[str, Any] = {"spark_conf": dict(setting.split("=") for setting in FAST)}


@pytest.mark.parametrize(
    "place", ["disk", pytest.param("S3", marks=pytest.mark.thorough("tests/simulate/test_storage.py freezes drivers over a bucket"))]
)
def test_a_driver_that_was_frozen_finds_another_one_in_its_place(tmp_path: Path, place: str, s3_server: str) -> None:
    """All of A stands still in the middle of a batch; B goes on from the shared state with a data folder of its own; then A wakes."""
    log = golden_log(tmp_path / "log", partitions=2, segments=5)
    ends = stops(log)
    target = ends[12]
    at = None
    if place == "S3":
        make_bucket(s3_server, "takeover")
        copy_files(str(log), "takeover/log", source_filesystem=LocalFileSystem(), destination_filesystem=filesystem(s3_server))
        options = f"?endpoint_override={s3_server.partition('://')[2]}&scheme=http&region=us-east-1"
        at = f"s3://test:test@takeover/{{}}{options}".format
    with Driver(tmp_path, "a", master="local[2]", at=at) as first:
        first.past(ends[2])
        stopped = first.freeze_in_a_batch()
        reached, planned = first.checkpoint, first.fence()["to_ts"]
        with Driver(tmp_path, "b", master="local[2]", target_ts=target, at=at) as second:
            assert second.end() == 0, second.said
        assert reached < planned <= second.checkpoint == target
        thaw(stopped)
        assert first.end() == 1
        assert "Error TM:ErrFenced" in first.said, first.said
        assert second.checkpoint == target
        assert second.state("feed.json")["state"] == "finished", "the one that was fenced says nothing of the other's changefeed"
    assert not (tmp_path / "b/changefeeds/f/checkpoint.json").exists()
    assert_as_replayed(tmp_path, target)


def test_an_executor_that_is_killed(tmp_path: Path) -> None:
    """Executors are processes of their own here, to which packs travel."""
    log = golden_log(tmp_path / "log", partitions=2, segments=5)
    ends = stops(log)
    target = ends[12]
    options = {"master": LOCAL_CLUSTER, "target_ts": target, **QUICK}
    with Driver(tmp_path, "a", **options) as driver:
        driver.past(ends[3])
        driver.executors()[0].kill()
        assert driver.end() == 0, driver.said
    assert_as_replayed(tmp_path, target)


@pytest.mark.skipif(not CLUSTER, reason="make cluster")
def test_executors_of_a_standalone_cluster_die_freeze_and_are_cut_off(tmp_path: Path) -> None:
    """Two workers with folders of their own. One executor dies; the Java of another stands still while its Python workers live on, cut off
    from the driver and not from the sink; then all of one freezes, and wakes up."""
    log = golden_log(tmp_path / "log", partitions=2, segments=5)
    ends = stops(log)
    target = ends[40]
    with Standalone(tmp_path / "spark", workers=2, cores=1) as cluster:
        options = {"master": cluster.master, "target_ts": target, **QUICK}
        with Driver(tmp_path, "a", **options, hidden=can_hide()) as driver:
            driver.past(ends[4])
            cluster.executors()[0].kill()
            driver.past(ends[10])
            cut_off = cluster.executors()[0]
            halt([cut_off])
            driver.past(ends[16])
            thaw([cut_off])
            driver.past(ends[20])
            frozen = [cluster.executors()[-1], *cluster.executors()[-1].children(recursive=True)]
            halt(frozen)
            driver.past(ends[26])
            thaw(frozen)
            assert driver.end() == 0, driver.said
    assert_as_replayed(tmp_path, target)


@pytest.mark.skipif(not CLUSTER, reason="make cluster")
def test_a_cluster_without_an_executor_is_told(tmp_path: Path) -> None:
    """Its only worker is gone: within a minute the log and the status say so, and delivery goes on when there is one again."""
    log = golden_log(tmp_path / "log", partitions=2, segments=5)
    ends = stops(log)
    options = {"target_ts": ends[12], **QUICK}
    with (
        Standalone(tmp_path / "spark", workers=1, cores=1) as cluster,
        Driver(tmp_path, "a", master=cluster.master, **options) as driver,
    ):
        driver.past(ends[3])
        executor = cluster.executors()[0]
        cluster.kill_worker(0)
        executor.kill()
        driver.until(lambda: "TM:ErrNoExecutor" in driver.said, "it is told", every_s=1)
        status = (driver.data / "changefeeds/f/delivery.json").read_text()
        assert "TM:ErrNoExecutor" in status
        assert '"state": "warning"' in status
        cluster.add_worker()
        assert driver.end() == 0, driver.said
    assert_as_replayed(tmp_path, ends[12])


@pytest.mark.skipif(not CLUSTER, reason="make cluster")
def test_a_stop_while_nothing_runs_the_batch(tmp_path: Path) -> None:
    log = golden_log(tmp_path / "log", partitions=2, segments=5)
    with Standalone(tmp_path / "spark", workers=0, cores=1) as cluster, Driver(tmp_path, "a", master=cluster.master, **QUICK) as driver:
        driver.until(lambda: "TM:ErrNoExecutor" in driver.said, "it is told", every_s=1)
        assert driver.process is not None
        driver.process.send_signal(signal.SIGTERM)
        assert driver.end() == 0, driver.said
    assert driver.checkpoint < stops(log)[-1]


def test_a_master_that_nobody_runs_is_told_at_once(tmp_path: Path) -> None:
    golden_log(tmp_path / "log")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with Driver(tmp_path, "a", master=f"spark://127.0.0.1:{port}") as driver:
        assert driver.end() == 1
        assert f"Error TM:ErrSparkUnavailable: no Spark master answers: 127.0.0.1:{port}" in driver.said
    assert not [p for p in driver.tree() if p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.kafka
@pytest.mark.skipif(not CLUSTER, reason="make cluster")
def test_an_executor_that_sleeps_while_others_deliver_to_kafka(tmp_path: Path) -> None:
    """It wakes up with rows of an epoch that is over: a consumer sees each row in its order, and misses none."""
    log = golden_log(tmp_path / "log", partitions=2, segments=5)
    ends = stops(log)
    with KafkaBroker() as broker:
        sink = f"kafka://{broker.address}/changes?protocol=open-protocol&partition-num=2"
        options = {"master": LOCAL_CLUSTER, "target_ts": ends[24], **QUICK}
        with Driver(tmp_path, "a", **options, sink=sink) as driver:
            driver.past(ends[4])
            asleep = [driver.executors()[0], *driver.executors()[0].children(recursive=True)]
            halt(asleep)
            driver.past(ends[12])
            thaw(asleep)
            assert driver.end() == 0, driver.said
        audit = Audit()
        audit.take(from_kafka(broker.address, "changes"))
        audit.finish()
    assert audit.problems == []
    config = parse_config("")
    want = replay(str(log), Settings("r", config.sink_uri("blackhole://?protocol=open-protocol"), config, UTC), target_ts=ends[24])
    assert len(audit.rows) == want.rows
