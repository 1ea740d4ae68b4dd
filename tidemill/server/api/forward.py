"""Sends requests to the server that leads, where this one does not: an ASGI application around the API.

What concerns one server (status, log level, metrics, pages) it answers itself, all else goes to the leader as it came, and its answer
comes back. A forwarded request says so: the leader does not send it on. While no server leads, a request waits for one.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import httpx
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tidemill import credentials
from tidemill.errors import TidemillError
from tidemill.server.api.errors import failure_of
from tidemill.server.api.requests import BODY_LIMIT, Json
from tidemill.server.api.requests import FORWARDED as HEADER
from tidemill.server.errors import OwnerNotFound

WAIT_S = 12.0
"""How long a request waits for a server that leads."""
ANSWER_S = 90.0
CONNECT_S = 3.0
_OWN = ("/api/v2/status", "/api/v2/log", "/api/v1/status", "/api/v1/log")
"""Paths below /api that each server answers for itself."""
_LEFT_OUT = ("connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-authorization", "content-length", HEADER)
"""Headers of one connection."""


class Leader(Protocol):
    """What it needs to know. `elector.Elector` by way of `run.Role`."""

    @property
    def id(self) -> str: ...

    @property
    def leads(self) -> bool:
        """Whether this server leads."""

    @property
    def address(self) -> str | None:
        """Of the server that leads; None: this one does, or nobody."""

    async def settled(self, seconds: float) -> bool:
        """Wait until one leads. Return whether that came in time."""


def is_own(path: str) -> bool:
    """Whether each server answers a request itself."""
    return not path.startswith("/api/") or any(path == own or path.startswith(f"{own}/") for own in _OWN)


def has_dots(scope: Scope) -> bool:
    """Return whether a path has a part such as `..` as it was written: a client would make another path of it, so it is not sent on."""
    return any(part in (b".", b"..") for part in bytes(scope.get("raw_path") or b"").split(b"/"))


class Forwarding:
    """The API as all servers serve it."""

    def __init__(self, app: ASGIApp, leader: Leader, client: Callable[[], httpx.AsyncClient]) -> None:
        self._app, self._leader, self._make = app, leader, client
        self._client: httpx.AsyncClient | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_own(scope["path"]) or has_dots(scope) or self._leader.leads:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            if not await self._leader.settled(WAIT_S) or (request.headers.get(HEADER) and not self._leader.leads):
                raise OwnerNotFound("no server leads at the moment", hint="Try again in some seconds.")
            if self._leader.leads:
                await self._app(scope, receive, send)
                return
            response = await self._sent(request)
        except TidemillError as error:
            failure = failure_of(error)
            response = Json(failure.body(), failure.status)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _sent(self, request: Request) -> Response:
        """Send it on, and return the answer. Raises OwnerNotFound if the leader does not answer."""
        address = self._leader.address
        if address is None:
            raise OwnerNotFound("no server leads at the moment", hint="Try again in some seconds.")
        if self._client is None:
            self._client = self._make()
        given = request.scope["query_string"].decode("latin-1")  # `request.url` has the Host header in it, which may be no host
        query = f"?{given}" if given else ""
        path = bytes(request.scope.get("raw_path") or b"").decode("ascii", "replace")
        if not path.startswith("/"):  # %2Fapi@elsewhere would make another host of it
            path = quote(request.scope["path"])
        headers = [(name, value) for name, value in request.headers.raw if name.decode("latin-1").lower() not in _LEFT_OUT]
        try:
            answer = await self._client.request(
                request.method,
                f"{address}{path}{query}",
                content=_body(request),
                headers=[*headers, (HEADER.encode(), self._leader.id.encode())],
            )
        except httpx.HTTPError as error:
            raise OwnerNotFound(
                f"the server that leads does not answer at {address}: {error or type(error).__name__}",
                hint="Is --advertise-addr reachable from the other servers? If it has just died, another one takes over within seconds.",
            ) from error
        kept = {name: value for name, value in answer.headers.items() if name not in (*_LEFT_OUT, "content-encoding", "date", "server")}
        return Response(answer.content, answer.status_code, kept)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


async def _body(request: Request) -> AsyncIterator[bytes]:
    """The body, as far as the API reads it: what is longer it refuses."""
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        yield chunk
        if size > BODY_LIMIT:
            return


def client_of(ca: Path | None, cert: Path | None, key: Path | None) -> httpx.AsyncClient:
    """A client with this server's certificates: those are what the others are asked for."""
    verify: ssl.SSLContext | bool = True
    if ca is not None:
        verify = ssl.create_default_context(cafile=str(ca))
        if cert is not None:
            verify.load_cert_chain(cert, key, credentials.own_key_password)
    return httpx.AsyncClient(verify=verify, timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S), trust_env=False)
