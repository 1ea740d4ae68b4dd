"""The main job end to end into files, and the command line around it. One upstream, one log and one changefeed for all tests here.

The fixture runs the changefeed twice: until SIGTERM, and, while the workload goes on, to a target ts.
"""

from __future__ import annotations

import json
import signal
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.delivery.runs import PATIENCE_S, Truth, assert_equal, audited, await_that, gone, processes, settled, tidemill
from tidemill.demo.delivered import from_files, from_jsonl
from tidemill.demo.session import Delivery, Upstream, tables_of
from tidemill.playground.server import PlaygroundThread

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 3
QUICK = ("--trigger-ms", "50")
"""A DDL ends a batch, and batches begin at triggers."""


@dataclass
class World:
    """What two runs left."""

    folder: Path
    upstream: Upstream
    delivery: Delivery
    sink: str
    target_ts: int
    truth: Truth
    status: dict[str, Any]
    served: dict[str, str]
    exits: list[int]
    left_over: list[psutil.Process]

    @property
    def run(self) -> list[object]:
        """The command line that goes on with the changefeed."""
        return [
            *("run", "--pd", self.upstream.pd, "--sink-uri", self.sink, "--log", self.delivery.log, "--data-dir", self.delivery.data),
            *("--changefeed-id", "demo", "--tz", "UTC", "--log-level", "error"),
        ]


def _fetch(address: str, page: str) -> str:
    with urllib.request.urlopen(f"http://{address}{page}", timeout=30) as answer:
        text: str = answer.read().decode()
    return text


PAGES = ("/status", "/metrics", "/", "/api/page/overview", "/api/page/log")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("run")
    sink = f"file://{folder}/delivered?protocol=open-protocol&partition-num={PARTITIONS}"
    options = ("--stores", "2", "--resolved-interval", "0.3", "--ddl-every", "15", "--region-every", "50")
    with Upstream(folder, seed=3, rate=25, options=options) as upstream:
        delivery = Delivery(folder, upstream, sink, options=("--status-addr", "127.0.0.1:0", *QUICK), start_ts=upstream.began_ts)
        with delivery:
            await_that(
                lambda: min(delivery.feed_status().get(what, 0) for what in ("ddls", "rows")) > 8,
                "some DDLs and rows are delivered",
                delivery,
            )
            everyone = [p for group in processes(delivery).values() for p in group]
            await_that(lambda: bool(delivery.status().get("rows")), "the run's status has come as far", delivery)
            status = dict(delivery.status())
            served = {page: _fetch(status["status_addr"], page) for page in PAGES}
            exits = [delivery.stop()]
        left_over = gone(everyone)
        before = upstream.stats()["transactions"]
        await_that(lambda: upstream.stats()["transactions"] > before + 50, "the workload goes on")
        target_ts = upstream.rest()
        again = Delivery(folder, upstream, sink, options=("--target-ts", str(target_ts), *QUICK))
        with again:
            assert again.process is not None
            exits.append(again.process.wait(PATIENCE_S))
        yield World(
            folder, upstream, delivery, sink, target_ts, tables_of(upstream, target_ts), status, served, exits, left_over
        )  # fmt: skip


def test_what_was_delivered_makes_the_upstreams_tables(world: World) -> None:
    audit = audited(from_files(world.folder / "delivered"))
    assert_equal(audit, world.delivery.log, world.truth, world.target_ts)
    assert len(audit.rows) > 200
    assert len(audit.ddls) > 10
    assert audit.repeats == 0
    assert {p.resolved for p in audit.partitions.values()} == {world.target_ts}
    assert len(audit.partitions) == PARTITIONS


def test_a_run_has_a_web_page(world: World) -> None:
    assert '<script type="module" src="/page/app.js">' in world.served["/"]
    found = json.loads(world.served["/api/page/overview"])
    assert (found["server"]["read_only"], found["capture"]["state"]) == (True, "running")
    assert [(one["id"], one["rows"] > 8, one["may"]) for one in found["changefeeds"]] == [("demo", True, [])]
    lines = json.loads(world.served["/api/page/log"])["lines"]
    assert any("[capture]" in line for line in lines)
    assert any("[delivery]" in line or "[changefeed]" in line for line in lines)


