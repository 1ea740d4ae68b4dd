"""Sink URIs: the target of a changefeed, and the parameters of delivery.

    kafka://HOST:PORT[,HOST:PORT…]/TOPIC?protocol=…        kafka+ssl:// the same over TLS
    file:///DIR?protocol=…          s3://BUCKET/PREFIX?protocol=…          messages:///FILE.jsonl?protocol=…          blackhole:///[?protocol=…]
    canal://HOST:PORT/DESTINATION[?store=…]          canal:///FOLDER
    mysql://USER:PASSWORD@HOST:PORT/               also mysql+ssl://, tidb://, tidb+ssl://
    delta:///DIR          delta+s3://BUCKET/PREFIX          iceberg://CATALOG/NAMESPACE?warehouse=…

Parameters are TiCDC's (`parameters`). An unknown, malformed or repeated one is a ConfigError. One of TiCDC without meaning here is a
warning, unless it would change what is delivered. The TOML file may set them too; the URI wins.
Secrets are in `SinkUri.text` and in fields that no repr shows.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from tidemill.config import parameters as p
from tidemill.config import sinks
from tidemill.config.database import TIDB_WORKERS, MysqlOptions, mysql_options
from tidemill.config.encoding import encoding_options
from tidemill.config.faults import Faults, unknown_parameter
from tidemill.config.lake import DELTA_ON_S3, LakeMode, LakeOptions, delta_place, lake_options
from tidemill.config.parameters import DateSeparator, Parameter, Scheme
from tidemill.config.sinks import SinkSpec
from tidemill.config.values import Adjusted, any_text, with_parameter
from tidemill.errors import ConfigError, redact
from tidemill.protocols.all import PROTOCOLS, SPELLINGS, brought, spec_of
from tidemill.protocols.options import EncodingOptions, MessageFormat
from tidemill.rules.names import did_you_mean
from tidemill.rules.topics import check_topic
from tidemill.secret import NONE, Secret, secret_of

NEW_TOPIC_PARTITIONS = 3  # partitions of a topic that the Kafka sink creates without partition-num

_LATER_PROTOCOLS = {"maxwell", "craft"}
_SCHEME_WORDS = {
    "kafka": Scheme.KAFKA,
    "kafka+ssl": Scheme.KAFKA,
    **{s.value: s for s in Scheme},
    **dict.fromkeys(("mysql+ssl", "tidb", "tidb+ssl"), Scheme.MYSQL),
    DELTA_ON_S3: Scheme.DELTA,
}
_LATER_SCHEMES = {
    *("pulsar", "pulsar+ssl", "pulsar+http", "pulsar+https"),
    *("gcs", "gs", "azblob", "azure", "noop"),
}
_DESTINATION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/@,]+):([0-9]{1,5})")


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


@dataclass(frozen=True, slots=True)
class S3Options:
    """The settings of a bucket. Empty ones come from the environment."""

    bucket: str
    region: str = ""
    endpoint: str = ""
    access_key: Secret = NONE
    secret_access_key: Secret = NONE
    session_token: Secret = NONE
    force_path_style: bool = True
    role_arn: str = ""
    external_id: Secret = NONE


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """Paths and files of a storage sink, as in TiCDC."""

    date_separator: DateSeparator = DateSeparator.DAY
    partition_separator: bool = True  # a folder for each partition of a partitioned table
    file_index_digits: int = 20
    flush_interval_ms: int = 5000
    file_size: int = 64 << 20  # bytes
    use_table_id_as_path: bool = False
    output_column_id: bool = False
    s3: S3Options | None = None  # None: a local folder


@dataclass(frozen=True, slots=True)
class CanalOptions:
    """A server for Canal's clients, and the entry store that it reads."""

    listen: str  # HOST:PORT; empty: only the store is written
    destination: str  # empty: without a server
    store: str  # folder or URL; empty: not given
    start_ts: int | None = None  # of a first subscription
    any_wait: bool = False  # a GET ends with any entry
    age_ms: int | None = None  # of the oldest entries that are kept
    size: int | None = None  # bytes that are kept


