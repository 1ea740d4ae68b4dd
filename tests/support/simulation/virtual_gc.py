"""PD's side of garbage collection without sockets: the real GC guard uses the playground's safe points in the same thread."""

from __future__ import annotations

from collections.abc import Coroutine

from tidemill.capture.tikv.client.pd import GcState
from tidemill.errors import UpstreamError
from tidemill.playground.store.safepoints import SafePoints


class VirtualPd:
    """What a GcGuard asks PD. `barriers`: as PD 9; else service safe points."""

    def __init__(self, points: SafePoints, barriers: bool) -> None:
        self.points, self.barriers = points, barriers
        self.down = False

    def _reach(self) -> None:
        if self.down:
            raise UpstreamError("PD does not answer")

    async def gc_state(self) -> GcState | None:
        self._reach()
        return GcState(self.points.collected, self.points.collected) if self.barriers else None

    async def gc_safe_point(self) -> int:
        self._reach()
        return self.points.collected

    async def update_service_safe_point(self, service_id: str, ttl: int, safe_point: int) -> tuple[str, int]:
        self._reach()
        least = self.points.update(service_id.encode(), ttl, safe_point)
        return least.service_id.decode(), least.safe_point

    async def set_gc_barrier(self, barrier_id: str, barrier_ts: int, ttl: int) -> None:
        self._reach()
        try:
            self.points.set_barrier(barrier_id.encode(), barrier_ts, ttl)
        except ValueError as error:
            raise UpstreamError(str(error)) from error

    async def delete_gc_barrier(self, barrier_id: str) -> None:
        self._reach()
        self.points.delete_barrier(barrier_id.encode())


def finish(work: Coroutine[object, object, None]) -> None:
    """Run what never has to wait to its end. Raises what it raises."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits for something")
