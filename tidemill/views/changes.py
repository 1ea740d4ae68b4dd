"""The changes of a view's tables, out of a change log. This module does IO.

A table's rows come from `tidemill.spark.source`, as for DataFrames, but in this process and without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidemill.changelog import initial_load
from tidemill.changelog.files.bounds import within
from tidemill.changelog.reader import LogReader
from tidemill.rules.names import did_you_mean
from tidemill.spark.source.frame import TableFrame
from tidemill.spark.source.options import Kind, Options
from tidemill.spark.source.planner import Planner, changed_at
from tidemill.spark.source.slices import Manner
from tidemill.tidb.columns.forms import Form, column_type
from tidemill.tidb.keys import is_system_schema
from tidemill.tidb.names import folded_table
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tso import describe
from tidemill.views.plan import Column, Table
from tidemill.views.refusal import ViewStopped, refuse
from tidemill.visible import short_statement

CHANGE = "_change_type"
_KEY_FORMS = {Form.INTEGER, Form.UNSIGNED, Form.DECIMAL, Form.BYTES, Form.ENUM}
"""Columns whose values are told apart as TiDB tells them apart. A date outside the calendar is null, so it does not find its row again."""

_ENDS = {
    Action.DROP_TABLE: "the table is gone",
    Action.DROP_SCHEMA: "the table is gone",
    Action.RENAME_TABLE: "the table has another name",
    Action.RENAME_TABLES: "the table has another name",
    Action.DROP_TABLE_PARTITION: "rows go, and no change says which",
    Action.TRUNCATE_TABLE_PARTITION: "rows go, and no change says which",
    Action.EXCHANGE_PARTITION: "rows come and go, and no change says which",
    Action.RECOVER_TABLE: "rows come back, and no change says which",
    Action.RECOVER_SCHEMA: "rows come back, and no change says which",
    Action.FLASHBACK_CLUSTER: "rows become those of an earlier time, and no change says which",
}


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a view begins: the changes above `ts`; or, with `snapshot`, the tables of the initial load at ts + 1, then the changes."""

    ts: int
    snapshot: bool


class Catalog:
    """The tables of a log as they are now."""

    def __init__(self, reader: LogReader, planner: Planner) -> None:
        self._reader, self._planner = reader, planner

    @classmethod
    def open(cls, log: str) -> Catalog:
        """Look at a log. Raises LogError and its kinds."""
        planner = Planner(Options(log=log, kind=Kind.ROWS))
        return cls(planner.reader, planner)

    @property
    def resolved_ts(self) -> int:
        """How far the log is."""
        return self._reader.resolved_ts()

    def find(self, database: str, name: str) -> Table | None:
        """Return a table with all of its columns. Raises ViewRefused, with the nearest name, if there is none."""
        version = self.version(database, name)
        if version is None:
            known = [".".join(one.name) for one in self._versions() if not is_system_schema(one.schema)]
            raise refuse(f"the log has no table {database}.{name}{did_you_mean(f'{database}.{name}', known)}")
        info, infos = version.info, list(version.info.output_columns)
        columns = tuple(
            Column(one.name, column_type(one).arrow, not one.not_null or column_type(one).form not in _KEY_FORMS) for one in infos
        )
        wanted = set(info.handle_key_ids)
        keys = [i for i, one in enumerate(infos) if one.id in wanted]
        usable = all(column_type(infos[i]).form in _KEY_FORMS for i in keys) and len(keys) == len(wanted)
        return Table(version.schema, version.table, columns, tuple(keys) if usable else ())

    def version(self, database: str, name: str) -> TableVersion | None:
        """Return the newest version of a table."""
        return next((one for one in self._versions() if folded_table(one.name) == folded_table((database, name))), None)

    def _versions(self) -> Iterator[TableVersion]:
        history = self._planner.history(self.resolved_ts)
        return iter([one for one in history.snapshot(history.resolved_ts).tables.values() if one.physical_ids])

    def begin(self, tables: Sequence[Table]) -> Begin:
        """Return the latest ts from which the log knows all rows of these tables. Raises ViewRefused if there is none."""
        why = ""
        for begin in self._begins(tables):
            why = next((found for table in tables if (found := self._lacks(begin, table))), "")
            if not why:
                return begin
        raise refuse(
            why,
            "A log that `tidemill run --snapshot` or `tidemill capture --snapshot` begins has the rows; "
            "`tidemill resync` reads tables again.",
        )

    def _begins(self, tables: Sequence[Table]) -> list[Begin]:
        """Where a view might begin, the latest first: at an initial load, where a table was dropped, where the log begins."""
        storage, start_ts = self._reader.storage, self._reader.start_ts
        found = [Begin(start_ts, False)]
        for plan in initial_load.plans(storage, start_ts):
            if plan.ts <= self.resolved_ts and (initial_load.is_complete(storage, plan.ts) or not initial_load.missing(storage, plan)):
                found.append(Begin(plan.ts - 1, True))
        for table in tables:
            planner = Planner(_options(self._planner.options.log, table, self.resolved_ts, snapshot=False))
            events = _events(planner, table, start_ts, self.resolved_ts)
            found += [Begin(event.ts, False) for event in events if event.type in (Action.DROP_TABLE, Action.DROP_SCHEMA)]
        return sorted(found, key=lambda begin: begin.ts, reverse=True)

    def _lacks(self, begin: Begin, table: Table) -> str:
        """Why a view over a table cannot begin there; empty if it can."""
        at = begin.ts + 1 if begin.snapshot else begin.ts
        history = self._planner.history(self.resolved_ts)
        versions = history.snapshot(within(history.start_ts, at)).tables.values()
        version = next(
            (one for one in versions if folded_table(one.name) == folded_table((table.database, table.name)) and one.physical_ids), None
        )
        if version is not None:
            plan = initial_load.read_plan(self._reader.storage, at) if begin.snapshot else None
            if plan is None or version.table_id not in {one.table_id for one in plan.tables}:
                return f"the log does not have the rows that {table} had at {describe(at)}, where it begins"
        return self._changed_since(begin, table)

    def _changed_since(self, begin: Begin, table: Table) -> str:
        newest = self.version(table.database, table.name)
        assert newest is not None, "it was found"
        planner = Planner(_options(self._planner.options.log, table, newest.from_ts, snapshot=False))
        frame = _frame(planner, table, newest.from_ts)
        history = planner.history(self.resolved_ts)
        earlier = [one for change in history.next_table_changes(begin.ts, newest.from_ts) for one in (*change.ended, *change.begun)]
        for version in earlier:
            if version.physical_ids and planner.wants(version) and (difference := frame.difference(version, planner.options.columns)):
                return f"{table} had other columns after {describe(begin.ts)}, where the view would begin: {difference}"
        for event in _events(planner, table, begin.ts, self.resolved_ts):
            if event.type in _ENDS:
                return f"{table}: {_ENDS[Action(event.type)]} by a DDL at {describe(event.ts)}: {short_statement(event.query)}"
        return ""


