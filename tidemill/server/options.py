"""What a server is started with."""

from __future__ import annotations

import re
import socket
import uuid
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tidemill import statefile
from tidemill.changelog.storage import durable
from tidemill.errors import ConfigError, FeedBroken
from tidemill.server.permitted import Permitted

TICDC_VERSION = "v8.5.7"
"""The version of TiCDC that a server answers unless --ticdc-version names another: the newest release whose API, keys and parameters
Tidemill was compared with. Clients of TiCDC decide by it what they send."""
OLDEST_TICDC = (6, 2, 0)
"""`cdc cli` refuses every command against a server that is older (`ShouldRunCliWithOpenAPI` of TiCDC's pkg/version)."""
_VERSION = re.compile(r"v?([0-9]{1,5})\.([0-9]{1,5})\.([0-9]{1,5})(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What a server is started with. `address`: where clients reach it. `gc_ttl`: seconds."""

    log: str
    data_dir: Path
    address: str
    zone: str = "UTC"
    gc_ttl: float = 86400.0
    pd_addrs: tuple[str, ...] = ()
    own_rules: bool = False
    """--capture-config says which tables are captured; else those are that some changefeed wants."""
    ttl: float = 5.0
    """Seconds after which another server leads if this one is not heard of."""
    standby: bool = True
    """While another server leads, the processes are loaded already."""
    permitted: Permitted = field(default_factory=Permitted)
    """What sink URIs that come by the API may name."""
    etcd: tuple[str, ...] = ()
    """Addresses of an etcd that keeps the lease; empty: the log's storage keeps it."""
    ticdc_version: str = TICDC_VERSION
    """What /status and /captures answer as `version`; this program's own stands beside it."""


def checked_ticdc_version(text: str) -> str:
    """Return a version that clients of TiCDC can read. Raises ConfigError."""
    parts = _VERSION.fullmatch(text)
    if parts is None:
        raise ConfigError(f"--ticdc-version {text!r}: expected a version such as {TICDC_VERSION}")
    if tuple(map(int, parts.groups()[:3])) < OLDEST_TICDC:
        raise ConfigError(f"--ticdc-version {text}: cdc cli takes no server before {'.'.join(map(str, OLDEST_TICDC))}")
    return text


_ID_FILE = statefile.Kind(FeedBroken, "Remove it: the server takes another id.", may_be_lost=True)


def own_version() -> str:
    """This program's version."""
    try:
        return version("tidemill")
    except PackageNotFoundError:
        return "unknown"


def own_id(data_dir: Path) -> str:
    """Return the server's id, which DATA_DIR/server.json keeps. A copy of the folder elsewhere gets another one: two servers of one id
    would take the lease from each other. Raises LogUnavailable, LogRefused."""
    path = data_dir / "server.json"
    where = f"{socket.gethostname()}:{data_dir}"
    kept = statefile.whole(durable.read(path), str(path), _ID_FILE)
    found = kept.others() if kept is not None else {}
    if not isinstance(found.get("id"), str) or found.get("where", where) != where:
        found = {"id": str(uuid.uuid4()), "where": where}
        durable.write_json(path, found)
    return str(found["id"])
