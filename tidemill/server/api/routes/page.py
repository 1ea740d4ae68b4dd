"""The web page at `/`, its files, and what it asks for at `/api/page`. These routes are Tidemill's own; `tidemill top` uses them too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import Field

from tidemill import tso
from tidemill.budget import REQUEST, Budget
from tidemill.config.file import check_config
from tidemill.config.replica_config import to_json
from tidemill.config.toml_text import parse_toml
from tidemill.errors import ConfigError
from tidemill.rules.skip import parse_skip_rows
from tidemill.server.api import bodies as b
from tidemill.server.api.errors import failure_of, invalid
from tidemill.server.api.requests import Guard, Json, body_of, checked_id
from tidemill.server.errors import InvalidReplicaConfig
from tidemill.server.page import files
from tidemill.server.page.watch import Watch
from tidemill.server.service import ChangefeedService
from tidemill.statefile import is_shallow

LONGEST_WAIT_S = 25.0
"""How long a request for log lines may wait."""


class Checks(b.Request):
    """`POST /api/page/check`: what a person typed, before it is sent to the API."""

    config: str = Field("", description="A changefeed's TOML file.")
    start_ts: str = Field("", description="A TSO, RFC 3339, `now` or a distance such as `-2h`.", max_length=64)
    target_ts: str = Field("", max_length=64)
    overwrite_checkpoint_ts: str = Field("", max_length=64)
    skip_rows: list[str] = Field(default_factory=list)


def routes(service: ChangefeedService, watch: Watch, guard: Guard) -> APIRouter:
    """Return the routes of a service."""
    router = APIRouter(include_in_schema=False)

    for path, file in files.files().items():
        router.add_api_route(path, _serving(file), methods=["GET", "HEAD"])

    @router.get("/api/page/overview")
    async def overview() -> Response:
        """Get what the page shows: see `tidemill.server.page.overview`."""
        return Json(await watch.overview())

    @router.get("/api/page/history")
    async def history(changefeed: Annotated[str | None, Query(max_length=200)] = None) -> Response:
        """Get lag and speed of the last hour: of one changefeed, or the checkpoint lags of all."""
        return Json(watch.history.of(changefeed) if changefeed else watch.history.lags())

    @router.get("/api/page/tables")
    async def tables(changefeed: Annotated[str, Query(max_length=200)]) -> Response:
        """Get the tables of a changefeed, and what holds them."""
        return Json(await watch.tables(checked_id(changefeed)))

    @router.get("/api/page/log", dependencies=[Depends(guard.reads)])
    async def log_lines(after: Annotated[int, Query(ge=-1)] = -1, wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT_S)] = 0.0) -> Response:
        """Get the lines of the log behind a number. Waits for some seconds if there are none."""
        return Json(await watch.log_lines(after, wait))

    @router.post("/api/page/check", dependencies=[Depends(guard.compiles)])
    async def check(request: Request) -> Response:
        """Say what a person typed in the API's words: replica_config and TSOs. Nothing is changed."""
        body = await body_of(request, Checks)
        found = await asyncio.to_thread(_checked_config, body.config)
        given = {name: getattr(body, name) for name in ("start_ts", "target_ts", "overwrite_checkpoint_ts") if getattr(body, name).strip()}
        now = None
        if any(not text.strip().isdecimal() for text in given.values()):
            present = await service.tso()
            now = tso.compose(present.timestamp, present.logic_time)
        return Json(found | {name: str(_ts(name, text, now)) for name, text in given.items()} | {"skip_rows": _skip_rows(body.skip_rows)})

    return router


def _serving(file: files.File) -> Callable[[], Any]:
    async def serve() -> Response:
        return Response(file.content, media_type=file.media_type, headers=dict(files.HEADERS))

    return serve


def _checked_config(text: str) -> dict[str, Any]:
    """Raises InvalidReplicaConfig."""
    try:
        found = parse_toml(text)
        if not is_shallow(found):
            raise InvalidReplicaConfig("the configuration is nested too deep")
        if b.items_of(found) > b.MOST_ITEMS:
            raise InvalidReplicaConfig(f"the lists and tables of the configuration have more than {b.MOST_ITEMS} items")
        with Budget(REQUEST).in_force():
            warnings = check_config(found).warnings
    except ConfigError as error:
        raise InvalidReplicaConfig(failure_of(error).message) from None
    except (ValueError, RecursionError) as error:
        raise InvalidReplicaConfig(f"the configuration is not TOML: {error}") from None
    return {"replica_config": to_json(found), "warnings": list(warnings)}


def _ts(name: str, text: str, now: int | None) -> int:
    try:
        return tso.parse(text, now)
    except ConfigError as error:
        raise invalid(f"{name.replace('_', '-')}: {error.message}", error.hint or "") from None


def _skip_rows(texts: list[str]) -> list[str]:
    try:
        return [str(row) for row in parse_skip_rows(text for text in texts if text.strip())]
    except ConfigError as error:
        raise invalid(error.message, error.hint or "") from None
