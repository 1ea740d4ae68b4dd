"""The ASGI application: routes, errors as TiCDC answers them, a log of requests, the OpenAPI page."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import tzinfo
from functools import partial
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemill.errors import SystemFailed, TidemillError
from tidemill.metrics.hosts import HINT, is_own, own_hosts
from tidemill.rules.names import did_you_mean
from tidemill.server.api import audit
from tidemill.server.api.answers import Writer
from tidemill.server.api.bodies import HttpError
from tidemill.server.api.errors import INTERNAL, INVALID, Failure, failure_of
from tidemill.server.api.requests import FAILED, BodyTooLarge, BodyTooSlow, CrossOrigin, Guard, Json, role_of, shortened
from tidemill.server.api.routes import changefeeds, cluster, page, placement, unsafe, version1
from tidemill.server.api.tokens import Forbidden, Tokens, Unauthorized
from tidemill.server.page.watch import Watch
from tidemill.server.service import ChangefeedService

_REFUSED = {"401": "No token, or an unknown one", "403": "The token's role does not allow it, or the page of another site asks"}
_SCHEMES = ("bearer", "basic")
_PAGE = Path(__file__).with_name("openapi_page.html")
_STATUSES: Mapping[type[TidemillError], HTTPStatus] = {
    BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    BodyTooSlow: HTTPStatus.REQUEST_TIMEOUT,
    Unauthorized: HTTPStatus.UNAUTHORIZED,
    CrossOrigin: HTTPStatus.FORBIDDEN,
    Forbidden: HTTPStatus.FORBIDDEN,
}
_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
_VERSIONS = ("1.0", "1.1")
_log = logging.getLogger(__name__)


def create_app(
    service: ChangefeedService,
    *,
    tokens: Tokens | None = None,
    zone: tzinfo | None = None,
    watch: Watch | None = None,
    address: str = "",
) -> FastAPI:
    """Return the application that serves a service at --addr.

    `tokens`: who may change something; None: everybody who reaches the port. `zone`: of times that TiCDC writes without one; None: the
    machine's. `watch`: what the web page shows besides; None: one without history and log. `address`: where clients reach the server,
    HOST:PORT: its name is one of the server's own.

    More routes may be added to what is returned (`include_router`, `mount`); those of this module come first.
    """
    app = FastAPI(
        title="Tidemill",
        version=_version(),
        description="TiCDC's API v2, served by Tidemill. Errors have `error_msg` and `error_code`.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    write, guard = Writer(zone), Guard(tokens)
    routers = (
        changefeeds.routes(service, write, guard),
        placement.routes(service, guard),
        cluster.routes(service, guard),
        unsafe.routes(service, guard),
        version1.routes(service, write, guard),
        page.routes(service, watch or Watch(service, tokens=tokens is not None), guard),
    )
    for router in routers:  # `include_router` would make each route once more, when the first request comes
        app.router.routes.extend(router.routes)
    app.state.routes = [route for router in routers for route in router.routes]

    def document() -> Response:  # not async: it takes a fifth of a second, in a thread
        return Json(app.openapi())

    app.add_api_route("/openapi.json", document, include_in_schema=False)
    for path in ("/docs", "/swagger", "/swagger/index.html"):
        app.add_api_route(path, _page, include_in_schema=False)
    app.add_exception_handler(TidemillError, _on_error)
    app.add_exception_handler(OSError, _on_system_error)
    app.add_exception_handler(RequestValidationError, _on_bad_parameter)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_unexpected)
    if tokens is None:
        app.add_middleware(_OwnName, service=service, own=own_hosts(address))
    app.add_middleware(_RequestLog)
    app.openapi = partial(_document, app, app.openapi, tokens is not None)  # type: ignore[method-assign]
    return app


def _document(app: FastAPI, made: Callable[[], dict[str, Any]], guarded_by_tokens: bool) -> dict[str, Any]:
    """Return the OpenAPI document without FastAPI's own form of errors, which is never answered here, and with 401 and 403 where a route
    declares a role, and how a token is sent if there are tokens."""
    if app.openapi_schema is None:
        found = made()
        guarded = (
            route for route in app.state.routes if isinstance(route, APIRoute) and route.include_in_schema and role_of(route) is not None
        )
        for route in guarded:
            for method in route.methods or ():
                operation = found["paths"][route.path_format][method.lower()]
                operation["responses"] |= {status: {**FAILED, "description": why} for status, why in _REFUSED.items()}
                if guarded_by_tokens:
                    operation["security"] = [{name: []} for name in _SCHEMES]
        for methods in found["paths"].values():
            for operation in methods.values():
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            found["components"]["schemas"].pop(name, None)
        found["components"]["schemas"]["HttpError"] = HttpError.model_json_schema(mode="serialization")
        if guarded_by_tokens:
            found["components"]["securitySchemes"] = {name: {"type": "http", "scheme": name} for name in _SCHEMES}
    return app.openapi_schema or {}


def _version() -> str:
    try:
        return version("tidemill")
    except PackageNotFoundError:
        return "unknown"


async def _page() -> Response:
    """The OpenAPI page. It needs nothing from other hosts."""
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'"
    return HTMLResponse(_PAGE.read_text(encoding="utf-8"), headers={"Content-Security-Policy": policy})


# ------------------------------------------------------------------ errors


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, TidemillError)
    failure = failure_of(error)
    status = next((found for kind, found in _STATUSES.items() if isinstance(error, kind)), None)
    headers = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else {}
    if isinstance(error, BodyTooLarge | BodyTooSlow):
        headers["Connection"] = "close"
    request.state.failure = failure
    return Json(failure.body(), status or failure.status, headers)


async def _on_system_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, OSError)
    return await _on_error(request, SystemFailed.of(error))


async def _on_bad_parameter(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    said = "; ".join(f"{'.'.join(str(part) for part in one['loc'][1:])}: {one['msg']}" for one in error.errors())
    return Json(Failure(400, INVALID, shortened(said)).body(), 400)


async def _on_http_error(request: Request, error: Exception) -> Response:
    """What the router refuses: no such page, no such method."""
    assert isinstance(error, HTTPException)
    asked: str = request.scope["path"]  # `request.url` has the Host header in it, which may be no host
    path = shortened(asked)
    if error.status_code == HTTPStatus.NOT_FOUND:
        known = [str(getattr(route, "path", "")) for route in request.app.state.routes]
        said = f"there is no page {path} (/docs lists all){did_you_mean(asked[:200], known)}"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        said = f"{path} does not take {shortened(request.method)}"
    else:
        said = shortened(str(error.detail))
    return Json(Failure(error.status_code, INVALID, said).body(), error.status_code, dict(error.headers or {}))


async def _on_disconnect(request: Request, error: Exception) -> Response:
    """Nobody reads this answer."""
    return Response(status_code=HTTPStatus.BAD_REQUEST)


async def _on_unexpected(request: Request, error: Exception) -> Response:
    """A fault of Tidemill's own. It is logged with its trace; the answer does not tell."""
    _log.error("%s %s: an unexpected error", request.method, shortened(request.scope["path"]), exc_info=error)
    return Json(Failure(500, INTERNAL, "an unexpected error; the server's log has it").body(), 500)


