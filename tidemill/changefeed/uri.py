"""Sink URIs: where a changefeed delivers, and how.

    kafka://HOST:PORT[,HOST:PORT…]/TOPIC?protocol=…        kafka+ssl:// the same over TLS
    file:///DIR?protocol=…          messages:///FILE.jsonl?protocol=…          blackhole:///[?protocol=…]

Parameters are TiCDC's. One that is unknown, malformed or given twice is a ConfigError; one of TiCDC's that has no meaning here is taken
with a warning, unless it would change what is delivered. The same parameters may come from the TOML file; those of the URI win.
Secrets live in `SinkUri.text` and in `Sasl.password` only, and neither is in any repr.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from tidemill.changefeed.names import did_you_mean
from tidemill.errors import ConfigError, redact
from tidemill.protocols.options import EncodingOptions, MessageFormat


class Scheme(enum.Enum):
    KAFKA = "kafka"
    FILE = "file"
    MESSAGES = "messages"
    BLACKHOLE = "blackhole"


DEFAULT_TOPIC = "tidemill"
MAX_MESSAGE_BYTES = 10 * 1024 * 1024
MAX_BATCH_SIZE = 16
NEW_TOPIC_PARTITIONS = 3  # of a topic that the Kafka sink creates, without partition-num

_PROTOCOL_WORDS = {"open-protocol": MessageFormat.OPEN, "default": MessageFormat.OPEN}
_LATER_PROTOCOLS = {"canal", "canal-json", "avro", "flat-avro", "maxwell", "craft", "csv", "debezium", "debezium-avro", "simple"}
_SCHEME_WORDS = {"kafka": Scheme.KAFKA, "kafka+ssl": Scheme.KAFKA, **{s.value: s for s in Scheme}}
_LATER_SCHEMES = {
    *("pulsar", "pulsar+ssl", "pulsar+http", "pulsar+https", "mysql", "mysql+ssl", "tidb", "tidb+ssl"),
    *("s3", "gcs", "gs", "azblob", "azure", "noop"),
}
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/@,]+):([0-9]{1,5})")
_CLIENT_ID = re.compile(r"[A-Za-z0-9._-]+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?)(ms|us|µs|ns|h|m|s)")
_MILLIS = {"h": 3_600_000.0, "m": 60_000.0, "s": 1000.0, "ms": 1.0, "us": 1e-3, "µs": 1e-3, "ns": 1e-6}
_TRUE, _FALSE = {"1", "t", "T", "TRUE", "true", "True"}, {"0", "f", "F", "FALSE", "false", "False"}


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files; empty: the system's authorities, no client certificate."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    insecure_skip_verify: bool = False


@dataclass(frozen=True, slots=True)
class Sasl:
    mechanism: str  # PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Times are milliseconds; None: librdkafka's default."""

    hosts: tuple[str, ...]
    replication_factor: int = 1
    auto_create_topic: bool = True
    required_acks: int = -1  # -1 all, 0, 1
    compression: str = "none"
    client_id: str = ""
    max_retry: int | None = None
    dial_timeout: int | None = None
    write_timeout: int | None = None
    read_timeout: int | None = None
    tls: Tls | None = None
    sasl: Sasl | None = None


@dataclass(frozen=True, slots=True)
class SinkUri:
    """A checked sink URI. `text` is all of it, secrets and parameters from the TOML file included: hand it to workers, print `str()`."""

    text: str = field(repr=False)
    scheme: Scheme
    protocol: MessageFormat | None  # None: blackhole without encoding
    topic: str
    path: str  # of file and messages, absolute
    partition_num: int | None
    max_message_bytes: int
    max_batch_size: int
    kafka: KafkaOptions | None
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return redact(self.text)

    @property
    def encoding(self) -> EncodingOptions:
        """How rows become messages, as far as the URI says."""
        return EncodingOptions(self.protocol, self.max_message_bytes, self.max_batch_size)

    @property
    def broker(self) -> KafkaOptions:
        """The Kafka part of a kafka:// URI."""
        if self.kafka is None:
            raise ConfigError(f"{self} is not a Kafka address")
        return self.kafka


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,19}", text) or not low <= int(text) <= high:
            raise ValueError(f"expected an integer from {low} to {high}")
        return int(text)

    return parse


