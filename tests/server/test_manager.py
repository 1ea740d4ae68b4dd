"""Changefeeds of a server over fakes: what it tells host and capture, what it keeps on disk, what it answers."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.support.server.fake_world import NOW, SINK, START, World, run
from tests.support.server.page_scenes import ROW
from tidemill.changefeed.states import State
from tidemill.errors import SinkUnavailable
from tidemill.process.orders import from_plain
from tidemill.server import errors as e
from tidemill.server import service as s
from tidemill.server.changefeeds import hosting, operations
from tidemill.server.host.messages import HostOrder
from tidemill.server.host.process import Host
from tidemill.server.settings import FeedSettings
from tidemill.tso import compose


def test_the_first_changefeed_begins_the_log_and_is_started(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            assert world.processes.capture_start == -1, "no changefeed, no log"
            info = await world.create(replica_config={"filter": {"rules": ["a.*"]}})
            assert world.processes.capture_start == START
            started = world.processes.last("start")
            assert started.pop("settings")["config"] == {"filter": {"rules": ["a.*"]}}
            assert started == {"do": "start", "feed": "f", "run": 1, "retries": False}
            assert (info.state, info.checkpoint_ts, info.id) == (State.NORMAL, START, "f")
            assert info.given_config == {"filter": {"rules": ["a.*"]}}
            world.moves(START + 5, rows=3)
            assert (await world.manager.statistics("f")).rows == 3
            assert (await world.manager.changefeed("f")).checkpoint_ts == START + 5

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


def test_only_the_owner_may_read_secrets_and_nobody_is_told_them(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path) as world:
            config = {"sink": {"kafka-config": {"sasl-password": "hunter2", "sasl-user": "u"}}}
            info = await world.create(replica_config=config)
            kept = tmp_path / "log/server/state.json"
            assert ("hunter2" in kept.read_text(), stat.S_IMODE(kept.parent.stat().st_mode)) == (True, 0o700)
            assert "hunter2" in repr(world.processes.last("start"))
            assert not any("hunter2" in file.read_text() for file in (tmp_path / "data").rglob("*") if file.is_file())
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
            kept = json.loads((tmp_path / "log/server/state.json").read_text())["feeds"]["f"]["settings"]
            assert kept["config"] == {"filter": {"rules": ["a.*"]}}
            assert not (tmp_path / "data/changefeeds/f").exists(), "it has nothing that is not lost without harm"

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


def test_a_checkpoint_is_overwritten_past_sync_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host is told to begin there, with the same settings; what its sink then does with the sync points between is the sink's."""
    points = {"enable-sync-point": True, "sync-point-interval": "30s"}
    monkeypatch.setattr(operations, "_check_sink_answers", lambda _: None)

    async def work() -> None:
        async with World(tmp_path) as world:
            await world.manager.create(s.NewChangefeed("mysql://h:3306/", "f", start_ts=START, replica_config=points))
            world.moves(START + compose(10_000))
            await world.manager.pause("f")
            world.says("ended", how="stopped")
            there = START + compose(50_000)
            assert (await world.manager.resume("f", overwrite_checkpoint_ts=there)).checkpoint_ts == there
            assert world.processes.last("start")["run"] == 2
            assert json.loads((tmp_path / "log/server/changefeeds/f/checkpoint.json").read_text())["checkpoint_ts"] == there
            assert world.processes.last("start")["settings"]["config"] == points

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
            settings = from_plain(FeedSettings, world.processes.last("start")["settings"])
            assert settings.skip_rows == (one, two)
            host = Host(HostOrder(str(tmp_path / "log"), tmp_path / "data"), None)  # type: ignore[arg-type]
            assert [str(row) for row in host._options(settings, retries=False).skip_rows] == [one, two]

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
            assert [*(tmp_path / "data").glob("changefeeds/*")] == []
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
            assert [*(tmp_path / "data").glob("changefeeds/*")] == []

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
            assert [*(tmp_path / "data").glob("changefeeds/*")] == []
            assert world.processes.last("start")["run"] == 1

    run(work())


def test_one_whose_batch_does_not_end_is_cut_off_and_disturbs_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "END_WITHIN_S", 0.0)

    async def work() -> None:
        async with World(tmp_path) as world:
            await world.create()
            assert (await world.manager.remove("f")).state is State.REMOVED
            assert json.loads((tmp_path / "log/fences/f.json").read_text())["epoch"] == 2, "one of its creation, one of its end"
            assert [*(tmp_path / "data").glob("changefeeds/*")] == []
            assert world.processes.restarts == 0

    run(work())


def test_what_stands_still_for_longer_than_gc_ttl_fails(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(tmp_path, gc_ttl=1.0) as world:
            await world.create()
            await world.manager.pause("f")
            world.says("ended", how="stopped")
            await world.manager.upkeep.expire(world.manager.feeds.present["f"])
            info = await world.manager.changefeed("f")
            assert info.error is not None
            assert (info.state, info.error.code, info.holds_log_until) == (State.FAILED, "CDC:ErrGCTTLExceeded", None)

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


def test_synced_is_the_same_with_a_redo_log(tmp_path: Path) -> None:
    """`consistent.level = "eventual"`: the log is the redo log, so nothing more has to be synced."""

    async def work() -> None:
        async with World(tmp_path) as world:
            redo = {"consistent": {"level": "eventual", "storage": f"file://{tmp_path}/redo"}}
            await world.create("f", replica_config={**redo, "synced-status": {"synced-check-interval": 5, "checkpoint-interval": 40}})
            for behind_s, rows_s_ago, synced in ((30, 10, True), (30, 3, False), (50, 10, False)):
                world.moves(NOW - compose(behind_s * 1000), rows_at=NOW / (1 << 18) / 1000 - rows_s_ago)
                assert (await world.manager.synced("f")).synced is synced

    run(work())
