"""Finds the DDL whose columns rows have before the DDL's binlog comes.

TiDB writes the binlog of an ALTER TABLE with several actions when the last one is done. The columns that it adds or changes are public
some steps earlier, all at once, and rows get values in them. In a binlog such a row has the schema version of its transaction and the ids
of its columns, but not what these are. TiKV has the table as it was at that time, and, once the job is done, the job with the table as
the binlog will leave it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Set

from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.read.snapshot import Snapshot
from tidemill.errors import StartTsBeforeGc
from tidemill.tidb import keys
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.job import DdlJob
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tso import describe

RETRY_S = 1.0
"""Seconds between two looks for a job that is not done yet."""
MOST_S = 600.0
"""Seconds that a job is waited for; the steps behind the public one take some seconds in TiDB."""
_COLUMNS = (Action.ADD_COLUMN, Action.MODIFY_COLUMN)

_log = logging.getLogger(__name__)


async def early_job(
    pd: PdClient, known: TableVersion, schema_version: int, commit_ts: int, waits: Callable[[str | None], None]
) -> bytes | None:
    """Return the job (JSON) that a transaction's rows of a table need to be done first; None: they fit `known`.

    Where TiKV has collected the state of that time, the job's parts tell in which schema version they were made public. Raises
    UpstreamError, SchemaError.
    """
    info = await _table_at(pd, known, commit_ts)
    if info is None:
        return await _published(pd, known, schema_version)
    new = _public_ids(info) - _public_ids(known.info)
    return await _done(pd, known, new, commit_ts, waits) if new else None


def is_published(job: DdlJob, schema_version: int) -> bool:
    """Whether the columns of a job with several actions were public in a schema version, as far as its parts tell."""
    found = [part.schema_version for part in job.sub_jobs if part.action in _COLUMNS]
    return job.action == Action.MULTI_SCHEMA_CHANGE and bool(found) and 0 < found[0] <= schema_version


async def _table_at(pd: PdClient, known: TableVersion, ts: int) -> TableInfo | None:
    """Return a table as TiKV had it; None: it has collected that."""
    try:
        text = await Snapshot(pd, ts).get(keys.table_key(known.schema_id, known.table_id))
    except StartTsBeforeGc:
        return None
    return TableInfo.from_json(json.loads(text)) if text is not None else None


async def _published(pd: PdClient, known: TableVersion, schema_version: int) -> bytes | None:
    async for text, job in _later_jobs(pd, known):
        if is_published(job, schema_version):
            return text
    return None


async def _done(pd: PdClient, known: TableVersion, new: Set[int], commit_ts: int, waits: Callable[[str | None], None]) -> bytes | None:
    """Return the job that made columns public, when it is done. None: it had one action, so that its binlog should have come before."""
    until = time.monotonic() + MOST_S
    what = f"the ALTER of {known.schema}.{known.table} whose columns rows at {describe(commit_ts)} have"
    try:
        while time.monotonic() < until:
            async for text, job in _later_jobs(pd, known):
                if job.table_info is not None and new <= _public_ids(job.table_info):
                    return text if job.action == Action.MULTI_SCHEMA_CHANGE else None
            waits(f"{what} is not in TiKV's history yet")
            await asyncio.sleep(RETRY_S)
    finally:
        waits(None)
    _log.warning("%s does not come into TiKV's history: these columns keep their defaults until its binlog comes", what)
    return None


async def _later_jobs(pd: PdClient, known: TableVersion) -> AsyncIterator[tuple[bytes, DdlJob]]:
    """Yield the jobs that changed a table after a version of it, the first one first."""
    _, end = keys.meta_hash_range(keys.DDL_JOB_HISTORY)
    start = keys.meta_hash_field(keys.DDL_JOB_HISTORY, known.table_id.to_bytes(8, "big"))  # ids of jobs and tables are of one series
    named, found = str(known.table_id).encode(), []
    async for _, text in Snapshot(pd, await pd.tso()).scan(start, end):
        if named in text:
            job = DdlJob.parse(text)
            info = job.table_info
            if job.is_done and info is not None and info.id == known.table_id and info.update_ts > known.info.update_ts:
                found.append((text, job))
    for pair in sorted(found, key=lambda one: one[1].schema_version):
        yield pair


def _public_ids(info: TableInfo) -> Set[int]:
    return frozenset(column.id for column in info.public_columns)
