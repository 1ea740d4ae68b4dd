"""PD's service GC safe point: what keeps TiDB from collecting history that the log does not hold yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tidemill.capture.tikv.pd import PdClient
from tidemill.errors import ClusterMismatch, StartTsBeforeGc, UpstreamError
from tidemill.tso import describe

PERIOD = 60.0
FIRST_TTL = 3600  # seconds, until there is a log to resume from

_log = logging.getLogger(__name__)


class ServiceSafePoint:
    """Our wish at PD. It follows the log: history above resolved - 1 is needed, for old values at resolved."""

    def __init__(self, pd: PdClient, service_id: str, ttl: int) -> None:
        self.pd, self.service_id, self.ttl = pd, service_id, ttl
        self.safe_point = 0

    async def protect(self, resolved_ts: int, ttl: int | None = None) -> None:
        """Wish that nothing that a capture from `resolved_ts` needs is collected.

        Raises StartTsBeforeGc when it may have been already: PD answers with the smallest wish of all services, and silently does
        not note one below it.
        """
        wanted = resolved_ts - 1
        service, least = await self.pd.update_service_safe_point(self.service_id, self.ttl if ttl is None else ttl, wanted)
        if least > wanted:
            raise _lost(resolved_ts, least, f"service {service} lets PD collect up to there")
        collected = await self.pd.gc_safe_point()
        if collected > resolved_ts:
            raise _lost(resolved_ts, collected, "PD's GC safe point")
        self.safe_point = wanted

    async def remove(self) -> None:
        """Take the wish back."""
        await self.pd.update_service_safe_point(self.service_id, 0, (1 << 63) - 1)

    async def follow(self, resolved_ts: Callable[[], int]) -> None:
        """Keep the wish alive and moving, for ever. Raises StartTsBeforeGc."""
        while True:
            await asyncio.sleep(min(PERIOD, self.ttl / 3))
            try:
                await self.protect(resolved_ts())
            except (StartTsBeforeGc, ClusterMismatch):
                raise
            except UpstreamError as e:  # the wish lasts for its TTL; whether that was long enough, PD tells when it is back
                _log.warning("the GC safe point could not be moved: %s", e.message)


def _lost(resolved_ts: int, limit: int, why: str) -> StartTsBeforeGc:
    return StartTsBeforeGc(
        f"history from {describe(resolved_ts)} on may have been collected already: everything below {describe(limit)} may be gone ({why})",
        hint="Start from a later ts, with a new log, after bringing the downstream there by a dump.",
    )
