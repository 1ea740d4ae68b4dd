"""Breaks connections between clients and a server, for tests: a gate listens in the server's place and relays bytes to it.

The gate ends a client's TLS, so that it sees HTTP/2 frames. It can cut a connection in the middle of a frame, or send GOAWAY between two
frames, as a store does that shuts down. Opens sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import socket
import ssl
import struct
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

CHUNK = 64 * 1024
FRAME_HEAD = 9
GOAWAY = 7
LINGER_S = 0.3
"""Seconds from a GOAWAY until the connection ends."""
_RESET = struct.pack("ii", 1, 0)


class Fault(enum.StrEnum):
    """What a gate can do to its connections."""

    RESET = "reset"  # TCP RST
    CUT = "cut"  # the connection ends in the middle of an HTTP/2 frame
    GOAWAY = "goaway"  # HTTP/2 GOAWAY; the connection ends a little later
    STALL = "stall"  # nothing passes for a while, in either direction
    REFUSE = "refuse"  # reset, and new connections are closed at once for a while


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The servers' certificate and key as PEM. `client_ca`: clients have to show a certificate of this authority."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None

    def credentials(self) -> Any:
        """Return the credentials for a gRPC server."""
        pairs = [(self.key, self.certificate)]
        return grpc.ssl_server_credentials(pairs, self.client_ca, require_client_auth=self.client_ca is not None)

    def context(self) -> ssl.SSLContext:
        """Return the context for an asyncio server of HTTP/2."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:  # ssl reads certificates from files only
            certificate, key = Path(folder, "cert.pem"), Path(folder, "key.pem")
            certificate.write_bytes(self.certificate)
            key.write_bytes(self.key)
            context.load_cert_chain(certificate, key)
        if self.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=self.client_ca.decode())
        context.set_alpn_protocols(["h2"])
        return context


@dataclass(slots=True)
class FrameEnds:
    """Finds where HTTP/2 frames end in a stream of bytes that arrives in pieces. The stream is a server's: it has no preface."""

    _head: bytes = b""
    _left: int = 0

    def take(self, data: bytes) -> list[int]:
        """Return the offsets in `data` just behind the last byte of each frame."""
        ends, at = [], 0
        while at < len(data):
            if self._left == 0 and len(self._head) < FRAME_HEAD:
                part = data[at : at + FRAME_HEAD - len(self._head)]
                self._head += part
                at += len(part)
                if len(self._head) < FRAME_HEAD:
                    break
                self._left = int.from_bytes(self._head[:3], "big")
            step = min(self._left, len(data) - at)
            self._left -= step
            at += step
            if self._left == 0:
                self._head = b""
                ends.append(at)
        return ends


@dataclass(eq=False, slots=True)
class _Connection:
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    wanted: Fault | None = None  # happens at the next bytes to the client
    ends: FrameEnds = field(default_factory=FrameEnds)

    def reset(self) -> None:
        """End the connection; the client sees a TCP RST."""
        raw = self.client.get_extra_info("socket")
        if raw is not None:
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.drop()

    def drop(self) -> None:
        """End both sides now."""
        for writer in (self.client, self.server):
            if writer is not None:
                writer.transport.abort()


class Gate:
    """Relays connections to `target`, a port of this machine. Belongs to one event loop."""

    def __init__(self, tls: ServerTls | None = None) -> None:
        self.target = 0
        self._context = tls.context() if tls is not None else None
        self._listener: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._refusing = False

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def open(self, host: str, port: int = 0) -> int:
        """Listen, and return the port. Raises OSError."""
        self._listener = await asyncio.start_server(self._serve, host, port, ssl=self._context, limit=4 * CHUNK)
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Close the port and all connections."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._end_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def strike(self, fault: Fault, seconds: float = 1.0) -> int:
        """Let a fault happen to all connections, and return their number. `seconds`: how long STALL and REFUSE last."""
        found = list(self._connections)
        if fault in (Fault.RESET, Fault.REFUSE):
            self._end_all()
        elif fault is not Fault.STALL:
            for connection in found:
                connection.wanted = fault
        if fault is Fault.STALL:
            self._passing.clear()
            asyncio.get_running_loop().call_later(seconds, self._passing.set)
        elif fault is Fault.REFUSE:
            self._refusing = True
            asyncio.get_running_loop().call_later(seconds, self._admit)
        return len(found)

    def _admit(self) -> None:
        self._refusing = False

    def _end_all(self) -> None:
        for connection in list(self._connections):
            connection.reset()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        connection = _Connection(writer)
        if self._refusing:
            connection.reset()
            return
        self._connections.add(connection)
        try:
            answers, connection.server = await asyncio.open_connection("127.0.0.1", self.target, limit=4 * CHUNK)
            ways = [
                asyncio.ensure_future(self._to_server(reader, connection)),
                asyncio.ensure_future(self._to_client(answers, connection)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # the server is down: its clients see a connection that ends
        finally:
            self._connections.discard(connection)
            connection.drop()

    async def _to_server(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        assert connection.server is not None
        while data := await reader.read(CHUNK):
            await self._passing.wait()
            connection.server.write(data)
            await connection.server.drain()

    async def _to_client(self, answers: asyncio.StreamReader, connection: _Connection) -> None:
        while data := await answers.read(CHUNK):
            await self._passing.wait()
            ends = connection.ends.take(data)
            if connection.wanted is Fault.CUT:
                connection.client.write(data[: _inside(len(data), ends)])
                await connection.client.drain()
                connection.client.close()
                return
            if connection.wanted is Fault.GOAWAY and ends:
                connection.wanted = None
                data = data[: ends[0]] + _goaway() + data[ends[0] :]
                asyncio.get_running_loop().call_later(LINGER_S, connection.drop)
            connection.client.write(data)
            await connection.client.drain()
        connection.client.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await connection.client.wait_closed()


def _inside(size: int, ends: list[int]) -> int:
    """Return an offset in the second half of `size` bytes at which no frame ends; `size` if there is none."""
    return next((at for at in range(size // 2, size) if at not in set(ends)), size)


def _goaway() -> bytes:
    """Return a GOAWAY frame without an error. It covers all streams: all that were opened are still served."""
    text = b"graceful shutdown"
    payload = struct.pack(">II", 0x7FFFFFFF, 0) + text
    return len(payload).to_bytes(3, "big") + bytes([GOAWAY, 0]) + bytes(4) + payload
