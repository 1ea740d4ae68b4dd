"""Reads rows where no capture looks after locks: it resolves those that stand in its way.

A lock is ended as its transaction ended; one whose client may be alive, by its TTL, is waited for, as by any reader of TiKV.
"""

from __future__ import annotations

from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.locks import LockResolver
from tidemill.capture.tikv.model import Region
from tidemill.capture.tikv.read.snapshot import KeyLocked
from tidemill.capture.tikv.read.tables import LOCK_WAIT_S, RowScan
from tidemill.kernels.load import Pairs


class ResolvingScan(RowScan):
    """A RowScan that resolves locks. `retry_s`: how long one page may take with that."""

    def __init__(self, pd: PdClient, ts: int, retry_s: float = LOCK_WAIT_S) -> None:
        super().__init__(pd, ts, retry_s)
        self._locks = LockResolver(pd, grace_s=0.0)

    async def _columns(self, region: Region, start: bytes, end: bytes, page: int) -> tuple[Pairs, bytes | None]:
        try:
            return await super()._columns(region, start, end, page)
        except KeyLocked as locked:
            await self._locks.resolve(locked.key, end, self.ts, await self.pd.tso())
            raise  # and it is read again