@dataclass(frozen=True, slots=True)
class SinkUri:
    """A checked sink URI. `text` is complete, with secrets and parameters from the TOML file: pass it to workers, but print `str()`."""

    text: str = field(repr=False)
    scheme: str  # a `Scheme`, or that of another package
    encoding: EncodingOptions
    topic: str
    path: str  # file and messages: absolute; s3: within the bucket; of another package's sink as it stands
    partition_num: int | None
    split_on_dispatch_key: bool
    create_tables: bool  # send CREATE TABLE before the rows that tables have at the start
    kafka: KafkaOptions | None
    storage: StorageOptions | None
    canal: CanalOptions | None = None
    mysql: MysqlOptions | None = None
    lake: LakeOptions | None = None
    own: Mapping[str, Any] = field(default_factory=dict, hash=False)  # values of `SinkSpec.parameters`
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return redact(self.text)

    @property
    def identity(self) -> str:
        """What a changefeed is bound to, without secrets. A store of entries may be served elsewhere and otherwise at any time."""
        if self.canal is None:
            return str(self)
        return f"canal:// with the store {redact(self.canal.store)}"

    def of_cluster(self, cluster_id: str) -> SinkUri:
        """The sink of changes of this cluster: the entries' serverId comes from it, unless one is given."""
        if self.canal is None or self.encoding.canal_server_id:
            return self
        number = server_id_of(cluster_id)
        return replace(
            self, text=with_parameter(self.text, "server-id", str(number)), encoding=replace(self.encoding, canal_server_id=number)
        )

    @property
    def spec(self) -> SinkSpec:
        """The sink that takes this URI."""
        return next(spec for spec in sinks.of_scheme(self.scheme) if spec.wants(self))

    @property
    def protocol(self) -> str | None:
        """The protocol. None: blackhole without encoding."""
        return self.encoding.protocol

    @property
    def max_message_bytes(self) -> int:
        return self.encoding.max_message_bytes

    @property
    def max_batch_size(self) -> int:
        return self.encoding.max_batch_size

    @property
    def flush_interval_ms(self) -> int:
        """How long rows may wait before their file is finished. 0 for sinks without such files."""
        if self.lake is not None and self.storage is not None:
            return self.storage.flush_interval_ms
        return (
            self.storage.flush_interval_ms
            if self.storage is not None and self.protocol is not None and spec_of(self.protocol).file_extension
            else 0
        )

    @property
    def sync_point_every_ms(self) -> int:
        """Batches end at the multiples of so many milliseconds of the upstream's clock. 0: they need not."""
        return self.mysql.sync_point_every if self.mysql is not None else 0

    @property
    def database(self) -> MysqlOptions:
        """The options of a mysql:// URI."""
        if self.mysql is None:
            raise ConfigError(f"{self} is not the address of a database")
        return self.mysql

    @property
    def broker(self) -> KafkaOptions:
        """The Kafka part of a kafka:// URI."""
        if self.kafka is None:
            raise ConfigError(f"{self} is not a Kafka address")
        return self.kafka


def parse_protocol(text: str) -> str:
    """Parse TiCDC's name of a protocol, or that of another package's. Raises ValueError, also for protocols that are not supported yet."""
    known = SPELLINGS.get(text.lower()) or brought(text)
    if known is not None:
        return known.format
    supported = ", ".join(spec.spellings[0] for spec in PROTOCOLS.values())
    if text.lower() in _LATER_PROTOCOLS:
        raise ValueError(f"not supported yet; supported: {supported}")
    raise ValueError(f"no such protocol{did_you_mean(text, SPELLINGS)}; supported: {supported}")


PARAMETERS = {
    "protocol": Parameter("protocol", parse_protocol, "", "the form of messages", ("sink.protocol",), p.ALL_SCHEMES),
    **p.PARAMETERS,
}


