"""The real `cdc cli` against a server over the playground: every command of it that works on changefeeds, captures and processors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.delivery.runs import await_that
from tests.support.server.real_cdc import RealCli, program, why_not
from tests.support.server.servers import Server
from tidemill.demo.session import Upstream

pytestmark = [
    pytest.mark.skipif(program("cdc") is None, reason=why_not("cdc")),
    *(pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)),
]


def test_the_life_of_changefeeds(tmp_path: Path) -> None:
    with (
        Upstream(tmp_path, options=("--workload", "none", "--resolved-interval", "0.2")) as upstream,
        Server(tmp_path, upstream.pd, "--trigger-ms", "200") as server,
    ):
        cli = RealCli(server.address)
        upstream.call("sql", text="create database a; create table a.t (id int primary key); create database b; create table b.t (id int)")
        (capture,) = cli.json("capture", "list")
        assert (capture["address"], capture["is-owner"]) == (server.address, True)
        config = tmp_path / "feed.toml"
        config.write_text("[filter]\nrules = ['a.*']\n")
        feed = ("--changefeed-id", "one")
        said = cli.ok("changefeed", "create", *feed, "--sink-uri", "blackhole://", "--config", str(config), "--no-confirm")
        assert "Create changefeed successfully" in said
        assert [one["id"] for one in cli.json("changefeed", "list")] == ["one"]
        await_that(lambda: cli.json("changefeed", "query", *feed)["state"] == "normal", "it runs")
        assert cli.json("changefeed", "query", *feed, "--simple")["state"] == "normal"
        # further tables, from the ts that the client asks for
        config.write_text("[filter]\nrules = ['b.*']\n")
        more = ("--config", str(config), "--no-confirm")
        code, said = cli("changefeed", "create", "--changefeed-id", "two", "--sink-uri", "blackhole://", *more)
        assert "some tables are not eligible" in said.lower() or code == 0, said
        upstream.call("sql", text="create table b.u (id int primary key); drop table b.t")
        cli.ok("changefeed", "create", "--changefeed-id", "three", "--sink-uri", "blackhole://", *more)
        code, said = cli("changefeed", "create", "--changefeed-id", "four", "--sink-uri", "blackhole://", "--start-ts", "1", *more)
        assert "CDC:ErrStartTsBeforeGC" in said
        cli.ok("changefeed", "pause", *feed)
        await_that(lambda: cli.json("changefeed", "query", *feed, "--simple")["state"] == "stopped", "it is paused")
        config.write_text("[filter]\nrules = ['a.*', '!a.x']\n")
        said = cli.ok("changefeed", "update", *feed, "--config", str(config), "--no-confirm")
        assert "Update changefeed config successfully" in said
        differences = [line for line in said.splitlines() if "Path:" in line]
        assert all("filter" in line.lower() for line in differences), said
        cli.ok("changefeed", "resume", *feed, "--no-confirm")
        if "processor" in cli.ok("--help"):  # TiCDC's new architecture has none
            assert isinstance(cli.json("processor", "list"), list)
        cli.ok("changefeed", "pause", *feed)
        await_that(lambda: cli.json("changefeed", "query", *feed, "--simple")["state"] == "stopped", "it is paused")
        cli.ok("changefeed", "resume", *feed, "--overwrite-checkpoint-ts", "now", "--no-confirm")
        assert cli("unsafe", "show-metadata")[0] == 0
        for name in ("one", "two", "three"):
            cli("changefeed", "remove", "--changefeed-id", name)
        assert cli.json("changefeed", "list") == []
