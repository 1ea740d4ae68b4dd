"""The history of all schemas: the tables at a ts, the place of each DDL, and the physical ids whose rows count at a ts.

It begins with the meta key-values at a ts and continues with the change log's schema stream: changes of meta keys, and rows of the DDL
job table. A table gets a new version at each change of its description that users can see. Rows with a commit ts up to there are read
with the old version, later rows with the new one. The history never waits for a job to end.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from tidemill.errors import DdlTextError, SchemaError
from tidemill.events import Op
from tidemill.tidb.datums import Datum
from tidemill.tidb.ddltext import DdlSyntaxError, FoundNames
from tidemill.tidb.keys import is_system_schema
from tidemill.tidb.rows.raw import decode_row
from tidemill.tidb.schema.codes import Action, JobState, SchemaState
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.job import DdlJob
from tidemill.tidb.schema.metakeys import META_TABLE_ID, Subject, capture_ranges, meta_filter, name_of
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.catalog import Catalog, Edits, JobSource
from tidemill.tidb.schema.tracking.effects import effects
from tidemill.tidb.schema.tracking.named import Name, catalogue_names, read_statement
from tidemill.tidb.schema.tracking.tracker import JobTracker, PlacedDdl
from tidemill.tidb.schema.tracking.versions import (
    Change,
    PhysicalChange,
    SchemaSnapshot,
    TableVersion,
    Timeline,
    physical_change,
)
from tidemill.tso import describe
from tidemill.visible import short_statement

__all__ = [
    "PhysicalChange",
    "SchemaChange",
    "SchemaHistory",
    "SchemaSnapshot",
    "TableVersion",
    "capture_ranges",
    "job_table_id",
    "meta_filter",
]

_log = logging.getLogger(__name__)

Pairs = Iterable[tuple[bytes, bytes]]


class SchemaChange(NamedTuple):
    """A change of the schema stream. `value` is None for a delete."""

    table_id: int  # of the DDL job table, or 0 for a meta key
    op: int
    start_ts: int
    commit_ts: int
    key: bytes
    value: bytes | None


def job_table_id(pairs: Pairs) -> int | None:
    """Return the id of the DDL job table, or None where jobs are kept in the meta range (TiDB <= 6.1)."""
    source = read_catalog(pairs).job_table
    return source.table_id if source is not None else None


def read_catalog(pairs: Pairs, ts: int = 0) -> Catalog:
    """Return the databases and tables of meta key-values as of `ts`."""
    catalog, edits = Catalog(), Edits()
    named = [(name, value) for key, value in pairs if (name := name_of(key)) is not None]
    for name, value in sorted(named, key=lambda pair: pair[0].subject is not Subject.DATABASE):
        catalog.read(name, value, edits)
    catalog.load(edits, ts)
    return catalog


_Kept = TypeVar("_Kept")

Description = tuple[int, TableInfo]
"""A change of a table's description that began no version: its ts and the description."""


