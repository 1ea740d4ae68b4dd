"""The memory that all connections together may use for batches.

A connection takes its share before a batch is read, and gives it back when the batch is with the operating system. Where the limit is
reached it waits its turn. While clients that do not read hold all of it, the others get small batches instead, so they go on.
"""

from __future__ import annotations

import asyncio
from collections import deque

LIMIT_BYTES = 256 << 20
LEAST_LIMIT = 1 << 20
SMALL_BYTES = 64 << 10
"""A batch of so many bytes is always allowed."""
PATIENCE_S = 1.0
"""A connection takes a small batch when nothing was given back for so long."""


class Memory:
    """`used` bytes of `limit`. For one event loop."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self.limit, self.used = limit, 0
        self._turns: deque[asyncio.Future[None]] = deque()
        self._returned = 0

    @property
    def waiting(self) -> int:
        """How many connections wait for their turn."""
        return len(self._turns)

    @property
    def scarce(self) -> bool:
        """More than half of it is in use."""
        return self.used > self.limit // 2

    async def take(self, size: int) -> int:
        """Take this many bytes, or all there may be; SMALL_BYTES if nobody gives any back. Returns how many. First come, first served."""
        size = min(size, self.limit)
        if size <= SMALL_BYTES or (not self._turns and self._fits(size)):
            self.used += size
            return size
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            while not (self._turns[0] is turn and self._fits(size)):
                if not await self._moved(turn):
                    size = SMALL_BYTES
                    break
                turn = self._again(turn)
            self.used += size
            return size
        finally:
            self._turns.remove(turn)
            self._next()

    def _again(self, turn: asyncio.Future[None]) -> asyncio.Future[None]:
        """Another future at the same place of the queue, if this one is done."""
        if not turn.done():
            return turn
        fresh: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns[self._turns.index(turn)] = fresh
        return fresh

    async def _moved(self, turn: asyncio.Future[None]) -> bool:
        """Wait for a turn; whether memory was given back meanwhile."""
        returned = self._returned
        await asyncio.wait([turn], timeout=PATIENCE_S)
        return turn.done() or self._returned > returned

    def give(self, size: int) -> None:
        """Give bytes back."""
        if size:
            self.used -= size
            self._returned += 1
            self._next()

    def _fits(self, size: int) -> bool:
        return self.used + size <= self.limit

    def _next(self) -> None:
        """The first that waits looks again."""
        if self._turns and not self._turns[0].done():
            self._turns[0].set_result(None)


class Share:
    """What one connection has of it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.size = 0

    async def take(self, size: int) -> int:
        """Take so many bytes instead of those it has; see `Memory.take`."""
        self.keep(0)
        self.size = await self._memory.take(size)
        return self.size

    def keep(self, size: int) -> None:
        """Change to so many bytes, whatever the limit: they are in memory."""
        before, self.size = self.size, size
        self._memory.used += max(size - before, 0)
        self._memory.give(max(before - size, 0))

    @property
    def scarce(self) -> bool:
        """See `Memory`."""
        return self._memory.scarce
