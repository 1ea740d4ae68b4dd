"""ALTER TABLE on partitions: each statement as the steps of TiDB's job, with the double writes that some of them need."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from tidemill.errors import SqlError
from tidemill.playground.sql.catalog import Table
from tidemill.playground.sql.parse import ast
from tidemill.playground.sql.schema.ddl import DdlContext, Steps, changed
from tidemill.playground.sql.schema.jobs import Change, Job
from tidemill.playground.sql.schema.tableinfo import ci_name, definition_json, partition_json
from tidemill.playground.sql.schema.undo import or_rolled_back
from tidemill.playground.store.cluster import Mutation
from tidemill.tidb import keys
from tidemill.tidb.schema.codes import Action, SchemaState

Json = dict[str, Any]

_WHOLE_TABLE = "pFullTable"
_COLLAPSED = "CollapsedPartitions"
_COPY_ROWS = 256


def _partition(table: Table) -> Json:
    found: Json | None = table.info["partition"]
    if not found:
        raise SqlError(f"table {table.name} is not partitioned")
    return found


def _named(table: Table, names: Sequence[str]) -> list[Json]:
    definitions = _partition(table)["definitions"]
    by_name = {d["name"]["L"]: d for d in definitions}
    missing = [name for name in names if name.lower() not in by_name]
    if missing:
        raise SqlError(f"table {table.name} has no partition {missing[0]}")
    return [copy.deepcopy(by_name[name.lower()]) for name in names]


def _put(job: Job, table: Table, state: SchemaState, *, action: Action | None = None, done: bool = False, **members: Any) -> None:
    """Run one step that changes members of the table's partition description. Without an action it removes what the DDL has left there."""
    info = changed(table)
    partition = info["partition"]
    partition.update(members)
    if action is None:
        for member in ("ddl_action", "new_partition_ids", "original_partition_ids_order", "new_table_id"):
            partition.pop(member, None)
        partition.update(adding_definitions=None, dropping_definitions=None, ddl_state=0)
    else:
        partition.update(ddl_action=int(action), ddl_state=int(state))
    job.step(
        SchemaState.NONE if done and action is None else state,
        Change(tables=[(table.schema_id, info)]),
        done=done,
        result=[info] if done else (),
    )


def add(context: DdlContext, table: Table, action: ast.AddPartitions) -> Steps:
    """ADD PARTITION: visible at the end only."""
    partition = _partition(table)
    known = {d["name"]["L"] for d in partition["definitions"]}
    taken = [d.name for d in action.definitions if d.name.lower() in known]
    if taken:
        raise SqlError(f"table {table.name} has a partition {taken[0]} already")
    new = [definition_json(d, context.catalog.allocate_id()) for d in action.definitions]
    job = context.job(
        Action.ADD_TABLE_PARTITION, table.schema_id, table.id, table.name, {"part_info": {**copy.deepcopy(partition), "definitions": new}}
    )  # fmt: skip
    yield
    _put(job, table, SchemaState.REPLICA_ONLY, action=Action.ADD_TABLE_PARTITION, adding_definitions=new)
    if context.split_tables:
        context.cluster.split(keys.table_prefix(d["id"]) for d in new)
    yield
    info = changed(table)
    final = info["partition"]
    final.update(definitions=[*final["definitions"], *new], adding_definitions=None, ddl_state=0)
    final.pop("ddl_action", None)
    job.step(SchemaState.PUBLIC, Change(tables=[(table.schema_id, info)]), done=True, result=[info])
    yield
    job.finish()


def drop(context: DdlContext, table: Table, action: ast.DropPartitions) -> Steps:
    """DROP PARTITION: the definitions go in the second step."""
    gone = _named(table, action.names)
    ids = {d["id"] for d in gone}
    rest = [d for d in _partition(table)["definitions"] if d["id"] not in ids]
    if not rest:
        raise SqlError("a table keeps at least one partition")
    kind, args = Action.DROP_TABLE_PARTITION, {"part_names": list(action.names)}
    job = context.job(kind, table.schema_id, table.id, table.name, args, first_state=SchemaState.PUBLIC)
    yield
    job.args = {**args, "old_physical_tbl_ids": sorted(ids)}
    _put(job, table, SchemaState.WRITE_ONLY, action=kind, dropping_definitions=gone)
    yield
    _put(job, table, SchemaState.DELETE_ONLY, action=kind, dropping_definitions=gone, definitions=rest)
    yield
    _put(job, table, SchemaState.DELETE_REORG, action=kind)
    yield
    _put(job, table, SchemaState.NONE, done=True)
    table.unique = {}
    yield
    job.finish()


