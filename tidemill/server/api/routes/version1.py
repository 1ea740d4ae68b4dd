"""TiCDC's API v1, as its newest versions still serve it: bodies of their own, lists without an envelope, 202 where v2 answers 200."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from tidemill.server.api import answers
from tidemill.server.api import bodies as b
from tidemill.server.api.answers import Writer
from tidemill.server.api.audit import facts, facts_of, note
from tidemill.server.api.requests import (
    Guard,
    IdPath,
    Json,
    answer,
    body_of,
    checked_id,
    documented,
    namespace_of,
    shortened,
    takes,
)
from tidemill.server.api.routes.changefeeds import CLIENT_OF_TICDC, StateQuery, config_of, found_feed
from tidemill.server.errors import ChangefeedNotExists, InvalidSinkUri
from tidemill.server.service import ChangefeedService, ChangefeedUpdate, NewChangefeed

Namespace = Annotated[str, Depends(namespace_of)]


def routes(service: ChangefeedService, write: Writer, guard: Guard) -> APIRouter:
    """Return the routes of a service."""
    router = APIRouter(prefix="/api/v1", tags=["version 1"])
    _add_servers(router, service, guard)
    _add_changefeeds(router, service, write, guard)
    _add_life(router, service, guard)
    return router


def _add_servers(router: APIRouter, service: ChangefeedService, guard: Guard) -> None:
    """Status, log, captures, processors, owner."""
    changing = [Depends(guard.changes)]

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

    @router.post("/log", dependencies=changing, responses=documented(b.Empty), openapi_extra=takes(b.LogLevelReq))
    async def set_log_level(request: Request) -> Response:
        """As in version 2."""
        await service.set_log_level((await body_of(request, b.LogLevelReq)).log_level)
        return answer(b.Empty())

    @router.get("/processors", responses=documented(list[b.ProcessorCommonInfo]))
    async def processors() -> Response:
        """List the changefeeds that run, with their servers: a JSON array."""
        return Json([answers.processor(one).body() for one in await service.processors()])

    @router.get("/processors/{changefeed_id}/{capture_id}", responses=documented(b.ProcessorDetail))
    async def processor(changefeed_id: IdPath, capture_id: str, namespace: Namespace) -> Response:
        """As in version 2."""
        found = await service.processor(checked_id(changefeed_id), shortened(capture_id), namespace=namespace)
        return answer(b.ProcessorDetail(table_ids=list(found.table_ids)))


def _add_changefeeds(router: APIRouter, service: ChangefeedService, write: Writer, guard: Guard) -> None:
    """List, get, create, update."""
    changing = [Depends(guard.changes)]

    @router.get("/changefeeds", responses=documented(list[b.ChangefeedCommonInfo]))
    async def list_changefeeds(namespace: Namespace, state: StateQuery = None) -> Response:
        """List changefeeds: a JSON array."""
        return Json([write.common(info).body() for info in await service.changefeeds(namespace=namespace, state=state or None)])

    @router.get("/changefeeds/{changefeed_id}", responses=documented(b.ChangefeedInfo))
    async def get_changefeed(changefeed_id: IdPath, namespace: Namespace) -> Response:
        """As in version 2."""
        return answer(write.info(await found_feed(service, changefeed_id, namespace)))

    @router.post(
        "/changefeeds",
        status_code=202,
        dependencies=changing,
        responses=documented(b.ChangefeedInfo, 202),
        openapi_extra=takes(b.ChangefeedConfigV1),
    )
    async def create_changefeed(request: Request, namespace: Namespace) -> Response:
        """Create a changefeed and start it."""
        body = await body_of(request, b.ChangefeedConfigV1)
        if body.changefeed_id:
            checked_id(body.changefeed_id)
        if not body.sink_uri:
            raise InvalidSinkUri("sink uri invalid: sink_uri is empty, cannot create a changefeed without sink_uri")
        wanted = NewChangefeed(
            sink_uri=body.sink_uri,
            changefeed_id=body.changefeed_id or None,
            namespace=namespace,
            start_ts=body.start_ts or None,
            target_ts=body.target_ts or None,
            replica_config=await _config_of(body),
            ignore_ineligible_tables=body.ignore_ineligible_table,
        )
        made = (await service.create(wanted)).info
        note(request, {}, facts_of(made))
        return answer(write.info(made), 202)

    @router.put(
        "/changefeeds/{changefeed_id}",
        status_code=202,
        dependencies=changing,
        responses=documented(b.ChangefeedInfo, 202),
        openapi_extra=takes(b.ChangefeedConfigV1),
    )
    async def update_changefeed(request: Request, changefeed_id: IdPath, namespace: Namespace) -> Response:
        """Change a stopped or failed changefeed. Its configuration is what the body says, and defaults."""
        body = await body_of(request, b.ChangefeedConfigV1)
        change = ChangefeedUpdate(
            sink_uri=body.sink_uri or None,
            target_ts=body.target_ts or None,
            replica_config=await _config_of(body),
            keeps_own=CLIENT_OF_TICDC in request.headers,
        )
        before = await facts(service, checked_id(changefeed_id), namespace)
        info = await service.update(changefeed_id, change, namespace=namespace)
        note(request, before, facts_of(info))
        return answer(write.info(info), 202)


def _add_life(router: APIRouter, service: ChangefeedService, guard: Guard) -> None:
    """Pause, resume, remove; and what means nothing here."""
    changing, operating = [Depends(guard.changes)], [Depends(guard.operates)]

    @router.delete("/changefeeds/{changefeed_id}", status_code=202, dependencies=changing, responses=documented(b.Empty | None, 202))
    async def delete_changefeed(request: Request, changefeed_id: IdPath, namespace: Namespace) -> Response:
        """Remove one. `null` if there is none of that name."""
        note(request, await facts(service, checked_id(changefeed_id), namespace), {})
        try:
            await service.remove(checked_id(changefeed_id), namespace=namespace)
        except ChangefeedNotExists:
            return Json(None, 202)
        return answer(b.Empty(), 202)

    @router.post("/changefeeds/{changefeed_id}/pause", status_code=202, dependencies=operating, responses=documented(b.Empty, 202))
    async def pause_changefeed(request: Request, changefeed_id: IdPath, namespace: Namespace) -> Response:
        """Stop one at the end of its batch."""
        before = await facts(service, checked_id(changefeed_id), namespace)
        await service.pause(changefeed_id, namespace=namespace)
        note(request, before, await facts(service, changefeed_id, namespace))
        return answer(b.Empty(), 202)

    @router.post("/changefeeds/{changefeed_id}/resume", status_code=202, dependencies=operating, responses=documented(b.Empty, 202))
    async def resume_changefeed(request: Request, changefeed_id: IdPath, namespace: Namespace) -> Response:
        """Go on from the checkpoint."""
        before = await facts(service, checked_id(changefeed_id), namespace)
        await service.resume(changefeed_id, namespace=namespace)
        note(request, before, await facts(service, changefeed_id, namespace))
        return answer(b.Empty(), 202)

    @router.post(
        "/changefeeds/{changefeed_id}/tables/move_table",
        status_code=202,
        dependencies=changing,
        responses=documented(b.Empty, 202),
        openapi_extra=takes(b.MoveTableReq),
    )
    async def move_table(request: Request, changefeed_id: IdPath, namespace: Namespace) -> Response:
        """Refused: tables are on no server."""
        body = await body_of(request, b.MoveTableReq)
        await service.move_table(checked_id(changefeed_id), body.table_id, shortened(body.target_capture_id), namespace=namespace)
        return answer(b.Empty(), 202)

    @router.post(
        "/changefeeds/{changefeed_id}/tables/rebalance_table", status_code=202, dependencies=changing, responses=documented(b.Empty, 202)
    )
    async def rebalance_table(changefeed_id: IdPath, namespace: Namespace) -> Response:
        """Taken, and without effect, as in TiCDC's new architecture: each batch divides its rows among all tasks anyway."""
        await found_feed(service, changefeed_id, namespace)
        return answer(b.Empty(), 202)


async def _config_of(body: b.ChangefeedConfigV1) -> dict[str, Any]:
    """Return the tables and keys of a TOML file for what a body of version 1 says. Raises InvalidReplicaConfig."""
    rules = {"rules": body.filter_rules} if body.filter_rules else {}
    skipped = {"ignore_txn_start_ts": body.ignore_txn_start_ts} if body.ignore_txn_start_ts else {}
    found = {
        "force_replicate": body.force_replicate,
        "ignore_ineligible_table": body.ignore_ineligible_table,
        "filter": {**rules, **skipped},
        "sink": body.sink_config,
    }
    return await config_of(found)
