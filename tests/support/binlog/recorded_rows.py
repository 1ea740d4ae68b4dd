"""The rows of all recorded transactions, with their tables."""

from __future__ import annotations

import asyncio
from functools import cache

from tests.support.binlog.drained import RecordedSchemas, history, recorded, with_fillers
from tidemill.binlog.messages import TableMutation, read_prewritten
from tidemill.tidb.schema.tracking.versions import TableVersion


@cache
def recorded_tables() -> tuple[tuple[TableVersion, TableMutation], ...]:
    """Every table's rows of every recorded transaction, with the table as it was then."""

    async def found() -> list[tuple[TableVersion, TableMutation]]:
        jobs = history()
        schemas, tables = RecordedSchemas(jobs), []
        for binlog in with_fillers([binlog for case in recorded() for binlog in case.binlogs], jobs):
            if binlog.ddl_job_id:
                await schemas.apply(binlog)
                continue
            for mutation in read_prewritten(binlog.prewrite_value).mutations:
                version = await schemas.table(mutation.table_id, binlog.start_ts, binlog.commit_ts)
                if version is not None:
                    tables.append((version, mutation))
        return tables

    return tuple(asyncio.run(found()))
