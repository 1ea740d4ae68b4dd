"""A database downstream: a connection for DDLs and questions, tried again where that helps, beside those that write rows."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from tidemill.binlog.drainer.database.applying import RETRY_S, TRIES, Applier, Manner
from tidemill.binlog.drainer.database.tables import Tables
from tidemill.binlog.outputs.named import KnownTable, NamedRows
from tidemill.binlog.outputs.writes import RowWrite, Work
from tidemill.config.database import MysqlOptions
from tidemill.errors import SchemaError, SinkError, SinkUnavailable
from tidemill.protocols.sql.literals import SqlTable
from tidemill.sinks.mysql import dialect
from tidemill.sinks.mysql.codes import NO_DATABASE, Fate
from tidemill.sinks.mysql.connection import Connection, ServerFault
from tidemill.sinks.mysql.control import Ddl
from tidemill.sinks.mysql.ddls.plans import OneWriter
from tidemill.sinks.mysql.ddls.state import Refused
from tidemill.sinks.mysql.ddls.statement import Manner as DdlManner
from tidemill.sinks.mysql.ddls.statement import execute
from tidemill.sinks.mysql.window import Window
from tidemill.tidb.ddltext import DdlSyntaxError, exact_ddl
from tidemill.tidb.names import quote_name
from tidemill.tso import describe, physical_ms
from tidemill.visible import short_statement

NO_TABLE = 1146
BOOKS = "tidb_binlog"
"""The schema of our own tables."""
KEEPING = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"

_log = logging.getLogger(__name__)

_ROUNDING = "SET SESSION sql_mode = CONCAT_WS(',', NULLIF(@@sql_mode, '') /*M!100400 , 'TIME_ROUND_FRACTIONAL' */)"
"""MariaDB, alone, has to be told to round fractions of a second as TiDB and MySQL do."""

_DEFAULT_CHARSET = "SET SESSION character_set_server = utf8mb4, collation_server = utf8mb4_bin"
"""What TiDB gives a database without a charset. The real Drainer leaves it to the server: where that has latin1, text is lost."""


@dataclass(frozen=True, slots=True)
class Session:
    """What sessions are set to. `params`: session variables and their values as SQL; `zone` counts for DDLs only: rows come in UTC."""

    sql_mode: str = ""
    params: tuple[tuple[str, str], ...] = ()
    zone: str = ""

    def prepare_rows(self, connection: Connection) -> None:
        """Set a session up that writes rows: 0 in an AUTO_INCREMENT column and dates of no calendar stay. Raises ServerFault."""
        self.prepare(connection)
        connection.run("SET SESSION sql_mode = CONCAT_WS(',', NULLIF(@@sql_mode, ''), %s)", KEEPING)

    def prepare(self, connection: Connection) -> None:
        """Set a session up. Raises ServerFault."""
        connection.run("SET SESSION sql_mode = %s", self.sql_mode)
        connection.run(_ROUNDING)
        for name, value in self.params:
            connection.run(f"SET SESSION {name} = {value}")


class Database:
    """Not safe for threads. Raises SinkError where a retry does not help, SinkUnavailable where it was tried for long."""

    def __init__(
        self,
        options: MysqlOptions,
        session: Session,
        manner: Manner,
        mark: Callable[[int], bytes] | None = None,
        writer: OneWriter | None = None,
    ) -> None:
        """`writer`: whose DDLs are run; None: of this object alone."""
        self._options, self._session, self._manner = options, session, manner
        self._ending = threading.Event()
        self._connection: Connection | None = None
        self.where = f"{options.host}:{options.port}"
        self._applier = Applier(options, manner, session.prepare_rows, mark)
        self._tables = Tables(self.open)
        self._writer, self._is_writer, self._is_alone = writer or OneWriter(BOOKS, f"process {uuid.uuid4()}"), False, writer is None
        self._ddls = DdlManner(partial(self._enter, "DEFAULT"), _leave, _execute)

    def open(self) -> Connection:
        """Return the open connection. Raises ServerFault."""
        if self._connection is None:
            connection = Connection(self._options)
            try:
                self._session.prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def retrying(self, what: str, work: Callable[[], object]) -> None:
        """Call until it works."""
        for number in range(1, TRIES + 1):
            try:
                work()
                return
            except ServerFault as fault:
                self._drop()
                if fault.fate in (Fate.FAIL, Fate.SPLIT):
                    raise fault.error(f"{self.where}: {what}", self._manner.program) from None
                if number == TRIES or self._ending.wait(RETRY_S):
                    raise SinkUnavailable(f"{self.where}: {what}: {fault} (try {number})") from None
                _log.warning("%s: %s: %s: trying again", self.where, what, fault)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def write(self, works: Sequence[Work], *, safe: bool) -> None:
        """Write rows and commit them; see `Applier`. Raises MalformedRow."""
        if works:
            self._applier.write(works, safe=safe)

    def begin(self, window: Window, tables: Iterable[SqlTable], *, safe: bool) -> None:
        """Begin to write rows, when those before are written; see `Applier`."""
        self._applier.begin(window, tables, safe=safe)

    def write_in_windows(self, windows: Callable[[], Iterable[Window]], commit_ts: int, *, safe: bool) -> None:
        """Write a large transaction; see `Applier`."""
        self._applier.write_in_windows(windows, commit_ts, safe=safe)

    @property
    def missed_rows(self) -> int:
        """How many rows were to be changed or deleted and were not there; see `Applier`."""
        return self._applier.missed_rows

    def finish(self) -> None:
        """Return when all rows that were begun are committed."""
        self._applier.finish()

    def ddl(
        self,
        commit_ts: int,
        schema: str,
        query: str,
        hint: str = "",
        now: str = "",
        special: tuple[tuple[str, str], ...] = (),
        *,
        gone_before: bool = False,
    ) -> None:
        """Run a DDL, once. `schema`: the database to be in; empty: none. `hint`: what leaves it out, as errors say it. `now`: what
        CURRENT_TIMESTAMP stands for, as SQL; empty: the time of `commit_ts`. `special`: indexes of the table, see `dialect.rewritten`.
        `gone_before`: a later DDL may have removed the table already, before a crash: then there is nothing to do."""
        ddl = Ddl(commit_ts, 0, schema, query, 0, self._session.zone, special=special)
        manner = replace(self._ddls, enter=partial(self._enter, now or f"{physical_ms(commit_ts) / 1000:.3f}"))

        def run() -> None:
            connection = self.open()
            if not self._is_writer:
                self._writer.take_over(connection, self._ending)
                self._is_writer = True
            execute(connection, ddl, self._writer, manner, self._ending)

        what = f"DDL at {describe(commit_ts)}{hint}"
        try:
            self.retrying(what, run)
        except Refused as error:
            if gone_before and isinstance(error.__cause__, ServerFault) and error.__cause__.code in (NO_TABLE, NO_DATABASE):
                _log.warning("%s: %s: its table is gone, by a later DDL: %s", self.where, what, short_statement(query))
                return
            raise SinkError(f"{self.where}: {what}: {error.message}") from error
        self._tables.forget()

    def _enter(self, now: str, connection: Connection, ddl: Ddl) -> None:
        connection.run("SET SESSION autocommit = 1")
        if "character_set_server" not in dict(self._session.params):
            connection.run(_DEFAULT_CHARSET)
        if self._session.zone:
            connection.run(f"SET SESSION time_zone = {self._session.zone}")
        connection.run(f"SET SESSION timestamp = {now}")
        if ddl.schema:
            connection.run(f"USE {quote_name(ddl.schema)}")

    def find(self, schema: str, table: str) -> KnownTable | None:
        """Return a table; None: it is not there."""
        found: list[KnownTable | None] = []
        self.retrying(f"table {schema}.{table}", lambda: found.append(self._tables.find(schema, table)))
        return found[-1]

    def work(self, told: NamedRows, *, changed_since: bool = False) -> Work:
        """Return the writes of a transaction as a message tells it. Raises SchemaError for a table or column that is not there.

        `changed_since`: DDLs that follow may have been run already, so that what is not there is left out.
        """
        rows: list[RowWrite] = []
        for row in told.rows:
            known = self.find(row.schema, row.table)
            if known is None and changed_since:
                continue
            if known is None:
                raise SchemaError(
                    f"{self.where}: the transaction at {describe(told.commit_ts)} has rows of {row.schema}.{row.table}, which is not there",
                    hint="Make the table as it was upstream at that time, or leave it out with the filters.",
                )
            rows.append(known.write(known.known(row) if changed_since else row, hashed=self._manner.divided))
        return Work(told.commit_ts, len(rows), lambda: iter(rows))

    def close(self) -> None:
        """Close all connections."""
        if self._is_writer and self._is_alone and self._connection is not None:
            with suppress(ServerFault):  # what is left says nothing to anybody
                self._writer.leave(self._connection)
        self._ending.set()
        self._applier.close()
        self._drop()


def _leave(connection: Connection) -> None:
    connection.run("SET SESSION autocommit = 0, timestamp = DEFAULT")


def _execute(connection: Connection, query: str, special: Iterable[tuple[str, str]]) -> None:
    """Run a DDL as the database's dialect says it. Raises ServerFault, SinkError."""
    with suppress(DdlSyntaxError):  # perhaps of a newer TiDB: then it is run as it is
        query = exact_ddl(query) if "\\" in query else query
    other, told = dialect.rewritten(query, connection.server, special)
    if told:
        _log.warning("a DDL is rewritten, %s: %s", ", ".join(told), short_statement(query))
    if other:
        connection.run(other)
