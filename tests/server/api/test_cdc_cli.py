"""Every command of TiCDC's `cdc cli`, in both architectures, against a server over fake processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.changelog.conftest import META
from tests.support.server.apis import BASE, shared_app
from tests.support.server.cdc_cli import Architecture, CdcCli, Refused, Request, check_answer, leaves, recorded
from tests.support.server.fake_world import NOW, START, World
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.writer import LogWriter
from tidemill.errors import ConfigError
from tidemill.server.api import create_app
from tidemill.server.api.tokens import Tokens
from tidemill.server.options import TICDC_VERSION, checked_ticdc_version

both = pytest.mark.parametrize("architecture", list(Architecture))
Work = Callable[[World, CdcCli], Awaitable[None]]
BLACKHOLE = "blackhole://"
MOVES = ("move-table", "move-split-table", "split-table-by-region-count", "merge-table")
NOT_ASKED = frozenset({"tso query", "unsafe reset", "unsafe verify-gc-safepoint", "configure-credentials"})
"""Commands that ask PD and its etcd, or nobody."""
SINKS = {
    "mysql": "blackhole://x/",
    "kafka": "blackhole://x/?protocol=canal-json",
}


def run(folder: Path, architecture: Architecture, work: Work, tokens: Tokens | None = None, **options: Any) -> None:
    async def with_world() -> None:
        async with World(folder, **options) as world:
            app = create_app(world.manager, tokens=tokens) if tokens is not None else shared_app(world.manager)
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
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


@both
@pytest.mark.parametrize("version", ["v9.1.0", "6.2.0"])
def test_the_flag_reaches_what_clients_read(tmp_path: Path, architecture: Architecture, version: str) -> None:
    async def work(world: World, cli: CdcCli) -> None:
        await cli.capture_list()
        assert [(await cli.send("GET", path)).json()["version"] for path in ("/status", "/api/v1/status", "/api/v2/status")] == [
            version
        ] * 3
        (capture,) = (await cli.send("GET", "/api/v2/captures")).json()["items"]
        assert capture["version"] == version

    run(tmp_path, architecture, work, ticdc_version=version)


@both
def test_a_server_that_is_too_old_for_the_client(tmp_path: Path, architecture: Architecture) -> None:
    async def work(world: World, cli: CdcCli) -> None:
        with pytest.raises(Refused, match="the cluster version is too old"):
            await cli.capture_list()

    run(tmp_path, architecture, work, ticdc_version="v6.1.9")


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
        for command in MOVES:
            said = await cli.move("one", command)
            assert said.startswith("[CDC:ErrTableNotSupportMove]"), command
        (processor,) = await cli.processor_list()
        assert await cli.processor_query("one", processor["capture_id"]) == []

    run(tmp_path, architecture, work)


@both
def test_what_is_unsafe(tmp_path: Path, architecture: Architecture) -> None:
    async def work(world: World, cli: CdcCli) -> None:
        await cli.create("one", BLACKHOLE)
        assert all(set(one) == {"key", "value"} for one in await cli.show_metadata())
        await cli.resolve_lock(10)
        with pytest.raises(Refused, match=r"\[CDC:ErrChangefeedUpdateRefused\]changefeeds run: one"):
            await cli.delete_service_gc_safepoint()

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
@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("advance_timeout", 151, "advance_timeout_in_sec"),
        ("advance_timeout_in_sec", 152, "advance_timeout"),
        ("send-all-bootstrap-at-start", True, "send_all_bootstrap_at_start"),
        ("send_all_bootstrap_at_start", True, "send-all-bootstrap-at-start"),
    ],
)
def test_a_script_changes_one_of_two_names(tmp_path: Path, architecture: Architecture, key: str, value: Any, shown: str) -> None:
    """It sends what it has read, with one value changed."""

    async def work(world: World, cli: CdcCli) -> None:
        await cli.create("one", BLACKHOLE + "x/?protocol=simple")
        await cli.pause("one")
        stopped(world)
        config = (await cli.send("GET", "/api/v2/changefeeds/one")).json()["config"]
        config["sink"][key] = value
        answer = await cli.send("PUT", "/api/v2/changefeeds/one", json={"replica_config": config})
        assert answer.status_code == 200, answer.text
        found = answer.json()["config"]["sink"]
        assert (found[key], found[shown]) == (value, value)

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


async def _stops_when_told(world: World) -> None:
    """The host stops the changefeed when the server tells it something next. The server would wait for that for 25 s."""
    told = len(world.processes.told)
    while len(world.processes.told) == told:
        await asyncio.sleep(0.01)
    stopped(world)


async def _each_command(world: World, cli: CdcCli) -> AsyncIterator[str]:
    """The commands of a client, one after the other; yields the name of each when it is done."""
    await cli.create("one", BLACKHOLE)
    yield "changefeed create"
    await cli.capture_list()
    yield "capture list"
    await cli.changefeed_list()
    yield "changefeed list"
    await cli.query("one")
    yield "changefeed query"
    await cli.query_simple("one")
    yield "changefeed query --simple"
    await cli.statistics("one")
    yield "changefeed statistics"
    if cli.architecture is Architecture.NEW:
        for command in MOVES:
            await cli.move("one", command)
            yield f"changefeed {command}"
    else:
        (processor,) = await cli.processor_list()
        yield "processor list"
        await cli.processor_query("one", processor["capture_id"])
        yield "processor query"
    await cli.resolve_lock(10)
    yield "unsafe resolve-lock"
    await cli.resolve_lock(10, NOW)
    yield "unsafe resolve-lock --ts"
    await cli.show_metadata()
    yield "unsafe show-metadata"
    await cli.pause("one")
    stopped(world)
    yield "changefeed pause"
    await cli.update("one", target_ts=NOW + 99)
    yield "changefeed update"
    await cli.resume("one")
    yield "changefeed resume"
    await cli.pause("one")
    stopped(world)
    cli.exchanged.clear()
    await cli.resume("one", overwrite="now")
    yield "changefeed resume --overwrite-checkpoint-ts"
    await asyncio.gather(cli.remove("one"), _stops_when_told(world))
    yield "changefeed remove"
    await cli.delete_service_gc_safepoint()
    yield "unsafe delete-service-gc-safepoint"


@both
def test_each_command_sends_what_is_recorded_and_can_read_the_answers(tmp_path: Path, architecture: Architecture) -> None:
    async def work(world: World, cli: CdcCli) -> None:
        commands = recorded(architecture)
        names = {"one": ":changefeed_id", world.manager.id: ":capture_id"}
        done = set()
        async for command in _each_command(world, cli):
            assert [Request.of(answer.request, names) for answer in cli.exchanged] == [request for request, _ in commands[command]], command
            for answer, (_, structure) in zip(cli.exchanged, commands[command], strict=True):
                if structure and answer.is_success:
                    check_answer(answer.json(), structure, architecture)
                assert HEADERS.items() <= dict(answer.request.headers).items()
                assert (answer.request.headers.get("content-type") == "application/json") == bool(answer.request.content)
            done.add(command)
            cli.exchanged.clear()
        assert done == commands.keys() - NOT_ASKED
        assert all(commands[command] == [] for command in commands.keys() & NOT_ASKED)

    run(tmp_path, architecture, work)


HEADERS = {"accept": "application/json", "x-client-version": "v9.0.0-beta.2", "authorization": "Basic Og=="}
"""`NewRequest` and `newHTTPRequest` of TiCDC's pkg/api/internal/rest/request.go: without a user the Basic header has an empty one."""


