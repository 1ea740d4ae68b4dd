"""`tidemill config check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidemill.cli.changefeeds.config import together
from tidemill.cli.main import main

FEED = """
force-replicate = true
memory-quota = 1
[filter]
rules = ["shop.*"]
[[filter.event-filters]]
matcher = ["shop.log"]
ignore-event = ["delete"]
ignore-insert-value-expr = "level < 3"
[[sink.dispatchers]]
matcher = ["shop.orders"]
partition = "columns"
columns = ["customer"]
topic = "orders_{table}"
[[sink.column-selectors]]
matcher = ["shop.users"]
columns = ["*", "!phone"]
[sink.kafka-config]
sasl-user = "zq8"
sasl-password = "zq7"
compression = "lz4"
partition-num = 6
"""


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    code = ended.value.code
    out, err = capsys.readouterr()
    return (code if isinstance(code, int) else 0), out, err


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    path = tmp_path / "feed.toml"
    path.write_text(FEED)
    return path


def test_every_setting_is_explained(feed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = "kafka://b:1/t?protocol=open-protocol&partition-num=3&max-message-bytes=1000"
    code, out, _ = run(["config", "check", str(feed), "--sink-uri", uri, "--output", "json"], capsys)
    assert code == 0
    told = json.loads(out)
    by_name = {s["name"]: s for s in told["settings"]}
    assert by_name["force-replicate"] == {
        "name": "force-replicate", "value": "true", "default": "false", "source": "file",
        "about": "tables without a usable key are delivered too",
    }  # fmt: skip
    assert [by_name[n]["source"] for n in ("case-sensitive", "filter.rules", "partition-num", "compression", "max-batch-size")] == [
        *("default", "file", "sink URI", "file", "default"),
    ]
    assert (by_name["partition-num"]["value"], by_name["compression"]["value"], by_name["max-message-bytes"]["value"]) == (
        "3",
        "lz4",
        "1000",
    )
    assert by_name["sink.dispatchers[0]"]["about"] == "their rows go to topic orders_{table}, by the columns customer"
    assert by_name["filter.event-filters[0].ignore-insert-value-expr"]["value"] == '"level < 3"'
    assert by_name["sink.column-selectors[0]"]["about"] == "their messages have the columns *, !phone"
    assert "date-separator" not in by_name, "it is for storage sinks"
    assert "csv-delimiter" not in by_name, "it is for another protocol"
    assert told["warnings"][0].endswith(
        "memory-quota has no meaning for Tidemill: the change log keeps changes on disk, whatever their size"
    )
    assert "zq7" not in out
    assert "zq8" not in out


BROKEN = """
force-replicate = "yes"
force-replicat = true
enable-active-active = true
[filter]
rules = "shop.*"
[[filter.event-filters]]
ignore-event = ["delete"]
ignore-sql = ["("]
[[sink.dispatchers]]
matcher = ["a b.c"]
[sink.kafka-config]
partition-num = "6"
sasl-password = 7
"""


def test_every_fault_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "feed.toml"
    path.write_text(BROKEN)
    uri = "kafka://b:1/t?protocl=x&max-message-bytes=0&sasl-password=zq7&sasl-mechanism=zq"
    code, _, err = run(["config", "check", str(path), "--sink-uri", uri], capsys)
    assert code == 1
    first, *lines = err.splitlines()
    lines = [line for line in lines if not line.startswith("    ")]  # the others say what to do
    assert first == f"Error TM:ErrConfig: {len(lines)} faults:"
    assert [line.removeprefix("  ").removeprefix(f"{path}: ") for line in lines] == [
        "unknown key force-replicat; did you mean `force-replicate`?",
        "enable-active-active is not supported yet",
        "force-replicate = 'yes': expected a valid boolean, as in force-replicate = true",
        "filter.rules = 'shop.*': expected a valid list, as in rules = [\"shop.*\"]",
        'filter.event-filters[0].matcher: Field required, as in matcher = ["db.table"]',
        "filter.event-filters[0].ignore-sql[0] = '(': error parsing regexp: missing closing ): `(`",
        "sink.kafka-config.partition-num = '6': expected a valid integer, as in partition-num = 6",
        'sink.kafka-config.sasl-password: expected a valid string, as in sasl-password = "xxxxx"',
        "sink URI: unknown parameter protocl; did you mean `protocol`?",
        "sink URI: max-message-bytes = '0': expected an integer from 1 to 1000000000",
        "sink URI: sasl-mechanism = 'zq': expected one of plain, scram-sha-256, scram-sha-512",
    ]
    code, out, err = run(["config", "check", str(path), "--sink-uri", uri, "--output", "json"], capsys)
    faults = json.loads(out)["faults"]
    assert (code, err, len(faults)) == (1, "", len(lines))
    assert faults[0] == {"code": "TM:ErrConfig", "message": lines[0].strip(), "hint": ""}
    assert "zq7" not in out


def test_every_rule_is_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "feed.toml"
    path.write_text("""