# ------------------------------------------------------------------ log


class _OwnName:
    """Refuses requests to a name that is not the server's. Without tokens, a page that reaches the port reads and changes all."""

    def __init__(self, app: ASGIApp, service: ChangefeedService, own: frozenset[str]) -> None:
        self._app, self._service, self._own = app, service, own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"host"]
        if scope["type"] != "http" or await self._is_own(",".join(hosts)):
            await self._app(scope, receive, send)
            return
        failure = failure_of(CrossOrigin(f"{shortened(','.join(hosts))} is not a name of this server", hint=f"{HINT} Or use --auth-file."))
        scope["state"]["failure"] = failure
        await Json(failure.body(), HTTPStatus.FORBIDDEN)(scope, receive, send)

    async def _is_own(self, host: str) -> bool:
        """Whether a name is this server's, or that of one which sends requests on to it."""
        if is_own(host, self._own):
            return True
        try:
            return is_own(host, own_hosts(*(one.address for one in await self._service.captures())))
        except TidemillError:
            return False


class _RequestLog:
    """Writes a line for each request that changes something or fails, and adds headers to all answers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["http_version"] not in _VERSIONS:
            said = Failure(400, INVALID, f"HTTP/{shortened(scope['http_version'])} is not spoken here")
            await Json(said.body(), said.status)(scope, receive, send)
            return
        begun, status = time.monotonic(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message.setdefault("headers", [])
                message["headers"] = [*message["headers"], *((name.lower().encode(), value.encode()) for name, value in _HEADERS.items())]
            await send(message)

        scope.setdefault("state", {})
        try:
            await self._app(scope, receive, noting)
        finally:
            _note(scope, status, time.monotonic() - begun)
            if scope["state"].get("changes"):
                audit.write(scope, status)


def _note(scope: Scope, status: int, took: float) -> None:
    state = scope.get("state", {})
    level = logging.WARNING if status >= 500 else logging.INFO if status >= 400 and not state.get("changes") else logging.DEBUG
    if not _log.isEnabledFor(level):
        return
    failure: Failure | None = state.get("failure")
    client = scope.get("client") or ("unknown", 0)
    _log.log(
        level,
        "%s %s → %d, %d ms, from %s%s%s",
        *(scope["method"], shortened(scope["path"]), status, round(took * 1000), client[0]),
        f", user {shortened(state['user'])}" if "user" in state else "",
        f": {failure.message}" if failure is not None and status >= 400 else "",
    )
