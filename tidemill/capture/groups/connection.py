"""A connection between a coordinator and a group: JSON lines both ways, with TCP keepalive."""

from __future__ import annotations

import asyncio
import secrets
import socket
from typing import Any

from tidemill.capture.groups.messages import LONGEST, Message, decode, encode
from tidemill.errors import MalformedMessage

IDLE_S, EVERY_S, PROBES = 10, 5, 4
"""TCP keepalive settings: a machine that disappears is noticed after half a minute."""
HANDSHAKE_S = 20.0


def nonce() -> str:
    """Return a random number that is used once."""
    return secrets.token_hex(16)


class Wire:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader: Any = reader  # typed, it has no limit that can be raised
        self._writer = writer
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, EVERY_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * (IDLE_S + EVERY_S * PROBES))

    @classmethod
    async def connect(cls, host: str, port: int) -> Wire:
        """Connect to a coordinator. Raises OSError."""
        return cls(*await asyncio.open_connection(host, port, limit=LONGEST))

    @property
    def waiting(self) -> int:
        """Bytes that the other end has not received yet."""
        return self._writer.transport.get_write_buffer_size()

    def send(self, message: Message) -> None:
        """Send without waiting. Messages are small, and one that does not arrive ends the connection."""
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    def trust(self) -> None:
        """Take lines of up to LONGEST bytes from now on: the other end has proven that it belongs to this capture."""
        self._reader._limit = LONGEST

    async def receive(self) -> Message | None:
        """Return the next message; None at the end. Raises MalformedMessage."""
        try:
            line: bytes = await self._reader.readuntil(b"\n")
        except (asyncio.IncompleteReadError, OSError):
            return None
        except asyncio.LimitOverrunError:
            raise MalformedMessage(f"a line between the parts of a capture is longer than {self._reader._limit} bytes") from None
        return decode(line)

    async def drain(self) -> None:
        """Wait until the send buffer has room."""
        try:
            await self._writer.drain()
        except OSError:
            return

    def close(self) -> None:
        """Close the connection. What was sent is still delivered."""
        self._writer.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()
