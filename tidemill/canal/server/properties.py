"""Canal's property names: which are taken, and why the others are refused.

A property that tunes what this server does not have is refused by name: to take it and do nothing would be a surprise. One is taken whose
value says what is so anyway.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from tidemill.canal.conversation.desk import Access, Destination
from tidemill.canal.conversation.fields import FieldsError, parse_fields
from tidemill.canal.conversation.filters import FilterError, Kinds, name_filter
from tidemill.canal.scramble import DIGEST, Credential
from tidemill.canal.server.memory import LEAST_LIMIT, LIMIT_BYTES
from tidemill.errors import ConfigError, TidemillError
from tidemill.rules.names import did_you_mean
from tidemill.tso import compose, parse

Value = str
INSTANCE = "canal.instance."


class _Wrong(ValueError):
    """What is wrong with a value."""


def _flag(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise _Wrong("is neither true nor false")
    return text.strip().lower() == "true"


def _digest(text: str) -> bytes:
    """`canal.passwd`: hex of SHA1(SHA1(password)), with MySQL's star or without."""
    try:
        digest = bytes.fromhex(text.strip().removeprefix("*"))
    except ValueError:
        digest = b"?"
    if digest and len(digest) != DIGEST:
        raise _Wrong("is not the hex of SHA1(SHA1(password)), 40 digits as MySQL's password() gives them")
    return digest


def _filter(text: str) -> str:
    try:
        return name_filter(text).text
    except FilterError as error:
        raise _Wrong(f"is not a filter: {error}") from None


def _mode(text: str) -> bool:
    if text.strip().upper() not in ("MEMSIZE", "ITEMSIZE"):
        raise _Wrong("is neither MEMSIZE nor ITEMSIZE")
    return text.strip().upper() == "ITEMSIZE"


def _time(text: str) -> int | None:
    """`start-ts`: a TSO or a time."""
    return parse(text) if text.strip() else None


def _milliseconds(text: str) -> int | None:
    if not text.strip():
        return None
    if not text.strip().isdecimal():
        raise _Wrong("is not a time in milliseconds since 1970")
    return compose(int(text))


def _columns(text: str) -> dict[tuple[str, str], frozenset[str]]:
    try:
        return parse_fields(text)
    except FieldsError as error:
        raise _Wrong(str(error)) from None


def _wait(text: str) -> bool:
    if text.strip().lower() not in ("any", "all"):
        raise _Wrong("is neither any nor all")
    return text.strip().lower() == "any"


@dataclass(frozen=True, slots=True)
class _Known:
    """How a property's text is read, and where it goes."""

    read: Callable[[str], Any]
    put: Callable[[Destination, Any], Destination]


def _into(name: str) -> Callable[[Destination, Any], Destination]:
    return lambda destination, value: replace(destination, **{name: value})


def _kind(name: str) -> Callable[[Destination, Any], Destination]:
    return lambda destination, value: replace(destination, kinds=replace(destination.kinds, **{name: value}))


def _field(name: str) -> Callable[[Destination, Any], Destination]:
    return lambda destination, value: replace(destination, fields=replace(destination.fields, **{name: value}))


def _user(destination: Destination, value: str) -> Destination:
    return replace(destination, credential=replace(destination.credential or Credential(), user=value))


def _passwd(destination: Destination, value: bytes) -> Destination:
    return replace(destination, credential=replace(destination.credential or Credential(), digest=value))


def _same(destination: Destination, value: object) -> Destination:
    return destination


def _only(*texts: str) -> Callable[[str], str]:
    """A value that says what is so anyway."""

    def read(text: str) -> str:
        if text.strip().lower() not in texts:
            raise _Wrong(f"cannot be had: this server does as with {texts[0] or 'an empty value'}")
        return text

    return read


