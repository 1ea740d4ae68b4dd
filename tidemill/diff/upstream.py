"""The upstream's side: the tables at a ts, and their rows, part by part. From TiKV, or from a change log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemill.capture.clusterversion import oldest_version
from tidemill.capture.meta import read_meta
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.client.tls import security_of
from tidemill.capture.tikv.read.tables import batches, drained, plan_tables
from tidemill.changelog.files.bounds import within
from tidemill.changelog.history import load_history
from tidemill.changelog.initial_load import Part
from tidemill.changelog.reader import LogReader
from tidemill.delivery.inputs.log_source import json_style
from tidemill.diff import log_state
from tidemill.diff.digest import Row
from tidemill.diff.lineage import Lineage
from tidemill.diff.log_state import LogPart
from tidemill.diff.model import DiffTable
from tidemill.diff.rows import DELETED
from tidemill.diff.texts import RowTexts
from tidemill.errors import NotCaptured, StartTsOutOfLog, redact
from tidemill.rules.table_filter import TableFilter
from tidemill.tidb.schema.model import HandleKind
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tidb.types.jsonstyle import style_of
from tidemill.tso import MAX_TS, describe

Tls = tuple[Path | None, Path | None, Path | None]
"""The files of --ca, --cert and --key."""


@dataclass(frozen=True)
class KvPart:
    """A range of a table in TiKV."""

    pd: tuple[str, ...]
    tls: Tls
    table: int
    part: Part


@dataclass(frozen=True)
class UpstreamTables:
    """The tables at a ts, and the parts that hold their rows."""

    ts: int
    tables: tuple[DiffTable, ...]
    parts: tuple[KvPart | LogPart, ...]
    left_out: tuple[str, ...] = ()
    """Names of tables that are not compared because they have no usable key."""
    moved: tuple[str, ...] = ()
    """Names of tables that are not compared because TiDB moved their rows to other partitions, and no key tells them apart in the log."""


@dataclass(frozen=True)
class Wish:
    """Which tables are wanted. `keyless`: those without a usable key too, as a changefeed with force-replicate has them."""

    rules: TableFilter
    keyless: bool = False

    def of(self, versions: Iterable[TableVersion]) -> tuple[list[TableVersion], tuple[str, ...]]:
        """Return the versions that are compared, and the names of tables that are not for want of a key."""
        found = sorted((v for v in versions if v.info.has_rows and self.rules.matches(*v.name)), key=lambda v: v.name)
        left_out = () if self.keyless else tuple(".".join(v.name) for v in found if not v.info.has_usable_key)
        return [v for v in found if self.keyless or v.info.has_usable_key], left_out


def of_cluster(pd: str, tls: Tls, ts: Callable[[int], int], wish: Wish) -> UpstreamTables:
    """Return the tables of a cluster. `ts`: what to take, of the cluster's present ts. Raises UpstreamError, UpstreamUnavailable."""
    return asyncio.run(_of_cluster(tuple(pd.split(",")), tls, ts, wish))


async def _of_cluster(pd: tuple[str, ...], tls: Tls, choose: Callable[[int], int], wish: Wish) -> UpstreamTables:
    client = await PdClient.connect(pd, security=security_of(pd, *tls))
    try:
        ts = choose(await client.tso())
        style = style_of(oldest_version(await client.stores()))
        history = SchemaHistory.bootstrap(ts, (await read_meta(client, ts)).items())
        versions, left_out = wish.of(history.snapshot(ts).tables.values())
        plan = await plan_tables(client, ts, versions)
    finally:
        await client.close()
    tables = tuple(DiffTable.of(number, v.schema, v.info, style) for number, v in enumerate(versions))
    numbers = {version.table_id: number for number, version in enumerate(versions)}
    parts = tuple(KvPart(pd, tls, numbers[part.table_id], part) for part in plan.parts())
    return UpstreamTables(ts, tables, parts, left_out)


