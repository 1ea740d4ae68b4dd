"""Serves an ASGI application at an address: uvicorn, with TLS, client certificates and their names. The flags mean what they mean in TiCDC.

--cert, --key          TLS. The files are read again when they change, so certificates can be replaced
--ca                   whose certificates clients may show (it is also that of PD and TiKV); they need not show one
--cert-allowed-cn      clients need one, with one of these common names; others are answered 403
--mtls                 clients need one, with any name
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidemill import credentials
from tidemill.errors import ConfigError, cannot_listen
from tidemill.server.api.door import Door
from tidemill.server.api.errors import INVALID, UNAUTHORIZED, Failure
from tidemill.server.api.requests import COMMON_NAMES

HEAD_S = 15.0
"""How long a TLS handshake with the head of the first request may take, the head of a later one, and what is left of a body after the
answer."""
WAITING = 500
"""How many connections without a request may be open: see `api.door`."""
BACKLOG = 100
"""How many connections are accepted at once. One that is to make room is closed a moment later, so several times as many fit into
CONNECTIONS beside WAITING."""
KEEP_ALIVE_S = 60
CONNECTIONS = 1000
"""How many may be open. More are answered 503."""
STOP_S = 5
TLS_BUFFER = 16 << 10
"""Bytes that a TLS connection reads at once, the size of a record. asyncio gives each one 256 KiB, before its handshake."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The PEM files of a server's TLS."""

    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    allowed_cn: tuple[str, ...] = ()
    mtls: bool = False
    asks: bool = False
    """Clients are asked for a certificate of --ca, and need not show one."""

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None: no TLS. Raises ConfigError that names the flag."""
        asks = "--cert-allowed-cn" if self.allowed_cn else "--mtls" if self.mtls else ""
        if self.cert is None and self.key is None:
            if asks:
                raise ConfigError(f"{asks} needs --cert, --key and --ca", hint="Clients show a certificate only over TLS.")
            return None  # as in TiCDC, --ca alone is for the connections to PD and TiKV
        if self.cert is None or self.key is None:
            raise ConfigError("--cert and --key go together", hint="Give both, or neither.")
        if asks and self.ca is None:
            raise ConfigError(f"{asks} needs --ca", hint="It says who may issue clients' certificates.")
        found = self._loaded(self.cert, self.key, required=bool(asks))
        found.sni_callback = _Reload(self, found)
        return found

    def _loaded(self, cert: Path, key: Path, *, required: bool) -> ssl.SSLContext:
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            found.load_cert_chain(cert, key, credentials.own_key_password)
        except (OSError, ssl.SSLError) as error:
            hint = credentials.OF_KEYS_HINT if key.is_file() and b"ENCRYPTED" in key.read_bytes() else ""
            raise ConfigError(f"--cert {cert}, --key {key}: {error}", hint=hint) from None
        except ConfigError as error:
            raise ConfigError(f"--key {key}: {error.message}", hint=error.hint) from None
        if self.ca is not None:
            try:
                found.load_verify_locations(self.ca)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(f"--ca {self.ca}: {error}") from None
            found.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL if self.asks else ssl.CERT_NONE
        return found

    def versions(self) -> tuple[tuple[int, int], ...]:
        """Return what tells that a file has changed. Raises OSError."""
        stats = [path.stat() for path in (self.cert, self.key, self.ca) if path is not None]
        return tuple((stat.st_mtime_ns, stat.st_ino) for stat in stats)


class _Reload:
    """Called at each handshake: gives it a context with the files as they are now."""

    def __init__(self, certificates: Certificates, context: ssl.SSLContext) -> None:
        self._certificates, self._context = certificates, context
        self._versions = certificates.versions()

    def __call__(self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        try:
            versions = self._certificates.versions()
            if versions != self._versions:
                self._context = self._certificates.context() or self._context
                self._versions = versions
        except (OSError, ConfigError) as error:
            _log.warning("changed certificates cannot be used, the old ones are: %s", error)
        connection.context = self._context


def common_names(certificate: dict[str, Any]) -> list[str]:
    """Return the common names of a certificate, as `SSLSocket.getpeercert` gives it."""
    return [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]


class _Protocol(H11Protocol):
    """A connection. It ends if the head of a request does not come, or if a body does not end although the request is answered: what is
    refused is answered before its body is read. It has an application of its own if its certificate is not allowed."""

    allowed_cn: tuple[str, ...] = ()
    door: Door
    _waits: asyncio.TimerHandle | None = None
    _number = -1

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._number = transport.get_extra_info("socket").fileno()
        self._wait()
        names = common_names(transport.get_extra_info("peercert") or {})
        if names:
            self.app = _Named(self.app, names)
        if self.allowed_cn and not set(names) & set(self.allowed_cn):
            _log.warning("a client whose certificate has the common name %s is not allowed", ", ".join(names) or "none")
            said = f"the certificate's common name is not allowed: {', '.join(names) or 'none'}"
            self.app = _Refused(Failure(403, UNAUTHORIZED, said))

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def _look(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self.door.waits(self._number)
        else:
            self.door.asks(self._number)
        has_part_of_head = self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]
        sends_on = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY  # a body that nobody reads
        if has_part_of_head or sends_on:
            if self._waits is None:
                self._wait()
        else:
            self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        self._number = -1  # another connection may get it
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waits = self.loop.call_later(HEAD_S, self._too_slow)

    def _go_on(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def _too_slow(self) -> None:
        self._waits = None
        if not self.transport.is_closing():
            self.transport.close()


class _Named:
    """Tells an application the names in the certificate of a connection's client."""

    def __init__(self, app: Any, names: list[str]) -> None:
        self._app, self._names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[COMMON_NAMES] = self._names
        await self._app(scope, receive, send)


