"""A changefeed's TOML file: TiCDC's keys, those that Tidemill acts on as models, the others judged by `ticdc_keys`.

Nothing is silently dropped: an unknown key is a ConfigError with the nearest known one, a key of TiCDC's without meaning here is
a warning, one that would change what is delivered is refused.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, ValidationError, model_validator

from tidemill.changefeed import ticdc_keys, uri
from tidemill.changefeed.dispatch import WORDS, Dispatcher, DispatchMode, DispatchRule
from tidemill.changefeed.filter import TableFilter
from tidemill.changefeed.names import did_you_mean
from tidemill.errors import ConfigError

DEFAULT_RULES = ("*.*",)
_SUPPORTED_MODES = {DispatchMode.TABLE, DispatchMode.TS, DispatchMode.INDEX_VALUE}


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class _Section(BaseModel):
    model_config = ConfigDict(alias_generator=_kebab, populate_by_name=False, extra="forbid", strict=True, frozen=True)


def _mode(word: str) -> str:
    if word.lower() not in WORDS:
        raise ValueError(f"no such dispatcher{did_you_mean(word, WORDS)}; there are {', '.join(WORDS)}")
    if WORDS[word.lower()] not in _SUPPORTED_MODES:
        raise ValueError(f"partition = {word!r} is not supported yet; supported: default, table, ts, index-value")
    return word.lower()


class DispatcherSection(_Section):
    """[[sink.dispatchers]]"""

    matcher: list[str]
    partition: Annotated[str, AfterValidator(_mode)] = Field("default", validation_alias=AliasChoices("partition", "dispatcher"))
    index: str = ""
    columns: list[str] = []
    topic: str = ""
    target_schema: str = ""
    target_table: str = ""

    @model_validator(mode="before")
    @classmethod
    def _one_name(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and {"partition", "dispatcher"} <= data.keys():
            raise ValueError("dispatcher is the old name of partition: give one of them")
        return data

    @model_validator(mode="after")
    def _supported(self) -> DispatcherSection:
        for name in ("index", "columns", "topic", "target_schema", "target_table"):
            if getattr(self, name):
                raise ValueError(f"{_kebab(name)} is not supported yet")
        return self

    def rule(self) -> DispatchRule:
        return DispatchRule(WORDS[self.partition], self.index, tuple(self.columns))


class CodecSection(_Section):
    """[sink.kafka-config.codec-config]"""

    max_batch_size: int | None = None


class KafkaSection(_Section):
    """[sink.kafka-config]: the same as parameters of the sink URI, which win."""

    partition_num: int | None = None
    replication_factor: int | None = None
    max_message_bytes: int | None = None
    compression: str | None = None
    kafka_client_id: str | None = None
    auto_create_topic: bool | None = None
    required_acks: int | None = None
    dial_timeout: str | None = None
    write_timeout: str | None = None
    read_timeout: str | None = None
    sasl_user: SecretStr | None = None
    sasl_password: SecretStr | None = None
    sasl_mechanism: str | None = None
    enable_tls: bool | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure_skip_verify: bool | None = None
    codec_config: CodecSection = CodecSection()

    def parameters(self) -> dict[str, str]:
        """Those that are set, as URI parameters."""
        found = {name: getattr(self, name) for name in type(self).model_fields if name != "codec_config"}
        found["max_batch_size"] = self.codec_config.max_batch_size
        return {_kebab(name): _parameter(value) for name, value in found.items() if value not in (None, "")}


def _parameter(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value).lower() if isinstance(value, bool) else str(value)


class SinkSection(_Section):
    """[sink]"""

    protocol: str | None = None
    dispatchers: list[DispatcherSection] = []
    kafka_config: KafkaSection = KafkaSection()


class FilterSection(_Section):
    """[filter]"""

    rules: list[str] = list(DEFAULT_RULES)


class ChangefeedConfig(_Section):
    """The whole file. `warnings`: what was taken without having a meaning here."""

    case_sensitive: bool = False
    force_replicate: bool = False
    ignore_ineligible_table: bool = False
    filter: FilterSection = FilterSection()
    sink: SinkSection = SinkSection()
    _warnings: tuple[str, ...] = PrivateAttr(())

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._warnings

    def table_filter(self) -> TableFilter:
        """Which tables are delivered."""
        return TableFilter(self.filter.rules, case_sensitive=self.case_sensitive, where="filter.rules:")

    def dispatcher(self) -> Dispatcher:
        """Which partition their rows go to."""
        rules = enumerate(self.sink.dispatchers)
        return Dispatcher(
            [
                (TableFilter(d.matcher, case_sensitive=self.case_sensitive, where=f"sink.dispatchers[{i}].matcher:"), d.rule())
                for i, d in rules
            ]
        )

    def sink_uri(self, text: str) -> uri.SinkUri:
        """The sink URI with what the file adds to it. `.text` of the result is complete: workers need nothing else."""
        given = {"protocol": self.sink.protocol} if self.sink.protocol else {}
        common = self.sink.kafka_config.parameters() if text.strip().startswith("kafka") else {}
        return uri.parse_sink_uri(text, common | given)


def load_config(path: Path | None) -> ChangefeedConfig:
    """Read and check a changefeed's TOML file; None: the defaults. Raises ConfigError."""
    if path is None:
        return ChangefeedConfig()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration {path}: {error}") from None
    return parse_config(text, str(path))


