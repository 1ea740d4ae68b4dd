"""The settings of a Drainer: flags, environment, and the TOML file of TiDB-Binlog's Drainer, with its names and defaults."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tidemill.binlog.drainer.picking.rules import Rule, read_rules
from tidemill.binlog.drainer.secrets import decrypted
from tidemill.binlog.filters import IGNORED_SCHEMAS, TableName
from tidemill.errors import ConfigError
from tidemill.secret import NONE, Secret, Way, reference, secret_of

DEFAULT_PORT = 8249
DATABASES = ("mysql", "tidb")
DB_TYPES = (*DATABASES, "file", "kafka")
SYNC_MODES = (1, 2)
SASL_MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """[syncer.to.checkpoint]: where the position is kept. `type` empty: as the downstream; `host` empty: in the downstream itself."""

    type: str = ""
    schema: str = "tidb_binlog"
    table: str = "checkpoint"
    host: str = ""
    port: int = 3306
    user: str = "root"
    password: Secret = NONE


@dataclass(frozen=True, slots=True)
class Downstream:
    """[syncer.to]. `params`: session variables and their values as SQL. `zone`: the value of time_zone, which counts for DDLs.

    `enable_tls` to `sasl_password` are of the connection to Kafka, with TiCDC's words: the real Drainer has neither TLS nor a login there.
    """

    dir: str = ""
    kafka_addrs: str = ""
    kafka_version: str = ""
    kafka_client_id: str = ""
    kafka_max_messages: int = 1024
    kafka_max_message_size: int = 1 << 30
    topic_name: str = ""
    enable_tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""
    key_password: Secret = NONE
    sasl_mechanism: str = "plain"
    sasl_user: str = field(default="", repr=False)
    sasl_password: Secret = NONE
    host: str = "localhost"
    port: int = 3306
    user: str = "root"
    password: Secret = NONE
    merge: bool = False
    sync_mode: int = 1
    params: tuple[tuple[str, str], ...] = ()
    zone: str = ""
    checkpoint: Checkpoint = field(default_factory=Checkpoint)


@dataclass(frozen=True, slots=True)
class DrainerSettings:
    """Addresses are HOST:PORT. `initial_commit_ts` -1: now."""

    addr: str = ""
    advertise_addr: str = ""
    pd_urls: str = "http://127.0.0.1:2379"
    data_dir: str = "data.drainer"
    node_id: str = ""
    detect_interval: float = 5.0
    initial_commit_ts: int = -1
    db_type: str = "mysql"
    log_level: str = "info"
    log_file: str = ""
    ssl_ca: str = ""
    ssl_cert: str = ""
    ssl_key: str = ""
    cert_allowed_cn: tuple[str, ...] = ()
    cache_mib: int = 64
    ignore_schemas: str = IGNORED_SCHEMAS
    ignore_tables: tuple[TableName, ...] = ()
    do_schemas: tuple[str, ...] = ()
    do_tables: tuple[TableName, ...] = ()
    ignore_txn_commit_ts: tuple[int, ...] = ()
    safe_mode: bool = False
    sql_mode: str = ""
    relay_dir: str = ""
    relay_max_file_size: int = 10 << 20
    worker_count: int = 1
    txn_batch: int = 0
    enable_dispatch: bool = True
    sync_ddl: bool = True
    loopback_control: bool = False
    channel_id: int = 0
    rules: tuple[Rule, ...] = ()
    to: Downstream = field(default_factory=Downstream)

    def checked(self) -> DrainerSettings:
        """Return the settings with defaults that depend on others. Raises ConfigError."""
        addr = self.addr or f"127.0.0.1:{DEFAULT_PORT}"
        advertised = self.advertise_addr or addr
        for name, value in (("addr", addr), ("advertise-addr", advertised)):
            host, _, port = value.rpartition(":")
            if not host or not port.isdecimal() or int(port) > 65535:
                raise ConfigError(f"{name} {value!r} is not a HOST:PORT")
        if self.db_type not in DB_TYPES:
            raise ConfigError(f"dest-db-type {self.db_type!r} is not one of {', '.join(DB_TYPES)}")
        if self.detect_interval <= 0:
            raise ConfigError(f"detect-interval has to be above 0, and is {self.detect_interval:g}")
        if self.initial_commit_ts < -1:
            raise ConfigError(f"initial-commit-ts {self.initial_commit_ts} is neither a TSO nor -1")
        if self.worker_count < 1 or self.txn_batch < 0:
            raise ConfigError(f"worker-count has to be at least 1, txn-batch above 0: they are {self.worker_count} and {self.txn_batch}")
        self._check_downstream()
        return replace(self, addr=addr, advertise_addr=advertised)

    def _check_downstream(self) -> None:
        to = self.to
        if to.sync_mode not in SYNC_MODES:
            raise ConfigError(f"sync-mode {to.sync_mode} is neither 1 (all columns) nor 2 (those that the table downstream has)")
        if to.sasl_mechanism.lower() not in SASL_MECHANISMS:
            raise ConfigError(f"sasl-mechanism {to.sasl_mechanism!r} of [syncer.to] is not one of {', '.join(SASL_MECHANISMS)}")
        if bool(to.sasl_user) != bool(to.sasl_password):
            raise ConfigError("sasl-user and sasl-password of [syncer.to] belong together")
        if (to.ca or to.cert or to.key) and not to.enable_tls:
            raise ConfigError("ca, cert and key of [syncer.to] need enable-tls = true")
        if to.checkpoint.type not in ("", "file", *DATABASES):
            raise ConfigError(f"type {to.checkpoint.type!r} of [syncer.to.checkpoint] is not one of mysql, tidb, file")
        if self.db_type not in DATABASES and to.checkpoint.type in DATABASES and not to.checkpoint.host:
            raise ConfigError(f"[syncer.to.checkpoint] needs a host: dest-db-type {self.db_type} is not a database")


_FILE = {
    "addr": "addr", "advertise-addr": "advertise_addr", "pd-urls": "pd_urls", "data-dir": "data_dir", "node-id": "node_id",
    "detect-interval": "detect_interval", "initial-commit-ts": "initial_commit_ts", "log-level": "log_level", "log-file": "log_file",
}  # fmt: skip
_SECURITY = {"ssl-ca": "ssl_ca", "ssl-cert": "ssl_cert", "ssl-key": "ssl_key", "cert-allowed-cn": "cert_allowed_cn"}
_SYNCER = {
    "db-type": "db_type", "ignore-schemas": "ignore_schemas", "ignore-txn-commit-ts": "ignore_txn_commit_ts", "safe-mode": "safe_mode",
    "sql-mode": "sql_mode", "worker-count": "worker_count", "txn-batch": "txn_batch", "enable-dispatch": "enable_dispatch",
    "sync-ddl": "sync_ddl", "loopback-control": "loopback_control", "channel-id": "channel_id",
}  # fmt: skip
_RELAY = {"log-dir": "relay_dir", "max-file-size": "relay_max_file_size"}
_TO = {
    "dir": "dir", "kafka-addrs": "kafka_addrs", "kafka-version": "kafka_version", "kafka-client-id": "kafka_client_id",
    "kafka-max-messages": "kafka_max_messages", "kafka-max-message-size": "kafka_max_message_size", "topic-name": "topic_name",
    "host": "host", "port": "port", "user": "user", "merge": "merge", "sync-mode": "sync_mode",
    "enable-tls": "enable_tls", "ca": "ca", "cert": "cert", "key": "key",
    "sasl-mechanism": "sasl_mechanism", "sasl-user": "sasl_user",
}  # fmt: skip
_CHECKPOINT = {name: name for name in ("type", "schema", "table", "host", "port", "user")}
_SECRETS = {"password": "password", "sasl-password": "sasl_password", "key-password": "key_password"}
"""Each may be a reference."""

WITHOUT_EFFECT = frozenset(
    {
        *("metrics-addr", "metrics-interval", "compressor", "synced-check-time", "cache-binlog-count"),
        *("syncer.enable-detect", "syncer.disable-detect"),
        *("syncer.load-schema-snapshot", "syncer.case-sensitive", "syncer.to.zookeeper-addrs", "syncer.to.retention-time"),
        *("syncer.to.read-timeout",),
    }
)
"""Keys of the real Drainer's file that change nothing of what is delivered here: read, and of no effect."""

