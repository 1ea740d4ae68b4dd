"""Binlogs in commit order → what is delivered: rows with the versions of their tables, and DDLs, without what is filtered."""

from __future__ import annotations

from tidemill.binlog.drainer.schemas import Schemas
from tidemill.binlog.filters import Filter
from tidemill.binlog.messages import Binlog, read_prewritten
from tidemill.binlog.outputs.transactions import DdlBinlog, Entry, TableChanges, Transaction
from tidemill.binlog.rows import read_changes


class Reading:
    """`left_out`: commit ts of transactions that are not delivered."""

    def __init__(self, schemas: Schemas, tables: Filter, left_out: frozenset[int]) -> None:
        self._schemas, self._tables, self._left_out = schemas, tables, left_out

    async def entry(self, binlog: Binlog) -> Entry | None:
        """Return what a binlog delivers; None: nothing. Raises MalformedMessage, MalformedRow, SchemaError, UpstreamError."""
        if binlog.ddl_job_id:
            ddl = await self._schemas.apply(binlog)
            wanted = ddl is not None and binlog.commit_ts not in self._left_out and self._tables.takes(ddl.schema, ddl.table)
            return DdlBinlog(binlog.commit_ts, ddl) if ddl is not None and wanted else None
        if binlog.commit_ts in self._left_out:
            return None
        tables = []
        for mutation in read_prewritten(binlog.prewrite_value).mutations:
            version = await self._schemas.table(mutation.table_id, binlog.start_ts, binlog.commit_ts)
            if version is not None and self._tables.takes(*version.name):
                tables.append(TableChanges(version, tuple(read_changes(version.info, mutation))))
        return Transaction(binlog.start_ts, binlog.commit_ts, tuple(tables)) if tables else None
