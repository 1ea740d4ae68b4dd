"""DDL statements of databases and whole tables: create, drop, truncate, rename. Each yields after every step of its jobs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.errors import SqlError
from tidemill.playground.sql.binlogs import Binlogs
from tidemill.playground.sql.catalog import Catalog, Dropped, Table
from tidemill.playground.sql.parse import ast
from tidemill.playground.sql.schema.bootstrap import database_json
from tidemill.playground.sql.schema.coltypes import charset_of
from tidemill.playground.sql.schema.jobs import Change, Job, JobSpec
from tidemill.playground.sql.schema.tableinfo import ci_name, table_json, view_json
from tidemill.playground.store.cluster import Cluster
from tidemill.tidb import keys
from tidemill.tidb.schema.codes import Action, SchemaState

Json = dict[str, Any]
Steps = Iterator[None]


@dataclass(slots=True)
class DdlContext:
    """What a DDL statement runs in."""

    cluster: Cluster
    catalog: Catalog
    schema: str  # the session's database
    query: str
    now: str
    source: int = 0
    split_tables: bool = True  # give every new table its own region, as TiDB does
    binlogs: Binlogs | None = None
    strict: bool = True  # values that do not fit into a changed column are errors, and not cut

    def job(self, action: Action, schema_id: int, table_id: int, table_name: str, args: Json | None = None, **more: Any) -> Job:
        """Queue a job."""
        name = self.catalog.schema_name(schema_id) if schema_id in self.catalog.schemas else more.pop("schema_name")
        spec = JobSpec(
            action, schema_id, table_id, name, table_name, self.query, args, cdc_write_source=self.source, strict=self.strict, **more
        )
        job = Job(self.cluster, self.catalog, spec, self.binlogs)
        job.queue()
        return job

    def remember(self, job: Job, schema_id: int, tables: Iterable[Table], database: Json | None = None) -> None:
        """Remember tables, or a database with all its tables, before a step drops them, so that RECOVER can bring them back."""
        name = self.catalog.schema_name(schema_id)
        kept = tuple(Table(t.schema_id, copy.deepcopy(t.info), t.row_ids) for t in tables)
        self.catalog.dropped.append(Dropped(job.id, self.cluster.oracle.last, schema_id, name, kept, database))

    def split(self, table: Json) -> None:
        """Give the parts of a new table their own regions."""
        if self.split_tables:
            partition = table["partition"]
            ids = [d["id"] for d in partition["definitions"]] if partition else [table["id"]]
            self.cluster.split(keys.table_prefix(i) for i in ids)


def changed(table: Table, **members: Any) -> Json:
    """A copy of a table's description with another revision and these members."""
    info = copy.deepcopy(table.info)
    info["revision"] += 1
    info.update(members)
    return info


# Databases


def create_database(context: DdlContext, statement: ast.CreateDatabase) -> Steps:
    """CREATE DATABASE."""
    catalog = context.catalog
    if catalog.has_schema(statement.name):
        if statement.if_not_exists:
            return
        raise SqlError(f"database {statement.name} exists")
    charset, collate = charset_of(statement.charset, statement.collate, ("utf8mb4", "utf8mb4_bin"))
    schema_id = catalog.allocate_id()
    info = database_json(schema_id, statement.name, charset, collate, SchemaState.NONE)
    job = context.job(
        Action.CREATE_SCHEMA, schema_id, 0, "", {"db_info": info}, schema_name=statement.name, involving=((statement.name, "*"),)
    )  # fmt: skip
    yield
    info = database_json(schema_id, statement.name, charset, collate)
    job.args = {"db_info": info}
    job.step(SchemaState.PUBLIC, Change(databases=[info]), done=True, database=info)
    yield
    job.finish()