_INSTANCE: Mapping[str, _Known] = {
    "filter.regex": _Known(_filter, _into("filter")),
    "filter.black.regex": _Known(_filter, _into("black")),
    "filter.field": _Known(_columns, _field("only")),
    "filter.black.field": _Known(_columns, _field("without")),
    "filter.dml.insert": _Known(_flag, _kind("without_insert")),
    "filter.dml.update": _Known(_flag, _kind("without_update")),
    "filter.dml.delete": _Known(_flag, _kind("without_delete")),
    "filter.rows": _Known(_flag, _kind("without_rows")),
    "filter.query.ddl": _Known(_flag, _kind("without_ddl")),
    "filter.transaction.entry": _Known(_flag, _kind("without_boundaries")),
    "get.ddl.isolation": _Known(_flag, _into("alone")),
    "memory.batch.mode": _Known(_mode, _into("items")),
    "master.timestamp": _Known(_milliseconds, _into("start_ts")),
    # Statements and other events of a binlog, of which TiDB's changes have none: with or without the filter nothing of them comes.
    "filter.query.dcl": _Known(_flag, _same),
    "filter.query.dml": _Known(_flag, _same),
    "filter.table.error": _Known(_flag, _same),
    # What is so anyway.
    "memory.rawEntry": _Known(_only("true"), _same),
    "memory.buffer.memunit": _Known(_only("1024"), _same),
    "gtidon": _Known(_only("false"), _same),
    "connectionCharset": _Known(_only("utf-8", "utf8", "utf8mb4"), _same),
    "master.gtid": _Known(_only(""), _same),
    "master.journal.name": _Known(_only(""), _same),
    "master.position": _Known(_only("", "0"), _same),
    "rds.accesskey": _Known(_only(""), _same),
    "rds.secretkey": _Known(_only(""), _same),
    "rds.instanceId": _Known(_only(""), _same),
}
_OWN: Mapping[str, _Known] = {
    "start-ts": _Known(_time, _into("start_ts")),
    "get.wait": _Known(_wait, _into("any")),
    "canal.user": _Known(str.strip, _user),
    "canal.passwd": _Known(_digest, _passwd),
}
"""Of a destination, that Canal does not have."""

_SERVER = (
    "canal.user", "canal.passwd", "canal.destinations", "canal.ip", "canal.port", "canal.serverMode", "canal.auth.plain",
    "canal.tls.cert", "canal.tls.key", "canal.tls.ca", "canal.zkServers", "canal.register.ip",
    "memory-limit",
)  # fmt: skip
"""Of the server."""

RING = "there is no ring in memory: entries lie in the store"
SOURCE = "the source is a changefeed of `tidemill run`, not a MySQL server"
META = "clients' positions lie in the store, and are safe before the next answer"
ONE = "servers of a store are told apart by their addresses"
MQ = "messages to brokers are written by a changefeed with a kafka:// sink"
ADMIN = "there is no canal-admin"
KIND = "there is one kind of instance"
PAGES = "/metrics is at --status-addr"

_OF_INSTANCE = {
    RING: ("memory.buffer.size", "transaction.size"),
    SOURCE: (
        "master.address", "dbUsername", "dbPassword", "defaultDatabaseName", "mysql.slaveId", "pwdPublicKey", "enableDruid",
        "fallbackIntervalInSeconds", "binlog.format", "binlog.image", "multi.stream.on",
    ),
    KIND: ("global.mode", "global.lazy", "global.manager.address", "global.spring.xml"),
}  # fmt: skip
_OF_SERVER = {
    META: ("canal.file.data.dir", "canal.file.flush.period", "canal.zookeeper.flush.period"),
    ONE: ("canal.id",),
    KIND: ("canal.conf.dir", "canal.auto.scan", "canal.auto.scan.interval", "canal.auto.reset.latest.pos.mode"),
    PAGES: ("canal.withoutNetty", "canal.metrics.pull.port"),
}
_FAMILIES = {
    MQ: ("canal.mq.", "kafka.", "rocketmq.", "rabbitmq.", "pulsarmq."),
    ADMIN: ("canal.admin.",),
    SOURCE: ("canal.aliyun.", *(INSTANCE + name for name in ("tsdb.", "parser.", "detecting.", "standby.", "network."))),
}

_REFUSED = {INSTANCE + name: why for why, names in _OF_INSTANCE.items() for name in names} | {
    name: why for why, names in _OF_SERVER.items() for name in names
}

_Faults = list[str]


