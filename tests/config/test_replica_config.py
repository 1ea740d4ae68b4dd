"""The configuration as TiCDC's JSON: names, durations, both ways."""

from __future__ import annotations

import gzip
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.config.file import parse_config
from tidemill.config.replica_config import duration_text, from_json, nanoseconds, to_json
from tidemill.config.toml_text import toml_text
from tidemill.errors import ConfigError

GOLDEN = Path(__file__).parents[1] / "golden"

TICDC_DEFAULTS: dict[str, Any] = json.loads(
    r"""{"memory_quota":1073741824,"case_sensitive":false,"force_replicate":false,"ignore_ineligible_table":false,
    "check_gc_safe_point":true,"enable_sync_point":false,"enable_table_monitor":false,"bdr_mode":false,
    "sync_point_interval":600000000000,"sync_point_retention":86400000000000,
    "filter":{"rules":["*.*"],"event_filters":[{"matcher":["a.b"],"ignore_event":null,"ignore_sql":null,"ignore_insert_value_expr":"",
    "ignore_update_new_value_expr":"","ignore_update_old_value_expr":"","ignore_delete_value_expr":""}]},
    "mounter":{"worker_num":16},
    "sink":{"protocol":"canal-json","csv":{"delimiter":",","quote":"\"","null":"\\N","include_commit_ts":false,
    "binary_encoding_method":"base64","output_old_value":false,"output_handle_key":false,"output_field_header":false},
    "encoder_concurrency":32,"terminator":"\r\n","date_separator":"day","enable_partition_separator":true,"file_index_width":20,
    "enable_kafka_sink_v2":false,"only_output_updated_columns":false,"delete_only_output_handle_key_columns":false,
    "content_compatible":false,"kafka_config":{"partition_num":3,"codec_config":{"enable_tidb_extension":true},
    "large_message_handle":{"large_message_handle_option":"none","large_message_handle_compression":"","claim_check_storage_uri":"",
    "claim_check_raw_value":false}},"advance_timeout":150,"send_bootstrap_interval_in_sec":120,"send_bootstrap_in_msg_count":10000,
    "send_bootstrap_to_all_partition":true,"send-all-bootstrap-at-start":false,"debezium_disable_schema":false,
    "debezium":{"output_old_value":true},"open":{"output_old_value":true}},
    "consistent":{"level":"none","max_log_size":64,"flush_interval":2000,"meta_flush_interval":200,"encoding_worker_num":16,
    "flush_worker_num":8,"use_file_backend":false,"memory_usage":{"memory_quota_percentage":50}},
    "scheduler":{"enable_table_across_nodes":false,"region_threshold":100000,"region_count_per_span":100,
    "region_count_refresh_interval":300000000000,"write_key_threshold":0,"min_traffic_percentage":0.8},
    "integrity":{"integrity_check_level":"none","corruption_handle_level":"warn"},
    "changefeed_error_stuck_duration":1800000000000,"synced_status":{"synced_check_interval":300,"checkpoint_interval":15}}""",
    strict=False,
)
"""What `cdc cli changefeed create` sends where the file sets next to nothing (8.5)."""


def ticdc_keys() -> list[str]:
    with gzip.open(GOLDEN / "ticdc" / "toml_keys.tsv.gz", "rt", encoding="utf-8") as file:
        return [line.split("\t")[0] for line in file]


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(below) for name, below in value.items() if below is not None}
    return [without_nulls(below) for below in value] if isinstance(value, list) else value


def test_what_ticdc_sends_is_a_configuration_here() -> None:
    config = parse_config(toml_text(from_json(TICDC_DEFAULTS)))
    assert config.sink.protocol == "canal-json"
    assert config.stuck_s == 1800
    config.sink_uri("kafka://h:1/t")


def test_there_and_back() -> None:
    assert to_json(from_json(TICDC_DEFAULTS)) == without_nulls(TICDC_DEFAULTS)


def at(path: str, value: Any) -> dict[str, Any]:
    for part in reversed(path.split(".")):
        value = {part.removesuffix("[]"): [value] if part.endswith("[]") else value}
    found: dict[str, Any] = value
    return found


def test_every_key_of_ticdcs_file_has_its_json() -> None:
    lost = [key for key in ticdc_keys() if from_json(to_json(at(key, "1h"))) != at(key, "1h")]
    assert lost == []


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("sink.file-index-digit", ("sink", "file_index_width")),
        ("sink.advance-timeout-in-sec", ("sink", "advance_timeout")),
        ("sink.send-all-bootstrap-at-start", ("sink", "send-all-bootstrap-at-start")),
        ("sink.mysql-config.max-multi-update-row", ("sink", "mysql_config", "max_multi_update_row_count")),
        ("sink.pulsar-config.pulsar-version", ("sink", "pulsar_config", "pulsar-version")),
        ("case-sensitive", ("case_sensitive",)),
    ],
)
def test_names_that_json_has_otherwise(key: str, name: tuple[str, ...]) -> None:
    found: Any = to_json(at(key, 5))
    for part in name:
        found = found[part]
    assert found == 5


