"""The tables of the cluster while binlogs go by: read from TiKV at the beginning, then changed by each DDL's job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from tidemill.binlog.ddls import Ddl, database_text, ddl_of, has_no_effect, is_delivered, took_effect
from tidemill.binlog.drainer.rows.early import early_job
from tidemill.binlog.messages import Binlog, BinlogType
from tidemill.capture.meta import read_meta
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.read.snapshot import Snapshot
from tidemill.errors import SchemaError, StartTsBeforeGc
from tidemill.sinks.mysql.dialect import special_indexes
from tidemill.sinks.mysql.moment import Moment
from tidemill.tidb import keys
from tidemill.tidb.ddltext import DdlSyntaxError
from tidemill.tidb.schema.codes import Action, SchemaState
from tidemill.tidb.schema.job import DdlJob
from tidemill.tidb.schema.metakeys import Subject, name_of
from tidemill.tidb.schema.model import DBInfo
from tidemill.tidb.schema.tracking.catalog import Catalog, Edits
from tidemill.tidb.schema.tracking.effects import effects
from tidemill.tidb.schema.tracking.history import read_catalog
from tidemill.tidb.schema.tracking.statements import written
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tso import describe, physical_ms
from tidemill.visible import short_statement

JOB_RETRY_S = 1.0
"""Seconds between two looks for a job: TiDB files it a moment after its binlog."""

_log = logging.getLogger(__name__)


class Schemas:
    """Belongs to one event loop. `waits`: told what it waits for; None: nothing any more."""

    def __init__(self, pd: PdClient, catalog: Catalog, waits: Callable[[str | None], None]) -> None:
        self._pd, self._catalog, self._waits = pd, catalog, waits
        self._asked: dict[int, TableVersion | None] = {}
        self._settled: dict[int, int] = {}
        self.changes = 0
        """How many DDLs were taken."""
        self.looked_up: dict[int, tuple[bytes, bytes]] = {}
        """The meta key-values of tables that no DDL binlog told of, by table id."""

    @classmethod
    async def at(cls, pd: PdClient, ts: int, waits: Callable[[str | None], None], version: int = 0) -> Schemas:
        """Return the schemas as of `ts`; `version`: of the DDLs delivered up to there, 0 if that is not known.

        Where TiKV has collected that state, they are made from the history of DDL jobs. So are tables that a DDL was changing just then:
        its binlog comes later, unless it was delivered before its binlog. Raises UpstreamError, SchemaError.
        """
        try:
            catalog = read_catalog((await read_meta(pd, ts)).items(), ts)
        except StartTsBeforeGc as error:
            _log.warning("%s: the schema is made from the history of DDL jobs", error.message)
            return cls(pd, await _from_history(pd, ts, version), waits)
        if version not in (0, catalog.schema_version):
            _take_back(catalog, await _from_history(pd, ts, version), ts)
            catalog.schema_version = version
        return cls(pd, catalog, waits)

    @property
    def version(self) -> int:
        """The schema version."""
        return self._catalog.schema_version

    async def table(self, table_id: int, start_ts: int, commit_ts: int) -> TableVersion | None:
        """Return a table by its id; None for a table of a system database. Raises SchemaError, UpstreamError.

        A table that no DDL binlog told of is looked for in TiKV.
        """
        found = self._catalog.tables.get(table_id)
        if found is not None:
            return found
        if table_id not in self._asked:
            self._asked[table_id] = await self._look(table_id, start_ts, commit_ts)
        return self._asked[table_id]

    async def _look(self, table_id: int, start_ts: int, commit_ts: int) -> TableVersion | None:
        for ts in (commit_ts, start_ts):
            pairs = await read_meta(self._pd, ts)
            found = read_catalog(pairs.items(), ts).tables.get(table_id)
            if found is not None:
                _log.warning("table %d (%s.%s) was told of by no DDL binlog: it is read from TiKV", table_id, *found.name)
                key = next(key for key in pairs if _is_of_table(key, table_id))
                self.looked_up[table_id] = key, pairs[key]
                return found
            if any(_is_of_table(key, table_id) for key in pairs):
                return None  # of a system database
        raise SchemaError(
            f"a transaction at {describe(commit_ts)} has rows of table {table_id}, which TiKV does not have at that time",
            hint="Leave the transaction out with ignore-txn-commit-ts if its rows are not needed.",
        )

    # DDLs before their binlogs

    def is_settled(self, schema_version: int) -> bool:
        """Whether all tables are known to fit the rows of transactions with this schema version."""
        return schema_version <= self._catalog.schema_version

    def settled(self, table_id: int) -> int:
        """Return the schema version up to which rows of a table are known to fit it."""
        return max(self._catalog.schema_version, self._settled.get(table_id, 0))

    async def early(self, table_id: int, schema_version: int, commit_ts: int) -> bytes | None:
        """Return the job (JSON) of a DDL that rows of a transaction need to be done first, though its binlog comes behind them; None: they
        fit, and those of transactions up to this schema version do. Raises UpstreamError, SchemaError."""
        known = self._catalog.tables.get(table_id)
        if known is not None and schema_version > self.settled(table_id):
            text = await early_job(self._pd, known, schema_version, commit_ts, self._waits)
            if text is not None:
                return text
        self._settled[table_id] = max(schema_version, self._settled.get(table_id, 0))
        return None

    def take_early(self, job: DdlJob, schema_version: int, commit_ts: int) -> tuple[Binlog, Ddl | None]:
        """Take the job that `early` returned for a transaction: as a DDL just before it, which is returned. Raises SchemaError."""
        binlog = early_binlog(job, commit_ts)
        _log.info("rows at %s have columns of a DDL whose binlog comes later: it is delivered before them", describe(commit_ts))
        ddl = self.take(binlog, job)
        self._settled[job.table_id] = schema_version
        return binlog, ddl

    def has(self, job: DdlJob) -> bool:
        """Whether the table is as this job with several actions left it: the job was taken before its binlog."""
        table, info = self._catalog.tables.get(job.table_id), job.table_info
        if job.action != Action.MULTI_SCHEMA_CHANGE or table is None or info is None:
            return False
        return 0 < info.update_ts <= table.info.update_ts

    # DDLs

    async def apply(self, binlog: Binlog) -> Ddl | None:
        """Take a DDL binlog. Returns the DDL to deliver, or None. Raises SchemaError, UpstreamError."""
        text = await self.job(binlog)
        return self.take(binlog, DdlJob.parse(text)) if text is not None else None

    async def job(self, binlog: Binlog) -> bytes | None:
        """Return the job of a DDL binlog as TiDB files it (JSON); None if it changed nothing. Raises SchemaError, UpstreamError."""
        query = _query_of(binlog)
        if has_no_effect(query, binlog.ddl_schema_state):
            return None
        text = await self._job(binlog)
        job = DdlJob.parse(text)
        if not took_effect(job):
            _log.info(
                "DDL job %d changed nothing (state %s, schema version %d) and is left out: %s",
                job.id,
                job.state,
                job.schema_version,
                short_statement(query),
            )
            return None
        return text

    def take(self, binlog: Binlog, job: DdlJob) -> Ddl | None:
        """Change the tables as a job that is done did. Returns the DDL to deliver, or None. Raises SchemaError."""
        query = _query_of(binlog)
        before = self._catalog.tables.get(job.table_id)
        if self.has(job):
            _log.info("DDL job %d was delivered before its binlog at %s: %s", job.id, describe(binlog.commit_ts), short_statement(query))
            return None
        self.changes += 1
        text = database_text(query, job.schema_name, self._catalog)
        know_database(self._catalog, job)
        changes = self._catalog.apply(edits_of(job, self._catalog), binlog.commit_ts)
        self._catalog.schema_version = max(self._catalog.schema_version, job.schema_version)
        self._asked.clear()
        self._settled.clear()
        if not is_delivered(job):
            return None
        schema, table = self._names(job, before)
        _log.info("DDL job %d at %s, %d tables changed: %s", job.id, describe(binlog.commit_ts), len(changes), short_statement(query))
        special = special_indexes(before.info) if before is not None else ()
        moment = Moment(before.info if before is not None else None, job.table_info, physical_ms(job.start_ts or binlog.commit_ts), "")
        return replace(ddl_of(job, query, schema, table), for_database=text, special=special, now=moment.sql)

    def _names(self, job: DdlJob, before: TableVersion | None) -> tuple[str, str]:
        """Return database and table that a done job is about."""
        if job.db_info is not None:
            return job.db_info.name, ""
        info = job.table_infos[0] if job.action in (Action.RENAME_TABLES, Action.CREATE_TABLES) and job.table_infos else job.table_info
        if info is None:
            return (job.schema_name, job.table_name) if before is None else before.name
        version = self._catalog.tables.get(info.id)
        database = self._catalog.databases.get(job.schema_id)
        return (version.schema if version is not None else database.name if database is not None else job.schema_name), info.name

    async def _job(self, binlog: Binlog) -> bytes:
        key = keys.meta_hash_field(keys.DDL_JOB_HISTORY, binlog.ddl_job_id.to_bytes(8, "big"))
        try:
            while True:
                text = await Snapshot(self._pd, await self._pd.tso()).get(key)
                if text is not None:
                    return text
                self._waits(f"DDL job {binlog.ddl_job_id} of the binlog at {describe(binlog.commit_ts)} is not in TiKV's history yet")
                await asyncio.sleep(JOB_RETRY_S)
        finally:
            self._waits(None)


def _is_of_table(key: bytes, table_id: int) -> bool:
    found = name_of(key)
    return found is not None and found.subject is Subject.TABLE and found.table_id == table_id


def _query_of(binlog: Binlog) -> str:
    return binlog.ddl_query.decode("utf-8", "surrogateescape")


def early_binlog(job: DdlJob, commit_ts: int) -> Binlog:
    """Return the binlog of a DDL that is delivered before rows at `commit_ts`. Its query is printed as TiDB prints those of binlogs."""
    try:
        query = f"{written(job).printed()};"
    except DdlSyntaxError:
        query = job.query
    return Binlog(BinlogType.COMMIT, commit_ts - 2, commit_ts - 1, b"m", b"", query.encode("utf-8", "surrogateescape"), job.id)


def know_database(catalog: Catalog, job: DdlJob) -> None:
    """Add the database of a job that no job created, as TiDB's own databases are."""
    if job.db_info is None and job.schema_id and job.schema_id not in catalog.databases:
        catalog.databases[job.schema_id] = DBInfo(job.schema_id, job.schema_name, "", "", SchemaState.PUBLIC)


