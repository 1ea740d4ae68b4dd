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
from tidemill.config.canal import CanalOptions
from tidemill.config.database import MysqlOptions
from tidemill.config.encoding import encoding_options
from tidemill.config.faults import Faults, unknown_parameter
from tidemill.config.kafka import KafkaOptions
from tidemill.config.lake import LakeOptions
from tidemill.config.parameters import Parameter, Scheme
from tidemill.config.sinks import LATER, WORDS, Ddls, Reading, SinkSpec
from tidemill.config.storage import StorageOptions
from tidemill.config.values import Adjusted, any_text, with_parameter
from tidemill.errors import ConfigError, redact
from tidemill.protocols.all import PROTOCOLS, SPELLINGS, brought, spec_of
from tidemill.protocols.options import EncodingOptions
from tidemill.rules.names import did_you_mean

NEW_TOPIC_PARTITIONS = 3  # partitions of a topic that the Kafka sink creates without partition-num

_LATER_PROTOCOLS = {"maxwell", "craft"}


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
    kafka: KafkaOptions | None = None
    storage: StorageOptions | None = None
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
    sink = next(sinks.of_scheme(scheme))
    protocol = values.get("protocol", sink.only_protocol or None)
    if sink.only_protocol and protocol != sink.only_protocol:
        raise ConfigError(f"sink URI: {scheme}:// writes {sink.only_protocol} alone; leave out the protocol")
    if not sink.has_protocol and protocol is not None:
        what = "a database has" if sink.ddls is Ddls.STATEMENTS else "tables have"
        raise ConfigError(f"sink URI {redact(text)}: {what} no protocol", hint="Leave out the protocol, also in the TOML file.")
    if protocol is None and sink.has_protocol and sink.needs_protocol:
        raise ConfigError(f"sink URI {redact(text)}: no protocol", hint="Add ?protocol=open-protocol, or sink.protocol to the TOML file.")
    _warn_of_others(protocol, values, warnings)
    if values.get("split-on-dispatch-key") and values.get("output-raw-change-event"):
        raise ConfigError("sink URI: split-on-dispatch-key and output-raw-change-event ask for the opposite of each other")
    whole = {name: default_of(parameter) for name, parameter in parameters_of(scheme).items()} | values
    encoding = encoding_options(protocol, whole)
    spec = spec_of(protocol) if protocol is not None else None
    fields: dict[str, Any] = {
        "encoding": encoding,
        "topic": whole["topic"],
        "path": unquote(parts.path) if scheme not in p.ALL_SCHEMES else "",
        "split_on_dispatch_key": whole["split-on-dispatch-key"],
    }
    if sink.read:
        fields |= sink.load(sink.read)(Reading(text, parts, scheme, values, whole, spec, encoding))
    return SinkUri(
        text=f"{parts.scheme}://{parts.netloc}{parts.path}" + ("?" + urlencode(given, quote_via=quote) if given else ""),
        scheme=scheme,
        partition_num=whole["partition-num"],
        create_tables=whole["create-tables"],
        own={parameter.name: whole[parameter.name] for parameter in sink.parameters},
        warnings=tuple(warnings),
        **fields,
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
    if word in WORDS and "://" in text:
        return WORDS[word]
    if word and "://" in text and sinks.brought(word) is not None:
        return word
    supported = ", ".join(dict.fromkeys(f"{s.value}://" for s in WORDS.values()))
    if word in LATER:
        raise ConfigError(f"sink URI: {word}:// is not supported yet; supported: {supported}")
    if not word or "://" not in text:
        raise ConfigError(f"sink URI {redact(text)}: it has to begin with one of {supported}")
    raise ConfigError(f"sink URI: no sink is called {word}://{did_you_mean(word, WORDS)}; supported: {supported}")


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
