"""Who changed what: a line of the log for each request that changes something, whether it was let in, done or refused.

    audit: ops (operate) from 10.0.0.7: POST /api/v2/changefeeds/a/pause: 200: state: normal -> stopped

It is written whatever --log-level says. What was before and is after stands there without secrets.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fastapi import Request
from starlette.types import Scope

from tidemill.errors import TidemillError, redact
from tidemill.server.api.requests import shortened
from tidemill.server.service import ChangefeedInfo, ChangefeedService
from tidemill.visible import cut, one_line

LONGEST = 2000
"""Characters of what changed."""
_NOTHING = "none"

_log = logging.getLogger("tidemill.audit")
_log.setLevel(logging.INFO)


def note(request: Request, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Note what a request changed, field by field."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    changes = (f"{name}: {_shown(before.get(name))} -> {_shown(after.get(name))}" for name in names)
    request.state.audited = cut(one_line(redact("; ".join(changes) or "nothing changed")), LONGEST)


def write(scope: Scope, status: int) -> None:
    """Write the line of a request that changes something. `scope`: of ASGI, with what the guard and the route noted in its state."""
    state = scope.get("state", {})
    client, _ = scope.get("client") or ("unknown", 0)
    user, path = shortened(state.get("user", "anybody")), shortened(scope["path"])
    failure = state.get("failure")
    what = failure.message if failure is not None and status >= 400 else state.get("audited", "")
    end = f": {one_line(cut(what, LONGEST))}" if what else ""
    _log.info("audit: %s from %s: %s %s: %d%s", user, client, scope["method"], path, status, end)


async def facts(service: ChangefeedService, changefeed: str, namespace: str) -> dict[str, Any]:
    """Return what a request can change of a changefeed; nothing, if there is none."""
    with suppress(TidemillError):
        return facts_of(await service.changefeed(changefeed, namespace=namespace))
    return {}


def facts_of(info: ChangefeedInfo) -> dict[str, Any]:
    """Return what a request can change of a changefeed."""
    found = {"state": str(info.state), "sink_uri": redact(info.sink_uri), "target_ts": info.target_ts or None}
    return found | dict(_flat(info.given_config, "config"))


def _flat(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [one for name, inner in value.items() for one in _flat(inner, f"{path}.{name}")]
    return [(path, value)]


def _shown(value: Any) -> str:
    return _NOTHING if value is None else cut(str(value))