class SchemaHistory:
    """See the module. `bootstrap` makes one. Not safe for threads."""

    def __init__(self, ts: int, catalog: Catalog, *, strict: bool = False) -> None:
        self.start_ts = ts
        self.resolved_ts = ts
        self.strict = strict
        self.unprintable = 0
        """Counts DDL texts that were returned as the user wrote them."""
        self._catalog = catalog
        self._base_version = catalog.schema_version
        self._tracker = JobTracker(catalog)
        self._job_rows: dict[bytes, int] = {}  # keys of running and finished jobs that are not in the history yet, with their job ids
        self._timeline = Timeline(ts, catalog.tables, catalog.databases)
        for version in catalog.tables.values():
            self._timeline.know((*version.physical_ids, *version.info.transient_ids))
        self._events: list[PlacedDdl] = []
        self._descriptions: dict[int, list[Description]] = {}  # by table id
        self._about: dict[int, list[PlacedDdl]] = {}  # events by the tables that they are about
        self._exchanged: dict[tuple[int, int], int] = {}  # update_ts of a table before its version that began at a ts with an exchange
        self._pending: list[SchemaChange] = []
        self._stopped: SchemaError | None = None

    @classmethod
    def bootstrap(cls, ts: int, pairs: Pairs, *, strict: bool = False) -> SchemaHistory:
        """Return a history that begins at `ts` with the meta key-values of that ts. DDLs may be running then.

        With `strict`, `ddl_events` raises DdlTextError for a text that cannot be printed as TiDB prints it. Raises SchemaError for
        key-values that cannot be read.
        """
        return cls(ts, read_catalog(pairs, ts), strict=strict)

    @property
    def schema_version(self) -> int:
        """TiDB's schema version at resolved_ts."""
        return self._catalog.schema_version

    @property
    def bdr_role(self) -> str:
        """The cluster's BDR role at resolved_ts: primary, secondary or nothing."""
        return self._catalog.bdr_role

    @property
    def catalog(self) -> Catalog:
        """The tables at resolved_ts. Advancing the history changes it."""
        return self._catalog

    @property
    def job_table_ids(self) -> tuple[int, ...]:
        """Ids of the tables whose rows are DDL jobs."""
        sources = (self._catalog.job_table, self._catalog.history_table)
        return tuple(source.table_id for source in sources if source is not None)

    # Going on

    def advance(self, changes: Iterable[Sequence[Any]] | pa.Table, resolved_ts: int) -> None:
        """Apply the changes up to `resolved_ts`, given in any order. Later ones are kept for the next call.

        Changes at or before the present resolved ts are already known and skipped. Raises SchemaError. After FLASHBACK CLUSTER the
        history stays just before it, and every further call raises again.
        """
        if self._stopped is not None:
            raise self._stopped
        new = _rows_of(changes) if isinstance(changes, pa.Table) else (SchemaChange(*c[:6]) for c in changes)
        self._pending += (change for change in new if change.commit_ts > self.resolved_ts)
        if resolved_ts <= self.resolved_ts:
            return
        ready = [change for change in self._pending if change.commit_ts <= resolved_ts]
        self._pending = [change for change in self._pending if change.commit_ts > resolved_ts]
        ready.sort(key=lambda c: (c.commit_ts, c.start_ts, c.table_id, c.key))
        for (commit_ts, _), transaction in groupby(ready, key=lambda c: (c.commit_ts, c.start_ts)):
            self._apply(commit_ts, tuple(transaction))
        self.resolved_ts = resolved_ts

    @property
    def stopped(self) -> SchemaError | None:
        """What ended this history for good: FLASHBACK CLUSTER just behind resolved_ts."""
        return self._stopped

    def readable_to(self, from_ts: int, to_ts: int) -> int:
        """How far rows after from_ts can be read: to to_ts, or to the end of a history that was stopped before. Raises SchemaError if
        that leaves nothing."""
        if self._stopped is None or to_ts <= self.resolved_ts:
            return to_ts
        if from_ts >= self.resolved_ts:
            raise self._stopped
        return self.resolved_ts

    def _apply(self, ts: int, transaction: Sequence[SchemaChange]) -> None:
        edits = Edits()
        jobs: list[DdlJob] = []
        removed: list[int] = []
        for change in transaction:
            if change.table_id == META_TABLE_ID:
                self._read_meta(change, edits, jobs, removed)
            else:
                self._read_job(change, jobs, removed)
        for job in jobs:
            self._refuse_flashback(job, ts)
        changes = self._switch(edits, ts)
        for job in jobs:
            events = self._tracker.follow(job, ts, changes, bool(edits), lambda job: self._switch(effects(job, self._catalog), ts))
            self._events += events
            self._note_events(events)
        for job_id in removed:
            self._tracker.remove(job_id, ts)

    def _switch(self, edits: Edits, ts: int) -> tuple[Change, ...]:
        if not edits:
            return ()
        self._timeline.know(physical for _, info in edits.tables.values() for physical in (*info.physical_ids, *info.transient_ids))
        changes = self._timeline.add(ts, self._catalog.apply(edits, ts))
        self._note_descriptions(edits, ts, changes)
        if edits.databases:
            self._timeline.set_databases(ts, self._catalog.databases)
        return changes

    def _note_descriptions(self, edits: Edits, ts: int, changes: Sequence[Change]) -> None:
        begun = {change.after.table_id for change in changes if change.after is not None}
        for table_id, (_, info) in edits.tables.items():
            if table_id not in begun and table_id in self._catalog.tables:
                self._descriptions.setdefault(table_id, []).append((ts, info))

    def _read_meta(self, change: SchemaChange, edits: Edits, jobs: list[DdlJob], removed: list[int]) -> None:
        name = name_of(change.key)
        if name is None:
            return
        value = change.value if change.op == Op.PUT else None
        if name.subject is Subject.JOB or name.subject is Subject.JOB_HISTORY:
            if self._catalog.job_table is None:
                self._note(change.key, value, jobs, removed, self._is_unseen if name.subject is Subject.JOB_HISTORY else None)
            return
        self._catalog.read(name, value, edits)

    def _read_job(self, change: SchemaChange, jobs: list[DdlJob], removed: list[int]) -> None:
        for source in (self._catalog.job_table, self._catalog.history_table):
            if source is not None and source.table_id == change.table_id:
                break
        else:
            return
        text = _job_text(change, source) if change.op == Op.PUT and change.value is not None else None
        self._note(change.key, text, jobs, removed, self._is_filed_at_once if source is self._catalog.history_table else None)

    def _note(
        self, key: bytes, text: bytes | None, jobs: list[DdlJob], removed: list[int], is_new: Callable[[DdlJob], bool] | None
    ) -> None:
        """Note a step of a job, or that its row was removed. With `is_new` the row is of the history, and counts only if its job is new."""
        if text is None:
            job_id = self._job_rows.pop(key, None)
            removed += [job_id] if job_id is not None else []
            return
        job = DdlJob.parse(text)
        if is_new is None:
            self._job_rows[key] = job.id
        if is_new is None or is_new(job):
            jobs.append(job)

    def _is_filed_at_once(self, job: DdlJob) -> bool:
        """Return whether this row of `tidb_ddl_history` is the only one of its job, as with a fast CREATE TABLE of TiDB 8.0 to 8.2.

        Every other job was in the job table until it was done. The tables decide here: a job whose tables are known was seen before.
        The remembered jobs cannot decide: some are forgotten, some lie before the beginning. The arguments in these rows are not those
        that the job ran with, because TiDB clears or rewrites them.
        """
        infos = (*job.table_infos, *((job.table_info,) if job.table_info is not None else ()))
        creates = job.action in (Action.CREATE_TABLE, Action.CREATE_TABLES) and job.is_done and not is_system_schema(job.schema_name)
        return creates and bool(infos) and not any(self._is_known(info) for info in infos)

    def _is_known(self, info: TableInfo) -> bool:
        return info.id in self._catalog.tables or self._timeline.knows(info.physical_ids)

    def _is_unseen(self, job: DdlJob) -> bool:
        """Return whether a job of the history of TiDB <= 6.1 was neither in a list of running jobs nor done before the bootstrap."""
        return not self._tracker.is_done(job.id) and job.schema_version > self._base_version

    def _refuse_flashback(self, job: DdlJob, ts: int) -> None:
        rewriting = job.state == JobState.RUNNING and job.schema_state in (SchemaState.WRITE_ONLY, SchemaState.WRITE_REORG)
        if job.action == Action.FLASHBACK_CLUSTER and (rewriting or job.is_done):
            self.resolved_ts = ts - 1
            self._stopped = SchemaError(
                f"FLASHBACK CLUSTER (DDL job {job.id}) at {describe(ts)} changes rows without change events: {short_statement(job.query)}",
                hint=f"What lies before it, up to ts {ts - 1}, can be read. Bring the downstream to the flashed-back state and start a new "
                "log and changefeed after it.",
            )
            raise self._stopped

    # Asking

    def snapshot(self, ts: int) -> SchemaSnapshot:
        """Return the tables for rows with a commit ts just past `ts`. Raises SchemaError for a ts outside the history."""
        if ts > self.resolved_ts:
            if self._stopped is not None:
                raise self._stopped
            raise SchemaError(f"no schema is known at {describe(ts)}: the history ends at {describe(self.resolved_ts)}")
        return self._timeline.snapshot(ts)

    def described(self, version: TableVersion, ts: int) -> TableVersion:
        """Return the version with the table's description for rows just past `ts`, as the DDLs delivered up to there left it.

        It includes the steps of a DDL after its public one, and DDLs that users' statements do not see, but no step of a later DDL.
        """
        if descriptions := self._descriptions.get(version.table_id):
            done = self._delivered_to(version.table_id, ts)
            end = done if version.to_ts is None else min(done, version.to_ts - 1)
            found = [info for at, info in descriptions if version.from_ts < at <= end]
            if found:
                return replace(version, info=found[-1])
        kept = self._exchanged.get((version.table_id, version.from_ts))
        return replace(version, info=replace(version.info, update_ts=kept)) if kept is not None else version

    def _delivered_to(self, table_id: int, ts: int) -> int:
        """Return the ts up to which descriptions of a table belong to DDLs that were delivered up to `ts`."""
        return max((max(event.ts, event.done_ts) for event in self._about.get(table_id, ()) if event.ts <= ts), default=0)

    def _last_described(self, version: TableVersion, ts: int) -> TableVersion:
        found = [info for at, info in self._descriptions.get(version.table_id, ()) if version.from_ts < at <= ts]
        return replace(version, info=found[-1]) if found else version

    def described_snapshot(self, ts: int) -> SchemaSnapshot:
        """Return `snapshot(ts)` with each table as `described` returns it. Raises SchemaError for a ts outside the history."""
        snapshot = self.snapshot(ts)
        return replace(snapshot, tables={table_id: self.described(version, ts) for table_id, version in snapshot.tables.items()})

    def _note_events(self, events: Sequence[PlacedDdl]) -> None:
        for event in events:
            for table_id in {version.table_id for version in (event.before, event.after, event.other) if version is not None}:
                self._about.setdefault(table_id, []).append(event)
            if event.type == Action.EXCHANGE_PARTITION:
                # TiCDC keeps both descriptions and exchanges the ids in them.
                now = {version.name: version.table_id for version in self._catalog.tables.values() if version.from_ts == event.ts}
                for version in (event.before, event.other):
                    if version is not None and version.name in now:
                        self._exchanged[now[version.name], event.ts] = self.described(version, event.ts - 1).info.update_ts

    def barriers(self, from_ts: int, to_ts: int) -> list[int]:
        """Return every ts in (from_ts, to_ts] at which a version changes or a DDL event stands, ascending."""
        switches = {switch.ts for switch in self._timeline.switches(from_ts, to_ts)}
        return sorted(switches | {event.ts for event in self._placed(from_ts, to_ts)})

    def ddl_events(self, from_ts: int, to_ts: int, wants: Callable[[DdlEvent], bool] | None = None) -> list[DdlEvent]:
        """Return the DDL events in (from_ts, to_ts], by ts, schema version and order within their job.

        `wants` sees events with the text before printing. Only events that it accepts are printed and can raise DdlTextError.
        """
        placed = sorted(self._placed(from_ts, to_ts), key=lambda e: e.order)
        drafts = ((event, _draft(event)) for event in placed)
        return [self._given_out(event, draft) for event, draft in drafts if wants is None or wants(draft)]

    def next_table_changes(self, from_ts: int, to_ts: int) -> list[PhysicalChange]:
        """Return the switches in (from_ts, to_ts] as changes of the subscriptions."""
        return [physical_change(switch) for switch in self._timeline.switches(from_ts, to_ts)]

    def _placed(self, from_ts: int, to_ts: int) -> list[PlacedDdl]:
        start = bisect_right(self._events, from_ts, key=lambda e: e.ts)
        return self._events[start : bisect_right(self._events, to_ts, key=lambda e: e.ts)]

    def _given_out(self, event: PlacedDdl, draft: DdlEvent) -> DdlEvent:
        if event.printed is None or event.names is None:
            event.printed, event.names = self._print(event, draft)
        query, reprinted = event.printed
        before, other = (self.described(v, event.ts - 1) if v is not None else None for v in (event.before, event.other))
        last = event.done or event.after
        after = self.described(last, event.ts) if last is not None else None
        if event.after is None and event.before is not None:  # a drop: the table as it was last described, whatever described it
            other = self._last_described(event.before, event.ts)
        return replace(draft, query=query, reprinted=reprinted, before=before, after=after, other=other, names=event.names)

    def _names(self, event: PlacedDdl, draft: DdlEvent, found: FoundNames) -> dict[Name, Name]:
        """Return the names in the statement that the catalogue has in other letters."""
        own = [version.name for version in (event.after, event.before, event.other) if version is not None]

        def snapshots() -> Iterator[SchemaSnapshot]:
            yield self._timeline.snapshot(event.ts)
            if event.ts > self.start_ts:
                yield self._timeline.snapshot(event.ts - 1)

        return catalogue_names(found, (draft.schema, draft.pre_schema), own, snapshots)

    def _print(self, event: PlacedDdl, draft: DdlEvent) -> tuple[tuple[str, bool], dict[Name, Name]]:
        """Return the text, whether it is printed as TiDB prints it, and the names in it that the catalogue has in other letters."""
        try:
            text, found = read_statement(event.statement)
            return (text, True), self._names(event, draft, found)
        except DdlSyntaxError as error:
            what = f"the DDL of {event.schema}.{event.table} (job {event.job_id}) cannot be printed as TiDB prints it: {error}"
            if self.strict:
                raise DdlTextError(f"{what}\n  {short_statement(event.statement.source)}") from error
            self.unprintable += 1
            _log.warning("%s; it is sent as the user wrote it: %s", what, short_statement(event.statement.source))
            return (event.statement.source, False), {}

    # Forgetting

    def forget(self, ts: int) -> None:
        """Drop what only rows and events at or before `ts` need. The history then begins at `ts`."""
        ts = min(ts, self.resolved_ts)
        if ts <= self.start_ts:
            return
        self._timeline.forget(ts)
        self._tracker.forget(ts)
        self._events = [event for event in self._events if event.ts > ts]
        self._descriptions = {table_id: self._still_shown(table_id, found, ts) for table_id, found in self._descriptions.items()}
        self._about = {table_id: _after(found, lambda event: event.ts <= ts) for table_id, found in self._about.items()}
        self.start_ts = ts

    def _still_shown(self, table_id: int, found: Sequence[Description], ts: int) -> list[Description]:
        """Return the descriptions past `ts`, the last one before, and the one that `described` uses at `ts`."""
        delivered = min(self._delivered_to(table_id, ts), ts)
        shown = [one for one in found if one[0] <= delivered][-1:]
        return shown + _after([one for one in found if one[0] > delivered], lambda one: one[0] <= ts)


