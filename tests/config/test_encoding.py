"""Encoding options from sink URI and TOML file, and what TiCDC refuses of them."""

from __future__ import annotations

import re

import pytest

from tidemill.config import uri
from tidemill.config.encoding import check_with_force_replicate, encoding_options
from tidemill.config.file import parse_config
from tidemill.config.parameters import DateSeparator
from tidemill.config.storage import StorageOptions
from tidemill.config.uri import default_of, parse_sink_uri
from tidemill.errors import ConfigError
from tidemill.protocols.options import (
    AvroOptions,
    BigintUnsignedMode,
    BinaryEncoding,
    Compression,
    CsvOptions,
    DebeziumOptions,
    DecimalMode,
    EncodingOptions,
    LargeMessage,
    LargeMessageOption,
    MessageFormat,
    SimpleOptions,
)

KAFKA = "kafka://b:1/t?protocol=default"


def made(protocol: MessageFormat, **given: str) -> EncodingOptions:
    """The bag of a protocol, which need not be deliverable yet."""
    values = {name: default_of(parameter) for name, parameter in uri.PARAMETERS.items()}
    return encoding_options(protocol, values | {name: uri.PARAMETERS[name].parse(text) for name, text in _named(given)})


def _named(given: dict[str, str]) -> list[tuple[str, str]]:
    return [(name.replace("_", "-"), text) for name, text in given.items()]


@pytest.mark.parametrize(
    "protocol",
    [
        *(MessageFormat.OPEN, MessageFormat.CANAL, MessageFormat.CANAL_JSON, MessageFormat.CSV, MessageFormat.SIMPLE),
        MessageFormat.DEBEZIUM,
    ],
)
def test_defaults_are_those_of_the_bag(protocol: MessageFormat) -> None:
    assert made(protocol) == EncodingOptions(protocol)


def test_storage_defaults_are_ticdcs() -> None:
    assert parse_sink_uri("file:///d?protocol=default").storage == StorageOptions()
    assert parse_sink_uri(KAFKA).storage is None


@pytest.mark.parametrize("large", ["none", "claim-check", "handle-key-only"])
def test_simple_is_not_written_in_avro(large: str) -> None:
    config = parse_config(
        "[sink.kafka-config.codec-config]\nencoding-format = 'avro'\n[sink.kafka-config.large-message-handle]\n"
        f"large-message-handle-option = '{large}'\nclaim-check-storage-uri = 'file:///x'\n"
    )
    with pytest.raises(ConfigError, match="encoding-format = avro is not supported yet: protocol simple is written as JSON"):
        config.sink_uri("kafka://b:1/t?protocol=simple")


FILE = """
[integrity]
integrity-check-level = "correctness"
corruption-handle-level = "error"
[sink]
only-output-updated-columns = true
delete-only-output-handle-key-columns = true
content-compatible = true
schema-registry = "http://u:zq7@r:8081"
terminator = "\\n"
date-separator = "month"
enable-partition-separator = false
file-index-digit = 6
send-bootstrap-interval-in-sec = 60
send-bootstrap-in-msg-count = 5
send-bootstrap-to-all-partition = false
send-all-bootstrap-at-start = true
[sink.open]
output-old-value = false
[sink.csv]
delimiter = "|"
quote = ""
null = ""
include-commit-ts = true
binary-encoding-method = "hex"
output-old-value = true
output-handle-key = true
output-field-header = true
[sink.kafka-config]
output-raw-change-event = true
[sink.kafka-config.codec-config]
enable-tidb-extension = true
max-batch-size = 4
avro-enable-watermark = true
avro-decimal-handling-mode = "string"
avro-bigint-unsigned-handling-mode = "string"
encoding-format = "json"
[sink.kafka-config.large-message-handle]
large-message-handle-option = "claim-check"
large-message-handle-compression = "lz4"
claim-check-storage-uri = "s3://b/p?secret-access-key=zq7"
[sink.cloud-storage-config]
flush-interval = "2s"
file-size = 2097152
use-table-id-as-path = true
output-column-id = true
"""


