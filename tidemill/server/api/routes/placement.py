"""Where a changefeed's tables are: `/api/v2/changefeeds/{changefeed_id}/move_table` and the like, and which tables there are."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from tidemill.budget import REQUEST, Budget
from tidemill.server.api import answers
from tidemill.server.api import bodies as b
from tidemill.server.api.requests import (
    Guard,
    IdPath,
    answer,
    body_of,
    checked_id,
    documented,
    listed,
    namespace_of,
    number,
    takes,
)
from tidemill.server.api.routes.changefeeds import config_of
from tidemill.server.service import ChangefeedService

Namespace = Annotated[str, Depends(namespace_of)]
TableQuery = Annotated[str | None, Query(alias="tableID", description="A table's id.")]
NodeQuery = Annotated[str, Query(alias="targetNodeID", description="A server's id.")]


def routes(service: ChangefeedService, guard: Guard) -> APIRouter:
    """Return the routes of a service."""
    router = APIRouter(prefix="/api/v2", tags=["tables"])
    changing, compiling = [Depends(guard.changes)], [Depends(guard.compiles)]

    @router.post("/changefeeds/{changefeed_id}/move_table", dependencies=changing, responses=documented(b.Empty))
    async def move_table(changefeed_id: IdPath, namespace: Namespace, table_id: TableQuery = None, node: NodeQuery = "") -> Response:
        """Refused: each batch divides its rows among Spark's tasks, so a table is on no node."""
        await service.move_table(checked_id(changefeed_id), number(table_id, "tableID"), node, namespace=namespace)
        return answer(b.Empty())

    @router.post("/changefeeds/{changefeed_id}/move_split_table", dependencies=changing, responses=documented(b.Empty))
    async def move_split_table(changefeed_id: IdPath, namespace: Namespace, table_id: TableQuery = None, node: NodeQuery = "") -> Response:
        """Refused, as move_table."""
        await service.move_split_table(checked_id(changefeed_id), number(table_id, "tableID"), node, namespace=namespace)
        return answer(b.Empty())

    @router.post("/changefeeds/{changefeed_id}/split_table_by_region_count", dependencies=changing, responses=documented(b.Empty))
    async def split_table(changefeed_id: IdPath, namespace: Namespace, table_id: TableQuery = None) -> Response:
        """Refused: a hot table's log is split by key when the capture is told so."""
        await service.split_table(checked_id(changefeed_id), number(table_id, "tableID"), namespace=namespace)
        return answer(b.Empty())

    @router.post("/changefeeds/{changefeed_id}/merge_table", dependencies=changing, responses=documented(b.Empty))
    async def merge_table(changefeed_id: IdPath, namespace: Namespace, table_id: TableQuery = None) -> Response:
        """Refused, as split_table_by_region_count."""
        await service.merge_table(checked_id(changefeed_id), number(table_id, "tableID"), namespace=namespace)
        return answer(b.Empty())

    @router.get("/changefeeds/{changefeed_id}/get_dispatcher_count", responses=documented(b.DispatcherCount))
    async def dispatcher_count(changefeed_id: IdPath, namespace: Namespace) -> Response:
        """Count the tables of a changefeed; TiCDC has a dispatcher for each."""
        return answer(b.DispatcherCount(count=await service.dispatcher_count(checked_id(changefeed_id), namespace=namespace)))

    @router.get("/changefeeds/{changefeed_id}/tables", responses=documented(b.ListResponse[b.NodeTableInfo]))
    async def list_tables(changefeed_id: IdPath, namespace: Namespace) -> Response:
        """List the tables of a changefeed, by server."""
        found = await service.tables(checked_id(changefeed_id), namespace=namespace)
        return listed([b.NodeTableInfo(node_id=one.capture_id, table_ids=list(one.table_ids)) for one in found])

    @router.post("/verify_table", dependencies=compiling, responses=documented(b.Tables), openapi_extra=takes(b.VerifyTableConfig))
    async def verify_table(request: Request, namespace: Namespace) -> Response:
        """List which tables a configuration selects, and which of them have no usable key."""
        return await _lists(request)

    @router.post("/get_all_tables", dependencies=compiling, responses=documented(b.Tables), openapi_extra=takes(b.VerifyTableConfig))
    async def get_all_tables(request: Request, namespace: Namespace) -> Response:
        """The same."""
        return await _lists(request)

    async def _lists(request: Request) -> Response:
        body = await body_of(request, b.VerifyTableConfig)
        config = await config_of(body.replica_config)
        with Budget(REQUEST).in_force():
            return answer(answers.tables(await service.table_lists(config, body.start_ts or None)))

    return router