def refusal(name: str) -> str | None:
    """Why a property is refused; None for one that is not."""
    found = _REFUSED.get(name)
    return found or next((why for why, families in _FAMILIES.items() if name.startswith(families)), None)


def taken() -> set[str]:
    """All names that are taken, of the server and of destinations."""
    return {*(INSTANCE + name for name in _INSTANCE), *_OWN, *_SERVER}


def destination_of(name: str, properties: Mapping[str, Value], faults: _Faults, where: str = "") -> Destination:
    """A destination as properties have it; what is wrong with them goes to `faults`."""
    made = Destination(name, kinds=Kinds())
    for key, text in properties.items():
        known = _OWN.get(key) or _INSTANCE.get(key.removeprefix(INSTANCE) if key.startswith(INSTANCE) else "")
        if known is None:
            faults.append(f"{where}{_unknown(key)}")
            continue
        try:
            made = known.put(made, known.read(text))
        except (_Wrong, TidemillError) as error:
            shown = "" if "passwd" in key else f" = {text[:100]!r}"
            faults.append(f"{where}{key}{shown}: {error.message if isinstance(error, TidemillError) else error}")
    return made


def _unknown(key: str) -> str:
    if key in _SERVER:
        return f"{key} is of the server: it belongs into [canal], or into canal.properties"
    why = refusal(key)
    if why is not None:
        return f"{key} is not taken: {why}"
    return f"{key} is unknown{did_you_mean(key, sorted(taken()))}"


@dataclass(frozen=True, slots=True)
class ServerProperties:
    """Of the server itself."""

    access: Access
    host: str | None = None
    port: int | None = None
    destinations: tuple[str, ...] = ()
    tls: Mapping[str, str] | None = None
    zookeeper: str = ""
    register: str = ""
    memory_limit: int = LIMIT_BYTES


def server_of(properties: Mapping[str, Value], faults: _Faults) -> tuple[ServerProperties, dict[str, Value]]:
    """The server's own properties, and those that are left: they hold for every destination."""
    text = {name: value.strip() for name, value in properties.items() if name in _SERVER}
    rest = {name: value for name, value in properties.items() if name not in _SERVER}
    digest, plain, port = b"", False, None
    try:
        digest = _digest(text.get("canal.passwd", ""))
    except _Wrong as error:
        faults.append(f"canal.passwd {error}")
    try:
        plain = _flag(text.get("canal.auth.plain", "false"))
    except _Wrong as error:
        faults.append(f"canal.auth.plain {error}")
    if number := text.get("canal.port"):
        port = int(number) if number.isdecimal() and int(number) < 1 << 16 else None
        if port is None:
            faults.append(f"canal.port = {number!r} is not a port")
    if text.get("canal.serverMode", "tcp") not in ("", "tcp"):
        faults.append(f"canal.serverMode = {text['canal.serverMode']!r}: {MQ}")
    limit = text.get("memory-limit") or str(LIMIT_BYTES)
    if not re.fullmatch("[0-9]{1,18}", limit) or int(limit) < LEAST_LIMIT:
        faults.append(f"memory-limit = {limit[:100]!r} is not a number of bytes from {LEAST_LIMIT}")
        limit = str(LIMIT_BYTES)
    tls = {name: text[f"canal.tls.{name}"] for name in ("cert", "key", "ca") if text.get(f"canal.tls.{name}")}
    if tls and not {"cert", "key"} <= set(tls):
        faults.append("canal.tls.cert and canal.tls.key go together")
    names = tuple(filter(None, (part.strip() for part in text.get("canal.destinations", "").split(","))))
    access = Access(Credential(text.get("canal.user", ""), digest), plain)
    turns = text.get("canal.zkServers", ""), text.get("canal.register.ip", "")
    return ServerProperties(access, text.get("canal.ip") or None, port, names, tls or None, *turns, int(limit)), rest


def raise_faults(where: str, faults: Iterable[str]) -> NoReturn:
    """All that is wrong, at once. Raises ConfigError."""
    raise ConfigError(f"{where}:\n  " + "\n  ".join(faults), hint="docs/canal.md lists the properties that are taken.")
