"""`tidemill cli`: flags, JSON, messages and exit codes of `cdc cli`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.server.apis import served
from tests.support.server.command_line import Cli
from tests.support.server.fake_service import CAPTURE, NO_KEY, UPSTREAM, FakeService
from tests.support.servers.certificates import Authority
from tidemill import tso
from tidemill.budget import ANSWER
from tidemill.cli.cdc.changefeeds import diff, merged
from tidemill.cli.cdc.client import Client, ServerUnavailable, feed_path
from tidemill.cli.cdc.commands import spelled
from tidemill.cli.cdc.output import go_duration
from tidemill.playground.control import call
from tidemill.playground.server import PlaygroundThread
from tidemill.server.api.listener import Certificates

KAFKA = "kafka://h:1/t?protocol=canal-json"
DAY = 86_400_000 << 18


def create(cli: Cli, name: str = "test", *more: str, uri: str = KAFKA) -> str:
    return cli.ok("cli", "changefeed", "create", "-c", name, "--sink-uri", uri, "--no-confirm", *more)


def test_create_prints_ticdcs_lines(cli: Cli) -> None:
    lines = create(cli, "test", "--verbose").splitlines()
    assert lines[:2] == ["Create changefeed successfully!", "ID: test"]
    info = json.loads(lines[2].removeprefix("Info: "))
    assert (info["id"], info["state"], info["sink_uri"]) == ("test", "normal", KAFKA)
    assert lines[3:] == [
        "IneligibleTablesCount: 0", "EligibleTablesCount: 2", "AllTablesCount: 2",
        "EligibleTables: [shop.orders, shop.items]", "IneligibleTables: []", "AllTables: [shop.orders, shop.items]",
    ]  # fmt: skip


def test_create_sends_what_the_flags_and_the_file_say(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "feed.toml"
    file.write_text('[filter]\nrules = ["shop.*"]\n')
    start, target = cli.service.now - 5, cli.service.now + 5
    create(
        cli, "test", "--config", str(file), f"--start-ts={start}", "--target-ts", str(target), "--disable-gc-check",
        "--schema-registry", "http://r:1", "--upstream-pd", "http://a:1,http://b:2", "--upstream-ca", "/ca", "--sort-engine=unified",
    )  # fmt: skip
    wanted = next(what for name, what in cli.service.calls if name == "create")
    assert (wanted.start_ts, wanted.target_ts, wanted.disable_gc_check, wanted.ignore_ineligible_tables) == (start, target, True, True)
    assert wanted.replica_config == {
        "filter": {"rules": ["shop.*"]}, "sink": {"schema-registry": "http://r:1"}, "check-gc-safe-point": False,
        "ignore-ineligible-table": True,
    }  # fmt: skip
    assert (wanted.upstream.pd_addrs, wanted.upstream.ca_path) == (("http://a:1", "http://b:2"), "/ca")


def test_an_old_start_ts_asks(cli: Cli) -> None:
    start = str(cli.service.now - 2 * DAY)
    asked = ("cli", "changefeed", "create", "-c", "old", "--sink-uri", KAFKA, "--start-ts", start)
    code, out, err = cli(*asked, typed="n\n")
    assert (code, err) == (0, "")
    assert out == (
        "Replicate lag (48h0m0s) is larger than 1 days, large data may cause OOM, confirm to continue at your own risk [Y/N]\n"
        "Abort changefeed create.\n"
    )
    assert cli.service.feeds == {}
    assert "abort the command" in cli.ok(*asked)
    assert "Create changefeed successfully!" in cli.ok(*asked, typed="Y\n")


def test_tables_without_a_key_ask(cli: Cli) -> None:
    cli.service.ineligible = (NO_KEY,)
    asked = ("cli", "changefeed", "create", "-c", "a", "--sink-uri", KAFKA)
    out = cli.ok(*asked, typed="n\n")
    assert "[WARN] Some tables are not eligible to replicate" in out
    assert "[shop.log_lines]" in out
    assert "No changefeed is created because you don't want to ignore some tables." in out
    assert "IneligibleTablesCount: 1" in cli.ok(*asked, typed="y\n")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--sink-uri", ""), "[CDC:ErrSinkURIInvalid]sink uri invalid"),
        (("--sink-uri", "kafka://h:1/t?protocol=avrro"), "did you mean"),
        (("--sink-uri", KAFKA, "-c", "a_b"), "[CDC:ErrAPIInvalidParam]invalid changefeed_id: a_b"),
        (("--sink-uri", KAFKA, "--sort-dir", "/x"), "creating changefeed with `--sort-dir`, it's invalid"),
        (("--sink-uri", KAFKA, "--config", "/none.toml"), "/none.toml"),
        (("--sink-uri", KAFKA, "--keyspace", "other"), "CDC:ErrInvalidKeyspace"),
        (("--sink-uri", KAFKA, "--start-ts", str(2**62)), "CDC:ErrAPIInvalidParam"),
    ],
)
def test_what_create_refuses(cli: Cli, more: tuple[str, ...], said: str) -> None:
    code, out, err = cli("cli", "changefeed", "create", "--no-confirm", *more)
    assert code == 1
    assert err.startswith("Error: [")
    assert said in err
    assert "successfully" not in out


def test_the_file_is_checked_before_anything_is_asked(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "feed.toml"
    file.write_text("[filter]\nrulez = []\n")
    code, _, err = cli("cli", "changefeed", "create", "--sink-uri", KAFKA, "--config", str(file))
    assert code == 1
    assert f"{file}: unknown key filter.rulez; did you mean `rules`?" in err
    assert cli.service.calls == []


def test_list(cli: Cli) -> None:
    create(cli)
    cli.service.fail("test")
    found = json.loads(cli.ok("cli", "changefeed", "list"))
    (one,) = found
    assert list(one) == ["id", "keyspace", "summary"]
    assert list(one["summary"]) == ["state", "tso", "checkpoint", "error"]
    assert (one["summary"]["state"], one["summary"]["error"]["code"]) == ("failed", "CDC:ErrKafkaSendMessage")
    assert len(one["summary"]["checkpoint"]) == len("2006-01-02 15:04:05.000")
    assert cli.ok("cli", "changefeed", "list", "--all=true", "--namespace=default").startswith('[\n  {\n    "id": "test",')


def test_query(cli: Cli) -> None:
    create(cli)
    found = json.loads(cli.ok("cli", "changefeed", "query", "-c=test"))
    assert list(found) == [
        "upstream_id", "id", "keyspace", "sink_uri", "config", "create_time", "start_ts", "resolved_ts", "target_ts", "checkpoint_tso",
        "checkpoint_time", "sort_engine", "state", "creator_version", "task_status",
    ]  # fmt: skip
    assert (found["upstream_id"], found["create_time"]) == (UPSTREAM, "2025-11-24 16:00:00.123")
    simple = json.loads(cli.ok("cli", "changefeed", "query", "-s", "--changefeed-id", "test"))
    assert list(simple) == ["upstream_id", "id", "keyspace", "state", "checkpoint_tso", "checkpoint_time", "error"]
    for more in ((), ("-s",)):
        code, _, err = cli("cli", "changefeed", "query", "-c", "no", *more)
        assert (code, err) == (1, "Error: [CDC:ErrChangeFeedNotExists]changefeed not exists, no\n")


def test_pause_and_resume(cli: Cli) -> None:
    create(cli)
    assert cli.ok("cli", "changefeed", "pause", "-c", "test") == ""
    assert cli.service.feeds["test"].state == "stopped"
    assert cli.ok("cli", "changefeed", "resume", "-c", "test") == ""
    assert cli.service.feeds["test"].state == "normal"
    code, _, err = cli("cli", "changefeed", "pause", "-c", "no")
    assert (code, err) == (1, "Error: [CDC:ErrChangeFeedNotExists]changefeed not exists, no\n")


def test_resume_from_elsewhere(cli: Cli) -> None:
    create(cli)
    ts = cli.service.now - 77
    asked = ("cli", "changefeed", "resume", "-c", "test", "--overwrite-checkpoint-ts")
    out = cli.ok(*asked, str(ts), typed="n\n")
    assert out.startswith(f"You are overwriting the checkpoint of changefeed(test) to {ts}, which may lead to data loss")
    assert out.endswith("Abort changefeed resume.\n")
    assert cli.service.feeds["test"].checkpoint_ts != ts
    assert "may lead to data loss" in cli.ok(*asked, str(ts), typed="y\n")
    assert cli.service.feeds["test"].checkpoint_ts == ts
    cli.ok(*asked, "NOW", "--no-confirm")
    assert cli.service.feeds["test"].checkpoint_ts == cli.service.now
    for text, code in (
        ("x", "CDC:ErrCliInvalidCheckpointTs"),
        ("0", "CDC:ErrCliInvalidCheckpointTs"),
        (str(2**63), "CDC:ErrCliCheckpointTsIsInFuture"),
    ):
        assert f"[{code}]" in cli(*asked, text)[2]


def test_a_checkpoint_of_long_ago_asks(cli: Cli) -> None:
    create(cli, "test", "--start-ts", str(cli.service.now - 3 * DAY))
    cli.ok("cli", "changefeed", "pause", "-c", "test")
    assert "Replicate lag (72h0m0s) is larger than 1 days" in cli.ok("cli", "changefeed", "resume", "-c", "test", typed="n\n")
    assert cli.service.feeds["test"].state == "stopped"


def test_update(cli: Cli, tmp_path: Path) -> None:
    create(cli)
    file = tmp_path / "feed.toml"
    file.write_text('case-sensitive = true\n[filter]\nrules = ["shop.*"]\n')
    asked = ("cli", "changefeed", "update", "-c", "test", "--config", str(file), "--target-ts", "462422016000000001")
    assert "stopped or failed" in cli(*asked, "--no-confirm")[2]
    cli.ok("cli", "changefeed", "pause", "-c", "test")
    out = cli.ok(*asked, typed="n\n")
    assert out.splitlines() == [
        "Diff of changefeed config:",
        "{Type:update Path:[config case_sensitive] From:false To:true}",
        '{Type:update Path:[config filter rules] From:["*.*"] To:["shop.*"]}',
        "{Type:create Path:[target_ts] From:<nil> To:462422016000000001}",
        "Could you agree to apply changes above to changefeed [Y/N]",
        "No update to changefeed.",
    ]
    out = cli.ok(*asked, typed="y\n")
    assert "Update changefeed config successfully! \nID: test\nInfo: {" in out
    assert cli.service.feeds["test"].target_ts == 462422016000000001
    assert "do nothing" in cli.ok(*asked)


def test_remove(cli: Cli) -> None:
    create(cli, uri=KAFKA + "&sasl-user=u&sasl-password=geheim")
    ts = cli.service.feeds["test"].checkpoint_ts
    uri = KAFKA + "&sasl-user=xxxxx&sasl-password=xxxxx"
    assert cli.ok("cli", "changefeed", "remove", "-c", "test") == (
        f"Changefeed remove successfully.\nID: test\nCheckpointTs: {ts}\nSinkURI: {uri}\n"
    )
    assert cli.ok("cli", "changefeed", "remove", "-c", "test") == "Changefeed not found.\nID: test\n"


def test_statistics(cli: Cli) -> None:
    create(cli, "test", "--start-ts", str(cli.service.now - (1234 << 18)))
    assert cli.ok("cli", "changefeed", "statistics", "-c", "test", "-I", "1", "--count", "1") == (
        '{\n  "sink_gap": "1234ms",\n  "replication_gap": "1234ms"\n}\n'
    )


@pytest.mark.parametrize("verb", ["move-table", "move-split-table", "split-table-by-region-count", "merge-table"])
def test_tables_do_not_move(cli: Cli, verb: str) -> None:
    create(cli)
    more = ("-d", "x") if "move" in verb else ()
    found = json.loads(cli.ok("cli", "changefeed", verb, "-c", "test", "-t", "5", *more))
    assert found["success"] is False
    assert found["error"].startswith("[CDC:ErrTableNotSupportMove]")


def test_the_rest(cli: Cli) -> None:
    create(cli)
    assert json.loads(cli.ok("cli", "capture", "list")) == [
        {"id": CAPTURE, "is-owner": True, "address": "127.0.0.1:8300", "cluster-id": "default"}
    ]
    assert json.loads(cli.ok("cli", "processor", "list")) == [{"id": "test", "capture_id": CAPTURE}]
    found = json.loads(cli.ok("cli", "processor", "query", "-c", "test", "-p", CAPTURE))
    assert found["status"]["tables"] == {"104": {"start-ts": 0}, "106": {"start-ts": 0}}
    assert cli.ok("cli", "tso", "query") == f"{cli.service.now}\n"


def test_unsafe(cli: Cli) -> None:
    create(cli)
    assert cli.ok("cli", "unsafe", "show-metadata") == f"Key: /tidemill/changefeeds/test, Value: {KAFKA}\nShow 1 KVs\n"
    cli.ok("cli", "unsafe", "resolve-lock", "--region", "7")
    region, ts = next(what for name, what in cli.service.calls if name == "resolve_lock")
    assert (region, tso.physical_ms(cli.service.now) - tso.physical_ms(ts)) == (7, 60_000)
    code, _, err = cli("cli", "unsafe", "reset", typed="n\n")
    assert (code, err) == (1, "Error: abort meta command\n")
    assert "CDC service GC safepoint truncated in PD!" in cli.ok("cli", "unsafe", "delete-service-gc-safepoint", "--no-confirm")
    assert "reset and all metadata truncated in PD!" in cli.ok("cli", "unsafe", "reset", typed="y\n")
    assert cli.service.feeds == {}


def test_flags_before_and_behind_the_command(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMILL_SERVER")
    assert cli.ok("cli", f"--server=http://{cli.address}", "changefeed", "list") == "[]\n"
    assert cli.ok("cli", "--server", "http://127.0.0.1:1", "changefeed", "list", "--server", cli.address, "--log-level=warn") == "[]\n"


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("http://127.0.0.1:1", "cannot be reached: [Errno 111] Connection refused. Is `tidemill server` running there?"),
        ("ftp://x", "expected http://HOST:PORT"),
        ("https://127.0.0.1:1", "cannot be reached"),
    ],
)
def test_servers_that_do_not_answer(cli: Cli, server: str, said: str) -> None:
    code, _, err = cli("cli", "changefeed", "list", "--server", server)
    assert code == 1
    assert said in err


@pytest.mark.parametrize("answered", [b"<html>hello</html>", b"[]", b"{}", b'"x"', b'{"items": null}'])
def test_another_program_at_that_address(answered: bytes) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=answered))
    with Client("http://h:1", transport=transport) as client, pytest.raises(ServerUnavailable, match="is not a server of Tidemill"):
        client.changefeeds()


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize(
    ("headers", "answered"),
    [
        ({"Content-Encoding": "gzip"}, gzip.compress(b"[" * 1000)),
        ({}, b"[" * 200_000),
        ({}, b"[" + b"0," * (ANSWER.nodes + 1) + b"0]"),
        ({}, b"1" * 5000),
    ],
    ids=["compressed", "deep", "many values", "a long number"],
)
def test_an_answer_costs_no_more_than_it_is_worth(headers: dict[str, str], answered: bytes, status: int) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, headers=headers, stream=httpx.ByteStream(answered)))
    with Client("http://h:1", transport=transport) as client, pytest.raises(ServerUnavailable):
        client.changefeeds()


def test_an_answer_without_end_is_not_read() -> None:
    def endless() -> Iterator[bytes]:
        yield from repeat(b"a" * (1 << 20))

    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=endless()))
    with Client("http://h:1", transport=transport) as client, pytest.raises(ServerUnavailable, match="more than the limit"):
        client.changefeeds()


def test_an_error_that_is_not_ours() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(502, text="Bad gateway"))
    with Client("http://h:1", transport=transport) as client, pytest.raises(ServerUnavailable, match="answers 502: Bad gateway"):
        client.tso()


@pytest.mark.parametrize(("name", "path"), [("..", "%2E%2E"), ("a/../b", "a%2F..%2Fb"), ("a?b#c", "a%3Fb%23c")])
def test_a_name_is_one_segment_of_the_path(name: str, path: str) -> None:
    assert feed_path(name, "/pause") == f"/api/v2/changefeeds/{path}/pause"


def test_users_and_passwords(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, _, err = cli("cli", "changefeed", "list", "--password", "geheim")
    assert code == 1
    assert "a password is given without a user" in err
    assert "geheim" not in err
    cli.ok("cli", "changefeed", "list", "--user", "a", "--password", "b")
    monkeypatch.setenv("TICDC_USER", "a")
    cli.ok("cli", "changefeed", "list")
    (tmp_path / "token").write_text("abc\n")
    cli.ok("cli", "changefeed", "list", "--token-file", str(tmp_path / "token"))


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["--no-confirm=true", "-c=a"], ["--no-confirm", "-c", "a"]),
        (["--all=false", "--server=http://a"], ["--server=http://a"]),
        (["-c", "a=b", "--", "-c=a"], ["-c", "a=b", "--", "-c=a"]),
        (["--no-confirm=maybe"], ["--no-confirm=maybe"]),
    ],
)
def test_ticdcs_spellings(given: list[str], read: list[str]) -> None:
    assert spelled(given) == read


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0s"), (250, "250ms"), (1500, "1.5s"), (60_000, "1m0s"), (3_600_000, "1h0m0s"), (259_158_394, "71h59m18.394s"), (-1500, "-1.5s")],
)
def test_durations_as_go_prints_them(ms: int, text: str) -> None:
    assert go_duration(ms) == text


def test_a_file_is_put_over_a_configuration() -> None:
    old: dict[str, Any] = {"a": 1, "sink": {"protocol": "x", "csv": {"quote": "q"}}, "filter": {"rules": ["a"]}}
    assert merged(old, {"sink": {"csv": {"null": "n"}}, "filter": {"rules": ["b"]}}) == {
        "a": 1, "sink": {"protocol": "x", "csv": {"quote": "q", "null": "n"}}, "filter": {"rules": ["b"]},
    }  # fmt: skip
    assert diff(old, old) == []


def test_a_server_with_tls(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    for name in ("server", "ops"):
        authority.sign(name).write(tmp_path, name)
    ca, cert, key = (str(tmp_path / name) for name in ("ca.pem", "ops.pem", "ops.key"))
    files = Certificates(tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "ca.pem", ("ops",))
    with served(FakeService(), certificates=files) as address:
        monkeypatch.setenv("TIDEMILL_SERVER", address)
        assert cli.ok("cli", "changefeed", "list", "--ca", ca, "--cert", cert, "--key", key) == "[]\n"
        for name, value in (("CA", ca), ("CERT", cert), ("KEY", key)):
            monkeypatch.setenv(f"TICDC_{name}_PATH", value)
        assert cli.ok("changefeed", "list", "-o", "json") == "[]\n"
        monkeypatch.delenv("TICDC_CERT_PATH")
        assert "--cert and --key go together" in cli("changefeed", "list")[2]
        monkeypatch.delenv("TICDC_KEY_PATH")
        assert "cannot be reached" in cli("changefeed", "list")[2]
        assert "plain HTTP, but certificates are given" in cli("changefeed", "list", "--server", f"http://{address}")[2]


def test_databases_are_read_at_the_gc_safe_point(cli: Cli) -> None:
    with PlaygroundThread(seed=1) as playground:
        pd = ("cli", "unsafe", "verify-gc-safepoint", "-k", "default", "--pd", playground.pd_address)
        assert cli(*pd)[2].startswith("Error: [CDC:ErrGetServiceSafepointFailed]safepoint is zero")
        call(playground.pd_address, "sql", text="create database one; create database two")
        ts = call(playground.pd_address, "gc", life_time_ms=0)["safe_point"]
        lines = cli.ok(*pd).splitlines()
    assert lines[0].startswith(f"WARNING: this verification holds no service safepoint; GC may advance past snapshot {ts} before")
    assert lines[1].startswith(f"GC safepoint and ListDatabases verified, snapshot-ts: {ts}, databases: ")
    code, _, said = cli("cli", "unsafe", "verify-gc-safepoint", "-k", "default")
    assert (code, said) == (1, "Error: [CDC:ErrInvalidServerOption]Empty PD address. Please use --pd to specify PD cluster addresses\n")
