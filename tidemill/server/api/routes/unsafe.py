"""`/api/v2/unsafe`: for operators who know what they do."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from tidemill.errors import redact
from tidemill.server.api import bodies as b
from tidemill.server.api.errors import invalid
from tidemill.server.api.requests import Guard, Json, answer, body_of, documented, takes
from tidemill.server.service import ChangefeedService


def routes(service: ChangefeedService, guard: Guard) -> APIRouter:
    """Return the routes of a service."""
    router = APIRouter(prefix="/api/v2/unsafe", tags=["unsafe"])
    changing = [Depends(guard.changes)]

    @router.get("/metadata", dependencies=[Depends(guard.reads)], responses=documented(list[b.EtcdData]))
    async def metadata() -> Response:
        """List what the server keeps: a JSON array of keys and values, without secrets."""
        return Json([b.EtcdData(key=one.key, value=redact(one.value)).body() for one in await service.metadata()])

    @router.post("/resolve_lock", dependencies=changing, responses=documented(b.Empty), openapi_extra=takes(b.ResolveLockReq))
    async def resolve_lock(request: Request) -> Response:
        """Resolve the locks of a region whose transactions are over."""
        body = await body_of(request, b.ResolveLockReq)
        if not body.region_id:
            raise invalid("region_id is missing")
        await service.resolve_lock(body.region_id, body.ts or None)
        return answer(b.Empty())

    @router.delete(
        "/service_gc_safepoint",
        dependencies=changing,
        responses=documented(b.Empty),
        openapi_extra=takes(b.UpstreamConfig, required=False),
    )
    async def delete_service_gc_safepoint(request: Request) -> Response:
        """Remove what holds the cluster's GC back for this server. Only while no changefeed runs."""
        await body_of(request, b.UpstreamConfig, empty_allowed=True)
        await service.delete_gc_safepoint()
        return answer(b.Empty())

    return router