def truncate(context: DdlContext, table: Table, action: ast.TruncatePartitions) -> Steps:
    """TRUNCATE PARTITION: new ids stand in the definitions from the second step on."""
    names = action.names or tuple(d["name"]["O"] for d in _partition(table)["definitions"])
    old = _named(table, names)
    fresh = {d["id"]: context.catalog.allocate_id() for d in old}
    args = {"new_partition_ids": list(fresh.values()), "old_partition_ids": list(fresh)}
    job = context.job(Action.TRUNCATE_TABLE_PARTITION, table.schema_id, table.id, table.name, args, first_state=SchemaState.PUBLIC)
    yield
    kind = Action.TRUNCATE_TABLE_PARTITION
    _put(job, table, SchemaState.WRITE_ONLY, action=kind, new_partition_ids=list(fresh.values()))
    yield
    definitions = [{**d, "id": fresh.get(d["id"], d["id"])} for d in _partition(table)["definitions"]]
    table.unique = {}
    _put(job, table, SchemaState.DELETE_ONLY, action=kind, definitions=definitions, dropping_definitions=old)
    if context.split_tables:
        context.cluster.split(keys.table_prefix(i) for i in fresh.values())
    yield
    _put(job, table, SchemaState.DELETE_REORG, action=kind)
    yield
    job.args = {"old_partition_ids": list(fresh)}
    _put(job, table, SchemaState.NONE, done=True)
    yield
    job.finish()


def reorganize(context: DdlContext, table: Table, action: ast.ReorganizePartitions) -> Steps:
    """REORGANIZE PARTITION … INTO."""
    partition = _partition(table)
    old = _named(table, action.names)
    new = [definition_json(d, context.catalog.allocate_id()) for d in action.definitions]
    ids = {d["id"] for d in old}
    place = next(i for i, d in enumerate(partition["definitions"]) if d["id"] in ids)
    rest = [d for d in partition["definitions"] if d["id"] not in ids]
    after = [*rest[:place], *new, *rest[place:]]
    old_type = {"ddl_type": partition["type"], "ddl_expr": partition["expr"], "ddl_columns": partition["columns"]}
    args = {"part_names": list(action.names), "part_info": {**copy.deepcopy(partition), "definitions": new}}
    job = context.job(Action.REORGANIZE_PARTITION, table.schema_id, table.id, table.name, args)
    yield
    job.args = {**args, "old_physical_tbl_ids": sorted(ids)}
    yield from _exchange_definitions(context, job, table, Action.REORGANIZE_PARTITION, old, new, after, old_type, {})
    _put(job, table, SchemaState.NONE, done=True)
    yield
    job.finish()


def _exchange_definitions(
    context: DdlContext,
    job: Job,
    table: Table,
    action: Action,
    old: list[Json],
    new: list[Json],
    after: list[Json],
    before: Json,
    then: Json,
    original: Json | None = None,
) -> Steps:
    """The steps that all reorganisations share: new partitions are written, filled, and take over; old ones are written a while longer.

    `before` are members until the switch (how the new partitions are cut), `then` those from the switch on; `original` is the
    description to go back to. Raises SqlError for a row that no new partition takes.
    """
    members = {"adding_definitions": new, "dropping_definitions": old, **before}
    if context.split_tables:
        context.cluster.split(keys.table_prefix(d["id"]) for d in new)

    def switch() -> Steps:
        for state in (SchemaState.DELETE_ONLY, SchemaState.WRITE_ONLY, SchemaState.WRITE_REORG):
            _put(job, table, state, action=action, **members)
            yield
        yield from _copy_rows(context, table, [d["id"] for d in old])
        _put(job, table, SchemaState.DELETE_REORG, action=action, definitions=after, num=len(after), **then)
        yield

    yield from or_rolled_back(job, table, switch(), original)
    _put(job, table, SchemaState.PUBLIC, action=action)
    table.unique = {}
    yield


def _copy_rows(context: DdlContext, table: Table, old_ids: Sequence[int]) -> Steps:
    """Write the rows of old partitions to the new ones, unless a double write has put a newer one there."""
    mvcc = context.cluster.mvcc
    for physical in old_ids:
        pending: list[Mutation] = []
        for key, history in list(mvcc.items(*keys.record_range(physical))):
            value = history[-1][2]
            if value is None:
                continue
            row = table.codec.row(key, value)
            for target in table.codec.keys(row, keys.parse_record_key(key).handle)[1:]:
                newest = mvcc.tablet(target).newest(target)
                if newest is None:
                    pending.append((target, value))
            if len(pending) >= _COPY_ROWS:
                context.cluster.transact(pending)
                pending = []
                yield
        if pending:
            context.cluster.transact(pending)


