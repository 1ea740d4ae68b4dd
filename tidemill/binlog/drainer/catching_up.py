"""What a Drainer does with its relay log where the upstream cannot be reached: the downstream is brought to a state that was upstream.

A crash may leave some rows applied that lie behind the position, and others not. What is missing is in the relay log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from datetime import tzinfo
from itertools import chain
from pathlib import Path

from tidemill.binlog.drainer.mysql import MysqlOutlet
from tidemill.binlog.drainer.outlets import open_places
from tidemill.binlog.drainer.records.relay import relayed
from tidemill.binlog.drainer.savepoint import Position
from tidemill.binlog.drainer.settings import DATABASES, DrainerSettings
from tidemill.binlog.nodes import NodeKind, NodeState
from tidemill.binlog.outputs.named import Told
from tidemill.binlog.registry.client import Registry
from tidemill.tso import describe

ANSWER_S = 3.0
"""How long a Pump may take to take a connection."""

_log = logging.getLogger(__name__)


async def catch_up_without_pumps(settings: DrainerSettings, cluster_id: int, registry: Registry, zone: tzinfo) -> None:
    """Apply the relay log if a Pump that has to be pulled from takes no connection. Raises UpstreamError, and what `catch_up` raises."""
    if not settings.relay_dir:
        return
    nodes = [node for node in (await registry.nodes(NodeKind.PUMP)).values() if node.state is not NodeState.OFFLINE]
    answers = await asyncio.gather(*(_answers(node.host) for node in nodes))
    silent = [node.node_id for node, answer in zip(nodes, answers, strict=True) if not answer]
    if silent:
        _log.warning("Pump %s takes no connection", ", ".join(silent))
        await asyncio.to_thread(catch_up, settings, cluster_id, zone)


async def _answers(host: str) -> bool:
    name, _, port = host.rpartition(":")
    with suppress(OSError, ValueError, TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            _, writer = await asyncio.open_connection(name.strip("[]"), int(port))
        writer.close()
        return True
    return False


def catch_up(settings: DrainerSettings, cluster_id: int | None, zone: tzinfo) -> Position | None:
    """Apply what the relay log has behind the position, and move the position, which is consistent then. Returns it; None: nothing is done.

    Nothing is, if the Drainer was stopped in order, or if the relay log does not reach back to the position. `cluster_id` None: PD does not
    tell it. Raises ConfigError, SinkError, MalformedMessage, OSError.
    """
    if settings.db_type not in DATABASES or not settings.relay_dir:
        return None
    outlet = MysqlOutlet(settings, cluster_id)
    try:
        places = open_places(settings, cluster_id, outlet.database)
        try:
            saved = places.load()
            missing = None if saved is None or saved.consistent else _behind(Path(settings.relay_dir), zone, saved.commit_ts)
            if missing is None or saved is None:
                return None
            last = max(outlet.write_told(missing), saved.commit_ts)
            made = Position(last, saved.schema_version, consistent=True)
            places.save(made)
            _log.warning("the relay log is applied: the downstream is as it was upstream at %s", describe(last))
            return made
        finally:
            places.close()
    finally:
        outlet.close()


def _behind(folder: Path, zone: tzinfo, ts: int) -> Iterator[Told] | None:
    """Return what a relay log tells behind a ts; None if it does not reach back to it."""
    told = relayed(folder, zone)
    first = next(told, None)
    if first is None or first.commit_ts > ts:
        begin = "is empty" if first is None else f"begins at {describe(first.commit_ts)}"
        _log.warning("the relay log in %s %s, and the position is %s: it is not applied", folder, begin, describe(ts))
        return None
    return (one for one in chain([first], told) if one.commit_ts > ts)
