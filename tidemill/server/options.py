"""What a server is started with."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What a server is started with. `address`: where clients reach it. `gc_ttl`: seconds."""

    log: str
    data_dir: Path
    address: str
    zone: str = "UTC"
    gc_ttl: float = 86400.0
    pd_addrs: tuple[str, ...] = ()


def own_version() -> str:
    """This program's version."""
    try:
        return version("tidemill")
    except PackageNotFoundError:
        return "unknown"