def parse_sink_uri(text: str, defaults: Mapping[str, str] | None = None) -> SinkUri:
    """Check a sink URI. `defaults` are parameters from the TOML file, used where the URI does not set them.

    Raises ConfigError, or ManyFaults if several parameters are wrong.
    """
    faults = Faults()
    parts, scheme, given, values, warnings = _read(text, faults)
    for name, value in (defaults or {}).items():
        if name in given:
            continue
        with faults.collected():
            parsed = _value(PARAMETERS[name], value, warnings, "configuration, [sink]")
            if takes(scheme, PARAMETERS[name]):
                given[name], values[name] = value, parsed
            elif not p.asks_for_nothing(name, value):
                raise ConfigError(f"configuration, [sink]: {name} is not supported for {scheme}://")
            elif parsed != default_of(PARAMETERS[name]):
                warnings.append(f"{name} has no meaning for {scheme}://")
    faults.check()
    protocol = values.get("protocol", MessageFormat.CANAL if scheme is Scheme.CANAL else None)
    if scheme is Scheme.CANAL and protocol is not MessageFormat.CANAL:
        raise ConfigError("sink URI: canal:// writes Canal's own entries; leave out the protocol")
    sink = next(sinks.of_scheme(scheme))
    if not sink.has_protocol and protocol is not None:
        what = "a database has" if scheme is Scheme.MYSQL else "tables have"
        raise ConfigError(f"sink URI {redact(text)}: {what} no protocol", hint="Leave out the protocol, also in the TOML file.")
    if protocol is None and sink.has_protocol and sink.needs_protocol:
        raise ConfigError(f"sink URI {redact(text)}: no protocol", hint="Add ?protocol=open-protocol, or sink.protocol to the TOML file.")
    spec = spec_of(protocol) if protocol is not None else None
    if scheme is Scheme.S3 and (spec is None or not spec.file_extension):
        files = " and ".join(sorted((s.spellings[0] for s in PROTOCOLS.values() if s.file_extension), reverse=True))
        raise ConfigError(f"sink URI: s3:// takes protocol={files}")
    if spec is not None and spec.not_on_kafka and scheme is Scheme.KAFKA:
        raise ConfigError(f"sink URI {redact(text)}: protocol {spec.spellings[0]} is for files: {spec.not_on_kafka}")
    _warn_of_others(protocol, values, warnings)
    if values.get("split-on-dispatch-key") and values.get("output-raw-change-event"):
        raise ConfigError("sink URI: split-on-dispatch-key and output-raw-change-event ask for the opposite of each other")
    whole = {name: default_of(parameter) for name, parameter in parameters_of(scheme).items()} | values
    if "worker-count" not in values and parts.scheme.startswith("tidb"):
        whole["worker-count"] = TIDB_WORKERS
    encoding = encoding_options(protocol, whole)
    if scheme is Scheme.CANAL:  # an update of a key is an update for Canal's clients
        encoding = replace(
            encoding,
            canal_server_id=whole["server-id"] or 0,
            canal_member_names=whole["enum-set-as-text"],
            output_raw_change_event=True,
        )
    lake = lake_options(parts, whole, text) if scheme in p.LAKE else None
    if lake is not None:
        every_change = lake.mode is LakeMode.CHANGES
        encoding = replace(encoding, every_image=every_change, output_raw_change_event=every_change)
    return SinkUri(
        text=f"{parts.scheme}://{parts.netloc}{parts.path}" + ("?" + urlencode(given, quote_via=quote) if given else ""),
        scheme=scheme,
        encoding=encoding,
        topic=_kafka_topic(parts, text) if scheme is Scheme.KAFKA else whole["topic"],
        path=_path(scheme, parts, text),
        partition_num=whole["partition-num"],
        split_on_dispatch_key=whole["split-on-dispatch-key"] and scheme is not Scheme.CANAL,
        create_tables=whole["create-tables"],
        kafka=_kafka_options(parts, values, text) if scheme is Scheme.KAFKA else None,
        storage=_storage_options(scheme, parts, whole) if scheme in p.STORAGE | p.LAKE else None,
        canal=_canal_options(parts, whole, text) if scheme is Scheme.CANAL else None,
        mysql=mysql_options(parts, whole, text) if scheme is Scheme.MYSQL else None,
        lake=lake,
        own={parameter.name: whole[parameter.name] for parameter in sink.parameters},
        warnings=tuple(warnings),
    )


def server_id_of(cluster_id: str) -> int:
    """A number for the headers of a cluster's entries, as MySQL servers have one: 31 bits, not 0."""
    number = int(cluster_id) if cluster_id.isdecimal() else zlib.crc32(cluster_id.encode())
    return (number ^ number >> 32) & 0x7FFFFFFF or 1


def with_store(text: str, folder: str) -> str:
    """Give a canal:// URI with a server this entry store, unless it names one."""
    if not text.startswith("canal://") or text.startswith("canal:///") or re.search(r"[?&]store=", text):
        return text
    return with_parameter(text, "store", folder)


def check_alone(text: str) -> None:
    """Check a sink URI without a TOML file, and without checks across parameters. Raises the errors of `parse_sink_uri`."""
    faults = Faults()
    _read(text, faults)
    faults.check()


