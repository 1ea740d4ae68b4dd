"""How `tidemill run` starts its children, and what it reports of them. Neither has secrets in it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.changelog.logs import golden_log
from tidemill.capture.config import CaptureConfig
from tidemill.changefeed.feed_folder import FeedFolder, FeedIdentity
from tidemill.changefeed.feed_status import Status
from tidemill.changefeed.run_status import RunStatus, old_processes
from tidemill.changefeed.runner_options import Options as FeedOptions
from tidemill.changefeed.states import State
from tidemill.changelog import initial_load
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import open_storage
from tidemill.changelog.writer import LogWriter
from tidemill.cli.changefeeds.launch import Options, Times, check_id, children, resolve
from tidemill.config.file import parse_config
from tidemill.errors import ClusterMismatch, ConfigError, FeedMismatch, StartTsOutOfLog
from tidemill.metrics.samples import metrics_page
from tidemill.playground.server import PlaygroundThread
from tidemill.process.children import environment
from tidemill.process.supervisor import ChildProcess

PASSWORD = "hunter2"
SINK = f"kafka://h:9092/t?protocol=open-protocol&sasl-mechanism=plain&sasl-user=me&sasl-password={PASSWORD}"


@pytest.fixture(scope="module")
def upstream() -> Iterator[PlaygroundThread]:
    with PlaygroundThread(seed=5) as playground:
        yield playground


def options_for(folder: Path, pd: str = "h:1", *, sink: str = SINK, snapshot: bool = False, **more: object) -> Options:
    """`more`: fields of the options, or of those of the changefeed."""
    config = parse_config("")
    feed = FeedOptions("f", str(folder / "log"), folder / "data", sink, config, tz="-05:00")
    return replace(Options(CaptureConfig((pd,), str(folder / "log"), snapshot=snapshot), feed, config.sink_uri(sink)), **more)  # type: ignore[arg-type]


def with_feed(options: Options, **more: Any) -> Options:
    return replace(options, feed=replace(options.feed, **more))


def with_snapshot(options: Options) -> Options:
    return replace(options, capture=replace(options.capture, snapshot=True))


def resolved(options: Options) -> Times:
    return asyncio.run(resolve(options, FeedFolder(options.data_dir, options.changefeed_id)))


def identity_of(options: Options, playground: PlaygroundThread, start_ts: int) -> FeedIdentity:
    config = options.feed.config.model_dump(mode="json", by_alias=True)
    cluster = str(playground.playground.cluster.cluster_id)
    return FeedIdentity(options.changefeed_id, cluster, str(Path(options.log)), str(options.sink), config, str(options.feed.tz), start_ts)


def orders_of(children: list[ChildProcess]) -> list[dict[str, Any]]:
    """What the children are started with."""
    return [json.loads(child.order())["order"] for child in children]


def test_secrets_are_on_no_command_line_and_in_no_environment(tmp_path: Path) -> None:
    options = with_feed(options_for(tmp_path), spark_conf={"spark.hadoop.fs.s3a.secret.key": PASSWORD})
    both = children(options, Times(1, 2, 3), FeedFolder(tmp_path, "f"))
    assert PASSWORD not in json.dumps([child.argv for child in both])
    assert PASSWORD not in json.dumps(environment())
    assert PASSWORD not in repr(both)
    assert PASSWORD not in repr(options.feed)
    assert [(order.get("sink_uri"), child.writes) for order, child in zip(orders_of(both), both, strict=True)] == [
        (None, False),
        (SINK, True),
    ]
    assert PASSWORD not in str(options.sink)


def test_the_halves_get_their_times(tmp_path: Path) -> None:
    times = Times(1 << 50, 1 << 51, 1 << 52, now=1 << 53)
    capture, feed = orders_of(children(options_for(tmp_path), times, FeedFolder(tmp_path, "f")))
    assert capture["start_ts"] == str(1 << 50)
    assert (feed["start_ts"], feed["target_ts"], feed["upstream_ts"]) == (1 << 51, 1 << 52, 1 << 53)
    assert feed["tz"] == "-05:00"
    capture, feed = orders_of(children(options_for(tmp_path), Times(None, None, None), FeedFolder(tmp_path, "f")))
    assert (capture["start_ts"], feed["start_ts"]) == (None, None)


def test_a_new_log_begins_now_or_where_it_is_told(tmp_path: Path, upstream: PlaygroundThread) -> None:
    options = options_for(tmp_path, upstream.pd_address)
    before = upstream.playground.cluster.oracle.last
    times = resolved(options)
    assert times.capture_start is not None
    assert times.capture_start > before
    assert times.feed_start == times.capture_start
    early = resolved(replace(options, start_ts=str(before)))
    assert (early.capture_start, early.feed_start, early.target) == (before, before, None)
    for change in ({"start_ts": "+1h"}, {"start_ts": "now", "target_ts": "-1h"}):
        with pytest.raises(ConfigError, match=r"--start-ts|--target-ts"):
            resolved(replace(options, **change))
    assert not options.data_dir.exists()


def test_a_feed_whose_log_is_gone_lets_the_log_begin_at_its_checkpoint(tmp_path: Path, upstream: PlaygroundThread) -> None:
    options = options_for(tmp_path, upstream.pd_address)
    folder = FeedFolder(options.data_dir, "f")
    folder.settle(identity_of(options, upstream, 1000), start_given=True)
    assert resolved(options).capture_start == 1000
    folder.save_checkpoint(2000)
    assert resolved(options).capture_start == 2000


def test_an_old_log(tmp_path: Path, upstream: PlaygroundThread) -> None:
    golden_log(tmp_path / "log")
    reader = LogReader(tmp_path / "log")
    options = options_for(tmp_path, upstream.pd_address)
    with pytest.raises(ClusterMismatch, match=r"PD at .* is of cluster"):
        resolved(options)
    identity = json.loads((tmp_path / "log/log.json").read_text())
    identity["cluster_id"] = str(upstream.playground.cluster.cluster_id)
    (tmp_path / "log/log.json").write_text(json.dumps(identity))
    begin, end = reader.start_ts, reader.resolved_ts()
    assert resolved(options) == Times(None, end, None)
    assert resolved(options).now == upstream.playground.cluster.oracle.last  # PD's
    assert resolved(replace(options, start_ts=str(begin))) == Times(None, begin, None)
    for outside in (begin - 1, end + 1):
        with pytest.raises(StartTsOutOfLog, match=rf"(?s){begin}.*{end}"):
            resolved(replace(options, start_ts=str(outside)))


def test_a_known_feed_refuses_other_settings_once_it_has_delivered(tmp_path: Path, upstream: PlaygroundThread) -> None:
    options = options_for(tmp_path, upstream.pd_address)
    folder = FeedFolder(options.data_dir, "f")
    folder.settle(identity_of(options, upstream, 1000), start_given=True)
    folder.save_checkpoint(2000)
    for other, named in (
        (with_feed(options, tz="UTC"), "--tz"),
        (replace(options, capture=replace(options.capture, log=str(tmp_path / "other"))), "--log"),
        (replace(options, start_ts=str(1 << 50)), "--start-ts"),
        (with_feed(options, config=parse_config("[filter]\nrules = ['a.*']")), "--config"),
    ):
        with pytest.raises(FeedMismatch, match=named):
            resolved(other)
    sink_of = options.feed.config.sink_uri
    resolved(replace(options, sink=sink_of(SINK.replace(PASSWORD, "another"))))  # a password may change
    with pytest.raises(FeedMismatch, match="--sink-uri") as caught:
        resolved(replace(options, sink=sink_of(SINK.replace("h:9092", "g:9092"))))
    assert PASSWORD not in str(caught.value)


def test_a_feed_that_failed_before_it_delivered_may_be_started_otherwise(tmp_path: Path, upstream: PlaygroundThread) -> None:
    options = options_for(tmp_path, upstream.pd_address)
    folder = FeedFolder(options.data_dir, "f")
    first = identity_of(options, upstream, 1000)
    folder.settle(first, start_given=True)
    folder.save_status(Status("f", state=State.FAILED))
    other = replace(first, sink="kafka://g:9092/t", start_ts=3000)
    assert folder.settle(other, start_given=False) == replace(other, start_ts=1000)
    assert folder.settle(other, start_given=True) == other
    folder.save_checkpoint(4000)
    with pytest.raises(FeedMismatch, match="--sink-uri"):
        folder.settle(first, start_given=False)


@pytest.mark.parametrize("name", ["", "a/b", "-a", "a--b", "a" * 129, "a b", "ä"])
def test_ids_that_are_none(name: str) -> None:
    with pytest.raises(ConfigError, match="changefeed id"):
        check_id(name)
    assert check_id("Ab-1") == "Ab-1"


# RunStatus


def test_the_status_is_made_of_what_the_halves_wrote(tmp_path: Path) -> None:
    folder = FeedFolder(tmp_path, "f")
    child = ChildProcess("changefeed", ["x"], pid=os.getpid(), last_error=("TM:ErrX", f"kafka://me:{PASSWORD}@h/t"))
    health = RunStatus(folder, [child])
    assert health.snapshot()["checkpoint_ts"] == 0  # nobody has said anything yet
    folder.save_status(Status("f", rows=7, checkpoint_ts=1 << 50, state=State.WARNING))
    folder.capture.mkdir(parents=True)
    (folder.capture / "status.json").write_text('{"state": "running", "rows": 9, "heads": [5, 6], "of another version": 1}')
    health.write()
    text = (folder.path / "status.json").read_text()
    assert PASSWORD not in text
    status = json.loads(text)
    assert (status["rows"], status["state"], status["capture"]["rows"]) == (7, "warning", 9)
    assert status["processes"][0]["pid"] == os.getpid()
    assert status["checkpoint_lag_s"] > 0
    families = {f.name: f.samples for f in text_string_to_metric_families(metrics_page(health.samples).body().decode())}
    assert {s.labels["state"] for s in families["tidemill_changefeed_state"] if s.value == 1} == {"warning"}
    assert families["tidemill_changefeed_rows"][0].value == 7
    assert families["tidemill_capture_rows"][0].value == 9
    assert families["tidemill_process_up"][0].value == 1


def test_broken_status_files_are_as_none(tmp_path: Path) -> None:
    folder = FeedFolder(tmp_path, "f")
    folder.path.mkdir(parents=True)
    folder.delivery.write_text("{")
    assert folder.status() is None
    assert RunStatus(folder, []).snapshot()["rows"] is None


def test_processes_of_an_earlier_run_are_found_by_its_status(tmp_path: Path) -> None:
    folder = FeedFolder(tmp_path, "f")
    assert old_processes(folder) == []
    folder.path.mkdir(parents=True)
    processes = [{"name": "a", "pid": os.getpid()}, {"name": "b", "pid": None}, {"name": "c", "pid": 2**22 + 1}]
    (folder.path / "status.json").write_text(json.dumps({"processes": processes}))
    mine = b"tidemill" in Path("/proc/self/cmdline").read_bytes()
    assert old_processes(folder) == ([os.getpid()] if mine else [])


@pytest.mark.parametrize(("created", "ahead"), [(False, 1), (True, 2)])
def test_a_feed_with_the_tables_begins_before_the_log(
    tmp_path: Path, upstream: PlaygroundThread, caplog: pytest.LogCaptureFixture, created: bool, ahead: int
) -> None:
    """It begins before the rows as of the start, and before the statements that create the tables. A later start says nothing of it."""
    sink = SINK + ("&create-tables=true" if created else "")
    options = options_for(tmp_path, upstream.pd_address, sink=sink, snapshot=True)
    times = resolved(options)
    assert times.capture_start is not None
    assert times == Times(times.capture_start, times.capture_start - ahead, None, snapshot=True)
    capture, feed = orders_of(children(options, times, FeedFolder(tmp_path, "f")))
    assert (capture["snapshot"], feed["start_ts"]) == (True, times.capture_start - ahead)
    begin = 1 << 50
    identity = LogIdentity(str(upstream.playground.cluster.cluster_id), begin, 1)
    LogWriter.create(tmp_path / "log", identity, snapshot={}).close()
    with pytest.raises(ConfigError, match="does not hold the tables as of its start"):
        resolved(options)
    initial_load.write_plan(open_storage(tmp_path / "log"), initial_load.Plan(begin, ()))
    assert resolved(options) == Times(None, begin - ahead, None)
    assert resolved(replace(options, start_ts=str(begin))) == Times(None, begin - ahead, None)
    with pytest.raises(ConfigError, match="which --start-ts has to be then"):
        resolved(replace(options, start_ts=str(begin + 1)))
    folder = FeedFolder(options.data_dir, "f")
    folder.settle(identity_of(options, upstream, begin - ahead), start_given=True)
    folder.save_checkpoint(6000)
    assert resolved(options) == Times(None, None, None)
    assert resolved(replace(options, start_ts=str(begin))) == Times(None, None, None)
    assert [r for r in caplog.records if r.name.startswith("tidemill")] == []


def test_a_feed_that_began_without_the_tables_says_that_it_goes_on_without(
    tmp_path: Path, upstream: PlaygroundThread, caplog: pytest.LogCaptureFixture
) -> None:
    options = options_for(tmp_path, upstream.pd_address)
    identity = LogIdentity(str(upstream.playground.cluster.cluster_id), 5000, 1)
    LogWriter.create(tmp_path / "log", identity, snapshot={}).close()
    folder = FeedFolder(options.data_dir, "f")
    folder.settle(identity_of(options, upstream, 5500), start_given=True)
    folder.save_checkpoint(6000)
    assert resolved(with_snapshot(options)) == Times(None, None, None)
    assert "changefeed f is there already and goes on from 6000" in caplog.text
    assert "`tidemill resync`" in caplog.text
    caplog.clear()
    assert resolved(options) == Times(None, None, None)
    assert [r for r in caplog.records if r.name.startswith("tidemill")] == []
