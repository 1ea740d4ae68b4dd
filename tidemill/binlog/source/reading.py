"""Binlogs in commit order → what the change log keeps of them: changes of records, and of the schema stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.binlog.drainer.schemas import Schemas
from tidemill.binlog.messages import Binlog, read_prewritten
from tidemill.binlog.records import Record, read_records
from tidemill.tidb import keys
from tidemill.tidb.keys import is_system_schema
from tidemill.tidb.schema.job import DdlJob
from tidemill.tidb.schema.tracking.versions import TableVersion


@dataclass(frozen=True, slots=True)
class TableRecords:
    """The records of one table, sorted by key. `table_id`: the logical id; `physical_id`: the one in the keys."""

    table_id: int
    physical_id: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What a binlog adds to the log.

    `job`: of a DDL, the key-value of its job, for the schema stream. `known_before`: descriptions of tables that no DDL told of, which the
    schema stream has to have just before `commit_ts`.
    """

    start_ts: int
    commit_ts: int
    tables: tuple[TableRecords, ...] = ()
    job: tuple[bytes, bytes] | None = None
    known_before: tuple[tuple[bytes, bytes], ...] = ()


class LogReading:
    """`wants`: whether the log keeps a table."""

    def __init__(self, schemas: Schemas, wants: Callable[[TableVersion], bool]) -> None:
        self._schemas, self._wants = schemas, wants
        self._described: set[int] = set()

    async def entry(self, binlog: Binlog) -> LogEntry | None:
        """Return what a binlog adds; None: nothing. Raises MalformedMessage, MalformedRow, SchemaError, UpstreamError."""
        if binlog.ddl_job_id:
            return await self._job(binlog)
        tables, described = [], []
        for mutation in read_prewritten(binlog.prewrite_value).mutations:
            version = await self._schemas.table(mutation.table_id, binlog.start_ts, binlog.commit_ts)
            if version is not None and self._wants(version):
                records = tuple(read_records(version.info, mutation))
                tables.append(TableRecords(version.table_id, version.info.physical_ids[0], records))
                described += self._not_described(mutation.table_id)
        if not any(table.records for table in tables):
            return None
        return LogEntry(binlog.start_ts, binlog.commit_ts, tuple(tables), known_before=tuple(described))

    def _not_described(self, table_id: int) -> list[tuple[bytes, bytes]]:
        """Return the description of a table that the log's schemas do not have yet."""
        found = self._schemas.looked_up.get(table_id)
        if found is None or table_id in self._described:
            return []
        self._described.add(table_id)
        return [found]

    async def _job(self, binlog: Binlog) -> LogEntry | None:
        text = await self._schemas.job(binlog)
        if text is None:
            return None
        job = DdlJob.parse(text)
        self._schemas.take(binlog, job)
        if is_system_schema(job.schema_name):
            return None  # a log has no tables of TiDB's own databases
        key = keys.meta_hash_field(keys.DDL_JOB_HISTORY, binlog.ddl_job_id.to_bytes(8, "big"))
        return LogEntry(binlog.start_ts, binlog.commit_ts, job=(key, text))