def test_the_order_is_ticdcs() -> None:
    config = {
        "synced-status": {"a": 1},
        "sink": {"open": {"b": 1}, "protocol": "x"},
        "filter": {"c": 1},
        "case-sensitive": True,
        "memory-quota": 1,
    }
    assert list(to_json(config)) == ["memory_quota", "case_sensitive", "filter", "sink", "synced_status"]
    assert list(to_json(config)["sink"]) == ["protocol", "open"]


def test_what_is_not_set_is_left_out() -> None:
    assert to_json({"sink": {"csv": {"quote": None}, "dispatchers": [], "protocol": "x"}, "canal": {}}) == {
        "sink": {"dispatchers": [], "protocol": "x"}
    }


def test_the_files_spelling_is_taken_too_but_not_both() -> None:
    assert from_json({"case-sensitive": True, "sink": {"kafka-config": {"sasl_user": "u"}}}) == {
        "case-sensitive": True,
        "sink": {"kafka-config": {"sasl-user": "u"}},
    }
    with pytest.raises(ConfigError, match=r"case-sensitive: it is given twice, as case_sensitive and as case-sensitive"):
        from_json({"case_sensitive": True, "case-sensitive": False})


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"sinkk": {}}, r"replica_config\.sinkk: unknown key; did you mean `sink`\?"),
        ({"sink": {"protocl": "x"}}, r"replica_config\.sink\.protocl: unknown key; did you mean `protocol`\?"),
        ({"sink": 3}, r"replica_config\.sink: expected an object, got a number"),
        ({"filter": {"event_filters": [{"matchr": []}]}}, r"event_filters\[0\]\.matchr: unknown key; did you mean `matcher`"),
        ({"filter": {"event_filters": ["x"]}}, r"event_filters: expected an object, got a list"),
        ({"sync_point_interval": "1d"}, r"sync_point_interval: \"1d\": expected a duration"),
        ({"sync_point_interval": True}, r"expected nanoseconds, or a duration such as \"10m\", got true or false"),
        ({"sync_point_interval": 1e300}, "expected nanoseconds"),
        ({"a": 1, "b": 2}, "2 faults"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(found: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        from_json(found)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("10m", 600 * 10**9),
        ("1h30m", 5400 * 10**9),
        ("250ms", 250 * 10**6),
        ("1.5s", 15 * 10**8),
        ("0", 0),
        ("-2s", -2 * 10**9),
        ("3ns", 3),
    ],
)
def test_durations(text: str, ns: int) -> None:
    assert nanoseconds(text) == ns
    assert nanoseconds(duration_text(ns)) == ns


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_every_number_of_nanoseconds_is_a_duration(ns: int) -> None:
    assert nanoseconds(duration_text(ns)) == ns


@pytest.mark.parametrize("text", ["", "1", "m", "1d", "1 s", "1h-5m", "99999999999h", "--1s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        nanoseconds(text)


names = st.text(min_size=1, max_size=5)
values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(names.filter(lambda n: not any("\ud800" <= c <= "\udfff" for c in n)), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5), values, max_size=4))
def test_toml_is_read_as_it_was_written(data: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(data)) == data


RENAMED = [
    ("advance-timeout-in-sec", "advance_timeout", "advance_timeout_in_sec", 150, 151),
    ("send-all-bootstrap-at-start", "send-all-bootstrap-at-start", "send_all_bootstrap_at_start", False, True),
]
"""Keys with two names in JSON: in the file, the older, the newer, TiCDC's default, another value."""


@pytest.mark.parametrize("pair", RENAMED)
def test_of_two_names_the_one_that_was_changed_counts(pair: tuple[str, str, str, Any, Any]) -> None:
    """A client reads both, changes the one that it knows, and sends both."""
    key, older, newer, stored, changed = pair
    read = {"sink": {key: stored}}
    for names in ((older, newer), (newer, older)):
        sent = to_json(read, all_names=True)
        assert sent == {"sink": {older: stored, newer: stored}}
        assert from_json(sent, stored=read) == read
        sent["sink"][names[0]] = changed
        assert from_json(sent, stored=read) == {"sink": {key: changed}}
        with pytest.raises(ConfigError, match="given twice"):
            from_json(sent)
        sent["sink"][names[1]] = changed
        assert from_json(sent, stored=read) == {"sink": {key: changed}}


def test_two_names_that_were_both_changed_contradict_each_other() -> None:
    sent = {"sink": {"advance_timeout": 7, "advance_timeout_in_sec": 8}}
    with pytest.raises(ConfigError, match=r"sink\.advance_timeout_in_sec: it is given twice, as advance_timeout and as"):
        from_json(sent, stored={"sink": {"advance-timeout-in-sec": 150}})
