"""DDL jobs as TiDB runs them: rows of `mysql.tidb_ddl_job` (row format 1), meta keys and the schema version, one transaction a step.

A job is queued, then each step puts the job row together with the table descriptions and the schema diff of that step; the
done step keeps the final description in the job; at last the row is deleted and the job goes to the history table and hash.
The schema version is put by a transaction of its own just before each step, as TiDB does.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemill import tso
from tidemill.binlog.messages import Binlog, BinlogType
from tidemill.playground.sql.binlogs import Binlogs, transact
from tidemill.playground.sql.catalog import Catalog, Table, compact, table_key
from tidemill.playground.store.cluster import Cluster, Mutation
from tidemill.tidb import keys
from tidemill.tidb.codec import encode_compact_bytes, encode_uint, encode_uvarint, encode_varint
from tidemill.tidb.datums import DatumFlag
from tidemill.tidb.ddltext import canonical_ddl
from tidemill.tidb.schema.codes import Action, JobState, SchemaState
from tidemill.tidb.schema.job import SHARED
from tidemill.tidb.types.times import Moment, pack_time

Json = dict[str, Any]

SQL_MODE = 1436549152
"""What TiDB's default sql_mode looks like in a job."""
_STRICT = 1 << 21

_UNSIGNED = frozenset({"create_time"})
_JOB_COLUMNS = {"reorg": 2, "schema_ids": 3, "table_ids": 4, "job_meta": 5, "type": 6, "processing": 7}
_HISTORY_COLUMNS = {"job_meta": 2, "db_name": 3, "table_name": 4, "schema_ids": 5, "table_ids": 6, "create_time": 7}


