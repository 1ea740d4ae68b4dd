"""Merges the binlogs of several Pumps into one stream in commit order. Pure.

Each Pump's own stream is in commit order. A binlog can go on when every other Pump has either one that comes later, or has told (by a
fake binlog, or by what it gave last) that it holds nothing that comes earlier. A Pump that joins holds the stream until it has told how
far it is.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Source(Generic[T]):
    last: tuple[int, int]  # commit ts and start ts of the newest binlog that came
    waiting: deque[tuple[int, int, int, T]] = field(default_factory=deque)
    size: int = 0


@dataclass(frozen=True, slots=True)
class Holder:
    """The Pump that holds the merge: nothing above `ts` can go on before it tells more."""

    node_id: str
    ts: int


class Merge(Generic[T]):
    """Begins after `ts`."""

    def __init__(self, ts: int) -> None:
        self.position = ts
        """Everything up to here was given out."""
        self.repeated = 0
        """Binlogs that came again after a connection was made again."""
        self._sources: dict[str, _Source[T]] = {}
        self._heads: list[tuple[int, int, str]] = []

    @property
    def sources(self) -> tuple[str, ...]:
        """The Pumps that are merged."""
        return tuple(self._sources)

    def join(self, node_id: str) -> int:
        """Add a Pump. Returns the ts after which it is to be asked for binlogs."""
        if node_id not in self._sources:
            self._sources[node_id] = _Source((self.position, 0))
        return self._sources[node_id].last[0]

    def leave(self, node_id: str) -> None:
        """Take a Pump out. What came from it and was not given out yet stays in the merge until it is."""
        source = self._sources.pop(node_id, None)
        if source is not None and source.waiting:
            source.last = (1 << 63, 0)
            self._sources[f"{node_id} (gone)"] = source
            first = source.waiting[0]
            heapq.heappush(self._heads, (first[0], first[1], f"{node_id} (gone)"))

    def told(self, node_id: str, ts: int) -> None:
        """A Pump has nothing more at or below `ts`."""
        source = self._sources[node_id]
        source.last = max(source.last, (ts, 0))

    def add(self, node_id: str, commit_ts: int, start_ts: int, item: T, size: int) -> None:
        """Take a binlog. What came from this Pump already is left out."""
        source = self._sources[node_id]
        place = commit_ts, start_ts
        if place <= source.last:
            self.repeated += 1
            return
        source.last = place
        source.waiting.append((commit_ts, start_ts, size, item))
        source.size += size
        if len(source.waiting) == 1:
            heapq.heappush(self._heads, (commit_ts, start_ts, node_id))

    def waiting(self, node_id: str) -> int:
        """The size of what came from a Pump and was not given out yet."""
        source = self._sources.get(node_id)
        return source.size if source is not None else 0

    @property
    def bound(self) -> int:
        """Everything at or below this ts has come from all Pumps."""
        return min((source.last[0] for source in self._sources.values()), default=self.position)

    @property
    def complete_ts(self) -> int:
        """Everything at or below this ts was given out: `position`, unless another transaction of that commit ts waits."""
        tied = any(source.waiting and source.waiting[0][0] == self.position for source in self._sources.values())
        return self.position - 1 if tied else self.position

    @property
    def holds(self) -> bool:
        """Whether binlogs wait."""
        return any(source.waiting for source in self._sources.values())

    def holder(self) -> Holder | None:
        """Return the Pump that is the least far; None without Pumps."""
        real = ((source.last[0], node_id) for node_id, source in self._sources.items() if source.last[0] < 1 << 63)
        found = min(real, default=None)
        return None if found is None else Holder(found[1], found[0])

    def next(self) -> tuple[int, int, T] | None:
        """Return the next binlog (commit ts, start ts, item); None if it is not known yet which one comes next."""
        while self._heads:
            commit_ts, start_ts, node_id = self._heads[0]
            source = self._sources.get(node_id)
            if source is None or not source.waiting or source.waiting[0][:2] != (commit_ts, start_ts):
                heapq.heappop(self._heads)  # the Pump is gone
                continue
            if self.bound < commit_ts:
                break
            heapq.heappop(self._heads)
            _, _, size, item = source.waiting.popleft()
            source.size -= size
            if source.waiting:
                heapq.heappush(self._heads, (*source.waiting[0][:2], node_id))
            elif source.last[0] == 1 << 63:
                del self._sources[node_id]
            self.position = commit_ts
            return commit_ts, start_ts, item
        if not self._heads and self._sources:
            self.position = max(self.position, self.bound)
        return None
