"""The settings of Reparo: flags, and the TOML file of TiDB-Binlog's Reparo, with its names and defaults."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

from tidemill import tso
from tidemill.binlog.drainer.settings import take_secret
from tidemill.binlog.filters import TableName
from tidemill.errors import ConfigError
from tidemill.secret import NONE, Secret

DEST_TYPES = ("print", "mysql")
_TIME = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True, slots=True)
class DestDb:
    """[dest-db]."""

    host: str = "127.0.0.1"
    port: int = 3306
    user: str = "root"
    password: Secret = NONE


@dataclass(frozen=True, slots=True)
class ReparoSettings:
    """Times as YYYY-MM-DD hh:mm:ss in the process's zone; `start_tso` and `stop_tso`, both included, come before them. 0: no bound."""

    data_dir: str = "data.drainer"
    start_datetime: str = ""
    stop_datetime: str = ""
    start_tso: int = 0
    stop_tso: int = 0
    dest_type: str = "print"
    txn_batch: int = 20
    worker_count: int = 16
    safe_mode: bool = False
    log_level: str = "info"
    log_file: str = ""
    do_schemas: tuple[str, ...] = ()
    do_tables: tuple[TableName, ...] = ()
    ignore_schemas: tuple[str, ...] = ()
    ignore_tables: tuple[TableName, ...] = ()
    dest_db: DestDb = field(default_factory=DestDb)

    def checked(self, zone: tzinfo) -> ReparoSettings:
        """Return the settings with the times as TSOs. Raises ConfigError."""
        if self.dest_type not in DEST_TYPES:
            raise ConfigError(f"dest-type {self.dest_type!r} is not one of {', '.join(DEST_TYPES)}")
        for name, number in (("txn-batch", self.txn_batch), ("worker-count", self.worker_count)):
            if number < 1:
                raise ConfigError(f"{name} has to be at least 1, and is {number}")
        if any("," in one for one in self.ignore_schemas):
            raise ConfigError("a pattern of replicate-ignore-db has a comma")
        start = self.start_tso or _tso("start-datetime", self.start_datetime, zone)
        stop = self.stop_tso or _tso("stop-datetime", self.stop_datetime, zone)
        if stop and stop < start:
            raise ConfigError(f"the end {tso.describe(stop)} lies before the beginning {tso.describe(start)}")
        return replace(self, start_tso=start, stop_tso=stop)


def _tso(name: str, text: str, zone: tzinfo) -> int:
    if not text:
        return 0
    try:
        moment = datetime.strptime(text, _TIME).replace(tzinfo=zone)
    except ValueError:
        raise ConfigError(f"{name} {text!r} is not a time", hint="Write it as 2026-11-23 14:00:00.") from None
    return tso.compose(int(moment.timestamp() * 1000))


_FILE = {
    "data-dir": "data_dir", "start-datetime": "start_datetime", "stop-datetime": "stop_datetime", "start-tso": "start_tso",
    "stop-tso": "stop_tso", "dest-type": "dest_type", "txn-batch": "txn_batch", "worker-count": "worker_count", "safe-mode": "safe_mode",
    "log-level": "log_level", "log-file": "log_file",
}  # fmt: skip
_LISTS = {"replicate-do-db": "do_schemas", "replicate-ignore-db": "ignore_schemas"}
_TABLES = {"replicate-do-table": "do_tables", "replicate-ignore-table": "ignore_tables"}
_DEST = {name: name for name in ("host", "port", "user")}
WITHOUT_EFFECT = frozenset({"log-rotate"})
_KINDS: Mapping[str, type] = {"str": str, "int": int, "bool": bool}


def read_file(path: Path) -> dict[str, Any]:
    """Return the settings that a TOML file has, by field. Raises ConfigError, also for keys that are not known."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"--config {path} cannot be read: {error}") from None
    result: dict[str, Any] = {}
    try:
        for key, name in _LISTS.items():
            result[name] = tuple(str(one) for one in found.pop(key, ()))
        for key, name in _TABLES.items():
            result[name] = tuple(TableName(str(one["db-name"]), str(one["tbl-name"])) for one in found.pop(key, ()))
        dest = dict(found.pop("dest-db", {}))
    except (KeyError, TypeError, ValueError):
        raise ConfigError(
            f"a filter or dest-db of {path} is not of the right kind",
            hint='Write [[replicate-do-table]] with db-name and tbl-name, and replicate-do-db = ["name"].',
        ) from None
    password = take_secret(dest, "password", "dest-db.", path)
    return {
        **result,
        **_taken(found, _FILE, ReparoSettings, path),
        "dest_db": DestDb(**_taken(dest, _DEST, DestDb, path), password=password),
    }


def _taken(found: Mapping[str, Any], names: Mapping[str, str], of: type, path: Path) -> dict[str, Any]:
    kinds = {one.name: str(one.type) for one in fields(of)}
    result: dict[str, Any] = {}
    for name, value in found.items():
        if name in WITHOUT_EFFECT:
            continue
        if name not in names:
            raise ConfigError(f"{path} has the key {name}, which Reparo does not know")
        kind = kinds[names[name]]
        if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
            raise ConfigError(f"{name} of {path} is {value!r}, not of the right kind")
        result[names[name]] = value
    return result
