"""Drivers of databases each of whose statements is an effect, and who reads the database meanwhile.

A driver that stands still in a transaction would let others wait in the server, where the scheduler does not see them: its effects there
say so (`HOLDING`). A session that is closed is over in the server before the next effect.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from pymysql.constants import SERVER_STATUS
from pymysql.err import OperationalError

from tests.support.servers.mariadb import MariaDb
from tests.support.simulate.actors import Actor
from tests.support.simulate.drivers import History
from tests.support.simulate.schedule import HOLDING
from tidemill.config.database import MysqlOptions
from tidemill.config.uri import SinkUri
from tidemill.demo.compare import plain
from tidemill.errors import SinkUnavailable
from tidemill.sinks.mysql.bookkeeping import Done
from tidemill.sinks.mysql.connection import Connection, ServerFault, without_values
from tidemill.sinks.mysql.driver import MysqlDriverSink
from tidemill.sinks.spec import forget_task_sinks

T = TypeVar("T")
LOST = 2013
SHOWN = 100
"""Characters of a statement in a story."""
OTHERS = "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'root'"
KEYLESS = ("k",)
Rows = dict[tuple[str, str], list[str]]
"""The rows of each table as texts, in order."""


class Server:
    """A session of the scheduler, which no schedule stops."""

    def __init__(self, db: MariaDb) -> None:
        self.db, self._connection = db, db.connect()
        self.sessions: dict[Actor, list[Connection]] = defaultdict(list)

    def end(self, actor: Actor) -> None:
        """End the sessions of an actor that has ended, as those of its process would."""
        for session in self.sessions.pop(actor, ()):
            session.close()

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def start_over(self, before: tuple[str, ...]) -> None:
        """End all sessions, drop everything, and run statements in the database `app`."""
        forget_task_sinks()
        for (session,) in self.rows(OTHERS):
            with suppress(OperationalError):  # it has just ended
                self.rows(f"KILL {session}")
        self.await_end(f"SELECT 1 FROM ({OTHERS}) AS others")
        self.db.clear()
        self.db.run("CREATE DATABASE app", "USE app", *before)

    def await_end(self, found: str) -> None:
        """Wait until a query finds no session any more."""
        while self.rows(found):
            threading.Event().wait(0.001)

    def tables(self, left_out: Collection[str] = ()) -> Rows:
        """The tables that readers see."""
        names = self.rows("SELECT table_name FROM information_schema.tables WHERE table_schema = 'app'")
        return {("app", name): self._table(name) for (name,) in names if name not in left_out}

    def _table(self, name: str) -> list[str]:
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM app.`{name}`")
            columns = [column[0] for column in cursor.description]
            return sorted(repr(sorted(zip(columns, row, strict=True))) for row in cursor.fetchall())


class GatedConnection(Connection):
    """A session of an actor."""

    def __init__(self, server: Server, actor: Actor, options: MysqlOptions) -> None:
        self._server, self._actor, self._begun = server, actor, False
        self._locks = False  # since a SELECT … FOR UPDATE, whose answer does not say that a transaction is open
        try:
            actor.gate("connect", lambda: super(GatedConnection, self).__init__(options))
        except SinkUnavailable as error:
            if hasattr(self, "_raw"):
                self.close()
            raise ServerFault(LOST, str(error)) from error
        self._begun = True
        server.sessions[actor].append(self)

    def _gated(self, statement: bytes | str, act: Callable[[], T]) -> T:
        if not self._begun:
            return act()
        text = statement if isinstance(statement, str) else statement.decode("utf-8", "replace")
        effect = " ".join(without_values(text).split())[:SHOWN]
        effect = f"read: {effect}" if effect.startswith(("SELECT", "SHOW")) else effect
        holds = self._raw.open and (self._locks or self._raw.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)
        self._locks = (self._locks or "FOR UPDATE" in text) and text not in ("COMMIT", "ROLLBACK")
        try:
            return self._actor.gate(f"{HOLDING}{effect}" if holds else effect, act)
        except SinkUnavailable as error:
            self.close()
            raise ServerFault(LOST, str(error), text) from error

    def run(self, statement: bytes | str, *values: object) -> int:
        return self._gated(statement, lambda: Connection.run(self, statement, *values))

    def answers(self, statement: bytes | str, *values: object) -> list[Any]:
        return self._gated(statement, lambda: Connection.answers(self, statement, *values))

    def commit(self) -> None:
        self._gated("COMMIT", lambda: Connection.commit(self))

    def rollback(self) -> None:
        self._gated("ROLLBACK", lambda: Connection.rollback(self))

    def close(self) -> None:
        super().close()
        self._server.await_end(f"SELECT 1 FROM information_schema.processlist WHERE id = {self._id}")


def gated_driver(server: Server) -> type[MysqlDriverSink]:
    """The half of the sink in the driver, all of whose sessions are gated, those of its threads too."""

    class GatedDriver(MysqlDriverSink):
        def __init__(self, uri: SinkUri, *, fresh: bool) -> None:
            actor = threading.current_thread()
            assert isinstance(actor, Actor), f"{actor} is no simulated driver"
            self._actor = actor
            super().__init__(uri, fresh=fresh)

        def _new_connection(self) -> Connection:
            return GatedConnection(server, self._actor, replace(self._options, read_timeout=60_000))

    return GatedDriver


def gated_connection(server: Server) -> Callable[[MysqlOptions], Connection]:
    """Return what opens a session of the actor in whose thread it is called."""

    def opened(options: MysqlOptions) -> Connection:
        actor = threading.current_thread()
        assert isinstance(actor, Actor), f"{actor} is no simulated driver"
        return GatedConnection(server, actor, replace(options, read_timeout=60_000))

    return opened


class DatabaseReader:
    """`checkpoint_ts` never goes back; the tables are the upstream's at it whenever no interval is under way, and with
    transaction-atomicity=global (`whole`) whenever no DDL is. Only then tables without a key are replicated (`KEYLESS`)."""

    def __init__(self, server: Server, history: History, *, whole: bool) -> None:
        self._server, self._history = server, history
        self._settled = (Done.NOTHING, Done.ALL) if whole else (Done.ALL,)
        self._left_out = () if whole else KEYLESS
        self._checkpoint = 0
        self._model: dict[int, Rows] = {}

    def seen(self) -> Rows:
        return self._server.tables(self._left_out)

    def check(self) -> None:
        if not self._server.rows("SELECT 1 FROM information_schema.tables WHERE table_name = 'tidemill_feed_v1'"):
            return
        known = self._server.rows("SELECT checkpoint_ts, done FROM tidb_cdc.tidemill_feed_v1")
        if not known or not known[0][0]:
            return
        ((now, done),) = known
        assert now >= self._checkpoint, f"checkpoint_ts went back from {self._checkpoint} to {now}"
        self._checkpoint = now
        if done in self._settled:
            found, wanted = self.seen(), self._tables_at(now)
            for name in found.keys() | wanted.keys():
                assert found.get(name) == wanted.get(name), f"{name} at {now}"

    def _tables_at(self, ts: int) -> Rows:
        if ts not in self._model:
            self._model[ts] = {
                name: sorted(repr(sorted((column, plain(cell)) for column, cell in row.items())) for row in table.rows)
                for name, table in self._history.sql.tables_at(ts).items()
                if name[1] not in self._left_out
            }
        return self._model[ts]