def edits_of(job: DdlJob, catalog: Catalog) -> Edits:
    """Return what a done job does to the schema. FLASHBACK DATABASE names no tables: they are looked for in TiKV when their rows come."""
    if job.action != Action.RECOVER_SCHEMA:
        return effects(job, catalog)
    edits = Edits()
    if job.db_info is not None:
        edits.databases[job.schema_id] = job.db_info
    return edits


def _take_back(catalog: Catalog, delivered: Catalog, ts: int) -> None:
    """Make tables that a DDL was changing at `ts` as they were before it, or after it where it was delivered before its binlog."""
    for table_id, version in delivered.tables.items():
        now = catalog.tables.get(table_id)
        if now is None or now.info.update_ts == version.info.update_ts:
            continue
        columns, had = ({column.id for column in one.info.public_columns} for one in (now, version))
        if columns != had or now.info.update_ts < version.info.update_ts:
            _log.info("a DDL was changing %s.%s at %s", *version.name, describe(ts))
            catalog.tables[table_id] = version


async def _from_history(pd: PdClient, ts: int, version: int) -> Catalog:
    jobs: list[tuple[int, DdlJob]] = []
    start, end = keys.meta_hash_range(keys.DDL_JOB_HISTORY)
    async for _, text in Snapshot(pd, await pd.tso()).scan(start, end):
        job = DdlJob.parse(text)
        finished = int(job.binlog.get("FinishedTS") or 0)
        before = 0 < finished <= ts and (not version or job.schema_version <= version)  # a job is finished just before its binlog
        early = job.action == Action.MULTI_SCHEMA_CHANGE and 0 < job.schema_version == version
        if took_effect(job) and (before or early):
            jobs.append((finished, job))
    catalog = Catalog()
    for finished, job in sorted(jobs, key=lambda pair: (pair[1].schema_version, pair[0])):
        know_database(catalog, job)
        catalog.apply(edits_of(job, catalog), finished)
        catalog.schema_version = max(catalog.schema_version, job.schema_version)
    return catalog
