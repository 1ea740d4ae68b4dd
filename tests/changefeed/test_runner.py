"""The driver as a process: killed in the middle it goes on, asked to end it ends, started otherwise it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.logs import golden_log
from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.drivers import first_deliveries
from tests.support.delivery.feeds import Delivered
from tests.support.delivery.runner_process import await_checkpoint, options, output_of, run, started, state
from tests.support.servers.registries import Front, MemoryRegistry, Reply
from tidemill.changefeed.replay import replay
from tidemill.changefeed.runner import changefeed_of
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.config.file import load_config, parse_config
from tidemill.config.registry_address import with_registry
from tidemill.delivery.inputs.table_router import Settings
from tidemill.errors import FeedMismatch, StartTsOutOfLog

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

Start = Callable[..., "subprocess.Popen[str]"]


def test_the_life_of_a_changefeed(tmp_path: Path) -> None:
    """Killed, started again, asked to end, started with other settings, finished, started once more: every event, in order."""
    log = golden_log(tmp_path / "log", partitions=2, segments=5)
    reader = LogReader(log)
    history = load_history(reader)
    stops = history.barriers(history.start_ts, history.resolved_ts)
    with started(options(tmp_path)) as first:
        await_checkpoint(tmp_path, stops[5], first)
        first.send_signal(signal.SIGKILL)
    at_death = state(tmp_path, "checkpoint.json")["checkpoint_ts"]
    assert reader.feeds()["f"] <= at_death
    with started(options(tmp_path)) as second:
        await_checkpoint(tmp_path, stops[11], second)
        second.send_signal(signal.SIGTERM)
        output = output_of(second)
    assert second.returncode == 0, output
    assert output == ""  # Spark's noise goes to a file
    assert state(tmp_path, "delivery.json")["running"] is False
    target = next(ts for ts in stops[11:] if ts > state(tmp_path, "checkpoint.json")["checkpoint_ts"] + 5)
    code, output = run(options(tmp_path, start_ts=history.start_ts + 1))
    assert (code, "Error TM:ErrFeedMismatch" in output, "--start-ts" in output) == (1, True, True), output
    with pytest.raises(FeedMismatch, match="--sink-uri"):
        changefeed_of(options(tmp_path, sink=f"messages://{tmp_path}/elsewhere?protocol=open-protocol"), threading.Event()).run()
    code, output = run(options(tmp_path, target_ts=target))
    assert (code, output) == (0, "")
    status = state(tmp_path, "delivery.json")
    assert (status["state"], status["checkpoint_ts"], status["error"]) == ("finished", target, None)
    code, output = run(options(tmp_path, target_ts=target))
    assert (code, output) == (0, "")

    config = parse_config("")
    settings = Settings("r", config.sink_uri(f"messages://{tmp_path}/want?protocol=open-protocol"), config, UTC)
    replay(str(log), settings, target_ts=target)
    assert first_deliveries(tmp_path / "out") == first_deliveries(tmp_path / "want")
    got, want = Delivered.read(tmp_path / "out"), Delivered.read(tmp_path / "want")
    assert [d["q"] for d in _once(got.ddls[0])] == [d["q"] for d in want.ddls[0]]
    assert sorted(set(got.resolved[0])) == got.resolved[0] == want.resolved[0]
    assert got.late == 0


def _once(ddls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    seen: dict[str, dict[str, Any]] = {}
    for one in ddls:
        seen.setdefault(json.dumps(one), one)
    return list(seen.values())


class Weak(MemoryRegistry):
    """Goes away for good when it is to take the schema of table b."""

    def __init__(self) -> None:
        super().__init__()
        self.stands, self.is_away = False, False

    def __call__(self, method: str, path: str, body: bytes) -> Reply:
        self.is_away = not self.stands and (self.is_away or (method == "POST" and "app_b" in path))
        return Reply(503, b"") if self.is_away else super().__call__(method, path, body)


def first_of_each_topic(path: Path) -> dict[str, list[str]]:
    """Messages by topic, each where it came first."""
    found: dict[str, dict[str, None]] = {}
    for line in path.read_text().splitlines():
        found.setdefault(json.loads(line)["topic"], {})[line] = None
    return {topic: [*lines] for topic, lines in found.items()}


@pytest.mark.thorough("tests/registry/test_delivery.py goes on after each fault; test_run_avro.py as a process")
def test_a_registry_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    """The changefeed warns while it tries again, fails with the registry's error, and goes on where it was: nothing is lost."""
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY)")
    before = sql.run("INSERT INTO a VALUES (1), (2)", "UPDATE a SET id = 3 WHERE id = 1")
    sql.run("CREATE TABLE b (id INT PRIMARY KEY)", "INSERT INTO b VALUES (1)", "INSERT INTO a VALUES (4)", "DELETE FROM b")
    end = LogReader(sql.write(tmp_path / "log")).resolved_ts()
    (tmp_path / "feed.toml").write_text("[sink]\ndispatchers = [{matcher = ['*.*'], topic = 'tidb_{schema}_{table}'}]\n")
    registry = Weak()
    with Front(registry) as front:
        sink = with_registry(f"messages://{tmp_path}/out?protocol=avro", front.url)
        config = load_config(tmp_path / "feed.toml")
        given = partial(options, tmp_path, config=config, target_ts=end)
        seen: set[tuple[str, str]] = set()
        with started(given(retry_s=2, sink=sink)) as first:
            while first.poll() is None:
                status = state(tmp_path, "delivery.json")
                seen.add((status.get("state", ""), (status.get("error") or {}).get("code", "")))
                time.sleep(0.02)
            output = output_of(first)
        assert (first.returncode, "Error TM:ErrSchemaRegistryUnavailable: " in output, front.url in output) == (1, True, True), output
        assert ("warning", "TM:ErrSchemaRegistryUnavailable") in seen
        status = state(tmp_path, "delivery.json")
        assert (status["state"], status["error"]["code"]) == ("failed", "TM:ErrSchemaRegistryUnavailable")
        assert before <= state(tmp_path, "checkpoint.json")["checkpoint_ts"] < end
        code, output = run(given(retry_s=1, sink=sink))  # it is still away
        assert (code, "TM:ErrSchemaRegistryUnavailable" in output) == (1, True), output
        registry.stands = True
        code, output = run(given(sink=sink))
        assert (code, output) == (0, "")
        assert (state(tmp_path, "delivery.json")["state"], state(tmp_path, "delivery.json")["error"]) == ("finished", None)
        again = config.sink_uri(with_registry(f"messages://{tmp_path}/want?protocol=avro", front.url))
        replay(str(tmp_path / "log"), Settings("r", again, config, UTC))
    got, want = (first_of_each_topic(tmp_path / name) for name in ("out", "want"))
    assert got == want
    assert {topic: len(messages) for topic, messages in want.items()} == {"tidb_app_a": 5, "tidb_app_b": 2}


def test_errors_end_it_with_their_code(tmp_path: Path) -> None:
    golden_log(tmp_path / "log")
    code, output = run(options(tmp_path, tz="Nowhere/Land"))
    assert (code, output.startswith("Error TM:ErrConfig: time zone")) == (1, True), output
    with pytest.raises(StartTsOutOfLog):
        changefeed_of(options(tmp_path, start_ts=1 << 50), threading.Event()).run()


def test_it_waits_for_the_log_and_can_be_stopped_meanwhile(tmp_path: Path) -> None:
    with started(options(tmp_path, log_level="info")) as process:
        assert process.stdout is not None
        assert "waiting for the log" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        output_of(process)
    assert process.returncode == 0
