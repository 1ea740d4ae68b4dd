"""Reads rows where no capture looks after locks: it resolves those that stand in its way.

A lock is ended as its transaction ended; one whose client may be alive, by its TTL, is waited for, as by any reader of TiKV.
"""

from __future__ import annotations

from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.locks import LockResolver
from tidemill.capture.tikv.read.tables import LOCK_WAIT_S, RowScan


def resolving_scan(pd: PdClient, ts: int, retry_s: float = LOCK_WAIT_S) -> RowScan:
    """Return a RowScan that resolves locks. `retry_s`: how long one page may take with that."""
    locks = LockResolver(pd, grace_s=0.0)

    async def resolve(key: bytes, end: bytes) -> None:
        await locks.resolve(key, end, ts, await pd.tso())

    return RowScan(pd, ts, retry_s, resolve)
