"""`mysql://`, `tidb://`: the upstream's tables in a database, with the consumer's progress in the same transactions.

A commit is one transaction downstream: rows since the last one, and progress. A DDL commits by itself, so the rows before it are committed
first, with a note that it begins; then it runs, and is noted as done. Tables `tidb_cdc.tidemill_consumer…` are the consumer's own.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import TypeVar

from tidemill.config.uri import SinkUri
from tidemill.consumer.order.progress import Progress
from tidemill.consumer.rawrows import Shape, Shapes, cells_of
from tidemill.errors import Fenced, SchemaError, SinkError, TidemillError
from tidemill.protocols.open.codes import DdlType
from tidemill.protocols.open.events import Column, DdlMessage, RowEvent
from tidemill.protocols.sql.hints import Program
from tidemill.protocols.sql.literals import SqlTable, literal
from tidemill.protocols.sql.missed import Statement
from tidemill.records import KIND_DELETE, KIND_INSERT
from tidemill.sinks.mysql.bookkeeping import SCHEMA
from tidemill.sinks.mysql.codes import Fate
from tidemill.sinks.mysql.connection import Connection, ServerFault
from tidemill.sinks.mysql.control import Ddl, zone_text
from tidemill.sinks.mysql.ddls.lock import held, lock_name
from tidemill.sinks.mysql.ddls.parsed import Name, Parsed, What
from tidemill.sinks.mysql.ddls.plans import Plans
from tidemill.sinks.mysql.ddls.state import Refused
from tidemill.sinks.mysql.ddls.statement import UPSTREAMS, execute
from tidemill.sinks.mysql.driver import DDL_LIMIT_MS
from tidemill.sinks.mysql.merge import Change
from tidemill.sinks.mysql.statements import Limits, TableStatements, packets, text_of
from tidemill.tidb.ddltext import EXACT, DdlSyntaxError, FoundNames, RoutedNames, canonical_ddl, was_printed
from tidemill.tidb.names import folded, folded_table, quote_name
from tidemill.tidb.rows.cells import Cell
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tso import physical_ms

log = logging.getLogger(__name__)

TRIES = 8
FIRST_WAIT_S = 0.05
WRITE_ROWS = 20_000
"""Rows that wait in memory at most; then they are written into the open transaction."""
PACKET = 4 << 20
_CREATE = (
    f"CREATE DATABASE IF NOT EXISTS {SCHEMA}",
    f"""CREATE TABLE IF NOT EXISTS {SCHEMA}.tidemill_consumer_v1 (
  consumer VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
  epoch BIGINT UNSIGNED NOT NULL,
  ddl_ts BIGINT UNSIGNED NOT NULL,
  progress LONGTEXT CHARACTER SET utf8mb4 NOT NULL,
  updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP)""",
    Plans(SCHEMA, "").create,
)
_STATE = f"{SCHEMA}.tidemill_consumer_v1"
_OF_SCHEMAS = (DdlType.CREATE_SCHEMA, DdlType.DROP_SCHEMA)
_T = TypeVar("_T")


class DatabaseTables:
    """The tables of a database. `consumer`: the name under which progress is kept, so that several may write into one database.

    Raises Fenced once another consumer of the name has begun, SinkUnavailable, SinkError, and SchemaError for a DDL that the database
    refuses.
    """

    commits_before_ddls = True

    def __init__(self, uri: SinkUri, consumer: str, *, zone: tzinfo = UTC) -> None:
        """`zone`: of the TIMESTAMP values in messages. The database gets them in UTC."""
        self._options = options = replace(uri.database, read_timeout=DDL_LIMIT_MS)
        self._where = f"{options.host}:{options.port}"
        self._consumer, self._zone = consumer, zone
        self._zone_text = zone_text(zone, options.time_zone)
        self._limits = Limits(rows=max(options.max_txn_rows, 1))
        self._opened: Connection | None = None
        self._in_transaction = False
        self._shapes = Shapes()
        self._tables: dict[int, _Target] = {}
        self._generated: dict[tuple[str, str], frozenset[str]] = {}
        self._waiting = _Waiting()
        self._written: list[bytes] = []  # what the open transaction holds, to run it again after a deadlock
        self._stop = threading.Event()
        self._plans = Plans(SCHEMA, f"consumer {consumer}")
        self._writer = _Writer(consumer, self._plans, self._check)
        self._epoch = self._ddl_ts = 0
        self._call(self._take_over)
        self.rows_applied = self.ddls_applied = 0

    # The connection

    @property
    def _connection(self) -> Connection:
        if self._opened is None:
            self._opened = Connection(self._options)
        return self._opened

    def _call(self, do: Callable[[], _T]) -> _T:
        """Call, and give the connection up if that fails: what is not committed is undone."""
        try:
            return do()
        except ServerFault as fault:
            self._drop()
            raise fault.error(self._where, Program.CONSUMER) from fault
        except TidemillError:
            self._drop()
            raise

    def _drop(self) -> None:
        connection, self._opened, self._in_transaction = self._opened, None, False
        self._written.clear()
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close the connection without committing."""
        self._drop()

    # Progress

    def _take_over(self) -> None:
        """Become the consumer of this name. An earlier one fails at its next commit, or DDL; one that it runs is waited for."""
        c = self._connection
        for statement in _CREATE:
            c.run(statement)
        c.run(f"INSERT IGNORE INTO {_STATE} VALUES (%s, 0, 0, '', DEFAULT)", self._consumer)
        c.run(f"UPDATE {_STATE} SET epoch = epoch + 1 WHERE consumer = %s", self._consumer)
        found = c.rows(f"SELECT epoch, ddl_ts FROM {_STATE} WHERE consumer = %s", self._consumer)
        c.commit()
        self._epoch, self._ddl_ts = int(found[0][0]), int(found[0][1])
        with held(c, self._writer.lock, self._check, self._stop):
            c.rollback()

    def progress(self) -> Progress:
        """Return the last committed progress."""

        def read() -> str:
            found = self._connection.rows(f"SELECT progress, ddl_ts FROM {_STATE} WHERE consumer = %s", self._consumer)
            self._connection.rollback()
            self._ddl_ts = int(found[0][1]) if found else 0
            return str(found[0][0]) if found else ""

        text = self._call(read)
        return Progress.from_json(text) if text else Progress()

    def commit(self, progress: Progress) -> None:
        """Make all changes so far durable, together with `progress`."""
        text = progress.to_json()

        def write() -> None:
            self._begin()
            self._flush()
            self._connection.run(f"UPDATE {_STATE} SET progress = %s WHERE consumer = %s", text, self._consumer)
            self._plans.forget(self._connection, progress.flushed_ts)
            self._connection.commit()

        self._transaction(write)

    def _transaction(self, finish: Callable[[], None]) -> None:
        """Finish the open transaction."""
        self._tried(finish)
        self._written.clear()
        self._in_transaction = False

    def _tried(self, do: Callable[[], None]) -> None:
        """Do something in the transaction; all of it again after a deadlock, or after a lock was waited for too long."""
        for number_of_try in range(TRIES):
            try:
                self._call_or_retry(do, last=number_of_try == TRIES - 1)
            except _Again:
                time.sleep(FIRST_WAIT_S * 2**number_of_try)
            else:
                return

    def _call_or_retry(self, finish: Callable[[], None], *, last: bool) -> None:
        try:
            finish()
        except ServerFault as fault:
            if last or fault.fate is not Fate.RETRY or fault.code == DUPLICATE:
                self._drop()
                raise fault.error(self._where, Program.CONSUMER) from fault
            log.debug("%s: %s; the transaction is run again", self._where, fault)
            self._call(self._connection.rollback)
            self._in_transaction = False
            raise _Again from fault
        except TidemillError:
            self._drop()
            raise

    def _begin(self) -> None:
        """Begin the transaction, if none is open, and write into it what an attempt before had written."""
        if self._in_transaction:
            return
        self._check(self._connection)
        self._in_transaction = True
        for packet in self._written:
            self._connection.run(packet)

    def _check(self, connection: Connection) -> None:
        """Lock the consumer's row. Raises Fenced if another one of its name has begun."""
        found = connection.rows(f"SELECT epoch FROM {_STATE} WHERE consumer = %s FOR UPDATE", self._consumer)
        if not found or int(found[0][0]) != self._epoch:
            raise Fenced(
                f"another consumer {self._consumer} has begun to write into {self._where}", hint="Let one consumer of a name write."
            )

    def _flush(self) -> None:
        """Write what waits into the open transaction."""
        size = min(PACKET, self._connection.max_packet - 1024)
        found = [text_of(packet) for packet in packets(self._waiting.statements(self._limits), size, together=True)]
        self._waiting.clear()
        self._written += found
        for packet in found:
            self._connection.run(packet)

    def abandon(self) -> None:
        """Undo uncommitted changes."""
        self._drop()
        self._waiting.clear()
        self._generated.clear()
        self._tables.clear()

    # Rows

    def rows(self, events: Sequence[RowEvent]) -> None:
        """Take the rows of one transaction."""
        if events and events[0].ts == self._ddl_ts:
            return  # they were committed when the DDL of this ts began
        for event in events:
            if event.only_handle_key and event.after:
                raise SinkError(
                    f"a row of {event.schema}.{event.table} at {event.ts} was too large: its message holds only the key",
                    hint="Let the changefeed send large messages whole or with claim-check.",
                )
            self._waiting.take(event, self._target(self._shapes.shape(event), event))
        self.rows_applied += len(events)
        if self._waiting.rows >= WRITE_ROWS:
            self._tried(self._write_some)

    def _write_some(self) -> None:
        self._begin()
        self._flush()

    def _target(self, shape: Shape, event: RowEvent) -> _Target:
        found = self._tables.get(shape.number)
        if found is None:
            generated = self._generated_columns(event.schema, event.table)
            found = self._tables[shape.number] = _Target(shape, event, generated, self._zone)
        return found

    def _generated_columns(self, schema: str, table: str) -> frozenset[str]:
        """Return the columns that the database computes itself. Raises SinkError for a table that is not there."""
        key = folded_table((schema, table))
        if key not in self._generated:

            def ask() -> list[tuple[str, str]]:
                query = "SELECT column_name, extra FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
                return [(str(column), str(extra)) for column, extra in self._connection.rows(query, schema, table)]

            found = self._call(ask)
            if not found:
                raise SinkError(
                    f"{self._where} has no table {schema}.{table}, and its rows do not say how to make it",
                    hint="Create it by hand, or begin with a topic of `tidemill run --snapshot --create-tables`.",
                )
            self._generated[key] = frozenset(
                column.lower() for column, extra in found if "GENERATED" in extra.upper().replace("DEFAULT_", "")
            )
        return self._generated[key]

    # DDLs

    def ddl(self, ddl: DdlMessage) -> None:
        """Apply a DDL, once."""
        schema = "" if ddl.type in _OF_SCHEMAS else ddl.schema
        wanted = Ddl(ddl.ts, 0, schema, ddl.query, physical_ms(ddl.ts) / 1000, self._zone_text)
        plan = self._call(lambda: self._plans.find(self._connection, wanted))
        if plan is not None and plan.finished:
            return

        def note() -> None:
            self._begin()
            self._flush()
            self._connection.run(f"UPDATE {_STATE} SET ddl_ts = %s WHERE consumer = %s", ddl.ts, self._consumer)
            self._connection.commit()

        self._transaction(note)
        if ddl.query.strip():
            self._call(lambda: self._run(wanted, ddl))
        self._generated.clear()
        self._tables.clear()
        self.ddls_applied += 1

    def _run(self, ddl: Ddl, message: DdlMessage) -> None:
        with suppress(DdlSyntaxError):  # perhaps of a newer TiDB: then it is run as it is
            ddl = replace(ddl, query=self._exact(message), known_as=ddl.query)
        try:
            execute(self._connection, ddl, self._writer, _MANNER, self._stop)
        except Refused as error:
            hint = f"Run by hand what stands for it, then start again with --skip-ddl {ddl.ts}."
            raise SchemaError(error.message, hint=hint) from error

    def _exact(self, ddl: DdlMessage) -> str:
        """Return the statement with names in the letters of the database, as every server reads it. Raises DdlSyntaxError, ServerFault."""
        found, printed = FoundNames(), was_printed(ddl.query)
        canonical_ddl(ddl.query, names=found, printed=printed)
        written = {(schema or ddl.schema, table) for schema, table in found.tables} | {
            (schema or ddl.schema, "") for schema in found.schemas
        }
        schemas, tables = ({folded(name[part]) for name in written} for part in (0, 1))
        there = self._connection.rows(
            "SELECT schema_name, '' FROM information_schema.schemata WHERE LOWER(schema_name) IN %s UNION ALL "
            "SELECT table_schema, table_name FROM information_schema.tables WHERE LOWER(table_schema) IN %s AND LOWER(table_name) IN %s",
            tuple(schemas), tuple(schemas), tuple(tables),
        )  # fmt: skip
        known = {folded_table((str(schema), str(table))): (str(schema), str(table)) for schema, table in there}
        known |= {folded_table((ddl.schema, ddl.table)): (ddl.schema, ddl.table)} if ddl.table else {}

        def exact(schema: str, table: str) -> tuple[str, str]:
            in_schema = known.get(folded_table((schema, "")), (schema, ""))[0], table
            return known.get(folded_table((schema, table)), in_schema)

        names = RoutedNames(ddl.schema, exact, lambda schema: exact(schema, "")[0], found)
        return canonical_ddl(ddl.query, names=names, dialect=EXACT, printed=printed)