def _read(text: str, faults: Faults) -> tuple[SplitResult, str, dict[str, str], dict[str, Any], list[str]]:
    """Return the URI's parts, its scheme, its parameters as text and as values, and warnings."""
    try:
        parts = urlsplit(text.strip())
    except ValueError as error:
        raise ConfigError(f"sink URI {redact(text)}: {error}") from None
    if "\0" in unquote(parts.netloc + parts.path):
        raise ConfigError(f"sink URI {redact(text)}: it has a zero byte (%00)")
    scheme = _scheme(parts, text)
    known = parameters_of(scheme)
    given, warnings = _parameters(scheme, parts, text, faults)
    values: dict[str, Any] = {}
    for name, value in given.items():
        with faults.collected():
            values[name] = _value(known[name], value, warnings, "sink URI")
    return parts, scheme, given, values, warnings


def check_parameter(name: str, text: str, where: str) -> None:
    """Check a value without its sink. `where` names the place for errors. Raises ConfigError."""
    _value(PARAMETERS[name], text, [], where)


def parameters_of(scheme: str) -> Mapping[str, Parameter]:
    """Return all parameters by name, with those that only the sink of this scheme has."""
    own = {parameter.name: parameter for spec in sinks.of_scheme(scheme) for parameter in spec.parameters}
    return own | PARAMETERS


def takes(scheme: str, parameter: Parameter) -> bool:
    """Return whether a parameter has a meaning for the sink of a scheme. One of another package has its own, and those of every sink of
    messages that has no broker, or without a protocol those of every sink."""
    if scheme in p.ALL_SCHEMES:
        return scheme in parameter.schemes
    spec = next(sinks.of_scheme(scheme))
    return parameter in spec.parameters or (
        Scheme.BLACKHOLE in parameter.schemes if spec.has_protocol else parameter.schemes == p.ALL_SCHEMES
    )


def default_of(parameter: Parameter) -> Any:
    """Return the default value of a parameter, or None if it has none."""
    if parameter.default == "" and parameter.parse is not any_text:
        return None
    return parameter.parse(parameter.default)


def uses(protocol: str | None, parameter: Parameter) -> bool:
    """Return whether a protocol uses a parameter. Without a protocol, any may be used."""
    if protocol is None or protocol in PROTOCOLS:
        return protocol is None or protocol in parameter.protocols
    return parameter.name in spec_of(protocol).options or parameter.protocols == frozenset(PROTOCOLS)


def _warn_of_others(protocol: str | None, values: Mapping[str, Any], warnings: list[str]) -> None:
    """Warn of parameters that the protocol does not use."""
    for name, value in values.items():
        parameter = PARAMETERS.get(name)
        if parameter is not None and not uses(protocol, parameter) and value != default_of(parameter):
            warnings.append(f"{name} has no meaning for protocol {protocol}")


def _scheme(parts: SplitResult, text: str) -> str:
    word = parts.scheme
    if word in _SCHEME_WORDS and "://" in text:
        return _SCHEME_WORDS[word]
    if word and "://" in text and sinks.brought(word) is not None:
        return word
    supported = ", ".join(dict.fromkeys(f"{s.value}://" for s in _SCHEME_WORDS.values()))
    if word in _LATER_SCHEMES:
        raise ConfigError(f"sink URI: {word}:// is not supported yet; supported: {supported}")
    if not word or "://" not in text:
        raise ConfigError(f"sink URI {redact(text)}: it has to begin with one of {supported}")
    raise ConfigError(f"sink URI: no sink is called {word}://{did_you_mean(word, _SCHEME_WORDS)}; supported: {supported}")


def _parameters(scheme: str, parts: SplitResult, text: str, faults: Faults) -> tuple[dict[str, str], list[str]]:
    """Return the parameters with a meaning, as text, and warnings about the others."""
    if parts.fragment:
        raise ConfigError(f"sink URI {redact(text)}: a `#` has to be written %23")
    given: dict[str, str] = {}
    warnings: list[str] = []
    seen: set[str] = set()
    known = parameters_of(scheme)
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in seen:
            if name in known:
                faults.add(ConfigError(f"sink URI: {name} is given twice"))
            continue
        seen.add(name)
        if name in known and takes(scheme, known[name]):
            given[name] = value
        elif name in p.UNSUPPORTED:
            if not p.asks_for_nothing(name, value):
                faults.add(p.not_supported("sink URI", name))
        elif name in p.UNUSED:
            warnings.append(f"{name} has no meaning for Tidemill: {p.UNUSED[name]}")
        elif name not in known:
            faults.add(unknown_parameter("sink URI", name, {*known, *p.UNUSED, *p.UNSUPPORTED}))
        elif scheme in p.LAKE and name in p.NOT_OF_LAKES:
            faults.add(ConfigError(f"sink URI: {name} is not for {scheme}://", hint=f"Leave it out; {p.NOT_OF_LAKES[name]} says it."))
        else:
            warnings.append(f"{name} has no meaning for {scheme}://")
    return given, warnings


