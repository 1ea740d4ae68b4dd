"""What keeps TiDB from collecting history that the log does not hold yet: a GC barrier at PD, or a service GC safe point where PD is older.

Both follow the log: history above resolved - 1 is needed, for old values at resolved. They differ in how PD refuses a wish that comes
too late: a barrier is refused, a safe point is silently not noted, and only the smallest wish in the answer tells.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from tidemill.capture.tikv.pd import GcState, PdClient
from tidemill.errors import ClusterMismatch, StartTsBeforeGc, UpstreamError
from tidemill.tso import describe

PERIOD = 60.0
FIRST_TTL = 3600  # seconds, until there is a log to resume from
FOREVER = (1 << 63) - 1
CAPTURE_ID = "capture_id"
"""Field of log.json that names the log at PD."""

_log = logging.getLogger(__name__)


def service_id(cluster_id: int | str, capture_id: str) -> str:
    """A log's name at PD: of the cluster and the log, so that no two logs share a wish."""
    return f"tidemill-{cluster_id}-{capture_id}"


class GcGuard:
    """A log's wish at PD."""

    def __init__(self, pd: PdClient, service_id: str, ttl: int, *, clock: Callable[[], float] = time.time) -> None:
        self.pd, self.service_id, self.ttl = pd, service_id, ttl
        self.safe_point = 0
        self.expires = 0.0  # Unix seconds until which PD keeps the wish without another word
        self._clock = clock

    @property
    def seconds_left(self) -> float:
        """How long PD still keeps the history if the capture falls silent now; 0: nothing is kept."""
        return max(0.0, self.expires - self._clock())

    async def protect(self, resolved_ts: int, ttl: int | None = None) -> None:
        """Wish that nothing that a capture from `resolved_ts` needs is collected. Raises StartTsBeforeGc when it may have been already."""
        wanted, seconds = resolved_ts - 1, self.ttl if ttl is None else ttl
        asked_at = self._clock()
        state = await self.pd.gc_state()
        if state is None:
            await self._safe_point(resolved_ts, wanted, seconds)
        else:
            await self._barrier(resolved_ts, wanted, seconds, state)
        self.safe_point, self.expires = wanted, asked_at + seconds

    async def _safe_point(self, resolved_ts: int, wanted: int, ttl: int) -> None:
        service, least = await self.pd.update_service_safe_point(self.service_id, ttl, wanted)
        if least > wanted:
            raise _lost(resolved_ts, least, f"service {service} lets PD collect up to there")
        collected = await self.pd.gc_safe_point()
        if collected > resolved_ts:
            raise _lost(resolved_ts, collected, "PD's GC safe point")

    async def _barrier(self, resolved_ts: int, wanted: int, ttl: int, state: GcState) -> None:
        _check(resolved_ts, wanted, state)
        try:
            await self.pd.set_gc_barrier(self.service_id, wanted, ttl)
        except UpstreamError:
            now = await self.pd.gc_state()  # has it passed us between the two calls?
            if now is not None:
                _check(resolved_ts, wanted, now)
            raise

    async def remove(self) -> None:
        """Take the wish back, in whichever form PD has it."""
        if await self.pd.gc_state() is not None:
            await self.pd.delete_gc_barrier(self.service_id)
        else:
            await self.pd.update_service_safe_point(self.service_id, 0, FOREVER)
        self.expires = 0.0

    async def follow(self, resolved_ts: Callable[[], int]) -> None:
        """Keep the wish alive and moving, for ever. Raises StartTsBeforeGc."""
        while True:
            await asyncio.sleep(min(PERIOD, self.ttl / 3))
            try:
                await self.protect(resolved_ts())
            except (StartTsBeforeGc, ClusterMismatch):
                raise
            except UpstreamError as e:  # the wish lasts for its TTL; whether that was long enough, PD tells when it is back
                _log.warning("the GC safe point could not be moved, it lasts for another %.0f s: %s", self.seconds_left, e.message)


def _check(resolved_ts: int, wanted: int, state: GcState) -> None:
    if state.txn_safe_point > wanted:
        raise _lost(resolved_ts, state.txn_safe_point, "PD's transaction safe point")
    if state.gc_safe_point > resolved_ts:
        raise _lost(resolved_ts, state.gc_safe_point, "PD's GC safe point")


def _lost(resolved_ts: int, limit: int, why: str) -> StartTsBeforeGc:
    return StartTsBeforeGc(
        f"history from {describe(resolved_ts)} on may have been collected already: everything below {describe(limit)} may be gone ({why})",
        hint="Start from a later ts, with a new log, after bringing the downstream there by a dump.",
    )
