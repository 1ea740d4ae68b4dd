"""A MySQL-compatible database as the outlet: rows, DDLs alone between them, and the checkpoint.

The position is written after the rows, so that after a crash the rows of the last seconds are applied again.
"""

from __future__ import annotations

import json
import time

from tidemill.binlog.drainer.database.applying import Manner
from tidemill.binlog.drainer.database.database import Database, Session
from tidemill.binlog.drainer.savepoint import Position
from tidemill.binlog.drainer.settings import DrainerSettings
from tidemill.binlog.outputs.transactions import DdlBinlog, Entry
from tidemill.binlog.outputs.writes import Work, Writers
from tidemill.config.database import MysqlOptions
from tidemill.errors import SinkError

SAFE_S = 300.0
"""Seconds after the start in which statements may be run again: a crash may have left some applied."""
DATABASE = "tidb_binlog"


class MysqlOutlet:
    """See the module. Raises SinkError where the database cannot be reached at the start."""

    def __init__(self, settings: DrainerSettings, cluster_id: int) -> None:
        to = settings.to
        manner = Manner(settings.worker_count, settings.txn_batch, to.merge, apart=not settings.enable_dispatch)
        self._database = Database(MysqlOptions(to.host, to.port, to.user, to.password), Session(settings.sql_mode), manner)
        self._cluster_id, self._always_safe = cluster_id, settings.safe_mode
        self._began = time.monotonic()
        self._where = self._database.where
        self._writers = Writers(hashed=manner.divided)
        self._database.retrying("the checkpoint table", self._make_table)

    # checkpoint

    def _make_table(self) -> None:
        connection = self._database.open()
        connection.run(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        connection.run(f"CREATE TABLE IF NOT EXISTS {DATABASE}.checkpoint (clusterID bigint unsigned primary key, checkPoint mediumtext)")
        connection.commit()

    def load(self) -> Position | None:
        """Return the position in the checkpoint table. Raises SinkError."""
        found: list[str] = []

        def read() -> None:
            query = f"SELECT checkPoint FROM {DATABASE}.checkpoint WHERE clusterID = {self._cluster_id}"
            found[:] = [str(row[0]) for row in self._database.open().rows(query)]

        self._database.retrying("the checkpoint", read)
        if not found:
            return None
        try:
            value = json.loads(found[0])
            ts = int(value["commitTS"])
            return Position(ts, int(value.get("schema-version", 0)), value.get("consistent") is True) if ts else None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise SinkError(f"{self._where}: {DATABASE}.checkpoint has no usable position: {found[0][:200]}") from None

    def save(self, position: Position) -> None:
        """Write the position. Raises SinkError."""
        value = {"consistent": position.consistent, "commitTS": position.commit_ts, "ts-map": {}, "schema-version": position.schema_version}

        def write() -> None:
            connection = self._database.open()
            connection.run(
                f"REPLACE INTO {DATABASE}.checkpoint VALUES (%s, %s)", self._cluster_id, json.dumps(value, separators=(",", ":"))
            )
            connection.commit()

        self._database.retrying("the checkpoint", write)

    # entries

    def write(self, entries: list[Entry]) -> None:
        """Apply entries in their order; all of them are committed when this returns. Raises SinkError, MalformedRow."""
        rows: list[Work] = []
        for entry in entries:
            if not isinstance(entry, DdlBinlog):
                rows.append(self._writers.work(entry))
                continue
            self._apply(rows)
            rows = []
            self._ddl(entry)
        self._apply(rows)

    def _apply(self, works: list[Work]) -> None:
        self._database.write(works, safe=self._always_safe or time.monotonic() - self._began < SAFE_S)

    def _ddl(self, entry: DdlBinlog) -> None:
        ddl = entry.ddl
        hint = f", which ignore-txn-commit-ts = [{entry.commit_ts}] leaves out"
        self._database.ddl(entry.commit_ts, "" if ddl.names_database else ddl.schema, ddl.query, hint)
        self._writers.forget()

    def flush(self) -> None:
        """Everything that was taken is committed already."""

    def close(self) -> None:
        """Close the connections."""
        self._database.close()