def parse_bool(text: str) -> bool:
    """A boolean in any of the spellings that Go takes."""
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError("expected true or false")


def parse_duration(text: str) -> int:
    """A duration as Go writes it (`10s`, `1m30s`, `250ms`) in milliseconds."""
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("expected a duration such as 10s, 1m30s or 250ms")
    millis = sum(float(number) * _MILLIS[unit] for number, unit in parts)
    if not 1 <= millis <= 86_400_000:
        raise ValueError("expected a duration from 1ms to 24h")
    return round(millis)


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return text.lower()

    return parse


def _acks(text: str) -> int:
    acks = {"-1": -1, "all": -1, "0": 0, "1": 1}.get(text.lower())
    if acks is None:
        raise ValueError("expected -1 (all in-sync replicas), 1 or 0")
    return acks


def check_topic(text: str) -> str:
    """A legal Kafka topic name."""
    if not _TOPIC.fullmatch(text) or text in (".", ".."):
        raise ValueError("expected 1 to 249 of the characters A-Z a-z 0-9 . _ -")
    return text


def _client_id(text: str) -> str:
    if not _CLIENT_ID.fullmatch(text):
        raise ValueError("expected characters A-Z a-z 0-9 . _ -")
    return text


def parse_protocol(text: str) -> MessageFormat:
    """TiCDC's protocol words; those that cannot be delivered yet are refused by name."""
    known = _PROTOCOL_WORDS.get(text.lower())
    if known:
        return known
    supported = ", ".join(dict.fromkeys(p.value for p in _PROTOCOL_WORDS.values()))
    if text.lower() in _LATER_PROTOCOLS:
        raise ValueError(f"not supported yet; supported: {supported}")
    raise ValueError(f"no such protocol{did_you_mean(text, _PROTOCOL_WORDS)}; supported: {supported}")


def _text(text: str) -> str:
    if not text:
        raise ValueError("expected a value")
    return text


_EVERYWHERE: dict[str, Callable[[str], Any]] = {
    "protocol": parse_protocol,
    "partition-num": _integer(1, 100_000),
    "max-message-bytes": _integer(1, 1_000_000_000),
    "max-batch-size": _integer(1, 65_535),
}
_KAFKA: dict[str, Callable[[str], Any]] = {
    "replication-factor": _integer(1, 32_767),
    "auto-create-topic": parse_bool,
    "required-acks": _acks,
    "compression": _one_of("none", "gzip", "snappy", "lz4", "zstd"),
    "kafka-client-id": _client_id,
    "max-retry": _integer(1, 2_147_483_647),
    "dial-timeout": parse_duration,
    "write-timeout": parse_duration,
    "read-timeout": parse_duration,
    "enable-tls": parse_bool,
    "ca": _text,
    "cert": _text,
    "key": _text,
    "insecure-skip-verify": parse_bool,
    "sasl-user": _text,
    "sasl-password": _text,
    "sasl-mechanism": _one_of("plain", "scram-sha-256", "scram-sha-512"),
}
_TOPICLESS: dict[str, Callable[[str], Any]] = {"topic": check_topic}
PARAMETERS: dict[Scheme, dict[str, Callable[[str], Any]]] = {
    Scheme.KAFKA: _EVERYWHERE | _KAFKA,
    Scheme.FILE: _EVERYWHERE | _TOPICLESS,
    Scheme.MESSAGES: _EVERYWHERE | _TOPICLESS,
    Scheme.BLACKHOLE: _EVERYWHERE | _TOPICLESS,
}
"""The parameters of each scheme and what reads their values (ValueError says what was expected)."""