class _Refused:
    """Answers any request with a failure, and ends the connection."""

    def __init__(self, said: Failure) -> None:
        self._status, self._body = said.status, json.dumps(said.body()).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(self._body)).encode()), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        await send({"type": "http.response.body", "body": self._body})


class _OneLength:
    """Refuses a request that says twice how long its body is, and ends its connection. A proxy in front may have read it otherwise: then
    what it took for a body would be a request of its own here."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            said = Failure(400, INVALID, "the request has both Content-Length and Transfer-Encoding")
            await _Refused(said)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, and with an event when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


class Listener:
    """Serves an application until it is stopped."""

    def __init__(self, app: ASGIApp, certificates: Certificates | None = None) -> None:
        self._app, self._certificates = app, certificates or Certificates()
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        self.address = ""
        """HOST:PORT, after `start`."""

    @property
    def scheme(self) -> str:
        return "http" if self._certificates.cert is None else "https"

    async def start(self, address: str, flag: str = "--addr") -> None:
        """Listen on HOST:PORT (port 0: any free port). `flag`: the option that chose the address, for errors. Raises ConfigError."""
        context = self._certificates.context()
        if context is not None:
            SSLProtocol.max_size = TLS_BUFFER
        listening = _bound(address, flag)
        config = uvicorn.Config(
            _OneLength(self._app),
            http=type("_Protocol", (_Protocol,), {"allowed_cn": self._certificates.allowed_cn, "door": listening}),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=STOP_S,
            limit_concurrency=CONNECTIONS,
            backlog=BACKLOG,
        )
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL + 1)  # the application logs requests, and what fails in them
        config.load()
        config.ssl = context
        self._server = _Server(config)
        host, port = listening.getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._task = asyncio.create_task(self._server.serve([listening]), name="http")
        waiting = asyncio.create_task(self._server.listening.wait())
        await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        """Answer what is being answered, up to some seconds, and close the port."""
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task


def _bound(address: str, flag: str) -> Door:
    """Return a socket that is bound to an address. Raises ConfigError."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = Door(family, WAITING, HEAD_S)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, int(port)))
    except (OSError, ValueError, OverflowError) as error:
        found.close()
        raise cannot_listen(flag, address, error) from None
    found.setblocking(False)
    return found
