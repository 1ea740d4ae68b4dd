"""Keeps TiDB from collecting history that the log does not hold yet, by a GC barrier at PD, or a service GC safe point if PD is older.

Both follow the log, at resolved - 1. If a log begins exactly at PD's safe point, the ts is resolved instead: old values are read at or
above resolved. PD refuses a barrier that comes too late. It silently ignores a safe point that comes too late: only the smallest safe point
in its answer shows that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from tidemill.capture.tikv.client.pd import GcState, PdClient
from tidemill.capture.tikv.watchdog.gc_patience import GcPatience
from tidemill.errors import ClusterMismatch, GcTtlExceeded, StartTsBeforeGc, UpstreamError
from tidemill.tso import describe, physical_ms

PERIOD = 60.0
FIRST_TTL = 3600  # seconds, until the log exists
FOREVER = (1 << 63) - 1
CAPTURE_ID = "capture_id"
"""Field of log.json with the log's name at PD."""

_log = logging.getLogger(__name__)


def service_id(cluster_id: int | str, capture_id: str) -> str:
    """Return the log's name at PD. It contains the cluster and the log, so no two logs share one."""
    return f"tidemill-{cluster_id}-{capture_id}"


async def let_go(pd: PdClient, log: Mapping[str, object]) -> None:
    """Remove from PD what keeps history for a log. `log`: further fields of its log.json. Raises UpstreamUnavailable."""
    capture_id = log.get(CAPTURE_ID)
    if isinstance(capture_id, str):
        await GcGuard(pd, service_id(pd.cluster_id, capture_id), 0).remove()


