"""Runs one DDL: rewritten for the server, in a session like the one that it was run in upstream."""

from __future__ import annotations

import logging
from contextlib import suppress

from tidemill.errors import SinkError, redact
from tidemill.protocols.sql.literals import name
from tidemill.sinks.mysql import dialect
from tidemill.sinks.mysql.codes import RAN_BEFORE, is_already_so
from tidemill.sinks.mysql.connection import Connection, ServerFault
from tidemill.sinks.mysql.control import Ddl
from tidemill.sinks.mysql.session import SQL_MODE, UNKNOWN_VARIABLE
from tidemill.tso import describe
from tidemill.visible import short_statement

log = logging.getLogger(__name__)

DDL_SQL_MODE = "ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO"
"""Without the strict mode: what upstream's session took is taken here."""

_NOT_SETTABLE = (1238, 1227, 1229)
"""A variable that is read-only, needs a right, or is global."""


def execute(connection: Connection, ddl: Ddl, *, begun: bool) -> None:
    """Run a DDL. `begun`: it may have been run before, and then an error that says so is none. Raises SinkError, SinkUnavailable."""
    query, changes = dialect.rewritten(ddl.query, connection.server)
    for change in changes:
        log.warning("DDL at %s is rewritten: %s: %s", describe(ddl.ts), change, short_statement(ddl.query))
    if not query:
        return
    try:
        _enter(connection, ddl)
        connection.run(query)
        connection.commit()
    except ServerFault as fault:
        if is_already_so(fault.code, query) or (begun and fault.code in RAN_BEFORE):
            log.warning("DDL at %s: %s: it is taken as done: %s", describe(ddl.ts), fault, short_statement(query))
        else:
            raise _refused(fault, connection.where, ddl, query) from fault
    finally:
        with suppress(ServerFault):
            _leave(connection)


def _refused(fault: ServerFault, where: str, ddl: Ddl, query: str) -> SinkError:
    found = fault.error(f"{where}: DDL at {describe(ddl.ts)}")
    if found.retryable:
        return found
    return SinkError(
        f"{where} refuses a DDL: error {fault.code}: {fault.text}: {redact(short_statement(query))}",
        hint=(
            "Run by hand what stands for it, leave it out with an event filter (ignore-sql), then `tidemill changefeed resume`. "
            + f"Its ts is {ddl.ts}."
        ),
    )


def _enter(connection: Connection, ddl: Ddl) -> None:
    """Make the session one as the DDL was run in upstream."""
    connection.run(f"SET SESSION sql_mode = '{DDL_SQL_MODE}', time_zone = %s, timestamp = %s", ddl.zone, ddl.now)
    connection.run("SET SESSION autocommit = 1")  # MariaDB's EXCHANGE PARTITION waits for a lock of its own without it
    connection.run("SET SESSION character_set_server = utf8mb4, collation_server = utf8mb4_bin")
    try:
        connection.run("SET SESSION explicit_defaults_for_timestamp = ON")
    except ServerFault as fault:
        if fault.code not in (UNKNOWN_VARIABLE, *_NOT_SETTABLE):
            raise
    if ddl.schema:
        connection.run(f"USE {name(ddl.schema)}")


def _leave(connection: Connection) -> None:
    connection.run(f"SET SESSION sql_mode = '{SQL_MODE}', time_zone = '+00:00', timestamp = DEFAULT, autocommit = 0")
