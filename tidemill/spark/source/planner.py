"""Plans a DataFrame: which version of the table it shows, how far a batch goes, and which slices of the log its tasks read.

It runs in Python processes of Spark's: those that plan a query, and one for each stream.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.changelog import imports, initial_load
from tidemill.changelog.files.bounds import begin_of_changes, first_ts, is_covered, within
from tidemill.changelog.history import follow, load_history
from tidemill.changelog.log_format import Interval
from tidemill.changelog.reader import LogReader
from tidemill.delivery.inputs.coverage import CoverageCheck
from tidemill.delivery.plan import MAX_BATCH_BYTES, PartitionInput, chains_of, end_by_size
from tidemill.errors import LogError, SchemaChanged, SchemaError, StartTsOutOfLog
from tidemill.rules.names import nearest
from tidemill.spark.source.frame import TableFrame, table_schema
from tidemill.spark.source.limits import any_row, end_by_rows, holds_rows
from tidemill.spark.source.options import EARLIEST, LATEST, Options, Policy
from tidemill.spark.source.row_ddls import RowDdl, row_ddl
from tidemill.spark.source.slices import Packed, Slice, TableToRead
from tidemill.spark.source.spans import Span, partitions_of, spans
from tidemill.tidb.keys import is_system_schema
from tidemill.tidb.names import folded_table
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tidb.schema.tracking.lineage import origins
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tidb.types.jsonstyle import style_of
from tidemill.tso import describe

if TYPE_CHECKING:
    from tidemill.spark.cluster.captures import QueryCapture

LOST = (
    "Changes between the query's checkpoint and the log's start are lost to it: begin with a new checkpoint, from a snapshot "
    "(`tidemill resync`, initialSnapshot=true) or from earliest, and let the log keep changes for longer (retention)."
)
"""For a query that goes on at a ts which retention has removed."""
TELL_S = 60.0
"""How often a stream tells that it waits for tables."""
SLICE_BYTES = 64 << 20
"""A task reads about so many bytes of a log partition: one that has more is divided by time."""

_log = logging.getLogger(__name__)


class Planner:
    """Looks at a log for one DataFrame. Raises LogError and its kinds, SchemaError, ConfigError."""

    def __init__(self, options: Options) -> None:
        """With a cluster in the options a capture is begun. Raises what that raises."""
        self.capture = _capture_of(options)
        self.options = options if self.capture is None else replace(options, log=self.capture.log)
        options = self.options
        self.reader = LogReader(options.log)
        self._history: SchemaHistory | None = None
        self._coverage = CoverageCheck(self.reader.identity_now, self.wants, lambda: imports.noted(self.reader.storage))
        self._filter = options.filter()
        self._packs: dict[tuple[int, int, bool], Packed] = {}
        self._kept: tuple[frozenset[str] | None, frozenset[str] | None] = None, None
        self._told = float("-inf")
        self._origins: dict[int, dict[int, int]] = {}  # of columns, by table id: see `lineage.origins`
        self._origins_to = 0

    def keep_only(self, databases: frozenset[str] | None, tables: frozenset[str] | None) -> None:
        """From now on only databases and tables by these names are read; None: all."""
        self._kept = databases, tables

    def wants(self, version: TableVersion) -> bool:
        """Whether rows of a table are read."""
        if any(kept is not None and name not in kept for kept, name in zip(self._kept, version.name, strict=True)):
            return False
        if self.options.table is not None:
            return folded_table(version.name) == folded_table(self.options.table)
        return not is_system_schema(version.schema) and self._filter.matches(version.schema, version.table)

    def wants_name(self, database: str, table: str) -> bool:
        """Whether a DDL of this table, or of the whole database, is about what is read."""
        if self.options.table is not None:
            return folded_table((database, table or self.options.table[1])) == folded_table(self.options.table)
        return self._filter.matches(database, table) if table else self._filter.matches_schema(database)

    def history(self, upto_ts: int) -> SchemaHistory:
        """The schemas of the log, up to a ts that the log has reached. Those of its whole time are kept: a table may be long gone."""
        history = self._known(upto_ts)
        _readable_to(history, history.resolved_ts, upto_ts)
        return history

    def _known(self, upto_ts: int) -> SchemaHistory:
        """The same, but where FLASHBACK CLUSTER ended it before: then up to there."""
        if self._history is None:
            self._history = load_history(self.reader, may_stop=True)
        if self._history.resolved_ts < upto_ts:
            follow(self._history, self.reader, may_stop=True)
        if self._origins_to < self._history.resolved_ts:
            self._note_origins(self._history)
        return self._history

    def _note_origins(self, history: SchemaHistory) -> None:
        """Note which columns of the wanted tables are new, and which are copies of others."""
        for change in history.next_table_changes(max(self._origins_to, history.start_ts), history.resolved_ts):
            ended = {version.table_id: version for version in change.ended}
            for after in change.begun:
                before = ended.get(after.table_id)
                if before is not None and (self.wants(before) or self.wants(after)):
                    self._origins.setdefault(after.table_id, {}).update(origins(before, after, _action(history, after)))
        self._origins_to = history.resolved_ts

    def frame(self, base: TableVersion, schema: pa.Schema) -> TableFrame:
        """The columns of a DataFrame, see `TableFrame`. It knows of later DDLs too."""
        return TableFrame(base, schema, self.options.time_as, self._origins.setdefault(base.table_id, {}))

    def readable_to(self, from_ts: int, to_ts: int, has_any: Callable[[int, int], bool] = lambda begin, end: True) -> int:
        """How far what comes after from_ts can be read, to_ts at most: FLASHBACK CLUSTER changes rows and tells no changes. Raises
        SchemaError if it leaves nothing, or nothing that `has_any` sees."""
        history = self._known(to_ts)
        end = _readable_to(history, from_ts, to_ts)
        return end if end == to_ts or has_any(from_ts, end) else _readable_to(history, end, to_ts)

    def check_goes_on(self, at: int) -> None:
        """Raises SchemaError where all is read and the log ends at FLASHBACK CLUSTER: its capture has stopped there."""
        history = self._known(at)
        if history.stopped is not None:
            _readable_to(history, history.resolved_ts, history.resolved_ts + 1)

    # ---- where it begins and ends

    def first_ts(self) -> int:
        """The ts above which all lies that is read. Raises StartTsOutOfLog."""
        start = self.options.start
        if start == LATEST:
            return self.reader.resolved_ts()
        if start == EARLIEST:
            return self._first_of_all() if self.options.initial_snapshot else self.reader.start_ts
        assert isinstance(start, int), "words were handled"
        self.check_covered(start)
        return start

    def _first_of_all(self) -> int:
        """Where the tables as of the log's start lie. Raises LogError for a log that has no tables as of any ts: its changes alone would be
        taken for all rows."""
        if not initial_load.timestamps(self.reader.storage):
            raise LogError(
                f"the log has no tables as of its start {describe(self.reader.start_ts)}, and initialSnapshot asks for them",
                hint="`tidemill capture --snapshot` begins a log with them, `tidemill resync` reads a table again. Without initialSnapshot "
                "only the changes are read." + (" Another log (option log) begins with them." if self.capture else ""),
            )
        return first_ts(self.reader)

    def require_snapshots(self, from_ts: int, to_ts: int) -> None:
        """Return when the tables as of every ts in the interval that initialSnapshot reads are there. Raises LogError where nothing that
        this query started reads them, and the error that ended the query's capture."""
        for ts in self._snapshots_in(from_ts, to_ts):
            if self.capture is not None:
                self.capture.loaded(self.reader, ts)
            self._check_loaded(ts)

    def _check_loaded(self, ts: int) -> None:
        storage = self.reader.storage
        plan = initial_load.read_plan(storage, ts)
        if plan is not None and not initial_load.is_complete(storage, ts) and (missing := initial_load.missing(storage, plan)):
            raise LogError(
                f"the tables as of {describe(ts)} are still being read: {len(missing)} parts are missing",
                hint="Wait until the capture has done it, give an earlier endingTs, or leave initialSnapshot out.",
            )

    def check_covered(self, ts: int, hint: str = "Give a later startingTs, or earliest.") -> None:
        """Raises StartTsOutOfLog where the log has not all changes above a ts: retention may have moved its start since a query ran."""
        tables = self.options.initial_snapshot
        if not (is_covered(self.reader, ts, created=False) if tables else ts >= self.reader.start_ts):
            raise StartTsOutOfLog(
                f"the log holds changes from {describe(self.reader.identity.start_ts)} to {describe(self.reader.resolved_ts())}; "
                f"{describe(ts)} lies before it",
                hint=hint + (" A log of another name (option log) begins there." if self.capture else ""),
            )

    def _changes_from(self, from_ts: int) -> int:
        """The ts above which segments have what lies above `from_ts`. Raises StartTsOutOfLog where retention has removed some of it."""
        begin = begin_of_changes(self.reader, from_ts)
        if begin < self.reader.identity.start_ts:
            self.check_covered(from_ts)
        return begin

    def last_ts(self) -> int:
        """The ts up to which a DataFrame that is not a stream reads. Of a cluster it is the present, for which this waits. Raises
        StartTsOutOfLog for an end that the log has not reached, LogUnavailable."""
        resolved, end = self.reader.resolved_ts(), self.options.end
        if self.capture is not None:
            end = self.capture.now if end is None else end
            if end > self.capture.now:
                raise StartTsOutOfLog(f"endingTs {describe(end)} lies in the cluster's future", hint="Give an earlier one, or none.")
            self.capture.reached(self.reader, end)
            return end
        if end is not None and end > resolved:
            raise StartTsOutOfLog(
                f"the log is complete up to {describe(resolved)} only, not up to endingTs {describe(end)}",
                hint="Wait, give an earlier endingTs, or none.",
            )
        return resolved if end is None else end

    # ---- the table

    def base_version(self, upto_ts: int) -> TableVersion:
        """The version whose columns the DataFrame has: as of schemaTs, else the newest one up to `upto_ts`. Raises SchemaError."""
        found = self.find_version(upto_ts)
        if found is None:
            raise self._no_table(self.history(min(upto_ts, self._known(upto_ts).resolved_ts)))
        return found

    def find_version(self, upto_ts: int) -> TableVersion | None:
        """Return that version; None: the log has no such table."""
        assert self.options.table is not None, "a DataFrame of typed columns is of one table"
        wanted = self.options.schema_ts
        at = upto_ts if wanted is None or wanted < 0 else wanted
        at = min(at, self._known(at).resolved_ts)
        history = self.history(at)
        return self._version_at(history, at) or self._last_version(history, at) or self._first_version(history)

    def _version_at(self, history: SchemaHistory, ts: int) -> TableVersion | None:
        tables = history.snapshot(max(ts, history.start_ts)).tables.values()
        return next((version for version in tables if self.wants(version) and version.physical_ids), None)

    def _last_version(self, history: SchemaHistory, ts: int) -> TableVersion | None:
        """The last version before the table was dropped or renamed."""
        changes = history.next_table_changes(history.start_ts, ts)
        found = [version for change in changes for version in change.ended if self.wants(version) and version.physical_ids]
        return found[-1] if found else None

    def _first_version(self, history: SchemaHistory) -> TableVersion | None:
        changes = history.next_table_changes(history.start_ts, history.resolved_ts)
        return next((v for change in changes for v in change.begun if self.wants(v) and v.physical_ids), None)

    def _no_table(self, history: SchemaHistory) -> SchemaError:
        known = {".".join(version.name) for version in history.snapshot(history.resolved_ts).tables.values()}
        known = {name for name in known if not is_system_schema(name.partition(".")[0])}
        near = nearest(self.options.what, known)
        hint = f"Did you mean {near}?" if near else "The log has " + (", ".join(sorted(known)[:9]) or "no table") + "."
        return SchemaError(f"the log has no table {self.options.what}", hint=hint)

    def spans(self, from_ts: int, to_ts: int) -> list[Span]:
        """The spans of an interval. Raises NotCaptured and DataWithoutEvents where the log lacks rows that are wanted."""
        history = self.history(to_ts)
        found = list(spans(history, self.reader.identity, self._changes_from(from_ts), to_ts, self.wants))
        for span in found:
            self._coverage.check(history, span.from_ts, span.to_ts)
        return found

    # ---- changes of its columns

    def next_change(self, frame: TableFrame, from_ts: int, to_ts: int) -> SchemaChanged | None:
        """The first change of the columns in (from_ts, to_ts] that ends a query, as the error that ends it, see `changed_at`."""
        for span in spans(self.history(to_ts), self.reader.identity, self._changes_from(from_ts), to_ts, self.wants):
            for version in span.tables:
                if version.from_ts > frame.base.from_ts and (found := self._change(frame, version)) is not None:
                    return found
        return None

    def _change(self, frame: TableFrame, version: TableVersion) -> SchemaChanged | None:
        difference = frame.difference(version, self.options.columns)
        policy = self.options.policy
        if not difference or (policy is Policy.ADD_COLUMNS and not difference.others):
            return None
        error = SchemaChanged(f"{self._ddl_at(version)}: {difference}", hint=_HINTS[policy])
        error.add_note(str(version.from_ts))
        return error

    # ---- DDLs that change rows

    def row_ddls(self, frame: TableFrame, from_ts: int, to_ts: int) -> list[RowDdl]:
        """The DDLs in (from_ts, to_ts] that change rows of the table without changes."""
        history = self.history(to_ts)
        events = history.ddl_events(max(from_ts, history.start_ts), to_ts, self._may_change_rows)
        found = (row_ddl(event, self.wants, frame, self._in_schema(history, event)) for event in events)
        return [ddl for ddl in found if ddl is not None]

    def _may_change_rows(self, event: DdlEvent) -> bool:
        versions = (version for version in (event.before, event.after, event.other) if version is not None)
        return any(self.wants(version) for version in versions) or (not event.table and self.wants_name(event.schema, ""))

    def _in_schema(self, history: SchemaHistory, event: DdlEvent) -> TableVersion | None:
        """The table, where a DDL is of its whole schema."""
        if event.table:
            return None
        return self._version_at(history, event.ts - 1) or self._version_at(history, event.ts)

    def kept_names(self, name: tuple[str, str]) -> bool:
        """Whether rows of a table by this name are read, see `keep_only`."""
        return all(kept is None or one in kept for kept, one in zip(self._kept, name, strict=True))

    def is_hurt(self, version: TableVersion, ts: int) -> bool:
        """Whether a version lacks columns that the table had just past a ts, or has them otherwise."""
        history = self.history(ts)
        then = self._version_at(history, ts) or self._last_version(history, ts)
        if then is None:
            return False
        known = {column.name.lower() for column in then.info.output_columns}
        options = replace(self.options, columns=tuple(name for name in self.options.columns if name.lower() in known))
        frame = self.frame(then, table_schema(then, options))
        return bool(frame.difference(version, options.columns).others)

    def _ddl_at(self, version: TableVersion) -> str:
        """What changed the table, in the words of its DDL."""
        name, at = ".".join(version.name), version.from_ts
        events = [e for e in self.history(at).ddl_events(at - 1, at) if version.table_id in _ids_of(e)]
        text = f": {events[-1].query}" if events else ""
        return f"the columns of {name} changed at {describe(at)}{text}"

    def ddls_of(self, version: TableVersion, from_ts: int) -> list[str]:
        """The DDLs above `from_ts` that have led to a version."""
        events = self.history(version.from_ts).ddl_events(max(from_ts, self._begin), version.from_ts)
        return [event.query for event in events if version.table_id in _ids_of(event)]

    @property
    def _begin(self) -> int:
        return self._history.start_ts if self._history is not None else 0

    # ---- batches

    def end_of_batch(self, from_ts: int, to_ts: int, *, max_rows: int = 0, max_bytes: int = 0) -> int:
        """Where a batch after from_ts ends, at `to_ts` at most. Batches end between transactions."""
        if initial_load.next_plan(self.reader.storage, from_ts) is not None and self.options.initial_snapshot:
            to_ts = self._before_snapshot(from_ts, to_ts)
        inputs = [PartitionInput(p, tuple(intervals), sizes) for p, intervals, sizes in self._inputs(from_ts, to_ts)]
        to_ts = max(end_by_size(inputs, to_ts, max_bytes or MAX_BATCH_BYTES), from_ts)
        if max_rows:
            to_ts = end_by_rows(self._pieces(from_ts, to_ts), to_ts, max_rows)
        return to_ts

    def _before_snapshot(self, from_ts: int, to_ts: int) -> int:
        """The instant of an initial load is a batch of its own; there is none yet while its tables are still being read."""
        plan = initial_load.next_plan(self.reader.storage, from_ts)
        if plan is None or plan.ts > to_ts:
            return to_ts
        if plan.ts > from_ts + 1:
            return plan.ts - 1
        storage = self.reader.storage
        missing = [] if initial_load.is_complete(storage, plan.ts) else initial_load.missing(storage, plan)
        if missing and time.monotonic() - self._told >= TELL_S:
            self._told = time.monotonic()
            _log.warning("the query waits for the tables as of %s: %d parts are still to be read", describe(plan.ts), len(missing))
        return from_ts if missing else plan.ts

    def holds_rows(self, from_ts: int, to_ts: int) -> bool:
        """Whether an interval may have rows. On an object store this looks at names of files only."""
        return holds_rows(self._pieces(from_ts, to_ts), look=self.reader.storage.local) or bool(self._snapshots_in(from_ts, to_ts))

    def _snapshots_in(self, from_ts: int, to_ts: int) -> list[int]:
        """The ts of the initial loads in (from_ts, to_ts]."""
        if not self.options.initial_snapshot:
            return []
        return [plan.ts for plan in initial_load.plans(self.reader.storage, from_ts + 1) if plan.ts <= to_ts]

    def _inputs(self, from_ts: int, to_ts: int) -> Iterator[tuple[int, list[Interval], tuple[int, ...]]]:
        begin = self._changes_from(from_ts)
        for p in range(self.reader.partitions if to_ts > begin else 0):
            intervals = self.reader.chain(p, begin, to_ts)
            yield p, intervals, tuple(self.reader.partition_bytes(one) for one in intervals)

    def bytes_in(self, from_ts: int, to_ts: int) -> int:
        """The bytes of the files that have the rows of an interval; they may have others too."""
        return sum(sum(sizes) for _, _, sizes in self._inputs(from_ts, to_ts))

    def _pieces(self, from_ts: int, to_ts: int) -> Iterator[Slice]:
        yield from self.slices(from_ts, to_ts, None, with_snapshot=False)

    def slices(self, from_ts: int, to_ts: int, frame: TableFrame | None, *, with_snapshot: bool = True) -> Iterator[Slice]:
        """What tasks read of (from_ts, to_ts]: each slice is of one log partition, and of one version of each table."""
        for span in self.spans(from_ts, to_ts):
            for p, versions in partitions_of(self.reader.identity, span).items():
                tables = tuple(self._packed(one, frame) for one in versions)
                for chains, begin, end in self._divided(self.reader.chain(p, span.from_ts, span.to_ts), span):
                    if not self.reader.storage.local or any_row(chains, begin, end):
                        yield Slice(chains, begin, end, tables, span.style)
        for ts in self._snapshots_in(from_ts, to_ts) if with_snapshot else ():
            yield from self._snapshot_slices(ts, frame)

    def _packed(self, version: TableVersion, frame: TableFrame | None) -> Packed:
        key = version.table_id, version.from_ts, frame is None
        if key not in self._packs:
            self._packs[key] = Packed.of(TableToRead(version, tuple(frame.columns_in(version)) if frame is not None else ()))
        return self._packs[key]

    def _divided(self, intervals: Sequence[Interval], span: Span) -> Iterator[tuple[tuple[tuple[str, ...], ...], int, int]]:
        """A chain, in pieces of about SLICE_BYTES: the files and the interval of each."""
        taken: list[Interval] = []
        size, begin = 0, span.from_ts
        for number, one in enumerate(intervals):
            taken.append(one)
            size += self.reader.partition_bytes(one)
            is_last = number == len(intervals) - 1
            if size < SLICE_BYTES and not is_last:
                continue
            end = span.to_ts if is_last else min(one.to_ts, span.to_ts)
            yield tuple(chains_of([i.parts for i in taken])), begin, end
            taken, size, begin = [], 0, end

    def _snapshot_slices(self, ts: int, frame: TableFrame | None) -> Iterator[Slice]:
        """The tables as of the instant of an initial load."""
        storage = self.reader.storage
        plan = initial_load.read_plan(storage, ts)
        if plan is None:
            return
        self._check_loaded(ts)
        history = self.history(within(self.reader.start_ts, ts))
        tables = history.snapshot(within(history.start_ts, ts)).tables
        style = style_of(self.reader.identity.version_at(ts) or "")
        for table_id, files in initial_load.paths(storage, plan).items():
            version = tables.get(table_id)
            if version is None or not self.wants(version) or not files:
                continue
            for file in files:
                yield Slice(((file,),), ts - 1, ts, (self._packed(version, frame),), style)


