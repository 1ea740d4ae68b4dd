"""Merges the binlogs of several Pumps into one stream in commit order. Pure.

Each Pump's own stream is in commit order. A binlog can go on when every other Pump has either one that comes later, or has told (by a
fake binlog, or by what it gave last) that it holds nothing that comes earlier. A Pump that joins holds the stream until it has told how
far it is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from tidemill.binlog.blocks import NONE, Binlogs, is_fake, joined


@dataclass(slots=True)
class _Source:
    number: int  # in the heads of its binlogs
    last: tuple[int, int]  # commit ts and start ts of the newest binlog that came
    waiting: deque[Binlogs] = field(default_factory=deque)
    size: int = 0


@dataclass(frozen=True, slots=True)
class Holder:
    """The Pump that holds the merge: nothing above `ts` can go on before it tells more."""

    node_id: str
    ts: int


class Merge:
    """Begins after `ts`."""

    def __init__(self, ts: int) -> None:
        self.position = ts
        """Everything up to here was given out."""
        self.repeated = 0
        """Binlogs that came again after a connection was made again."""
        self._sources: dict[str, _Source] = {}
        self._joined = 0
        self._ready = NONE
        self._aside: list[Binlogs] = []  # of Pumps that are gone, and what was ready when one joined: each block in order

    @property
    def sources(self) -> tuple[str, ...]:
        """The Pumps that are merged."""
        return tuple(self._sources)

    def join(self, node_id: str) -> int:
        """Add a Pump. Returns the ts after which it is to be asked for binlogs."""
        if node_id not in self._sources:
            self._joined += 1
            self._sources[node_id] = _Source(self._joined, (self.position, 0))
            self._put_aside(self._ready)
            self._ready = NONE
        return self._sources[node_id].last[0]

    def leave(self, node_id: str) -> None:
        """Take a Pump out. What came from it and was not given out yet stays in the merge until it is."""
        source = self._sources.pop(node_id, None)
        for block in source.waiting if source is not None else ():
            self._put_aside(block)

    def _put_aside(self, block: Binlogs) -> None:
        if len(block):
            self._aside.append(block)

    def add(self, node_id: str, binlogs: Binlogs) -> None:
        """Take binlogs, also fake ones, in the order in which the Pump sent them. What came from it already is left out."""
        if not len(binlogs):
            return
        source = self._sources[node_id]
        commits, fakes = binlogs.heads["commit_ts"], is_fake(binlogs)
        if commits[0] > source.last[0] and np.all(commits[1:] > commits[:-1]):
            source.last = int(commits[-1]), 0 if fakes[-1] else int(binlogs.heads["start_ts"][-1])
            wanted = ~fakes
        else:
            wanted = np.array([self._is_new(source, head, fake) for head, fake in zip(binlogs.heads, fakes.tolist(), strict=True)])
        if np.any(wanted):
            block = binlogs if np.all(wanted) else Binlogs(binlogs.heads[wanted], binlogs.owners)
            block.heads["pump"] = source.number
            source.waiting.append(block)
            source.size += int(block.sizes.sum())

    def _is_new(self, source: _Source, head: np.void, fake: bool) -> bool:
        """Whether a binlog is to be given out; moves the end of what came."""
        place = int(head["commit_ts"]), 0 if fake else int(head["start_ts"])
        if place <= source.last:
            self.repeated += not fake
            return False
        source.last = place
        return not fake

    def waiting(self, node_id: str) -> int:
        """The bytes that what came from a Pump, and was not given out yet, takes."""
        source = self._sources.get(node_id)
        return source.size if source is not None else 0

    @property
    def bound(self) -> int:
        """Everything at or below this ts has come from all Pumps."""
        return min((source.last[0] for source in self._sources.values()), default=self.position)

    @property
    def complete_ts(self) -> int:
        """Everything at or below this ts was given out: `position`, unless another transaction of that commit ts waits."""
        tied = any(int(block.heads["commit_ts"][0]) == self.position for block in self._blocks())
        return self.position - 1 if tied else self.position

    def _blocks(self) -> list[Binlogs]:
        """Return the blocks that come first, of each stream."""
        firsts = [source.waiting[0] for source in self._sources.values() if source.waiting]
        return [block for block in (self._ready, *self._aside, *firsts) if len(block)]

    @property
    def holds(self) -> bool:
        """Whether binlogs wait."""
        return bool(self._blocks())

    def holder(self) -> Holder | None:
        """Return the Pump that is the least far; None without Pumps."""
        found = min(((source.last[0], node_id) for node_id, source in self._sources.items()), default=None)
        return None if found is None else Holder(found[1], found[0])

    def next(self, most: int, most_bytes: int = 1 << 62) -> Binlogs:
        """Return the next binlogs, at most so many, and at most one if it is larger than `most_bytes`; none if it is not known yet which
        one comes next."""
        if not len(self._ready):
            self._gather()
        found = self._ready.part(0, most)
        if not len(found):
            if self._sources and not self.holds:
                self.position = max(self.position, self.bound)
            return NONE
        found = found.part(0, max(1, int(np.searchsorted(np.cumsum(found.sizes), most_bytes, "right"))))
        self._ready = self._ready.part(len(found)) if len(found) < len(self._ready) else NONE
        sizes = np.bincount(found.heads["pump"], found.sizes, self._joined + 1)
        for source in self._sources.values():
            source.size -= int(sizes[source.number])
        self.position = int(found.heads["commit_ts"][-1])
        return found

    def _gather(self) -> None:
        """Take everything that can go on out of the streams. Without Pumps that is all."""
        bound = self.bound if self._sources else 1 << 62
        parts = []
        for block in self._aside:
            parts.append(block.part(0, _count(block, bound)))
        self._aside = [rest for block in self._aside if len(rest := block.part(_count(block, bound)))]
        for source in self._sources.values():
            while source.waiting:
                block = source.waiting[0]
                count = _count(block, bound)
                parts.append(block.part(0, count))
                if count < len(block):
                    source.waiting[0] = block.part(count)
                    break
                source.waiting.popleft()
        parts = [part for part in parts if len(part)]
        self._ready = joined(parts) if parts else NONE


def _count(block: Binlogs, bound: int) -> int:
    """Return how many binlogs of a block are at or below a ts."""
    return int(np.searchsorted(block.heads["commit_ts"], bound, "right"))
