"""The options of a database as a sink: the address of a mysql:// or tidb:// URI, and its parameters."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, unquote

from tidemill.errors import ConfigError, redact
from tidemill.secret import NONE, Secret, secret_of

DEFAULT_PORT = 4000
TIMEOUT_MS = 120_000
TIDB_WORKERS = 64
"""worker-count of a downstream that is named as TiDB, as in TiCDC (DefaultTiDBWorkerCount)."""


class Atomicity(enum.Enum):
    """What of a transaction upstream becomes visible downstream at once."""

    NONE = "none"
    TABLE = "table"  # its rows of one table
    GLOBAL = "global"  # all of it


@dataclass(frozen=True, slots=True)
class DatabaseTls:
    """Paths of PEM files. Empty: the system's CAs, no client certificate."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    key_password: Secret = NONE


@dataclass(frozen=True, slots=True)
class MysqlOptions:
    """A MySQL, MariaDB or TiDB downstream. Times are in milliseconds."""

    host: str
    port: int
    user: str
    password: Secret
    tls: DatabaseTls | None = None
    servers_key: bool = False  # without TLS the password may be encrypted with a key that the server sends
    workers: int = 16  # connections of all tasks
    max_txn_rows: int = 256
    max_multi_update_rows: int = 40
    max_multi_update_row_size: int = 1024
    optimistic: bool = True
    time_zone: str = ""  # empty: the changefeed's
    connect_timeout: int = TIMEOUT_MS
    read_timeout: int = TIMEOUT_MS
    write_timeout: int = TIMEOUT_MS
    safe_mode: bool = False
    batch_dml: bool = True
    multi_statements: bool = True
    atomicity: Atomicity = Atomicity.NONE
    async_ddl_timeout: int = 120_000
    sync_point_every: int = 0  # 0: none
    sync_point_retention: int = 0


def mysql_options(parts: SplitResult, values: Mapping[str, Any], text: str) -> MysqlOptions:
    """Return the options of a URI with these parameters, defaults included. Raises ConfigError."""
    try:
        host, port = parts.hostname or "", DEFAULT_PORT if parts.port is None else parts.port
    except ValueError:
        host, port = "", 0
    if not host or not port or parts.path.strip("/"):
        raise ConfigError(
            f"sink URI: expected {parts.scheme}://USER:PASSWORD@HOST:PORT/",
            hint="In user and password, what is not a letter or digit is written in percent form, such as %3A for a colon.",
        )
    return MysqlOptions(
        host=host,
        port=port,
        user=unquote(parts.username or "root"),
        password=secret_of("password", values, f"sink URI {redact(text)}", unquote(parts.password or "")),
        tls=_tls(parts, values),
        servers_key=values["get-server-public-key"],
        workers=values["worker-count"],
        max_txn_rows=values["max-txn-row"],
        max_multi_update_rows=values["max-multi-update-row"],
        max_multi_update_row_size=values["max-multi-update-row-size"],
        optimistic=values["tidb-txn-mode"] == "optimistic",
        time_zone=values["time-zone"],
        connect_timeout=values["timeout"],
        read_timeout=values["read-timeout"] or TIMEOUT_MS,
        write_timeout=values["write-timeout"] or TIMEOUT_MS,
        safe_mode=values["safe-mode"],
        batch_dml=values["batch-dml-enable"],
        multi_statements=values["multi-stmt-enable"],
        atomicity=values["transaction-atomicity"],
        async_ddl_timeout=values["async-ddl-timeout"],
        sync_point_every=values["sync-point-interval"] if values["enable-sync-point"] else 0,
        sync_point_retention=values["sync-point-retention"],
    )


def _tls(parts: SplitResult, values: Mapping[str, Any]) -> DatabaseTls | None:
    ca, cert, key = (values[name] or "" for name in ("ssl-ca", "ssl-cert", "ssl-key"))
    if bool(cert) != bool(key):
        raise ConfigError("sink URI: ssl-cert and ssl-key belong together")
    key_password = secret_of("ssl-key-password", values, "sink URI")
    if key_password and not key:
        raise ConfigError("sink URI: ssl-key-password belongs to ssl-key")
    return DatabaseTls(ca, cert, key, key_password) if parts.scheme.endswith("+ssl") or ca or cert else None