def test_a_signal_and_a_target_end_a_run_with_0(world: World) -> None:
    assert world.exits == [0, 0]
    assert world.left_over == []
    assert world.delivery.checkpoint() == world.target_ts
    assert world.delivery.status()["state"] == "finished"
    assert world.delivery.status()["run"] == "stopped"
    assert [p["pid"] for p in world.delivery.status()["processes"]] == [None, None]


def test_a_target_that_is_reached_ends_at_once(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert tidemill(capsys, *world.run, "--target-ts", world.target_ts)[0] == 0


def test_status_and_metrics_tell_of_both_halves(world: World) -> None:
    status, served = world.status, json.loads(world.served["/status"])
    assert set(status) == set(served)
    for one in (status, served):
        assert one["changefeed"] == "demo"
        assert one["state"] == "normal"
        assert one["rows"] > 0
        assert one["checkpoint_ts"] > one["start_ts"] > 0
        assert one["capture"]["state"] == "running"
        assert one["capture"]["resolved_ts"] > 0
        assert [p["name"] for p in one["processes"]] == ["capture", "changefeed"]
    metrics = world.served["/metrics"]
    assert 'tidemill_changefeed_state{changefeed="demo",state="normal"} 1.0' in metrics
    assert "tidemill_capture_up 1.0" in metrics
    assert 'tidemill_changefeed_rows_total{changefeed="demo"}' in metrics


def test_the_log_file_is_shared_and_names_the_processes(world: World) -> None:
    text = (world.folder / "tidemill.log").read_text()
    for part in ("run", "capture", "changefeed"):
        assert f"] [{part}] [" in text
    assert (world.folder / "run.log").read_text() == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--sink-uri", "file:///elsewhere?protocol=open-protocol"), "--sink-uri"),
        (("--tz", "Asia/Tokyo"), "--tz"),
        (("--log", "LOG2"), "--log"),
        (("--config", "CONFIG"), "--config (filter)"),
        (("--start-ts", "-1h"), "--start-ts"),
    ],
)
def test_other_settings_are_refused_and_named(world: World, capsys: pytest.CaptureFixture[str], change: tuple[str, str], said: str) -> None:
    (world.folder / "config.toml").write_text('[filter]\nrules = ["shop.*"]\n')
    values = {"CONFIG": str(world.folder / "config.toml"), "LOG2": str(world.folder / "another-log")}
    before = sorted(world.delivery.feed_folder.iterdir())
    code, out, err = tidemill(capsys, *world.run, change[0], values.get(change[1], change[1]))
    assert code == 1
    assert out == ""
    assert err.startswith("Error TM:ErrFeedMismatch: changefeed demo was created with another value of " + said), err
    assert err.count("Error ") == 1
    assert sorted(world.delivery.feed_folder.iterdir()) == before
    assert not (world.folder / "another-log").exists()


