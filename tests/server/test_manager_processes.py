"""A server that leads or stops leading, its host and its capture: what it tells them, and what it shows of them."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.metric_samples import BROKER
from tests.support.server.fake_world import NOW, START, FakeElector, World, run
from tidemill.changefeed.states import State
from tidemill.changelog.storage.open import open_storage
from tidemill.delivery.measure.timings import Timings
from tidemill.errors import StartTsOutOfLog
from tidemill.server import errors as e
from tidemill.server import service as s
from tidemill.server.host.messages import Figures, progress, report
from tidemill.server.shared.elector import DRAINED_S
from tidemill.server.shared.members import Member
from tidemill.server.shared.records import Records


def test_metrics_have_what_the_host_writes_and_how_the_processes_are(tmp_path: Path) -> None:
    """Histograms, brokers and failed attempts stand in the changefeed's delivery.json; counters come each second."""

    async def work() -> None:
        async with World(tmp_path) as world:
            world.processes.children = [{"name": "delivery", "pid": 7, "restarts": 3}, {"name": "capture", "pid": None, "restarts": 0}]
            await world.create()
            world.moves(START + 5, rows=3)
            written = {"rows": 1, "errors": 2, "histograms": Timings().as_dict(), "brokers": [BROKER], "slow_rows": "x"}
            (tmp_path / "data/changefeeds/f").mkdir(parents=True)
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


def test_a_server_beside_another_one_is_drained_and_resigns(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            manager = world.manager
            await world.create()
            with pytest.raises(e.NowhereToDrain, match="no other server"):
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


def test_what_lost_its_history_stays_failed_with_its_error_on_every_server(tmp_path: Path) -> None:
    """TiCDC's scenario `bootstrap_retry_after_error`: another server comes while a changefeed cannot begin, and both go on."""
    lost = {"code": StartTsOutOfLog.code, "message": "the log begins later", "retryable": False, "trouble_since": None}

    async def first() -> None:
        async with World(tmp_path) as world:
            await world.create("lost")
            world.says("ended", how="failed", **lost)
            await world.create("whole")
            found = {info.id: info for info in await world.manager.changefeeds()}
            assert (found["lost"].state, found["whole"].state) == (State.FAILED, State.NORMAL)

    async def second() -> None:
        async with World(tmp_path, data="data2") as world:
            for goes_on in (State.NORMAL, State.WARNING):  # as it is, and after its host died
                found = {info.id: info for info in await world.manager.changefeeds()}
                assert (found["lost"].state, found["whole"].state) == (State.FAILED, goes_on)
                assert found["lost"].error is not None
                assert (found["lost"].error.code, found["lost"].error.message) == (lost["code"], lost["message"])
                assert {one["feed"] for one in world.processes.told} == {"whole"}
                world.processes.lost("killed", True)
                world.processes.heard(report("up"))
            assert world.processes.restarts == 0

    run(first())
    run(second())
    run(second())


def test_what_the_page_shows_besides(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            await world.create()
            world.moves(START + 5, rows=3)
            assert world.manager.figures()["f"].rows == 3
            assert world.manager.capture_status().updated == 0
            assert world.manager.processes() == []

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
            return [*world.processes.rules.rules]

        async with World(tmp_path) as world:
            await world.create("a", replica_config={"filter": {"rules": ["a.*"]}})
            assert (rules(), world.processes.changes) == (["a.*"], 0)
            await world.create("b", replica_config={"filter": {"rules": ["b.x"]}})
            assert (rules(), world.processes.changes) == (["a.*", "b.x"], 1)
            await world.create("c", replica_config={"filter": {"rules": ["b.x"]}})
            assert world.processes.changes == 1, "nothing new"
            await world.manager.pause("c")
            world.processes.heard(report("ended", feed="c", run=1, how="stopped"))
            await world.manager.update("c", s.ChangefeedUpdate(replica_config={"filter": {"rules": ["c.*"]}}))
            assert (rules(), world.processes.changes) == (["a.*", "b.x", "c.*"], 2)
            removing = asyncio.create_task(world.manager.remove("a"))
            await asyncio.sleep(0)
            world.processes.heard(report("ended", feed="a", run=1, how="stopped"))
            await removing
            assert (rules(), world.processes.changes) == (["b.x", "c.*"], 3)
            assert world.processes.capture_starts == 1, "it takes them while it runs"

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
            new = World(tmp_path, data="other")
            elector: Any = FakeElector([])
            old.manager.elects(elector)
            await new.manager.start()
            await new.manager.lead(1)
            with pytest.raises(e.NotOwner):
                await old.create("b")
            assert elector.failures == 1
            await old.manager.pause("a")
            assert elector.failures == 2, "the state could not be written"
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
