"""The meta range of a fresh cluster: system databases, the DDL tables, counters."""

from __future__ import annotations

from typing import Any

from tidemill.playground.sql.catalog import Catalog, Table, compact, table_key
from tidemill.playground.sql.parse import ast
from tidemill.playground.sql.parse.parser import parse
from tidemill.playground.sql.schema.tableinfo import ci_name, table_json
from tidemill.playground.store.cluster import Cluster, Mutation
from tidemill.tidb import keys
from tidemill.tidb.schema.codes import SchemaState

Json = dict[str, Any]

MYSQL_ID, TEST_ID, SYS_ID = 1, 2, 102
BOOTSTRAP_VERSION = 240
DDL_TABLE_VERSION = 4
_CHARSET = ("utf8mb4", "utf8mb4_bin")

_SYSTEM_TABLES = {
    keys.DDL_JOB_TABLE_ID: """create table tidb_ddl_job (job_id bigint not null, reorg int, schema_ids mediumtext, table_ids mediumtext,
        job_meta longblob, type int, processing int, primary key (job_id))""",
    keys.DDL_REORG_TABLE_ID: """create table tidb_ddl_reorg (job_id bigint not null, ele_id bigint, ele_type blob, start_key blob,
        end_key blob, physical_id bigint, reorg_meta longblob, unique key (job_id, ele_id, ele_type(20)))""",
    keys.DDL_HISTORY_TABLE_ID: """create table tidb_ddl_history (job_id bigint not null, job_meta longblob, db_name char(64),
        table_name char(64), schema_ids mediumtext, table_ids mediumtext, create_time datetime, primary key (job_id))""",
    keys.MDL_INFO_TABLE_ID: """create table tidb_mdl_info (job_id bigint not null primary key, version bigint not null,
        table_ids text, owner_id varchar(64) not null default '')""",
}


def database_json(database_id: int, name: str, charset: str, collate: str, state: SchemaState = SchemaState.PUBLIC) -> Json:
    """The description of a database."""
    return {
        "id": database_id, "db_name": ci_name(name), "charset": charset, "collate": collate, "Deprecated": {}, "state": int(state),
        "policy_ref_info": None,
    }  # fmt: skip


def bootstrap(cluster: Cluster, catalog: Catalog) -> None:
    """Write what a new cluster has: one transaction."""
    start_ts = cluster.oracle.next()
    mutations: list[Mutation] = []
    for database_id, name in ((MYSQL_ID, "mysql"), (TEST_ID, "test"), (SYS_ID, "sys")):
        catalog.schemas[database_id] = database_json(database_id, name, *_CHARSET)
        mutations.append((keys.db_key(database_id), compact(catalog.schemas[database_id])))
    for table_id, sql in _SYSTEM_TABLES.items():
        statement = parse(sql)
        assert isinstance(statement, ast.CreateTable)
        info = table_json(statement, table_id, _CHARSET, catalog.allocate_id, "")
        info["update_timestamp"] = start_ts
        catalog.tables[table_id] = Table(MYSQL_ID, info)
        mutations.append((table_key(MYSQL_ID, table_id), compact(info)))
    mutations += [
        (keys.meta_string(b"SchemaVersionKey"), b"%d" % catalog.schema_version),
        (keys.meta_string(b"NextGlobalID"), b"%d" % catalog.next_global_id),
        (keys.meta_string(b"BootstrapKey"), b"%d" % BOOTSTRAP_VERSION),
        (keys.meta_string(b"DDLTableVersion"), b"%d" % DDL_TABLE_VERSION),
    ]
    cluster.transact(mutations, start_ts=start_ts)
    cluster.split(
        [keys.table_prefix(keys.DDL_HISTORY_TABLE_ID), keys.table_prefix(keys.DDL_REORG_TABLE_ID), keys.table_prefix(keys.DDL_JOB_TABLE_ID)]
    )
