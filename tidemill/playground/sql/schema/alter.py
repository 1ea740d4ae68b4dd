"""ALTER TABLE: runs the steps of its actions as a DDL job, one action or several in a multi-schema change."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from tidemill.errors import SqlError
from tidemill.playground.sql.catalog import Table
from tidemill.playground.sql.parse import ast
from tidemill.playground.sql.schema import partitions
from tidemill.playground.sql.schema.changes import SubChange, plan
from tidemill.playground.sql.schema.ddl import DdlContext, Steps, changed, rename_table
from tidemill.playground.sql.schema.jobs import Change, Job
from tidemill.playground.sql.schema.undo import or_rolled_back
from tidemill.tidb import keys
from tidemill.tidb.schema.codes import Action, JobState, SchemaState

Json = dict[str, Any]

BACKFILL_SOURCE = 1 << 8
"""txn_source of rows that a column change rewrites: the change feed never shows them."""
BACKFILL_ROWS = 256

_PARTITION_ACTIONS: dict[type, Callable[[DdlContext, Table, Any], Steps]] = {
    ast.AddPartitions: partitions.add,
    ast.DropPartitions: partitions.drop,
    ast.TruncatePartitions: partitions.truncate,
    ast.ReorganizePartitions: partitions.reorganize,
    ast.ExchangePartition: partitions.exchange,
    ast.PartitionTable: partitions.partition_table,
    ast.RemovePartitioning: partitions.remove_partitioning,
}


def alter_table(context: DdlContext, statement: ast.AlterTable) -> Steps:
    """ALTER TABLE."""
    table = context.catalog.table(statement.table, context.schema)
    table.cuts = not context.strict
    actions = statement.actions
    if len(actions) == 1:
        action = actions[0]
        if isinstance(action, ast.RenameTo):
            return rename_table(context, table, action.table)
        run = _PARTITION_ACTIONS.get(type(action))
        if run is not None:
            return run(context, table, action)
        return _alter_once(context, table, action)
    return _alter_many(context, table, actions)


def _inherited(table: Table) -> tuple[str, str]:
    return table.info["charset"], table.info["collate"]


def _alter_once(context: DdlContext, table: Table, action: ast.AlterAction) -> Steps:
    change = plan(action, table.info, _inherited(table), context.now)
    if not change.final:
        return
    job = context.job(change.action, table.schema_id, table.id, table.name, change.args, first_state=change.first_state)
    yield
    yield from or_rolled_back(job, table, _to_public(context, job, table, change))
    for position, (state, mutate) in enumerate(change.final[1:], 2):
        _step(job, table, state, [mutate], done=position == len(change.final), done_args=change.done_args)
        yield
    job.finish()


def _to_public(context: DdlContext, job: Job, table: Table, change: SubChange) -> Steps:
    """The steps up to the one that users see. Raises SqlError."""
    for state, mutate in change.revertible:
        _step(job, table, state, [mutate])
        yield
    if change.unique_index and not is_unique(context, table, change.unique_index):
        raise SqlError(f"duplicate entry for the new unique index of {table.name}")
    if change.index_backfill:
        job.note(0)
        yield
        _step(job, table, SchemaState.WRITE_REORG, [])  # the index stays as it is while its backfill goes on
        yield
    if change.backfill:
        yield from _backfill(context, job, table)
    state, mutate = change.final[0]
    _step(job, table, state, [mutate], done=len(change.final) == 1, done_args=change.done_args)
    yield


def _step(job: Job, table: Table, state: SchemaState, mutates: list[Any], *, done: bool = False, done_args: Json | None = None) -> None:
    info = changed(table)
    for mutate in mutates:
        mutate(info)
    if done and done_args is not None:
        job.args = done_args
    job.step(state, Change(tables=[(table.schema_id, info)]), done=done, result=[info] if done else ())


# Several actions


def _alter_many(context: DdlContext, table: Table, actions: tuple[ast.AlterAction, ...]) -> Steps:
    changes: list[SubChange] = []
    draft = copy.deepcopy(table.info)
    for action in actions:
        change = plan(action, draft, _inherited(table), context.now)
        if change.unique_index:
            raise SqlError("a unique index cannot be added together with other changes here")
        for _, mutate in (*change.revertible, *change.final):
            mutate(draft)  # so that later actions see earlier ones
        changes.append(change)
    sub_jobs = tuple(_sub_job(c) for c in changes)
    job = context.job(Action.MULTI_SCHEMA_CHANGE, table.schema_id, table.id, table.name, sub_jobs=sub_jobs)
    yield
    yield from or_rolled_back(job, table, _to_joint(context, job, table, changes))
    for change, sub in zip(changes, job.sub_jobs, strict=True):
        for state, mutate in change.final[1:]:
            sub.update(schema_state=int(state), state=int(JobState.DONE if state is SchemaState.NONE else JobState.RUNNING))
            _step(job, table, SchemaState.NONE, [mutate])
            yield
    job.step(SchemaState.NONE, Change(), done=True, result=[copy.deepcopy(table.info)])
    yield
    job.finish()


def _to_joint(context: DdlContext, job: Job, table: Table, changes: list[SubChange]) -> Steps:
    """Run the steps up to the one in which everything new becomes public and everything dropped is hidden. Raises SqlError."""
    for change, sub in zip(changes, job.sub_jobs, strict=True):
        for state, mutate in change.revertible:
            sub.update(schema_state=int(state), state=int(JobState.RUNNING))
            _step(job, table, SchemaState.NONE, [mutate])
            yield
        if change.backfill:
            yield from _backfill(context, job, table)
        sub["revertible"] = False
    # From here on nothing can be undone.
    job.keep_result = True
    _joint_step(job, table, changes)
    yield


def _joint_step(job: Job, table: Table, changes: list[SubChange]) -> None:
    for change, sub in zip(changes, job.sub_jobs, strict=True):
        state = change.final[0][0]
        sub.update(schema_state=int(state), state=int(JobState.DONE if len(change.final) == 1 else JobState.RUNNING))
    _step(job, table, SchemaState.NONE, [change.final[0][1] for change in changes])


def _sub_job(change: SubChange) -> Json:
    return {
        "type": int(change.action), "raw_args": change.args, "schema_state": int(change.first_state), "snapshot_ver": 0,
        "real_start_ts": 0, "revertible": True, "state": int(JobState.QUEUEING), "row_count": 0, "warning": None, "schema_version": 0,
        "reorg_tp": 0,
    }  # fmt: skip


# Reorganisation


def is_unique(context: DdlContext, table: Table, index_id: int) -> bool:
    """Whether no two rows have the same values in an index that is being added."""
    seen: set[tuple[object, ...]] = set()
    for physical in table.model.physical_ids:
        for key, history in context.cluster.mvcc.items(*keys.record_range(physical)):
            value = history[-1][2]
            values = None if value is None else table.codec.unique_values(table.codec.row(key, value), index_id)
            if values is not None:
                if values in seen:
                    return False
                seen.add(values)
    return True


def _backfill(context: DdlContext, job: Job, table: Table) -> Steps:
    """Rewrite all rows so that they hold the changed column as well."""
    count = 0
    for batch in _batches(context, table):
        mutations = []
        for key, value in batch:
            row = table.codec.row(key, value)
            table.codec.complete(row)
            written = table.codec.value(row)
            if written != value:
                mutations.append((key, written))
        if mutations:
            context.cluster.transact(mutations, source=BACKFILL_SOURCE)
        count += len(batch)
        yield
    job.note(count)


def _batches(context: DdlContext, table: Table) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield the newest rows of a table in batches. Rows that are written meanwhile already hold the column."""
    for physical in table.model.physical_ids:
        start, end = keys.record_range(physical)
        while True:
            batch: list[tuple[bytes, bytes]] = []
            for key, history in context.cluster.mvcc.items(start, end):
                value = history[-1][2]
                if value is not None:
                    batch.append((key, value))
                start = key + b"\0"
                if len(batch) >= BACKFILL_ROWS:
                    break
            if not batch:
                break
            yield batch
