"""The door of a port: connections that ask for nothing are let in up to a number, and new ones up to a time.

A connection waits while no request of it is under way: before its TLS handshake and the head of its first request, and between two
requests. When there are more of these than the door takes, the one that has waited longest is closed, so that who only connects pushes
out his own like, and never a request. asyncio alone would keep each unfinished handshake for a minute, as many as come.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from typing import Any

_TOLD_S = 60.0

_log = logging.getLogger(__name__)


class Door(socket.socket):
    """A listening socket for asyncio's own loop. `limit`: how many connections may wait. `seconds`: how long the first request may take to
    come, its handshake included."""

    def __init__(self, family: int, limit: int, seconds: float) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._limit, self._seconds = limit, seconds
        self._open: dict[int, _Connection] = {}
        self._waiting: dict[int, asyncio.TimerHandle | None] = {}  # by file descriptor; who has waited longest comes first
        self._told_at = -_TOLD_S

    def accept(self) -> tuple[socket.socket, Any]:
        plain, address = super().accept()
        found = _Connection(self, plain)
        number = found.fileno()
        self._open[number] = found
        self._waiting[number] = asyncio.get_running_loop().call_later(self._seconds, found.end)
        self._make_room()
        return found, address

    def asks(self, number: int) -> None:
        """A request of this connection is under way. `number`: its file descriptor."""
        late = self._waiting.pop(number, None)
        if late is not None:
            late.cancel()

    def waits(self, number: int) -> None:
        """No request of this connection is under way."""
        if number in self._open and number not in self._waiting:
            self._waiting[number] = None
            self._make_room()

    def left(self, number: int) -> None:
        """This connection is closed."""
        self.asks(number)
        self._open.pop(number, None)

    def _make_room(self) -> None:
        while len(self._waiting) > self._limit:
            number = next(iter(self._waiting))
            self.asks(number)
            self._open.pop(number).end()
            self._tell()

    def _tell(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= _TOLD_S:
            self._told_at = now
            _log.warning("more than %d connections ask for nothing: those that have waited longest are closed", self._limit)


class _Connection(socket.socket):
    """An accepted connection."""

    def __init__(self, door: Door, plain: socket.socket) -> None:
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self._door = door

    def end(self) -> None:
        """Let its transport read an end: it closes the socket itself."""
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._door.left(self.fileno())
        super().close()
