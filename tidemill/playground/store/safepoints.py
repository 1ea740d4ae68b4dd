"""PD's safe points for garbage collection: from when on each service needs history, and what was collected. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

GC_WORKER = b"gc_worker"
ENDLESS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ServiceSafePoint:
    """A service's claim: history from `safe_point` on must stay, until `expires` (Unix seconds)."""

    service_id: bytes
    safe_point: int
    expires: int

    def ttl(self, now: int) -> int:
        """Seconds left."""
        return self.expires - now


class SafePoints:
    """The services' safe points with PD's rules: a claim below the minimum is silently not stored, and the answer is always the minimum."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._services = {GC_WORKER: ServiceSafePoint(GC_WORKER, 0, ENDLESS)}
        self.collected = 0  # the GC safe point: what has really been collected

    def minimum(self) -> ServiceSafePoint:
        """The lowest claim that has not expired."""
        now = self._clock()
        self._services = {k: v for k, v in self._services.items() if v.expires > now}
        return min(self._services.values(), key=lambda s: (s.safe_point, s.service_id))

    def update(self, service_id: bytes, ttl: int, safe_point: int) -> ServiceSafePoint:
        """Store, replace or (ttl <= 0) remove a claim and return the minimum of all.

        Raises ValueError when `gc_worker` is to be removed.
        """
        if ttl <= 0:
            if service_id == GC_WORKER:
                raise ValueError("cannot remove service safe point of gc_worker")
            self._services.pop(service_id, None)
        elif safe_point >= self.minimum().safe_point:
            expires = ENDLESS if service_id == GC_WORKER else min(self._clock() + ttl, ENDLESS)
            self._services[service_id] = ServiceSafePoint(service_id, safe_point, expires)
        return self.minimum()

    def set_barrier(self, barrier_id: bytes, barrier_ts: int, ttl: int) -> ServiceSafePoint:
        """Store a GC barrier, which PD keeps with the services' claims. Raises ValueError where garbage collection is past it."""
        if barrier_ts < self.collected:
            raise ValueError(f"the GC barrier {barrier_ts} is behind the txn safe point {self.collected}")
        if ttl <= 0 or barrier_id == GC_WORKER:
            raise ValueError(f"the GC barrier {barrier_id.decode(errors='replace')} with a TTL of {ttl} s is not allowed")
        barrier = ServiceSafePoint(barrier_id, barrier_ts, min(self._clock() + ttl, ENDLESS))
        self._services[barrier_id] = barrier
        return barrier

    def delete_barrier(self, barrier_id: bytes) -> ServiceSafePoint | None:
        """Remove a barrier; returns it if it was there."""
        return self._services.pop(barrier_id, None) if barrier_id != GC_WORKER else None

    def services(self) -> list[ServiceSafePoint]:
        """All claims that have not expired, lowest first."""
        self.minimum()
        return sorted(self._services.values(), key=lambda s: s.safe_point)

    def advance_gc(self, wanted: int) -> int:
        """Move TiDB's GC worker and the GC safe point towards `wanted`, not past any other service; returns the new GC safe point."""
        others = [s.safe_point for s in self.services() if s.service_id != GC_WORKER]
        target = min([wanted, *others])
        if target > self.collected:
            self.collected = target
            self._services[GC_WORKER] = ServiceSafePoint(GC_WORKER, target, ENDLESS)
        return self.collected