@both
def test_no_keyspace_is_the_default_one_and_another_is_refused(tmp_path: Path, architecture: Architecture) -> None:
    async def work(world: World, cli: CdcCli) -> None:
        word = "keyspace" if architecture is Architecture.NEW else "namespace"
        await cli.create("one", BLACKHOLE)
        for method, path in (("POST", "changefeeds/one/pause"), ("GET", "changefeeds/one"), ("GET", "changefeeds")):
            for sent in ({}, {word: ""}, {word: "default"}):
                assert (await cli.send(method, f"/api/v2/{path}", params=sent)).is_success
            answer = await cli.send(method, f"/api/v2/{path}", params={word: "other"})
            assert answer.json()["error_msg"] == "[CDC:ErrInvalidKeyspace]there is no keyspace other. There is one: default."

    run(tmp_path, architecture, work)


@both
def test_a_client_with_a_user_of_the_tokens(tmp_path: Path, architecture: Architecture) -> None:
    """`--user NAME --password TOKEN`, or what `configure-credentials` has stored."""
    file = tmp_path / "tokens"
    file.write_text("ops 0123456789abcdef-ops operate\nroot 0123456789abcdef-root\n")
    file.chmod(0o600)

    async def work(world: World, cli: CdcCli) -> None:
        with pytest.raises(Refused, match="ErrUnauthorized"):
            await cli.create("one", BLACKHOLE)
        assert await cli.changefeed_list() == [], "lists are for everybody"
        cli.user, cli.password = "root", "0123456789abcdef-root"
        await cli.create("one", BLACKHOLE)
        cli.user, cli.password = "ops", "0123456789abcdef-ops"
        await cli.pause("one")
        stopped(world)
        with pytest.raises(Refused, match="has the role operate, and this needs admin"):
            await cli.remove("one")
        cli.password = "0123456789abcdef-root-"
        with pytest.raises(Refused, match="ErrUnauthorized"):
            await cli.resume("one")

    run(tmp_path, architecture, work, Tokens(file))


@both
def test_with_a_user_the_client_repeats_the_keyspace(tmp_path: Path, architecture: Architecture) -> None:
    """`Request.params` of the client is one map for all its requests once there are credentials: names of one stay for the next."""

    async def work(world: World, cli: CdcCli) -> None:
        cli.user, cli.password = "root", "x"
        await cli.create("one", BLACKHOLE)
        await cli.statistics("one")
        last = cli.exchanged[-1].request
        assert last.headers["authorization"] == "Basic cm9vdDp4"
        assert last.url.params.multi_items() == [("keyspace" if architecture is Architecture.NEW else "namespace", "default")]

    run(tmp_path, architecture, work)


@both
def test_gc_is_let_go_when_no_changefeed_runs(tmp_path: Path, architecture: Architecture) -> None:
    async def work(world: World, cli: CdcCli) -> None:
        world.upstream.pd.barriers = {"tidemill-7-abc", "tidemill-7-other", "ticdc-default-1"}
        await cli.delete_service_gc_safepoint()
        assert world.upstream.pd.barriers == {"tidemill-7-abc", "tidemill-7-other", "ticdc-default-1"}, "there is no log yet"
        identity = LogIdentity("7", START, 1, extra={"capture_id": "abc"})
        LogWriter.create(LocalStorage(str(tmp_path / "log"), sync=False), identity, snapshot=META)
        await cli.delete_service_gc_safepoint()
        assert world.upstream.pd.barriers == {"tidemill-7-other", "ticdc-default-1"}

    run(tmp_path, architecture, work)
