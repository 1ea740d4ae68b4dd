"""Sink URIs: what is taken, what is refused and how, and that secrets stay inside."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.config.kafka import Tls
from tidemill.config.parameters import Scheme
from tidemill.config.uri import parse_sink_uri
from tidemill.config.values import parse_duration
from tidemill.errors import ConfigError
from tidemill.protocols.options import MessageFormat


def test_kafka() -> None:
    uri = parse_sink_uri(
        "kafka://127.0.0.1:9092,[::1]:9093/my-topic?protocol=default&partition-num=4&replication-factor=2&max-message-bytes=1048576"
        "&max-batch-size=8&auto-create-topic=false&required-acks=1&compression=LZ4&kafka-client-id=me&max-retry=7&dial-timeout=2s"
    )
    kafka = uri.broker
    assert (uri.scheme, uri.protocol, uri.topic) == (Scheme.KAFKA, MessageFormat.OPEN, "my-topic")
    assert (uri.partition_num, uri.max_message_bytes, uri.max_batch_size) == (4, 1048576, 8)
    assert kafka.hosts == ("127.0.0.1:9092", "[::1]:9093")
    assert (kafka.replication_factor, kafka.auto_create_topic, kafka.required_acks, kafka.compression) == (2, False, 1, "lz4")
    assert (kafka.client_id, kafka.max_retry, kafka.dial_timeout, kafka.tls, kafka.sasl) == ("me", 7, 2000, None, None)


def test_defaults() -> None:
    uri = parse_sink_uri("kafka://b:1/t?protocol=open-protocol")
    assert (uri.partition_num, uri.max_message_bytes, uri.max_batch_size) == (None, 10485760, 16)
    assert uri.broker.auto_create_topic
    assert uri.broker.required_acks == -1


def test_tls_and_sasl() -> None:
    uri = parse_sink_uri("kafka+ssl://b:1/t?protocol=default&ca=/ca.pem&sasl-user=bob&sasl-password=p%26w&sasl-mechanism=SCRAM-SHA-256")
    assert uri.broker.tls == Tls(ca="/ca.pem")
    assert uri.broker.sasl is not None
    assert (uri.broker.sasl.mechanism, uri.broker.sasl.user, uri.broker.sasl.password.value) == ("SCRAM-SHA-256", "bob", "p&w")
    assert parse_sink_uri("kafka://b:1/t?protocol=default&enable-tls=true").broker.tls == Tls()


@pytest.mark.parametrize(
    ("text", "scheme", "path"),
    [
        ("file:///data/out%20put/?protocol=open-protocol", Scheme.FILE, "/data/out put"),
        ("messages:///tmp/m.jsonl?protocol=open-protocol", Scheme.MESSAGES, "/tmp/m.jsonl"),
        ("blackhole:///?protocol=open-protocol", Scheme.BLACKHOLE, ""),
        ("blackhole://", Scheme.BLACKHOLE, ""),
    ],
)
def test_other_sinks(text: str, scheme: Scheme, path: str) -> None:
    uri = parse_sink_uri(text)
    assert (uri.scheme, uri.path, uri.topic) == (scheme, path, "tidemill")
    assert parse_sink_uri(uri.text) == uri
    assert parse_sink_uri("messages:///m?protocol=default&topic=x&partition-num=3").topic == "x"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("kafka://b:1/t", "no protocol"),
        ("kafka://b:1/t?protocol=maxwell", "not supported yet; supported: open-protocol"),
        ("kafka://b:1/t?protocol=open-protocl", "did you mean `open-protocol`"),
        ("kafka://b:1/t?protocol=default&partiton-num=3", "unknown parameter partiton-num; did you mean `partition-num`"),
        ("kafka://b:1/t?protocol=default&partition-num=0", "partition-num = '0': expected an integer from 1"),
        ("kafka://b:1/t?protocol=default&partition-num=3&partition-num=4", "given twice"),
        ("kafka://b:1/t?protocol=default&auto-create-topic=yes", "expected true or false"),
        ("kafka://b:1/t?protocol=default&required-acks=2", "expected -1"),
        ("kafka://b:1/t?protocol=default&compression=lzo", "expected one of none, gzip"),
        ("kafka://b:1/t?protocol=default&dial-timeout=10", "expected a duration"),
        ("kafka://b:1/t?protocol=default&only-output-updated-columns=yes", "expected true or false"),
        ("kafka://b:1/t?protocol=default&output-row-key=true", "not supported yet"),
        ("kafka://b:1/t?protocol=default&sasl-oauth-scopes=x", "not supported yet"),
        ("kafka://b:1/t?protocol=default&sasl-user=x", "belong together"),
        ("kafka://b:1/t?protocol=default&cert=/x", "cert and key belong together"),
        ("kafka+ssl://b:1/t?protocol=default&enable-tls=false", "contradicts"),
        ("kafka://b:1/t?protocol=default&sasl-mechanism=gssapi", "expected one of plain"),
        ("kafka://b/t?protocol=default", "'b' is not HOST:PORT"),
        ("kafka://b:99999/t?protocol=default", "is not HOST:PORT"),
        ("kafka://b:1,/t?protocol=default", "'' is not HOST:PORT"),
        ("kafka://user:pw@b:1/t?protocol=default", "sasl-user"),
        ("kafka://[::1/t?protocol=default", "sink URI"),
        ("kafka://b:1/?protocol=default", "topic"),
        ("kafka://b:1/a b?protocol=default", "topic"),
        ("kafka://b:1/a/b?protocol=default", "topic"),
        ("kafka://b:1/t?protocol=default#x", "%23"),
        ("pulsar://h:6650/t", "pulsar:// is not supported yet"),
        ("kafak://b:1/t", "did you mean `kafka`"),
        ("/tmp/x", "has to begin with one of"),
        ("file://tmp/x?protocol=default", "absolute path"),
        ("file:///?protocol=default", "names no folder"),
        ("messages:///dir/?protocol=default", "names no file"),
        ("file:///a%00b?protocol=default", "zero byte"),
        ("kafka://b:1/t%00?protocol=default", "zero byte"),
        ("s3://b%00/x?protocol=csv", "zero byte"),
        ("kafka://b:1/t?protocol=default&ca=/a%00b", "zero byte"),
        ("s3://b/x?protocol=csv&region=a%00", "zero byte"),
        ("kafka://b:1/t?protocol=default&claim-check-storage-uri=file:///x%2500", "zero byte"),
    ],
)
def test_refusals(text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(fault)) as caught:
        parse_sink_uri(text)
    assert "pw" not in str(caught.value)


def test_what_is_about_files_of_tables_means_nothing_for_files_of_messages() -> None:
    tables, messages = (
        parse_sink_uri(f"file:///d?protocol={name}&date-separator=none&file-size=2048") for name in ("csv", "open-protocol")
    )
    assert not [w for w in tables.warnings if "no meaning" in w]
    assert list(messages.warnings) == [f"{name} has no meaning for protocol open-protocol" for name in ("date-separator", "file-size")]


def test_ticdc_parameters_without_meaning_are_warned_about() -> None:
    uri = parse_sink_uri("kafka://b:1/t?protocol=default&kafka-version=2.4.0&only-output-updated-columns=false&enable-tidb-extension=true")
    assert [w.split()[0] for w in uri.warnings] == ["kafka-version", "enable-tidb-extension"]
    assert parse_sink_uri("file:///d?protocol=default&compression=lz4").warnings[0].startswith("compression has no meaning for file://")
    assert parse_sink_uri("file:///d?protocol=default&worker-count=4").warnings == (
        "worker-count has no meaning for Tidemill: Spark's cores are used: --master local[N]",
    )


def test_defaults_from_the_configuration_yield_to_the_uri() -> None:
    uri = parse_sink_uri("kafka://b:1/t?partition-num=2", {"protocol": "default", "partition-num": "9", "compression": "zstd"})
    assert (uri.protocol, uri.partition_num, uri.broker.compression) == (MessageFormat.OPEN, 2, "zstd")
    assert parse_sink_uri(uri.text) == uri, "workers get all of it in the text"


@given(st.text(min_size=1, max_size=30), st.text(min_size=1, max_size=30))
def test_secrets_are_in_the_text_only(user: str, password: str) -> None:
    secret = "zq7" + password
    uri = parse_sink_uri(f"kafka://b:1/t?protocol=default&sasl-user={quote('zq8' + user)}&sasl-password={quote(secret)}")
    assert uri.broker.sasl is not None
    assert uri.broker.sasl.password.value == secret
    assert parse_sink_uri(uri.text) == uri
    for shown in (str(uri), repr(uri), repr(uri.broker)):
        assert "zq7" not in shown


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_a_clear_refusal(text: str) -> None:
    for candidate in (text, "kafka://" + text, "file:///x?" + text):
        try:
            uri = parse_sink_uri(candidate)
        except ConfigError:
            continue
        assert parse_sink_uri(uri.text) == uri or uri.warnings


def test_durations() -> None:
    assert [parse_duration(t) for t in ("10s", "1m30s", "250ms", "1.5h")] == [10_000, 90_000, 250, 5_400_000]
    for bad in ("", "s", "-1s", "10", "1s ", "0s", "25h"):
        with pytest.raises(ValueError, match="duration"):
            parse_duration(bad)


def test_the_end_of_a_password_is_no_parameter_name_that_is_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_sink_uri("kafka://u:a?S3cr3tPW@h:9092/t?protocol=open-protocol&S3cr3tPW@h:9092/t?protocol=x")
    assert "S3cr3t" not in str(caught.value) + (caught.value.hint or "")
    assert "%3F" in (caught.value.hint or "")