def test_the_file_sets_all_of_them_and_workers_get_them() -> None:
    config = parse_config(FILE)
    sink = config.sink_uri("file:///d?protocol=default")
    assert parse_sink_uri(sink.text).encoding == sink.encoding
    assert sink.encoding == EncodingOptions(
        MessageFormat.OPEN,
        max_batch_size=4,
        only_output_updated_columns=True,
        delete_only_handle_key_columns=True,
        output_old_value=False,
        output_raw_change_event=True,
        row_checksum=True,
        corrupted_rows_fail=True,
        large_message=LargeMessage(LargeMessageOption.CLAIM_CHECK, Compression.LZ4, "s3://b/p?secret-access-key=zq7"),
        avro=AvroOptions(DecimalMode.STRING, BigintUnsignedMode.STRING, registry="http://u:zq7@r:8081"),
        csv=CsvOptions("|", "", "", "\n", True, BinaryEncoding.HEX, True, True, True),
        simple=SimpleOptions(60, 5, False, True),
    )
    assert sink.storage == StorageOptions(DateSeparator.MONTH, False, 6, 2000, 2 << 20, True, True)
    assert "zq7" not in f"{sink} {sink!r}"
    named = [w.split()[0] for w in sink.warnings]
    assert {"enable-tidb-extension", "content-compatible", "csv-delimiter", "send-bootstrap-in-msg-count"} <= set(named)
    assert "large-message-handle-option" not in named
    other = config.sink_uri("messages:///m?protocol=default&max-batch-size=7&large-message-handle-compression=snappy")
    assert (other.max_batch_size, other.encoding.large_message.compression) == (7, Compression.SNAPPY), "the URI wins"


@pytest.mark.parametrize("protocol", [p for p in MessageFormat if p is not MessageFormat.AVRO])
def test_only_avro_sends_checksums_and_others_say_so(protocol: MessageFormat) -> None:
    config = parse_config("[integrity]\nintegrity-check-level = 'correctness'\n")
    sink = config.sink_uri(f"messages:///m?protocol={protocol.value}&schema-registry=http://r")
    assert f"integrity-check-level has no meaning for protocol {protocol.value}" in sink.warnings


def test_canal_json_and_avro_take_the_extension() -> None:
    assert made(MessageFormat.CANAL_JSON, enable_tidb_extension="true").enable_tidb_extension
    assert not made(MessageFormat.OPEN, enable_tidb_extension="true").enable_tidb_extension
    compatible = made(MessageFormat.CANAL_JSON, content_compatible="true")
    assert compatible.content_compatible
    assert compatible.only_output_updated_columns
    avro = {"schema_registry": "http://r", "avro_enable_watermark": "true"}
    assert not made(MessageFormat.AVRO, **avro).avro.enable_watermark
    assert made(MessageFormat.AVRO, **avro, enable_tidb_extension="true").avro.enable_watermark


def test_debezium() -> None:
    config = parse_config("[sink]\ndebezium-disable-schema = true\n[sink.debezium]\noutput-old-value = false\ninclude-start-ts = true\n")
    sink = config.sink_uri("kafka://b:1/t?protocol=debezium&enable-tidb-extension=true&cluster-id=prod")
    assert sink.encoding.debezium == DebeziumOptions(True, False, True, "prod")
    assert sink.encoding.enable_tidb_extension
    assert parse_sink_uri(sink.text).encoding == sink.encoding, "workers get the same"
    assert not config.sink_uri("kafka://b:1/t?protocol=debezium&debezium-disable-schema=false").encoding.debezium.disable_schema
    avro = config.sink_uri("kafka://b:1/t?protocol=debezium-avro&schema-registry=http://r&avro-decimal-handling-mode=string")
    assert (avro.encoding.debezium, avro.encoding.avro.decimal_mode) == (DebeziumOptions(True, False, True), DecimalMode.STRING)
    assert "debezium-disable-schema has no meaning for protocol debezium-avro" in avro.warnings
    with pytest.raises(ConfigError, match="protocol debezium-avro needs schema-registry"):
        config.sink_uri("kafka://b:1/t?protocol=debezium-avro")
    with pytest.raises(ConfigError, match="protocol debezium has no such messages"):
        made(MessageFormat.DEBEZIUM, large_message_handle_option="handle-key-only")


def test_quotes_that_stand_in_no_bare_field() -> None:
    for given in ({"csv_quote": "'"}, {"csv_quote": "t"}, {"csv_delimiter": "a1"}, {"csv_quote": "", "csv_null": ""}):
        made(MessageFormat.CSV, **given)


