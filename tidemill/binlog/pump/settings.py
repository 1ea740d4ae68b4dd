"""The settings of a Pump: flags, environment, and the TOML file of TiDB-Binlog's Pump, with its names and defaults."""

from __future__ import annotations

import re
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from tidemill.errors import ConfigError

DEFAULT_PORT = 8250
MAX_MESSAGE = (1 << 31) - 1
"""What gRPC can take at most."""

_POWERS = {"": 0, "b": 0, "kib": 10, "mib": 20, "gib": 30, "tib": 40, "kb": 10, "mb": 20, "gb": 30, "tb": 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_PART = re.compile(r"(\d+(?:\.\d+)?)(h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}


class Transport(StrEnum):
    """Who speaks HTTP/2 with TiDB and Drainers."""

    H2 = "h2"
    GRPC = "grpc"


@dataclass(frozen=True, slots=True)
class PumpSettings:
    """`gc_s`: seconds that binlogs are kept. Addresses are HOST:PORT."""

    addr: str = ""
    advertise_addr: str = ""
    socket: str = ""
    pd_urls: str = "http://127.0.0.1:2379"
    data_dir: str = "data.pump"
    node_id: str = ""
    heartbeat_interval: float = 2.0
    gc_s: float = 7 * 86400.0
    gc_waits: bool = True
    fake_binlog_interval: float = 3.0
    max_message_size: int = MAX_MESSAGE
    log_level: str = "info"
    log_file: str = ""
    metrics_addr: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ssl_ca: str = ""
    ssl_cert: str = ""
    ssl_key: str = ""
    cert_allowed_cn: tuple[str, ...] = ()
    sync_log: bool = True
    kv_chan_cap: int = 1 << 20
    slow_write_threshold: float = 1.0
    stop_write_at: int = 10 << 30
    transport: Transport = Transport.H2

    def checked(self) -> PumpSettings:
        """Return the settings with defaults that depend on others. Raises ConfigError."""
        addr = self.addr or f"{own_address()}:{DEFAULT_PORT}"
        advertised = self.advertise_addr or addr
        for name, value in (("addr", addr), ("advertise-addr", advertised)):
            host, _, port = value.rpartition(":")
            if not host or not port.isdecimal() or int(port) > 65535:
                raise ConfigError(f"{name} {value!r} is not a HOST:PORT")
        if advertised.rpartition(":")[0] in ("0.0.0.0", "[::]"):
            raise ConfigError(
                f"advertise-addr {advertised} is not an address that others can connect to",
                hint="Name the one that TiDB and Drainers reach with --advertise-addr.",
            )
        for what, number in (("heartbeat-interval", self.heartbeat_interval), ("fake-binlog-interval", self.fake_binlog_interval)):
            if number <= 0:
                raise ConfigError(f"{what} has to be above 0, and is {number:g}")
        return replace(self, addr=addr, advertise_addr=advertised, max_message_size=min(self.max_message_size, MAX_MESSAGE))


def own_address() -> str:
    """The first address of this machine that is not its loopback; 127.0.0.1 where there is none."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return "127.0.0.1"
    return next((str(one[4][0]) for one in found if not str(one[4][0]).startswith("127.")), "127.0.0.1")


def parse_gc(text: str) -> float:
    """The seconds of `7` (days) or `8h30m`. Raises ConfigError."""
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text) * 86400.0
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ConfigError(f"gc {text!r} is not understood", hint="Give days as 7, or a time as 8h or 1h30m.")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def parse_size(value: str | int) -> int:
    """The bytes of `10 GiB` or a number. Raises ConfigError."""
    found = _SIZE.fullmatch(str(value))
    if found is None or found[2].lower() not in _POWERS:
        raise ConfigError(f"{value!r} is not a size", hint="Write a number of bytes, or as in 10 GiB.")
    return int(float(found[1]) * (1 << _POWERS[found[2].lower()]))


_FILE = {
    "log-level": "log_level", "node-id": "node_id", "addr": "addr", "advertise-addr": "advertise_addr", "socket": "socket",
    "pd-urls": "pd_urls", "data-dir": "data_dir", "heartbeat-interval": "heartbeat_interval", "gc": "gc_s", "log-file": "log_file",
    "gen-binlog-interval": "fake_binlog_interval", "gc-waits-for-drainers": "gc_waits", "metrics-addr": "metrics_addr",
    "labels": "labels",
}  # fmt: skip
_SECURITY = {"ssl-ca": "ssl_ca", "ssl-cert": "ssl_cert", "ssl-key": "ssl_key", "cert-allowed-cn": "cert_allowed_cn"}
_STORAGE = {
    "sync-log": "sync_log", "kv_chan_cap": "kv_chan_cap", "slow_write_threshold": "slow_write_threshold",
    "stop-write-at-available-space": "stop_write_at",
}  # fmt: skip
_IGNORED = {"metrics-interval"}
_LEVELDB = {
    "block-cache-capacity", "block-restart-interval", "block-size", "compaction-L0-trigger", "compaction-table-size",
    "compaction-total-size", "compaction-total-size-multiplier", "write-buffer", "write-L0-pause-trigger", "write-L0-slowdown-trigger",
}  # fmt: skip
"""Options of the real Pump's LevelDB: read, and of no effect."""

_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "str": str, "float": (int, float), "int": int, "bool": bool, "Mapping[str, str]": dict, "tuple[str, ...]": list,
}  # fmt: skip


def read_file(path: Path) -> dict[str, Any]:
    """Return the settings that a TOML file has, by field. Raises ConfigError, also for keys that are not known."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"--config {path} cannot be read: {error}") from None
    security, storage = _table(found, "security", path), _table(found, "storage", path)
    leveldb = _table(storage, "kv", path)
    result: dict[str, Any] = {}
    for where, names, table in (("", _FILE, found), ("security.", _SECURITY, security), ("storage.", _STORAGE, storage)):
        for name, value in table.items():
            if name in names:
                result[names[name]] = _converted(names[name], value, f"{where}{name} of {path}")
            elif name not in _IGNORED:
                raise ConfigError(f"{path} has the key {where}{name}, which Pump does not know")
    unknown = set(leveldb) - _LEVELDB
    if unknown:
        raise ConfigError(f"{path} has the key storage.kv.{min(unknown)}, which Pump does not know")
    return result


def _table(found: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    value = found.pop(name, {})
    if not isinstance(value, dict):
        raise ConfigError(f"{name} of {path} is not a table")
    return value


def _converted(name: str, value: Any, what: str) -> Any:
    if name == "gc_s" and isinstance(value, int | str):
        return parse_gc(str(value))
    if name == "stop_write_at" and isinstance(value, int | str):
        return parse_size(value)
    kind = next(str(one.type) for one in fields(PumpSettings) if one.name == name)
    if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
        raise ConfigError(f"{what} is {value!r}, which is not of the right kind")
    return tuple(str(one) for one in value) if isinstance(value, list) else value
