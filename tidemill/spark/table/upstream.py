"""Asks a cluster for a table as of a ts: how it was described then, and whether its rows can still be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.capture.clusterversion import oldest_version
from tidemill.capture.meta import read_meta
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.errors import SchemaError, StartTsBeforeGc
from tidemill.rules.names import nearest
from tidemill.spark.cluster.connection import connected
from tidemill.spark.table.options import TableOptions
from tidemill.tidb.keys import is_system_schema
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tidb.schema.tracking.versions import SchemaSnapshot, TableVersion
from tidemill.tidb.types.jsonstyle import JsonStyle, style_of
from tidemill.tso import describe


@dataclass(frozen=True, slots=True)
class TableAt:
    """A table as it was at `ts`. `style`: how the cluster prints documents."""

    ts: int
    version: TableVersion
    style: JsonStyle


async def find_table(options: TableOptions) -> TableAt:
    """Return the table at the ts of the options. Raises ConfigError, SchemaError, StartTsBeforeGc, UpstreamError."""
    async with connected(options.cluster) as pd:
        snapshot = await schema_at(pd, options.ts)
        ts, tables = snapshot.ts, [v for v in snapshot.tables.values() if v.info.has_rows]
        wanted = options.what.lower()
        found = next((v for v in tables if ".".join(v.name).lower() == wanted), None)
        if found is None:
            raise _no_table(options.what, ts, tables)
        return TableAt(ts, found, style_of(oldest_version(await pd.stores())))


async def schema_at(pd: PdClient, choose: Callable[[int], int]) -> SchemaSnapshot:
    """Return the cluster's schema at a ts, which `choose` returns for a fresh TSO. Raises StartTsBeforeGc, UpstreamError."""
    ts = choose(await pd.tso())
    await check_history(pd, ts)
    return SchemaHistory.bootstrap(ts, (await read_meta(pd, ts)).items()).snapshot(ts)


async def check_history(pd: PdClient, ts: int) -> None:
    """Raises StartTsBeforeGc if rows as of a ts may have been collected."""
    state = await pd.gc_state()
    limit = max(state.txn_safe_point, state.gc_safe_point) if state is not None else await pd.gc_safe_point()
    if limit > ts:
        raise collected(ts, limit)


def collected(ts: int, limit: int | None = None) -> StartTsBeforeGc:
    """The error for a ts whose rows are not complete any more."""
    below = f": TiDB keeps only what was there at {describe(limit)} and later" if limit is not None else ""
    return StartTsBeforeGc(
        f"the table as of {describe(ts)} may have been garbage collected{below}",
        hint="Choose a later asOfTs, or make the DataFrame again: without asOfTs it reads the present. To read further back, raise "
        "tidb_gc_life_time beforehand; a change log has older changes (format('tidemill')).",
    )


def _no_table(what: str, ts: int, tables: list[TableVersion]) -> SchemaError:
    known = sorted(".".join(v.name) for v in tables if not is_system_schema(v.schema))
    near = nearest(what, known)
    hint = f"Did you mean {near}?" if near else "There are " + (", ".join(known[:9]) or "no tables") + "."
    return SchemaError(f"there is no table {what} at {describe(ts)}", hint=hint)
