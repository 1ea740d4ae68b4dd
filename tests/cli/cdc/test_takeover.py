"""What TiCDC prints of a changefeed, read for a take-over."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidemill.cli.cdc.takeover import read
from tidemill.errors import ConfigError

QUERY: dict[str, Any] = {
    "upstream_id": 7341, "namespace": "default", "id": "orders", "sink_uri": "kafka://h:9092/t?protocol=canal-json",
    "config": {"case_sensitive": True, "filter": {"rules": ["a.*"]}, "sink": {"protocol": "canal-json"}},
    "create_time": "2026-01-02 03:04:05.678", "start_ts": 449_000_000_000_000_000, "resolved_ts": 449_000_000_000_000_009, "target_ts": 0,
    "checkpoint_tso": 449_000_000_000_000_007, "checkpoint_time": "2026-01-02 03:04:05.678", "state": "stopped",
}  # fmt: skip


def text(**more: Any) -> str:
    return json.dumps({name: value for name, value in (QUERY | more).items() if value is not None}, indent=2)


def test_what_the_command_line_prints() -> None:
    taken = read(text(), "f")
    assert (taken.changefeed_id, taken.checkpoint_ts, taken.state) == ("orders", 449_000_000_000_000_007, "stopped")
    assert taken.replica_config == QUERY["config"]
    assert (taken.hidden, taken.uri_is_whole) == ((), True)


def test_what_the_api_answers_and_warnings_before_it() -> None:
    api = text(checkpoint_tso=None, checkpoint_ts=449_000_000_000_000_005, keyspace="default")
    assert read(f"[WARN] something\n{api}\n", "f").checkpoint_ts == 449_000_000_000_000_005


@pytest.mark.parametrize(
    "uri",
    [
        "mysql://root:xxxxx@h:3306/",
        "kafka://h:1/t?sasl-user=u&sasl-password=xxxxx",
        "kafka://h:1/t?sasl-password=%2A%2A%2A%2A%2A%2A&protocol=avro",
        "s3://b/p?secret-access-key=******",
    ],
)
def test_a_uri_without_its_secrets_is_noted(uri: str) -> None:
    assert not read(text(sink_uri=uri), "f").uri_is_whole


@pytest.mark.parametrize("uri", ["kafka://h:1/xxxxx?protocol=avro", "mysql://xxxxxy:p@h:1/", "kafka://xxxxx.example:1/t"])
def test_what_only_looks_like_a_mask(uri: str) -> None:
    taken = read(text(sink_uri=uri), "f")
    assert taken.uri_is_whole or "/xxxxx?" in uri or "//xxxxx." in uri


def test_hidden_settings_are_named_and_left_out() -> None:
    config = {
        "sink": {
            "kafka_config": {"sasl_user": "u", "sasl_password": "******"},
            "schema_registry": "http://u:xxxxx@h/",
            "dispatchers": [{"matcher": ["a.*"], "topic": "xxxxx_t"}],
        }
    }
    taken = read(text(config=config), "f")
    assert taken.hidden == ("config.sink.kafka_config.sasl_password", "config.sink.schema_registry")
    assert taken.replica_config == {"sink": {"kafka_config": {"sasl_user": "u"}, "dispatchers": [{"matcher": ["a.*"], "topic": "xxxxx_t"}]}}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ("{", "not JSON"),
        ('{"a":' * 100_000, "not JSON"),
        (text(checkpoint_tso=None), "checkpoint_tso is missing"),
        (text(checkpoint_tso="5"), "checkpoint_tso is missing, or not a TSO"),
        (text(checkpoint_tso=2**64), "not a TSO"),
        (text(sink_uri=None), "it has no sink_uri"),
        (text(id=None), "it has no id"),
        (text(config=["x"]), "config is not a JSON object"),
        (text(config=5), "config is not a JSON object"),
        (text(config={"sinkk": 1}), r"f: config\.sinkk: unknown key; did you mean `sink`\?"),
    ],
)
def test_what_is_no_changefeed(content: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(content, "f")
