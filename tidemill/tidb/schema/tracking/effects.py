"""What a finished DDL job does to the schema, computed from the job alone.

Used for logs that hold the rows of DDL jobs but not the meta keys that they changed. Where a log has the meta keys, they are used.
"""

from __future__ import annotations

from dataclasses import replace

from tidemill.errors import SchemaError
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.job import DdlJob, Exchange
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.catalog import Catalog, Edits

_NONE = frozenset(
    {
        Action.LOCK_TABLE,
        Action.UNLOCK_TABLE,
        Action.REPAIR_TABLE,
        Action.CREATE_PLACEMENT_POLICY,
        Action.ALTER_PLACEMENT_POLICY,
        Action.DROP_PLACEMENT_POLICY,
        Action.ALTER_SCHEMA_PLACEMENT,
        Action.CREATE_RESOURCE_GROUP,
        Action.ALTER_RESOURCE_GROUP,
        Action.DROP_RESOURCE_GROUP,
    }
)
_DROPS = frozenset({Action.DROP_TABLE, Action.DROP_VIEW, Action.DROP_SEQUENCE})
_REPLACES_ID = frozenset({Action.TRUNCATE_TABLE, Action.ALTER_PARTITIONING, Action.REMOVE_PARTITIONING})


def effects(job: DdlJob, catalog: Catalog) -> Edits:
    """Return the edits of a done job; tables of system databases are left out.

    Raises SchemaError for FLASHBACK DATABASE: only the meta range holds its tables.
    """
    edits = Edits()
    match job.action:
        case Action.CREATE_SCHEMA | Action.MODIFY_SCHEMA_CHARSET:
            if job.db_info is not None:
                edits.databases[job.schema_id] = job.db_info
        case Action.DROP_SCHEMA:
            edits.databases[job.schema_id] = None
        case Action.RECOVER_SCHEMA:
            raise SchemaError(
                f"job {job.id} is a FLASHBACK DATABASE and the log has none of the meta keys that it changed",
                hint="Start again from a snapshot taken after it.",
            )
        case action if action in _NONE:
            pass
        case action if action in _DROPS:
            edits.removed.add((job.schema_id, job.table_id))
        case Action.CREATE_TABLES:
            for info in job.table_infos:
                edits.tables[info.id] = job.schema_id, info
        case Action.RENAME_TABLES:
            _rename_tables(job, edits)
        case Action.EXCHANGE_PARTITION:
            _exchange(job, catalog, edits)
        case _:
            _replace_table(job, catalog, edits)
    edits.tables = {table_id: found for table_id, found in edits.tables.items() if not catalog.is_system(found[0])}
    return edits


def _rename_tables(job: DdlJob, edits: Edits) -> None:
    new_schemas = {rename.table_id: rename.new_schema_id for rename in job.renames}
    for info in job.table_infos:
        edits.tables[info.id] = new_schemas.get(info.id, job.schema_id), info


def _exchange(job: DdlJob, catalog: Catalog, edits: Edits) -> None:
    """Add an exchange. The job holds the partitioned table after it. The plain table keeps its description under the partition's old id."""
    partitioned = job.table_info
    exchange = job.exchange or (_exchange_seen(job, partitioned, catalog) if partitioned is not None else None)
    if partitioned is None or exchange is None:
        raise SchemaError(f"job {job.id} (exchange partition) does not tell its tables")
    edits.tables[partitioned.id] = exchange.schema_id, partitioned
    plain = catalog.tables.get(job.table_id)
    if plain is not None:
        edits.removed.add((plain.schema_id, job.table_id))
        edits.tables[exchange.partition_id] = plain.schema_id, _with_id(plain.info, exchange.partition_id)


def _exchange_seen(job: DdlJob, after: TableInfo, catalog: Catalog) -> Exchange | None:
    """Return what a job exchanged that was filed without arguments, as TiDB <= 8.3 does: the partition that has the plain table's id."""
    before = catalog.tables.get(after.id)
    if before is None or before.info.partitioning is None or after.partitioning is None:
        return None
    old = {definition.name: definition.id for definition in before.info.partitioning.definitions}
    for definition in after.partitioning.definitions:
        if definition.id == job.table_id and definition.name in old:
            return Exchange(before.schema_id, after.id, old[definition.name], definition.name)
    return None


def _with_id(info: TableInfo, table_id: int) -> TableInfo:
    return replace(info, id=table_id)


def _replace_table(job: DdlJob, catalog: Catalog, edits: Edits) -> None:
    """Add a job that creates, alters, truncates or renames one table, and every action that is not known here."""
    info = job.table_info
    if info is None:
        return
    if job.action in _REPLACES_ID and info.id != job.table_id:
        edits.removed.add((job.schema_id, job.table_id))
    if job.action == Action.CREATE_VIEW:
        edits.removed.update(
            (version.schema_id, version.table_id)
            for version in catalog.tables.values()
            if version.schema_id == job.schema_id and version.info.is_view and version.table.lower() == info.name.lower()
        )
    edits.tables[info.id] = job.schema_id, info