def test_another_cluster_is_refused(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    with PlaygroundThread(seed=1234) as other:
        pd = other.playground.pd_address
        code, _, err = tidemill(capsys, *world.run, "--pd", pd)
        assert (code, "another value of the cluster" in err) == (1, True), err
        code, _, err = tidemill(capsys, *world.run, "--pd", pd, "--changefeed-id", "new")
        assert (code, err.startswith("Error TM:ErrClusterMismatch")) == (1, True), err
        code, _, err = tidemill(capsys, "capture", "--pd", pd, "--log", world.delivery.log)
        assert (code, "cluster" in err) == (1, True), err
    assert not (world.delivery.data / "changefeeds" / "new").exists()


def test_a_start_outside_the_log_is_refused_with_both_ends(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(tidemill(capsys, "log", "show", world.delivery.log, "--json")[1])
    for start in (facts["start_ts"] - (1 << 18), facts["resolved_ts"] + 1):
        code, _, err = tidemill(capsys, *world.run, "--changefeed-id", "new", "--start-ts", start)
        assert (code, err.startswith("Error TM:ErrStartTsOutOfLog")) == (1, True), err
        assert str(facts["start_ts"]) in err
        assert str(facts["resolved_ts"]) in err
    assert not (world.delivery.data / "changefeeds" / "new").exists()


def test_the_log_can_be_shown_and_verified(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = tidemill(capsys, "log", "verify", world.delivery.log)
    assert (code, out.rstrip().endswith("whole")) == (0, True), out
    code, out, _ = tidemill(capsys, "log", "show", world.delivery.log)
    assert code == 0
    assert "demo  " in out


def test_a_replay_gives_the_same_rows(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    file = world.folder / "replayed.jsonl"
    log = world.delivery.log
    before = {p: p.stat().st_mtime_ns for p in log.rglob("*") if p.is_file()}  # its own feed, in a folder, is gone at the end
    code, out, err = tidemill(
        capsys, "replay", "--log", log, "--sink-uri", f"messages://{file}?protocol=open-protocol", "--tz", "UTC", "--target-ts",
        world.target_ts,
    )  # fmt: skip
    assert code == 0, err
    assert {p: p.stat().st_mtime_ns for p in log.rglob("*") if p.is_file()} == before
    replayed, delivered = audited(from_jsonl(file)), audited(from_files(world.folder / "delivered"))
    assert replayed.problems == []
    assert Counter(map(repr, replayed.rows)) == Counter(map(repr, delivered.rows))
    assert replayed.ddls == delivered.ddls
    assert f"{len(replayed.rows)} rows" in out


def test_queries_of_the_upstream_tell_the_truth(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for (schema, name), (_, rows) in world.truth.items():
        code, out, err = tidemill(
            capsys, "playground", "query", "--pd", world.upstream.pd, "--table", f"{schema}.{name}", "--at", world.target_ts,
            "--output", "json",
        )  # fmt: skip
        assert code == 0, err
        told = [json.loads(line) for line in out.splitlines()]
        assert len(told) == len(rows)
        for shown, row in zip(told, rows, strict=True):
            assert set(shown) == set(row)
            assert all(shown[column] == value for column, value in row.items() if isinstance(value, int))


def test_tables_are_listed_with_their_keys(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = tidemill(capsys, "tables", "--pd", world.upstream.pd, "--at", world.target_ts, "--output", "json")
    assert code == 0
    listed = json.loads(out)
    with_key = {(t["schema"], t["table"]) for t in listed if t["kind"] == "table" and t["key"]}
    assert with_key == set(world.truth)
    code, out, _ = tidemill(capsys, "tables", "--pd", world.upstream.pd)
    assert (code, "without a usable key" in out) == (0, True)


def test_a_second_run_of_a_changefeed_is_refused(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    from tidemill.changefeed.feed_folder import FeedFolder

    other = FeedFolder(world.delivery.data, "demo")
    other.lock("run.lock")
    code, _, err = tidemill(capsys, *world.run)
    other.unlock()
    assert (code, err.startswith("Error TM:ErrFeedLocked")) == (1, True), err


def test_a_run_that_is_stopped_while_it_starts_ends_with_0(world: World) -> None:
    """Spark is not up yet; the workload's rest means that nothing is left to deliver."""
    again = Delivery(world.folder, world.upstream, world.sink, options=QUICK)
    with again:
        assert again.process is not None
        await_that(lambda: "driver" in processes(again), "the driver's process is there", again)
        everyone = [p for group in processes(again).values() for p in group]
        again.process.send_signal(signal.SIGTERM)
        assert again.process.wait(600) == 0
    assert gone(everyone) == []


@pytest.mark.last
@pytest.mark.thorough("the second run of the fixture goes on with the workload too")
def test_everything_is_settled_again(world: World) -> None:
    """The same changefeed goes on once more, with the workload: nothing was lost between the runs."""
    again = Delivery(world.folder, world.upstream, world.sink, options=QUICK)
    with again:
        world.upstream.call("resume")
        start = world.upstream.stats()["transactions"]
        await_that(lambda: world.upstream.stats()["transactions"] > start + 40, "some transactions", again)
        end_ts, truth = settled(world.upstream, again)
        assert again.stop() == 0
    assert_equal(audited(from_files(world.folder / "delivered")), again.log, truth, end_ts)
