"""What can be set for a server: access, destinations, TLS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemill.canal.conversation.desk import Access, Destination
from tidemill.canal.server.memory import LIMIT_BYTES

DEFAULT_DESTINATION = "example"
DEFAULT_PORT = 11111


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files. `ca`: clients need a certificate of it."""

    cert: Path
    key: Path
    ca: Path | None = None


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What a configuration says."""

    access: Access = field(default_factory=Access)
    destinations: Mapping[str, Destination] = field(default_factory=lambda: {DEFAULT_DESTINATION: Destination(DEFAULT_DESTINATION)})
    host: str | None = None
    port: int | None = None
    tls: Tls | None = None
    zookeeper: str = ""
    """HOST:PORT,…; empty: this server serves alone."""
    register: str = ""
    """The host that other servers and clients know this one by; empty: the one that it listens at."""
    memory_limit: int = LIMIT_BYTES
    """Bytes of batches that all connections together hold in memory."""
    connections: int = 4096
    """How many may be open. Fewer where this process may open fewer files."""
