"""The changefeed's TOML file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidemill.config.file import ChangefeedConfig, load_config, parse_config
from tidemill.errors import ConfigError


def test_no_file_means_defaults() -> None:
    config = load_config(None)
    assert config == ChangefeedConfig()
    assert not config.force_replicate
    assert config.table_filter().matches("any", "table")
    assert config.warnings == ()


def test_keys_that_count(tmp_path: Path) -> None:
    path = tmp_path / "feed.toml"
    path.write_text(
        """
        case-sensitive = true
        force-replicate = true
        [filter]
        rules = ["Db.*", "!Db.tmp_*"]
        [sink]
        protocol = "open-protocol"
        [[sink.dispatchers]]
        matcher = ["Db.a"]
        partition = "ts"
        [sink.kafka-config]
        partition-num = 6
        compression = "lz4"
        auto-create-topic = false
        [sink.kafka-config.codec-config]
        max-batch-size = 4
        """
    )
    config = load_config(path)
    assert config.force_replicate
    table_filter = config.table_filter()
    assert [table_filter.matches(*n) for n in (("Db", "a"), ("db", "a"), ("Db", "tmp_1"))] == [True, False, False]
    uri = config.sink_uri("kafka://b:1/t?partition-num=2")
    assert (uri.partition_num, uri.max_batch_size, uri.broker.compression, uri.broker.auto_create_topic) == (2, 4, "lz4", False)
    assert config.sink_uri("messages:///x.jsonl").protocol is uri.protocol


def test_ticdc_keys_without_meaning_are_taken_with_a_warning() -> None:
    config = parse_config(
        """
        memory-quota = 1073741824
        check-gc-safe-point = true
        [mounter]
        worker-num = 8
        [scheduler]
        enable-table-across-nodes = true
        [sink]
        terminator = ""
        only-output-updated-columns = false
        [sink.csv]
        delimiter = ";"
        [sink.pulsar-config]
        batching-max-messages = 4
        [consistent]
        level = "none"
        """,
        "feed.toml",
    )
    named = [w.split()[1] for w in config.warnings]
    assert named == [
        *("memory-quota", "check-gc-safe-point", "mounter.worker-num", "scheduler.enable-table-across-nodes"),
        "sink.pulsar-config",
    ]
    assert all(w.startswith("feed.toml: ") for w in config.warnings)
    assert config.warnings[2] == (
        "feed.toml: mounter.worker-num has no meaning for Tidemill: Spark's cores do this work: --master local[N]"
    )


def test_a_redo_log_is_the_change_log_which_is_said_once() -> None:
    given = '[consistent]\nlevel = "eventual"\nstorage = "s3://b/redo"\nmax-log-size = 64\n[consistent.memory-usage]\n'
    (warning,) = parse_config(given + "memory-quota-percentage = 50", "f").warnings
    assert warning.startswith('f: consistent.level = "eventual": the change log is kept anyway, and is more than TiCDC')
    assert len(parse_config('[consistent]\nlevel = "none"\nstorage = "s3://b/redo"\nmax-log-size = 64', "f").warnings) == 2
    with pytest.raises(ConfigError, match=r"consistent\.level is not supported yet") as refused:
        parse_config('[consistent]\nlevel = "always"', "f")
    assert refused.value.hint == "Leave it out; there are none and eventual."


def test_dispatchers_that_say_more_than_counts() -> None:
    config = parse_config(
        """
        [[sink.dispatchers]]
        matcher = ["a.*"]
        partition = "table"
        index = "uk"
        columns = ["x"]
        [[sink.dispatchers]]
        matcher = ["b.*"]
        partition = "columns"
        """,
        "f",
    )
    assert config.warnings == (
        "f: sink.dispatchers[0].index has no effect with partition = 'table'",
        "f: sink.dispatchers[0].columns has no effect with partition = 'table'",
        "f: sink.dispatchers[1].partition = 'columns' without columns is the same as 'table'",
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("force-replicat = true", "unknown key force-replicat; did you mean `force-replicate`?"),
        ("force_replicate = true", "unknown key force_replicate; did you mean `force-replicate`?"),
        ("[sink]\ndispatcher = []", "unknown key sink.dispatcher; did you mean `dispatchers`?"),
        ("[sink.kafka-config]\npartition-number = 1", "unknown key sink.kafka-config.partition-number; did you mean `partition-num`?"),
        ("[mounter]\nworkers-num = 1", "unknown key mounter.workers-num; did you mean `worker-num`?"),
        ("[[sink.dispatchers]]\nmatch = ['a.b']", "unknown key sink.dispatchers[0].match; did you mean `matcher`?"),
        ("[zzz]\na = 1", "unknown key zzz"),
        ("force-replicate = 'yes'", "force-replicate = 'yes': expected a valid boolean"),
        ("[filter]\nrules = '*.*'", "filter.rules = '*.*': expected a valid list"),
        ("[filter]\nrules = ['a']", "filter.rules"),
        ("sink = 1", "sink = 1: expected a table"),
        ("[sink]\nprotocol = 'maxwell'", "sink.protocol = 'maxwell': not supported yet"),
        ("[[sink.dispatchers]]\npartition = 'ts'", "sink.dispatchers[0].matcher: Field required"),
        ("[[sink.dispatchers]]\nmatcher = ['a.b']\npartition = 'colums'", "did you mean `columns`?"),
        (
            "[[sink.dispatchers]]\nmatcher = ['a.b']\ntarget-schema = '{db}'",
            "sink.dispatchers[0].target-schema = '{db}': expected a name with {schema} and {table} in it or not, and no other braces",
        ),
        ("[[sink.dispatchers]]\nmatcher = ['a.b']\ntopic = '{schem}'", "sink.dispatchers[0].topic = '{schem}': expected a topic name"),
        ("[[sink.column-selectors]]\nmatcher = ['a.b']", "sink.column-selectors[0].columns: Field required"),
        ("[[sink.dispatchers]]\nmatcher = ['a.b']\npartition = 'ts'\ndispatcher = 'ts'", "old name of partition"),
        ("[[sink.dispatchers]]\nmatcher = ['a b.c']", "sink.dispatchers[0].matcher"),
        ("[sink]\nonly-output-updated-columns = 'true'", "sink.only-output-updated-columns = 'true': expected a valid boolean"),
        ("[integrity]\nintegrity-check-level = 'none'\n[sink.integrity]\nintegrity-check-level = 'correctness'", "contradict each other"),
        ("enable-active-active = true", "enable-active-active is not supported yet"),
        ("[filter]\nignore-txn-start-ts = [-1]", "filter.ignore-txn-start-ts[0] = -1: expected"),
        ("[[filter.event-filters]]\nmatcher = ['a.b']\nignore-event = ['insrt']", "no such event 'insrt'; did you mean `insert`?"),
        (
            "[[filter.event-filters]]\nmatcher = ['a.b']\nignore-sql = ['(']",
            "ignore-sql[0] = '(': error parsing regexp: missing closing ): `(`",
        ),
        ("[[filter.event-filters]]\nmatcher = ['a.b']\nignore-sql = []\nignore_sql = []", "give one of them"),
        (
            "[[filter.event-filters]]\nmatcher = ['a.b']\nignore-insert-value-expr = 'a >'",
            "ignore-insert-value-expr = 'a >': at character 4: expected a value, found the end",
        ),
        ("[[filter.event-filters]]\nmatcher = ['a.b']\nignore-delete-value-expr = 'NOW() > a'", "NOW() is not a matter of the row alone"),
        ("[[filter.event-filters]]\nmatcher = ['a.b']\nignore-update-only-column = ['a']", "did you mean `ignore-update-only-columns`?"),
        ("[sink.open]\noutput-old-valu = false", "unknown key sink.open.output-old-valu; did you mean `output-old-value`?"),
        ("a = ", "feed.toml: "),
    ],
)
def test_refusals(text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(fault)):
        parse_config(text, "feed.toml")


def test_secrets_are_not_shown() -> None:
    config = parse_config(
        "[sink]\nschema-registry = 'http://u:zq7@h'\n[sink.kafka-config]\nsasl-user = 'zq8'\nsasl-password = 'zq7'\n"
        "[sink.kafka-config.large-message-handle]\nclaim-check-storage-uri = 's3://b/?secret-access-key=zq7'"
    )
    assert "zq7" not in repr(config)
    uri = config.sink_uri("kafka://b:1/t?protocol=default")
    assert uri.broker.sasl is not None
    assert uri.broker.sasl.password.value == "zq7"
    assert "zq7" not in f"{uri} {uri!r}"
    with pytest.raises(ConfigError) as caught:
        parse_config("[sink.kafka-config]\nsasl-password = 77123")
    assert "77123" not in str(caught.value)


def test_a_value_of_the_file_that_the_sink_refuses_names_the_file() -> None:
    config = parse_config("[sink.kafka-config]\npartition-num = 0")
    with pytest.raises(ConfigError, match=r"configuration, \[sink\]: partition-num = '0'"):
        config.sink_uri("kafka://b:1/t?protocol=default")


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-such"):
        load_config(tmp_path / "no-such.toml")


def test_the_stuck_duration_is_no_setting_that_a_changefeed_is_created_with() -> None:
    config = parse_config('changefeed-error-stuck-duration = "1h30m"\n')
    assert config.stuck_s == 5400
    assert parse_config("").stuck_s == 1800
    assert config.given() == {}
    assert config.warnings == ()
    for text in ('"soon"', '"-1s"', '"721h"', "30"):
        with pytest.raises(ConfigError, match="changefeed-error-stuck-duration"):
            parse_config(f"changefeed-error-stuck-duration = {text}\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 20_000, "a = " + "{b = " * 20_000, "sink" + ".a" * 20_000 + " = 1", "a = " + "9" * 5000,
        "[sink]\nprotocol = " + "[" * 500 + "]" * 500, "[filter]\nrules = " + "[" * 300 + "]" * 300,
    ],
)  # fmt: skip
def test_a_file_that_is_nested_without_an_end_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"nested too deep|4300 digits"):
        parse_config(text)


def test_performance_mode() -> None:
    assert not parse_config("").low_latency
    assert parse_config('performance-mode = "low-latency"').low_latency
    with pytest.raises(ConfigError, match="throughput, low-latency"):
        parse_config('performance-mode = "fast"')
