"""The address of the schema registry is taken from the flag, the sink URI or the TOML file, in this order. Its password is shown
nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.runs import tidemill
from tests.support.servers.registries import Fault, Front, MemoryRegistry, Reply
from tidemill.config.file import parse_config
from tidemill.config.registry_address import with_registry
from tidemill.playground.server import PlaygroundThread
from tidemill.sinks.kafka import options

TOML = "[sink]\n{registry}dispatchers = [\n {{matcher = ['*.*'], topic = \"tidb_{{schema}}_{{table}}\"}},\n]\n"


@pytest.fixture
def fronts() -> Iterator[dict[str, Front]]:
    with Front(MemoryRegistry()) as flag, Front(MemoryRegistry()) as uri, Front(MemoryRegistry()) as toml:
        yield {"flag": flag, "uri": uri, "toml": toml}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY)")
    sql.run("INSERT INTO t VALUES (1)")
    return sql.write(tmp_path_factory.mktemp("sql") / "log")


@pytest.mark.parametrize(
    ("given", "asked"),
    [(("flag", "uri", "toml"), "flag"), (("uri", "toml"), "uri"), (("toml",), "toml"), (("flag", "toml"), "flag"), (("flag",), "flag")],
)
def test_the_first_that_is_given_counts(
    fronts: dict[str, Front], log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], asked: str
) -> None:
    config = tmp_path / "changefeed_config.toml"
    config.write_text(TOML.format(registry=f"schema-registry = '{fronts['toml'].url}'\n" if "toml" in given else ""))
    uri = f"messages://{tmp_path}/out?protocol=avro"
    uri += f"&schema-registry={quote(fronts['uri'].url, safe='')}" if "uri" in given else ""
    flag = [f"--schema-registry={fronts['flag'].url}"] if "flag" in given else []
    status, _, err = tidemill(capsys, "replay", "--log", log, "--sink-uri", uri, "--config", config, *flag)
    assert status == 0, err
    assert {name: bool(front.registered) for name, front in fronts.items()} == {name: name == asked for name in fronts}


def test_avro_without_a_registry_is_refused(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = tidemill(capsys, "replay", "--log", log, "--sink-uri", f"messages://{tmp_path}/out?protocol=avro")
    assert (status, out) == (1, "")
    assert err.startswith("Error TM:ErrConfig: ")
    assert "schema-registry" in err


@pytest.mark.parametrize("verb", ["run", "replay"])
@pytest.mark.parametrize("address", ["h:8081", "https://u:SECRET@h?tls=on", "http://u:SEC/RET@h"])
def test_an_address_that_is_none_is_refused_at_once(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, address: str
) -> None:
    uri = f"messages://{tmp_path}/out?protocol=avro"
    where = ("--pd", "127.0.0.1:1", "--data-dir", tmp_path / "data") if verb == "run" else ()
    status, _, err = tidemill(capsys, verb, "--log", log, "--sink-uri", uri, f"--schema-registry={address}", *where)
    assert status == 1
    assert "Error TM:ErrConfig: schema registry: " in err
    assert "SEC" not in err


@pytest.fixture(scope="module")
def upstream() -> Iterator[PlaygroundThread]:
    with PlaygroundThread(seed=5) as playground:
        yield playground


NO_REGISTRY = Fault(Reply(404, b"<html>no such page</html>"))
UNAUTHORIZED = Fault(Reply(401, b'{"error_code": 40101, "message": "Unauthorized"}'))


@pytest.mark.parametrize("verb", ["run", "replay"])
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault(), "TM:ErrSchemaRegistryUnavailable"),
        (UNAUTHORIZED, "TM:ErrSchemaRegistry"),
        (NO_REGISTRY, "TM:ErrSchemaRegistryUnavailable"),
    ],
)
def test_a_registry_is_asked_before_anything_starts(
    upstream: PlaygroundThread,
    fronts: dict[str, Front],
    log: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    verb: str,
    fault: Fault,
    code: str,
) -> None:
    """It is asked once, and told at once; no log is made, nothing is delivered."""
    fronts["uri"].fault = fault
    uri = with_registry(f"messages://{tmp_path}/out?protocol=avro", fronts["uri"].url)
    more = ("--pd", upstream.pd_address, "--data-dir", tmp_path / "data") if verb == "run" else ()
    where = tmp_path / "new" if verb == "run" else log
    status, _, err = tidemill(capsys, verb, "--log", where, "--sink-uri", uri, *more)
    assert (status, f"Error {code}: {fronts['uri'].url} was asked for its subjects" in err) == (1, True), err
    assert fronts["uri"].requests == [("GET", "/subjects")]
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", ["run", "replay"])
def test_brokers_are_asked_before_anything_starts(
    upstream: PlaygroundThread, log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(options, "METADATA_TIMEOUT", 1.0)
    more = ("--pd", upstream.pd_address, "--data-dir", tmp_path / "data") if verb == "run" else ()
    where = tmp_path / "new" if verb == "run" else log
    status, _, err = tidemill(capsys, verb, "--log", where, "--sink-uri", "kafka://127.0.0.1:1/t?protocol=open-protocol", *more)
    assert (status, "Error TM:ErrSinkUnavailable: Kafka 127.0.0.1:1: describing topic" in err) == (1, True), err
    assert not (tmp_path / "new").exists()


def test_another_protocol_only_warns(fronts: dict[str, Front], log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = f"messages://{tmp_path}/out?protocol=open-protocol"
    status, _, err = tidemill(capsys, "replay", "--log", log, "--sink-uri", uri, f"--schema-registry={fronts['flag'].url}")
    assert status == 0, err
    assert "schema-registry" in err
    assert fronts["flag"].requests == []


def test_an_address_in_the_file_is_not_written_down() -> None:
    config = parse_config(TOML.format(registry="schema-registry = 'https://us3r:SECRET@h'\n"))
    sink = config.sink_uri("messages:///o?protocol=avro")
    dumped = config.model_dump(mode="json", by_alias=True)
    for shown in (repr(config), str(dumped), config.model_dump_json(), repr(sink), str(sink)):
        assert "SECRET" not in shown
