"""`tidemill changefeed …` against a server."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.support.server.command_line import Cli
from tidemill import tso
from tidemill.server.service import TableName

KAFKA = "kafka://h:1/t?protocol=canal-json"


def create(cli: Cli, name: str = "orders", uri: str = KAFKA) -> None:
    assert f"changefeed {name} is created" in cli.ok("changefeed", "create", name, "--sink-uri", uri)


def test_create_takes_times_as_people_write_them(cli: Cli) -> None:
    cli.ok("changefeed", "create", "-c", "orders", "--sink-uri", KAFKA, "--start-ts=-2h", "--target-ts", "2099-01-01T00:00:00Z")
    wanted = next(what for name, what in cli.service.calls if name == "create")
    assert wanted.start_ts == cli.service.now - (7_200_000 << 18)
    assert f"{tso.when(wanted.target_ts):%Y-%m-%d}" == "2099-01-01"
    assert wanted.ignore_ineligible_tables


def test_create_names_tables_that_are_left_out(cli: Cli, tmp_path: Path) -> None:
    cli.service.ineligible = (TableName("shop", "no_key", 9, is_partition=False),)
    code, out, err = cli("changefeed", "create", "orders", "--sink-uri", KAFKA)
    assert (code, out.count("\n")) == (0, 1)
    assert err.startswith("[WARN] these tables have no primary key")
    assert "shop.no_key" in err
    config = tmp_path / "feed.toml"
    config.write_text("force-replicate = true\n")
    assert cli("changefeed", "create", "all", "--sink-uri", KAFKA, "--config", str(config))[2] == ""


def test_list_and_show(cli: Cli) -> None:
    assert "There is no changefeed" in cli.ok("changefeed", "list")
    create(cli)
    assert "orders  normal" in cli.ok("changefeed", "list")
    cli.service.fail("orders")
    shown = cli.ok("changefeed", "show")
    assert "CDC:ErrKafkaSendMessage: the broker is away. Look at the broker." in shown
    assert json.loads(cli.ok("changefeed", "list", "-o", "json"))[0]["id"] == "orders"
    assert json.loads(cli.ok("changefeed", "show", "orders", "--output", "json"))["sink_uri"] == KAFKA
    assert tomllib.loads(cli.ok("changefeed", "show", "-c", "orders", "--toml"))["filter"] == {"rules": ["*.*"]}


def test_the_flag_that_names_a_server(cli: Cli) -> None:
    """The hint of a server that is not there names the flag that the command has; with it the command works."""
    for command, flag in ((["changefeed", "list"], "--server"), (["top", "--once"], "--addr")):
        code, _, err = cli(*command, flag, "127.0.0.1:9")
        assert code == 1
        assert f"Name its address with {flag}." in err
        assert cli(*command, flag, cli.address)[0] == 0


def test_the_cause_of_an_error_is_seen_in_the_list(cli: Cli) -> None:
    create(cli)
    cause = "127.0.0.1:3306: error 1045: Access denied for user 'root'@'localhost' (using password: YES) on a server with a long address"
    cli.service.fail("orders", "TM:ErrSink", f"{cause}\n(batch 5 of orders, (470743947947802624, 470743948210208768], 3 attempts)")
    assert cause in cli.ok("changefeed", "list")


def test_a_rule_that_matches_nothing_is_said_when_it_is_created(cli: Cli, tmp_path: Path) -> None:
    config = tmp_path / "feed.toml"
    config.write_text('[filter]\nrules = ["shop.*", "shp.*"]\n')
    said = "[WARN] filter rule 'shp.*' matches no table that is there now; did you mean `shop.*`?\n"
    code, out, err = cli("changefeed", "create", "orders", "--sink-uri", KAFKA, "--config", str(config))
    assert (code, out.startswith("changefeed orders is created"), err) == (0, True, said)
    code, _, err = cli("cli", "changefeed", "create", "-c", "other", "--sink-uri", KAFKA, "--config", str(config), "--no-confirm")
    assert (code, err) == (0, said)


def test_which_one_is_meant(cli: Cli) -> None:
    assert "has 0 changefeeds" in cli("changefeed", "pause")[2]
    create(cli)
    assert cli.ok("changefeed", "pause") == "changefeed orders is paused\n"
    create(cli, "items")
    assert "has 2 changefeeds: items, orders" in cli("changefeed", "show")[2]
    assert "two changefeeds are named" in cli("changefeed", "show", "items", "-c", "orders")[2]
    code, _, err = cli("changefeed", "show", "no")
    assert (code, err) == (1, "Error CDC:ErrChangeFeedNotExists: changefeed not exists, no\n")


def test_resume_without_a_row(cli: Cli) -> None:
    create(cli)
    row = "shop.t:748000000000000001@470000000000000001"
    assert cli.ok("changefeed", "resume", "orders", "--skip-row", row) == "changefeed orders goes on\n"
    assert ("resume", (row,)) in cli.service.calls
    assert "expected DATABASE.TABLE:KEY@COMMIT_TS" in cli("changefeed", "resume", "orders", "--skip-row", "shop.t")[2]


def test_resume(cli: Cli) -> None:
    create(cli)
    cli.ok("changefeed", "pause")
    assert cli.ok("changefeed", "resume") == "changefeed orders goes on\n"
    assert cli("changefeed", "resume", "--overwrite-checkpoint-ts=-1h", typed="n\n")[0] == 1
    cli.ok("changefeed", "resume", "--overwrite-checkpoint-ts=-1h", "-y")
    assert cli.service.feeds["orders"].checkpoint_ts == cli.service.now - (3_600_000 << 18)


def test_update_says_from_when_on_and_goes_on(cli: Cli, tmp_path: Path) -> None:
    create(cli)
    file = tmp_path / "feed.toml"
    file.write_text('[filter]\nrules = ["shop.*"]\n')
    asked = ("changefeed", "update", "--config", str(file), "--sink-uri", "kafka://h:2/t?protocol=canal-json")
    code, out, _ = cli(*asked, typed="n\n")
    assert code == 1
    assert "address: h:1 → h:2 (at once: " in out
    assert "filter: none → " in out
    assert "(from the checkpoint: " in out
    assert "goes on" in cli.ok(*asked, "-y")
    assert cli.service.feeds["orders"].state == "normal"
    assert [name for name, _ in cli.service.calls if name in ("pause", "update", "resume")] == ["pause", "update", "resume"]
    assert "nothing of changefeed orders changes" in cli.ok(*asked)


def test_an_update_that_is_refused_leaves_it_running(cli: Cli) -> None:
    create(cli)
    code, _, err = cli("changefeed", "update", "--sink-uri", "mysql://u:p@h:1/", "-y")
    assert code == 1
    assert "scheme, kafka → mysql" in err
    assert "another kind of sink" in err
    assert cli.service.feeds["orders"].state == "normal"


def test_an_update_of_a_stopped_one_leaves_it_stopped(cli: Cli) -> None:
    create(cli)
    cli.ok("changefeed", "pause")
    assert "Resume it: tidemill changefeed resume orders" in cli.ok("changefeed", "update", "--target-ts", str(cli.service.now + 1), "-y")
    assert cli.service.feeds["orders"].state == "stopped"


def test_remove(cli: Cli) -> None:
    create(cli)
    assert "not named" in cli("changefeed", "remove")[2]
    assert cli("changefeed", "remove", "orders", typed="n\n")[0] == 1
    assert "changefeed orders is removed. Everything up to" in cli.ok("changefeed", "remove", "orders", "--yes")


@pytest.fixture
def query(cli: Cli, tmp_path: Path) -> Path:
    """What `cdc cli changefeed query` printed of a changefeed that is stopped."""
    cli.ok(
        "cli", "changefeed", "create", "-c", "taken", "--sink-uri", KAFKA, "--no-confirm", "--start-ts", str(cli.service.now - (5000 << 18))
    )
    cli.ok("cli", "changefeed", "pause", "-c", "taken")
    file = tmp_path / "query.json"
    file.write_text(cli.ok("cli", "changefeed", "query", "-c", "taken"))
    cli.ok("changefeed", "remove", "taken", "-y")
    return file


def test_a_changefeed_of_ticdc_goes_on_from_its_checkpoint(cli: Cli, query: Path) -> None:
    out = cli.ok("changefeed", "create", "--from-ticdc", str(query))
    assert "changefeed taken is created" in out
    assert "cdc cli changefeed remove -c taken" in out
    info = cli.service.feeds["taken"]
    assert (info.checkpoint_ts, cli.service.secrets["taken"]) == (cli.service.now - (5000 << 18), KAFKA)


def test_one_that_still_runs_asks(cli: Cli, query: Path) -> None:
    query.write_text(query.read_text().replace('"stopped"', '"normal"'))
    code, out, _ = cli("changefeed", "create", "--from-ticdc", str(query), typed="n\n")
    assert code == 1
    assert "cdc cli changefeed pause -c taken" in out
    assert "is created" in cli.ok("changefeed", "create", "other", "--from-ticdc", str(query), "-y")


def test_hidden_secrets_have_to_be_given(cli: Cli, query: Path) -> None:
    query.write_text(query.read_text().replace(KAFKA, KAFKA + "&sasl-user=u&sasl-password=xxxxx"))
    code, _, err = cli("changefeed", "create", "--from-ticdc", str(query))
    assert code == 1
    assert "TiCDC hides secrets of the sink URI" in err
    uri = KAFKA + "&sasl-user=u&sasl-password=p"
    cli.ok("changefeed", "create", "--from-ticdc", str(query), "--sink-uri", uri)
    assert cli.service.secrets["taken"] == uri
