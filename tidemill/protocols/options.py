"""TiCDC's encoding options of all protocols, with TiCDC's defaults.

A changefeed has one frozen object of them. It comes from sink URI and TOML file (`config`) and travels in the pack; each encoder reads
its own options. `config` checks which protocol takes which option.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class MessageFormat(enum.StrEnum):
    """The protocols that are built in. One of another package is the name of its entry point."""

    OPEN = "open-protocol"
    CANAL = "canal"
    CANAL_JSON = "canal-json"
    CSV = "csv"
    SIMPLE = "simple"
    AVRO = "avro"
    DEBEZIUM = "debezium"
    DEBEZIUM_AVRO = "debezium-avro"


class LargeMessageOption(enum.Enum):
    """What is sent for a row that is larger than max-message-bytes."""

    NONE = "none"  # nothing: the changefeed fails
    HANDLE_KEY_ONLY = "handle-key-only"
    CLAIM_CHECK = "claim-check"


class Compression(enum.Enum):
    """large-message-handle-compression: how each event's value is compressed."""

    NONE = "none"
    SNAPPY = "snappy"  # a raw block
    LZ4 = "lz4"  # a frame


@dataclass(frozen=True, slots=True)
class LargeMessage:
    """[sink.kafka-config.large-message-handle]"""

    option: LargeMessageOption = LargeMessageOption.NONE
    compression: Compression = Compression.NONE
    claim_check_storage_uri: str = field(default="", repr=False)  # may hold keys
    claim_check_raw_value: bool = False


class DecimalMode(enum.Enum):
    """avro-decimal-handling-mode"""

    PRECISE = "precise"
    STRING = "string"


class BigintUnsignedMode(enum.Enum):
    """avro-bigint-unsigned-handling-mode"""

    LONG = "long"
    STRING = "string"


@dataclass(frozen=True, slots=True)
class AvroOptions:
    decimal_mode: DecimalMode = DecimalMode.PRECISE
    bigint_unsigned_mode: BigintUnsignedMode = BigintUnsignedMode.LONG
    enable_watermark: bool = False  # DDLs, watermarks and the commit ts of deletes, for TiCDC's own consumer
    registry: str = field(default="", repr=False)  # address of the schema registry; may hold a password
    namespace: str = "default"  # the changefeed's namespace, the first part of each record's namespace


class BinaryEncoding(enum.Enum):
    """csv binary-encoding-method"""

    BASE64 = "base64"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """The options of [sink.csv], and sink.terminator."""

    delimiter: str = ","
    quote: str = '"'
    null: str = "\\N"
    terminator: str = "\r\n"
    include_commit_ts: bool = False
    binary_encoding: BinaryEncoding = BinaryEncoding.BASE64
    output_old_value: bool = False
    output_handle_key: bool = False
    output_field_header: bool = False


@dataclass(frozen=True, slots=True)
class SimpleOptions:
    """When the simple protocol repeats a table's description: after how many seconds or row messages, to one or all partitions."""

    bootstrap_interval_s: int = 120  # 0 or less: never by time
    bootstrap_messages: int = 10_000  # 0 or less: never by count
    bootstrap_all_partitions: bool = True
    bootstrap_at_start: bool = False
    location: str = "UTC"  # the zone of TIMESTAMP texts


@dataclass(frozen=True, slots=True)
class DebeziumOptions:
    """debezium-disable-schema, the options of [sink.debezium], and TiCDC's own name, which it has from `cdc server --cluster-id`."""

    disable_schema: bool = False
    output_old_value: bool = True
    include_start_ts: bool = False
    cluster_id: str = "default"


@dataclass(frozen=True, slots=True)
class EncodingOptions:
    """Sizes are bytes. `protocol`: a `MessageFormat` or the name of another package's; None: the sink encodes rows, or they are mounted."""

    protocol: str | None = MessageFormat.OPEN
    every_image: bool = False  # of typed columns: the rows before and after each change, not only what it leaves
    max_message_bytes: int = 10 * 1024 * 1024
    max_batch_size: int = 16  # events of an Open Protocol message
    enable_tidb_extension: bool = False  # canal-json, avro, debezium, debezium-avro
    content_compatible: bool = False  # canal-json
    only_output_updated_columns: bool = False
    delete_only_handle_key_columns: bool = False
    output_old_value: bool = True  # open-protocol
    output_raw_change_event: bool = False  # updates of handle or unique keys stay whole
    row_checksum: bool = False  # integrity.integrity-check-level = correctness
    corrupted_rows_fail: bool = False  # integrity.corruption-handle-level = error
    canal_server_id: int | None = None  # canal: entries as Canal's own server makes them, with this serverId; None: packets for Kafka
    canal_member_names: bool = False  # in such entries ENUM and SET are the texts of their elements
    large_message: LargeMessage = LargeMessage()
    avro: AvroOptions = AvroOptions()
    csv: CsvOptions = CsvOptions()
    simple: SimpleOptions = SimpleOptions()
    debezium: DebeziumOptions = DebeziumOptions()
