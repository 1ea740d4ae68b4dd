"""The tables of the cluster as of a ts: from the log's schemas; where it does not hold them, from TiKV."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tidemill import tso
from tidemill.config.file import ChangefeedConfig
from tidemill.errors import ClusterMismatch
from tidemill.server import errors as e
from tidemill.server import service as s
from tidemill.server.upstream import LogSchemas, Upstream, lists_of


class Tables:
    """What log and cluster know of tables."""

    def __init__(self, log: str, upstream: Upstream) -> None:
        self._upstream = upstream
        self._schemas = LogSchemas(log)
        self._reading = asyncio.Lock()

    async def newest(self, ts: int | None = None) -> Sequence[Any]:
        """The tables as of a ts (None: the log's newest). Raises LogError, StartTsBeforeLog, ClusterMismatch."""
        async with self._reading:
            logged = await asyncio.to_thread(self._schemas.tables, ts)
        if logged is not None:
            return logged
        if ts is not None:
            await self.check_history(ts)
        at = ts or await self._upstream.now()
        try:
            schemas = await self._upstream.schemas(at)
        except ClusterMismatch:
            if ts is None:
                raise
            await self._upstream.schemas(await self._upstream.now())  # raises it too, if the cluster has none at all
            raise e.StartTsBeforeLog(
                f"at {tso.describe(ts)} the cluster had no tables: it did not exist, or TiDB has collected that",
                hint="Start at a later ts.",
            ) from None
        return [*schemas.snapshot(at).tables.values()]

    async def now(self) -> Sequence[Any]:
        """The tables as of the cluster's present: some may be newer than what the log knows."""
        return await self.newest(await self._upstream.now())

    async def lists(self, config: ChangefeedConfig, ts: int | None) -> s.TableLists:
        """Those that a changefeed selects, as of a ts. Raises as `newest`."""
        return await asyncio.to_thread(lists_of, await self.newest(ts), await asyncio.to_thread(config.table_filter))

    async def check_history(self, ts: int) -> None:
        """Raises StartTsBeforeLog, with the GC safe point, if the cluster no longer has what follows a ts."""
        safe_point = await (await self._upstream.connect()).gc_safe_point()
        if ts < safe_point:
            raise e.StartTsBeforeLog(
                f"start-ts {tso.describe(ts)} is earlier than the cluster's GC safe point {tso.describe(safe_point)}",
                hint=f"TiDB has collected what lies before: start at {safe_point} or later.",
            )
