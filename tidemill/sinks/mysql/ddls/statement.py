"""Runs one DDL, once: under its writer's lock, noted before and after, in a session like the one that it was run in upstream.

    lock      no other driver's DDL runs or can begin
    check     this writer is the newest of its name
    note      the DDL, and the state before it
    run       an error that says that it is so already counts only if it is so
    note      that it is done, and how many of the interval are

A DDL that was begun is compared with the state before it: it is run only if it did not run. Sinks, `tidemill consume` and Drainers run
their DDLs here. They differ in their `Writer` (who they are) and their `Manner` (sessions and dialect).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from tidemill.errors import SinkError, redact
from tidemill.sinks.mysql import dialect
from tidemill.sinks.mysql.codes import HINTS, MAY_BE_SO, NO_DATABASE, UNKNOWN_ZONE, Fate
from tidemill.sinks.mysql.connection import Connection, ServerFault
from tidemill.sinks.mysql.control import Ddl
from tidemill.sinks.mysql.ddls import state
from tidemill.sinks.mysql.ddls.lock import held
from tidemill.sinks.mysql.ddls.parsed import Parsed, parse
from tidemill.sinks.mysql.ddls.plans import Plan, Writer
from tidemill.sinks.mysql.ddls.state import Refused, Scene
from tidemill.sinks.mysql.ddls.wanted import look
from tidemill.sinks.mysql.session import DDL_SQL_MODE, SQL_MODE, UNKNOWN_VARIABLE
from tidemill.tidb.names import quote_name
from tidemill.tso import describe
from tidemill.visible import short_statement

log = logging.getLogger(__name__)

_NOT_SETTABLE = (1238, 1227, 1229)
"""A variable that is read-only, needs a right, or is global."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How DDLs run: `enter` and `leave` make the session one for a DDL and again one for other work, `run` runs a statement in the
    server's dialect, given the indexes of `Ddl.special`. All raise ServerFault."""

    enter: Callable[[Connection, Ddl], None]
    leave: Callable[[Connection], None]
    run: Callable[[Connection, str, Iterable[tuple[str, str]]], None]
    fitted: Callable[[Connection, Parsed], Parsed] = lambda _, parsed: parsed
    """What a RENAME TABLE is with the names that are there. May raise SinkError for any statement."""


def execute(connection: Connection, ddl: Ddl, writer: Writer, manner: Manner, stop: threading.Event) -> None:
    """Run a DDL, unless it ran before. Raises Fenced, ServerFault of what may pass, Refused, SinkUnavailable after a stop."""

    def run(connection: Connection, query: str) -> None:
        manner.run(connection, query, ddl.special)

    scene = Scene(writer.plans.schema, writer.lock, run)

    def check(connection: Connection) -> None:
        with writer.transaction(connection):
            pass

    with held(connection, writer.lock, check, stop):
        with writer.transaction(connection):
            plan = writer.plans.find(connection, ddl)
        if plan is not None and plan.finished:
            log.info("DDL at %s was run before: %s", describe(ddl.ts), short_statement(ddl.query))
            return
        step = _Step(connection, ddl, parse(ddl.query, ddl.schema), scene, writer, manner)
        try:
            step.run(plan)
        finally:
            with suppress(ServerFault):
                manner.leave(connection)
        with writer.transaction(connection):
            writer.finish(connection, ddl)
        state.unmark(connection, scene, step.parsed)


@dataclass(frozen=True, slots=True)
class _Step:
    """A DDL between its notes."""

    connection: Connection
    ddl: Ddl
    parsed: Parsed
    scene: Scene
    writer: Writer
    manner: Manner

    def run(self, plan: Plan | None) -> None:
        """Run the statement, unless it ran since the plan was noted. Raises as `execute`."""
        no_schema = self._enter()
        if plan is not None and no_schema is None and state.ran(self.connection, self.scene, self.parsed, self.ddl.schema, plan.before):
            log.warning("DDL at %s ran before, though its answer was lost: %s", describe(self.ddl.ts), short_statement(self.ddl.query))
            return
        parsed = self.manner.fitted(self.connection, self.parsed)
        before = state.before(self.connection, self.scene, parsed)
        with self.writer.transaction(self.connection):
            self.writer.begin(self.connection, self.ddl, before)
        states = ""
        try:
            try:
                self._statement(parsed, no_schema)
            except ServerFault as fault:
                states = _settled(self.connection, self.ddl, parsed, self.scene, fault)
                if states:
                    raise
        except ServerFault as fault:
            if fault.fate is not Fate.FAIL:
                raise  # the server may have gone on: the note stays
            with self.writer.transaction(self.connection):
                self.writer.plans.drop(self.connection, self.ddl)
            raise _refused(fault, self.connection.where, self.ddl, states) from fault

    def _enter(self) -> ServerFault | None:
        """Make the session ready. Returns what the server says if the session's database is not there: the DDL may have dropped it."""
        try:
            self.manner.enter(self.connection, self.ddl)
        except ServerFault as fault:
            if fault.code != NO_DATABASE:
                raise
            return fault
        return None

    def _statement(self, parsed: Parsed, no_schema: ServerFault | None) -> None:
        if no_schema is not None:
            raise no_schema
        self.scene.run(self.connection, state.marked(self.scene, parsed) if state.is_marked(parsed) else self.ddl.query)
        self.connection.commit()


