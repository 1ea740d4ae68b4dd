"""Reads the entry store for all clients: one thread reads, in small pieces, so that nobody waits long for another's batch."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

from tidemill.canal.conversation.actions import Fetch
from tidemill.canal.conversation.cutting import Batch
from tidemill.canal.conversation.fast_cutting import CutsBlocks, cutter
from tidemill.canal.server.memory import Share
from tidemill.errors import TidemillError
from tidemill.sinks.canal.store.position import Position
from tidemill.sinks.canal.store.segment import Block

EVERY_S, EVERY_REMOTE_S = 0.05, 0.5
"""So often the store is looked at: a folder, other storage."""
AWAY_S = 1.0
"""So often a store is looked at while that fails."""
PIECE_S = 0.01
"""A piece of work takes about so long; then others have their turn."""
KEPT_BYTES = 256 << 10
"""So many bytes of a batch that is not full are kept while it waits; more are read again."""

_log = logging.getLogger(__name__)


class EntrySource(Protocol):
    """An entry store to read from. Not for several threads at a time. Every method may raise TidemillError."""

    @property
    def is_local(self) -> bool:
        """Whether a look at it costs nothing to speak of."""

    def begins(self) -> int:
        """Entries with a commit_ts above it are there."""

    def head(self) -> int:
        """Nothing with a commit_ts at or below it is missing."""

    def refresh(self) -> bool:
        """Look at the store again; whether the head moved."""

    def blocks(self, after: Position) -> Iterator[tuple[Block, int]]:
        """Blocks with entries behind a position, in order, and the number of the first such entry in each."""


class Reading:
    """`run` follows the head of a store; `fetch` cuts batches."""

    def __init__(self, source: EntrySource) -> None:
        self._source = source
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="canal-store")
        self._moved = asyncio.Event()
        self._look: asyncio.Future[None] | None = None
        self._next_look: asyncio.Future[None] | None = None
        self.begins, self.head = source.begins(), source.head()
        self.failure: TidemillError | None = None
        """Why the store cannot be read now."""

    async def run(self) -> None:
        """Look at the store again and again, until cancelled."""
        every = EVERY_S if self._source.is_local else EVERY_REMOTE_S
        while True:
            await self.look()
            await asyncio.sleep(every if self.failure is None else AWAY_S)

    async def look(self) -> None:
        """Look at the store. What it held when this was called is known then. Those who ask during a look share the next one."""
        if self._look is None:
            self._look = asyncio.ensure_future(self._look_now())
            await asyncio.shield(self._look)
            return
        if self._next_look is None:
            self._next_look = asyncio.ensure_future(self._look_after(self._look))
        await asyncio.shield(self._next_look)

    async def _look_after(self, running: asyncio.Future[None]) -> None:
        await running
        self._look, self._next_look = self._next_look, None
        await self._look_now()

    async def _look_now(self) -> None:
        loop = asyncio.get_running_loop()
        mine = self._look
        try:
            begins, head = await loop.run_in_executor(self._thread, self._refreshed)
        except TidemillError as error:
            if self.failure is None:
                _log.warning("the entry store cannot be read now: %s", error)
            self.failure = error
            return
        finally:
            if self._look is mine and self._next_look is None:
                self._look = None
        if self.failure is not None:
            _log.info("the entry store can be read again")
        self.failure = None
        if (begins, head) != (self.begins, self.head):
            self.begins, self.head = begins, head
            self.wake()

    def _refreshed(self) -> tuple[int, int]:
        self._source.refresh()
        return self._source.begins(), self._source.head()

    def wake(self) -> None:
        """GETs that wait look again: there are entries, or a client's place has changed."""
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def fetch(self, ask: Fetch, share: Share) -> Batch | TidemillError | None:
        """What `Fetch` asks for. A store that is away has nothing new; other errors are returned. `share` is taken before anything is read,
        and has the size of the batch then."""
        loop = asyncio.get_running_loop()
        deadline = None if ask.wait is None else loop.time() + ask.wait
        cut, last, looked = _cutter(ask), ask.wait == 0, False
        while True:
            moved = self._moved
            if cut.upto < self.head:
                most = await share.take(ask.demand.most_bytes)
                if most < ask.demand.most_bytes:
                    cut = _cutter(replace(ask, demand=replace(ask.demand, most_bytes=most)))
                try:
                    await self._cut(cut)
                except TidemillError as error:
                    if not error.retryable:
                        return error
            batch = cut.batch()
            share.keep(batch.size)
            if batch.full or (ask.any and batch.entries):
                return batch
            if last:
                if looked or not self._source.is_local:
                    return batch
                looked = True
                await self.look()  # so that it has all that a folder held when it was asked for
                if cut.upto >= self.head:
                    return batch
                continue
            if batch.size > KEPT_BYTES or share.scarce:
                cut = _cutter(ask)
                share.keep(0)
            try:
                async with asyncio.timeout_at(deadline):
                    await moved.wait()
            except TimeoutError:
                last = True
            if ask.client.turn != ask.turn:
                return None

    async def _cut(self, cut: CutsBlocks) -> None:
        """Feed a cutter until its batch is over or there is no more."""
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(self._thread, self._piece, cut):
            pass

    def _piece(self, cut: CutsBlocks) -> bool:
        """Part of it, in the thread; whether to go on."""
        until = time.monotonic() + PIECE_S
        head, cut.upto = self._source.head(), 0
        for block, first in self._source.blocks(cut.seen):
            cut.feed(block, first)
            if cut.over:
                return False
            if time.monotonic() > until:
                return True
        cut.reach(head)
        return False


def _cutter(ask: Fetch) -> CutsBlocks:
    made = cutter(ask.selector, ask.demand, ask.begin)
    made.upto = ask.upto
    return made
