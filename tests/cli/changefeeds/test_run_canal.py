"""`tidemill run` with a canal:// sink: a third process serves the store. What its server would not take is refused first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.canal.server_runs import one_destination
from tidemill.canal.server.config import load_settings
from tidemill.capture.config import CaptureConfig
from tidemill.changefeed.feed_folder import FeedFolder
from tidemill.changefeed.run_status import RunStatus
from tidemill.changefeed.runner_options import Options as FeedOptions
from tidemill.cli.changefeeds.launch import Options, Times, check_canal, children
from tidemill.cli.changefeeds.run import checked_sink
from tidemill.config.file import parse_config
from tidemill.config.uri import server_id_of, with_store
from tidemill.errors import ConfigError

SINK = "canal://127.0.0.1:11111/orders"


def options_for(folder: Path, sink: str) -> Options:
    config = parse_config("")
    whole = with_store(sink, str(folder / "data" / "canal"))
    feed = FeedOptions("f", str(folder / "log"), folder / "data", whole, config, tz="UTC")
    return Options(CaptureConfig(("h:1",), feed.log), feed, checked_sink(config, whole))


def test_a_server_runs_beside_its_changefeed(tmp_path: Path) -> None:
    options = options_for(tmp_path, SINK + "?get.wait=any&start-ts=2026-01-01T00:00:00Z")
    folder = FeedFolder(tmp_path, "f")
    *_, server = children(options, Times(1, 2, 3), folder)
    assert server.name == "canal"
    order = json.loads(server.order())["order"]
    assert [order[name] for name in ("listen", "destination", "get_wait")] == ["127.0.0.1:11111", "orders", "any"]
    assert order["store"] == str(tmp_path / "data" / "canal")
    folder.path.mkdir(parents=True)
    status = {"checkpoint_ts": 7, "begins": 1, "connections": 2, "refused": 0, "clients": []}
    folder.server.write_text(json.dumps(status))
    health = RunStatus(folder, [server])
    assert health.snapshot()["canal"] == status
    assert "tidemill_canal_connections" in {sample.name for sample in health.samples()}


def test_only_a_store_needs_no_server(tmp_path: Path) -> None:
    found = children(options_for(tmp_path, f"canal://{tmp_path}/store"), Times(1, 2, 3), FeedFolder(tmp_path, "f"))
    assert [child.name for child in found] == ["capture", "changefeed"]
    assert "canal" not in RunStatus(FeedFolder(tmp_path, "f"), found).snapshot()


def test_a_store_may_be_served_elsewhere_and_otherwise(tmp_path: Path) -> None:
    """Address, destination and waiting are not part of what a changefeed is bound to; the store is."""
    one = options_for(tmp_path, SINK).sink.identity
    assert options_for(tmp_path, "canal://0.0.0.0:9/other?get.wait=any").sink.identity == one
    assert options_for(tmp_path, SINK + "?store=/elsewhere").sink.identity != one
    assert parse_config('[canal]\n"canal.user" = "u"\n').given() == parse_config("").given()


def test_headers_have_a_number_of_the_cluster(tmp_path: Path) -> None:
    sink = options_for(tmp_path, SINK).sink
    number = server_id_of("7381920374651029384")
    assert 0 < number < 1 << 31
    assert sink.of_cluster("7381920374651029384").encoding.canal_server_id == number
    assert checked_sink(parse_config(""), sink.of_cluster("7381920374651029384").text).encoding.canal_server_id == number
    assert options_for(tmp_path, SINK + "?server-id=5").sink.of_cluster("7").encoding.canal_server_id == 5
    assert server_id_of(str(1 << 32 | 1)) == 1  # folded to 0


def test_enum_and_set_as_text_are_the_sinks(tmp_path: Path) -> None:
    """Entries are made once, so all clients of a store get the same. From one start to the next it may change."""
    one, other = options_for(tmp_path, SINK).sink, options_for(tmp_path, SINK + "?enum-set-as-text=true").sink
    assert (one.encoding.canal_member_names, other.encoding.canal_member_names) == (False, True)
    assert one.identity == other.identity


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[canal.destinations."orders"]\n"canal.instance.memory.buffer.size" = "1024"', "canal.instance.memory.buffer.size"),
        ('[canal]\n"canal.instance.filter.regexp" = "a"', "did you mean `canal.instance.filter.regex`"),
        ('[canal]\n"canal.passwd" = "secret"', "canal.passwd"),
        ('[canal]\n"canal.mq.topic" = "t"', "kafka://"),
        ('[canal]\n"canal.instance.filter.regex" = "("', "does not compile"),
        ("[canal]\ninstance.filter.regex = 3", "put Canal's names in quotes"),
        ('[canal.destinations."orders"]\n"canal.port" = "1"', "is of the server"),
        ("canal = 3", "canal"),
    ],
)
def test_what_the_server_would_not_take_is_named(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "feed.toml"
    path.write_text(text + "\n")
    with pytest.raises(ConfigError, match=named.replace("(", r"\(")) as raised:
        check_canal(options_for(tmp_path, SINK).sink.canal, path)
    assert "secret" not in str(raised.value)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        one_destination({"canal.instance.gtidon": "true", "canal.instance.get.ddl.isolation": "maybe", "x": "y"})
    assert all(word in str(raised.value) for word in ("gtidon", "isolation", "x is unknown"))


def test_canals_own_files(tmp_path: Path) -> None:
    (tmp_path / "canal.properties").write_text(
        "# comment\ncanal.port = 11112\ncanal.destinations= one , two\ncanal.instance.filter.regex=.*\\\\..*\n"
    )
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "instance.properties").write_text("canal.instance.filter.black.regex=a\\\\.b,\\\n   c\\\\.d\n")
    found = load_settings(tmp_path / "canal.properties")
    assert (found.port, sorted(found.destinations)) == (11112, ["one", "two"])
    assert found.destinations["one"].black == r"a\.b,c\.d"
    assert found.destinations["two"].filter == r".*\..*"
