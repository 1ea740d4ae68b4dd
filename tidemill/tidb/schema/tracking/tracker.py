"""DDL jobs followed through their steps: the events of each job, and their place in time.

An event stands at the first transaction of its job that changes the public view of a table. A job without such a transaction stands
where it is done. The rows up to that ts decide this, so nothing waits for a running job.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from tidemill.tidb.keys import is_system_schema
from tidemill.tidb.names import folded
from tidemill.tidb.schema.codes import Action, JobState
from tidemill.tidb.schema.events import RenameStep
from tidemill.tidb.schema.job import DdlJob, Rename
from tidemill.tidb.schema.tracking import statements
from tidemill.tidb.schema.tracking.catalog import Catalog
from tidemill.tidb.schema.tracking.named import Name
from tidemill.tidb.schema.tracking.renames import Move, in_order, steps_of
from tidemill.tidb.schema.tracking.statements import Statement
from tidemill.tidb.schema.tracking.versions import Change, TableVersion
from tidemill.tidb.schema.tracking.view import statement_view

SENT_ACTIONS = frozenset(
    {
        Action.CREATE_SCHEMA,
        Action.DROP_SCHEMA,
        Action.CREATE_TABLE,
        Action.DROP_TABLE,
        Action.ADD_COLUMN,
        Action.DROP_COLUMN,
        Action.ADD_INDEX,
        Action.DROP_INDEX,
        Action.ADD_FOREIGN_KEY,
        Action.DROP_FOREIGN_KEY,
        Action.TRUNCATE_TABLE,
        Action.MODIFY_COLUMN,
        Action.REBASE_AUTO_ID,
        Action.RENAME_TABLE,
        Action.SET_DEFAULT_VALUE,
        Action.MODIFY_TABLE_COMMENT,
        Action.RENAME_INDEX,
        Action.ADD_TABLE_PARTITION,
        Action.DROP_TABLE_PARTITION,
        Action.CREATE_VIEW,
        Action.MODIFY_TABLE_CHARSET,
        Action.TRUNCATE_TABLE_PARTITION,
        Action.DROP_VIEW,
        Action.RECOVER_TABLE,
        Action.MODIFY_SCHEMA_CHARSET,
        Action.ADD_PRIMARY_KEY,
        Action.DROP_PRIMARY_KEY,
        Action.ADD_COLUMNS,
        Action.DROP_COLUMNS,
        Action.ALTER_INDEX_VISIBILITY,
        Action.EXCHANGE_PARTITION,
        Action.RENAME_TABLES,
        Action.CREATE_TABLES,
        Action.MULTI_SCHEMA_CHANGE,
        Action.REORGANIZE_PARTITION,
        Action.ALTER_TTL,
        Action.REMOVE_TTL,
        Action.ALTER_PARTITIONING,
        Action.REMOVE_PARTITIONING,
    }
)
"""The DDLs that are delivered (TiCDC's list). All others only change the schema."""

_SCHEMA_ACTIONS = frozenset({Action.CREATE_SCHEMA, Action.DROP_SCHEMA, Action.MODIFY_SCHEMA_CHARSET})
_CREATES = frozenset({Action.CREATE_TABLE, Action.CREATE_VIEW, Action.RECOVER_TABLE, Action.CREATE_TABLES})
_DROPS = frozenset({Action.DROP_TABLE, Action.DROP_VIEW})
_SEVERAL_TABLES = frozenset({Action.RENAME_TABLES, Action.CREATE_TABLES, Action.EXCHANGE_PARTITION})

_GIVEN_UP = frozenset({JobState.ROLLBACK_DONE, JobState.CANCELLED})

_ALWAYS_VISIBLE = frozenset(
    {
        Action.ADD_COLUMN,
        Action.DROP_COLUMN,
        Action.ADD_COLUMNS,
        Action.DROP_COLUMNS,
        Action.ADD_INDEX,
        Action.DROP_INDEX,
        Action.DROP_INDEXES,
        Action.RENAME_INDEX,
        Action.ADD_PRIMARY_KEY,
        Action.DROP_PRIMARY_KEY,
        Action.MODIFY_COLUMN,
        Action.RENAME_TABLE,
        Action.RENAME_TABLES,
        Action.ADD_TABLE_PARTITION,
        Action.DROP_TABLE_PARTITION,
        Action.TRUNCATE_TABLE_PARTITION,
        Action.REORGANIZE_PARTITION,
        Action.ALTER_PARTITIONING,
        Action.REMOVE_PARTITIONING,
    }
)
"""Actions that always change a table's public view. A done job of these that changed nothing since the bootstrap did so before it."""


@dataclass(slots=True)
class PlacedDdl:
    """A DDL event at its place in time; `done_ts` is 0 until its job is done."""

    ts: int
    done_ts: int
    job_id: int
    schema_version: int
    seq: int
    type: int
    schema: str
    table: str
    pre_schema: str
    pre_table: str
    table_id: int
    statement: Statement
    before: TableVersion | None
    after: TableVersion | None
    start_ts: int
    other: TableVersion | None = None  # EXCHANGE PARTITION: the plain table before it
    done: TableVersion | None = None  # the table when the job was done
    bdr_role: str = ""  # empty as well if another change data capture ran it
    printed: tuple[str, bool] | None = None  # the text that is sent, and whether it is printed as TiDB prints it
    names: dict[Name, Name] | None = None  # see DdlEvent
    steps: tuple[RenameStep, ...] = ()  # see DdlEvent

    @property
    def order(self) -> tuple[int, int, int]:
        """The key that sorts events."""
        return self.ts, self.schema_version, self.seq


class Seen(enum.Enum):
    """How much of a job's effect the log holds."""

    WHOLE = "all of the job, or all since before it first changed its table"
    PARTLY = "only the job's end: the effect may have become public before the log begins"
    PUBLIC = "the effect is public"


class Step(enum.Enum):
    """What a step of a job does to the public views of tables."""

    QUIET = "nothing, and more steps follow"
    CHANGES = "changes one, while the job runs or as it ends"
    UNDOES = "changes one, while the job is rolled back"
    ENDS = "nothing, and the job is done: its kind of DDL may change no public view at all"
    ENDS_BEHIND = "nothing, and the job is done: its kind of DDL always changes one, so it did so in a step before"


_W, _P = Seen.WHOLE, Seen.PARTLY
_STANDS = frozenset({(_W, Step.CHANGES), (_W, Step.ENDS), (_W, Step.ENDS_BEHIND), (_P, Step.CHANGES), (_P, Step.ENDS)})
"""The steps at which a job's event stands. There is none once the effect is public."""


@dataclass(slots=True)
class _Track:
    """A running job."""

    seen: Seen
    meta_seen: bool = False
    placed: list[PlacedDdl] = field(default_factory=list)

    def stands(self, step: Step) -> bool:
        """Take a step. Returns whether the event stands here."""
        stands = (self.seen, step) in _STANDS
        if step is not Step.QUIET:
            self.seen = Seen.PUBLIC
        return stands


def _step(job: DdlJob, changes: Sequence[Change]) -> Step:
    if _is_visible(changes):
        return Step.CHANGES if job.state == JobState.RUNNING or job.is_done else Step.UNDOES
    if not job.is_done or job.schema_version <= 0:
        return Step.QUIET
    return Step.ENDS_BEHIND if any(action in _ALWAYS_VISIBLE for action in job.actions) else Step.ENDS


Fallback = Callable[[DdlJob], Sequence[Change]]
"""Applies a done job whose meta keys the log does not have."""


class JobTracker:
    """All jobs since the bootstrap."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tracks: dict[int, _Track] = {}
        self._done: dict[int, int | None] = {}  # job id -> ts at which its row was removed, None while it is there

    def is_done(self, job_id: int) -> bool:
        """Return whether the job's end has been seen."""
        return job_id in self._done

    def remove(self, job_id: int, ts: int) -> None:
        """Note that the job's row was removed. No more steps of it follow."""
        self._tracks.pop(job_id, None)
        if job_id in self._done:
            self._done[job_id] = ts

    def forget(self, ts: int) -> None:
        """Forget jobs whose row was removed at or before ts. A job whose row is still there may be written again."""
        self._done = {job_id: removed for job_id, removed in self._done.items() if removed is None or removed > ts}

    def follow(self, job: DdlJob, ts: int, changes: Sequence[Change], meta_seen: bool, fallback: Fallback) -> list[PlacedDdl]:
        """Follow one step of a job, with what its transaction changed. Returns the events that stand here."""
        if job.id in self._done:
            return []
        if job.id not in self._tracks:
            self._tracks[job.id] = self._begun(job, changes)
        track = self._tracks[job.id]
        track.meta_seen |= meta_seen
        if job.is_done and not track.meta_seen:
            changes = fallback(job)
        stands = track.stands(_step(job, changes))
        if job.is_done:
            self._done[job.id] = None
        events = self._place(job, ts, changes) if stands and job.action in SENT_ACTIONS else []
        track.placed += events
        if job.is_done:
            for event in track.placed:
                event.done_ts = ts
                if event.after is not None and job.action not in _SEVERAL_TABLES:
                    event.done = _Around(self._catalog, changes).after(job)
        if job.is_done or job.state in _GIVEN_UP:
            del self._tracks[job.id]
        return events

    def _begun(self, job: DdlJob, changes: Sequence[Change]) -> _Track:
        """Return the track of a job that is seen for the first time. A table's description holds the ts of its last change. If that is
        before the job was queued, no step of the job was missed."""
        before = _Around(self._catalog, changes).before(job.table_id)
        untouched = before is not None and 0 < before.info.update_ts < job.start_ts
        return _Track(Seen.WHOLE if untouched or job.state in (JobState.QUEUEING, JobState.NONE) else Seen.PARTLY)

    def _place(self, job: DdlJob, ts: int, changes: Sequence[Change]) -> list[PlacedDdl]:
        if is_system_schema(job.schema_name):
            return []
        around = _Around(self._catalog, changes)
        match job.action:
            case action if action in _SCHEMA_ACTIONS:
                events = [self._schema_event(job, ts)]
            case Action.RENAME_TABLES:
                events = self._renames(job, ts, around)
            case Action.CREATE_TABLES:
                events = self._created(job, ts, around)
            case Action.EXCHANGE_PARTITION:
                events = [self._exchanged(job, ts, around)]
            case _:
                events = [self._single(job, ts, around)]
        return events

    def _event(
        self,
        job: DdlJob,
        ts: int,
        name: tuple[str, str],
        statement: Statement,
        *,
        seq: int = 0,
        kind: int | None = None,
        pre: tuple[str, str] = ("", ""),
        table_id: int = 0,
        before: TableVersion | None = None,
        after: TableVersion | None = None,
        other: TableVersion | None = None,
    ) -> PlacedDdl:
        return PlacedDdl(
            ts=ts,
            done_ts=0,
            job_id=job.id,
            schema_version=job.schema_version or self._catalog.schema_version,
            seq=seq,
            type=int(job.action) if kind is None else kind,
            schema=name[0],
            table=name[1],
            pre_schema=pre[0],
            pre_table=pre[1],
            table_id=table_id,
            statement=statement,
            before=before,
            after=after,
            start_ts=job.start_ts,
            other=other,
            bdr_role="" if job.by_cdc else job.bdr_role,
        )

    def _schema_event(self, job: DdlJob, ts: int) -> PlacedDdl:
        return self._event(job, ts, (job.schema_name, ""), statements.written(job))

    def _single(self, job: DdlJob, ts: int, around: _Around) -> PlacedDdl:
        before = None if job.action in _CREATES else around.before(job.table_id)
        after = None if job.action in _DROPS else around.after(job)
        version = after or before
        name = version.name if version is not None else _name_in(job)
        pre = before.name if before is not None else ("", "")
        if job.action in _DROPS and before is None:
            pre = name
        if job.action == Action.DROP_TABLE:
            statement = statements.dropped_table(job, *name)
        elif job.action == Action.DROP_VIEW:
            statement = statements.dropped_view(job, *name)
        elif job.action == Action.RENAME_TABLE and folded(pre[0]) not in ("", folded(name[0])):
            statement = statements.moved_table(job, pre, name)
        elif job.action == Action.CREATE_TABLE and job.sources:
            statement = statements.created_table(job)
        else:
            statement = statements.written(job)
        table_id = version.table_id if version is not None else job.table_id
        return self._event(job, ts, name, statement, pre=pre, table_id=table_id, before=before, after=after)

    def _renames(self, job: DdlJob, ts: int, around: _Around) -> list[PlacedDdl]:
        """Return one event for each table, from its first name to its last, also where the statement names the table twice."""
        pairs = self._pairs(job.renames, around)
        moves: dict[int, Move] = {}
        for pair in pairs:
            moves[pair.table_id] = replace(moves.get(pair.table_id, pair), new=pair.new)
        steps = steps_of(pairs)
        ordered = in_order([move for move in moves.values() if move.old != move.new])
        return [self._renamed(job, ts, around, seq, move, steps.get(move.table_id, ())) for seq, move in enumerate(ordered)]

    def _pairs(self, renames: Sequence[Rename], around: _Around) -> list[Move]:
        """Return the pairs of the statement; the first and the last name of each table as the catalogue has them."""
        pairs: list[Move] = []
        names: dict[int, Name] = {}
        last = {rename.table_id: place for place, rename in enumerate(renames)}
        for place, rename in enumerate(renames):
            before, after = around.before(rename.table_id), around.tables.get(rename.table_id)
            first = before.name if before is not None else (rename.old_schema, rename.old_table)
            is_last = last[rename.table_id] == place
            new = after.name if after is not None and is_last else (self._schema_name(rename.new_schema_id), rename.new_table)
            pairs.append(Move(rename.table_id, names.get(rename.table_id, first), new))
            names[rename.table_id] = new
        return pairs

    def _renamed(self, job: DdlJob, ts: int, around: _Around, seq: int, move: Move, steps: tuple[RenameStep, ...]) -> PlacedDdl:
        """Return the event of one table's rename, as if the statement renamed only this table."""
        event = self._event(
            job,
            ts,
            move.new,
            statements.renamed_table(job, move.old, move.new),
            seq=seq,
            kind=Action.RENAME_TABLE,
            pre=move.old,
            table_id=move.table_id,
            before=around.before(move.table_id),
            after=around.tables.get(move.table_id),
        )
        event.steps = steps
        return event

    def _schema_name(self, schema_id: int) -> str:
        database = self._catalog.databases.get(schema_id)
        return database.name if database is not None else ""

    def _created(self, job: DdlJob, ts: int, around: _Around) -> list[PlacedDdl]:
        versions = [around.tables[table_id] for table_id in job.created_ids if table_id in around.tables]
        texts = statements.created_tables(job, len(versions))
        return [
            self._event(job, ts, version.name, text, seq=seq, table_id=version.table_id, after=version)
            for seq, (version, text) in enumerate(zip(versions, texts, strict=True))
        ]

    def _exchanged(self, job: DdlJob, ts: int, around: _Around) -> PlacedDdl:
        """Return the event of EXCHANGE PARTITION. It is about the partitioned table; `pre` names the plain one."""
        plain = around.before(job.table_id)
        plain_name = plain.name if plain is not None else (job.schema_name, job.table_name)
        table_id = job.exchange.table_id if job.exchange is not None else 0
        before, after = around.before(table_id), around.tables.get(table_id)
        name = after.name if after is not None else _name_in(job)
        statement = statements.exchanged_partition(job, name, plain_name)
        return self._event(job, ts, name, statement, pre=plain_name, table_id=table_id, before=before, after=after, other=plain)


def _is_visible(changes: Sequence[Change]) -> bool:
    """Return whether users' statements see a difference. They do not if a table only gets another logical id."""
    before = [statement_view(c.before.schema, c.before.info) for c in changes if c.before is not None]
    after = [statement_view(c.after.schema, c.after.info) for c in changes if c.after is not None]
    return len(before) != len(after) or any(view not in after for view in before)


def _name_in(job: DdlJob) -> tuple[str, str]:
    """Return schema and table as the job itself names them."""
    return job.schema_name, job.table_info.name if job.table_info is not None else job.table_name


class _Around:
    """The tables just before and just after a transaction."""

    def __init__(self, catalog: Catalog, changes: Iterable[Change]) -> None:
        self.tables = catalog.tables
        self._changed = {change.table_id: change for change in changes}

    def before(self, table_id: int) -> TableVersion | None:
        """Return the version before the transaction."""
        change = self._changed.get(table_id)
        return change.before if change is not None else self.tables.get(table_id)

    def after(self, job: DdlJob) -> TableVersion | None:
        """Return the version of the job's table after the transaction, under whatever id."""
        if job.table_info is not None and job.table_info.id in self.tables:
            return self.tables[job.table_info.id]
        if job.table_id in self.tables:
            return self.tables[job.table_id]
        begun = [c.after for c in self._changed.values() if c.after is not None]
        return begun[0] if len(begun) == 1 else None
