"""The timelines of tests/golden/tikv/ddl_windows: one DDL each with concurrent writers, told in summaries.

A summary says less than TiDB stored (names, ids and states of columns and indexes, ids of partitions); this adapter makes meta keys
and job rows of it. Where a timeline lacks a table's meta changes (it kept one table id each), they are added as the facts tell them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.support.schema import schemas as s
from tidemill.tidb import keys
from tidemill.tidb.schema.codes import Action, JobState
from tidemill.tidb.schema.tracking.history import SchemaChange, SchemaHistory

SCHEMA_ID = 100
JOB_ID = 7

_ROW = re.compile(r"ROW phys=(\d+) handle=(-?\d+) (Put|Del)(?: ([0-9a-f]*))?")
_JOB = re.compile(r"JOB state=(.+) schema_state=(\S+) ver=(\d+)")
_META = re.compile(r"META Table:(\d+) cols=((?:\[[^]]*\])*)((?:\{[^}]*\})*)(?: defs=([\d,]*))?(?: adding=([\d,]*))?(?: dropping=([\d,]*))?")
_COLUMN = re.compile(r"\[(\d+) (\S+) off=(\d+) (\S+)\]")
_INDEX = re.compile(r"\{idx (\d+) (\S+) (\S+)\}")

_ACTIONS = (
    (" reorganize ", Action.REORGANIZE_PARTITION),
    (" truncate partition ", Action.TRUNCATE_TABLE_PARTITION),
    (" drop partition ", Action.DROP_TABLE_PARTITION),
    (" partition by ", Action.ALTER_PARTITIONING),
    (" remove partitioning", Action.REMOVE_PARTITIONING),
    (" exchange partition ", Action.EXCHANGE_PARTITION),
    (" add partition ", Action.ADD_TABLE_PARTITION),
    (", ", Action.MULTI_SCHEMA_CHANGE),
    ("truncate table ", Action.TRUNCATE_TABLE),
    ("rename table ", Action.RENAME_TABLE),
    (" rename column ", Action.MODIFY_COLUMN),
    (" modify column ", Action.MODIFY_COLUMN),
    (" add column ", Action.ADD_COLUMN),
    (" drop column ", Action.DROP_COLUMN),
)


@dataclass(frozen=True)
class Row:
    """A record key's change."""

    commit_ts: int
    physical: int
    handle: int
    put: bool
    value: bytes


@dataclass(frozen=True)
class JobStep:
    """A put of the job's row."""

    start_ts: int
    commit_ts: int
    state: str
    schema_state: str


