"""Moments at which a TiDB downstream holds what the upstream held at some ts: the ts-map of the checkpoint, for sync-diff."""

from __future__ import annotations

import logging
import time

from tidemill.binlog.drainer.database.database import Database
from tidemill.sinks.mysql.connection import ServerFault
from tidemill.sinks.mysql.session import UNKNOWN_VARIABLE

EVERY_S = 60.0
ASK = "SELECT @@tidb_current_ts"

_log = logging.getLogger(__name__)


class Moments:
    """Of the database that rows go to."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._next = 0.0
        self._cannot = False

    def note(self, ts_map: dict[str, int], ts: int) -> None:
        """Once a minute, write into `ts_map` the ts up to which everything is downstream, and nothing above it, and the downstream's own ts
        now. Raises SinkError."""
        if self._cannot or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_S
        self._database.retrying("its own ts", lambda: self._ask(ts_map, ts))

    def _ask(self, ts_map: dict[str, int], ts: int) -> None:
        connection = self._database.open()
        try:
            connection.run("BEGIN")
            found = int(connection.rows(ASK)[0][0])
            connection.commit()
        except ServerFault as fault:
            if fault.code != UNKNOWN_VARIABLE:
                raise
            self._cannot = True
            _log.warning("%s is no TiDB: the checkpoint gets no ts-map", self._database.where)
            return
        ts_map["primary-ts"], ts_map["secondary-ts"] = ts, found