def alter_database(context: DdlContext, statement: ast.AlterDatabase) -> Steps:
    """ALTER DATABASE … CHARACTER SET."""
    schema_id = context.catalog.schema_id(statement.name or context.schema)
    before = context.catalog.schemas[schema_id]
    charset, collate = charset_of(statement.charset, statement.collate, (before["charset"], before["collate"]))
    job = context.job(Action.MODIFY_SCHEMA_CHARSET, schema_id, 0, "", {"to_charset": charset, "to_collate": collate})
    yield
    info = {**before, "charset": charset, "collate": collate}
    job.step(SchemaState.PUBLIC, Change(databases=[info]), done=True, database=info)
    yield
    job.finish()


def drop_database(context: DdlContext, statement: ast.DropDatabase) -> Steps:
    """DROP DATABASE with all its tables."""
    catalog = context.catalog
    if not catalog.has_schema(statement.name):
        if statement.if_exists:
            return
        raise SqlError(f"unknown database {statement.name}")
    schema_id = catalog.schema_id(statement.name)
    before = catalog.schemas[schema_id]
    job = context.job(
        Action.DROP_SCHEMA, schema_id, 0, "", {"fk_check": True}, involving=((statement.name, "*"),), first_state=SchemaState.PUBLIC
    )  # fmt: skip
    context.remember(job, schema_id, (t for t in catalog.tables_of(schema_id) if not t.model.is_view), before)
    yield
    for state in (SchemaState.WRITE_ONLY, SchemaState.DELETE_ONLY):
        job.step(state, Change(databases=[{**before, "state": int(state)}]))
        yield
    tables = list(catalog.tables_of(schema_id))
    job.args = {"all_dropped_table_ids": sorted({i for t in tables for i in (t.id, *t.model.physical_ids)})} if tables else {}
    final = {**before, "state": int(SchemaState.NONE)}
    change = Change(dropped=[(schema_id, t.id) for t in tables], dropped_databases=[schema_id])
    job.step(SchemaState.NONE, change, done=True, database=final)
    yield
    job.finish()


# Tables


def create_table(context: DdlContext, statement: ast.CreateTable) -> Steps:
    """CREATE TABLE."""
    return _create(context, statement.table, statement.if_not_exists, Action.CREATE_TABLE, lambda schema_id, table_id: table_json(
        statement, table_id, context.catalog.charset(schema_id), context.catalog.allocate_id, context.now
    ))  # fmt: skip


def create_table_like(context: DdlContext, statement: ast.CreateTableLike) -> Steps:
    """CREATE TABLE … LIKE."""
    model = context.catalog.table(statement.like, context.schema)

    def describe(schema_id: int, table_id: int) -> Json:
        info = copy.deepcopy(model.info)
        info["id"], info["name"] = table_id, ci_name(statement.table.name)
        if info["partition"]:
            for definition in info["partition"]["definitions"]:
                definition["id"] = context.catalog.allocate_id()
        return info

    schema = context.catalog.schema_name(context.catalog.schema_id(statement.table.schema or context.schema))
    involved = {
        "involving": ((schema, statement.table.name),),
        "reading": ((context.catalog.schema_name(model.schema_id), model.name),),
    }
    return _create(context, statement.table, statement.if_not_exists, Action.CREATE_TABLE, describe, **involved)


def create_view(context: DdlContext, statement: ast.CreateView) -> Steps:
    """CREATE VIEW: its text and the names of its columns are kept."""
    columns = statement.columns
    if "*" in columns:
        source = context.catalog.table(statement.source, context.schema)
        columns = tuple(c.name for name in columns for c in source.codec.public if name == "*") or columns
    return _create(context, statement.table, False, Action.CREATE_VIEW, lambda schema_id, table_id: view_json(
        table_id, statement.table.name, statement.select, columns, context.catalog.charset(schema_id)
    ))  # fmt: skip