def of_log(location: str, choose: Callable[[int], int], wish: Wish) -> UpstreamTables:
    """Return the tables of a change log. `ts`: what to take, of the log's resolved ts. Raises LogError, StartTsOutOfLog, NotCaptured."""
    reader = LogReader(location)
    start, resolved = reader.start_ts, reader.resolved_ts()
    ts = choose(resolved)
    if not start <= ts <= resolved:
        raise StartTsOutOfLog(
            f"{describe(ts)} lies outside the log {redact(location)}, which holds {describe(start)} to {describe(resolved)}"
        )
    history = load_history(reader, within(start, ts))
    versions, left_out = wish.of(history.snapshot(ts).tables.values())
    _check_captured(reader, versions, ts)
    old = history.snapshot(start).by_physical.keys()
    loads, lineage = log_state.loads(reader, ts), Lineage.of(history, start, ts)
    style = json_style(reader.identity, ts)
    tables: list[DiffTable] = []
    wanted: list[log_state.Wanted] = []
    moved: list[str] = []
    for version in versions:
        ancestors = lineage.ancestors(version.physical_ids) - set(version.physical_ids)
        if ancestors and version.info.handle_kind is HandleKind.HIDDEN:
            moved.append(".".join(version.name))
            continue
        number, ids = len(tables), {*version.physical_ids, *ancestors}
        ended = {id_: lineage.removed.get(id_, MAX_TS) for id_ in ancestors}
        found = {id_: log_state.Physical(number, *loads.get(id_, (start, ())), ended.get(id_, MAX_TS)) for id_ in ids}
        touched_only = any(id_ in old and id_ not in loads for id_ in ids)
        unknown = _unknown(version, lineage, min(one.base_ts for one in found.values()))
        tables.append(DiffTable.of(number, version.schema, version.info, style, touched_only=touched_only, unknown=unknown))
        logical = frozenset(owner for id_ in ids for owner in lineage.owners.get(id_, ()))
        wanted.append(log_state.Wanted(logical | {version.table_id}, found, touched_only, bool(ancestors)))
    return UpstreamTables(ts, tuple(tables), tuple(log_state.parts(reader, ts, wanted)), left_out, tuple(moved))


def _unknown(version: TableVersion, lineage: Lineage, base_ts: int) -> set[int]:
    """Return the columns whose values the log lacks. Raises NotCaptured if one is in the key."""
    found = {id_ for at, id_ in lineage.converted.get(version.table_id, ()) if at > base_ts}
    if found.intersection(version.info.handle_key_ids):
        raise NotCaptured(
            f"a DDL converted a column of the key of {version.schema}.{version.table}: its values are not in the log",
            hint="Leave the table out (--table), or compare with the cluster (--pd).",
        )
    return found


def _check_captured(reader: LogReader, versions: Sequence[TableVersion], ts: int) -> None:
    """Raises NotCaptured for a table that the capture's rules left out at some time: the log lacks rows of it."""
    identity = reader.identity
    for entry in identity.capture_rules:
        captured = TableFilter(entry.rules)
        for version in versions if entry.from_ts <= ts else ():
            if not captured.matches(*version.name):
                raise NotCaptured(
                    f"the log has not all rows of {version.schema}.{version.table}: from {describe(entry.from_ts)} on it has only tables "
                    f"of the rules {', '.join(entry.rules)}",
                    hint="Leave the table out (--table, [filter] rules), or compare with the cluster (--pd).",
                )


def rows_of(part: KvPart | LogPart, tables: Sequence[DiffTable]) -> Iterator[tuple[int, list[Row]]]:
    """Yield the rows of a part, some of one table at a time. `tables`: all, by number. Raises what the upstream or the log raise."""
    if isinstance(part, LogPart):
        numbers = {one.table for one in part.tables.values()}
        texts = RowTexts([tables[number] for number in sorted(numbers)])
        for state in log_state.state(part):
            rows = texts.of(state.table, state.keys, state.values, part.ts)
            yield state.table, [(key, DELETED) for key, _ in rows] if state.gone else rows
        return
    texts = RowTexts([tables[part.table]])
    loop = asyncio.new_event_loop()
    try:
        client = loop.run_until_complete(PdClient.connect(part.pd, security=security_of(part.pd, *part.tls)))
        try:
            for batch in drained(loop, batches(client, part.part)):
                yield part.table, texts.of(part.table, batch.column("key"), batch.column("value"), part.part.ts)
        finally:
            loop.run_until_complete(client.close())
    finally:
        loop.close()