[filter]
rules = ["a b.c", "x.y", "z"]
[[sink.dispatchers]]
matcher = ["/(/.t"]
[[sink.column-selectors]]
matcher = ["[.t"]
columns = ["a b", "*"]
""")
    code, _, err = run(["config", "check", str(path)], capsys)
    assert code == 1
    told = ["filter.rules: 'a b.c'", "filter.rules: 'z'", "sink.dispatchers[0].matcher: '/(/.t'", "sink.column-selectors[0].matcher: '[.t'"]
    lines = err.splitlines()[1:]
    assert [any(line.startswith(f"  {one}") for line in lines) for one in told] == [True] * 4
    assert any(line.startswith("  sink.column-selectors[0].columns: 'a b'") for line in lines)
    assert len(lines) == 5


def test_text_for_people(feed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(["config", "check", str(feed), "--sink-uri", "kafka://b:1/t?protocol=open-protocol"], capsys)
    assert code == 0
    lines = out.splitlines()
    assert any(
        line.split() == ["compression", "=", "lz4", "file", "of", "Kafka's", "record", "batches", "(default:", "none)"] for line in lines
    )
    assert any(line.startswith("warning: ") for line in lines)
    assert lines[-1] == f"{feed}: OK, 1 warning"


def test_without_a_sink_only_what_the_file_sets(feed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(["config", "check", str(feed), "--output", "json"], capsys)
    assert code == 0
    names = [s["name"] for s in json.loads(out)["settings"]]
    assert "compression" in names
    assert "max-message-bytes" not in names


@pytest.mark.parametrize(
    ("text", "more", "fault"),
    [
        ("force-replicat = true", [], "did you mean `force-replicate`?"),
        ("[sink]\nprotocol = 'open-protocol'", ["--sink-uri", "kafka://b:1/t?partition-num=0"], "partition-num = '0'"),
        ("[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = 'claim-check'",
         ["--sink-uri", "kafka://b:1/t?protocol=default"], "large-message-handle-option = claim-check needs claim-check-storage-uri"),
        ("[sink.kafka-config.large-message-handle]\nclaim-check-storage-uri = 'azblob://c/p?account-key=zq7'", [],
         "configuration, [sink]: claim-check-storage-uri: expected a folder or one of file://"),
        ("[sink.kafka-config.large-message-handle]\nclaim-check-storage-uri = 'azblob://c/p?account-key=zq7'",
         ["--sink-uri", "kafka://b:1/t?protocol=default"], "claim-check-storage-uri: expected a folder or one of file://"),
        ("", ["--sink-uri", "kafka://b:1/t?protocol=default&claim-check-storage-uri=azblob%3A%2F%2Fc%3Fsig%3Dzq7"], "expected a folder"),
        ("[sink]\nprotocol='avro'\nschema-registry='u:zq7@r:8081'", [], "schema registry: 'u:xxxxx@r:8081': the address has to be http://"),
        ("[sink]\nschema-registry='u:zq7@r:8081'", [], "schema registry: 'u:xxxxx@r:8081': the address has to be http://"),
        ("", ["--sink-uri", "kafka://b:1/t?protocol=avro&schema-registry=u:zq7@r"], "schema registry: 'u:xxxxx@r': the address"),
        ("", ["--sink-uri", "kafka://b:1/t?protocol=avro&schema-registry=http://u:zq7/x@r"], "schema registry: the address cannot be read"),
        ("[sink.kafka-config]\npartition-num = 0", [], "configuration, [sink]: partition-num = '0'"),
        ("", ["--sink-uri", "kafka://b:1/t?protocol=default&split-on-dispatch-key=true&output-raw-change-event=true"], "the opposite"),
    ],
)  # fmt: skip
def test_what_cannot_be_started_ends_with_one(
    tmp_path: Path, text: str, more: list[str], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "feed.toml"
    path.write_text(text)
    code, out, err = run(["config", "check", str(path), *more], capsys)
    assert code == 1
    assert "zq7" not in out + err
    assert err.startswith("Error TM:ErrConfig: ")
    assert fault in err


def test_storage_sinks_get_updates_of_any_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "feed.toml"
    path.write_text("[[filter.event-filters]]\nmatcher = ['*.*']\nignore-update-only-columns = ['a']")
    code, out, _ = run(["config", "check", str(path), "--sink-uri", "file:///d?protocol=open-protocol"], capsys)
    assert code == 0
    assert "warning: ignore-update-only-columns has no meaning for file://" in out


def test_keys_without_meaning_for_one_reason_are_one_line() -> None:
    """A whole configuration file of TiCDC gives few warnings."""
    of = "f.toml: {} has no meaning for Tidemill: {}".format
    found = together([of("a.b", "no"), "another thing", of("c", "cores"), of("d", "no"), "sink URI: x"])
    assert found == [
        "f.toml: a.b, d have no meaning for Tidemill: no",
        "another thing",
        "f.toml: c has no meaning for Tidemill: cores",
        "sink URI: x",
    ]
