"""Every key of TiCDC's changefeed file is known: acted on, ignored with a reason, or refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tidemill.config.file import load_config, parse_config
from tidemill.errors import ConfigError

LINES = gzip.decompress((Path(__file__).parents[1] / "golden/ticdc/toml_keys.tsv.gz").read_bytes()).decode().splitlines()
KEYS = dict(line.split("\t") for line in LINES)

REFUSED = (
    *("enable-active-active", "consistent.level"),
    *("sink.kafka-config.glue-schema-registry-config.", "sink.kafka-config.sasl-gssapi-", "sink.kafka-config.sasl-oauth-"),
    *("sink.kafka-config.codec-config.avro-include-before-value", "sink.kafka-config.codec-config.output-row-key"),
)
VALUES = {"bool": "true", "int": "2000", "uint": "2000", "float": "0.5", "string": "'x'", "[]string": "[]", "[]uint64": "[]"}


def _toml(key: str, value: str) -> str:
    """A file with one key; tables of lists have their matcher too."""
    parent, _, name = key.rpartition(".")
    if not parent:
        return f"{name} = {value}"
    if parent.endswith("[]"):
        needed = "" if name == "matcher" else "matcher = ['a.b']\n"
        needed += "columns = ['*']\n" if "selectors" in parent and name != "columns" else ""
        return f"[[{parent[:-2]}]]\n{needed}{name} = {value}"
    return f"[{parent}]\n{name} = {value}"


def _sample(kind: str) -> str:
    plain = kind.lstrip("*")
    if plain.startswith("[]"):
        return "[]"
    for word, value in VALUES.items():
        if plain.startswith(word):
            return value
    return "'x'"


def _fault(key: str) -> str:
    """What is said against a file with this key, if anything."""
    try:
        parse_config(_toml(key, _sample(KEYS[key])))
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_known(key: str) -> None:
    fault = _fault(key)
    refused = key.startswith(REFUSED) and not key.endswith(("scopes", "disable-pafxfast"))
    assert ("is not supported yet" in fault) == refused
    assert ("Leave it out; " in fault) == refused, "a way round is said"
    assert "unknown key" not in fault


def test_cleaning_up_is_left_to_the_store(tmp_path: Path) -> None:
    file = tmp_path / "feed.toml"
    file.write_text("[sink.cloud-storage-config]\nfile-expiration-days = 1\nfile-cleanup-cron-spec = '*/10 * * * * *'\n")
    told = load_config(file).warnings
    assert len(told) == 2
    assert all("files are not removed: use the store's own rules" in one for one in told)


def test_there_are_all_keys() -> None:
    assert len(KEYS) == 201


@pytest.mark.parametrize("inner", ["", "region = ''\nregistry-name = ''"])
def test_an_empty_table_of_what_is_not_supported_asks_for_nothing(tmp_path: Path, inner: str) -> None:
    file = tmp_path / "feed.toml"
    file.write_text(f"[sink.kafka-config.glue-schema-registry-config]\n{inner}\n")
    assert load_config(file).warnings == ()
    file.write_text("[sink.kafka-config.glue-schema-registry-config]\nregion = 'eu'\n")
    with pytest.raises(ConfigError, match="is not supported yet"):
        load_config(file)
