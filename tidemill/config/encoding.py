"""Parsed parameters → `EncodingOptions`, and the check of their combinations. The rules are those of TiCDC's codec settings (v8.5.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.errors import ConfigError
from tidemill.protocols.all import spec_of
from tidemill.protocols.options import (
    AvroOptions,
    BigintUnsignedMode,
    CsvOptions,
    DebeziumOptions,
    DecimalMode,
    EncodingOptions,
    LargeMessage,
    LargeMessageOption,
    MessageFormat,
    SimpleOptions,
)

_IN_NUMBERS = frozenset("0123456789+-.e")


def encoding_options(protocol: str | None, values: Mapping[str, Any]) -> EncodingOptions:
    """Return the options for parsed parameters by name, defaults included. Options of other protocols keep their defaults.

    Raises ConfigError for options that conflict.
    """
    canal, avro = protocol is MessageFormat.CANAL_JSON, protocol is MessageFormat.AVRO
    extends = protocol is not None and "enable-tidb-extension" in spec_of(protocol).options
    compatible = canal and values["content-compatible"]
    options = EncodingOptions(
        protocol=protocol,
        max_message_bytes=values["max-message-bytes"],
        max_batch_size=values["max-batch-size"],
        enable_tidb_extension=extends and values["enable-tidb-extension"],
        content_compatible=compatible,
        only_output_updated_columns=compatible or values["only-output-updated-columns"],
        delete_only_handle_key_columns=values["delete-only-output-handle-key-columns"],
        output_old_value=values["open-output-old-value"],
        output_raw_change_event=values["output-raw-change-event"],
        row_checksum=values["integrity-check-level"] == "correctness",
        corrupted_rows_fail=values["corruption-handle-level"] == "error",
        large_message=LargeMessage(
            option=values["large-message-handle-option"],
            compression=values["large-message-handle-compression"],
            claim_check_storage_uri=values["claim-check-storage-uri"] or "",
            claim_check_raw_value=values["claim-check-raw-value"],
        ),
        avro=AvroOptions(
            decimal_mode=values["avro-decimal-handling-mode"],
            bigint_unsigned_mode=values["avro-bigint-unsigned-handling-mode"],
            enable_watermark=avro and values["enable-tidb-extension"] and values["avro-enable-watermark"],
            registry=values["schema-registry"] or "",
        ),
        csv=_csv(values),
        simple=SimpleOptions(
            bootstrap_interval_s=values["send-bootstrap-interval-in-sec"],
            bootstrap_messages=values["send-bootstrap-in-msg-count"],
            bootstrap_all_partitions=values["send-bootstrap-to-all-partition"],
            bootstrap_at_start=values["send-all-bootstrap-at-start"],
        ),
        debezium=DebeziumOptions(
            disable_schema=values["debezium-disable-schema"],
            output_old_value=values["debezium-output-old-value"],
            include_start_ts=values["debezium-include-start-ts"],
            cluster_id=values["cluster-id"],
        ),
    )
    _check(options, values)
    return options


def _csv(values: Mapping[str, Any]) -> CsvOptions:
    return CsvOptions(
        delimiter=values["csv-delimiter"],
        quote=values["csv-quote"],
        null=values["csv-null"],
        terminator=values["terminator"] or "\r\n",
        include_commit_ts=values["csv-include-commit-ts"],
        binary_encoding=values["csv-binary-encoding-method"],
        output_old_value=values["csv-output-old-value"],
        output_handle_key=values["csv-output-handle-key"],
        output_field_header=values["csv-output-field-header"],
    )


def _check(options: EncodingOptions, values: Mapping[str, Any]) -> None:
    match options.protocol:
        case MessageFormat.CSV:
            _check_csv(options)
        case MessageFormat.AVRO:
            _check_registry(options)
            _check_checksums(options)
        case MessageFormat.DEBEZIUM_AVRO:
            _check_registry(options)
        case MessageFormat.SIMPLE if values["encoding-format"] == "avro":
            raise ConfigError("encoding-format = avro is not supported yet: protocol simple is written as JSON")
    if options.protocol is not None:
        _check_large(options, options.protocol)


def _check_csv(options: EncodingOptions) -> None:
    if options.csv.quote and options.csv.quote in options.csv.delimiter:
        raise ConfigError("csv: quote and delimiter have a character in common")
    for name, mark in (("quote", options.csv.quote), ("delimiter", options.csv.delimiter)):
        _check_mark(options.csv, name, mark)
    if options.delete_only_handle_key_columns:
        raise ConfigError("delete-only-output-handle-key-columns: a delete in CSV always has all columns")


def _check_mark(csv: CsvOptions, name: str, mark: str) -> None:
    """Refuse a quote or delimiter that can occur in a field without quotes, where nothing is escaped."""
    where = ""
    if mark and frozenset(mark) <= _IN_NUMBERS:
        where = "numbers"
    elif mark and mark in csv.null:
        where = "the null text"
    elif mark and csv.output_old_value and (mark in "true" or mark in "false"):
        where = "the field is-update"
    if where:
        raise ConfigError(f"csv: the {name} {mark!r} stands in {where}, where nothing is put into quotes: nobody could read such lines")


def _check_registry(options: EncodingOptions) -> None:
    if options.protocol is not None and not options.avro.registry:
        raise ConfigError(f"protocol {options.protocol} needs schema-registry, the address of the schema registry")


def _check_checksums(options: EncodingOptions) -> None:
    avro = options.avro
    whole = options.enable_tidb_extension and avro.decimal_mode is DecimalMode.STRING
    if options.row_checksum and not (whole and avro.bigint_unsigned_mode is BigintUnsignedMode.STRING):
        raise ConfigError(
            "integrity-check-level = correctness: with avro it needs enable-tidb-extension = true, avro-decimal-handling-mode = string "
            "and avro-bigint-unsigned-handling-mode = string"
        )


def _check_large(options: EncodingOptions, protocol: str) -> None:
    large = options.large_message
    if large.option is LargeMessageOption.NONE:
        return
    what = f"large-message-handle-option = {large.option.value}"
    if not spec_of(protocol).large_messages:
        raise ConfigError(f"{what}: protocol {protocol} has no such messages")
    if protocol is MessageFormat.CANAL_JSON and not options.enable_tidb_extension:
        raise ConfigError(f"{what}: with canal-json it needs enable-tidb-extension = true")
    if large.option is LargeMessageOption.CLAIM_CHECK:
        if not large.claim_check_storage_uri:
            raise ConfigError(f"{what} needs claim-check-storage-uri")
        if large.claim_check_raw_value and protocol is MessageFormat.OPEN:
            raise ConfigError("claim-check-raw-value: an open-protocol message cannot do without its key, so it is never stored raw")


def check_with_force_replicate(options: EncodingOptions) -> tuple[str, ...]:
    """Check the options against force-replicate, which lets in tables without a handle key. Returns warnings. Raises ConfigError.

    TiCDC refuses handle-only events with it, though most tables have a handle key. Here the changefeed stops at a row without one, and
    names it.
    """
    if options.protocol is not None and spec_of(options.protocol).needs_keys:
        raise ConfigError(f"force-replicate = true: not with protocol {options.protocol}, whose messages need a key")
    asked = {
        "delete-only-output-handle-key-columns": options.delete_only_handle_key_columns,
        f"large-message-handle-option = {options.large_message.option.value}": options.large_message.option is not LargeMessageOption.NONE,
    }
    return tuple(
        f"{name} with force-replicate = true: a row that it applies to, of a table without a handle key, stops the changefeed"
        for name, given in asked.items()
        if given
    )
