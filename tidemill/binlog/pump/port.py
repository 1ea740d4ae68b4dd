"""One port for gRPC and HTTP/1.1, plain or TLS: connections are told apart by their first bytes.

HTTP/2 begins with `PRI`; such connections go to a protocol of ours, or are relayed to gRPC's own server, on a socket in a folder that only
this user can open. TLS ends here, so that both see plain bytes. What speaks neither is closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tidemill import credentials
from tidemill.capture.tikv.client.tls import Security, Stamp
from tidemill.errors import ConfigError
from tidemill.metrics.hosts import HINT, is_own
from tidemill.process.descriptors import raise_limit

HTTP2 = b"PRI "
HEAD_LIMIT = 16384
BODY_LIMIT = 1 << 20
SILENT_S = 10.0
"""Seconds for a request's head and body, and for a client to read the answer."""
MOST_CONNECTIONS = 1024
KEPT_FILES = 128
"""Descriptors that are kept for the value log, the index and the calls to PD."""
HIGH_WATER = 1 << 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request."""

    method: str
    path: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered to it."""

    body: bytes
    status: int = 200
    content_type: str = "application/json; charset=utf-8"


Pages = Callable[[Request], Awaitable[Answer]]

_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    500: "Internal Server Error",
}


@dataclass(slots=True)
class ServerTls:
    """The server's side of TLS. With a CA clients have to show a certificate; with `allowed` its common name has to be one of these."""

    security: Security
    allowed: frozenset[str] = field(default_factory=frozenset)
    _stamp: Stamp = ()
    _current: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Return a context that follows changes of the files. Raises ConfigError."""
        context = self._make()
        self._stamp, self._current = self.security.stamp(), context
        context.sni_callback = self._renew
        return context

    def _renew(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        stamp = self.security.stamp()
        if stamp != self._stamp:
            try:
                self._current, self._stamp = self._make(), stamp
            except ConfigError as error:
                _log.warning("a changed certificate is not used: %s", error.message)
        if self._current is not None:
            connection.context = self._current

    def _make(self) -> ssl.SSLContext:
        security = self.security
        if security.cert is None or security.key is None:
            raise ConfigError("ssl-cert and ssl-key are needed to serve TLS")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(security.cert, security.key, credentials.own_key_password)
            if security.ca is not None:
                context.load_verify_locations(security.ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(f"the certificates {security.cert}, {security.key}, {security.ca} cannot be used: {error}") from None
        context.set_alpn_protocols(["h2", "http/1.1"])
        return context

    def admits(self, certificate: dict[str, Any] | None) -> bool:
        """Whether a client may go on, by its certificate."""
        if not self.allowed:
            return True
        subject = (certificate or {}).get("subject", ())
        return any(name == "commonName" and value in self.allowed for part in subject for name, value in part)


@dataclass(frozen=True, slots=True)
class Guest:
    """What a protocol of HTTP/2 calls: `known` when its client has made a whole request, `lost` when the connection is."""

    known: Callable[[], None]
    lost: Callable[[], None]


Http2 = Callable[[Guest], asyncio.Protocol]
"""Makes the protocol of a connection that speaks HTTP/2."""


class FrontPort:
    """Listens. `inner`: the socket of gRPC's server; None: there is none, and `http2` makes the protocols.

    `hosts`: names in the Host of HTTP, beside addresses and localhost, see `metrics.hosts`.

    With `most` connections open, the oldest one that has made no whole request gives way to a new one.
    """

    def __init__(
        self,
        inner: Path | None,
        pages: Pages,
        tls: ServerTls | None = None,
        http2: Http2 | None = None,
        hosts: frozenset[str] = frozenset(),
    ) -> None:
        self.inner, self.pages, self.tls, self.http2 = inner, pages, tls, http2
        self.hosts = hosts
        self._servers: list[asyncio.Server] = []
        self.most = max(1, min(MOST_CONNECTIONS, raise_limit() - KEPT_FILES))
        self.open: dict[asyncio.Transport, None] = {}
        self.strangers: dict[asyncio.Transport, None] = {}
        """Those of `open` that have made no whole request, in the order in which they came."""
        self.tasks: set[asyncio.Task[None]] = set()
        self.address = ""

    async def start(self, host: str, port: int, unix: Path | None = None) -> None:
        """Listen on a port (0: any), and on a Unix socket too. Raises OSError, ConfigError."""
        loop = asyncio.get_running_loop()
        context = self.tls.context() if self.tls is not None else None
        server = await loop.create_server(lambda: _Front(self), host or None, port, ssl=context, backlog=1024)
        self._servers.append(server)
        self.address = f"{host}:{server.sockets[0].getsockname()[1]}"
        if unix is not None:
            self._servers.append(await loop.create_unix_server(lambda: _Front(self), unix, ssl=context))

    def admit(self, transport: asyncio.Transport) -> bool:
        """Say whether one more connection may be open, and make room for it where a stranger can give way."""
        if len(self.open) >= self.most:
            stranger = next(iter(self.strangers), None)
            if stranger is None:
                _log.warning("%s: connection closed: %d are open, and no more are taken", transport.get_extra_info("peername"), self.most)
                return False
            stranger.abort()
            self.forget(stranger)
        self.open[transport] = self.strangers[transport] = None
        return True

    def forget(self, transport: asyncio.Transport) -> None:
        """A connection is lost."""
        self.open.pop(transport, None)
        self.strangers.pop(transport, None)

    def guest(self, transport: asyncio.Transport) -> Guest:
        """Return what the protocol of a connection calls."""
        return Guest(lambda: self.strangers.pop(transport, None), lambda: self.forget(transport))

    def close(self) -> None:
        """Take no more connections; those that are there go on."""
        for server in self._servers:
            server.close()

    def abort(self) -> None:
        """End all connections."""
        for transport in list(self.open):
            transport.abort()
        for task in list(self.tasks):
            task.cancel()


class _Relay(asyncio.Protocol):
    """One half of a relayed connection: what it receives goes to the other half."""

    def __init__(self, peer: asyncio.Transport | None = None) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer = peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none of asyncio's classes
        self.transport.set_write_buffer_limits(HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        if self.peer is not None:
            self.peer.write(data)

    def pause_writing(self) -> None:
        if self.peer is not None and not self.peer.is_closing():
            self.peer.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and not self.peer.is_closing():
            self.peer.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self.peer is not None:
            self.peer.close()


class _Front(_Relay):
    """A client's connection, until it is known what it speaks."""

    def __init__(self, port: FrontPort) -> None:
        super().__init__()
        self._port, self._data = port, b""
        self._timer: asyncio.TimerHandle | None = None
        self._asked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        if not self._port.admit(self.transport):
            self.transport.abort()
            return
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family != socket.AF_UNIX:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = self._port.tls
        if tls is not None and not tls.admits(transport.get_extra_info("peercert")):
            _log.warning("%s is refused: the common name of its certificate is not allowed", transport.get_extra_info("peername"))
            self.transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(SILENT_S, self.transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._still()
        if self.transport is not None:
            self._port.forget(self.transport)

    def _still(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def data_received(self, data: bytes) -> None:
        if self.peer is not None:
            self.peer.write(data)
            return
        self._data += data
        if self._data[:4] == HTTP2[: len(self._data)]:
            if len(self._data) >= len(HTTP2) and not self._asked:
                self._asked = True
                self._still()
                assert self.transport is not None
                if self._port.inner is None:
                    self._hand_over(self.transport)
                else:
                    self.transport.pause_reading()
                    self._later(self._relay())
        elif not self._asked:
            self._http()

    def _hand_over(self, transport: asyncio.Transport) -> None:
        """From here on the connection is another protocol's."""
        assert self._port.http2 is not None
        protocol = self._port.http2(self._port.guest(transport))
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(self._data)
        self._data = b""

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._port.tasks.add(task)
        task.add_done_callback(self._port.tasks.discard)

    async def _relay(self) -> None:
        client = self.transport
        assert client is not None
        try:  # gRPC's server speaks at once: its half knows the client before it is connected
            inner, _ = await asyncio.get_running_loop().create_unix_connection(lambda: _Relay(client), str(self._port.inner))
        except OSError as error:
            _log.error("gRPC's server cannot be reached: %s", error)
            client.abort()
            return
        self.peer = inner
        if client.is_closing():
            inner.close()
            return
        inner.write(self._data)
        self._data = b""
        client.resume_reading()

    # HTTP/1.1

    def _http(self) -> None:
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found:
            if len(self._data) > HEAD_LIMIT:
                self._end(Answer(b"too long\n", 413, "text/plain"))
            return
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._end(Answer(b"no HTTP request\n", 400, "text/plain"))
            return
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        length = fields.get("content-length", "0")
        if not is_own(fields.get("host", ""), self._port.hosts):
            self._end(Answer(f"the Host header has no name of this machine. {HINT}\n".encode(), 403, "text/plain"))
        elif not length.isdecimal() or len(length) > len(str(BODY_LIMIT)) or int(length) > BODY_LIMIT:
            self._end(Answer(b"too long\n", 413, "text/plain"))
        elif len(body) >= int(length):
            self._asked = True
            self._still()
            self._later(self._answer(Request(words[0], words[1].partition("?")[0])))

    async def _answer(self, request: Request) -> None:
        self._end(await self._port.pages(request), with_body=request.method != "HEAD")

    def _end(self, answer: Answer, *, with_body: bool = True) -> None:
        assert self.transport is not None
        self._asked = True
        head = (
            f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\nContent-Type: {answer.content_type}\r\n"
            f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("latin-1") + (answer.body if with_body else b""))
        self.transport.close()
        self._still()
        self._timer = asyncio.get_running_loop().call_later(SILENT_S, self.transport.abort)
