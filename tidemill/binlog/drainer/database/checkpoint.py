"""The position in a database: a row for each cluster upstream."""

from __future__ import annotations

import json

from tidemill.binlog.drainer.database.database import Database
from tidemill.binlog.drainer.database.moments import Moments
from tidemill.binlog.drainer.savepoint import Position
from tidemill.budget import STATE, Budget
from tidemill.errors import ConfigError, SinkError
from tidemill.tidb.names import quote_name


class CheckpointTable:
    """Makes the table if it is not there. All methods raise SinkError. `cluster_id` None: that of the only row, else ConfigError.
    `moments`: of a TiDB downstream."""

    def __init__(self, database: Database, schema: str, table: str, cluster_id: int | None, moments: Moments | None = None) -> None:
        self._database, self._moments = database, moments
        self._ts_map: dict[str, int] = {}
        self._schema, self._name = quote_name(schema), f"{quote_name(schema)}.{quote_name(table)}"
        self._plain = f"{schema}.{table}"
        database.retrying("the checkpoint table", self._make)
        self._cluster_id = self._only() if cluster_id is None else cluster_id

    def _only(self) -> int:
        found: list[int] = []

        def read() -> None:
            found[:] = [int(row[0]) for row in self._database.open().rows(f"SELECT clusterID FROM {self._name}")]

        self._database.retrying("the checkpoint", read)
        if len(found) > 1:
            raise ConfigError(f"{self._database.where}: {self._plain} has positions of clusters {found}: PD has to say which one this is")
        return found[0] if found else 0

    def _make(self) -> None:
        connection = self._database.open()
        connection.run(f"CREATE DATABASE IF NOT EXISTS {self._schema}")
        connection.run(f"CREATE TABLE IF NOT EXISTS {self._name} (clusterID bigint unsigned primary key, checkPoint mediumtext)")
        connection.commit()

    def load(self) -> Position | None:
        """Return the position; None: there is none."""
        found: list[str] = []

        def read() -> None:
            rows = self._database.open().rows(f"SELECT checkPoint FROM {self._name} WHERE clusterID = {self._cluster_id}")
            found[:] = [str(row[0]) for row in rows]

        self._database.retrying("the checkpoint", read)
        if not found:
            return None
        try:
            value = Budget(STATE).json(found[0])
            ts = int(value["commitTS"])
            self._ts_map = {str(name): int(at) for name, at in value.get("ts-map", {}).items()}
            return Position(ts, int(value.get("schema-version", 0)), value.get("consistent") is True) if ts else None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise SinkError(f"{self._database.where}: {self._plain} has no usable position: {found[0][:200]}") from None

    def save(self, position: Position) -> None:
        """Write the position. A clean stop adds nothing to the ts-map: rows above its position may be downstream already."""
        if self._moments is not None and not position.consistent:
            self._moments.note(self._ts_map, position.commit_ts)
        value = {
            "consistent": position.consistent, "commitTS": position.commit_ts, "ts-map": self._ts_map,
            "schema-version": position.schema_version,
        }  # fmt: skip
        text = json.dumps(value, separators=(",", ":"))

        def write() -> None:
            connection = self._database.open()
            connection.run(f"REPLACE INTO {self._name} VALUES (%s, %s)", self._cluster_id, text)
            connection.commit()

        self._database.retrying("the checkpoint", write)

    def close(self) -> None:
        """Nothing: the database is closed by whoever opened it."""
