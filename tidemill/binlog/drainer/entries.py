"""Binlogs in commit order → what is delivered: rows with the versions of their tables, and DDLs, without what is filtered."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidemill.binlog.blocks import Binlogs
from tidemill.binlog.ddls import Ddl
from tidemill.binlog.drainer.schemas import Schemas
from tidemill.binlog.filters import Filter
from tidemill.binlog.messages import Binlog, read_prewritten, read_version
from tidemill.binlog.outputs.transactions import DdlBinlog, Entry, TableChanges, Transaction
from tidemill.binlog.rows import read_changes
from tidemill.tidb.schema.job import DdlJob

SLICE_S = 0.05
"""Seconds of work after which other tasks have their turn."""

E_co = TypeVar("E_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Delivery(Generic[E_co]):
    """What the first `count` binlogs of some deliver; the last of them may be a DDL that is delivered. `is_early`: that DDL's binlog comes
    later, and `count` may be 0."""

    entries: Sequence[E_co]
    count: int
    ends_with_ddl: bool = False
    is_early: bool = False


class Reading:
    """`left_out`: commit ts of transactions that are not delivered."""

    def __init__(self, schemas: Schemas, tables: Filter, left_out: frozenset[int]) -> None:
        self._schemas, self._tables, self._left_out = schemas, tables, left_out

    async def read(self, binlogs: Binlogs) -> Delivery[Entry]:
        """Return what binlogs deliver, up to a DDL, or as far as a slice of time goes. Raises as `entry`."""
        entries: list[Entry] = []
        until = time.monotonic() + SLICE_S
        count = 0
        while count < len(binlogs) and (not count or time.monotonic() < until):
            binlog = binlogs.binlog(count)
            early = await self._before(binlog)
            if early is not None:
                return Delivery([*entries, early], count, ends_with_ddl=True, is_early=True)
            entry = await self.entry(binlog)
            count += 1
            if entry is not None:
                entries.append(entry)
            if isinstance(entry, DdlBinlog):
                return Delivery(entries, count, ends_with_ddl=True)
        return Delivery(entries, count)

    async def _before(self, binlog: Binlog) -> DdlBinlog | None:
        if binlog.ddl_job_id or self._schemas.is_settled(read_version(binlog.prewrite_value)):
            return None
        rows = read_prewritten(binlog.prewrite_value)
        for mutation in rows.mutations:
            early = await self.early(mutation.table_id, rows.schema_version, binlog.commit_ts)
            if early is not None:
                return early
        return None

    async def early(self, table_id: int, schema_version: int, commit_ts: int) -> DdlBinlog | None:
        """Return the DDL to deliver before a transaction has rows of a table. Raises SchemaError, UpstreamError."""
        text = await self._schemas.early(table_id, schema_version, commit_ts)
        if text is None:
            return None
        binlog, ddl = self._schemas.take_early(DdlJob.parse(text), schema_version, commit_ts)
        return self._ddl(binlog.commit_ts, ddl)

    def _ddl(self, commit_ts: int, ddl: Ddl | None) -> DdlBinlog | None:
        wanted = ddl is not None and commit_ts not in self._left_out and self._tables.takes(ddl.schema, ddl.table)
        return DdlBinlog(commit_ts, ddl) if ddl is not None and wanted else None

    async def entry(self, binlog: Binlog) -> Entry | None:
        """Return what a binlog delivers; None: nothing. Raises MalformedMessage, MalformedRow, SchemaError, UpstreamError."""
        if binlog.ddl_job_id:
            return self._ddl(binlog.commit_ts, await self._schemas.apply(binlog))
        if binlog.commit_ts in self._left_out:
            return None
        tables = []
        for mutation in read_prewritten(binlog.prewrite_value).mutations:
            version = await self._schemas.table(mutation.table_id, binlog.start_ts, binlog.commit_ts)
            if version is not None and self._tables.takes(*version.name):
                tables.append(TableChanges(version, tuple(read_changes(version.info, mutation))))
        return Transaction(binlog.start_ts, binlog.commit_ts, tuple(tables)) if tables else None
