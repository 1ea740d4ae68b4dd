"""What all routes share: reading a request, checking who sent it, writing an answer."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from fastapi import Path, Query, Request
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import WithJsonSchema
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute

from tidemill.errors import TidemillError, redact
from tidemill.server.api import bodies as b
from tidemill.server.api.errors import invalid
from tidemill.server.api.tokens import Forbidden, Role, Tokens
from tidemill.server.errors import InvalidKeyspace
from tidemill.server.service import DEFAULT_NAMESPACE, UpstreamNames

BODY_LIMIT = 1 << 20
"""Bytes of a request's body."""
BODY_S = 30.0
"""How long a body may take."""
REST_LIMIT, REST_S = 16 << 20, 5.0
"""So much of a body that is too large is read, and thrown away: a client that is still sending does not see the answer."""
_ID = re.compile(r"[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*")
_ID_LENGTH = 128
_SHOWN = 160
COMMON_NAMES = "tidemill.common_names"
"""Of a scope: the names in the client's certificate."""
FORWARDED = "x-tidemill-forwarded"
"""A header: the id of the server that sent a request on."""


class BodyTooLarge(TidemillError):
    """A request's body is larger than BODY_LIMIT."""

    code = "CDC:ErrAPIInvalidParam"


class BodyTooSlow(TidemillError):
    """A request's body does not come."""

    code = "CDC:ErrAPIInvalidParam"


class CrossOrigin(TidemillError):
    """A page of another site sent the request."""

    code = "CDC:ErrUnauthorized"


R = TypeVar("R", bound=b.Request)

# What a schema says here is only for the document: the errors of `checked_id` and `namespace_of` are TiCDC's.
_ID_SCHEMA = WithJsonSchema({"type": "string", "pattern": f"^{_ID.pattern}$", "minLength": 1, "maxLength": _ID_LENGTH})
_KEYSPACE_SCHEMA = WithJsonSchema({"type": "string", "enum": [DEFAULT_NAMESPACE, ""]})
IdPath = Annotated[
    str, _ID_SCHEMA, Path(description=f"A changefeed's name: letters and digits, joined by single hyphens, at most {_ID_LENGTH}.")
]
KeyspaceQuery = Annotated[str | None, _KEYSPACE_SCHEMA, Query(description=f"`{DEFAULT_NAMESPACE}`, the only one.")]
NamespaceQuery = Annotated[str | None, _KEYSPACE_SCHEMA, Query(description="The older word for keyspace.")]


def is_id(text: str) -> bool:
    """Whether TiCDC takes a text as a changefeed's name."""
    return len(text) <= _ID_LENGTH and _ID.fullmatch(text) is not None


def checked_id(text: str) -> str:
    """Return a changefeed's name. Raises InvalidParameter."""
    if not is_id(text):
        raise invalid(
            f"invalid changefeed_id: {shortened(text)}",
            f"It has to match ^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$ and may have {_ID_LENGTH} characters.",
        )
    return text


def namespace_of(keyspace: KeyspaceQuery = None, namespace: NamespaceQuery = None) -> str:
    """Return the namespace of a request: `?keyspace=`, or `?namespace=` as older versions say. Raises InvalidKeyspace, InvalidParameter."""
    if keyspace and namespace and keyspace != namespace:
        raise invalid("keyspace and namespace contradict each other: they are two words for one thing")
    found = keyspace or namespace or DEFAULT_NAMESPACE
    if found != DEFAULT_NAMESPACE:
        raise InvalidKeyspace(f"there is no keyspace {shortened(found)}", hint=f"There is one: {DEFAULT_NAMESPACE}.")
    return found


def number(text: str | None, name: str) -> int:
    """Return a whole number of the query. Raises InvalidParameter."""
    if text is None or not re.fullmatch(r"[0-9]{1,19}", text):
        raise invalid(f"{name} is missing" if text is None else f"{name}: expected a number, got {shortened(text)}")
    return int(text)


def shortened(text: str) -> str:
    """Return a text of a request as errors show it: short, printable, without secrets."""
    text = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return redact("".join(letter if letter.isprintable() else "�" for letter in text))


async def body_of(request: Request, model: type[R], *, empty_allowed: bool = False) -> R:
    """Read and parse a body. Raises InvalidParameter, BodyTooLarge, BodyTooSlow."""
    return b.parse(model, await _read(request), empty_allowed=empty_allowed)


async def _read(request: Request) -> bytes:
    chunks, size, more = [], 0, True
    try:
        async with asyncio.timeout(BODY_S):
            while more and size <= BODY_LIMIT:
                chunk, more = await _next(request)
                size += len(chunk)
                chunks.append(chunk)
    except TimeoutError:
        raise BodyTooSlow(f"the body did not come within {BODY_S:.0f} s") from None
    if size > BODY_LIMIT:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_S):
                while more and size < REST_LIMIT:
                    chunk, more = await _next(request)
                    size += len(chunk)
        raise BodyTooLarge(f"the body is larger than {BODY_LIMIT} bytes")
    return b"".join(chunks)


