"""A socket and its conversation."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from tidemill.canal.conversation.actions import Action, Close, Fetch, Idle, Save, Send, Wake
from tidemill.canal.conversation.desk import Desk
from tidemill.canal.conversation.faults import Fault
from tidemill.canal.conversation.machine import IDLE_S, Conversation
from tidemill.canal.conversation.subscriber import Key
from tidemill.canal.server.memory import Memory, Share
from tidemill.canal.server.reading import Reading
from tidemill.canal.server.saving import Saving
from tidemill.errors import TidemillError

SEEDS = 8
LOGIN_S = 30.0
"""Seconds that a client has for its login, however often it sends something."""
MOST_WAITING = 64 << 10
"""Bytes that a client may send ahead while it waits for an answer."""
ANOTHER = "another server may be serving now"
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Office:
    """What all connections of a server share."""

    desk: Desk
    reading: Reading
    saving: Saving
    connections: dict[Connection, None]
    """In the order in which they came."""
    most: int = 4096
    """How many connections may be open."""
    may_serve: Callable[[], bool] = lambda: True
    """No other server can be serving."""
    refused: int = 0
    """Connections that were closed for a fault of their client's."""
    memory: Memory = field(default_factory=Memory)

    def make_room(self) -> bool:
        """Close the connection that has waited longest for its login, if too many are open. Returns whether one more may be."""
        if len(self.connections) < self.most:
            return True
        stranger = next((one for one in self.connections if one.is_stranger), None)
        if stranger is not None:
            stranger.close()
            self.connections.pop(stranger, None)
        return stranger is not None