# TiCDC parameters whose effect belongs to protocols or services that this version does not have.
_WITHOUT_MEANING = {
    *(
        "kafka-version",
        "avro-decimal-handling-mode",
        "avro-bigint-unsigned-handling-mode",
        "avro-enable-watermark",
        "avro-include-before-value",
    ),
    *("enable-tidb-extension", "encoding-format", "debezium-disable-schema", "debezium-include-start-ts", "output-row-key"),
    *("worker-count", "flush-interval", "file-size", "use-table-id-as-path", "spool-disk-quota", "spool-base-dir"),
    *("sasl-gssapi-disable-pafxfast",),
}
# … and those that would change what is delivered or how the broker is reached: refused unless they ask for nothing.
_REFUSED = {
    "only-output-updated-columns": "false",
    "content-compatible": "false",
    "delete-only-output-handle-key-columns": "false",
    "output-raw-change-event": "false",
    "large-message-handle-option": "none",
    "large-message-handle-compression": "none",
    "claim-check-storage-uri": "",
    "schema-registry": "",
    **dict.fromkeys(
        [f"sasl-gssapi-{k}" for k in ("auth-type", "keytab-path", "kerberos-config-path", "service-name", "user", "password", "realm")], ""
    ),
    **dict.fromkeys([f"sasl-oauth-{k}" for k in ("client-id", "client-secret", "token-url", "scopes", "grant-type", "audience")], ""),
}


def parse_sink_uri(text: str, defaults: Mapping[str, str] | None = None) -> SinkUri:
    """Check a sink URI. `defaults`: parameters from the TOML file, used where the URI has none of that name. Raises ConfigError."""
    try:
        parts = urlsplit(text.strip())
    except ValueError as error:
        raise ConfigError(f"sink URI {redact(text)}: {error}") from None
    scheme = _scheme(parts, text)
    given, warnings = _parameters(scheme, parts, text)
    named = set(given)
    for name, value in (defaults or {}).items():
        if name in PARAMETERS[scheme]:
            given.setdefault(name, value)
        else:
            warnings.append(f"{name} has no meaning for {scheme.value}://")
    values = {name: _value(name, value, PARAMETERS[scheme][name], in_uri=name in named) for name, value in given.items()}
    protocol = values.get("protocol")
    if protocol is None and scheme is not Scheme.BLACKHOLE:
        raise ConfigError(f"sink URI {redact(text)}: no protocol", hint="Add ?protocol=open-protocol, or sink.protocol to the TOML file.")
    kafka = _kafka_options(parts, values, text) if scheme is Scheme.KAFKA else None
    topic = _kafka_topic(parts, text) if scheme is Scheme.KAFKA else values.get("topic", DEFAULT_TOPIC)
    return SinkUri(
        text=f"{parts.scheme}://{parts.netloc}{parts.path}" + ("?" + urlencode(given, quote_via=quote) if given else ""),
        scheme=scheme,
        protocol=protocol,
        topic=topic,
        path=_path(scheme, parts, text),
        partition_num=values.get("partition-num"),
        max_message_bytes=values.get("max-message-bytes", MAX_MESSAGE_BYTES),
        max_batch_size=values.get("max-batch-size", MAX_BATCH_SIZE),
        kafka=kafka,
        warnings=tuple(warnings),
    )


def _scheme(parts: SplitResult, text: str) -> Scheme:
    word = parts.scheme
    if word in _SCHEME_WORDS and "://" in text:
        return _SCHEME_WORDS[word]
    supported = ", ".join(f"{s.value}://" for s in Scheme)
    if word in _LATER_SCHEMES:
        raise ConfigError(f"sink URI: {word}:// is not supported yet; supported: {supported}")
    if not word or "://" not in text:
        raise ConfigError(f"sink URI {redact(text)}: it has to begin with one of {supported}")
    raise ConfigError(f"sink URI: no sink is called {word}://{did_you_mean(word, _SCHEME_WORDS)}; supported: {supported}")


def _parameters(scheme: Scheme, parts: SplitResult, text: str) -> tuple[dict[str, str], list[str]]:
    """The parameters with a meaning, as text, and warnings about the others."""
    if parts.fragment:
        raise ConfigError(f"sink URI {redact(text)}: a `#` has to be written %23")
    given: dict[str, str] = {}
    warnings: list[str] = []
    seen: set[str] = set()
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in seen:
            raise ConfigError(f"sink URI: {name} is given twice")
        seen.add(name)
        if name in PARAMETERS[scheme]:
            given[name] = value
        elif name in _REFUSED:
            if value.lower() not in (_REFUSED[name], ""):
                raise ConfigError(f"sink URI: {name} is not supported yet")
        elif name in _WITHOUT_MEANING or any(name in p for p in PARAMETERS.values()):
            warnings.append(f"{name} has no meaning for {scheme.value}:// with the protocols supported so far")
        else:
            known = {*PARAMETERS[scheme], *_WITHOUT_MEANING, *_REFUSED}
            raise ConfigError(f"sink URI: unknown parameter {name}{did_you_mean(name, known)}")
    return given, warnings