async def _next(request: Request) -> tuple[bytes, bool]:
    """Return a part of a body, and whether there is more. Raises ClientDisconnect."""
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


def upstream_of(body: b.PdConfig) -> UpstreamNames:
    """Return the cluster that a request names."""
    return UpstreamNames(tuple(body.pd_addrs), body.ca_path, body.cert_path, body.key_path, tuple(body.cert_allowed_cn))


class Json(JSONResponse):
    """An answer as TiCDC writes it: UTF-8, without spaces."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def answer(body: b.Answer, status: int = 200) -> Json:
    """Return an answer."""
    return Json(body.body(), status)


def listed(items: Sequence[b.Answer]) -> Json:
    """Return a list in TiCDC's envelope."""
    return answer(b.ListResponse(total=len(items), items=list(items)))


FAILED: Mapping[str, Any] = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/HttpError"}}}}
"""What OpenAPI says of an error. The document has its schema once: FastAPI would make one for each answer of each route."""


def documented_text(what: str) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says of the answers of a route whose good one is text."""
    return {200: {"description": what}, 500: {**FAILED, "description": "The server is at fault."}}


def documented(model: Any, status: int = 200, more: Mapping[str, Any] | None = None) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says of a route's answers. `more`: of the good one."""
    return {
        status: {"model": model, "description": "Done.", **(more or {})},
        400: {**FAILED, "description": "The request is at fault; error_code says how."},
        500: {**FAILED, "description": "The server, the cluster or the sink is at fault. Trying again may help."},
    }


@functools.cache
def takes(model: type[b.Request], *, required: bool = True) -> dict[str, Any]:
    """Return what OpenAPI says of a route's body."""
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": model.model_json_schema()}}}}


@dataclass(frozen=True, slots=True)
class Needs:
    """What a route declares, as a dependency: the least role of who sends a request. `tokens` None: everybody who reaches the port has it.
    `changes`: the request gets a line of audit. Raises Unauthorized, Forbidden, CrossOrigin."""

    tokens: Tokens | None
    role: Role
    changes: bool = False

    async def __call__(self, request: Request) -> None:
        """Let the request in."""
        if self.changes:
            request.state.changes = True
        if self.tokens is not None or self.role is not Role.READ:
            _check_origin(request.headers)
        if self.tokens is None:
            return
        names = () if FORWARDED in request.headers else request.scope.get(COMMON_NAMES, ())  # a certificate of another server
        caller = self.tokens.check(request.headers.get("authorization"), names)
        request.state.user = f"{caller.name} ({caller.role.name.lower()})"
        if caller.role < self.role:
            raise Forbidden(f"{caller.name} has the role {caller.role.name.lower()}, and this needs {self.role.name.lower()}")


@dataclass(frozen=True, slots=True)
class Guard:
    """What routes may declare. One that declares nothing is for everybody, and neither changes nor compiles anything."""

    tokens: Tokens | None = None

    @property
    def changes(self) -> Needs:
        """It changes something."""
        return Needs(self.tokens, Role.ADMIN, changes=True)

    @property
    def operates(self) -> Needs:
        """It pauses or resumes."""
        return Needs(self.tokens, Role.OPERATE, changes=True)

    @property
    def compiles(self) -> Needs:
        """It changes nothing, and costs the server time: rules that a request brings."""
        return Needs(self.tokens, Role.OPERATE)

    @property
    def reads(self) -> Needs:
        """It shows what is not for everybody."""
        return Needs(self.tokens, Role.READ)


def role_of(route: BaseRoute) -> Role | None:
    """Return the role that a route declares; None: it is for everybody."""
    declared = [one.dependency for one in route.dependencies] if isinstance(route, APIRoute) else []
    return max((one.role for one in declared if isinstance(one, Needs)), default=None)


def _check_origin(headers: Mapping[str, str]) -> None:
    """A browser sends what a page of another site asks for, with the user's rights: to this machine, or behind a firewall."""
    origin, host = headers.get("origin"), headers.get("host")
    if origin is not None and (origin == "null" or _parts(origin).netloc.lower() != (host or "").lower()):
        raise CrossOrigin(f"a page of {shortened(origin)} may not change anything here")
    if headers.get("sec-fetch-site") == "cross-site":
        raise CrossOrigin("a page of another site may not change anything here")


def _parts(url: str) -> SplitResult:
    """The parts of a URL in a header. Where it is not a URL, all of them are empty."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
