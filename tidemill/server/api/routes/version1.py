"""The part of TiCDC's API v1 that TiDB Operator calls: health, captures, drain, resign."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from tidemill.server.api import answers
from tidemill.server.api import bodies as b
from tidemill.server.api.requests import Guard, Json, answer, body_of, documented, shortened, takes
from tidemill.server.service import ChangefeedService


def routes(service: ChangefeedService, guard: Guard) -> APIRouter:
    """Return the routes of a service."""
    router = APIRouter(prefix="/api/v1", tags=["version 1"])
    changing = [Depends(guard)]

    @router.get("/status", responses=documented(b.ServerStatus))
    async def status() -> Response:
        """As in version 2."""
        return answer(answers.status(await service.status()))

    @router.get("/health", responses=documented(b.Empty))
    async def health() -> Response:
        """As in version 2."""
        await service.health()
        return answer(b.Empty())

    @router.get("/captures", responses=documented(list[b.Capture]))
    async def captures() -> Response:
        """List the servers: a JSON array."""
        return Json([answers.capture(one).body() for one in await service.captures()])

    @router.put(
        "/captures/drain",
        status_code=202,
        dependencies=changing,
        responses=documented(b.DrainCaptureResp, 202),
        openapi_extra=takes(b.DrainCaptureRequest),
    )
    async def drain(request: Request) -> Response:
        """Bring a server's work elsewhere before it is stopped."""
        body = await body_of(request, b.DrainCaptureRequest)
        return answer(b.DrainCaptureResp(current_table_count=await service.drain(shortened(body.capture_id))), 202)

    @router.post("/owner/resign", status_code=202, dependencies=changing, responses=documented(b.Empty, 202))
    async def resign() -> Response:
        """Let another server lead."""
        await service.resign_owner()
        return answer(b.Empty(), 202)

    return router
