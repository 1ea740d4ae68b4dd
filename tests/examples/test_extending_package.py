"""The example of a package that extends Tidemill, installed as a user would do it: its sink, protocol, source and command are there."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.runs import tidemill
from tidemill import plugins
from tidemill.changefeed.replay import replay
from tidemill.changelog.log_format import LogIdentity
from tidemill.config.file import parse_config
from tidemill.config.uri import parse_sink_uri
from tidemill.delivery.inputs.table_router import Settings
from tidemill.doctor.downstream import downstream
from tidemill.doctor.host import packages
from tidemill.errors import ConfigError

PACKAGE = Path(__file__).parents[2] / "examples/tidemill-sink-example"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the package."""
    root = tmp_path_factory.mktemp("extend")
    shutil.copytree(PACKAGE, root / "source", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    target = root / "site"
    options = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--target", str(target))
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(root / "source")], check=True, capture_output=True)
    return target


@contextmanager
def found_in(folder: Path) -> Iterator[None]:
    """A process in which the packages of a folder are found; it forgets them afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        plugins.offered.cache_clear()
        yield
    plugins.offered.cache_clear()


@pytest.fixture
def extended(site: Path) -> Iterator[None]:
    """This process with the package."""
    with found_in(site):
        yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "tidemill_sink_example"]:
        del sys.modules[name]


@pytest.mark.usefixtures("extended")
def test_a_changefeed_of_the_packages_sink_and_protocol(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))")
    sql.run("INSERT INTO t VALUES (1, 'a'), (2, 'b')", "UPDATE t SET v = 'c' WHERE id = 1", "DELETE FROM t WHERE id = 2")
    sql.run("ALTER TABLE t ADD COLUMN n INT DEFAULT 5", "INSERT INTO t VALUES (3, 'd', 7)")
    config = parse_config("")
    sink = config.sink_uri(f"journal://{tmp_path}/j.txt?protocol=tabs&mark=%3E")
    assert (sink.scheme, sink.protocol, sink.own, sink.warnings) == ("journal", "tabs", {"mark": ">"}, ())
    replay(sql.write(tmp_path / "log"), Settings("f", sink, config, UTC))
    lines = [line for line in (tmp_path / "j.txt").read_text().splitlines() if "@" not in line]
    assert lines == [
        "> tidemill/0 +\t1\ta",
        "> tidemill/0 +\t2\tb",
        "> tidemill/0 =\t1\tc",
        "> tidemill/0 -\t2\tb",
        "> tidemill/0 ! ALTER TABLE `t` ADD COLUMN `n` INT DEFAULT 5",
        "> tidemill/0 +\t3\td\t7",
    ]
    code, counted, _ = tidemill(capsys, "journal", tmp_path / "j.txt")
    assert (code, counted.partition(":")[0]) == (0, "tidemill/0")
    assert "journal" in tidemill(capsys, "--help")[1]


@pytest.mark.usefixtures("extended")
def test_config_check_and_doctor_know_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "feed.toml").write_text("")
    check = ("config", "check", tmp_path / "feed.toml", "--sink-uri")
    code, told, _ = tidemill(capsys, *check, f"journal://{tmp_path}/j?protocol=tabs&mark=%3E")
    assert code == 0
    assert "mark" in told
    code, _, error = tidemill(capsys, *check, f"journal://{tmp_path}/j?protocol=tabs&marc=1")
    assert (code, "did you mean `mark`" in error) == (1, True)
    assert "no protocol" in tidemill(capsys, *check, f"journal://{tmp_path}/j")[2]
    found = [finding.text for finding in packages()]
    assert len(found) == 4
    assert "tidemill-sink-example brings journal (tidemill.sinks)" in found
    assert [finding.health.value for finding in downstream(parse_sink_uri(f"journal://{tmp_path}/absent/j?protocol=tabs"))] == ["failed"]


@pytest.mark.usefixtures("extended")
def test_a_log_of_the_packages_source(tmp_path: Path) -> None:
    source = importlib.import_module("tidemill_sink_example.source")
    made = source.open_source(type("Config", (), {"log": str(tmp_path / "log"), "partitions": 2})())
    for _ in range(2):  # made, then opened again
        with made.open() as writer:
            made.publish(writer, source.now() + (2 << 18))
    text = (tmp_path / "log/log.json").read_text()
    assert json.loads(text)["source"] == "made-up"
    assert LogIdentity.from_json(text).source == "made-up"


def brings(folder: Path, group: str, name: str, place: str) -> Path:
    """A folder with a package that has one entry point."""
    info = folder / "other-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {place}\n")
    return folder


@pytest.mark.parametrize(
    ("place", "why"),
    [("no_such_module:X", "No module named"), ("tidemill.tso:absent", "has no attribute"), ("tidemill.tso:compose", "not a SinkSpec")],
)
def test_a_broken_package_is_named(tmp_path: Path, place: str, why: str) -> None:
    with (
        found_in(brings(tmp_path, plugins.SINKS, "broken", place)),
        pytest.raises(ConfigError, match=f"package other: the entry point tidemill.sinks: broken = .*{why}"),
    ):
        parse_sink_uri("broken:///x?protocol=csv")


@pytest.mark.parametrize(
    ("group", "name", "ask"),
    [
        (plugins.SINKS, "kafka", "ducks://h/t?protocol=csv"),
        (plugins.SINKS, "tidb", "ducks://h/t?protocol=csv"),
        (plugins.PROTOCOLS, "csv", "file:///x?protocol=quack"),
    ],
)
def test_what_is_built_in_cannot_be_taken_over(tmp_path: Path, group: str, name: str, ask: str) -> None:
    with found_in(brings(tmp_path, group, name, "tidemill.tso:compose")):
        assert parse_sink_uri("kafka://h:1/t?protocol=open-protocol").spec.name == "kafka"
        with pytest.raises(ConfigError, match=f"package other: .* {name} = .*it is built in"):
            parse_sink_uri(ask)
        assert [finding.health.value for finding in packages()] == ["failed"]


def test_a_verb_that_is_built_in_cannot_be_taken_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with found_in(brings(tmp_path, plugins.COMMANDS, "tso", "tidemill.tso:compose")):
        assert tidemill(capsys, "tso", "470762191308718080")[0] == 0
        code, _, error = tidemill(capsys, "quack")
    assert (code, "it is built in" in error) == (1, True)


def test_what_is_built_in_reads_no_entry_points(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def read(**group: str) -> None:
        raise AssertionError("entry points are read")

    plugins.offered.cache_clear()
    monkeypatch.setattr(plugins, "entry_points", read)
    for uri in ("kafka://h:1/t?protocol=simple", "file:///x?protocol=csv", "mysql://u@h/", "delta:///x", "blackhole://", "canal:///x"):
        assert parse_sink_uri(uri).spec.name
    assert tidemill(capsys, "tso", "470762191308718080")[0] == 0
