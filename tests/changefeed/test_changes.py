"""What of a changefeed may change, and from when on."""

from __future__ import annotations

import pytest

from tidemill.changefeed.changes import SETTINGS, Change, When, changes, refused, with_secrets
from tidemill.config.file import ChangefeedConfig, parse_config
from tidemill.config.parameters import PARAMETERS
from tidemill.config.uri import SinkUri


def settings(uri: str, toml: str = "") -> tuple[SinkUri, ChangefeedConfig]:
    config = parse_config(toml)
    return config.sink_uri(uri), config


def test_every_setting_has_a_rule() -> None:
    keys = {name.replace("_", "-") for name in ChangefeedConfig.model_fields} - {"sink", "integrity"}
    assert sorted((set(PARAMETERS) | keys) - set(SETTINGS)) == []
    assert all(rule.why for rule in SETTINGS.values())


KAFKA = "kafka://h:1/t?protocol=canal-json"


@pytest.mark.parametrize(
    ("old", "new", "setting", "when"),
    [
        ((KAFKA,), ("kafka://h:2,i:2/t?protocol=canal-json",), "address", When.AT_ONCE),
        ((KAFKA,), ("kafka://h:1/u?protocol=canal-json",), "topic", When.CHECKPOINT),
        ((KAFKA,), ("kafka://h:1/t?protocol=open-protocol",), "protocol", When.CHECKPOINT),
        ((KAFKA,), (KAFKA + "&compression=lz4",), "compression", When.AT_ONCE),
        ((KAFKA,), (KAFKA, '[sink.kafka-config]\ncompression = "lz4"'), "compression", When.AT_ONCE),
        ((KAFKA,), (KAFKA + "&partition-num=9",), "partition-num", When.CHECKPOINT),
        ((KAFKA,), (KAFKA, '[filter]\nrules = ["a.*"]'), "filter", When.CHECKPOINT),
        ((KAFKA,), (KAFKA, '[[sink.dispatchers]]\nmatcher = ["a.*"]\npartition = "ts"'), "dispatchers", When.CHECKPOINT),
        ((KAFKA,), (KAFKA, '[[sink.column-selectors]]\nmatcher = ["a.*"]\ncolumns = ["a"]'), "column-selectors", When.CHECKPOINT),
        ((KAFKA,), (KAFKA, 'changefeed-error-stuck-duration = "1h"'), "changefeed-error-stuck-duration", When.AT_ONCE),
        (("mysql://u:p@h:1/",), ("mysql://u:q@h:1/",), "password", When.AT_ONCE),
        (("mysql://u:p@h:1/",), ("mysql://v:p@h:1/",), "user", When.AT_ONCE),
        (("mysql://u:p@h:1/",), ("mysql://u:p@h:1/?worker-count=3",), "worker-count", When.AT_ONCE),
        (("mysql://u:p@h:1/",), ("mysql://u:p@h:1/?safe-mode=true",), "safe-mode", When.CHECKPOINT),
        (("s3://b/p?protocol=csv",), ("s3://b/q?protocol=csv",), "path", When.CHECKPOINT),
        (("s3://b/p?protocol=csv",), ("s3://b/p?protocol=csv&secret-access-key=x&access-key=y",), "access-key", When.AT_ONCE),
        (("file:///a?protocol=csv",), ("file:///a?protocol=csv&date-separator=month",), "date-separator", When.CHECKPOINT),
        (("canal:///a",), ("canal:///a?store-age=3h",), "store-age", When.AT_ONCE),
    ],
)
def test_when_a_change_counts(old: tuple[str, ...], new: tuple[str, ...], setting: str, when: When) -> None:
    found = changes(settings(*old), settings(*new))
    assert setting in [one.setting for one in found]
    assert next(one.rule.when for one in found if one.setting == setting) is when
    assert refused(found) == []


def test_nothing_changes_where_a_default_is_written_down() -> None:
    assert changes(settings(KAFKA), settings(KAFKA + "&compression=none&max-message-bytes=10485760", "case-sensitive = false")) == []


def test_another_kind_of_sink_is_never_taken() -> None:
    found = changes(settings(KAFKA), settings("mysql://u:p@h:1/"))
    assert [one.setting for one in refused(found)] == ["scheme"]


def test_no_secret_is_shown() -> None:
    old = settings("kafka://h:1/t?protocol=avro&sasl-user=uuu1&sasl-password=ppp1&schema-registry=http%3A%2F%2Fa:rrr1@h:2")
    new = settings("kafka://h:1/t?protocol=avro&sasl-user=uuu2&sasl-password=ppp2&schema-registry=http%3A%2F%2Fa:rrr2@h:2")
    told = "\n".join(map(str, changes(old, new)))
    assert {"sasl-user", "sasl-password", "schema-registry"} <= {line.partition(":")[0] for line in told.splitlines()}
    assert not any(secret in told for secret in ("uuu", "ppp", "rrr"))
    told = "\n".join(map(str, changes(settings("mysql://u:zzz1@h:1/"), settings("mysql://u:zzz2@h:1/"))))
    assert "password: xxxxx → xxxxx" in told
    assert "zzz" not in told
    hidden_by_the_server = changes(settings("mysql://u:xxxxx@h:1/"), settings("mysql://u:zzz2@h:1/"))
    assert [str(one).partition(" (")[0] for one in hidden_by_the_server] == ["password: xxxxx → as given"]


def test_a_change_says_when_and_why() -> None:
    assert str(Change("topic", "a", "b")) == "topic: a → b (from the checkpoint: messages before the checkpoint stay in the old topic)"


def test_secrets_that_were_hidden_come_back() -> None:
    stored = {
        "sink": {"kafka-config": {"sasl-password": "p1", "ca": "/a"}, "schema-registry": "http://u:p2@h/", "dispatchers": [{"topic": "t"}]}
    }
    given = {"sink": {"kafka-config": {"sasl-password": "xxxxx", "ca": "/b"}, "schema-registry": "http://u:xxxxx@h/", "protocol": "xxxxx"}}
    assert with_secrets(stored, given) == {
        "sink": {"kafka-config": {"sasl-password": "p1", "ca": "/b"}, "schema-registry": "http://u:p2@h/", "protocol": "xxxxx"}
    }
    assert with_secrets("mysql://u:p@h:1/", "mysql://u:xxxxx@h:1/") == "mysql://u:p@h:1/"
    assert with_secrets("mysql://u:p@h:1/", "mysql://u:xxxxx@h:2/") == "mysql://u:xxxxx@h:2/"
