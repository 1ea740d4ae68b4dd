"""Streams of all stores, and which of them can carry a region. Pure."""

from __future__ import annotations

from tidemill.capture.tikv.regions.state import FIRST_WINDOW, RequestIds, Store, Stream
from tidemill.errors import UpstreamError

SLOTS = 65536  # the receiver's records have 16 bits for a slot
IDLE = 60.0  # seconds after which a stream without subscriptions is closed


class Streams:
    """`partitions`: their number; request ids depend on it."""

    def __init__(self, partitions: int, max_scans: int) -> None:
        self.partitions, self.max_scans = partitions, max_scans
        self.by_slot: dict[int, Stream] = {}
        self.stores: dict[int, Store] = {}
        self._next_slot = 0

    def store(self, store_id: int) -> Store:
        """Return the store's record; make it if there is none."""
        if store_id not in self.stores:
            self.stores[store_id] = Store(store_id, window=min(FIRST_WINDOW, self.max_scans))
        return self.stores[store_id]

    def choose(self, store: Store, region_id: int) -> Stream | None:
        """Return a stream of the store on which the region can be subscribed; None: a new one is needed. Without multiplexing, each
        sub-range of a region needs a stream of its own."""
        for stream in store.streams:
            if not stream.ended and stream.multiplexed == store.multiplexed and (stream.multiplexed or region_id not in stream.alone):
                return stream
        return None

    def add(self, store: Store) -> Stream:
        """Add a stream to the store, in a free slot. Raises UpstreamError if no slot is free."""
        if len(self.by_slot) >= SLOTS:
            raise UpstreamError(f"store {store.id} would need one more than {SLOTS} streams")
        while self._next_slot in self.by_slot:
            self._next_slot = (self._next_slot + 1) % SLOTS
        stream = Stream(self._next_slot, store.id, store.multiplexed, RequestIds(self.partitions))
        self._next_slot = (self._next_slot + 1) % SLOTS
        self.by_slot[stream.slot] = stream
        store.streams.append(stream)
        return stream

    def remove(self, stream: Stream) -> None:
        """Remove a stream and free its slot."""
        del self.by_slot[stream.slot]
        self.stores[stream.store_id].streams.remove(stream)

    def idle(self, now: float) -> list[Stream]:
        """Return the streams that have had no subscription for IDLE seconds."""
        return [s for s in self.by_slot.values() if s.up and not s.ended and not s.sub_ranges and now - s.idle_since >= IDLE]
