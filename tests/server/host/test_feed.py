"""A changefeed in the host, with tasks in this process in the place of Spark: what it delivers, what it says, and how it goes on."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.drivers import first_deliveries
from tests.support.delivery.feeds import Delivered
from tidemill.changefeed.replay import replay
from tidemill.changefeed.runner_options import Options
from tidemill.changelog import feeds
from tidemill.changelog.log_format import HEAD, folders
from tidemill.changelog.reader import LogReader
from tidemill.config.file import parse_config
from tidemill.delivery import loop
from tidemill.delivery.batch import JobRunner
from tidemill.delivery.inputs.table_router import Settings
from tidemill.errors import Fenced, TidemillError
from tidemill.server.host.feed import HostedFeed, Shared
from tidemill.server.host.messages import parse
from tidemill.server.host.shared_log import SharedLog
from tidemill.server.host.shared_spark import SharedSpark
from tidemill.spark.local import LocalRunner
from tidemill.tso import compose

pytestmark = pytest.mark.slow


class NoSpark:
    """Tasks run in the changefeed's own thread."""

    def runner(self, stack: ExitStack, on_failure: Callable[[TidemillError], None]) -> JobRunner:
        return LocalRunner()

    def has_begun(self, rows: int) -> bool:
        return True

    def check(self) -> None: ...


class World:
    """A log and its changefeed f."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY)")
        sql.run("INSERT INTO a VALUES (1), (2)", "UPDATE a SET id = 3 WHERE id = 1", "CREATE TABLE b (id INT PRIMARY KEY)")
        self.middle = sql.run("INSERT INTO b VALUES (1)", "INSERT INTO a VALUES (4)")
        sql.run("ALTER TABLE a ADD COLUMN c INT", "INSERT INTO a VALUES (5, 5)", "DELETE FROM b")
        self.log = SharedLog(sql.write(folder / "log", partitions=2))
        self.end = self.log.resolved_ts()
        self.said: queue.Queue[dict[str, Any]] = queue.Queue()
        self.shared = Shared(lambda: self.log, SharedSpark(folder / "spark.log", None, {}), lambda line: self.said.put(parse(line)))

    def feed(self, run: int = 1, sink: str = "out", data: str = "data", **more: Any) -> HostedFeed:
        uri = f"messages://{self.folder}/{sink}?protocol=open-protocol"
        given: dict[str, Any] = {
            "tz": "UTC",
            "start_ts": self.log.start_ts,
            "target_ts": None,
            "master": None,
            "trigger_ms": 0,
            "retry_s": 0,
        }
        options = Options("f", self.log.location, self.folder / data, uri, parse_config(""), supervised=True, **{**given, **more})
        return HostedFeed(options, run, self.shared, NoSpark())

    def until(self, word: str) -> dict[str, Any]:
        while (found := self.said.get(timeout=240))["is"] != word:
            pass
        return found

    def move(self, to_ts: int) -> None:
        """The log is complete up to a ts: nothing happened."""
        for folder in folders(self.log.partitions):
            (self.folder / "log" / folder / HEAD).write_text(json.dumps({"resolved_ts": to_ts}))
        self.log.look()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_it_delivers_what_a_replay_does_over_two_runs(world: World) -> None:
    world.feed(target_ts=world.middle).start()
    assert world.until("begun")["run"] == 1
    ended = world.until("ended")
    assert (ended["how"], ended["checkpoint_ts"]) == ("reached", world.middle)
    world.feed(2, target_ts=world.end).start()
    ended = world.until("ended")
    assert (ended["how"], ended["run"], ended["checkpoint_ts"]) == ("reached", 2, world.end)
    config = parse_config("")
    want = config.sink_uri(f"messages://{world.folder}/want?protocol=open-protocol")
    replay(world.log.location, Settings("r", want, config, UTC), start_ts=LogReader(world.log.location).start_ts)
    assert first_deliveries(world.folder / "out") == first_deliveries(world.folder / "want")
    assert Delivered.read(world.folder / "out").late == 0


def test_a_start_that_was_frozen_registers_nothing_late(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine's start delivers everything in the moment before it registers."""
    register, told = feeds.register, []
    late: dict[str, Any] = {"target_ts": world.end, "shared": world.log.location}

    def registers_late(*given: Any, **more: Any) -> feeds.Registration:
        monkeypatch.setattr(feeds, "register", register)
        world.feed(2, data="other", **late).changefeed.run()
        told.append(LogReader(world.log.location).feeds())
        return register(*given, **more)

    monkeypatch.setattr(feeds, "register", registers_late)
    with suppress(Fenced):
        world.feed(**late).changefeed.run()
    assert [*told, LogReader(world.log.location).feeds()] == [{"f": world.end}] * 2


def test_a_sink_that_breaks_is_told_and_ends_the_run(world: World) -> None:
    (world.folder / "broken").mkdir()
    feed = world.feed(sink="broken/out")
    (world.folder / "broken").rmdir()
    (world.folder / "broken").touch()
    feed.start()
    ended = world.until("ended")
    assert ended["how"] == "failed"
    assert ended["code"].startswith("TM:Err")
    assert json.loads((world.folder / "data/changefeeds/f/delivery.json").read_text())["errors"] == 1


def test_a_fault_of_tidemill_is_told_like_a_failure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("zip() argument 2 is longer")

    monkeypatch.setattr("tidemill.delivery.clock.Clock.next", broken)
    stacks: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: stacks.append(args.exc_type.__name__))
    feed = world.feed()
    feed.start()
    ended = world.until("ended")
    assert feed.join(240.0)
    assert stacks == ["ValueError"], "the process's log has the stack"
    assert (ended["how"], ended["code"], ended["retryable"]) == ("failed", "TM:ErrUnexpected", True)
    assert "zip() argument 2" in ended["message"]


def until(condition: Callable[[], bool], world: World) -> None:
    """Each look at the log wakes the changefeed."""
    while not condition():
        world.log.look()


def test_empty_intervals_are_passed_over_and_the_end_of_a_run_keeps_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "PASSED_S", float("inf"))
    feed = world.feed()
    feed.start()
    world.until("begun")
    checkpoint = world.folder / "data/changefeeds/f/checkpoint.json"
    until(lambda: feed.changefeed.progress.status.checkpoint_ts == world.end, world)
    batches, epoch = feed.changefeed.progress.status.batches, json.loads(checkpoint.read_text())["epoch"]
    for number in range(1, 4):
        at = world.end + compose(1000 * number)
        world.move(at)
        until(lambda at=at: feed.changefeed.progress.status.checkpoint_ts == at, world)  # type: ignore[misc]
    assert feed.changefeed.progress.status.batches == batches
    assert json.loads(checkpoint.read_text())["checkpoint_ts"] == world.end
    feed.stop()
    assert world.until("ended")["how"] == "stopped"
    kept = json.loads(checkpoint.read_text())
    assert kept["checkpoint_ts"] == world.end + compose(3000)
    assert kept["epoch"] == epoch
    ends = [world.end + compose(1000 * number) for number in range(1, 4)]
    assert Delivered.read(world.folder / "out").resolved[0][-3:] == ends