def _settled(connection: Connection, ddl: Ddl, parsed: Parsed, scene: Scene, fault: ServerFault) -> str:
    """Look what an error says. Returns nothing if the wanted state is there, or is after the rest of the statement ran; else both states.
    Raises ServerFault of the rest."""
    while fault.code in MAY_BE_SO:
        seen = look(connection, scene, parsed, ddl.schema)
        if seen.is_so:
            log.warning("DDL at %s: %s: the database is so already: %s", describe(ddl.ts), fault, short_statement(parsed.text))
            return ""
        if not seen.rest:
            return seen.states
        log.warning("DDL at %s: %s: the rest of it runs: %s", describe(ddl.ts), fault, short_statement(seen.rest))
        parsed = parse(seen.rest, ddl.schema)
        try:
            scene.run(connection, seen.rest)
            return ""
        except ServerFault as next_fault:
            fault = next_fault
    raise fault


def _refused(fault: ServerFault, where: str, ddl: Ddl, states: str) -> Refused:
    return Refused(
        f"{where} refuses a DDL: error {fault.code}: {fault.text}: {redact(short_statement(ddl.query))}"
        + (f"; {states}" if states else ""),
        hint=(
            "Run by hand what stands for it, leave it out with an event filter (ignore-sql), then `tidemill changefeed resume`. "
            + f"Its ts is {ddl.ts}."
        ),
    )


# As a changefeed runs them


def _enter(connection: Connection, ddl: Ddl) -> None:
    """Make the session one as the DDL was run in upstream."""
    _set_zone(connection, ddl)
    connection.run(f"SET SESSION sql_mode = {DDL_SQL_MODE}, timestamp = %s", ddl.now)
    connection.run("SET SESSION autocommit = 1")  # MariaDB's EXCHANGE PARTITION waits for a lock of its own without it
    connection.run("SET SESSION character_set_server = utf8mb4, collation_server = utf8mb4_bin")
    try:
        connection.run("SET SESSION explicit_defaults_for_timestamp = ON")
    except ServerFault as fault:
        if fault.code not in (UNKNOWN_VARIABLE, *_NOT_SETTABLE):
            raise
    if ddl.schema:
        connection.run(f"USE {quote_name(ddl.schema)}")
    for change in dialect.rewritten(ddl.query, connection.server, ddl.special)[1]:
        log.warning("DDL at %s is rewritten: %s: %s", describe(ddl.ts), change, short_statement(ddl.query))


def _set_zone(connection: Connection, ddl: Ddl) -> None:
    """Set the session's zone, or its offset at the time of the DDL where the server does not know the zone. Raises SinkError where that
    would be another time."""
    try:
        connection.run("SET SESSION time_zone = %s", ddl.zone)
    except ServerFault as fault:
        if fault.code != UNKNOWN_ZONE:
            raise
        if not ddl.offset:
            raise SinkError(
                f"{connection.where} does not know the time zone {ddl.zone}, and a DDL has TIMESTAMP literals of it: "
                f"{redact(short_statement(ddl.query))}",
                hint=HINTS[UNKNOWN_ZONE] + " Then `tidemill changefeed resume`.",
            ) from fault
        connection.run("SET SESSION time_zone = %s", ddl.offset)


def _leave(connection: Connection) -> None:
    connection.run(f"SET SESSION sql_mode = {SQL_MODE}, time_zone = '+00:00', timestamp = DEFAULT, autocommit = 0")


def _run_rewritten(connection: Connection, query: str, special: Iterable[tuple[str, str]]) -> None:
    text, _ = dialect.rewritten(query, connection.server, special)
    if text:
        connection.run(text)


UPSTREAMS = Manner(_enter, _leave, _run_rewritten)
"""The session upstream, and the dialect of the server."""