@pytest.mark.parametrize(
    ("protocol", "given", "fault"),
    [
        (MessageFormat.AVRO, {}, "needs schema-registry"),
        (MessageFormat.AVRO, {"schema_registry": "http://r", "integrity_check_level": "correctness"}, "enable-tidb-extension = true"),
        (
            MessageFormat.AVRO,
            {"schema_registry": "http://r", "large_message_handle_option": "handle-key-only"},
            "protocol avro has no such messages",
        ),
        (MessageFormat.CSV, {"large_message_handle_option": "handle-key-only"}, "protocol csv has no such messages"),
        (MessageFormat.CANAL, {"large_message_handle_option": "handle-key-only"}, "protocol canal has no such messages"),
        (MessageFormat.CSV, {"delete_only_output_handle_key_columns": "true"}, "always has all columns"),
        (MessageFormat.CSV, {"csv_quote": "|", "csv_delimiter": "a|"}, "in common"),
        (MessageFormat.CSV, {"csv_quote": "0"}, "the quote '0' stands in numbers"),
        (MessageFormat.CSV, {"csv_quote": "-", "csv_output_handle_key": "true"}, "the quote '-' stands in numbers"),
        (MessageFormat.CSV, {"csv_quote": "e"}, "the quote 'e' stands in numbers"),
        (MessageFormat.CSV, {"csv_delimiter": "1."}, "the delimiter '1.' stands in numbers"),
        (MessageFormat.CSV, {"csv_quote": "N"}, "the quote 'N' stands in the null text"),
        (MessageFormat.CSV, {"csv_null": "a|b", "csv_delimiter": "|"}, "the delimiter '|' stands in the null text"),
        (MessageFormat.CSV, {"csv_quote": "t", "csv_output_old_value": "true"}, "the quote 't' stands in the field is-update"),
        (MessageFormat.CANAL_JSON, {"large_message_handle_option": "handle-key-only"}, "needs enable-tidb-extension = true"),
        (MessageFormat.OPEN, {"large_message_handle_option": "claim-check"}, "needs claim-check-storage-uri"),
        (
            MessageFormat.OPEN,
            {"large_message_handle_option": "claim-check", "claim_check_storage_uri": "file:///c", "claim_check_raw_value": "true"},
            "claim-check-raw-value",
        ),
        (MessageFormat.SIMPLE, {"encoding_format": "avro"}, "not supported yet"),
    ],
)
def test_combinations_that_ticdc_refuses(protocol: MessageFormat, given: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(fault)):
        made(protocol, **given)


def test_what_force_replicate_does_not_go_with() -> None:
    with pytest.raises(ConfigError, match="force-replicate = true: not with"):
        check_with_force_replicate(made(MessageFormat.AVRO, schema_registry="http://r"))
    for given in ({"delete_only_output_handle_key_columns": "true"}, {"large_message_handle_option": "handle-key-only"}):
        (warning,) = check_with_force_replicate(made(MessageFormat.OPEN, **given))
        assert "stops the changefeed" in warning
    assert check_with_force_replicate(made(MessageFormat.OPEN, only_output_updated_columns="true")) == ()
    sink = parse_config("force-replicate = true\n[sink]\ndelete-only-output-handle-key-columns = true").sink_uri(KAFKA)
    assert any("delete-only-output-handle-key-columns with force-replicate" in warning for warning in sink.warnings)


def test_a_row_may_go_whole_to_the_claim_check_store() -> None:
    given = {"large_message_handle_option": "claim-check", "claim_check_storage_uri": "file:///c", "claim_check_raw_value": "true"}
    assert made(MessageFormat.SIMPLE, **given).large_message.claim_check_raw_value


def test_bounds_that_ticdc_adjusts() -> None:
    sink = parse_sink_uri("file:///d?protocol=csv&flush-interval=10ms&file-size=1")
    assert sink.storage is not None
    assert (sink.storage.flush_interval_ms, sink.storage.file_size) == (100, 1024)
    assert sink.warnings == ("flush-interval = 10ms: 100ms is taken", "file-size = 1: 1024 is taken")
    assert parse_sink_uri(sink.text) == sink
    big = parse_sink_uri("file:///d?protocol=csv&flush-interval=1h&file-index-digit=3")
    assert big.storage is not None
    assert (big.storage.flush_interval_ms, big.storage.file_index_digits) == (600_000, 20)


def test_empty_texts_of_the_file_set_nothing() -> None:
    config = parse_config("[sink]\nterminator = ''\nschema-registry = ''\ndate-separator = ''\n[sink.kafka-config]\nca = ''")
    sink = config.sink_uri("file:///d?protocol=default")
    assert sink.encoding == EncodingOptions(MessageFormat.OPEN)
    assert sink.storage == StorageOptions()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[sink.csv]\ndelimiter = 'abcd'", "csv-delimiter = 'abcd': expected at most 3 bytes"),
        ("[sink.csv]\nquote = 'ab'", "expected one ASCII character"),
        ("[sink.csv]\nbinary-encoding-method = 'x'", "expected one of base64, hex"),
        ("[sink]\ndate-separator = 'week'", "expected one of none, year, month, day"),
        ("[integrity]\nintegrity-check-level = 'x'", "expected one of none, correctness"),
        ("[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = 'x'", "expected one of none, handle-key-only"),
        ("[sink.kafka-config.large-message-handle]\nlarge-message-handle-compression = 'zstd'", "expected one of none, snappy, lz4"),
        ("[sink.kafka-config.codec-config]\navro-decimal-handling-mode = 'x'", "expected one of precise, string"),
    ],
)
def test_values_that_ticdc_refuses(text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(fault)):
        parse_config(text).sink_uri("file:///d?protocol=default")
