"""The server over a fake host, a fake capture and a fake cluster: what it tells them, what it keeps on disk, what it answers."""

from __future__ import annotations

import asyncio
import json
import stat
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.metric_samples import BROKER
from tests.support.server.page_scenes import ROW
from tidemill.changefeed.states import State
from tidemill.changelog.storage.open import open_storage
from tidemill.delivery.measure.timings import Timings
from tidemill.errors import SinkUnavailable
from tidemill.server import errors as e
from tidemill.server import service as s
from tidemill.server.changefeeds import hosting
from tidemill.server.host.messages import Figures, progress, report
from tidemill.server.host.process import Host
from tidemill.server.manager import Manager
from tidemill.server.options import ServerOptions
from tidemill.server.settings import FeedSettings
from tidemill.server.shared.elector import DRAINED_S
from tidemill.server.shared.members import Member
from tidemill.server.shared.records import Records
from tidemill.tso import compose

NOW = compose(1_764_000_000_000)
START = NOW - compose(60_000)
SINK = "blackhole://"


@dataclass
class FakePd:
    cluster_id: int = 7

    async def gc_safe_point(self) -> int:
        return START - compose(60_000)


class FakeUpstream:
    """A cluster without tables."""

    def __init__(self) -> None:
        self.pd = FakePd()

    async def connect(self) -> FakePd:
        return self.pd

    async def close(self) -> None: ...

    async def now(self) -> int:
        return NOW

    async def tso(self) -> s.Tso:
        return s.Tso(NOW >> 18, 0)

    async def schemas(self, ts: int) -> Any:
        class Nothing:
            tables: Mapping[int, Any] = {}

            def snapshot(self, ts: int) -> Any:
                return self

        return Nothing()


@dataclass
class FakeProcesses:
    """Notes what it is told."""

    told: list[dict[str, Any]] = field(default_factory=list)
    capture_start: int | None = -1
    restarts: int = 0
    capture_restarts: int = 0
    rules: Path | None = None
    level: str = ""
    children: list[dict[str, object]] = field(default_factory=list)
    heard: Callable[[bytes], None] = print
    lost: Callable[[str, bool], None] = print

    def start_host(self, heard: Callable[[bytes], None], lost: Callable[[str, bool], None]) -> None:
        self.heard, self.lost = heard, lost
        heard(report("up"))

    def start_capture(self, start_ts: int | None, progress: Callable[[], int], rules: Path | None) -> None:
        self.capture_start, self.rules = start_ts, rules

    def restart_capture(self) -> None:
        self.capture_restarts += 1

    def tell_host(self, line: bytes) -> bool:
        self.told.append(json.loads(line))
        return True

    def restart_host(self) -> None:
        self.restarts += 1

    def set_log_level(self, level: str) -> None:
        self.level = level

    def trouble(self) -> str | None:
        return None

    def seen(self) -> Sequence[Mapping[str, object]]:
        return self.children

    async def stop(self) -> None: ...

    async def kill(self) -> None: ...

    def last(self, do: str) -> dict[str, Any]:
        return [one for one in self.told if one["do"] == do][-1]


class World:
    """A server in a folder."""

    def __init__(self, folder: Path, gc_ttl: float = 86400.0) -> None:
        self.folder, self.processes = folder, FakeProcesses()
        options = ServerOptions(str(folder / "log"), folder / "data", "127.0.0.1:8300", gc_ttl=gc_ttl)
        self.manager = Manager(options, FakeUpstream(), lambda delivered, term: self.processes)  # type: ignore[arg-type]

    async def __aenter__(self) -> World:
        await self.manager.start()
        await self.manager.lead(1)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.manager.stop()

    async def create(self, feed: str = "f", **more: Any) -> s.ChangefeedInfo:
        wanted = s.NewChangefeed(SINK, feed, start_ts=START, **more)
        return (await self.manager.create(wanted)).info

    def says(self, word: str, **more: Any) -> None:
        """The host says something of the newest run."""
        start = self.processes.last("start")
        self.processes.heard(report(word, feed=start["feed"], run=start["run"], **more))

    def moves(self, checkpoint_ts: int, **more: Any) -> None:
        start = self.processes.last("start")
        self.processes.heard(progress({start["feed"]: Figures(start["run"], checkpoint_ts, checkpoint_ts, moved_at=time.time(), **more)}))


