"""A MySQL-compatible database as the outlet: transactions in their order over one connection, DDLs apart, and the checkpoint table.

A transaction upstream is never divided; several are committed together. The position is written after the rows, so that
after a crash the rows of the last seconds are applied again.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable

from tidemill.binlog.drainer.savepoint import Position
from tidemill.binlog.drainer.settings import Downstream
from tidemill.binlog.outputs.sql import statements
from tidemill.binlog.outputs.transactions import DdlBinlog, Entry, Transaction
from tidemill.config.database import MysqlOptions
from tidemill.errors import SinkError, SinkUnavailable
from tidemill.sinks.mysql import dialect
from tidemill.sinks.mysql.codes import Fate
from tidemill.sinks.mysql.connection import Connection, ServerFault
from tidemill.tidb.ddltext.queries.literals import quote_name
from tidemill.tso import describe

SAFE_S = 300.0
"""Seconds after the start in which statements may be run again: a crash may have left some applied."""
TRIES, RETRY_S = 100, 1.0
DONE_BEFORE = frozenset({1007, 1008, 1049, 1050, 1051, 1054, 1060, 1061, 1091, 1146})
"""What a database answers to a DDL that was run before."""
NOT_UNDERSTOOD = frozenset({1064, 1235, 1273, 1115})
DATABASE = "tidb_binlog"

_log = logging.getLogger(__name__)


class MysqlOutlet:
    """See the module. Raises SinkError where the database cannot be reached at the start."""

    def __init__(self, to: Downstream, cluster_id: int, sql_mode: str, *, safe: bool) -> None:
        self._options = MysqlOptions(to.host, to.port, to.user, to.password)
        self._cluster_id, self._mode, self._always_safe = cluster_id, sql_mode, safe
        self._began, self._ending = time.monotonic(), threading.Event()
        self._connection: Connection | None = None
        self._where = f"{to.host}:{to.port}"
        self._retrying("the checkpoint table", self._make_table)

    def _open(self) -> Connection:
        if self._connection is None:
            connection = Connection(self._options)
            connection.run("SET SESSION sql_mode = %s", self._mode)
            self._connection = connection
        return self._connection

    def _retrying(self, what: str, work: object) -> None:
        """Call until it works. Raises SinkError for what a retry does not help."""
        assert callable(work)
        for number in range(1, TRIES + 1):
            try:
                work()
                return
            except ServerFault as fault:
                self._drop()
                if fault.fate in (Fate.FAIL, Fate.SPLIT):
                    raise fault.error(f"{self._where}: {what}") from None
                if number == TRIES or self._ending.wait(RETRY_S):
                    raise SinkUnavailable(f"{self._where}: {what}: {fault} (try {number})") from None
                _log.warning("%s: %s: %s: trying again", self._where, what, fault)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # checkpoint

    def _make_table(self) -> None:
        connection = self._open()
        connection.run(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        connection.run(f"CREATE TABLE IF NOT EXISTS {DATABASE}.checkpoint (clusterID bigint unsigned primary key, checkPoint mediumtext)")
        connection.commit()

    def load(self) -> Position | None:
        """Return the position in the checkpoint table. Raises SinkError."""
        found: list[str] = []

        def read() -> None:
            query = f"SELECT checkPoint FROM {DATABASE}.checkpoint WHERE clusterID = {self._cluster_id}"
            found[:] = [str(row[0]) for row in self._open().rows(query)]

        self._retrying("the checkpoint", read)
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
            connection = self._open()
            connection.run(
                f"REPLACE INTO {DATABASE}.checkpoint VALUES (%s, %s)", self._cluster_id, json.dumps(value, separators=(",", ":"))
            )
            connection.commit()

        self._retrying("the checkpoint", write)

    # entries

    def write(self, entries: list[Entry]) -> None:
        """Apply entries in their order. Raises SinkError, MalformedRow."""
        rows: list[Transaction] = []
        for entry in entries:
            if isinstance(entry, Transaction):
                rows.append(entry)
                continue
            self._apply(rows)
            rows = []
            self._ddl(entry)
        self._apply(rows)

    def _apply(self, transactions: list[Transaction]) -> None:
        if not transactions:
            return
        tries = 0

        def commit() -> None:
            nonlocal tries
            safe = self._always_safe or tries > 0 or time.monotonic() - self._began < SAFE_S
            tries += 1
            connection = self._open()
            texts = (text for one in transactions for text in statements(one, safe=safe))
            for packet in _packets(texts, connection.max_packet // 4):
                connection.run(packet)
            connection.commit()

        self._retrying(f"rows up to {describe(transactions[-1].commit_ts)}", commit)

    def _ddl(self, entry: DdlBinlog) -> None:
        ddl = entry.ddl

        def run() -> None:
            connection = self._open()
            connection.run("SET SESSION autocommit = 1")
            try:
                if ddl.schema and not ddl.names_database:
                    connection.run(f"USE {quote_name(ddl.schema)}")
                _execute(connection, ddl.query)
            except ServerFault as fault:
                if fault.code not in DONE_BEFORE:
                    raise
                _log.warning("DDL at %s: %s: it is taken as done: %s", describe(entry.commit_ts), fault, ddl.query)
            connection.run("SET SESSION autocommit = 0")

        self._retrying(f"DDL at {describe(entry.commit_ts)}, which ignore-txn-commit-ts = [{entry.commit_ts}] leaves out", run)

    def flush(self) -> None:
        """Everything that was taken is committed already."""

    def close(self) -> None:
        """Close the connection."""
        self._ending.set()
        self._drop()


def _execute(connection: Connection, query: str) -> None:
    """Run a DDL as it is; where the database does not understand it, as its dialect says it."""
    try:
        connection.run(query)
    except ServerFault as fault:
        other, told = dialect.rewritten(query, connection.server)
        if fault.code not in NOT_UNDERSTOOD or not told:
            raise
        _log.warning("a DDL is rewritten, %s: %s", ", ".join(told), query)
        if other:
            connection.run(other)


def _packets(texts: Iterable[str], most: int) -> Iterable[str]:
    """Join statements, as many as fit into a packet."""
    waiting: list[str] = []
    size = 0
    for text in texts:
        if waiting and size + len(text) > most:
            yield ";".join(waiting)
            waiting, size = [], 0
        waiting.append(text)
        size += len(text) + 1
    if waiting:
        yield ";".join(waiting)
