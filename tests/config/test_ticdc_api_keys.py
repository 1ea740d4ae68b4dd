"""Every key of a replica config in TiCDC's API, of both architectures, is taken with a value that asks for something, or refused with a
reason."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from tidemill.config.file import check_config
from tidemill.config.replica_config import from_json
from tidemill.errors import ConfigError

with (Path(__file__).parents[1] / "golden/peers/ticdc_api_keys.tsv").open(encoding="utf-8") as file:
    ROWS = [(row["arch"], row["key"], row["type"]) for row in csv.DictReader(file, delimiter="\t")]

LISTS = {
    "filter.event_filters": {"matcher": ["a.b"]},
    "sink.dispatchers": {"matcher": ["a.b"]},
    "sink.column_selectors": {"matcher": ["a.b"], "columns": ["*"]},
}
"""Tables that stand in a list, with what each needs."""
GOOD = {
    "performance_mode": "low-latency",
    "filter.event_filters.ignore_event": ["insert"],
    "sink.protocol": "canal-json",
    "sink.dispatchers.partition": "ts",
    "sink.column_selectors.columns": ["a"],
}
"""Where the sample of the type is no value."""
REFUSED = (
    *("enable_active_active", "consistent.level", "sink.kafka_config.codec_config.avro_include_before_value"),
    *("sink.kafka_config.sasl_gssapi_", "sink.kafka_config.sasl_oauth_", "sink.kafka_config.glue_schema_registry_config."),
)
SAMPLES: dict[str, Any] = {"bool": True, "int": 2000, "uint": 2000, "float": 0.5, "time.Duration": 60 * 10**9, "JSONDuration": 60 * 10**9}


def sample(kind: str) -> Any:
    plain = kind.lstrip("*")
    if plain.startswith("[]"):
        return [1] if "int" in plain else ["a.b"]
    return next((value for word, value in SAMPLES.items() if plain.startswith(word)), "x")


def config(key: str, value: Any) -> dict[str, Any]:
    """A replica config with one key."""
    parent, _, name = key.rpartition(".")
    inner: Any = {**LISTS.get(parent, {}), name: value}
    if parent in LISTS:
        inner = [inner]
    for part in reversed(parent.split(".") if parent else []):
        inner = {part: inner}
    return dict(inner)


@pytest.mark.parametrize(("arch", "key", "kind"), ROWS, ids=[f"{arch}-{key}" for arch, key, _ in ROWS])
def test_a_key_that_asks_for_something_is_taken_or_refused_with_a_reason(arch: str, key: str, kind: str) -> None:
    unknown: list[str] = []
    read = from_json(config(key, GOOD.get(key, sample(kind))), unknown=unknown)
    assert unknown == []
    disabled = key.endswith("disable_pafxfast")
    if not key.startswith(REFUSED) or disabled:
        check_config(read)
        return
    with pytest.raises(ConfigError, match="is not supported yet") as refused:
        check_config(read)
    assert str(refused.value.hint).startswith("Leave it out; "), "a way round is said"


def test_there_are_all_keys() -> None:
    assert len(ROWS) == 366
