"""`sqlite:///FILE`: the upstream's tables in an SQLite file, each as `schema.table`, with the consumer's progress.

Everything up to a commit is one SQLite transaction: rows, effects of DDLs, offsets. Tables `_tidemill_…` are the consumer's own.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, tzinfo
from itertools import groupby
from pathlib import Path

from tidemill import tso
from tidemill.consumer.order.progress import Progress
from tidemill.consumer.tables import statements as effect
from tidemill.consumer.tables.buffer import Buffer, Key, Row, Stored
from tidemill.consumer.tables.catalog import Catalog, Table, column_of_event, fits
from tidemill.consumer.tables.moves import DdlApplier
from tidemill.consumer.tables.shapes import Signature, quoted, row_id, signature
from tidemill.consumer.tables.statements import Name, effects
from tidemill.errors import Fenced, SchemaError, SinkError, SinkUnavailable, TidemillError
from tidemill.protocols.open.codes import DdlType
from tidemill.protocols.open.events import DdlMessage, RowEvent
from tidemill.tidb.names import folded, folded_table
from tidemill.visible import short_statement

log = logging.getLogger(__name__)

MEMORY = ":memory:"
KEEP_DROPPED_MS = 24 * 3600 * 1000
_MAX_CELLS = 400_000  # in buffers, before they are written
_BUSY_S = 30.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS _tidemill_tables
  (stored TEXT PRIMARY KEY, schema TEXT NOT NULL, name TEXT NOT NULL, dropped_ts INTEGER, definition TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS _tidemill_gone (schema TEXT, name TEXT, ts INTEGER, PRIMARY KEY (schema, name));
CREATE TABLE IF NOT EXISTS _tidemill_ddls (ts INTEGER, schema TEXT, name TEXT, query TEXT, type INTEGER);
CREATE INDEX IF NOT EXISTS _tidemill_ddls_ts ON _tidemill_ddls (ts);
CREATE TABLE IF NOT EXISTS _tidemill_state (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
_EMPTYING = (DdlType.DROP_TABLE_PARTITION, DdlType.TRUNCATE_TABLE_PARTITION)


class SqliteTables:
    """Tables in one file. Changes become visible and durable with `commit`.

    Raises Fenced once another consumer has taken the file, SinkUnavailable while another process locks it, SinkError for SQLite's errors,
    SchemaError for a DDL that cannot be applied to the present rows.
    """

    commits_before_ddls = False

    def __init__(self, path: Path | str, *, zone: tzinfo = UTC, keep_dropped_ms: int = KEEP_DROPPED_MS) -> None:
        self._path, self._zone = str(path), zone
        with self._errors("opening"):
            if self._path != MEMORY:
                Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            self.connection = sqlite3.connect(self._path, isolation_level=None, timeout=_BUSY_S, check_same_thread=False)
            self.connection.execute("PRAGMA journal_mode = WAL")
            self.connection.execute("PRAGMA synchronous = NORMAL")
            self.connection.executescript(_SCHEMA)
            self._epoch = self._take_over()
            self.catalog = Catalog()
            self._moves = DdlApplier(self.connection, self.catalog, zone, keep_dropped_ms)
            self._moves.load()
        self._buffers: dict[str, Buffer] = {}
        self._fitting: dict[str, set[Signature]] = {}
        self.rows_applied = self.ddls_applied = 0

    # State

    def _take_over(self) -> int:
        """Take the file over. An earlier owner fails where its next transaction begins."""
        self.connection.execute("BEGIN IMMEDIATE")
        epoch = int(self._state("epoch") or 0) + 1
        self._set_state("epoch", str(epoch))
        self.connection.execute("COMMIT")
        return epoch

    def _state(self, name: str) -> str | None:
        found = self.connection.execute("SELECT value FROM _tidemill_state WHERE name = ?", (name,)).fetchone()
        return None if found is None else str(found[0])

    def _set_state(self, name: str, value: str) -> None:
        self.connection.execute("INSERT OR REPLACE INTO _tidemill_state (name, value) VALUES (?, ?)", (name, value))

    def progress(self) -> Progress:
        """Return the last committed progress."""
        with self._errors("reading"):
            text = self._state("progress")
        return Progress() if text is None else Progress.from_json(text)

    def commit(self, progress: Progress) -> None:
        """Make all changes so far durable, together with `progress`."""
        with self._errors("committing to"):
            self._begin()
            self._moves.check_waiting()
            self._write_buffers()
            self._set_state("progress", progress.to_json())
            self.connection.execute("COMMIT")

    def abandon(self) -> None:
        """Roll back uncommitted changes."""
        self._buffers.clear()
        self._fitting.clear()
        with self._errors("reading"):
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            self._moves.load()

    def close(self) -> None:
        """Close the file without committing."""
        self.connection.close()

    def _begin(self) -> None:
        """Begin the transaction, if none is open. It keeps others from taking the file over until it ends. Raises Fenced."""
        if self.connection.in_transaction:
            return
        self.connection.execute("BEGIN IMMEDIATE")
        if self._state("epoch") != str(self._epoch):
            self.connection.execute("ROLLBACK")
            raise Fenced(f"another consumer has taken {self._path}", hint="Let one consumer write a file.")

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            kind = SinkUnavailable if "locked" in str(error) or "busy" in str(error) else SinkError
            raise kind(f"{doing} {self._path}: {error}") from error
        except (sqlite3.Error, OSError, UnicodeEncodeError) as error:  # UnicodeEncodeError: text that UTF-8 cannot hold
            raise SinkError(f"{doing} {self._path}: {error}") from error

    # Rows

    def rows(self, events: Sequence[RowEvent]) -> None:
        """Take the rows of one transaction: within each table deletes first, then updates, then inserts."""
        with self._errors("writing rows to"):
            self._begin()
            self._moves.check_waiting()
            for _, group in groupby(sorted(events, key=_name), key=_name):
                self._rows_of_table(list(group))
            if sum(buffer.cells for buffer in self._buffers.values()) > _MAX_CELLS:
                self._write_buffers()

    def _rows_of_table(self, events: list[RowEvent]) -> None:
        table = self._table(events[0])
        if table is None or events[0].ts <= table.born_ts:
            return  # the table is gone; a late row does not belong to its successor
        for event in events:
            if event.only_handle_key and event.after:
                raise SinkError(
                    f"a row of {event.schema}.{event.table} at {event.ts} was too large: its message holds only the key",
                    hint="Let the changefeed send large messages whole or with claim-check.",
                )
            self._fit(table, event)
        buffer = self._buffers.get(table.stored)
        if buffer is None:
            buffer = self._buffers[table.stored] = Buffer(table.key)
        if table.key or table.by_row_id:
            buffer.take(events)
        else:
            buffer.take_keyless(events)
        self.rows_applied += len(events)

    def _table(self, event: RowEvent) -> Table | None:
        """Return the table of a row. Without a DDL it is created from the row. None for a table that was dropped after the row."""
        name = event.schema, event.table
        table = self.catalog.find(name)
        if table is None and event.ts > self._moves.gone.get(folded_table(name), 0):
            table = self._moves.create(name, [column_of_event(c) for c in event.after or event.before], 0)
        return table

    def _fit(self, table: Table, event: RowEvent) -> None:
        """Fit the table to the row's columns, once for each signature."""
        columns = event.after or event.before
        seen = self._fitting.setdefault(table.stored, set())
        known = signature(columns)
        if known in seen or event.ts <= table.changed_ts:
            return
        if len({folded(c.name) for c in columns}) < len(columns):
            raise SchemaError(f"table {event.schema}.{event.table} at {event.ts} has columns whose names differ in nothing but case")
        key = tuple(sorted(folded(c.name) for c in columns if c.handle))
        by_row_id = not key and event.row_id is not None and (table.by_row_id or self._is_new(table))
        if not all(fits(table.column(c.name), c) for c in columns):
            self._write_buffer(table)
            self._moves.fit(table, columns)
        if key != table.key or by_row_id != table.by_row_id:
            self._write_buffer(table)
            table.by_row_id = by_row_id
            self._moves.set_key(table, key)
        seen.add(known)

    def _is_new(self, table: Table) -> bool:
        return not table.key and not self._buffers.get(table.stored) and self._moves.is_empty(table)

    def _write_buffers(self) -> None:
        for table in self.catalog:
            self._write_buffer(table)

    def _write_buffer(self, table: Table) -> None:
        buffer = self._buffers.pop(table.stored, None)
        if buffer is None:
            return
        if buffer.steps:
            self._write_steps(table, buffer.steps)
        names = table.names
        where = " AND ".join(f"{quoted(names[name])} = ?" for name in table.key) or f"{row_id(table.value_columns)} = ?"
        gone = [key for key, change in buffer.pending.items() if change.remove or change.values is None]
        self.connection.executemany(f"DELETE FROM {quoted(table.stored)} WHERE {where}", gone)
        come = (
            (key if table.by_row_id else (), _known(change.values, names))
            for key, change in buffer.pending.items()
            if change.values is not None
        )
        for columns, rows in _by_columns(come).items():
            self.connection.executemany(_insert(table, columns), rows)

    def _write_steps(self, table: Table, steps: Iterable[tuple[Row | None, Row | None]]) -> None:
        """Write rows without a key. Of equal rows, one is removed."""
        names, own_id = table.names, row_id(table.value_columns)
        for gone, come in steps:
            if gone is not None:
                values = _known(gone, names)
                # Rows are compared as a whole: a chain of AND may be no deeper than 1000, and tables have more columns.
                where = f"({', '.join(map(quoted, values))}) IS ({', '.join('?' * len(values))})"
                one = f"SELECT {own_id} FROM {quoted(table.stored)} WHERE {where} LIMIT 1"
                self.connection.execute(f"DELETE FROM {quoted(table.stored)} WHERE {own_id} IN ({one})", tuple(values.values()))
            if come is not None:
                values = _known(come, names)
                listed, marks = ", ".join(map(quoted, values)), ", ".join("?" * len(values))
                self.connection.execute(f"INSERT INTO {quoted(table.stored)} ({listed}) VALUES ({marks})", tuple(values.values()))

    # DDLs

    def ddl(self, ddl: DdlMessage) -> None:
        """Apply a DDL to tables and rows. A DDL that was applied before does nothing."""
        with self._errors("applying a DDL to"):
            self._begin()
            identity = (ddl.ts, ddl.schema, ddl.table, ddl.query, int(ddl.type))
            if self.connection.execute(
                "SELECT 1 FROM _tidemill_ddls WHERE ts = ? AND schema = ? AND name = ? AND query = ? AND type = ?", identity
            ).fetchone():
                return
            self._write_buffers()
            self._fitting.clear()
            try:
                self._apply(ddl)
            except TidemillError as error:
                hint = error.hint or f"Change the tables by hand, then start again with --skip-ddl {ddl.ts}."
                raise SchemaError(
                    f"the DDL at {ddl.ts} ({short_statement(ddl.query)}) cannot be applied: {error.message}", hint=hint
                ) from error
            self.connection.execute("INSERT INTO _tidemill_ddls VALUES (?, ?, ?, ?, ?)", identity)
            self.ddls_applied += 1

    def _apply(self, ddl: DdlMessage) -> None:
        found = effects(ddl.query, tso.when(ddl.ts).astimezone(self._zone).replace(tzinfo=None))
        if not found and ddl.type in _EMPTYING:
            raise SchemaError("which partitions it empties is not understood")
        for what in found:
            self._effect(what, ddl)

    def _effect(self, what: effect.Effect, ddl: DdlMessage) -> None:
        moves, ts = self._moves, ddl.ts
        if not isinstance(what, effect.RenameTable):
            moves.check_waiting()
        match what:
            case effect.DropSchema(schema):
                for table in self.catalog.of_schema(schema):
                    moves.drop(table, ts)
            case effect.CreateTable(name, columns, partitioning):
                if self._target(name, ddl) is None:
                    moves.create(self._qualified(name, ddl), columns, ts).partitioning = partitioning
                    self._saved(self._qualified(name, ddl))
            case effect.CreateLike(name, source):
                model = self._target(source, ddl)
                if model is not None and self._target(name, ddl) is None:
                    moves.create(self._qualified(name, ddl), model.columns, ts).partitioning = model.partitioning
                    self._saved(self._qualified(name, ddl))
            case effect.RecoverTable(name, new):
                moves.recover(effect.RecoverTable(self._qualified(name, ddl), self._qualified(new, ddl)), ts)
            case effect.DropTable(name):
                self._on(name, ddl, lambda table: moves.drop(table, ts))
            case effect.TruncateTable(name):
                self._on(name, ddl, lambda table: moves.truncate(table, ts))
            case effect.RenameTable(old, new):
                self._rename(old, new, ddl)
            case effect.AlterTable(name, changes):
                self._on(name, ddl, lambda table: moves.alter(table, changes, ts))

    def _rename(self, old: Name, new: Name, ddl: DdlMessage) -> None:
        waiting = self._moves.waiting(self._qualified(old, ddl))
        if waiting is not None:
            self._moves.rename(waiting, self._qualified(new, ddl), ddl.ts)
        else:
            self._on(old, ddl, lambda table: self._moves.rename(table, self._qualified(new, ddl), ddl.ts))

    def _saved(self, name: Name) -> None:
        table = self.catalog.find(name)
        if table is not None:
            self._moves.save(table)

    def _qualified(self, name: Name, ddl: DdlMessage) -> Name:
        return name[0] or ddl.schema, name[1]

    def _target(self, name: Name, ddl: DdlMessage) -> Table | None:
        return self.catalog.find(self._qualified(name, ddl))

    def _on(self, name: Name, ddl: DdlMessage, do: Callable[[Table], None]) -> None:
        """Call `do` with a table. An unknown table has no rows: its CREATE TABLE precedes the topic's first message, or it has no key."""
        table = self.catalog.find(name) if name[0] else self.catalog.find_unqualified(ddl.schema, name[1])
        if table is not None:
            do(table)


def _name(event: RowEvent) -> Name:
    return event.schema, event.table


def _known(values: Row, names: Mapping[str, str]) -> Row:
    """Return values by the names in the file, without columns that were dropped since."""
    return {names[name]: value for name, value in values.items() if name in names}


def _by_columns(come: Iterable[tuple[Key, Row]]) -> dict[tuple[str, ...], list[tuple[Stored, ...]]]:
    """Group rows by their columns. A hidden row id follows the values."""
    found: dict[tuple[str, ...], list[tuple[Stored, ...]]] = {}
    for last, row in come:
        found.setdefault(tuple(row), []).append((*row.values(), *last))
    return found


def _insert(table: Table, columns: Sequence[str]) -> str:
    listed, marks = ", ".join(map(quoted, columns)), ", ".join("?" * len(columns))
    if table.by_row_id:
        return f"INSERT OR REPLACE INTO {quoted(table.stored)} ({listed}, {row_id(table.value_columns)}) VALUES ({marks}, ?)"
    key = ", ".join(quoted(table.names[name]) for name in table.key)
    rest = ", ".join(f"{quoted(c)} = excluded.{quoted(c)}" for c in columns)
    return f"INSERT INTO {quoted(table.stored)} ({listed}) VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET {rest}"
