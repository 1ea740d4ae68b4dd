"""The settings of a Drainer: flags, environment, and the TOML file of TiDB-Binlog's Drainer, with its names and defaults."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tidemill.binlog.filters import IGNORED_SCHEMAS, TableName
from tidemill.errors import ConfigError

DEFAULT_PORT = 8249
DB_TYPES = ("mysql", "tidb", "file", "kafka")


@dataclass(frozen=True, slots=True)
class Downstream:
    """[syncer.to]."""

    dir: str = ""
    kafka_addrs: str = ""
    kafka_version: str = ""
    kafka_client_id: str = ""
    kafka_max_messages: int = 1024
    kafka_max_message_size: int = 1 << 30
    topic_name: str = ""
    host: str = "localhost"
    port: int = 3306
    user: str = "root"
    password: str = field(default="", repr=False)
    merge: bool = False


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
        return replace(self, addr=addr, advertise_addr=advertised)


_FILE = {
    "addr": "addr", "advertise-addr": "advertise_addr", "pd-urls": "pd_urls", "data-dir": "data_dir", "node-id": "node_id",
    "detect-interval": "detect_interval", "initial-commit-ts": "initial_commit_ts", "log-level": "log_level", "log-file": "log_file",
}  # fmt: skip
_SECURITY = {"ssl-ca": "ssl_ca", "ssl-cert": "ssl_cert", "ssl-key": "ssl_key"}
_SYNCER = {
    "db-type": "db_type", "ignore-schemas": "ignore_schemas", "ignore-txn-commit-ts": "ignore_txn_commit_ts", "safe-mode": "safe_mode",
    "sql-mode": "sql_mode", "worker-count": "worker_count", "txn-batch": "txn_batch", "enable-dispatch": "enable_dispatch",
}  # fmt: skip
_RELAY = {"log-dir": "relay_dir", "max-file-size": "relay_max_file_size"}
_TO = {
    "dir": "dir", "kafka-addrs": "kafka_addrs", "kafka-version": "kafka_version", "kafka-client-id": "kafka_client_id",
    "kafka-max-messages": "kafka_max_messages", "kafka-max-message-size": "kafka_max_message_size", "topic-name": "topic_name",
    "host": "host", "port": "port", "user": "user", "password": "password", "merge": "merge",
}  # fmt: skip

WITHOUT_EFFECT = frozenset(
    {
        *("metrics-addr", "metrics-interval", "compressor", "synced-check-time", "cache-binlog-count"),
        *("syncer.sync-ddl", "syncer.channel-id", "syncer.disable-dispatch", "syncer.enable-detect", "syncer.disable-detect"),
        *("syncer.load-schema-snapshot", "syncer.case-sensitive", "syncer.to.zookeeper-addrs", "syncer.to.retention-time"),
        *("syncer.to.read-timeout",),
    }
)
"""Keys of the real Drainer's file that change nothing of what is delivered here: read, and of no effect."""

NOT_YET = frozenset(
    {
        *("syncer.loopback-control", "syncer.to.checkpoint", "syncer.table-migrate-rule", "syncer.binlog-filter-rule"),
        *("syncer.to.encrypted_password", "syncer.to.sync-mode", "syncer.to.params"),
    }
)
"""Keys of the real Drainer's file that would change what is delivered, and that this one cannot follow."""

_KINDS: Mapping[str, type | tuple[type, ...]] = {"str": str, "float": (int, float), "int": int, "bool": bool}


def read_file(path: Path) -> dict[str, Any]:
    """Return the settings that a TOML file has, by field. Raises ConfigError, also for keys that are not known."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"--config {path} cannot be read: {error}") from None
    security = _table(found, "security", path)
    syncer = _table(found, "syncer", path)
    to, relay = _table(syncer, "to", path), _table(syncer, "relay", path)
    result = _special(syncer, path)
    result |= _taken(found, _FILE, DrainerSettings, "", path)
    result |= _taken(security, _SECURITY, DrainerSettings, "security.", path)
    result |= _taken(syncer, _SYNCER, DrainerSettings, "syncer.", path)
    result |= _taken(relay, _RELAY, DrainerSettings, "syncer.relay.", path)
    return {**result, "to": Downstream(**_taken(to, _TO, Downstream, "syncer.to.", path))}


def _special(syncer: dict[str, Any], path: Path) -> dict[str, Any]:
    """Take the lists out of [syncer]."""
    result: dict[str, Any] = {}
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
        raise ConfigError(f"{name} of {path} is no table")
    return value


def _taken(found: dict[str, Any], names: Mapping[str, str], of: type, where: str, path: Path) -> dict[str, Any]:
    kinds = {one.name: str(one.type) for one in fields(of)}
    result: dict[str, Any] = {}
    for name, value in found.items():
        whole = where + name
        if name in names:
            result[names[name]] = _converted(kinds[names[name]], value, f"{whole} of {path}")
        elif whole in NOT_YET and value:
            raise ConfigError(f"{path} has the key {whole}, which this Drainer cannot follow", hint="Remove it, or use the real Drainer.")
        elif whole not in WITHOUT_EFFECT and whole not in NOT_YET:
            raise ConfigError(f"{path} has the key {whole}, which Drainer does not know")
    return result


def _converted(kind: str, value: Any, what: str) -> Any:
    if kind == "tuple[int, ...]" and isinstance(value, list) and all(isinstance(one, int) for one in value):
        return tuple(value)
    if kind not in _KINDS or not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
        raise ConfigError(f"{what} is {value!r}, which is not of the right kind")
    return value
