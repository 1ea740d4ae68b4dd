"""Binlogs in commit order → what the change log keeps of them: changes of records, and of the schema stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.binlog.blocks import Binlogs, Room, plain_memory
from tidemill.binlog.drainer.entries import Delivery
from tidemill.binlog.drainer.rows.batching import Batcher, Changes, KnownTable, KnownTables, Pieces, Stop, batched
from tidemill.binlog.drainer.rows.reading import read_batches
from tidemill.binlog.drainer.schemas import Schemas
from tidemill.binlog.messages import Binlog, read_prewritten
from tidemill.binlog.records import Record, joined, read_steps
from tidemill.changelog.spread import Layout
from tidemill.kernels.binlog.layout import H_DDL
from tidemill.tidb import keys
from tidemill.tidb.keys import is_system_schema
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.job import DdlJob
from tidemill.tidb.schema.tracking.versions import TableVersion


@dataclass(frozen=True, slots=True)
class SchemaRow:
    """A row of the schema stream."""

    commit_ts: int
    start_ts: int
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What some binlogs add to the log. `commit_ts`: of the last one.

    `large`: partitions, and the changes of a large transaction for them, which come behind `changes`.
    `schema`: the job of a DDL, or the descriptions of tables that no DDL told of, which the schema stream has to have just before their
    first rows.
    """

    commit_ts: int
    changes: Changes = ()
    large: tuple[tuple[int, Pieces], ...] = ()
    schema: tuple[SchemaRow, ...] = ()


class LogReading:
    """`wants`: whether the log keeps a table. `layout`: how the log's rows are spread now. `room`: memory for a large transaction."""

    def __init__(
        self, schemas: Schemas, wants: Callable[[TableVersion], bool], layout: Callable[[], Layout], room: Room = plain_memory
    ) -> None:
        self._schemas, self._wants, self._layout, self._room = schemas, wants, layout, room
        self._described: set[int] = set()
        self._tables, self._batcher = KnownTables(), Batcher(in_pieces=True, room=room)

    async def read(self, binlogs: Binlogs) -> Delivery[LogEntry]:
        """Return what binlogs add, up to a DDL. Raises MalformedMessage, MalformedRow, SchemaError, UpstreamError."""
        is_ddl = binlogs.heads["flags"] & H_DDL != 0
        end = int(is_ddl.argmax()) if is_ddl.any() else len(binlogs)
        if end == 0:
            entry = await self._job(binlogs.binlog(0))
            return Delivery([] if entry is None else [entry], 1, ends_with_ddl=entry is not None)
        return Delivery(await self._rows(binlogs.part(0, end)), end)

    async def _rows(self, binlogs: Binlogs) -> list[LogEntry]:
        entries, at = [], 0
        while at < len(binlogs):
            layout = self._layout()
            read = await read_batches(self._batcher, binlogs, at, self._tables, layout)
            large = () if read.large is None else await asyncio.to_thread(read.large.by_partition, self._tables, layout, self._room)
            if read.changes or large:
                entries.append(LogEntry(int(binlogs.heads["commit_ts"][read.end - 1]), read.changes, large))
            at = read.end
            if read.stop is Stop.UNKNOWN_TABLE:
                head = binlogs.heads[at]
                described = await self._learn(read.table_id, int(head["start_ts"]), int(head["commit_ts"]))
                if described:
                    entries.append(LogEntry(int(head["commit_ts"]), schema=described))
            elif read.stop is Stop.NEWER_SCHEMA:
                head = binlogs.heads[at]
                entries += await self._early(read.table_id, read.version, int(head["commit_ts"]))
                await self._learn(read.table_id, int(head["start_ts"]), int(head["commit_ts"]))
            elif read.stop is Stop.REFERENCE:
                entries += await self._by_reference(binlogs.binlog(at))
                at += 1
        return entries

    async def _early(self, table_id: int, schema_version: int, commit_ts: int) -> list[LogEntry]:
        """Return the DDL that the log needs before rows of a table, though its binlog comes later."""
        text = await self._schemas.early(table_id, schema_version, commit_ts)
        if text is None:
            return []
        self._tables.forget()
        job = DdlJob.parse(text)
        binlog, _ = self._schemas.take_early(job, schema_version, commit_ts)
        return [LogEntry(commit_ts, schema=(_job_row(binlog, text),))]

    async def _learn(self, table_id: int, start_ts: int, commit_ts: int) -> tuple[SchemaRow, ...]:
        """Get to know a table of a transaction. Returns its description, if the log's schemas do not have it yet."""
        version = await self._schemas.table(table_id, start_ts, commit_ts)
        if version is None or not self._wants(version):
            self._tables.add(KnownTable.left_out(table_id))
            return ()
        self._tables.add(KnownTable.of(table_id, version.info, self._schemas.settled(table_id)))
        found = self._schemas.looked_up.get(table_id)
        if found is None or table_id in self._described:
            return ()
        self._described.add(table_id)
        return (SchemaRow(commit_ts - 1, start_ts - 1, *found),)

    async def _by_reference(self, binlog: Binlog) -> list[LogEntry]:
        """Read a transaction that the kernels do not. Raises MalformedMessage, MalformedRow, SchemaError, UpstreamError."""
        found: dict[KnownTable, list[Record]] = {}
        described: list[SchemaRow] = []
        rows = read_prewritten(binlog.prewrite_value)
        early = [one for mutation in rows.mutations for one in await self._early(mutation.table_id, rows.schema_version, binlog.commit_ts)]
        for mutation in rows.mutations:
            described += await self._learn(mutation.table_id, binlog.start_ts, binlog.commit_ts)
            version = await self._schemas.table(mutation.table_id, binlog.start_ts, binlog.commit_ts)
            if version is not None and self._wants(version):
                found.setdefault(KnownTable.of(mutation.table_id, version.info), []).extend(read_steps(version.info, mutation))
        tables = {table: joined(steps) for table, steps in found.items()}
        changes = batched(binlog.start_ts, binlog.commit_ts, tables, self._layout())
        return [*early, LogEntry(binlog.commit_ts, changes, schema=tuple(described))]

    async def _job(self, binlog: Binlog) -> LogEntry | None:
        self._tables.forget()
        text = await self._schemas.job(binlog)
        if text is None:
            return None
        job = DdlJob.parse(text)
        is_there = self._schemas.has(job)
        self._schemas.take(binlog, job)
        if is_there or is_system_schema(job.schema_name):
            return None  # a log has no tables of TiDB's own databases
        return LogEntry(binlog.commit_ts, schema=(*_database_row(binlog, job), _job_row(binlog, text)))


def _database_row(binlog: Binlog, job: DdlJob) -> tuple[SchemaRow, ...]:
    """Return the meta key of a database that FLASHBACK DATABASE brought back: its job does not tell a reader of the log what it did."""
    info = job.binlog.get("DBInfo")
    if job.action != Action.RECOVER_SCHEMA or not info:
        return ()
    return (SchemaRow(binlog.commit_ts, binlog.start_ts, keys.db_key(job.schema_id), json.dumps(info).encode()),)


def _job_row(binlog: Binlog, text: bytes) -> SchemaRow:
    key = keys.meta_hash_field(keys.DDL_JOB_HISTORY, binlog.ddl_job_id.to_bytes(8, "big"))
    return SchemaRow(binlog.commit_ts, binlog.start_ts, key, text)