def _value(name: str, text: str, parse: Callable[[str], Any], *, in_uri: bool) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        shown = "" if "password" in name or name == "sasl-user" else f" = {text!r}"
        raise ConfigError(f"{'sink URI' if in_uri else 'configuration, [sink]'}: {name}{shown}: {error}") from None


def _path(scheme: Scheme, parts: SplitResult, text: str) -> str:
    if scheme not in (Scheme.FILE, Scheme.MESSAGES):
        return ""
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/"):
        raise ConfigError(f"sink URI {redact(text)}: expected an absolute path: {scheme.value}:///path")
    if not path.strip("/") or (scheme is Scheme.MESSAGES and path.endswith("/")):
        raise ConfigError(f"sink URI {redact(text)}: it names no {'file' if scheme is Scheme.MESSAGES else 'folder'}")
    return path.rstrip("/")


def _kafka_topic(parts: SplitResult, text: str) -> str:
    try:
        return check_topic(unquote(parts.path).lstrip("/"))
    except ValueError as error:
        raise ConfigError(f"sink URI {redact(text)}: topic: {error}") from None


def _hosts(parts: SplitResult, text: str) -> tuple[str, ...]:
    if "@" in parts.netloc:
        raise ConfigError(f"sink URI {redact(text)}: user and password go into the parameters sasl-user and sasl-password")
    hosts = tuple(parts.netloc.split(","))
    for host in hosts:
        match = _HOST.fullmatch(host)
        if not match or not 1 <= int(match[2]) <= 65_535:
            raise ConfigError(f"sink URI {redact(text)}: {host!r} is not HOST:PORT")
    return hosts


def _kafka_options(parts: SplitResult, values: Mapping[str, Any], text: str) -> KafkaOptions:
    return KafkaOptions(
        hosts=_hosts(parts, text),
        replication_factor=values.get("replication-factor", 1),
        auto_create_topic=values.get("auto-create-topic", True),
        required_acks=values.get("required-acks", -1),
        compression=values.get("compression", "none"),
        client_id=values.get("kafka-client-id", ""),
        max_retry=values.get("max-retry"),
        dial_timeout=values.get("dial-timeout"),
        write_timeout=values.get("write-timeout"),
        read_timeout=values.get("read-timeout"),
        tls=_tls(parts, values),
        sasl=_sasl(values),
    )


def _tls(parts: SplitResult, values: Mapping[str, Any]) -> Tls | None:
    files = {name: values.get(name, "") for name in ("ca", "cert", "key")}
    skip = values.get("insecure-skip-verify", False)
    wanted = values.get("enable-tls", parts.scheme == "kafka+ssl" or any(files.values()))
    if not wanted:
        if parts.scheme == "kafka+ssl" or any(files.values()) or skip:
            raise ConfigError("sink URI: enable-tls=false contradicts kafka+ssl://, ca, cert, key or insecure-skip-verify")
        return None
    if bool(files["cert"]) != bool(files["key"]):
        raise ConfigError("sink URI: cert and key belong together")
    return Tls(**files, insecure_skip_verify=skip)


def _sasl(values: Mapping[str, Any]) -> Sasl | None:
    user, password = values.get("sasl-user"), values.get("sasl-password")
    if user is None and password is None:
        if "sasl-mechanism" in values:
            raise ConfigError("sink URI: sasl-mechanism needs sasl-user and sasl-password")
        return None
    if user is None or password is None:
        raise ConfigError("sink URI: sasl-user and sasl-password belong together")
    return Sasl(values.get("sasl-mechanism", "plain").upper(), user, password)