class Connection(asyncio.Protocol):
    """See `Conversation`. Actions are done in order; one that has to wait holds up those behind it."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._conversation = Conversation(office.desk, secrets.token_bytes(SEEDS))
        self._actions: deque[Action] = deque()
        self._transport: asyncio.Transport | None = None
        self._socket: Any = None
        self._task: asyncio.Task[None] | None = None
        self._touched: set[Key] = set()
        self._share = Share(office.memory)
        self._idle = Idle(IDLE_S, IDLE_S)
        self._timer: asyncio.TimerHandle | None = None
        self._late: asyncio.TimerHandle | None = None
        self._read_at = self._wrote_at = 0.0
        self._writable = asyncio.Event()
        self._writable.set()
        self._reading = True
        self.peer = ""

    # ---- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._socket = transport.get_extra_info("socket")
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name)
        self._keep_alive()
        if not self._office.make_room():
            _log.warning("%s: connection closed: %d are open, and no more are taken", self.peer, self._office.most)
            self._transport.abort()
            return
        self._office.connections[self] = None
        self._late = asyncio.get_running_loop().call_later(LOGIN_S, self._end_stranger)
        self._read_at = self._wrote_at = self._now()
        self._do(self._conversation.start())
        self._arm()

    def connection_lost(self, error: Exception | None) -> None:
        self._office.connections.pop(self, None)
        if self._late is not None:
            self._late.cancel()
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._share.keep(0)
        self._actions.clear()
        _log.debug("%s has gone%s", self.peer, f": {error}" if error else "")

    def data_received(self, data: bytes) -> None:
        if not self._office.may_serve():
            self._end(ANOTHER, Fault.NOBODY)
            return
        self._quick_ack()
        self._read_at = self._now()
        self._do(self._conversation.receive(data))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
        self._share.keep(0)
        self._wrote_at = self._now()

    @property
    def is_stranger(self) -> bool:
        """Whether nobody has logged in."""
        return self._conversation.is_stranger

    def _end_stranger(self) -> None:
        if self.is_stranger and self._transport is not None:
            self._end(f"no login within {LOGIN_S:g} s", Fault.NOBODY)
            self._transport.abort()

    def close(self) -> None:
        """End at once."""
        if self._transport is not None:
            self._transport.abort()

    # ---- actions

    def _do(self, actions: list[Action]) -> None:
        """Do actions, as far as none has to wait; a task does the rest."""
        self._actions += actions
        if self._task is not None:
            self._hold_back()
            return
        while self._transport is not None and self._actions:
            if self._must_wait(self._actions[0]):
                self._task = asyncio.get_running_loop().create_task(self._wait())
                self._hold_back()
                return
            self._at_once(self._actions.popleft())
        if self._transport is not None:
            self._let_in()
            if self._conversation.more:
                asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._transport is not None and self._task is None:
            self._do(self._conversation.receive(b""))

    def _must_wait(self, action: Action) -> bool:
        match action:
            case Fetch():
                return True
            case Send():
                return not self._writable.is_set() or not all(map(self._office.saving.is_safe, self._touched))
        return False

    def _at_once(self, action: Action) -> None:
        assert self._transport is not None
        match action:
            case Send() if not self._office.may_serve():
                self._end(ANOTHER, Fault.NOBODY)
            case Send(parts):
                self._transport.writelines(parts)
                self._wrote_at = self._now()
                self._touched.clear()
                if self._writable.is_set():
                    self._share.keep(0)
            case Save(client, now):
                if now:
                    self._office.saving.save(client)
                    self._touched.add(client.key)
                    self._office.reading.wake()
                else:
                    self._office.saving.save_later(client)
            case Wake():
                self._office.reading.wake()
            case Idle():
                self._idle = action
                self._arm()
            case Close(reason, fault):
                self._end(reason, fault)
            case Fetch():
                raise AssertionError("a fetch waits")

    async def _wait(self) -> None:
        """Do the first action, which has to wait, and then the rest."""
        try:
            action = self._actions.popleft()
            if isinstance(action, Fetch):
                await self._writable.wait()
                found = await self._office.reading.fetch(action, self._share)
                if isinstance(found, TidemillError):
                    _log.warning("%s cannot be given what it asks for: %s", action.client.key, found)
                more = self._conversation.fetched(found)
                self._read_at = self._wrote_at = self._now()
            else:
                await self._safe()
                await self._writable.wait()
                self._at_once(action)
                more = []
        except TidemillError as error:
            self._end(error.message, Fault.SERVER)
            return
        finally:
            self._task = None
            if self._transport is None:
                self._share.keep(0)
        self._do(more)

    async def _safe(self) -> None:
        for key in list(self._touched):
            await self._office.saving.safe(key)

    def _end(self, reason: str, fault: Fault) -> None:
        if fault is Fault.CLIENT:
            self._office.refused += 1
        _log.log(
            logging.WARNING if fault is not Fault.NOBODY else logging.INFO, "%s: connection closed (%s): %s", self.peer, fault.value, reason
        )
        self._actions.clear()
        if self._transport is not None:
            self._transport.close()

    # ---- flow

    def _hold_back(self) -> None:
        """While an answer waits, not much more is read. The end of a connection is noticed only while it is read."""
        if self._reading and self._transport is not None and self._conversation.waiting_bytes > MOST_WAITING:
            self._reading = False
            self._transport.pause_reading()

    def _let_in(self) -> None:
        if not self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    # ---- time

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _arm(self) -> None:
        """Look at the idle times when the first of them may be over."""
        if self._timer is not None:
            self._timer.cancel()
        at = min(self._read_at + self._idle.read, self._wrote_at + self._idle.write)
        self._timer = asyncio.get_running_loop().call_at(at, self._look)

    def _look(self) -> None:
        """A client whose GET waits is not idle."""
        now = self._now()
        if self._task is not None and self._writable.is_set():
            self._read_at = self._wrote_at = now
        if now >= self._read_at + self._idle.read:
            self._end(f"nothing was read for {self._idle.read:g} s", Fault.NOBODY)
        elif now >= self._wrote_at + self._idle.write:
            self._end(f"nothing was written for {self._idle.write:g} s", Fault.NOBODY)
            if not self._writable.is_set() and self._transport is not None:
                self._transport.abort()
        else:
            self._arm()

    # ---- the socket

    def _quick_ack(self) -> None:
        """Acknowledge what was received at once: Java's client sends a packet in two writes, and the second waits for that."""
        with contextlib.suppress(OSError, AttributeError):
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def _keep_alive(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEPALIVE.items():
                self._socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            self._quick_ack()