class TableChanges:
    """Reads the changes of one table. Raises LogError and its kinds, MalformedRow, ViewStopped."""

    def __init__(self, log: str, table: Table, base_ts: int) -> None:
        """`base_ts`: a ts at which the table had the columns that the view reads."""
        self.table = table
        self._planner = Planner(_options(log, table, base_ts, snapshot=False))
        self._loads = Planner(_options(log, table, base_ts, snapshot=True))
        self.frame = _frame(self._planner, table, base_ts)
        schema = pa.schema([*(pa.field(one.name, one.type) for one in table.columns), pa.field(CHANGE, pa.string())])
        self._manner = Manner(Kind.TABLE, schema)
        self.schema = schema

    @property
    def reader(self) -> LogReader:
        """The log."""
        return self._planner.reader

    def end_of_batch(self, from_ts: int, to_ts: int, max_bytes: int) -> int:
        """Return where an interval of about so many bytes ends."""
        return self._planner.end_of_batch(from_ts, to_ts, max_bytes=max_bytes)

    def readable_to(self, from_ts: int, to_ts: int) -> int:
        """Return where an interval ends for FLASHBACK CLUSTER. Raises SchemaError just before it."""
        return self._planner.readable_to(from_ts, to_ts)

    def ddls(self, from_ts: int, to_ts: int) -> list[DdlEvent]:
        """Return the DDLs in (from_ts, to_ts] that are about the table."""
        return _events(self._planner, self.table, from_ts, to_ts)

    def check(self, event: DdlEvent) -> None:
        """Raises ViewStopped for a DDL after which the view cannot go on."""
        why = _ENDS.get(Action(event.type)) if event.type in set(Action) else None
        if why is None and (changed := self._planner.next_change(self.frame, event.ts - 1, event.ts + 1)) is not None:
            why = changed.message.rpartition(": ")[2]
        if why is not None:
            raise ViewStopped(
                f"{self.table}: {why} since the DDL at {describe(event.ts)}: {short_statement(event.query)}",
                hint="The view stays as it was just before. Drop it and create it again, over the table as it is now.",
            )

    def changes(self, from_ts: int, to_ts: int, *, snapshot: bool) -> pa.RecordBatchReader | None:
        """Return the changes of (from_ts, to_ts] as rows with CHANGE; None if there are none. `snapshot`: those of an initial load."""
        from tidemill.spark.source.reading import read_slice  # kernels take a second to load

        planner = self._loads if snapshot else self._planner
        batches = (batch for one in planner.slices(from_ts, to_ts, self.frame) for batch in read_slice(one, self._manner))
        first = next(batches, None)
        if first is None:
            return None

        def every() -> Iterator[pa.RecordBatch]:
            yield first
            yield from batches

        return pa.RecordBatchReader.from_batches(self.schema, every())


def _options(log: str, table: Table, base_ts: int, *, snapshot: bool) -> Options:
    names = tuple(one.name for one in table.columns)
    name = (table.database, table.name)
    return Options(log=log, kind=Kind.TABLE, table=name, schema_ts=base_ts, columns=names, initial_snapshot=snapshot)


def _frame(planner: Planner, table: Table, base_ts: int) -> TableFrame:
    schema = pa.schema([pa.field(one.name, one.type) for one in table.columns])
    return planner.frame(planner.base_version(base_ts), schema)


def _events(planner: Planner, table: Table, from_ts: int, to_ts: int) -> list[DdlEvent]:
    history = planner.history(to_ts)

    def wanted(event: DdlEvent) -> bool:
        if event.type == Action.FLASHBACK_CLUSTER:
            return True
        names = ((event.schema, event.table), (event.pre_schema, event.pre_table))
        return any(planner.wants_name(*name) for name in names if name[0])

    return history.ddl_events(max(from_ts, history.start_ts), to_ts, wanted)


__all__ = ["CHANGE", "Begin", "Catalog", "TableChanges", "changed_at"]
