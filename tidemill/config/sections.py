"""Models of the tables in a changefeed's TOML file: TiCDC's keys that Tidemill uses, with their types.

A key for a parameter of the sink URI has no default here, because the parameter has it (`parameters`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, SecretStr, model_validator

from tidemill.config.values import parse_stuck_duration
from tidemill.errors import ConfigError
from tidemill.rules.dispatch import WORDS, DispatchMode, DispatchRule
from tidemill.rules.event_filter import Conditions, EventRule, event_word
from tidemill.rules.expressions import parse
from tidemill.rules.names import did_you_mean
from tidemill.rules.patterns import GoRegex
from tidemill.rules.table_filter import TableFilter
from tidemill.rules.topics import TopicExpression

DEFAULT_RULES = ("*.*",)
PROGRESS = ("global", "table")
PERFORMANCE_MODES = ("throughput", "low-latency")


def kebab(name: str) -> str:
    """Return the key of a field."""
    return name.replace("_", "-")


class Section(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(alias_generator=kebab, populate_by_name=False, extra="forbid", strict=True, frozen=True)

    @classmethod
    def spellings(cls) -> Iterator[tuple[str, str, Any]]:
        """Yield (key, field, type) for each key, and for each of its spellings."""
        for name, field in cls.model_fields.items():
            alias = field.validation_alias
            spellings = alias.choices if isinstance(alias, AliasChoices) else [kebab(name)]
            for spelling in spellings:
                yield str(spelling), name, field.annotation


def section_of(annotation: Any) -> type[Section] | None:
    """Return the model of a key's value, or of its list's items."""
    inner = getattr(annotation, "__args__", (annotation,))[0]
    return inner if isinstance(inner, type) and issubclass(inner, Section) else None


def _mode(word: str) -> str:
    if not word:
        return "default"
    if word.lower() not in WORDS:
        raise ValueError(f"no such dispatcher{did_you_mean(word, WORDS)}; there are {', '.join(WORDS)}")
    return word.lower()


def _topic(text: str) -> str:
    return TopicExpression(text).text


def _stuck_duration(text: str) -> str:
    parse_stuck_duration(text)
    return text


def _progress(word: str) -> str:
    if word not in PROGRESS:
        raise ValueError(f"no such progress{did_you_mean(word, PROGRESS)}; there are {', '.join(PROGRESS)}")
    return word


def _performance_mode(word: str) -> str:
    if word not in PERFORMANCE_MODES:
        raise ValueError(f"no such performance-mode{did_you_mean(word, PERFORMANCE_MODES)}; there are {', '.join(PERFORMANCE_MODES)}")
    return word


def _one_spelling(data: Any, old: str, new: str, why: str) -> Any:
    if isinstance(data, Mapping) and {old, new} <= data.keys():
        raise ValueError(f"{old} is {why} of {new}: give one of them")
    return data


class DispatcherSection(Section):
    """[[sink.dispatchers]]"""

    matcher: list[str]
    partition: Annotated[str, AfterValidator(_mode)] = Field("default", validation_alias=AliasChoices("partition", "dispatcher"))
    index: str = ""
    columns: list[str] = []
    topic: Annotated[str, AfterValidator(_topic)] = ""
    target_schema: str = ""
    target_table: str = ""

    @model_validator(mode="before")
    @classmethod
    def _one_name(cls, data: Any) -> Any:
        one = _one_spelling(data, "dispatcher", "partition", "the old name")
        if not isinstance(one, dict):
            return one
        return {key: value for key, value in one.items() if value != "" or key not in ("dispatcher", "partition")}

    @property
    def mode(self) -> DispatchMode:
        return WORDS[self.partition]

    def rule(self) -> DispatchRule:
        """Return the rule, without settings that only other dispatchers use."""
        index = self.index if self.mode is DispatchMode.INDEX_VALUE else ""
        columns = tuple(self.columns) if self.mode is DispatchMode.COLUMNS else ()
        return DispatchRule(self.mode, index, columns)

    @property
    def dispatches(self) -> bool:
        """Whether the section says to which topic or partition rows go. One with a target alone leaves that to the sections behind it."""
        written = self.topic or "partition" in self.model_fields_set or self.index or self.columns
        return bool(written) or not (self.target_schema or self.target_table)

    def unused(self) -> Iterator[str]:
        """Yield a text for each setting without effect."""
        if self.index and self.mode is not DispatchMode.INDEX_VALUE:
            yield f"index has no effect with partition = {self.partition!r}"
        if self.columns and self.mode is not DispatchMode.COLUMNS:
            yield f"columns has no effect with partition = {self.partition!r}"
        if not self.columns and self.mode is DispatchMode.COLUMNS:
            yield "partition = 'columns' without columns is the same as 'table'"


class ColumnSelectorSection(Section):
    """[[sink.column-selectors]]"""

    matcher: list[str]
    columns: list[str]


class CodecSection(Section):
    """[sink.kafka-config.codec-config]"""

    enable_tidb_extension: bool | None = None
    max_batch_size: int | None = None
    avro_enable_watermark: bool | None = None
    avro_decimal_handling_mode: str | None = None
    avro_bigint_unsigned_handling_mode: str | None = None
    encoding_format: str | None = None


class LargeMessageSection(Section):
    """[sink.kafka-config.large-message-handle]"""

    large_message_handle_option: str | None = None
    large_message_handle_compression: str | None = None
    claim_check_storage_uri: SecretStr | None = None
    claim_check_raw_value: bool | None = None


class KafkaSection(Section):
    """[sink.kafka-config]: the same settings as in the sink URI, which wins."""

    partition_num: int | None = None
    replication_factor: int | None = None
    max_message_bytes: int | None = None
    compression: str | None = None
    kafka_client_id: str | None = None
    auto_create_topic: bool | None = None
    dial_timeout: str | None = None
    write_timeout: str | None = None
    read_timeout: str | None = None
    required_acks: int | None = None
    sasl_user: SecretStr | None = None
    sasl_password: SecretStr | None = None
    sasl_password_file: SecretStr | None = None
    sasl_password_env: SecretStr | None = None
    sasl_password_command: SecretStr | None = None
    sasl_mechanism: str | None = None
    enable_tls: bool | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    key_password: SecretStr | None = None
    key_password_file: SecretStr | None = None
    key_password_env: SecretStr | None = None
    key_password_command: SecretStr | None = None
    insecure_skip_verify: bool | None = None
    output_raw_change_event: bool | None = None
    codec_config: CodecSection = CodecSection()
    large_message_handle: LargeMessageSection = LargeMessageSection()


class CloudStorageSection(Section):
    """[sink.cloud-storage-config]"""

    flush_interval: str | None = None
    file_size: int | None = None
    output_column_id: bool | None = None
    use_table_id_as_path: bool | None = None
    output_raw_change_event: bool | None = None
    access_key_file: SecretStr | None = None
    access_key_env: SecretStr | None = None
    access_key_command: SecretStr | None = None
    secret_access_key_file: SecretStr | None = None
    secret_access_key_env: SecretStr | None = None
    secret_access_key_command: SecretStr | None = None
    session_token_file: SecretStr | None = None
    session_token_env: SecretStr | None = None
    session_token_command: SecretStr | None = None
    external_id_file: SecretStr | None = None
    external_id_env: SecretStr | None = None
    external_id_command: SecretStr | None = None


class MysqlSection(Section):
    """[sink.mysql-config]"""

    worker_count: int | None = None
    max_txn_row: int | None = None
    max_multi_update_row: int | None = None
    max_multi_update_row_size: int | None = None
    tidb_txn_mode: str | None = None
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None
    ssl_key_password: SecretStr | None = None
    ssl_key_password_file: SecretStr | None = None
    ssl_key_password_env: SecretStr | None = None
    ssl_key_password_command: SecretStr | None = None
    password_file: SecretStr | None = None
    password_env: SecretStr | None = None
    password_command: SecretStr | None = None
    get_server_public_key: bool | None = None
    time_zone: str | None = None
    timeout: str | None = None
    read_timeout: str | None = None
    write_timeout: str | None = None
    async_ddl_timeout: str | None = None
    enable_batch_dml: bool | None = None
    enable_multi_statement: bool | None = None


class CsvSection(Section):
    """[sink.csv]"""

    delimiter: str | None = None
    quote: str | None = None
    null: str | None = None
    include_commit_ts: bool | None = None
    binary_encoding_method: str | None = None
    output_old_value: bool | None = None
    output_handle_key: bool | None = None
    output_field_header: bool | None = None


class OpenSection(Section):
    """[sink.open]"""

    output_old_value: bool | None = None


class DebeziumSection(Section):
    """[sink.debezium]"""

    output_old_value: bool | None = None
    include_start_ts: bool | None = None


class IntegritySection(Section):
    """[integrity]"""

    integrity_check_level: str | None = None
    corruption_handle_level: str | None = None


class SinkSection(Section):
    """[sink]"""

    protocol: str | None = None
    dispatchers: list[DispatcherSection] = []
    column_selectors: list[ColumnSelectorSection] = []
    schema_registry: SecretStr | None = None
    terminator: str | None = None
    date_separator: str | None = None
    enable_partition_separator: bool | None = None
    file_index_digit: int | None = None
    only_output_updated_columns: bool | None = None
    delete_only_output_handle_key_columns: bool | None = None
    content_compatible: bool | None = None
    debezium_disable_schema: bool | None = None
    send_bootstrap_interval_in_sec: int | None = None
    send_bootstrap_in_msg_count: int | None = None
    send_bootstrap_to_all_partition: bool | None = None
    send_all_bootstrap_at_start: bool | None = None
    split_on_dispatch_key: bool | None = None
    create_tables: bool | None = None
    safe_mode: bool | None = None
    transaction_atomicity: str | None = None
    csv: CsvSection = CsvSection()
    open: OpenSection = OpenSection()
    debezium: DebeziumSection = DebeziumSection()
    integrity: IntegritySection = IntegritySection()
    kafka_config: KafkaSection = KafkaSection()
    cloud_storage_config: CloudStorageSection = CloudStorageSection()
    mysql_config: MysqlSection = MysqlSection()


def _word(text: str) -> str:
    return event_word(text)


def _pattern(text: str) -> str:
    try:
        GoRegex(text)
    except ConfigError as error:
        raise ValueError(error.message) from None
    return text


def _expression(text: str) -> str:
    try:
        if text:
            parse(text)
    except ConfigError as error:
        raise ValueError(error.message.removeprefix(f"{text!r}: ")) from None
    return text


Expression = Annotated[str, AfterValidator(_expression)]


class EventFilterSection(Section):
    """[[filter.event-filters]]"""

    matcher: list[str]
    ignore_event: list[Annotated[str, AfterValidator(_word)]] = []
    ignore_sql: list[Annotated[str, AfterValidator(_pattern)]] = Field([], validation_alias=AliasChoices("ignore-sql", "ignore_sql"))
    ignore_insert_value_expr: Expression = ""
    ignore_update_new_value_expr: Expression = ""
    ignore_update_old_value_expr: Expression = ""
    ignore_delete_value_expr: Expression = ""
    ignore_update_only_columns: list[str] = []

    @model_validator(mode="before")
    @classmethod
    def _one_name(cls, data: Any) -> Any:
        return _one_spelling(data, "ignore_sql", "ignore-sql", "another spelling")

    def rule(self, matcher: TableFilter, *, update_only_columns: bool) -> EventRule:
        """Return the rule for the tables that `matcher` lets in."""
        return EventRule(
            matcher=matcher,
            words=frozenset(self.ignore_event),
            sql=tuple(GoRegex(text, fold=True) for text in self.ignore_sql),
            conditions=Conditions(
                self.ignore_insert_value_expr,
                self.ignore_update_new_value_expr,
                self.ignore_update_old_value_expr,
                self.ignore_delete_value_expr,
            ),
            update_only_columns=tuple(self.ignore_update_only_columns) if update_only_columns else (),
        )


class FilterSection(Section):
    """[filter]"""

    rules: list[str] = list(DEFAULT_RULES)
    ignore_txn_start_ts: list[Annotated[int, Field(ge=0, lt=2**64)]] = []
    event_filters: list[EventFilterSection] = []


class SyncedStatusSection(Section):
    """[synced-status]: when `…/synced` answers that everything is downstream. Seconds."""

    synced_check_interval: Annotated[int, Field(ge=1, le=86_400)] = 300
    checkpoint_interval: Annotated[int, Field(ge=1, le=86_400)] = 15


class ConfigSection(Section):
    """The whole file."""

    case_sensitive: bool = False
    force_replicate: bool = False
    ignore_ineligible_table: bool = False
    changefeed_error_stuck_duration: Annotated[str, AfterValidator(_stuck_duration)] = "30m"
    progress: Annotated[str, AfterValidator(_progress)] = "global"
    performance_mode: Annotated[str, AfterValidator(_performance_mode)] = "throughput"
    bdr_mode: bool = False
    enable_sync_point: bool | None = None
    sync_point_interval: str | None = None
    sync_point_retention: str | None = None
    filter: FilterSection = FilterSection()
    sink: SinkSection = SinkSection()
    integrity: IntegritySection = IntegritySection()
    synced_status: SyncedStatusSection = SyncedStatusSection()
    canal: dict[str, Any] = {}  # Canal's properties for the server of a canal:// sink, which reads them itself


def value_at(section: Section, path: str) -> Any:
    """Return the file's value at the path of a parameter, or None."""
    found: Any = section
    for key in path.split("."):
        found = getattr(found, key.replace("-", "_"))
    return found


def text_of(value: Any) -> str:
    """Return a value of the file as text for a URI."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value).lower() if isinstance(value, bool) else str(value)
