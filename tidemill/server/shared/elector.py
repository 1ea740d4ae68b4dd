"""Takes part in the election: does what `election.py` decides. IO: the lease and the list of servers, in threads."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Protocol

from tidemill.errors import TidemillError
from tidemill.metrics.samples import Sample
from tidemill.server.shared import election as m
from tidemill.server.shared.leading import Leading
from tidemill.server.shared.lease import Leases
from tidemill.server.shared.members import Member, Members

log = logging.getLogger(__name__)

BEATS = 3
"""Beats in a TTL."""
DRAINED_S = 60.0
"""How long a server that was drained leaves the lease to others."""


def boot_time() -> float:
    """Seconds since the machine started, those of its sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Office(Protocol):
    """What the server does as it leads or follows."""

    def follow(self) -> None:
        """Another server leads. Called again and again."""

    async def lead(self, term: int) -> None:
        """Begin. Raises TidemillError if that fails."""

    async def leave(self, *, at_once: bool) -> None:
        """Stop. `at_once`: another server may lead already."""


class Elector:
    """One server's part. Belongs to the event loop; `run` is a task."""

    def __init__(
        self, leases: Leases, members: Members, me: str, ttl: float, office: Office, clock: Callable[[], float] = boot_time
    ) -> None:
        self._leases, self._members, self._office, self._ttl, self._clock = leases, members, office, ttl, clock
        self._state = m.State(me)
        self._leading = Leading()
        self._events: asyncio.Queue[m.Event] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking = False
        self._away = False
        self._changed = asyncio.Event()

    # ---- what others ask

    @property
    def leads(self) -> bool:
        """Whether this server may answer as the leader now."""
        return self._state.leads(self._clock())

    @property
    def phase(self) -> m.Phase:
        return self._state.phase

    @property
    def leader(self) -> m.Lease | None:
        """The lease of another server that leads; None: none is known, or it is this one."""
        lease = self._state.lease
        over = lease is not None and self._clock() - self._state.seen_at > lease.ttl
        return None if lease is None or lease.free or over or self._state.is_mine else lease

    @property
    def members(self) -> list[Member]:
        """The servers that are there."""
        return self._members.present

    def samples(self) -> Iterator[Sample]:
        """Metrics of who leads, as this server sees it."""
        return self._leading.samples(self._state, len(self.members), self._clock(), away=self._away)

    async def settled(self, seconds: float) -> bool:
        """Wait until this server leads, or knows who does. Return whether that came in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not (self.leads or self.leader is not None):
                    self._changed.clear()
                    await self._changed.wait()
        return self.leads or self.leader is not None

    def resign(self, rests_s: float | None = None) -> None:
        """Let another server lead. `rests_s`: how long this one leaves it to others; by default two TTLs."""
        self._events.put_nowait(m.Resigned(2 * self._ttl if rests_s is None else rests_s))

    def failed(self) -> None:
        """A write was refused because another server leads."""
        self._events.put_nowait(m.Failed())

    # ---- its task

    async def run(self) -> None:
        """Take part until cancelled, then leave, and free the lease."""
        beats = asyncio.create_task(self._beat())
        try:
            while True:
                self._take_in(await self._events.get())
        finally:
            beats.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(beats, *self._tasks, return_exceptions=True)
            await self._end()

    async def _end(self) -> None:
        """A server that ends in good order lets others begin at once."""
        await self._office.leave(at_once=not self._state.is_mine)
        lease = self._state.lease
        try:
            if lease is not None and self._state.is_mine:
                await asyncio.to_thread(self._leases.free, lease)
            await asyncio.to_thread(self._members.leave)
        except TidemillError as error:
            log.warning("the lease cannot be given up; others wait for its end: %s", error)

    async def _beat(self) -> None:
        while True:
            self._events.put_nowait(m.Ticked())
            try:
                await asyncio.to_thread(self._members.beat)
                await asyncio.to_thread(self._members.look, self._clock())
            except TidemillError as error:
                log.debug("the list of servers cannot be reached: %s", error)
            await asyncio.sleep(self._ttl / BEATS)

    def _take_in(self, event: m.Event) -> None:
        before = self._state
        self._state, actions = m.decide(before, event)
        self._leading.moved(before, self._state, self._clock())
        if self._state.phase is not before.phase:
            log.info("this server %s (it was: %s)", self._state.phase.value, before.phase.value)
        self._changed.set()
        if self._state.phase is m.Phase.FOLLOWS and self.leader is not None:
            self._office.follow()
        for action in actions:
            self._act(action)

    def _act(self, action: m.Action) -> None:
        match action:
            case m.TakeOver(term):
                self._spawn(self._lead(term))
            case m.Leave(at_once):
                self._spawn(self._leave(at_once))
            case m.Free(lease):
                self._spawn(self._asked(lambda: self._free(lease)))
            case m.Look() | m.Take() | m.Renew():
                if not self._asking:  # storage that is away answers late; the next beat asks again
                    self._asking = True
                    self._spawn(self._ask(action))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, action: m.Action) -> None:
        try:
            await self._asked(lambda: self._answer(action))
        finally:
            self._asking = False

    async def _asked(self, question: Callable[[], m.Event | None]) -> None:
        try:
            event = await asyncio.to_thread(question)
        except TidemillError as error:
            if not self._away:
                log.warning("the lease of the server that leads cannot be reached: %s", error)
            self._away = True
            return
        self._away = False
        if event is not None:
            self._events.put_nowait(event)

    def _answer(self, action: m.Action) -> m.Event:
        """In a thread."""
        asked = self._clock()
        match action:
            case m.Take(seen):
                held = self._leases.take(seen)
            case m.Renew(lease):
                held = self._leases.renew(lease)
            case _:
                return m.Looked(asked, self._leases.look())
        if held is not None:
            return m.Held(asked, held)
        return m.Lost(self._clock(), self._leases.look())

    def _free(self, lease: m.Lease) -> m.Event:
        """In a thread."""
        self._leases.free(lease)
        return m.Looked(self._clock(), self._leases.look())

    async def _lead(self, term: int) -> None:
        try:
            await self._office.lead(term)
        except TidemillError as error:
            log.error("this server cannot lead, and leaves it to others for a while: %s: %s", error.code, error)
            self.failed()
        else:
            self._events.put_nowait(m.TookOver())

    async def _leave(self, at_once: bool) -> None:
        await self._office.leave(at_once=at_once)
        self._events.put_nowait(m.Left(self._clock()))