def _value(parameter: Parameter, text: str, warnings: list[str], where: str) -> Any:
    name = parameter.name
    try:
        if "\0" in text and parameter.parse is not any_text and not parameter.secret:
            raise ValueError("it has a zero byte")
        return parameter.parse(text)
    except Adjusted as adjusted:
        warnings.append(f"{name} = {text}: {adjusted}")
        return adjusted.value
    except ValueError as error:
        shown = "" if parameter.secret else f" = {text!r}"
        raise ConfigError(f"{where}: {name}{shown}: {error}") from None


def _path(scheme: str, parts: SplitResult, text: str) -> str:
    path = unquote(parts.path)
    if scheme is Scheme.S3:
        if not parts.netloc or "@" in parts.netloc or ":" in parts.netloc:
            raise ConfigError(f"sink URI {redact(text)}: expected s3://BUCKET/PREFIX; keys go into the parameters")
        return path.strip("/")
    if scheme is Scheme.DELTA:
        return delta_place(parts, text)
    if scheme not in p.ALL_SCHEMES:
        return path
    if scheme not in (Scheme.FILE, Scheme.MESSAGES):
        return ""
    if parts.netloc not in ("", "localhost") or not path.startswith("/"):
        raise ConfigError(f"sink URI {redact(text)}: expected an absolute path: {scheme}:///path")
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


def _canal_options(parts: SplitResult, values: Mapping[str, Any], text: str) -> CanalOptions:
    path, store, host = unquote(parts.path), values["store"] or "", ""
    destination = path.strip("/") if parts.netloc else ""
    if parts.netloc:
        host, *others = _hosts(parts, text)
        if others or not _DESTINATION.fullmatch(destination):
            raise ConfigError(f"sink URI {redact(text)}: expected canal://HOST:PORT/DESTINATION, or canal:///FOLDER")
    elif not path.strip("/") or store:
        raise ConfigError(f"sink URI {redact(text)}: canal:///FOLDER names the entry store itself, without store=")
    else:
        store = path.rstrip("/")
    any_wait = values["get.wait"] == "any"
    return CanalOptions(host, destination, store, values["start-ts"], any_wait, values["store-age"], values["store-size"])


def _storage_options(scheme: str, parts: SplitResult, values: Mapping[str, Any]) -> StorageOptions:
    s3 = S3Options(
        bucket=urlsplit(values["warehouse"]).netloc if scheme is Scheme.ICEBERG else parts.netloc,
        region=values["region"] or "",
        endpoint=values["endpoint"] or "",
        access_key=secret_of("access-key", values, "sink URI"),
        secret_access_key=secret_of("secret-access-key", values, "sink URI"),
        session_token=secret_of("session-token", values, "sink URI"),
        force_path_style=values["force-path-style"],
        role_arn=values["role-arn"] or "",
        external_id=secret_of("external-id", values, "sink URI"),
    )
    if s3.role_arn and s3.access_key:
        raise ConfigError(
            "sink URI: role-arn and access-key exclude each other", hint="The environment has the keys that may take the role."
        )
    if s3.external_id and not s3.role_arn:
        raise ConfigError("sink URI: external-id belongs to role-arn")
    return StorageOptions(
        date_separator=values["date-separator"],
        partition_separator=values["enable-partition-separator"],
        file_index_digits=values["file-index-digit"],
        flush_interval_ms=values["flush-interval"],
        file_size=values["file-size"],
        use_table_id_as_path=values["use-table-id-as-path"],
        output_column_id=values["output-column-id"],
        s3=s3 if scheme is Scheme.S3 or parts.scheme == DELTA_ON_S3 or (values["warehouse"] or "").startswith("s3://") else None,
    )
