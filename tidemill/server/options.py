"""What a server is started with."""

from __future__ import annotations

import socket
import uuid
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tidemill.changelog.storage import durable
from tidemill.server.permitted import Permitted


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
    try:
        found = durable.read_json(path) or {}
    except ValueError:
        found = {}
    if not isinstance(found.get("id"), str) or found.get("where", where) != where:
        found = {"id": str(uuid.uuid4()), "where": where}
        durable.write_json(path, found)
    return str(found["id"])
