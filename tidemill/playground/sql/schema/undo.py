"""Rolls back a DDL job that fails before any of its changes is public, as TiDB does."""

from __future__ import annotations

import copy
from typing import Any

from tidemill.errors import SqlError
from tidemill.playground.sql.catalog import Table
from tidemill.playground.sql.schema.ddl import Steps, changed
from tidemill.playground.sql.schema.jobs import Change, Job
from tidemill.playground.store.mvcc import KeyLocked, WriteConflict
from tidemill.tidb.schema.codes import JobState, SchemaState

Json = dict[str, Any]

_COUNTERS = ("max_col_id", "max_idx_id", "auto_inc_id", "revision")
"""Members of a description that are not rolled back, because an id that rows may hold is never used again."""


def or_rolled_back(job: Job, table: Table, steps: Steps, before: Json | None = None) -> Steps:
    """Run the steps. If they fail, two more bring the table back to `before` (default: as it is now), and the job ends as rolled back.

    Raises SqlError, KeyLocked or WriteConflict then.
    """
    before = copy.deepcopy(before or table.info)
    try:
        yield from steps
    except (SqlError, KeyLocked, WriteConflict):
        yield from _roll_back(job, table, before)
        raise


def _roll_back(job: Job, table: Table, before: Json) -> Steps:
    info = changed(table)
    for member in ("cols", "index_info"):
        known = {found["id"] for found in before[member] or ()}
        for found in info[member] or ():
            if found["id"] not in known:
                found["state"] = int(SchemaState.DELETE_ONLY)
    job.step(SchemaState.DELETE_ONLY, Change(tables=[(table.schema_id, info)]), job_state=JobState.ROLLING_BACK)
    yield
    info = {**copy.deepcopy(before), **{counter: changed(table)[counter] for counter in _COUNTERS}}
    job.step(SchemaState.NONE, Change(tables=[(table.schema_id, info)]), job_state=JobState.ROLLBACK_DONE)
    yield
    job.finish(JobState.ROLLBACK_DONE)