def _after(found: Sequence[_Kept], is_old: Callable[[_Kept], bool]) -> list[_Kept]:
    """Return the entries that are not old, and the last old one before them."""
    return [*[one for one in found if is_old(one)][-1:], *(one for one in found if not is_old(one))]


def _draft(event: PlacedDdl) -> DdlEvent:
    """Return the event with its text before printing."""
    return DdlEvent(
        ts=event.ts,
        done_ts=event.done_ts,
        job_id=event.job_id,
        schema_version=event.schema_version,
        seq=event.seq,
        type=event.type,
        schema=event.schema,
        table=event.table,
        pre_schema=event.pre_schema,
        pre_table=event.pre_table,
        table_id=event.table_id,
        query=event.statement.source,
        raw_query=event.statement.raw,
        reprinted=False,
        before=event.before,
        after=event.after,
        other=event.other,
        start_ts=event.start_ts,
        bdr_role=event.bdr_role,
        statement=event.statement,
        steps=event.steps,
    )


def _rows_of(table: pa.Table) -> Iterable[SchemaChange]:
    columns = [table.column(name).to_pylist() for name in SchemaChange._fields]
    return (SchemaChange(*row) for row in zip(*columns, strict=True))


def _job_text(change: SchemaChange, source: JobSource) -> bytes:
    """Return the job's JSON in a row of a job table, in either row format."""
    assert change.value is not None
    column = decode_row(change.value).columns.get(source.column_id)
    text = column.value if isinstance(column, Datum) else column
    if not isinstance(text, bytes):
        raise SchemaError(f"a row of DDL jobs (key {change.key.hex()}) has no job in column {source.column_id}")
    return text
