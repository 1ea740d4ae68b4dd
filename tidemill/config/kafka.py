"""kafka:// and kafka+ssl://: brokers, TLS, SASL, the topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, unquote

from tidemill.config.sinks import Reading, hosts_of
from tidemill.errors import ConfigError, redact
from tidemill.rules.topics import check_topic
from tidemill.secret import NONE, Secret, secret_of


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings with paths of PEM files. Empty: the system's CAs, no client certificate."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    insecure_skip_verify: bool = False
    key_password: Secret = NONE


@dataclass(frozen=True, slots=True)
class Sasl:
    mechanism: str  # PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
    user: str
    password: Secret


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Kafka settings. Times are in milliseconds. None: librdkafka's default."""

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


def read(uri: Reading) -> dict[str, Any]:
    """Return the fields of a kafka:// URI. Raises ConfigError."""
    protocol = uri.protocol
    if protocol is not None and protocol.not_on_kafka:
        raise ConfigError(f"sink URI {redact(uri.text)}: protocol {protocol.spellings[0]} is for files: {protocol.not_on_kafka}")
    return {"topic": _topic(uri), "kafka": _options(uri)}


def _topic(uri: Reading) -> str:
    try:
        return check_topic(unquote(uri.parts.path).lstrip("/"))
    except ValueError as error:
        raise ConfigError(f"sink URI {redact(uri.text)}: topic: {error}") from None


def _options(uri: Reading) -> KafkaOptions:
    values = uri.given
    return KafkaOptions(
        hosts=hosts_of(uri.parts, uri.text),
        replication_factor=values.get("replication-factor", 1),
        auto_create_topic=values.get("auto-create-topic", True),
        required_acks=values.get("required-acks", -1),
        compression=values.get("compression", "none"),
        client_id=values.get("kafka-client-id", ""),
        max_retry=values.get("max-retry"),
        dial_timeout=values.get("dial-timeout"),
        write_timeout=values.get("write-timeout"),
        read_timeout=values.get("read-timeout"),
        tls=_tls(uri.parts, values),
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
    key_password = secret_of("key-password", values, "sink URI")
    if key_password and not files["key"]:
        raise ConfigError("sink URI: key-password belongs to key")
    return Tls(**files, insecure_skip_verify=skip, key_password=key_password)


def _sasl(values: Mapping[str, Any]) -> Sasl | None:
    user, password = values.get("sasl-user"), secret_of("sasl-password", values, "sink URI")
    if user is None and not password:
        if "sasl-mechanism" in values:
            raise ConfigError("sink URI: sasl-mechanism needs sasl-user and sasl-password")
        return None
    if user is None or not password:
        raise ConfigError("sink URI: sasl-user and sasl-password belong together")
    return Sasl(values.get("sasl-mechanism", "plain").upper(), user, password)
