"""DDLs that were begun, with what the database looked like before: notes in the database, by which a DDL that ran is told from one that did
not, after a crash or a lost answer.

A DDL and its note are no transaction. So the note of its begin comes first, with the state before. Whoever finds the note compares.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from tidemill.errors import Fenced
from tidemill.sinks.mysql.connection import Connection
from tidemill.sinks.mysql.control import Ddl
from tidemill.sinks.mysql.ddls.lock import held, lock_name
from tidemill.tso import MAX_TS

TABLE = "tidemill_plan_v1"


@dataclass(frozen=True, slots=True)
class Plan:
    """A DDL that was begun. `before`: the state before it, see `state.py`."""

    finished: bool
    before: str


class Plans:
    """Those of one owner. Every method is part of the caller's transaction, and raises ServerFault."""

    def __init__(self, schema: str, owner: str) -> None:
        self.schema, self._owner = schema, owner
        self.table = f"{schema}.{TABLE}"

    @property
    def create(self) -> str:
        """The statement that makes the table."""
        return f"""CREATE TABLE IF NOT EXISTS {self.table} (
  owner VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  step CHAR(32) CHARACTER SET ascii NOT NULL,
  ts BIGINT UNSIGNED NOT NULL,
  finished BOOL NOT NULL,
  ddl LONGTEXT CHARACTER SET utf8mb4 NOT NULL,
  before_it LONGTEXT CHARACTER SET utf8mb4 NOT NULL,
  PRIMARY KEY (owner, step))"""

    def find(self, connection: Connection, ddl: Ddl) -> Plan | None:
        """Return the plan of a DDL; None: it was not begun, or refused."""
        query = f"SELECT finished, before_it FROM {self.table} WHERE owner = %s AND step = %s"
        rows = connection.rows(query, self._owner, _step(ddl))
        return Plan(bool(rows[0][0]), str(rows[0][1])) if rows else None

    def begin(self, connection: Connection, ddl: Ddl, before: str) -> None:
        """Note that a DDL begins."""
        connection.run(f"REPLACE INTO {self.table} VALUES (%s, %s, %s, 0, %s, %s)", self._owner, _step(ddl), ddl.ts, ddl.query, before)

    def finish(self, connection: Connection, ddl: Ddl) -> None:
        """Note that it is done."""
        connection.run(f"UPDATE {self.table} SET finished = 1 WHERE owner = %s AND step = %s", self._owner, _step(ddl))

    def drop(self, connection: Connection, ddl: Ddl) -> None:
        """Forget a DDL: it was refused, or other notes say that it is done."""
        connection.run(f"DELETE FROM {self.table} WHERE owner = %s AND step = %s", self._owner, _step(ddl))

    def forget(self, connection: Connection, ts: int) -> None:
        """Forget DDLs that are done, at or below a ts."""
        connection.run(f"DELETE FROM {self.table} WHERE owner = %s AND ts <= %s AND finished = 1", self._owner, ts)

    def clear(self, connection: Connection) -> None:
        """Forget all."""
        connection.run(f"DELETE FROM {self.table} WHERE owner = %s", self._owner)


def _step(ddl: Ddl) -> str:
    return hashlib.md5(repr((ddl.ts, ddl.table_id, ddl.schema, ddl.known_as or ddl.query)).encode(), usedforsecurity=False).hexdigest()


class Writer(Protocol):
    """Who runs DDLs: it has the lock under which it does, and notes that only the newest of its name may write."""

    @property
    def lock(self) -> str:
        """The name of its lock."""

    @property
    def plans(self) -> Plans:
        """Its notes."""

    def transaction(self, connection: Connection) -> AbstractContextManager[None]:
        """Return a transaction, which is refused unless this writer is the newest of its name. Raises Fenced, ServerFault."""

    def begin(self, connection: Connection, ddl: Ddl, before: str) -> None:
        """Note in the open transaction that a DDL begins."""

    def finish(self, connection: Connection, ddl: Ddl) -> None:
        """Note in the open transaction that it is done."""


class OneWriter:
    """A `Writer` of which only the newest of its name may run DDLs. It keeps a note of its last DDL, until the next one begins."""

    def __init__(self, schema: str, name: str) -> None:
        """`schema`: where the notes are kept."""
        self.plans, self._name = Plans(schema, name), name
        self._table = f"{schema}.tidemill_writer_v1"
        self.lock = lock_name(schema, name)
        self._epoch = 0

    def take_over(self, connection: Connection, stop: threading.Event) -> None:
        """Become the newest. No DDL of an earlier one runs afterwards, or can begin. Raises ServerFault, SinkUnavailable after a stop."""
        connection.run(f"CREATE DATABASE IF NOT EXISTS {self.plans.schema}")
        connection.run(self.plans.create)
        connection.run(
            f"CREATE TABLE IF NOT EXISTS {self._table} (name VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY, "
            "epoch BIGINT UNSIGNED NOT NULL)"
        )
        connection.run("BEGIN")
        connection.run(f"INSERT INTO {self._table} VALUES (%s, 1) ON DUPLICATE KEY UPDATE epoch = epoch + 1", self._name)
        self._epoch = int(connection.rows(f"SELECT epoch FROM {self._table} WHERE name = %s", self._name)[0][0])
        connection.commit()
        with held(connection, self.lock, self._check, stop):
            pass

    def leave(self, connection: Connection) -> None:
        """Leave nothing behind. Raises ServerFault."""
        connection.run("BEGIN")
        self.plans.clear(connection)
        connection.run(f"DELETE FROM {self._table} WHERE name = %s", self._name)
        connection.commit()

    def _check(self, connection: Connection) -> None:
        with self.transaction(connection):
            pass

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """See `Writer`."""
        connection.run("BEGIN")
        rows = connection.rows(f"SELECT epoch FROM {self._table} WHERE name = %s FOR UPDATE", self._name)
        if not rows or int(rows[0][0]) != self._epoch:
            connection.rollback()
            raise Fenced(f"{connection.where}: another {self._name} has taken over")
        yield
        connection.commit()

    def begin(self, connection: Connection, ddl: Ddl, before: str) -> None:
        """See `Writer`."""
        self.plans.forget(connection, MAX_TS)
        self.plans.begin(connection, ddl, before)

    def finish(self, connection: Connection, ddl: Ddl) -> None:
        """See `Writer`."""
        self.plans.finish(connection, ddl)