def _create(
    context: DdlContext,
    name: ast.TableName,
    if_not_exists: bool,
    action: Action,
    describe: Callable[[int, int], Json],
    **involved: tuple[tuple[str, str], ...],
) -> Steps:
    catalog = context.catalog
    if catalog.find(name, context.schema) is not None:
        if if_not_exists:
            return
        raise SqlError(f"table {name.name} exists")
    schema_id = catalog.schema_id(name.schema or context.schema)
    table_id = catalog.allocate_id()
    info = describe(schema_id, table_id)
    queued = {**info, "state": int(SchemaState.NONE)}
    more = {"on_exist_replace": False, "old_view_tbl_id": 0} if action is Action.CREATE_VIEW else {"fk_check": False}
    job = context.job(action, schema_id, table_id, name.name, {"table_info": queued, **more}, **involved)
    yield
    job.args = {"table_info": info, **more}
    job.step(SchemaState.PUBLIC, Change(tables=[(schema_id, info)]), done=True, result=[info])
    yield
    job.finish()
    if action is Action.CREATE_TABLE:
        context.split(info)


def drop_tables(context: DdlContext, statement: ast.DropTables) -> Steps:
    """DROP TABLE and DROP VIEW: one job a table."""
    for name in statement.tables:
        table = context.catalog.find(name, context.schema)
        if table is not None:
            yield from _drop_table(context, table, Action.DROP_VIEW if statement.view else Action.DROP_TABLE)
        elif not statement.if_exists:
            raise SqlError(f"table {name.name} does not exist")


def _drop_table(context: DdlContext, table: Table, action: Action) -> Steps:
    schema_id, table_id = table.schema_id, table.id
    schema_name = context.catalog.schema_name(schema_id)
    args = {"identifiers": [{"Schema": ci_name(schema_name), "Name": ci_name(table.name)}], "fk_check": True}
    job = context.job(action, schema_id, table_id, table.name, args, first_state=SchemaState.PUBLIC)
    if action is Action.DROP_TABLE:
        context.remember(job, schema_id, [table])
    yield
    for state in (SchemaState.WRITE_ONLY, SchemaState.DELETE_ONLY):
        job.step(state, Change(tables=[(schema_id, changed(table, state=int(state)))]))
        yield
    job.args = {"old_rule_ids": [f"schema/{schema_name}/{table.name}"]}
    final = changed(table, state=int(SchemaState.NONE))
    job.step(SchemaState.NONE, Change(dropped=[(schema_id, table_id)]), done=True, result=[final])
    yield
    job.finish()


def truncate_table(context: DdlContext, statement: ast.Truncate) -> Steps:
    """TRUNCATE TABLE: the table gets new ids."""
    return truncate(context, context.catalog.table(statement.table, context.schema))


def truncate(context: DdlContext, table: Table) -> Steps:
    """The job of TRUNCATE TABLE."""
    catalog, schema_id, old_id = context.catalog, table.schema_id, table.id
    new_id = catalog.allocate_id()
    info = copy.deepcopy(table.info)
    info["id"] = new_id
    args: Json = {"fk_check": True, "new_table_id": new_id}
    if info["partition"]:
        args["old_partition_ids"] = [d["id"] for d in info["partition"]["definitions"]]
        for definition in info["partition"]["definitions"]:
            definition["id"] = catalog.allocate_id()
        args["new_partition_ids"] = [d["id"] for d in info["partition"]["definitions"]]
    job = context.job(Action.TRUNCATE_TABLE, schema_id, old_id, table.name, args, table_ids=(old_id, new_id))
    context.remember(job, schema_id, [table])
    yield
    change = Change(tables=[(schema_id, info)], dropped=[(schema_id, old_id)], diff={"table_id": new_id, "old_table_id": old_id})
    job.step(SchemaState.PUBLIC, change, done=True, result=[info])
    yield
    job.finish()
    context.split(info)