@dataclass
class Timeline:
    """One DDL: its rows, the steps of its job, and the schema stream made of them."""

    sql: str
    action: Action
    rows: list[Row] = field(default_factory=list)
    steps: list[JobStep] = field(default_factory=list)
    metas: list[SchemaChange] = field(default_factory=list)
    removed_at: int = 0

    def step(self, state: str, schema_state: str) -> JobStep:
        """The first step in a state."""
        return next(step for step in self.steps if (step.state, step.schema_state) == (state, schema_state))

    @property
    def done(self) -> JobStep:
        """The step in which the job is done."""
        return next(step for step in self.steps if step.state == "done")

    def put(self, step: JobStep, info: s.Json) -> None:
        """Add a meta change that the timeline lacks."""
        self.metas.append(s.put_table(step.start_ts, step.commit_ts, SCHEMA_ID, info))

    def drop(self, step: JobStep, table_id: int) -> None:
        """Add the end of a table that the timeline lacks."""
        self.metas.append(s.drop_table(step.start_ts, step.commit_ts, SCHEMA_ID, table_id))

    def history(self, table: s.Json, *others: s.Json, job: s.Json | None = None, table_id: int = 0) -> SchemaHistory:
        """The history of the whole timeline, begun with these tables. `job` are more members of the job."""
        pairs = [*s.job_table_pairs(), (keys.db_key(SCHEMA_ID), s.text(s.database(SCHEMA_ID, "d")))]
        pairs += [(keys.table_key(SCHEMA_ID, info["id"]), s.text(info)) for info in (table, *others)]
        start = min([*(row.commit_ts for row in self.rows), self.steps[0].commit_ts]) - 1
        made = SchemaHistory.bootstrap(start, pairs)
        made.advance(self.changes(table_id or table["id"], job or {}), self.end)
        return made

    def changes(self, table_id: int, members: s.Json) -> list[SchemaChange]:
        """The schema stream."""
        changes = list(self.metas)
        for step in self.steps:
            state = JobState[step.state.upper().replace(" ", "_")]
            version = 9 if step is self.steps[-1] else 0
            data = s.job(
                JOB_ID, self.action, state, query=self.sql, table_id=table_id, schema_id=SCHEMA_ID, schema_version=version, **members
            )
            data["schema_name"] = "d"
            data["schema_state"] = s.STATES[step.schema_state]
            changes.append(s.put_job(step.start_ts, step.commit_ts, data))
        changes.append(s.drop_job(self.removed_at - 1, self.removed_at, JOB_ID))
        return changes

    @property
    def end(self) -> int:
        """After everything."""
        return max([*(row.commit_ts for row in self.rows), self.removed_at])

    def kept(self, history: SchemaHistory) -> list[tuple[Row, Any]]:
        """The rows that count, each with the version it is read with."""
        found = []
        for row in self.rows:
            version = history.snapshot(row.commit_ts - 1).by_physical.get(row.physical)
            if row.put and version is not None:
                found.append((row, version))
        return found


def timelines() -> list[Timeline]:
    """All 16."""
    return [_timeline(line["sql"], line["events"]) for line in s.read_lines("tikv/ddl_windows.jsonl.gz")]


def _timeline(sql: str, events: Iterable[s.Json]) -> Timeline:
    action = next(action for words, action in _ACTIONS if words in sql)
    made = Timeline(sql, action)
    for event in events:
        what = event["what"]
        if row := _ROW.fullmatch(what):
            physical, handle, op, value = row.groups()
            made.rows.append(Row(event["commit_ts"], int(physical), int(handle), op == "Put", bytes.fromhex(value or "")))
        elif step := _JOB.fullmatch(what):
            made.steps.append(JobStep(event["start_ts"], event["commit_ts"], step.group(1), step.group(2)))
        elif meta := _META.match(what):
            info = _table(meta)
            made.metas.append(s.put_table(event["start_ts"], event["commit_ts"], SCHEMA_ID, info))
        else:
            assert what == "JOB row deleted from tidb_ddl_job"
            made.removed_at = event["commit_ts"]
    return made


def _table(meta: re.Match[str]) -> s.Json:
    table_id, columns, indexes, definitions, adding, dropping = meta.groups()
    cols = [
        s.column(int(i), name, int(offset), state=s.STATES[state], flag=4099 if name == "a" else 0)
        for i, name, offset, state in _COLUMN.findall(columns)
    ]
    members: s.Json = {"pk_is_handle": True}
    members["index_info"] = [s.index(int(i), name, [1], state=s.STATES[state]) for i, name, state in _INDEX.findall(indexes)]
    if definitions is not None:
        members["partition"] = s.partition(_ids(definitions), adding=_ids(adding), dropping=_ids(dropping))
    return s.table(int(table_id), "t", cols, **members)


def _ids(text: str | None) -> list[int]:
    return [int(part) for part in (text or "").split(",") if part]


def plain_table(table_id: int, columns: Iterable[tuple[int, str]], **members: Any) -> s.Json:
    """A table of public columns (id, name), the first one its integer primary key."""
    cols = [s.column(i, name, offset, flag=4099 if offset == 0 else 0) for offset, (i, name) in enumerate(columns)]
    return s.table(table_id, "t", cols, pk_is_handle=True, **members)