class _Writer:
    """The consumer, as it runs DDLs."""

    def __init__(self, consumer: str, plans: Plans, check: Callable[[Connection], None]) -> None:
        """`check` locks the consumer's row, and raises if another one of its name has begun."""
        self.plans, self._check = plans, check
        self.lock = lock_name(SCHEMA, "consumer", consumer)

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """See `ddls.plans.Writer`."""
        connection.run("BEGIN")
        self._check(connection)
        yield
        connection.commit()

    def begin(self, connection: Connection, ddl: Ddl, before: str) -> None:
        """See `ddls.plans.Writer`."""
        self.plans.begin(connection, ddl, before)

    def finish(self, connection: Connection, ddl: Ddl) -> None:
        """See `ddls.plans.Writer`."""
        self.plans.finish(connection, ddl)


def _enter(connection: Connection, ddl: Ddl) -> None:
    """Make the session ready. Messages need not begin with the one that creates their database."""
    if ddl.schema:
        connection.run(f"CREATE DATABASE IF NOT EXISTS {quote_name(ddl.schema)} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    UPSTREAMS.enter(connection, ddl)


def _fitted(connection: Connection, parsed: Parsed) -> Parsed:
    """Return a RENAME TABLE that can be run. The renames of one statement are several messages. One may take a name before the table with
    that name gets its new one. That table then waits under a name of ours. Raises SchemaError for another DDL while one waits."""
    if parsed.what is not What.RENAME:
        waiting = connection.rows(_WAITING)
        if waiting:
            raise SchemaError(
                f"{connection.where}: another table was renamed to the name that {'.'.join(waiting[0])} had, but this one was not renamed",
                hint="Give it its name by hand.",
            )
        return parsed
    if len(parsed.renames) != 1:
        return parsed
    old, new = parsed.renames[0]
    source = _aside(old) if _is_there(connection, _aside(old)) else old
    if not _is_there(connection, source) or not _is_there(connection, new) or folded_table(old) == folded_table(new):
        return replace(parsed, renames=((source, new),))
    return replace(parsed, renames=((new, _aside(new)), (source, new)))


def _aside(table: Name) -> Name:
    """Return the name under which a table waits for its new one."""
    return table[0], f"_tidemill_waiting_{hashlib.md5(repr(folded_table(table)).encode(), usedforsecurity=False).hexdigest()[:16]}"


def _is_there(connection: Connection, table: Name) -> bool:
    return bool(connection.rows("SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s", *table))


_WAITING = r"SELECT table_schema, table_name FROM information_schema.tables WHERE table_name LIKE '\_tidemill\_waiting\_%'"
_MANNER = replace(UPSTREAMS, enter=_enter, fitted=_fitted)


DUPLICATE = 1062


class _Again(Exception):
    """The transaction is to be run again."""


class _Target:
    """A form of a table's rows, and its statements."""

    def __init__(self, shape: Shape, event: RowEvent, generated: frozenset[str], zone: tzinfo) -> None:
        self.shape, self._zone = shape, zone
        self.table = SqlTable(event.schema, event.table, shape.version.info)
        self.table.columns = tuple(c for c in shape.version.info.output_columns if c.name.lower() not in generated)
        if not self.table.has_key:
            self.table.key = self.table.columns
        self.statements = TableStatements(self.table)
        self._places = shape.places

    def key(self, cells: Sequence[Cell]) -> bytes:
        """Return the text that finds a row."""
        return self.table.key_of([self._literal(column, cells) for column in self.table.key])

    def row(self, cells: Sequence[Cell]) -> bytes:
        """Return the literals of a row."""
        return b",".join(self._literal(column, cells) for column in self.table.columns)

    def _literal(self, column: ColumnInfo, cells: Sequence[Cell]) -> bytes:
        cell = cells[self._places[column.name]]
        if column.tp == MySQLType.TIMESTAMP and isinstance(cell, str) and self._zone is not UTC:
            cell = in_utc(cell, self._zone)
        try:
            return literal(column, cell)
        except ValueError:
            key = ", ".join(f"{one.name}={cells[self._places[one.name]]!r}" for one in self.table.key)
            raise SinkError(
                f"{self.table.schema}.{self.table.table}: column {column.name} of the row with key {key} is {cell!r}, which "
                "a database cannot keep",
                hint="Correct the row upstream, or leave its message out.",
            ) from None


def in_utc(text: str, zone: tzinfo) -> str:
    """Return the text of a TIMESTAMP in UTC; the zero value stays."""
    whole, dot, fraction = text.partition(".")
    try:
        moment = datetime.fromisoformat(whole)
    except ValueError:
        return text
    return moment.replace(tzinfo=zone).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") + dot + fraction


class _Waiting:
    """Changes that are not written yet. Of a row only its last state counts: others see the database only as it is at a commit."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], dict[bytes, tuple[_Target, bytes]]] = {}
        self._steps: dict[tuple[str, str], list[tuple[_Target, Change]]] = {}  # of tables without a key, in order
        self.rows = 0

    def clear(self) -> None:
        """Forget all changes."""
        self._rows.clear()
        self._steps.clear()
        self.rows = 0

    def take(self, event: RowEvent, target: _Target) -> None:
        """Take a change of a row."""
        self.rows += 1
        where = folded_table((event.schema, event.table))
        before = self._cells(target, event.before, event.after)
        after = self._cells(target, event.after, event.before)
        if not target.table.has_key:
            steps = self._steps.setdefault(where, [])
            steps += [(target, Change(KIND_DELETE, target.key(before), b""))] if before is not None else []
            steps += [(target, Change(KIND_INSERT, b"", target.row(after)))] if after is not None else []
            return
        rows = self._rows.setdefault(where, {})
        new = target.key(after) if after is not None else None
        old = target.key(before) if before is not None else None
        if old is not None and old != new:
            rows[old] = target, b""
        if new is not None and after is not None:
            rows[new] = target, target.row(after)

    @staticmethod
    def _cells(target: _Target, image: Sequence[Column], other: Sequence[Column]) -> list[Cell] | None:
        return cells_of(target.shape, image, other) if image else None

    def statements(self, limits: Limits) -> Iterator[Statement]:
        """Yield the statements: of each table what goes, then what is there now, replacing what is in its way."""
        for rows in self._rows.values():
            for target, gone in _grouped((target, Change(KIND_DELETE, key, b"")) for key, (target, row) in rows.items() if not row):
                yield from target.statements.of_changes(gone, limits, safe=True)
            for target, there in _grouped((target, Change(KIND_INSERT, key, row)) for key, (target, row) in rows.items() if row):
                yield from target.statements.of_changes(there, limits, safe=True)
        for steps in self._steps.values():
            for target, change in steps:
                yield from target.statements.of_changes([change], limits, safe=True)


def _grouped(changes: Iterable[tuple[_Target, Change]]) -> Iterator[tuple[_Target, list[Change]]]:
    found: dict[int, tuple[_Target, list[Change]]] = {}
    for target, change in changes:
        found.setdefault(id(target), (target, []))[1].append(change)
    yield from found.values()
