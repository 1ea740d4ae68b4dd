"""What a server knows of itself, for all of its parts: who it is, whether it takes work, and its processes while it leads."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tidemill.server.processes import Processes

ALIVE, DRAINING, STOPPING = 0, 1, 2
"""TiCDC's liveness of a server."""


@dataclass
class ThisServer:
    """One server. `Manager` changes it, the other parts read it."""

    id: str = ""
    cluster_id: str = ""
    """Of the TiDB cluster."""
    started_at: float = field(default_factory=time.time)
    liveness: int = ALIVE
    term: int = 0
    """The term in which it leads; 0: another server does."""
    processes: Processes | None = None
    """Those of its term."""