REFUSED = frozenset(
    {
        *(f"syncer.to.{prefix}{name}" for prefix in ("", "checkpoint.") for name in ("security", "oracle-service-name", "tls")),
        *("syncer.to.compressor", "syncer.to.compression"),
    }
)
"""Keys of the real Drainer's file that would change what is delivered, or how, and that this one cannot follow."""

_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SQL = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?|'[^'\\]*'|ON|OFF|TRUE|FALSE|DEFAULT", re.IGNORECASE)

_KINDS: Mapping[str, type | tuple[type, ...]] = {"str": str, "float": (int, float), "int": int, "bool": bool}


def read_file(path: Path) -> dict[str, Any]:
    """Return the settings that a TOML file has, by field. Raises ConfigError, also for keys that are not known."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"--config {path} cannot be read: {error}") from None
    security = _table(found, "security", path)
    syncer = _table(found, "syncer", path)
    relay = _table(syncer, "relay", path)
    result = _special(syncer, path)
    result |= _taken(found, _FILE, DrainerSettings, "", path)
    result |= _taken(security, _SECURITY, DrainerSettings, "security.", path)
    result |= _taken(relay, _RELAY, DrainerSettings, "syncer.relay.", path)
    result["to"] = _downstream(_table(syncer, "to", path), path)
    return result | _taken(syncer, _SYNCER, DrainerSettings, "syncer.", path)


def _downstream(to: dict[str, Any], path: Path) -> Downstream:
    place, params = _table(to, "checkpoint", path), _table(to, "params", path)
    own = _with_secrets(place, _CHECKPOINT, ("password",), Checkpoint, "syncer.to.checkpoint.", path)
    made: dict[str, Any] = {"checkpoint": Checkpoint(**own)}
    made["params"] = tuple((name, _parameter(name, value, path)) for name, value in params.items() if name != "time_zone")
    if "time_zone" in params:
        made["zone"] = _parameter("time_zone", params["time_zone"], path)
    return Downstream(**made, **_with_secrets(to, _TO, _SECRETS, Downstream, "syncer.to.", path))


def _with_secrets(
    found: dict[str, Any], names: Mapping[str, str], secrets: Iterable[str], of: type, where: str, path: Path
) -> dict[str, Any]:
    """Take the keys of a table that has secrets. The password may be encrypted, which then counts."""
    hidden = found.pop("encrypted_password", "")
    own = {_SECRETS[name]: take_secret(found, name, where, path) for name in secrets}
    taken = _taken(found, names, of, where, path) | own
    if hidden:
        taken["password"] = Secret("password", decrypted(str(hidden), f"{where}encrypted_password of {path}"))
    return taken


def take_secret(found: dict[str, Any], name: str, where: str, path: Path) -> Secret:
    """Take a secret out of a table of the file `path`, or what refers to it. Raises ConfigError."""
    keys = [key for key in (name, *(reference(name, way) for way in Way)) if key in found]
    given = {key: _converted("str", found.pop(key), f"{where}{key} of {path}") for key in keys}
    return secret_of(name, given, f"{where.rstrip('.')} of {path}")


def _parameter(name: str, value: object, path: Path) -> str:
    """Return the value of a session variable as SQL: numbers, words and what is quoted as it is, other text quoted."""
    if not _PARAMETER.fullmatch(name) or isinstance(value, (dict, list)) or "\\" in str(value):
        raise ConfigError(f"syncer.to.params.{name} of {path} is not a session variable with a plain value")
    text = str(int(value)) if isinstance(value, bool) else str(value)
    return text if _SQL.fullmatch(text) else "'" + text.replace("'", "''") + "'"


def _special(syncer: dict[str, Any], path: Path) -> dict[str, Any]:
    """Take out of [syncer] what is more than a value."""
    result: dict[str, Any] = {"rules": read_rules(syncer.pop("binlog-filter-rule", {}), syncer.pop("table-migrate-rule", []), path)}
    if "disable-dispatch" in syncer:
        result["enable_dispatch"] = not syncer.pop("disable-dispatch")
    try:
        for name, key in (("ignore_tables", "ignore-table"), ("do_tables", "replicate-do-table")):
            result[name] = tuple(TableName(str(one["db-name"]), str(one["tbl-name"])) for one in syncer.pop(key, ()))
        result["do_schemas"] = tuple(str(one) for one in syncer.pop("replicate-do-db", ()))
    except (KeyError, TypeError):
        raise ConfigError(
            f"ignore-table, replicate-do-table or replicate-do-db of {path} is not of the right kind",
            hint='Write [[syncer.ignore-table]] with db-name and tbl-name, and replicate-do-db = ["name"].',
        ) from None
    return result


def _table(found: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    value = found.pop(name, {})
    if not isinstance(value, dict):
        raise ConfigError(f"{name} of {path} is not a table")
    return value


def _taken(found: dict[str, Any], names: Mapping[str, str], of: type, where: str, path: Path) -> dict[str, Any]:
    kinds = {one.name: str(one.type) for one in fields(of)}
    result: dict[str, Any] = {}
    for name, value in found.items():
        whole = where + name
        if name in names:
            result[names[name]] = _converted(kinds[names[name]], value, f"{whole} of {path}")
        elif whole in REFUSED and value:
            raise ConfigError(f"{path} has the key {whole}, which this Drainer cannot follow", hint="Remove it, or use the real Drainer.")
        elif whole not in WITHOUT_EFFECT and whole not in REFUSED:
            raise ConfigError(f"{path} has the key {whole}, which Drainer does not know")
    return result


def _converted(kind: str, value: Any, what: str) -> Any:
    if kind == "tuple[int, ...]" and isinstance(value, list) and all(isinstance(one, int) for one in value):
        return tuple(value)
    if kind == "tuple[str, ...]" and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    if kind not in _KINDS or not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
        raise ConfigError(f"{what} is {'' if 'password' in what or 'sasl-user' in what else f'{value!r}, '}which is not of the right kind")
    return value
