"""Sync points: ts of the upstream at which the database holds exactly what the upstream held, noted in TiCDC's table `syncpoint_v1`.

They lie at the multiples of an interval of the upstream's clock since 1970, as TiCDC's. A batch ends at each, so at that moment every row
up to it is there and none above it. TiDB's own ts of the moment stands beside it (`secondary_ts`): there the moment can be read later.
Elsewhere it is NULL, and a trigger on the table sees the moment.
"""

from __future__ import annotations

import time

from tidemill.sinks.mysql.connection import Connection, ServerFault
from tidemill.sinks.mysql.session import UNKNOWN_VARIABLE

TABLE = "tidb_cdc.syncpoint_v1"
CREATE = (
    "CREATE DATABASE IF NOT EXISTS tidb_cdc",
    f"""CREATE TABLE IF NOT EXISTS {TABLE} (
  ticdc_cluster_id VARCHAR(255),
  changefeed VARCHAR(255),
  primary_ts VARCHAR(18),
  secondary_ts VARCHAR(18),
  created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  INDEX (created_at),
  PRIMARY KEY (changefeed, primary_ts))""",
)
"""As TiCDC creates it."""

CLUSTER = "default"
NAMESPACE = "default"
"""TiCDC's names of its own cluster, and of the changefeed's namespace."""


class SyncPoints:
    """Those of a changefeed. All methods raise ServerFault."""

    def __init__(self, feed: str, retention_ms: int) -> None:
        self._name, self._retention_ms = f"{NAMESPACE}/{feed}", retention_ms
        self._next_cleaning = 0.0

    @staticmethod
    def prepare(connection: Connection) -> None:
        """Create the table."""
        for statement in CREATE:
            connection.run(statement)

    def write(self, connection: Connection, ts: int) -> None:
        """Note a sync point in the open transaction."""
        secondary = str(connection.rows("SELECT @@tidb_current_ts")[0][0]) if connection.server.is_tidb else None
        columns = "ticdc_cluster_id, changefeed, primary_ts, secondary_ts"
        connection.run(f"INSERT IGNORE INTO {TABLE} ({columns}) VALUES (%s, %s, %s, %s)", CLUSTER, self._name, str(ts), secondary)
        if secondary is not None:
            self._publish(connection, secondary)

    def clean(self, connection: Connection) -> None:
        """Now and then remove old ones."""
        if time.monotonic() >= self._next_cleaning:
            old = f"created_at < (NOW() - INTERVAL {self._retention_ms / 1000:.2f} SECOND)"
            connection.run(f"DELETE IGNORE FROM {TABLE} WHERE ticdc_cluster_id = %s AND changefeed = %s AND {old}", CLUSTER, self._name)
            connection.commit()
            self._next_cleaning = time.monotonic() + self._retention_ms / 1000

    @staticmethod
    def _publish(connection: Connection, secondary: str) -> None:
        """Let sessions with `tidb_enable_external_ts_read` read the moment, unless they read a later one. TiDB before 6.4 cannot."""
        try:
            if int(connection.rows("SELECT @@GLOBAL.tidb_external_ts")[0][0] or 0) < int(secondary):
                connection.run(f"SET GLOBAL tidb_external_ts = {int(secondary)}")
        except ServerFault as fault:
            if fault.code != UNKNOWN_VARIABLE:
                raise