class GcGuard:
    """The log's GC barrier, or service safe point, at PD. `resumes`: the log exists already, and history is needed from its end on."""

    def __init__(self, pd: PdClient, service_id: str, ttl: int, *, resumes: bool = False, clock: Callable[[], float] = time.time) -> None:
        self.pd, self.service_id, self.ttl, self.resumes = pd, service_id, ttl, resumes
        self.safe_point = 0
        self.expires = 0.0  # Unix seconds when the barrier expires at PD
        self.used = 0.0
        """The share of the TTL for which the log has not caught up. At 1 the barrier is removed."""
        self._patience = GcPatience(ttl)
        self._clock = clock

    @property
    def seconds_left(self) -> float:
        """How long PD still keeps the history if the capture stops now; 0: nothing is kept."""
        return max(0.0, self.expires - self._clock())

    async def protect(self, resolved_ts: int, ttl: int | None = None) -> None:
        """Set the barrier so that nothing above `resolved_ts` is collected. Raises StartTsBeforeGc if it may have been collected
        already."""
        seconds = self.ttl if ttl is None else ttl
        asked_at = self._clock()
        state = await self.pd.gc_state()
        if state is None:
            self.safe_point = await self._safe_point(resolved_ts, seconds)
        else:
            self.safe_point = await self._barrier(resolved_ts, seconds, state)
        self.expires = asked_at + seconds

    async def _safe_point(self, resolved_ts: int, ttl: int) -> int:
        wanted = resolved_ts - 1
        service, least = await self.pd.update_service_safe_point(self.service_id, ttl, wanted)
        if least == resolved_ts:  # the history is still complete: a safe point keeps what can be read at it
            wanted = resolved_ts
            service, least = await self.pd.update_service_safe_point(self.service_id, ttl, wanted)
        if least > wanted:
            raise self._lost(resolved_ts, least, f"service {service} lets PD collect up to there")
        collected = await self.pd.gc_safe_point()
        if collected > resolved_ts:
            raise self._lost(resolved_ts, collected, "PD's GC safe point")
        return wanted

    async def _barrier(self, resolved_ts: int, ttl: int, state: GcState) -> int:
        wanted = self._possible(resolved_ts, state)
        try:
            await self.pd.set_gc_barrier(self.service_id, wanted, ttl)
        except UpstreamError:
            now = await self.pd.gc_state()  # did the safe point pass ours between the two calls?
            later = self._possible(resolved_ts, now) if now is not None else wanted
            if later == wanted:
                raise
            wanted = later
            await self.pd.set_gc_barrier(self.service_id, wanted, ttl)
        return wanted

    def _possible(self, resolved_ts: int, state: GcState) -> int:
        """Return the ts of a barrier that PD accepts and that keeps everything. Raises StartTsBeforeGc if none does."""
        if state.txn_safe_point > resolved_ts:
            raise self._lost(resolved_ts, state.txn_safe_point, "PD's transaction safe point")
        if state.gc_safe_point > resolved_ts:
            raise self._lost(resolved_ts, state.gc_safe_point, "PD's GC safe point")
        return max(resolved_ts - 1, state.txn_safe_point)

    def _lost(self, resolved_ts: int, limit: int, why: str) -> StartTsBeforeGc:
        gone = f"everything below {describe(limit)} may be gone ({why})"
        if not self.resumes:
            return StartTsBeforeGc(
                f"history from {describe(resolved_ts)} on may have been collected already: {gone}",
                hint="Start from a later ts: --start-ts now, with --snapshot, or after bringing the downstream there by a dump.",
            )
        return StartTsBeforeGc(
            f"the log ends at {describe(resolved_ts)}, and what changed from then on may have been collected already: {gone}",
            hint="The capture was away for longer than PD kept the history for it (--gc-ttl). What changed between the two is lost to "
            "this log, so it is not continued. Begin a new log (tidemill capture --snapshot), or bring the downstream to a later ts by "
            "a dump and begin the new log there.",
        )

    async def remove(self) -> None:
        """Remove the barrier or the safe point, whichever PD has."""
        if await self.pd.gc_state() is not None:
            await self.pd.delete_gc_barrier(self.service_id)
        else:
            await self.pd.update_service_safe_point(self.service_id, 0, FOREVER)
        self.expires = 0.0

    async def judge(self, needed_ts: int, parts: int, held_by: Callable[[], str]) -> None:
        """Check that the capture advances: a live capture that is stuck must not hold back garbage collection forever. Warns in time; at
        the end of gc-ttl removes the barrier and raises GcTtlExceeded. `parts`: parts of tables still to be read. `held_by`: returns what
        holds the log."""
        now = physical_ms(await self.pd.tso()) / 1000
        self.used = self._patience.look(now, physical_ms(needed_ts) / 1000, parts)
        told = f"the log is at {describe(needed_ts)} and has not caught up for {self.used * self.ttl:.0f} s"
        if self.used >= 1:
            with suppress(UpstreamError):  # else the barrier ends with its TTL
                await self.remove()
            raise GcTtlExceeded(
                f"{told}, longer than --gc-ttl ({self.ttl} s): TiDB's garbage collection is not held back for it any more. "
                f"Held by {held_by()}",
                hint="End what holds it (a transaction, a store that is down) and start again soon: as long as TiDB has not collected the "
                "history, the log goes on where it is. Otherwise begin a new log (--snapshot): this one cannot go on across the hole.",
            )
        if self._patience.new_mark(self.used):
            _log.warning(
                "%s; after %d s (--gc-ttl) the capture ends and lets TiDB collect what it needs. Held by %s", told, self.ttl, held_by()
            )

    async def follow(self, needed_ts: Callable[[], Awaitable[int]], parts: Callable[[], int], held_by: Callable[[], str]) -> None:
        """Renew the barrier and move it with the log, forever. It moves no further than what of the log survives a crash of the machine.
        Raises StartTsBeforeGc, GcTtlExceeded."""
        while True:
            await asyncio.sleep(min(PERIOD, self.ttl / 3))
            try:
                needed = await needed_ts()
                await self.judge(needed, parts(), held_by)
                await self.protect(needed)
            except (StartTsBeforeGc, ClusterMismatch, GcTtlExceeded):
                raise
            except UpstreamError as e:  # the barrier lasts for its TTL; PD says whether that was enough when it is back
                _log.warning("the GC safe point could not be moved, it lasts for another %.0f s: %s", self.seconds_left, e.message)
