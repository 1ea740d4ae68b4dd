"""`/api/v2/changefeeds`"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import WithJsonSchema

from tidemill.budget import REQUEST, Budget
from tidemill.changefeed.states import State
from tidemill.config.file import check_config
from tidemill.config.replica_config import from_json
from tidemill.config.toml_text import toml_text
from tidemill.errors import ConfigError
from tidemill.server.api import bodies as b
from tidemill.server.api.answers import Writer
from tidemill.server.api.audit import facts, facts_of, note
from tidemill.server.api.errors import failure_of, invalid
from tidemill.server.api.requests import (
    Guard,
    IdPath,
    Json,
    answer,
    body_of,
    checked_id,
    documented,
    is_id,
    listed,
    namespace_of,
    shortened,
    takes,
    upstream_of,
)
from tidemill.server.errors import ChangefeedNotExists, InvalidReplicaConfig, InvalidSinkUri
from tidemill.server.service import ChangefeedInfo, ChangefeedService, ChangefeedUpdate, NewChangefeed

_log = logging.getLogger(__name__)
CLIENT_OF_TICDC = "x-client-version"
"""The header that `cdc cli` sends with every request (`ClientVersionHeader` of TiCDC's api/middleware); Tidemill's client does not."""
Namespace = Annotated[str, Depends(namespace_of)]
StateQuery = Annotated[
    str | None,
    WithJsonSchema({"type": "string", "enum": ["all", *State, ""]}),
    Query(description="`all`, or one state. Without it: all but finished and removed ones.", max_length=32),
]
_TOML: dict[str, Any] = {"content": {"application/toml": {"schema": {"type": "string"}}}}


def routes(service: ChangefeedService, write: Writer, guard: Guard) -> APIRouter:
    """Return the routes of a service."""
    router = APIRouter(prefix="/api/v2/changefeeds", tags=["changefeed"])
    changing, operating = [Depends(guard.changes)], [Depends(guard.operates)]

    @router.get("", responses=documented(b.ListResponse[b.ChangefeedCommonInfo]))
    async def list_changefeeds(namespace: Namespace, state: StateQuery = None) -> Response:
        """List changefeeds: `{"total": …, "items": […]}`."""
        return listed([write.common(info) for info in await service.changefeeds(namespace=namespace, state=state or None)])

    @router.post("", dependencies=changing, responses=documented(b.ChangefeedInfo), openapi_extra=takes(b.ChangefeedConfig))
    async def create_changefeed(request: Request, namespace: Namespace) -> Response:
        """Create a changefeed and start it. The sink is tried first: what it refuses is refused here."""
        body = await body_of(request, b.ChangefeedConfig)
        if body.changefeed_id:
            checked_id(body.changefeed_id)
        if not body.sink_uri:
            raise InvalidSinkUri("sink uri invalid: sink_uri is empty, cannot create a changefeed without sink_uri")
        config = await config_of(body.replica_config)
        created = await service.create(
            NewChangefeed(
                sink_uri=body.sink_uri,
                changefeed_id=body.changefeed_id or None,
                namespace=namespace,
                start_ts=body.start_ts or None,
                target_ts=body.target_ts or None,
                replica_config=config,
                schema_registry=body.schema_registry or None,
                disable_gc_check=config.get("check-gc-safe-point") is False,
                ignore_ineligible_tables=bool(config.get("ignore-ineligible-table", False)),
                upstream=upstream_of(body),
            )
        )
        note(request, {}, facts_of(created.info))
        return answer(write.info(created.info))

    @router.get("/{changefeed_id}", responses=documented(b.ChangefeedInfo, more=_TOML))
    async def get_changefeed(request: Request, changefeed_id: IdPath, namespace: Namespace) -> Response:
        """Get one. With `Accept: application/toml` the answer is TOML, whose table `config` is a file for `changefeed create --config`."""
        info = await found_feed(service, changefeed_id, namespace)
        if request.headers.get("accept", "").lower().startswith("application/toml"):
            return Response(_as_toml(write.info(info), info), media_type="application/toml")
        return answer(write.info(info))

    @router.put("/{changefeed_id}", dependencies=changing, responses=documented(b.ChangefeedInfo), openapi_extra=takes(b.ChangefeedConfig))
    async def update_changefeed(request: Request, changefeed_id: IdPath, namespace: Namespace) -> Response:
        """Change a stopped or failed changefeed: sink_uri, target_ts, replica_config. What is left out stays."""
        checked_id(changefeed_id)
        body = await body_of(request, b.ChangefeedConfig)
        if body.start_ts:
            raise invalid("start_ts can not be updated", "Resume it with overwrite_checkpoint_ts to go on from elsewhere.")
        read = (await found_feed(service, changefeed_id, namespace)).config
        change = ChangefeedUpdate(
            sink_uri=body.sink_uri or None,
            target_ts=body.target_ts or None,
            replica_config=await config_of(body.replica_config, read) if body.replica_config is not None else None,
            keeps_own=CLIENT_OF_TICDC in request.headers,
            schema_registry=body.schema_registry or None,
            upstream=upstream_of(body),
        )
        before = await facts(service, changefeed_id, namespace)
        info = await service.update(changefeed_id, change, namespace=namespace)
        note(request, before, facts_of(info))
        return answer(write.info(info))

    @router.delete("/{changefeed_id}", dependencies=changing, responses=documented(b.Empty | None))
    async def delete_changefeed(request: Request, changefeed_id: IdPath, namespace: Namespace) -> Response:
        """Remove one. `null` if there is none of that name."""
        try:
            before = await facts(service, checked_id(changefeed_id), namespace)
            await service.remove(changefeed_id, namespace=namespace)
            note(request, before, {})
        except ChangefeedNotExists:
            return Json(None)
        return answer(b.Empty())

    @router.post("/{changefeed_id}/pause", dependencies=operating, responses=documented(b.Empty))
    async def pause_changefeed(request: Request, changefeed_id: IdPath, namespace: Namespace) -> Response:
        """Stop one at the end of its batch: state stopped."""
        before = await facts(service, checked_id(changefeed_id), namespace)
        await service.pause(changefeed_id, namespace=namespace)
        note(request, before, before | {"state": str(State.STOPPED)})
        return answer(b.Empty())

    @router.post(
        "/{changefeed_id}/resume",
        dependencies=operating,
        responses=documented(b.Empty),
        openapi_extra=takes(b.ResumeChangefeedConfig, required=False),
    )
    async def resume_changefeed(request: Request, changefeed_id: IdPath, namespace: Namespace) -> Response:
        """Go on from the checkpoint, or from overwrite_checkpoint_ts."""
        checked_id(changefeed_id)
        body = await body_of(request, b.ResumeChangefeedConfig, empty_allowed=True)
        before = await facts(service, changefeed_id, namespace)
        ts = body.overwrite_checkpoint_ts or None
        await service.resume(changefeed_id, overwrite_checkpoint_ts=ts, skip_rows=tuple(body.skip_rows), namespace=namespace)
        moved = {"checkpoint_ts": ts} if ts else {}
        note(request, before, before | {"state": str(State.NORMAL), "skip_rows": list(body.skip_rows) or None} | moved)
        return answer(b.Empty())

    @router.get("/{changefeed_id}/status", responses=documented(b.ChangefeedStatus))
    async def get_status(changefeed_id: IdPath, namespace: Namespace) -> Response:
        """Get its state, checkpoint and last error."""
        return answer(write.status(await found_feed(service, changefeed_id, namespace)))

    @router.get("/{changefeed_id}/meta_info", responses=documented(b.ChangefeedInfo))
    async def get_meta_info(changefeed_id: IdPath, namespace: Namespace) -> Response:
        """Get one, as TiCDC's classic architecture answers here."""
        return answer(write.info(await found_feed(service, changefeed_id, namespace)))

    @router.get("/{changefeed_id}/synced", responses=documented(b.SyncedStatus))
    async def get_synced(changefeed_id: IdPath, namespace: Namespace) -> Response:
        """Get whether everything that the upstream has is downstream."""
        await found_feed(service, changefeed_id, namespace)
        return answer(write.synced(await service.synced(changefeed_id, namespace=namespace)))

    return router


async def found_feed(service: ChangefeedService, changefeed_id: str, namespace: str) -> ChangefeedInfo:
    """Return a changefeed. Raises ChangefeedNotExists, also for what is no name of one."""
    if not is_id(changefeed_id):
        raise ChangefeedNotExists(f"changefeed not exists, {shortened(changefeed_id)}")
    return await service.changefeed(changefeed_id, namespace=namespace)


async def config_of(found: dict[str, Any] | None, stored: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the tables and keys of a TOML file for a replica_config. `stored`: the settings that the client has read, for an update.
    Raises InvalidReplicaConfig, also for rules that cost more than a request may."""
    unknown: list[str] = []
    try:
        config = from_json(found or {}, unknown=unknown, stored=stored)
        with Budget(REQUEST).in_force():
            await asyncio.to_thread(check_config, config)
    except ConfigError as error:
        raise InvalidReplicaConfig(f"invalid replica config, {failure_of(error).message}") from None
    for path in unknown:
        _log.warning("replica_config.%s is not known here; its value asks for nothing, and it is left out", shortened(path))
    return config


def _as_toml(body: b.ChangefeedInfo, info: ChangefeedInfo) -> str:
    found = body.body() | {"config": info.config}
    return toml_text({name.replace("_", "-"): value for name, value in found.items()})
