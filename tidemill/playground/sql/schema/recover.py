"""RECOVER TABLE, FLASHBACK TABLE and FLASHBACK DATABASE: what was dropped or truncated comes back, with its ids and its rows.

The rows never went away (garbage collection removes those of dropped tables later), so nothing is written but descriptions. A job has
one step that only checks, which changes neither the schema version nor the meta range, and one in which everything is there again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from tidemill.errors import SqlError
from tidemill.playground.sql.catalog import Dropped, Table, row_id_key
from tidemill.playground.sql.parse import ast
from tidemill.playground.sql.schema.ddl import DdlContext, Steps
from tidemill.playground.sql.schema.jobs import Change, Job
from tidemill.playground.sql.schema.tableinfo import ci_name
from tidemill.playground.store.cluster import Mutation
from tidemill.tidb.schema.codes import Action, SchemaState

Json = dict[str, Any]

_CHECKED = 1
"""check_flag: garbage collection was on when the job began."""


def recover_table(context: DdlContext, statement: ast.RecoverTable) -> Steps:
    """RECOVER TABLE and FLASHBACK TABLE: the table of that name (or of that job) that went last."""
    catalog = context.catalog
    if statement.job_id:
        found = next((d for d in catalog.dropped if d.job_id == statement.job_id and d.database is None), None)
    else:
        schema_id, name = catalog.schema_id(statement.table.schema or context.schema), statement.table.name.lower()
        fitting = (d for d in reversed(catalog.dropped) if d.database is None and d.schema_id == schema_id)
        found = next((d for d in fitting if d.tables[0].info["name"]["L"] == name), None)
    if found is None:
        raise SqlError(f"no table {statement.table.name or f'of job {statement.job_id}'} was dropped")
    [old] = found.tables
    new_name = statement.new_name or old.name
    if old.id in catalog.tables or catalog.find(ast.TableName(catalog.schema_name(found.schema_id), new_name), "") is not None:
        raise SqlError(f"table {new_name} exists")
    return _recover_table(context, found, old, new_name)


def _recover_table(context: DdlContext, found: Dropped, old: Table, new_name: str) -> Steps:
    schema_id, schema_name = found.schema_id, context.catalog.schema_name(found.schema_id)
    info = _described(old, new_name)
    involving = ((schema_name, old.name), (schema_name, new_name)) if new_name != old.name else ()
    job = context.job(Action.RECOVER_TABLE, schema_id, old.id, new_name, _args([_piece(found, old, info)]), involving=involving)
    yield
    _check(job, [info])
    yield
    _come_back(context, job, found, [(old, info)], schema_id, Change(diff={"affected_options": [_affected(old.id)]}))
    yield
    job.finish()


def recover_database(context: DdlContext, statement: ast.FlashbackDatabase) -> Steps:
    """FLASHBACK DATABASE: the database of that name that was dropped last, with all its tables."""
    catalog = context.catalog
    fitting = (d for d in reversed(catalog.dropped) if d.database is not None and d.database["db_name"]["L"] == statement.name.lower())
    found = next(fitting, None)
    if found is None:
        raise SqlError(f"no database {statement.name} was dropped")
    new_name = statement.new_name or found.database["db_name"]["O"]  # type: ignore[index]
    if catalog.has_schema(new_name) or found.schema_id in catalog.schemas:
        raise SqlError(f"database {new_name} exists")
    return _recover_database(context, found, new_name)


def _recover_database(context: DdlContext, found: Dropped, new_name: str) -> Steps:
    assert found.database is not None
    database = {**found.database, "db_name": ci_name(new_name), "state": int(SchemaState.NONE)}
    pairs = [(old, _described(old, old.name)) for old in found.tables]
    args = _args([_piece(found, old, info) for old, info in pairs])
    args["recover_info"] |= {
        **database,
        "DropJobID": found.job_id,
        "SnapshotTS": found.snapshot_ts,
        "OldSchemaName": found.database["db_name"],
    }
    involving = tuple((name, "*") for name in dict.fromkeys((found.database["db_name"]["O"], new_name)))
    job = context.job(Action.RECOVER_SCHEMA, found.schema_id, 0, "", args, schema_name=new_name, involving=involving)
    yield
    _check(job, [info for _, info in pairs])
    yield
    public = {**database, "state": int(SchemaState.PUBLIC)}
    change = Change(databases=[public], diff={"affected_options": [_affected(old.id) for old in found.tables]})
    _come_back(context, job, found, pairs, found.schema_id, change, public)
    yield
    job.finish()


def _described(old: Table, name: str) -> Json:
    """Return a table as it was, with its ids, not visible yet."""
    info = copy.deepcopy(old.info)
    info.update(name=ci_name(name), state=int(SchemaState.NONE))
    return info


def _piece(found: Dropped, old: Table, info: Json) -> Json:
    return {
        "SchemaID": found.schema_id, "TableInfo": info, "DropJobID": found.job_id, "SnapshotTS": found.snapshot_ts,
        "AutoIDs": {"RowID": old.row_ids.limit, "IncrementID": 0, "RandomID": 0}, "OldSchemaName": found.schema_name,
        "OldTableName": old.name,
    }  # fmt: skip


def _args(pieces: list[Json]) -> Json:
    empty = {"LoadTablesOnExecute": False, "DropJobID": 0, "SnapshotTS": 0, "OldSchemaName": ci_name("")}
    return {"recover_info": {"RecoverTableInfos": pieces, **empty}}


def _affected(table_id: int) -> Json:
    return {"schema_id": 0, "table_id": table_id, "old_table_id": table_id, "old_schema_id": 0}


def _check(job: Job, infos: Iterable[Json]) -> None:
    """Run the step that checks whether garbage collection has left the rows."""
    assert job.args is not None
    job.args = {**job.args, "check_flag": _CHECKED}
    for info in infos:
        info["state"] = int(SchemaState.WRITE_ONLY)
    job.note(0, state=SchemaState.WRITE_ONLY)


def _come_back(
    context: DdlContext,
    job: Job,
    found: Dropped,
    pairs: list[tuple[Table, Json]],
    schema_id: int,
    change: Change,
    database: Json | None = None,
) -> None:
    """Run the last step: one transaction brings everything back."""
    for old, info in pairs:
        info["state"] = int(SchemaState.PUBLIC)
        described = copy.deepcopy(info)
        described["revision"] += 1
        change.tables.append((schema_id, described))
        counter: Mutation = (row_id_key(schema_id, old.id), b"%d" % old.row_ids.limit)
        change.meta.append(counter)
    job.step(SchemaState.PUBLIC, change, done=True, result=[info for _, info in pairs][:1], database=database)
    for old, _ in pairs:
        context.catalog.tables[old.id].row_ids = old.row_ids
    context.catalog.dropped.remove(found)