def row_v1(columns: dict[str, int], values: dict[str, int | bytes]) -> bytes:
    """A row of format 1: integers and byte strings by column id."""
    out = bytearray()
    for name, column_id in columns.items():
        out.append(DatumFlag.VARINT)
        out += encode_varint(column_id)
        value = values[name]
        if isinstance(value, bytes):
            out.append(DatumFlag.COMPACT_BYTES)
            out += encode_compact_bytes(value)
        elif name in _UNSIGNED:
            out.append(DatumFlag.UVARINT)
            out += encode_uvarint(value)
        else:
            out.append(DatumFlag.VARINT)
            out += encode_varint(value)
    return bytes(out)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What a job is about."""

    action: Action
    schema_id: int
    table_id: int
    schema_name: str
    table_name: str
    query: str
    args: Json | None = None
    table_ids: tuple[int, ...] = ()  # all that the job touches, if more than table_id
    involving: tuple[tuple[str, str], ...] = ()
    reading: tuple[tuple[str, str], ...] = ()  # the tables that it only reads
    first_state: SchemaState = SchemaState.NONE
    cdc_write_source: int = 0
    strict: bool = True
    sub_jobs: tuple[Json, ...] = ()  # the parts of a multi-schema change


@dataclass(slots=True)
class Change:
    """What one step does to the meta range, besides the job row and the schema version."""

    tables: list[tuple[int, Json]] = field(default_factory=list)  # schema id, new description
    dropped: list[tuple[int, int]] = field(default_factory=list)  # schema id, table id
    databases: list[Json] = field(default_factory=list)
    dropped_databases: list[int] = field(default_factory=list)
    meta: list[Mutation] = field(default_factory=list)
    diff: Json = field(default_factory=dict)


class Job:
    """One running job. `queue`, then `step` any number of times, the last with `done`, then `finish`."""

    def __init__(self, cluster: Cluster, catalog: Catalog, spec: JobSpec, binlogs: Binlogs | None = None) -> None:
        self._cluster, self._catalog, self._spec, self._binlogs = cluster, catalog, spec, binlogs
        self.args = spec.args
        self._state = JobState.QUEUEING
        self._schema_state = spec.first_state
        self._real_start_ts = self._start_ts = 0
        self._row_count = 0
        self._schema_version = 0
        self._results: list[Json] = []
        self._database: Json | None = None
        self.id = 0
        self.sub_jobs = [dict(sub) for sub in spec.sub_jobs]
        self.keep_result = False
        """A multi-schema change shows its description from its first public step on."""

    # the row

    def _job_json(self, finished_ts: int = 0, sequence: int = 0) -> Json:
        spec = self._spec
        binlog: Json = {
            "SchemaVersion": self._schema_version,
            "DBInfo": self._database,
            "TableInfo": None,
            "FinishedTS": finished_ts,
            "MultipleTableInfos": None,
        }
        if self._results:
            binlog["TableInfo"] = self._results[-1]
        if spec.action is Action.RENAME_TABLES and self._results:
            binlog["MultipleTableInfos"] = self._results
        job: Json = {
            "id": self.id, "type": int(spec.action), "schema_id": spec.schema_id, "table_id": spec.table_id,
            "schema_name": spec.schema_name, "table_name": spec.table_name, "state": int(self._state), "warning": None, "err": None,
            "err_count": 0, "row_count": self._row_count, "raw_args": self.args, "schema_state": int(self._schema_state), "snapshot_ver": 0,
            "real_start_ts": self._real_start_ts, "start_ts": self._start_ts, "dependency_id": 0, "query": spec.query, "binlog": binlog,
            "version": 2, "reorg_meta": None, "multi_schema_info": self._sub_jobs(),
            "priority": 0, "seq_num": sequence, "charset": "", "collate": "",
        }  # fmt: skip
        if spec.involving:
            job["involving_schema_info"] = [{"database": d, "table": t} for d, t in spec.involving]
            job["involving_schema_info"] += [{"database": d, "table": t, "mode": SHARED} for d, t in spec.reading]
        return job | {
            "admin_operator": 0, "trace_info": {"session_alias": "", "connection_id": 1}, "bdr_role": "",
            "cdc_write_source": spec.cdc_write_source, "local_mode": False, "sql_mode": SQL_MODE if spec.strict else SQL_MODE & ~_STRICT,
        }  # fmt: skip

    def _sub_jobs(self) -> Json | None:
        if not self.sub_jobs:
            return None
        return {"sub_jobs": self.sub_jobs, "revertible": not self.keep_result, "seq": 0}

    def _key(self) -> bytes:
        return keys.record_key(keys.DDL_JOB_TABLE_ID, self.id)

    def _table_ids(self) -> bytes:
        ids = self._spec.table_ids or (self._spec.table_id,)
        return ",".join(map(str, ids)).encode()

    def _row(self) -> bytes:
        reorganises = self._spec.action in (Action.ADD_INDEX, Action.MODIFY_COLUMN, Action.REORGANIZE_PARTITION)
        values: dict[str, int | bytes] = {
            "reorg": int(reorganises), "schema_ids": str(self._spec.schema_id).encode(), "table_ids": self._table_ids(),
            "job_meta": compact(self._job_json()), "type": int(self._spec.action), "processing": 0,
        }  # fmt: skip
        return row_v1(_JOB_COLUMNS, values)

    # its life

    def queue(self) -> None:
        """Put the job into the job table."""
        self._start_ts = self._cluster.oracle.next()
        self.id = self._catalog.allocate_id()
        counter = (keys.meta_string(b"NextGlobalID"), b"%d" % self._catalog.next_global_id)
        self._cluster.transact([counter, (self._key(), self._row())])

    def step(
        self,
        state: SchemaState,
        change: Change,
        *,
        done: bool = False,
        result: Sequence[Json] = (),
        database: Json | None = None,
        job_state: JobState | None = None,
    ) -> int:
        """One step: the schema version, then job row, meta keys and diff together. Returns the commit_ts of the latter.

        `result` are the final descriptions that a done job carries. The catalog is brought up to date.
        """
        catalog, cluster = self._catalog, self._cluster
        start_ts = cluster.oracle.next()
        self._real_start_ts = self._real_start_ts or start_ts
        catalog.schema_version += 1
        version = catalog.schema_version
        cluster.transact([(keys.meta_string(b"SchemaVersionKey"), b"%d" % version)])
        self._state = job_state or (JobState.DONE if done else JobState.RUNNING)
        self._schema_state = state
        for _, info in change.tables:
            info["update_timestamp"] = start_ts
        if done:
            self._schema_version, self._database = version, database
            self._results = [copy.deepcopy(r) for r in result]
        elif self.keep_result and change.tables:
            self._schema_version, self._results = version, [copy.deepcopy(change.tables[0][1])]
        mutations: list[Mutation] = [(self._key(), self._row()), *self._meta(change), (_diff_key(version), self._diff(version, change))]
        commit_ts = self._transact(start_ts, mutations)
        self._apply(change)
        return commit_ts

    def _transact(self, start_ts: int, mutations: list[Mutation]) -> int:
        read_ts = self._cluster.oracle.last
        if self._binlogs is None or not self._is_told():
            return self._cluster.transact(mutations, start_ts=start_ts, read_ts=read_ts)
        binlog = Binlog(
            BinlogType.PREWRITE,
            start_ts,
            prewrite_key=min(key for key, _ in mutations),
            ddl_query=_normalized(self._spec.query).encode(),
            ddl_job_id=self.id,
            ddl_schema_state=int(self._schema_state),
        )
        return transact(self._cluster, self._binlogs.writer, binlog, mutations, read_ts=read_ts)

    def _is_told(self) -> bool:
        """Whether TiDB writes a binlog of this step: of the last one, and of that from which on a dropped column is not written."""
        if self._state in (JobState.DONE, JobState.ROLLBACK_DONE):
            return True
        return self._spec.action is Action.DROP_COLUMN and self._schema_state is SchemaState.DELETE_ONLY

    def note(self, row_count: int, state: SchemaState | None = None) -> None:
        """Write the job row without a change of the schema, as during a backfill or in a step that only checks."""
        self._row_count = row_count
        if state is not None:
            self._state, self._schema_state = JobState.RUNNING, state
            self._real_start_ts = self._real_start_ts or self._cluster.oracle.next()
        self._cluster.transact([(self._key(), self._row())])

    def finish(self, state: JobState = JobState.SYNCED) -> None:
        """Move the job to the history, where its arguments are gone."""
        start_ts = self._cluster.oracle.next()
        self._state, self.args = state, None
        self._catalog.jobs_done += 1
        meta = compact(self._job_json(start_ts, self._catalog.jobs_done))
        values: dict[str, int | bytes] = {
            "job_meta": meta, "db_name": self._spec.schema_name.encode(), "table_name": self._spec.table_name.encode(),
            "schema_ids": str(self._spec.schema_id).encode(), "table_ids": self._table_ids(),
            "create_time": pack_time(Moment(*tso.when(self._start_ts).timetuple()[:6])),
        }  # fmt: skip
        self._cluster.transact(
            [
                (self._key(), None),
                (keys.record_key(keys.DDL_HISTORY_TABLE_ID, self.id), row_v1(_HISTORY_COLUMNS, values)),
                (keys.meta_hash_field(b"DDLJobHistory", encode_uint(self.id)), meta),
            ],
            start_ts=start_ts,
            read_ts=self._cluster.oracle.last,
        )

    # the meta range and the catalog

    def _meta(self, change: Change) -> Iterable[Mutation]:
        for schema_id, table_id in change.dropped:
            yield table_key(schema_id, table_id), None
        for schema_id, info in change.tables:
            yield table_key(schema_id, info["id"]), compact(info)
        for database in change.databases:
            yield keys.db_key(database["id"]), compact(database)
        for schema_id in change.dropped_databases:
            yield keys.db_key(schema_id), None
        yield from change.meta

    def _diff(self, version: int, change: Change) -> bytes:
        base = {"version": version, "type": int(self._spec.action), "schema_id": self._spec.schema_id, "table_id": self._spec.table_id}
        rest = {"old_table_id": 0, "old_schema_id": 0, "regenerate_schema_map": False, "affected_options": None}
        return compact({**base, **rest, **change.diff})

    def _apply(self, change: Change) -> None:
        catalog = self._catalog
        for _, table_id in change.dropped:
            catalog.tables.pop(table_id, None)
        for schema_id, info in change.tables:
            known = catalog.tables.get(info["id"])
            if known is None:
                catalog.tables[info["id"]] = Table(schema_id, copy.deepcopy(info))
            else:
                known.schema_id = schema_id
                known.replace(copy.deepcopy(info))
        for database in change.databases:
            catalog.schemas[database["id"]] = dict(database)
        for schema_id in change.dropped_databases:
            catalog.schemas.pop(schema_id, None)


def _normalized(query: str) -> str:
    """Return a statement as binlogs have it."""
    return canonical_ddl(query, SQL_MODE).rstrip() + ";"


def _diff_key(version: int) -> bytes:
    return keys.meta_string(b"Diff:%d" % version)
