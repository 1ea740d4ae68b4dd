"""A cluster, and a connection to it. Light: the keeper's process has little more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.client.tls import security_of


@dataclass(frozen=True, slots=True)
class Cluster:
    """PD's addresses, and the files for TLS: ca, cert, key."""

    pd: tuple[str, ...]
    tls: tuple[Path | None, Path | None, Path | None] = (None, None, None)


@asynccontextmanager
async def connected(cluster: Cluster) -> AsyncIterator[PdClient]:
    """A connection to PD. Raises UpstreamUnavailable."""
    pd = await PdClient.connect(cluster.pd, security=security_of(cluster.pd, *cluster.tls))
    try:
        yield pd
    finally:
        await pd.close()