def rename_tables(context: DdlContext, statement: ast.RenameTables) -> Steps:
    """RENAME TABLE: one table or several, also in a circle."""
    if len(statement.pairs) == 1:
        old, new = statement.pairs[0]
        return rename_table(context, context.catalog.table(old, context.schema), new)
    return _rename_several(context, statement.pairs)


def rename_table(context: DdlContext, table: Table, new: ast.TableName) -> Steps:
    """The job of RENAME TABLE and ALTER TABLE … RENAME."""
    catalog, old_schema = context.catalog, table.schema_id
    if catalog.find(new, context.schema) is not None:
        raise SqlError(f"table {new.name} exists")
    new_schema = catalog.schema_id(new.schema or context.schema)
    old_name = ci_name(catalog.schema_name(old_schema))
    args: Json = {
        "old_schema_id": old_schema,
        "old_schema_name": old_name,
        "new_table_name": ci_name(new.name),
        "old_table_name": ci_name(""),
    }
    involving = ((catalog.schema_name(old_schema), table.name), (catalog.schema_name(new_schema), new.name))
    job = context.job(Action.RENAME_TABLE, new_schema, table.id, table.name, args, involving=involving)
    yield
    job.args = {**args, "new_schema_id": new_schema}
    info = copy.deepcopy(table.info)
    info["name"] = ci_name(new.name)
    dropped = [(old_schema, table.id)] if old_schema != new_schema else []
    diff = {"old_schema_id": old_schema, "schema_id": new_schema}
    kept = table.row_ids
    job.step(SchemaState.PUBLIC, Change(tables=[(new_schema, info)], dropped=dropped, diff=diff))
    catalog.tables[info["id"]].row_ids = kept
    yield
    job.step(SchemaState.PUBLIC, Change(diff=diff), done=True, result=[info])
    yield
    job.finish()


def _rename_several(context: DdlContext, pairs: Sequence[tuple[ast.TableName, ast.TableName]]) -> Steps:
    catalog = context.catalog
    names = {(t.schema_id, t.info["name"]["L"]): t for t in catalog.tables.values()}
    moves: list[tuple[Table, int, str, int]] = []  # table, its schema before, its name before, its schema after
    final: dict[int, Json] = {}
    infos: list[Json] = []
    for old, new in pairs:
        old_schema, new_schema = catalog.schema_id(old.schema or context.schema), catalog.schema_id(new.schema or context.schema)
        table = names.pop((old_schema, old.name.lower()), None)
        if table is None or (new_schema, new.name.lower()) in names:
            raise SqlError(f"cannot rename {old.name} to {new.name}")
        names[new_schema, new.name.lower()] = table
        info = copy.deepcopy(table.info)
        info["name"] = ci_name(new.name)
        final[table.id] = info
        moves.append((table, old_schema, old.name, new_schema))
        infos.append({
            "old_schema_id": old_schema, "old_schema_name": ci_name(catalog.schema_name(old_schema)), "new_table_name": ci_name(new.name),
            "old_table_name": ci_name(old.name), "new_schema_id": new_schema, "table_id": table.id,
        })  # fmt: skip
    last = moves[-1]
    ids = tuple(dict.fromkeys(table.id for table, *_ in moves))
    args = {"rename_table_infos": infos}
    job = context.job(Action.RENAME_TABLES, last[1], last[0].id, last[2], args, table_ids=ids)
    yield
    target = {table.id: schema for table, _, _, schema in moves}
    origin = {table.id: table.schema_id for table, *_ in moves}
    dropped = [(origin[i], i) for i in ids if origin[i] != target[i]]
    kept = {i: catalog.tables[i].row_ids for i in ids}
    job.step(SchemaState.PUBLIC, Change(tables=[(target[i], final[i]) for i in ids], dropped=dropped))
    for table_id, row_ids in kept.items():
        catalog.tables[table_id].row_ids = row_ids
    yield
    job.step(SchemaState.PUBLIC, Change(), done=True, result=[final[i] for i in ids])
    yield
    job.finish()
