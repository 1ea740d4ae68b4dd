"""Every command of TiCDC's `cdc cli`, in both architectures, against a server over fake processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.server.apis import BASE
from tests.support.server.cdc_cli import Architecture, CdcCli, Refused, leaves
from tests.support.server.fake_world import NOW, START, World
from tidemill.errors import ConfigError
from tidemill.server.api import create_app
from tidemill.server.options import TICDC_VERSION, checked_ticdc_version

both = pytest.mark.parametrize("architecture", list(Architecture))
Work = Callable[[World, CdcCli], Awaitable[None]]
BLACKHOLE = "blackhole://"
SINKS = {
    "mysql": "blackhole://x/",
    "kafka": "blackhole://x/?protocol=canal-json",
}


def run(folder: Path, architecture: Architecture, work: Work, **options: Any) -> None:
    async def with_world() -> None:
        async with World(folder, **options) as world:
            transport = httpx.ASGITransport(create_app(world.manager), raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
                await work(world, CdcCli(client.request, architecture))

    asyncio.run(with_world())


def stopped(world: World) -> None:
    world.says("ended", how="stopped")


@both
def test_the_life_of_a_changefeed(tmp_path: Path, architecture: Architecture) -> None:
    async def work(world: World, cli: CdcCli) -> None:
        created = await cli.create("one", BLACKHOLE)
        assert (created["id"], created["state"], created["start_ts"] >> 18) == ("one", "normal", NOW >> 18)
        assert [one["id"] for one in await cli.changefeed_list()] == ["one"]
        await cli.pause("one")
        stopped(world)
        assert (await cli.query("one"))["state"] == "stopped"
        differs, answered = await cli.update("one", target_ts=NOW + 99)
        assert (differs, answered and answered["target_ts"]) == (["target_ts"], NOW + 99)
        await cli.resume("one")
        with pytest.raises(Refused, match=r"\[CDC:ErrChangefeedUpdateRefused\]"):
            await cli.update("one", target_ts=NOW + 100)
        assert await cli.statistics("one") == {"sink_gap": 0, "replication_gap": 0}
        await cli.pause("one")
        stopped(world)
        await cli.resume("one", overwrite="now")
        await cli.pause("one")
        stopped(world)
        await cli.remove("one")
        assert await cli.changefeed_list(everything=True) == []
        with pytest.raises(Refused, match=r"\[CDC:ErrChangeFeedNotExists\]"):
            await cli.query("one")

    run(tmp_path, architecture, work)


@both
def test_the_servers_and_their_version(tmp_path: Path, architecture: Architecture) -> None:
    async def work(world: World, cli: CdcCli) -> None:
        (one,) = await cli.capture_list()
        assert (one["is-owner"], one["address"], one["cluster-id"]) == (True, "127.0.0.1:8300", "default")
        answer = (await cli.send("GET", "/api/v2/status")).json()
        assert (answer["version"], answer["tidemill_version"] != answer["version"]) == (TICDC_VERSION, True)
        (captures,) = (await cli.send("GET", "/api/v2/captures")).json()["items"]
        assert {name: captures[name] for name in ("version", "tidemill_version")} == {
            name: answer[name] for name in ("version", "tidemill_version")
        }

    run(tmp_path, architecture, work)


@pytest.mark.parametrize("text", ["6.1.9", "v5.4.0", "0.1.0", "newest", "v8.5", "v8.5.7; rm", ""])
def test_a_version_that_clients_do_not_take_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--ticdc-version"):
        checked_ticdc_version(text)


@pytest.mark.parametrize("text", ["v8.5.7", "6.2.0", "v9.0.0-beta.2", "v8.5.7-20260728-c8d4d68", "10.0.0"])
def test_a_version_by_the_flag(text: str) -> None:
    assert checked_ticdc_version(text) == text


@both
def test_what_moves_tables_is_refused_with_a_reason(tmp_path: Path, architecture: Architecture) -> None:
    async def work(world: World, cli: CdcCli) -> None:
        await cli.create("one", BLACKHOLE)
        for what in ("move_table", "move_split_table", "split_table_by_region_count", "merge_table"):
            said = await cli.move("one", what, tableID="100", targetNodeID="x", mode="0", wait="true")
            assert said.startswith("[CDC:ErrTableNotSupportMove]"), what
        (processor,) = await cli.processor_list()
        assert await cli.processor_query("one", processor["capture_id"]) == []

    run(tmp_path, architecture, work)


@both
def test_what_is_unsafe(tmp_path: Path, architecture: Architecture) -> None:
    async def work(world: World, cli: CdcCli) -> None:
        await cli.create("one", BLACKHOLE)
        entries = await cli.unsafe("GET", "metadata")
        assert all(set(one) == {"key", "value"} for one in entries)
        lock = {"region_id": 10, "ts": NOW, "ca_path": "", "cert_path": "", "key_path": ""}
        assert await cli.unsafe("POST", "resolve_lock", lock) == {}
        with pytest.raises(Refused, match=r"\[CDC:ErrChangefeedUpdateRefused\]changefeeds run: one"):
            await cli.unsafe("DELETE", "service_gc_safepoint", {"id": 0, "ca_path": "", "cert_path": "", "key_path": ""})

    run(tmp_path, architecture, work)


@both
@pytest.mark.parametrize("sink", SINKS)
def test_an_update_lists_only_what_changes(tmp_path: Path, architecture: Architecture, sink: str) -> None:
    """A changefeed that Tidemill's own client made: its request has next to no keys."""

    async def work(world: World, cli: CdcCli) -> None:
        own = {"filter": {"rules": ["a.*"]}, "progress": "table", "sink": {"create-tables": True, "csv": {"quote": "'"}}}
        body = {"changefeed_id": "one", "sink_uri": SINKS[sink], "start_ts": START, "replica_config": {"memory_quota": 7, **own}}
        assert (await cli.send("POST", "/api/v2/changefeeds", json=body)).status_code == 200
        await cli.pause("one")
        stopped(world)
        differs, answered = await cli.update("one", filter={"rules": ["a.*", "!a.b"]})
        assert differs == ["filter.rules"]
        assert answered is not None
        shown = dict(leaves(answered["config"]))
        assert shown["filter.rules"] == ["a.*", "!a.b"]
        assert (shown["memory_quota"], shown["sink.csv.quote"]) == (7, "'")
        assert (shown["progress"], shown["sink.create_tables"]) == ("table", True), "the client does not know Tidemill's own keys"
        assert await cli.update("one", filter={"rules": ["a.*", "!a.b"]}) == ([], None)

    run(tmp_path, architecture, work)


