"""Regions: their ranges, epochs and leaders, and how these change. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tidemill.tidb.codec import encode_bytes

REPLICAS = 3


@dataclass(frozen=True, slots=True)
class Peer:
    """A copy of a region at a store."""

    id: int
    store_id: int


@dataclass(frozen=True, slots=True)
class Region:
    """A range [start, end) of raw keys (an empty end has no bound) with its epoch, peers and leader. A change makes a new object."""

    id: int
    start: bytes
    end: bytes
    version: int
    conf_ver: int
    peers: tuple[Peer, ...]
    leader: Peer
    start_encoded: bytes = field(init=False, compare=False)
    end_encoded: bytes = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "start_encoded", encode_bytes(self.start) if self.start else b"")
        object.__setattr__(self, "end_encoded", encode_bytes(self.end) if self.end else b"")

    def holds(self, key: bytes) -> bool:
        """Whether a raw key lies in it."""
        return self.start <= key and (not self.end or key < self.end)

    def peer_at(self, store_id: int) -> Peer | None:
        """Its copy at a store."""
        return next((p for p in self.peers if p.store_id == store_id), None)


class RegionMap:
    """All regions: they cover the whole key space and do not overlap, after any sequence of changes."""

    def __init__(self, stores: Iterable[int], next_id: Callable[[], int]) -> None:
        self._stores = list(stores)
        self._next_id = next_id
        self._next_store = 0
        first = self._new(b"", b"", 1)
        self._regions = [first]
        self._starts = [b""]
        self._by_id = {first.id: first}

    def _new(self, start: bytes, end: bytes, version: int) -> Region:
        region_id = self._next_id()
        count = min(REPLICAS, len(self._stores))
        stores = [self._stores[(self._next_store + i) % len(self._stores)] for i in range(count)]
        self._next_store += 1
        peers = tuple(Peer(self._next_id(), store) for store in stores)
        return Region(region_id, start, end, version, 1 if count == 1 else 2 * count - 1, peers, peers[0])

    def __iter__(self) -> Iterator[Region]:
        return iter(self._regions)

    def __len__(self) -> int:
        return len(self._regions)

    def get(self, region_id: int) -> Region | None:
        """A region by its id."""
        return self._by_id.get(region_id)

    def at(self, key: bytes) -> Region:
        """The region of a raw key."""
        return self._regions[bisect_right(self._starts, key) - 1]

    def before(self, region: Region) -> Region | None:
        """The left neighbour."""
        position = self._position(region)
        return self._regions[position - 1] if position else None

    def at_encoded(self, key: bytes) -> Region:
        """The region of an encoded key (a bound may be any bytes)."""
        low, high = 0, len(self._regions)
        while high - low > 1:
            middle = (low + high) // 2
            if self._regions[middle].start_encoded <= key:
                low = middle
            else:
                high = middle
        return self._regions[low]

    def between_encoded(self, start: bytes, end: bytes, limit: int = 0) -> list[Region]:
        """Regions that touch [start, end) of encoded keys, in key order, at most `limit` (0: all)."""
        position = self._position(self.at_encoded(start))
        found: list[Region] = []
        for region in self._regions[position:]:
            if (end and region.start_encoded >= end) or (limit > 0 and len(found) >= limit):
                break
            found.append(region)
        return found

    def _position(self, region: Region) -> int:
        return bisect_right(self._starts, region.start) - 1

    def split(self, region_id: int, keys: Iterable[bytes]) -> list[Region]:
        """Cut a region at raw keys; returns the pieces in key order. The old id stays with the last piece; the version grows by one a cut.

        Raises ValueError if the region is unknown or a key is not strictly inside it.
        """
        region = self._require(region_id)
        cuts = sorted(set(keys))
        if not cuts or any(not region.holds(key) or key <= region.start for key in cuts):
            raise ValueError(f"cannot split region {region_id} there")
        version = region.version + len(cuts)
        bounds = [region.start, *cuts, region.end]
        pieces = [replace(self._twin(region), start=a, end=b, version=version) for a, b in pairwise(bounds[:-1])]
        pieces.append(replace(region, start=cuts[-1], version=version))
        position = self._position(region)
        self._regions[position : position + 1] = pieces
        self._index(position, position + 1, pieces)
        return pieces

    def _twin(self, region: Region) -> Region:
        """A new region with new peers at the same stores, led at the same store."""
        region_id = self._next_id()
        peers = tuple(Peer(self._next_id(), p.store_id) for p in region.peers)
        leader = next(p for p in peers if p.store_id == region.leader.store_id)
        return replace(region, id=region_id, peers=peers, leader=leader)

    def merge(self, source_id: int, target_id: int) -> Region:
        """Join a region into its neighbour; the source's id is gone. Returns the survivor.

        Raises ValueError if one is unknown or they are not neighbours.
        """
        source, target = self._require(source_id), self._require(target_id)
        left, right = (source, target) if source.start < target.start else (target, source)
        if source_id == target_id or left.end != right.start or not left.end:
            raise ValueError(f"regions {source_id} and {target_id} are not neighbours")
        version = max(source.version + 1, target.version) + 1
        joined = replace(target, start=left.start, end=right.end, version=version)
        position = self._position(left)
        self._regions[position : position + 2] = [joined]
        del self._by_id[source_id]
        self._index(position, position + 2, [joined])
        return joined

    def transfer_leader(self, region_id: int, store_id: int) -> Region:
        """Make the copy at a store the leader.

        Raises ValueError if the region is unknown or has no copy there.
        """
        region = self._require(region_id)
        peer = region.peer_at(store_id)
        if peer is None:
            raise ValueError(f"region {region_id} has no peer at store {store_id}")
        moved = replace(region, leader=peer)
        position = self._position(region)
        self._regions[position] = moved
        self._by_id[region_id] = moved
        return moved

    def _require(self, region_id: int) -> Region:
        region = self._by_id.get(region_id)
        if region is None:
            raise ValueError(f"there is no region {region_id}")
        return region

    def _index(self, start: int, stop: int, regions: list[Region]) -> None:
        self._starts[start:stop] = [r.start for r in regions]
        self._by_id.update((r.id, r) for r in regions)
