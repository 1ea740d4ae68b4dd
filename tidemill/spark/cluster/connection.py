"""A cluster, and a connection to it. Light: workers of Spark import it, and few of them connect."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.capture.tikv.client.pd import PdClient

NAMES = ("pd", "ca", "cert", "key")
"""The options of Spark that name a cluster."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """PD's addresses, and the files for TLS: ca, cert, key."""

    pd: tuple[str, ...]
    tls: tuple[Path | None, Path | None, Path | None] = (None, None, None)

    def absolute(self) -> Cluster:
        """The same for a process with another working directory."""
        ca, cert, key = (None if path is None else path.absolute() for path in self.tls)
        return Cluster(self.pd, (ca, cert, key))


def cluster_of(found: Mapping[str, str]) -> Cluster:
    """Return the cluster that options name, by their documented names. Raises ConfigError for contradictions and unusable files."""
    from tidemill.capture.tikv.client.tls import security_of

    ca, cert, key = (Path(found[name]) if found.get(name) else None for name in ("ca", "cert", "key"))
    pd = tuple(one.strip() for one in found["pd"].split(",") if one.strip())
    security_of(pd, ca, cert, key)
    return Cluster(pd, (ca, cert, key))


@asynccontextmanager
async def connected(cluster: Cluster) -> AsyncIterator[PdClient]:
    """A connection to PD. Raises UpstreamUnavailable."""
    from tidemill.capture.tikv.client.pd import PdClient
    from tidemill.capture.tikv.client.tls import security_of

    pd = await PdClient.connect(cluster.pd, security=security_of(cluster.pd, *cluster.tls))
    try:
        yield pd
    finally:
        await pd.close()
