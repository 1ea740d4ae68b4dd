"""The part of etcd that PD serves on its port: keys with revisions, events since a revision, leases. Pure: no IO, the clock is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Pair:
    """A key with its value and its revisions, as etcd counts them."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """A change: `pair` was put; or deleted, then it has neither value nor version. `before`: what was there."""

    pair: Pair
    before: Pair | None
    deleted: bool = False


@dataclass(slots=True)
class Lease:
    """A lease of `ttl` seconds that ends at `until`, in seconds of the clock."""

    id: int
    ttl: int
    until: float


class LeaseUnknown(Exception):
    """There is no such lease, or it is over."""


def in_range(key: bytes, start: bytes, end: bytes) -> bool:
    """Whether a key is asked for. No end: `start` alone; an end of one zero byte: all from `start` on."""
    if not end:
        return key == start
    return key >= start and (end == b"\0" or key < end)


class EtcdStore:
    """All members of PD share one. `wake` is called after each change."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.revision = 1
        self.pairs: dict[bytes, Pair] = {}
        self.leases: dict[int, Lease] = {}
        self._events: list[Event] = []
        self._last_lease = 0x1000
        self.wake: set[Callable[[], None]] = set()

    def between(self, start: bytes, end: bytes) -> list[Pair]:
        """The pairs of a range, in the order of their keys."""
        return [self.pairs[key] for key in sorted(self.pairs) if in_range(key, start, end)]

    def since(self, revision: int, start: bytes, end: bytes) -> list[Event]:
        """The events of a range from a revision on, oldest first."""
        low, high = 0, len(self._events)
        while low < high:
            middle = (low + high) // 2
            if self._events[middle].pair.mod_revision < revision:
                low = middle + 1
            else:
                high = middle
        return [event for event in self._events[low:] if in_range(event.pair.key, start, end)]

    def change(self, puts: Sequence[tuple[bytes, bytes, int]] = (), deletes: Sequence[tuple[bytes, bytes]] = ()) -> list[Event]:
        """Put (key, value, lease) and delete ranges, all at one revision. Raises LeaseUnknown; then nothing is changed."""
        self.expire()
        for _, _, lease in puts:
            if lease and lease not in self.leases:
                raise LeaseUnknown
        revision, events = self.revision + 1, []
        for start, end in deletes:
            for pair in self.between(start, end):
                del self.pairs[pair.key]
                events.append(Event(Pair(pair.key, b"", 0, revision, 0), pair, deleted=True))
        for key, value, lease in puts:
            before = self.pairs.get(key)
            new = Pair(key, value, revision, revision, 1, lease)
            if before is not None:
                new = replace(new, create_revision=before.create_revision, version=before.version + 1)
            self.pairs[key] = new
            events.append(Event(new, before))
        if events:
            self.revision = revision
            self._events += events
            for wake in list(self.wake):
                wake()
        return events

    # leases

    def grant(self, ttl: int, lease_id: int = 0) -> Lease:
        """A new lease. Without an id it gets one. Raises ValueError for one that exists."""
        self.expire()
        if lease_id in self.leases:
            raise ValueError(f"lease {lease_id} exists")
        if not lease_id:
            self._last_lease += 1
            lease_id = self._last_lease
        lease = self.leases[lease_id] = Lease(lease_id, ttl, self._clock() + ttl)
        return lease

    def keep_alive(self, lease_id: int) -> Lease | None:
        """Let a lease begin again; None if it is over."""
        self.expire()
        lease = self.leases.get(lease_id)
        if lease is not None:
            lease.until = self._clock() + lease.ttl
        return lease

    def revoke(self, lease_id: int) -> None:
        """End a lease, and delete its keys. Raises LeaseUnknown."""
        if self.leases.pop(lease_id, None) is None:
            raise LeaseUnknown
        self.change(deletes=[(pair.key, b"") for pair in list(self.pairs.values()) if pair.lease == lease_id])

    def left(self, lease_id: int) -> int:
        """The seconds that a lease still has; -1 for one that is over."""
        self.expire()
        lease = self.leases.get(lease_id)
        return -1 if lease is None else int(lease.until - self._clock())

    def expire(self) -> None:
        """End the leases whose time is over."""
        now = self._clock()
        for lease in [lease for lease in self.leases.values() if lease.until <= now]:
            self.revoke(lease.id)
