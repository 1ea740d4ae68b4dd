"""Binlogs as a playground's SQL writes them, kept in memory, and the schemas with which a Drainer reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from tests.support.changelog.sqllogs import SqlLog
from tidemill.binlog.drainer.schemas import Schemas
from tidemill.binlog.messages import Binlog, BinlogType
from tidemill.tidb import keys
from tidemill.tidb.schema.tracking.catalog import Catalog
from tidemill.tidb.schema.tracking.history import read_catalog
from tidemill.tidb.schema.tracking.versions import TableVersion


class WrittenBinlogs:
    """A Pump of its own: see `playground.sql.binlogs.Writer`. `committed`: all of them in order of commit ts."""

    def __init__(self, sql: SqlLog) -> None:
        self._sql = sql
        self._prewritten: dict[int, Binlog] = {}
        self.committed: list[Binlog] = []
        self._catalog = read_catalog(sql.meta_at(sql.start_ts), sql.start_ts)

    @classmethod
    def of(cls, sql: SqlLog) -> Self:
        """Keep what `sql` runs from now on."""
        made = cls(sql)
        sql.write_binlogs(made)
        return made

    def prewrite(self, binlog: Binlog) -> None:
        """Take a Prewrite."""
        self._prewritten[binlog.start_ts] = binlog

    def end(self, binlog: Binlog) -> None:
        """Take a Commit with the rows of its Prewrite, or forget what is rolled back."""
        begun = self._prewritten.pop(binlog.start_ts)
        if binlog.tp == BinlogType.COMMIT:
            self.committed.append(replace(binlog, prewrite_value=begun.prewrite_value))

    def schemas(self) -> Schemas:
        """The schemas before the first binlog."""
        return _KeptSchemas(self._sql, self._catalog)


class _KeptSchemas(Schemas):
    """Has its jobs from the playground's store."""

    def __init__(self, sql: SqlLog, catalog: Catalog) -> None:
        super().__init__(None, catalog, lambda what: None)  # type: ignore[arg-type]
        self._history = dict(sql.meta_at(sql.run()))

    async def _job(self, binlog: Binlog) -> bytes:
        return self._history[keys.meta_hash_field(keys.DDL_JOB_HISTORY, binlog.ddl_job_id.to_bytes(8, "big"))]

    async def _look(self, table_id: int, start_ts: int, commit_ts: int) -> TableVersion | None:
        raise AssertionError(f"table {table_id} is not known at {commit_ts}")
