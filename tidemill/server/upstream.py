"""The cluster that a server follows: PD's time, tables as of a ts, and what an operator does to it by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from tidemill import tso
from tidemill.capture.meta import read_meta
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.client.region_calls import raw_range
from tidemill.capture.tikv.client.tls import Security
from tidemill.capture.tikv.gc import let_go
from tidemill.capture.tikv.locks import LockResolver
from tidemill.changelog.files.bounds import within
from tidemill.changelog.history import follow, load_history
from tidemill.changelog.reader import LogReader, existing_log
from tidemill.errors import UpstreamError
from tidemill.rules.table_filter import TableFilter
from tidemill.server.errors import InvalidParameter, PdUnavailable
from tidemill.server.service import TableLists, TableName, Tso
from tidemill.tidb.keys import is_system_schema
from tidemill.tidb.schema.tracking.history import SchemaHistory, TableVersion

PATIENCE_S = 10.0
"""How long a request waits for PD."""
LOGICAL_BITS = 18


class Upstream:
    """Kept connected."""

    def __init__(self, addresses: Sequence[str], security: Security | None) -> None:
        self.addresses = tuple(addresses)
        self.security = security
        self._pd: PdClient | None = None
        self._connecting = asyncio.Lock()

    async def connect(self) -> PdClient:
        """Return the client. Raises UpstreamError if PD does not answer."""
        async with self._connecting:
            if self._pd is None:
                self._pd = await PdClient.connect(list(self.addresses), retry_s=PATIENCE_S, security=self.security)
            return self._pd

    async def close(self) -> None:
        if self._pd is not None:
            await self._pd.close()

    async def now(self) -> int:
        """PD's time. Raises PdUnavailable."""
        try:
            return await (await self.connect()).tso()
        except UpstreamError as error:
            raise PdUnavailable(f"PD does not answer: {error.message}", hint=error.hint) from error

    async def tso(self) -> Tso:
        """PD's time in its two parts. Raises PdUnavailable."""
        ts = await self.now()
        return Tso(tso.physical_ms(ts), ts & ((1 << LOGICAL_BITS) - 1))

    async def schemas(self, ts: int) -> SchemaHistory:
        """The schemas of all tables as of a ts, read from TiKV."""
        return SchemaHistory.bootstrap(ts, (await read_meta(await self.connect(), ts)).items())

    async def let_go(self, log: Mapping[str, object]) -> None:
        """Remove from PD what keeps history for a log, as `capture.tikv.gc` says. Raises PdUnavailable."""
        try:
            await let_go(await self.connect(), log)
        except UpstreamError as error:
            raise PdUnavailable(f"PD does not let go of the log's history: {error.message}", hint=error.hint) from error

    async def resolve_lock(self, region_id: int, ts: int | None = None) -> int:
        """Resolve the locks of a region at or below a ts whose transactions are over. Return how many. Raises InvalidParameter."""
        pd = await self.connect()
        at = b""
        while True:
            regions = await pd.scan_regions(at, b"")
            found = next((region for region in regions if region.id == region_id), None)
            if found is not None:
                break
            if not regions or not regions[-1].end:
                raise InvalidParameter(f"the cluster has no region {region_id}")
            at = regions[-1].end
        now = await pd.tso()
        done = await LockResolver(pd, grace_s=0.0).resolve(*raw_range(found), ts or now, now)
        return done.committed + done.rolled_back


class LogSchemas:
    """The schemas that the log holds, kept for questions about tables. Calls do IO: make them in a thread, one at a time."""

    def __init__(self, log: str) -> None:
        self._log = log
        self._kept: tuple[LogReader, SchemaHistory] | None = None

    def tables(self, ts: int | None) -> list[TableVersion] | None:
        """The tables as of a ts (None: the log's newest); None if the log does not cover it. Raises LogError."""
        if self._kept is None:
            reader = existing_log(self._log)
            if reader is None:
                return None
            self._kept = reader, load_history(reader, from_ts=reader.resolved_ts(), may_stop=True)
        reader, history = self._kept
        end = reader.resolved_ts()
        follow(history, reader, may_stop=True)
        at = min(end, history.resolved_ts) if ts is None else ts
        if at > history.resolved_ts or at < reader.start_ts:
            return None
        if at < history.start_ts:
            return [*load_history(reader, at, from_ts=at).snapshot(at).tables.values()]
        found = [*history.snapshot(within(history.start_ts, at)).tables.values()]
        if ts is None:
            history.forget(at)
        return found


def lists_of(tables: Sequence[TableVersion], wanted: TableFilter) -> TableLists:
    """Sort tables into those that a filter selects and that have a usable key, those that have none, and all."""
    ours = sorted((v for v in tables if v.info.has_rows and not is_system_schema(v.schema)), key=lambda v: (v.schema, v.table))
    named = [(v, TableName(v.schema, v.table, v.table_id, v.info.partition is not None)) for v in ours]
    chosen = [(v, name) for v, name in named if wanted.matches(v.schema, v.table)]
    return TableLists(
        eligible_tables=tuple(name for v, name in chosen if v.info.has_usable_key),
        ineligible_tables=tuple(name for v, name in chosen if not v.info.has_usable_key),
        all_tables=tuple(name for _, name in named),
    )


def physical_ids(tables: Sequence[TableVersion], wanted: TableFilter, *, without_key: bool) -> tuple[int, ...]:
    """The physical ids of the tables that a changefeed delivers."""
    ids = [
        id_
        for v in tables
        if v.info.has_rows and not is_system_schema(v.schema) and wanted.matches(v.schema, v.table)
        if without_key or v.info.has_usable_key
        for id_ in v.physical_ids
    ]
    return tuple(sorted(ids))