@both
def test_an_answer_has_every_key_that_the_client_has_a_default_for(tmp_path: Path, architecture: Architecture) -> None:
    async def work(world: World, cli: CdcCli) -> None:
        await cli.create("one", BLACKHOLE)
        shown = dict(leaves((await cli.query("one"))["config"]))
        assert dict(leaves(cli.defaults)).items() <= shown.items()

    run(tmp_path, architecture, work)


@both
@pytest.mark.parametrize(
    ("key", "value"), [("wholly_new", None), ("wholly_new", 0), ("wholly_new", False), ("wholly_new", {"a": {"b": ""}, "c": []})]
)
def test_a_newer_client_sends_keys_that_ask_for_nothing(
    tmp_path: Path, architecture: Architecture, key: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(world: World, cli: CdcCli) -> None:
        await cli.create("one", BLACKHOLE, sink={key: value}, **{key: value})
        body = {"changefeed_id": "two", "sink_uri": BLACKHOLE, key: value}
        assert (await cli.send("POST", "/api/v2/changefeeds", json=body)).status_code == 200

    run(tmp_path, architecture, work)
    assert "replica_config.sink.wholly_new is not known here" in caplog.text


@both
@pytest.mark.parametrize("value", [1, True, "x", {"a": [0, 1]}, ["x"]])
def test_keys_of_a_newer_client_that_ask_for_something_are_refused(tmp_path: Path, architecture: Architecture, value: Any) -> None:
    async def work(world: World, cli: CdcCli) -> None:
        with pytest.raises(Refused, match=r"\[CDC:ErrInvalidReplicaConfig\].*sink\.wholly_new: unknown key"):
            await cli.create("one", BLACKHOLE, sink={"wholly_new": value})
        body = {"changefeed_id": "two", "sink_uri": BLACKHOLE, "wholly_new": value}
        answer = await cli.send("POST", "/api/v2/changefeeds", json=body)
        assert answer.json()["error_msg"] == "[CDC:ErrAPIInvalidParam]unknown field wholly_new"

    run(tmp_path, architecture, work)


@both
def test_a_start_before_garbage_collection_names_the_safe_point(tmp_path: Path, architecture: Architecture) -> None:
    async def work(world: World, cli: CdcCli) -> None:
        safe_point = await world.upstream.pd.gc_safe_point()
        with pytest.raises(Refused, match=rf"\[CDC:ErrStartTsBeforeGC\].*GC safe point {safe_point} "):
            await cli.create("one", BLACKHOLE, start_ts=1)

    run(tmp_path, architecture, work)