def _capture_of(options: Options) -> QueryCapture | None:
    """The capture of the cluster in the options."""
    if options.cluster is None:
        return None
    from tidemill.spark.cluster.captures import Wanted, begin  # gRPC, which a DataFrame of a log does not need

    start = options.start if isinstance(options.start, int) else None
    return begin(Wanted(options.cluster, options.log, options.capture_rules, start, options.initial_snapshot))


def _readable_to(history: SchemaHistory, from_ts: int, to_ts: int) -> int:
    try:
        return history.readable_to(from_ts, to_ts)
    except SchemaError as error:
        raise SchemaError(
            error.message,
            hint=f"endingTs={history.resolved_ts} reads what lies before it. What comes after it is in a new log, which `tidemill capture "
            "--snapshot` begins with the rows as they are now: read it with initialSnapshot=true and a new checkpoint.",
        ) from None


def changed_at(error: SchemaChanged) -> int:
    """The ts of the change: rows up to it have the columns that are known."""
    return int(error.__notes__[0])


def _action(history: SchemaHistory, version: TableVersion) -> int:
    """The code of the DDL with which a version begins; 0 where it is not one alone."""
    at = version.from_ts
    types = [event.type for event in history.ddl_events(at - 1, at, lambda event: version.table_id in _ids_of(event))]
    return types[0] if len(types) == 1 else 0


def _ids_of(event: DdlEvent) -> set[int]:
    return {event.table_id, *(v.table_id for v in (event.before, event.after, event.other) if v is not None)}


_HINTS = {
    Policy.FAIL: "All changes before it were read. To go on with the table's new columns, start the query again with schemaTs=latest once, "
    "or with schemaChangePolicy=restart. With addColumns, added columns do not end a query.",
    Policy.RESTART: "All changes before it were read. Start the query again: it goes on with the table's new columns.",
    Policy.ADD_COLUMNS: "All changes before it were read. addColumns allows columns that are added, no other change: start the query again "
    "with schemaTs=latest once.",
}