def parse_config(text: str, name: str = "configuration") -> ChangefeedConfig:
    """Check a changefeed's TOML text. Raises ConfigError that begins with `name`."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: {error}") from None
    warnings: list[str] = []
    known = _judge(data, ChangefeedConfig, "", name, warnings)
    try:
        config = ChangefeedConfig.model_validate(known)
    except ValidationError as error:
        raise ConfigError(f"{name}: {_first(error)}") from None
    config._warnings = tuple(warnings)
    config.table_filter()
    config.dispatcher()
    if config.sink.protocol is not None:
        try:
            uri.parse_protocol(config.sink.protocol)
        except ValueError as error:
            raise ConfigError(f"{name}: sink.protocol = {config.sink.protocol!r}: {error}") from None
    return config


def _judge(data: Mapping[str, Any], model: type[BaseModel], prefix: str, name: str, warnings: list[str]) -> dict[str, Any]:
    """The keys that the model knows; the others are warned about, or refused."""
    fields = dict(_keys(model))
    kept: dict[str, Any] = {}
    for key, value in data.items():
        path = prefix + key
        if key in fields:
            below = _section(fields[key])
            if below is not None and isinstance(value, Mapping):
                kept[key] = _judge(value, below, f"{path}.", name, warnings)
            elif below is not None and isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
                kept[key] = [_judge(item, below, f"{path}[{i}].", name, warnings) for i, item in enumerate(value)]
            else:
                kept[key] = value
        else:
            _judge_foreign(path, value, name, warnings, set(fields))
    return kept


def _judge_foreign(path: str, value: Any, name: str, warnings: list[str], siblings: set[str]) -> None:
    """A key (or table of keys) that Tidemill does not act on."""
    if path in ticdc_keys.REFUSED:
        nothing = ticdc_keys.REFUSED[path]
        if nothing is None or value not in (nothing, ""):
            raise ConfigError(f"{name}: {path} is not supported yet")
    elif ticdc_keys.ignored(path):
        warnings.append(f"{name}: {path} has no meaning for Tidemill and is ignored")
    elif isinstance(value, Mapping) and (below := _keys_below(path)):
        for key, inner in value.items():
            _judge_foreign(f"{path}.{key}", inner, name, warnings, below)
    else:
        parent = path.rpartition(".")[0]
        candidates = siblings | _keys_below(parent)
        raise ConfigError(f"{name}: unknown key {path}{did_you_mean(path.rpartition('.')[2], candidates)}")


def _keys_below(path: str) -> set[str]:
    """Names of TiCDC's own keys and tables directly below a table (all of them at the top for "")."""
    prefix = path + "." if path else ""
    known = [*ticdc_keys.IGNORED, *ticdc_keys.REFUSED]
    return {key[len(prefix) :].partition(".")[0] for key in known if key.startswith(prefix)} - {"*"}


def _keys(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    """The spellings of a model's keys, and their types."""
    for name, field in model.model_fields.items():
        alias = field.validation_alias
        spellings = alias.choices if isinstance(alias, AliasChoices) else [_kebab(name)]
        for spelling in spellings:
            yield str(spelling), field.annotation


def _section(annotation: Any) -> type[_Section] | None:
    """The model that a key holds, or holds a list of."""
    inner = getattr(annotation, "__args__", (annotation,))[0]
    return inner if isinstance(inner, type) and issubclass(inner, _Section) else None


def _first(error: ValidationError) -> str:
    """One line for the first complaint: path, value (never of a secret), what is wrong."""
    first = error.errors(include_url=False)[0]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    secret = any(word in path for word in ("password", "user", "secret"))
    shown = "" if secret or isinstance(first["input"], (dict, list)) else f" = {first['input']!r}"
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    if first["type"] == "model_type":
        message = "expected a table"
    return f"{path}{shown}: {message}"
