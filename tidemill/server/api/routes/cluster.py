"""The servers: status, health, captures, processors, ownership, log level, metrics, the cluster's time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse, Response

from tidemill.errors import redact
from tidemill.metrics.samples import metrics_page
from tidemill.server.api import answers
from tidemill.server.api import bodies as b
from tidemill.server.api.errors import invalid
from tidemill.server.api.requests import (
    Guard,
    IdPath,
    answer,
    body_of,
    checked_id,
    documented,
    documented_text,
    listed,
    namespace_of,
    shortened,
    takes,
)
from tidemill.server.service import ChangefeedService

Namespace = Annotated[str, Depends(namespace_of)]
_NO_FAILPOINTS = "failpoints are compiled into test builds of TiCDC; Tidemill has none"


def routes(service: ChangefeedService, guard: Guard) -> APIRouter:
    """Return the routes of a service."""
    router = APIRouter(tags=["server"])
    changing = [Depends(guard.changes)]

    @router.get("/status", responses=documented(b.ServerStatus))
    @router.get("/api/v2/status", responses=documented(b.ServerStatus))
    async def server_status() -> Response:
        """Get a server's version, id and role."""
        return answer(answers.status(await service.status()))

    @router.get("/api/v2/health", responses=documented(b.Empty))
    async def health() -> Response:
        """`{}` if all is well; 500 with what is wrong."""
        await service.health()
        return answer(b.Empty())

    @router.post("/api/v2/log", dependencies=changing, responses=documented(b.Empty), openapi_extra=takes(b.LogLevelReq))
    async def set_log_level(request: Request) -> Response:
        """Set the level of the server's log: debug, info, warn, error."""
        await service.set_log_level((await body_of(request, b.LogLevelReq)).log_level)
        return answer(b.Empty())

    @router.post("/api/v2/log/redact", dependencies=changing, responses=documented(b.RedactModeResp), openapi_extra=takes(b.RedactModeReq))
    async def set_log_redaction(request: Request) -> Response:
        """Taken, and without effect: rows never stand in the log."""
        mode = (await body_of(request, b.RedactModeReq)).redact_info_log
        if not mode:
            raise invalid("missing required field 'redact_info_log': must be 'off', 'on', or 'marker'")
        await service.set_log_redaction(mode)
        return answer(b.RedactModeResp(previous_mode="ON", current_mode="ON"))

    @router.get("/api/v2/captures", responses=documented(b.ListResponse[b.Capture]))
    async def list_captures() -> Response:
        """List the servers."""
        return listed([answers.capture(one) for one in await service.captures()])

    @router.post(
        "/api/v2/captures/{capture_id}/drain", status_code=202, dependencies=changing, responses=documented(b.DrainCaptureResp, 202)
    )
    async def drain_capture(capture_id: str) -> Response:
        """Bring a server's work elsewhere before it is stopped. With one server: refused."""
        return answer(b.DrainCaptureResp(current_table_count=await service.drain(shortened(capture_id))), 202)

    @router.get("/api/v2/processors", responses=documented(b.ListResponse[b.ProcessorCommonInfo]))
    async def list_processors() -> Response:
        """List the changefeeds that run, with their servers."""
        return listed([answers.processor(one) for one in await service.processors()])

    @router.get("/api/v2/processors/{changefeed_id}/{capture_id}", responses=documented(b.ProcessorDetail))
    async def get_processor(changefeed_id: IdPath, capture_id: str, namespace: Namespace) -> Response:
        """Get the tables that a server has of a changefeed."""
        found = await service.processor(checked_id(changefeed_id), shortened(capture_id), namespace=namespace)
        return answer(b.ProcessorDetail(table_ids=list(found.table_ids)))

    @router.post("/api/v2/owner/resign", dependencies=changing, responses=documented(b.Empty))
    async def resign_owner() -> Response:
        """Let another server lead."""
        await service.resign_owner()
        return answer(b.Empty())

    @router.post("/api/v2/tso", responses=documented(b.Tso), openapi_extra=takes(b.UpstreamConfig, required=False))
    async def query_tso(request: Request) -> Response:
        """Get the cluster's time."""
        await body_of(request, b.UpstreamConfig, empty_allowed=True)
        found = await service.tso()
        return answer(b.Tso(timestamp=found.timestamp, logic_time=found.logic_time))

    @router.get("/metrics", response_class=PlainTextResponse, responses=documented_text("Prometheus"))
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        page = metrics_page(service.samples)
        body = await asyncio.to_thread(page.body)  # it reads files, and takes its time with many changefeeds
        return Response(body, media_type=page.content_type)

    @router.get(
        "/debug/info",
        dependencies=[Depends(guard.reads)],
        response_class=PlainTextResponse,
        responses=documented_text("Text for people"),
    )
    async def debug_info() -> Response:
        """What the server keeps, and how its processes are."""
        kept = "".join(f"{one.key}\n\t{redact(one.value)}\n\n" for one in await service.metadata())
        return PlainTextResponse(f"\n\n*** metadata ***:\n\n{kept}*** processes ***:\n\n{_pretty(await service.debug_info())}\n")

    @router.post("/debug/failpoints", dependencies=changing, responses=documented(b.Empty))
    async def enable_failpoint() -> Response:
        """Refused: there are none."""
        raise invalid(_NO_FAILPOINTS)

    @router.delete("/debug/failpoints", dependencies=changing, responses=documented(b.Empty))
    async def disable_failpoint() -> Response:
        """Refused: there are none."""
        raise invalid(_NO_FAILPOINTS)

    @router.get("/debug/failpoints", responses=documented(b.Empty))
    async def list_failpoints() -> Response:
        """Refused: there are none."""
        raise invalid(_NO_FAILPOINTS)

    return router


def _pretty(value: Mapping[str, Any]) -> str:
    return redact(json.dumps(value, indent=2, default=str, ensure_ascii=False))