def partition_table(context: DdlContext, table: Table, action: ast.PartitionTable) -> Steps:
    """ALTER TABLE … PARTITION BY: the table gets a new id at the end."""
    catalog = context.catalog
    target = partition_json(action.partition, table.info["cols"], catalog.allocate_id)
    new_table_id = catalog.allocate_id()
    now = table.info["partition"]
    old = copy.deepcopy(now["definitions"]) if now else [_whole(table.id, _WHOLE_TABLE)]
    names = [d["name"]["O"] for d in old]
    args = {"part_names": names, "part_info": {**target, "new_table_id": new_table_id}}
    job = context.job(Action.ALTER_PARTITIONING, table.schema_id, table.id, table.name, args)
    yield
    before = {"ddl_type": target["type"], "ddl_expr": target["expr"], "ddl_columns": target["columns"], "new_table_id": new_table_id}
    current = now or {**target, "type": 0, "expr": "", "columns": None, "definitions": old, "num": 1}
    then = {
        "type": target["type"], "expr": target["expr"], "columns": target["columns"],
        "ddl_type": current["type"], "ddl_expr": current["expr"], "ddl_columns": current["columns"],
    }  # fmt: skip
    original = table.info
    table.info = {**original, "partition": copy.deepcopy(current)}
    definitions = target["definitions"]
    yield from _exchange_definitions(context, job, table, Action.ALTER_PARTITIONING, old, definitions, definitions, before, then, original)
    yield from _replace_table(context, job, table, new_table_id, target)


def remove_partitioning(context: DdlContext, table: Table, action: ast.RemovePartitioning) -> Steps:
    """REMOVE PARTITIONING: all rows go to one new table."""
    partition = _partition(table)
    new_table_id = context.catalog.allocate_id()
    old = copy.deepcopy(partition["definitions"])
    new = [_whole(new_table_id, _COLLAPSED)]
    info = {"type": 0, "expr": partition["expr"], "columns": [], "enable": True, "definitions": new, "new_table_id": new_table_id}
    job = context.job(
        Action.REMOVE_PARTITIONING, table.schema_id, table.id, table.name, {"part_names": [d["name"]["O"] for d in old], "part_info": info}
    )  # fmt: skip
    yield
    before = {"ddl_type": 0, "ddl_expr": partition["expr"], "ddl_columns": None, "new_table_id": new_table_id}
    then = {
        "type": 0, "columns": None, "ddl_type": partition["type"], "ddl_expr": partition["expr"], "ddl_columns": partition["columns"],
    }  # fmt: skip
    yield from _exchange_definitions(context, job, table, Action.REMOVE_PARTITIONING, old, new, new, before, then)
    yield from _replace_table(context, job, table, new_table_id, None)


def _whole(table_id: int, name: str) -> Json:
    """A partition that is a whole table."""
    return {"id": table_id, "name": ci_name(name), "less_than": None, "in_values": None, "policy_ref_info": None}


def _replace_table(context: DdlContext, job: Job, table: Table, new_table_id: int, partition: Json | None) -> Steps:
    """The last step of a repartitioning: the description moves to the new table id."""
    schema_id, old_id, row_ids = table.schema_id, table.id, table.row_ids
    info = changed(table, id=new_table_id, partition=copy.deepcopy(partition))
    change = Change(tables=[(schema_id, info)], dropped=[(schema_id, old_id)], diff={"table_id": new_table_id, "old_table_id": old_id})
    job.step(SchemaState.NONE, change, done=True, result=[info])
    context.catalog.tables[new_table_id].row_ids = row_ids
    yield
    job.finish()


def _columns(table: Table) -> list[tuple[int, str, Json]]:
    return [(column["id"], column["name"]["L"], column["type"]) for column in table.info["cols"]]


def exchange(context: DdlContext, table: Table, action: ast.ExchangePartition) -> Steps:
    """EXCHANGE PARTITION … WITH TABLE: two physical ids change places in one step."""
    plain = context.catalog.table(action.table, context.schema)
    definition = _named(table, [action.name])[0]
    if plain.info["partition"]:
        raise SqlError(f"table {plain.name} is partitioned")
    # Column ids too: the rows keep them.
    if _columns(plain) != _columns(table):
        raise SqlError(f"tables {plain.name} and {table.name} have different columns (names, types and ids have to be equal)")
    args = {
        "partition_id": definition["id"], "pt_schema_id": table.schema_id, "pt_table_id": table.id, "partition_name": action.name,
        "with_validation": True,
    }  # fmt: skip
    ids = (table.id, plain.id)
    job = context.job(Action.EXCHANGE_PARTITION, plain.schema_id, plain.id, plain.name, args, table_ids=ids)
    yield
    marked = changed(
        plain,
        exchange_partition_info={
            "exchange_partition_id": table.id,
            "exchange_partition_def_id": definition["id"],
            "exchange_partition_flag": True,
        },
    )
    job.step(SchemaState.WRITE_ONLY, Change(tables=[(plain.schema_id, marked)]))
    yield
    partitioned = changed(table)
    for candidate in partitioned["partition"]["definitions"]:
        if candidate["id"] == definition["id"]:
            candidate["id"] = plain.id
    moved = changed(plain, id=definition["id"], exchange_partition_info=None)
    plain_id, plain_schema, row_ids = plain.id, plain.schema_id, plain.row_ids
    change = Change(tables=[(table.schema_id, partitioned), (plain_schema, moved)], dropped=[(plain_schema, plain_id)])
    job.step(SchemaState.NONE, change, done=True, result=[partitioned])
    row_ids.rebase(table.row_ids.last)
    table.row_ids.rebase(row_ids.last)
    context.catalog.tables[definition["id"]].row_ids = row_ids
    table.unique = {}
    yield
    job.finish()