@dataclass
class FakeElector:
    """This server leads; another one is there."""

    members: list[Member]
    leads: bool = True
    resigned: list[float | None] = field(default_factory=list)

    def resign(self, rests_s: float | None = None) -> None:
        self.resigned.append(rests_s)

    def failed(self) -> None: ...


def run(work: Any) -> Any:
    return asyncio.run(work)


def test_the_first_changefeed_begins_the_log_and_is_started(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            assert world.processes.capture_start == -1, "no changefeed, no log"
            info = await world.create(replica_config={"filter": {"rules": ["a.*"]}})
            assert world.processes.capture_start == START
            assert world.processes.last("start") == {"do": "start", "feed": "f", "run": 1, "retries": False}
            assert (info.state, info.checkpoint_ts, info.id) == (State.NORMAL, START, "f")
            assert info.given_config == {"filter": {"rules": ["a.*"]}}
            world.moves(START + 5, rows=3)
            assert (await world.manager.statistics("f")).rows == 3
            assert (await world.manager.changefeed("f")).checkpoint_ts == START + 5

    run(work())


def test_metrics_have_what_the_host_writes_and_how_the_processes_are(tmp_path: Path) -> None:
    """Histograms, brokers and failed attempts stand in the changefeed's delivery.json; counters come each second."""

    async def work() -> None:
        async with World(tmp_path) as world:
            world.processes.children = [{"name": "delivery", "pid": 7, "restarts": 3}, {"name": "capture", "pid": None, "restarts": 0}]
            await world.create()
            world.moves(START + 5, rows=3)
            written = {"rows": 1, "errors": 2, "histograms": Timings().as_dict(), "brokers": [BROKER], "slow_rows": "x"}
            (tmp_path / "data/changefeeds/f/delivery.json").write_text(json.dumps(written))
            found = {(one.name, one.labels.get("process") or one.labels.get("type", "")): one for one in world.manager.samples()}
            value = {name: one.value for name, one in found.items()}
            assert value["tidemill_changefeed_rows", ""] == 3
            assert value["tidemill_changefeed_errors", ""] == value["ticdc_sink_execution_error", ""] == 2
            assert value["tidemill_changefeed_slow_rows", ""] == 0
            assert found["tidemill_changefeed_batch_seconds", ""].histogram is not None
            assert found["tidemill_changefeed_stage_seconds", ""].histogram is not None
            assert value["tidemill_kafka_request_latency_seconds", "p99"] == BROKER["latency_p99_s"]
            assert (value["tidemill_process_up", "delivery"], value["tidemill_process_up", "capture"]) == (1, 0)
            assert value["tidemill_process_restarts", "delivery"] == 3
            await world.manager.pause("f")
            world.says("ended", how="stopped")
            names = {one.name for one in world.manager.samples()}
            assert "tidemill_kafka_request_latency_seconds" not in names, "what its brokers last told is old"

    run(work())


def test_what_cannot_be_created(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            await world.create()
            create = world.manager.create
            for wanted, error in (
                (s.NewChangefeed(SINK, "f"), e.ChangefeedAlreadyExists),
                (s.NewChangefeed(SINK, "a/../b"), e.InvalidChangefeedId),
                (s.NewChangefeed(SINK, "x" * 129), e.InvalidChangefeedId),
                (s.NewChangefeed(SINK, "g", namespace="other"), e.InvalidKeyspace),
                (s.NewChangefeed(SINK, "g", start_ts=NOW + 1), e.InvalidParameter),
                (s.NewChangefeed(SINK, "g", start_ts=NOW, target_ts=NOW), e.TargetTsBeforeStartTs),
                (s.NewChangefeed("what://", "g"), e.InvalidSinkUri),
                (s.NewChangefeed(SINK, "g", replica_config={"filter": {"rule": []}}), e.InvalidReplicaConfig),
                (s.NewChangefeed(SINK, "g", upstream=s.UpstreamNames(("http://elsewhere:2379",))), e.UpstreamMismatch),
            ):
                with pytest.raises(error):
                    await create(wanted)
            assert [info.id for info in await world.manager.changefeeds()] == ["f"]
            with pytest.raises(e.ChangefeedNotExists):
                await world.manager.changefeed("g")

    run(work())


def test_a_server_beside_another_one_is_drained_and_resigns(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            manager = world.manager
            await world.create()
            with pytest.raises(e.UpdateRefused, match="no other server"):
                await manager.drain(manager.id)
            elector: Any = FakeElector([Member(manager.id, "127.0.0.1:8300", "1", 1), Member("other", "127.0.0.1:8301", "2", 1)])
            manager.elects(elector)
            assert [(one.id, one.is_owner) for one in await manager.captures()] == [(manager.id, True), ("other", False)]
            assert (await manager.processor("f", "other")).table_ids == ()
            with pytest.raises(e.CaptureNotExists):
                await manager.drain("third")
            assert (await manager.drain("other"), elector.resigned) == (0, [])
            await manager.resign_owner()
            await manager.drain(manager.id)
            assert elector.resigned == [None, DRAINED_S]
            assert (await manager.status()).liveness == 1
            await manager.leave(at_once=False)
            assert ((await manager.status()).liveness, manager.processes()) == (0, []), "it may lead again"
            with pytest.raises(e.ChangefeedNotExists):
                await manager.changefeed("f")

    run(work())


def test_a_table_is_moved_to_no_server(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            await world.create()
            for refused in (
                world.manager.move_table("f", 7, "other"),
                world.manager.move_split_table("f", 7, "other"),
                world.manager.split_table("f", 7),
                world.manager.merge_table("f", 7),
            ):
                with pytest.raises(e.TableNotMovable):
                    await refused

    run(work())


def test_errors_pauses_and_the_way_back(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            await world.create()
            world.says("erred", code=SinkUnavailable.code, message="the broker is away\n  Look at it.")
            info = await world.manager.changefeed("f")
            assert info.error is not None
            assert (info.state, info.error.message, info.error.hint) == (State.WARNING, "the broker is away", "Look at it.")
            world.moves(START + 5)
            assert (await world.manager.changefeed("f")).state is State.NORMAL
            world.says("ended", how="failed", code=SinkUnavailable.code, message="away", retryable=True, trouble_since=None)
            info = await world.manager.changefeed("f")
            assert (info.state, info.retry_at is not None) == (State.PENDING, True)
            await world.manager.resume("f")
            assert world.processes.last("start")["run"] == 2
            await world.manager.pause("f")
            assert world.processes.last("stop") == {"do": "stop", "feed": "f"}
            world.says("ended", how="stopped")
            info = await world.manager.changefeed("f")
            assert (info.state, info.holds_log_until is not None) == (State.STOPPED, True)

    run(work())


def test_a_new_server_goes_on_and_keeps_what_was_paused(tmp_path: Path) -> None:
    async def first() -> None:
        async with World(tmp_path) as world:
            await world.create("a")
            await world.create("b", target_ts=NOW)
            await world.manager.pause("b")

    async def second() -> None:
        async with World(tmp_path) as world:
            assert [(i.id, i.state) for i in await world.manager.changefeeds()] == [("a", State.NORMAL), ("b", State.STOPPED)]
            assert [one["feed"] for one in world.processes.told] == ["a"]
            assert (await world.manager.changefeed("b")).target_ts == NOW
            assert world.processes.capture_start == START, "the log was never made"

    run(first())
    run(second())


def test_only_the_owner_may_read_secrets_and_nobody_is_told_them(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            config = {"sink": {"kafka-config": {"sasl-password": "hunter2", "sasl-user": "u"}}}
            info = await world.create(replica_config=config)
            kept = tmp_path / "data/changefeeds/f/settings.json"
            assert ("hunter2" in kept.read_text(), stat.S_IMODE(kept.stat().st_mode)) == (True, 0o600)
            assert "hunter2" not in repr([info, await world.manager.changefeeds(), await world.manager.debug_info()])
            assert "hunter2" not in repr(await world.manager.metadata())

    run(work())


def test_a_changefeed_is_updated_while_it_is_stopped(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            await world.create()
            change = s.ChangefeedUpdate(replica_config={"filter": {"rules": ["a.*"]}}, target_ts=NOW)
            with pytest.raises(e.UpdateRefused):
                await world.manager.update("f", change)
            await world.manager.pause("f")
            world.says("ended", how="stopped")
            info = await world.manager.update("f", change)
            assert (info.given_config, info.target_ts) == ({"filter": {"rules": ["a.*"]}}, NOW)
            with pytest.raises(e.UpdateRefused, match="scheme"):
                await world.manager.update("f", s.ChangefeedUpdate(sink_uri=f"messages://{tmp_path}/out?protocol=open-protocol"))
            feed = json.loads((tmp_path / "data/changefeeds/f/feed.json").read_text())
            assert feed["config"] == {"filter": {"rules": ["a.*"]}}

    run(work())


def test_of_two_updates_that_come_together_one_is_refused(tmp_path: Path) -> None:
    """Both start from the same settings: the second one would take back what the first one changed."""

    async def work() -> None:
        async with World(tmp_path) as world:
            await world.create()
            await world.manager.pause("f")
            world.says("ended", how="stopped")
            rules, target = s.ChangefeedUpdate(replica_config={"filter": {"rules": ["a.*"]}}), s.ChangefeedUpdate(target_ts=NOW)
            done = await asyncio.gather(*(world.manager.update("f", one) for one in (rules, target)), return_exceptions=True)
            (failure,) = [one for one in done if isinstance(one, BaseException)]
            assert isinstance(failure, e.UpdateRefused)
            assert "meanwhile" in failure.message
            info = await world.manager.changefeed("f")
            assert (info.given_config == {}) != (info.target_ts == 0)

    run(work())


def test_the_checkpoint_is_overwritten_only_between_two_runs(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            await world.create()
            resume = world.manager.resume
            with pytest.raises(e.UpdateRefused):
                await resume("f", overwrite_checkpoint_ts=START + 100)
            await world.manager.pause("f")
            with pytest.raises(e.CheckpointInFuture):
                await resume("f", overwrite_checkpoint_ts=NOW + 1)
            resuming = asyncio.create_task(resume("f", overwrite_checkpoint_ts=START + 100))
            await asyncio.sleep(0)
            assert not resuming.done(), "the batch has not ended"
            world.says("ended", how="stopped")
            assert (await resuming).checkpoint_ts == START + 100
            assert world.processes.last("start")["run"] == 2
            kept = json.loads((tmp_path / "log/server/changefeeds/f/checkpoint.json").read_text())
            assert kept["checkpoint_ts"] == START + 100

    run(work())


def test_rows_are_left_out_from_the_next_run_on(tmp_path: Path) -> None:
    one, two = (f"shop.t:748000000000000001@{ts}" for ts in (470000000000000001, 470000000000000002))

    async def work() -> None:
        async with World(tmp_path) as world:
            await world.create()
            resume = world.manager.resume
            with pytest.raises(e.UpdateRefused, match="is normal"):
                await resume("f", skip_rows=[one])
            world.says("ended", how="failed", code="TM:ErrMalformedRow", message="a row", retryable=False, trouble_since=None)
            with pytest.raises(e.InvalidParameter, match="expected"):
                await resume("f", skip_rows=["shop.t"])
            assert (await resume("f", skip_rows=[one])).state is State.NORMAL
            assert world.processes.last("start")["run"] == 2
            world.says("ended", how="failed", code="TM:ErrMalformedRow", message="a row", retryable=False, trouble_since=None)
            await resume("f", skip_rows=[one, two])
            settings = FeedSettings.load(tmp_path / "data/changefeeds/f")
            assert settings.skip_rows == (one, two)
            host = Host(str(tmp_path / "log"), tmp_path / "data", None, trigger_ms=1000, retry_s=1.0, term=1)  # type: ignore[arg-type]
            assert [str(row) for row in host._options(settings, retries=False).skip_rows] == [one, two]

    run(work())


def test_what_the_page_shows_besides(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            await world.create()
            world.moves(START + 5, rows=3)
            assert world.manager.figures()["f"].rows == 3
            assert world.manager.capture_status().updated == 0
            assert world.manager.processes() == []

    run(work())


def test_a_removed_changefeed_leaves_nothing_and_its_name_is_free(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            await world.create()
            removing = asyncio.create_task(world.manager.remove("f"))
            await asyncio.sleep(0)
            with pytest.raises(e.ChangefeedAlreadyExists, match="being removed"):
                await world.create()
            assert not removing.done(), "it waits for the end of the batch"
            world.says("ended", how="stopped", checkpoint_ts=START + 7)
            removed = await removing
            assert (removed.state, removed.checkpoint_ts) == (State.REMOVED, START + 7)
            assert "does not end" not in caplog.text
            assert json.loads((tmp_path / "log/fences/f.json").read_text())["epoch"] == 1, "its batch ended: it was not cut off"
            assert [*(tmp_path / "data/changefeeds").iterdir()] == []
            assert (await world.create()).state is State.NORMAL

    run(work())


def test_a_removed_changefeed_is_gone_when_its_host_is(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            await world.create()
            removing = asyncio.create_task(world.manager.remove("f"))
            await asyncio.sleep(0)
            world.processes.lost("killed", True)
            await removing
            assert json.loads((tmp_path / "log/fences/f.json").read_text())["epoch"] == 1
            assert [*(tmp_path / "data/changefeeds").iterdir()] == []

    run(work())


@pytest.mark.parametrize("asked", [{}, {"overwrite_checkpoint_ts": START + 1}, {"skip_rows": (ROW,)}], ids=["resume", "overwrite", "skip"])
def test_one_that_is_removed_while_it_is_resumed_is_gone(asked: dict[str, Any], tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            await world.create()
            await world.manager.pause("f")
            world.says("ended", how="stopped")
            resuming = asyncio.create_task(world.manager.resume("f", **asked))
            removing = asyncio.create_task(world.manager.remove("f"))
            with pytest.raises(e.ChangefeedNotExists, match="removed meanwhile"):
                await resuming
            assert (await removing).state is State.REMOVED
            assert [*(tmp_path / "data/changefeeds").iterdir()] == []
            assert world.processes.last("start")["run"] == 1

    run(work())


def test_one_whose_batch_does_not_end_is_cut_off_and_disturbs_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "END_WITHIN_S", 0.0)

    async def work() -> None:
        async with World(tmp_path) as world:
            await world.create()
            assert (await world.manager.remove("f")).state is State.REMOVED
            assert json.loads((tmp_path / "log/fences/f.json").read_text())["epoch"] == 2, "one of its creation, one of its end"
            assert [*(tmp_path / "data/changefeeds").iterdir()] == []
            assert world.processes.restarts == 0

    run(work())


def test_what_stands_still_for_longer_than_gc_ttl_fails(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path, gc_ttl=1.0) as world:
            await world.create()
            await world.manager.pause("f")
            world.says("ended", how="stopped")
            feed = world.manager._feeds["f"]
            await world.manager._expire(feed)
            info = await world.manager.changefeed("f")
            assert info.error is not None
            assert (info.state, info.error.code, info.holds_log_until) == (State.FAILED, "CDC:ErrGCTTLExceeded", None)

    run(work())


def test_a_host_that_dies_is_given_all_changefeeds_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            await world.create("a")
            await world.create("b")
            world.processes.lost("killed", True)
            assert {i.state for i in await world.manager.changefeeds()} == {State.WARNING}
            world.processes.told.clear()
            world.processes.heard(report("up"))
            assert [(one["feed"], one["run"], one["retries"]) for one in world.processes.told] == [("a", 2, True), ("b", 2, True)]
            world.processes.heard(b"nonsense\n")
            assert world.processes.restarts == 1

    run(work())


def test_the_capture_takes_what_changefeeds_want_and_no_more(tmp_path: Path) -> None:
    async def work() -> None:
        def rules() -> Any:
            assert world.processes.rules is not None
            return tomllib.loads(world.processes.rules.read_text())["filter"]["rules"]

        async with World(tmp_path) as world:
            await world.create("a", replica_config={"filter": {"rules": ["a.*"]}})
            assert (rules(), world.processes.capture_restarts) == (["a.*"], 0)
            await world.create("b", replica_config={"filter": {"rules": ["b.x"]}})
            assert (rules(), world.processes.capture_restarts) == (["a.*", "b.x"], 1)
            await world.create("c", replica_config={"filter": {"rules": ["b.x"]}})
            assert world.processes.capture_restarts == 1, "nothing new"
            removing = asyncio.create_task(world.manager.remove("a"))
            await asyncio.sleep(0)
            world.processes.heard(report("ended", feed="a", run=1, how="stopped"))
            await removing
            assert (rules(), world.processes.capture_restarts) == (["b.x"], 2)

    run(work())


def test_a_server_that_no_longer_leads_keeps_nothing_and_can_lead_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            await world.create("a")
            await world.manager.leave(at_once=True)
            assert (await world.manager.changefeeds(), (await world.manager.status()).is_owner) == ([], False)
            world.processes.told.clear()
            await world.manager.lead(1)
            assert [one.id for one in await world.manager.changefeeds()] == ["a"]
            assert [one["feed"] for one in world.processes.told] == ["a"]

    run(work())


def test_a_server_that_was_deposed_says_so_and_changes_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as old:
            await old.create("a")
            new = World(tmp_path)
            new.manager._files._data_dir = tmp_path / "other"
            deposed: list[None] = []
            old.manager._deposed = lambda: deposed.append(None)
            await new.manager.start()
            await new.manager.lead(1)
            with pytest.raises(e.NotOwner):
                await old.create("b")
            assert len(deposed) == 1
            await old.manager.pause("a")
            assert len(deposed) == 2, "the state could not be written"
            await new.manager.stop()
            assert sorted(Records(open_storage(str(tmp_path / "log"))).read() or ()) == ["a"]

    run(work())


def test_one_that_kills_the_host_again_and_again_takes_the_others_down_no_more(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            for feed in ("a", "poison", "b"):
                await world.create(feed)
            processes, ts = world.processes, START

            def host_begins() -> list[str]:
                """It comes up; the healthy ones advance. Return what was started."""
                nonlocal ts
                ts += 5
                processes.told.clear()
                processes.heard(report("up"))
                started = {one["feed"]: one["run"] for one in processes.told if one["do"] == "start"}
                moved = {feed: Figures(run, ts, ts, moved_at=time.time()) for feed, run in started.items() if feed != "poison"}
                processes.heard(progress(moved))
                return [one["feed"] for one in processes.told if one["do"] == "start"]

            processes.heard(progress({feed: Figures(1, START + 1, START + 1, moved_at=time.time()) for feed in ("a", "b")}))
            processes.lost("killed by SIGSEGV", True)
            assert host_begins() == ["a", "poison", "b"]
            processes.lost("killed by SIGSEGV", True)
            feeds = {info.id: info for info in await world.manager.changefeeds()}
            poison = feeds["poison"]
            assert poison.error is not None
            assert (poison.state, poison.error.code, poison.retry_at is not None) == (State.PENDING, "TM:ErrProcessLost", True)
            assert "while it delivered poison" in poison.error.message
            assert host_begins() == ["a", "b"], "it waits"
            assert {info.state for info in await world.manager.changefeeds() if info.id != "poison"} == {State.NORMAL}
            await world.manager.resume("poison")  # a person tries it
            assert processes.told[-1]["feed"] == "poison"

    run(work())


def test_the_log_level_reaches_both_processes(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            await world.manager.set_log_level("info")
            assert world.processes.level == "info"
            with pytest.raises(e.InvalidParameter):
                await world.manager.set_log_level("loud")

    run(work())


def test_synced_by_the_changefeeds_own_intervals(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            await world.create("f", replica_config={"synced-status": {"synced-check-interval": 5, "checkpoint-interval": 40}})
            now_s = NOW / (1 << 18) / 1000
            for behind_s, rows_s_ago, synced in ((30, 10, True), (30, 3, False), (50, 10, False)):
                world.moves(NOW - compose(behind_s * 1000), rows_at=now_s - rows_s_ago)
                assert (await world.manager.synced("f")).synced is synced
            await world.create("g")
            world.moves(NOW - compose(10_000), rows_at=now_s - 10)
            assert not (await world.manager.synced("g")).synced, "TiCDC's 300 s"
            with pytest.raises(e.InvalidReplicaConfig, match="synced-check-interval"):
                await world.create("h", replica_config={"synced-status": {"synced-check-interval": 0}})

    run(work())
