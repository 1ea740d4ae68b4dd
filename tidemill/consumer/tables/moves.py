"""Applies DDLs to the tables in SQLite, on a connection inside a transaction."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import tzinfo

from tidemill import tso
from tidemill.consumer.order.progress import STATE
from tidemill.consumer.tables import statements as effect
from tidemill.consumer.tables.buffer import Stored
from tidemill.consumer.tables.catalog import Catalog, ColumnPlan, Source, Table, column_of_event, declared, fits
from tidemill.consumer.tables.shapes import create_sql, from_stored, quoted, row_id, stored_name, to_stored
from tidemill.consumer.tables.statements import Name
from tidemill.errors import MalformedBytes, SchemaError, TidemillError
from tidemill.protocols.open.events import Column
from tidemill.rules.partitions import Locator
from tidemill.tidb.names import folded, folded_table
from tidemill.tidb.schema.model import ColumnInfo

log = logging.getLogger(__name__)


def _restored(name: Name, stored: str, definition: str) -> Table:
    """A table by its description in the file. Raises MalformedBytes."""
    try:
        return Table.restored(name, stored, json.loads(definition))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedBytes(f"what _tidemill_tables says of {'.'.join(name)} cannot be read: {error!r}", hint=STATE.hint) from None


class DdlApplier:
    """Applies the effects of DDLs to the tables and the catalog.

    A dropped or emptied table is kept for `keep_ms` of upstream time, for RECOVER and FLASHBACK TABLE: no message holds the rows that these
    restore.
    """

    def __init__(self, connection: sqlite3.Connection, catalog: Catalog, zone: tzinfo, keep_ms: int) -> None:
        self._sql, self._catalog, self._zone, self._keep_ms = connection, catalog, zone, keep_ms
        self.gone: dict[Name, int] = {}  # names that a DDL removed, in lower case → its ts
        self._waiting: dict[Name, Table] = {}  # tables whose name another rename took, before their own rename

    # What is known, in the file

    def load(self) -> None:
        """Know what the file says, and nothing else."""
        for table in self._catalog:
            self._catalog.remove(table)
        self._waiting.clear()
        rows = self._sql.execute("SELECT stored, schema, name, definition FROM _tidemill_tables WHERE dropped_ts IS NULL").fetchall()
        for stored_as, schema, name, definition in rows:
            self._catalog.add(_restored((schema, name), stored_as, definition))
        self.gone = {(s, n): ts for s, n, ts in self._sql.execute("SELECT schema, name, ts FROM _tidemill_gone")}

    def save(self, table: Table) -> None:
        """Store a table's description."""
        self._sql.execute(
            "INSERT OR REPLACE INTO _tidemill_tables (stored, schema, name, dropped_ts, definition) VALUES (?, ?, ?, NULL, ?)",
            (table.stored, *table.name, json.dumps(table.definition())),
        )

    def _forget(self, table: Table, ts: int) -> None:
        self._catalog.remove(table)
        self._take_away(table.name, ts)

    def _take_away(self, name: Name, ts: int) -> None:
        folded = folded_table(name)
        self.gone[folded] = ts
        self._sql.execute("INSERT OR REPLACE INTO _tidemill_gone (schema, name, ts) VALUES (?, ?, ?)", (*folded, ts))

    # Tables

    def create(self, name: Name, columns: Sequence[ColumnInfo], ts: int) -> Table:
        """Create an empty table."""
        table = Table(name, self._free_name(stored_name(name)), tuple(columns), born_ts=ts, changed_ts=ts)
        self._sql.execute(create_sql(table.stored, table.value_columns))
        self._catalog.add(table)
        self.save(table)
        return table

    def _free_name(self, wanted: str) -> str:
        name, number = wanted, 1
        while self._sql.execute("SELECT 1 FROM sqlite_master WHERE lower(name) = lower(?)", (name,)).fetchone():
            number += 1
            name = f"{wanted}~{number}"
        return name

    def is_empty(self, table: Table) -> bool:
        """Return whether the table has no row."""
        return self._sql.execute(f"SELECT 1 FROM {quoted(table.stored)} LIMIT 1").fetchone() is None

    def _put_aside(self, table: Table, ts: int) -> None:
        """Keep a removed table's rows for RECOVER."""
        self._sql.execute("DELETE FROM _tidemill_tables WHERE stored = ?", (table.stored,))
        if self._keep_ms and not self.is_empty(table):
            aside = self._free_name(f"_tidemill_dropped_{ts}")
            self._sql.execute(f"ALTER TABLE {quoted(table.stored)} RENAME TO {quoted(aside)}")
            values = (aside, *table.name, ts, json.dumps(table.definition()))
            self._sql.execute("INSERT INTO _tidemill_tables (stored, schema, name, dropped_ts, definition) VALUES (?, ?, ?, ?, ?)", values)
        else:
            self._sql.execute(f"DROP TABLE {quoted(table.stored)}")
        self._purge(ts)

    def _purge(self, ts: int) -> None:
        oldest = ts - (self._keep_ms << tso.LOGICAL_BITS)
        for (name,) in self._sql.execute("SELECT stored FROM _tidemill_tables WHERE dropped_ts < ?", (oldest,)).fetchall():
            self._sql.execute(f"DROP TABLE {quoted(name)}")
            self._sql.execute("DELETE FROM _tidemill_tables WHERE stored = ?", (name,))

    def drop(self, table: Table, ts: int) -> None:
        """Apply DROP TABLE."""
        self._put_aside(table, ts)
        self._forget(table, ts)

    def truncate(self, table: Table, ts: int) -> None:
        """Apply TRUNCATE TABLE."""
        self._put_aside(table, ts)
        table.born_ts = ts
        self._sql.execute(create_sql(table.stored, table.value_columns))
        self._index(table)
        self.save(table)

    def recover(self, what: effect.RecoverTable, ts: int) -> None:
        """Restore the table that was last dropped or emptied under a name."""
        found = self._sql.execute(
            "SELECT stored, definition FROM _tidemill_tables WHERE lower(schema) = lower(?) AND lower(name) = lower(?)"
            " AND dropped_ts IS NOT NULL ORDER BY dropped_ts DESC LIMIT 1",
            what.name,
        ).fetchone()
        if found is None:
            log.warning("%s at %d: no rows of it are known here", "Recovery of " + ".".join(what.name), ts)
            return
        if self._catalog.find(what.new_name) is not None:
            raise SchemaError(f"{'.'.join(what.new_name)} is to be recovered, but it is there")
        aside, definition = found
        table = _restored(what.new_name, self._free_name(stored_name(what.new_name)), definition)
        self._sql.execute(f"ALTER TABLE {quoted(aside)} RENAME TO {quoted(table.stored)}")
        self._sql.execute("DELETE FROM _tidemill_tables WHERE stored = ?", (aside,))
        table.changed_ts = ts
        self._catalog.add(table)
        self.save(table)

    def rename(self, table: Table, new: Name, ts: int) -> None:
        """Apply RENAME TABLE, also into another schema.

        The renames of one statement are several messages. One may take a name before the table with that name gets its new one. That table
        then waits without a name.
        """
        other = self._catalog.find(new)
        self._waiting.pop(folded_table(table.name), None)
        if self._catalog.find(table.name) is table:
            self._forget(table, ts)
        self._sql.execute("DELETE FROM _tidemill_tables WHERE stored = ?", (table.stored,))
        if other is not None and other is not table:
            self._catalog.remove(other)
            self._sql.execute("DELETE FROM _tidemill_tables WHERE stored = ?", (other.stored,))
            self._restore_as(other, self._free_name("_tidemill_waiting"))
            self._waiting[folded_table(new)] = other
        table.name, table.changed_ts = new, ts
        self._restore_as(table, self._free_name(stored_name(new)))
        self._catalog.add(table)
        self.save(table)

    def _restore_as(self, table: Table, stored_as: str) -> None:
        self._sql.execute(f"ALTER TABLE {quoted(table.stored)} RENAME TO {quoted(stored_as)}")
        table.stored = stored_as

    def waiting(self, name: Name) -> Table | None:
        """Return the table that had this name before a rename took it."""
        return self._waiting.get(folded_table(name))

    def check_waiting(self) -> None:
        """Check, before any other DDL than a rename, that no table waits for a name. Raises SchemaError."""
        for table in self._waiting.values():
            name = ".".join(table.name)
            raise SchemaError(f"another table was renamed to {name}, but the table that has this name was not renamed")

    # Keys

    def set_key(self, table: Table, key: tuple[str, ...]) -> None:
        """Change the key columns of a table."""
        for (name,) in self._sql.execute(
            "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND name LIKE '!_tidemill!_key%' ESCAPE '!'",
            (table.stored,),
        ).fetchall():
            self._sql.execute(f"DROP INDEX {quoted(name)}")
        table.key = key
        self._index(table)
        self.save(table)

    def _index(self, table: Table) -> None:
        if not table.key:
            return
        names = ", ".join(quoted(table.names[name]) for name in table.key)
        index = self._free_name(f"_tidemill_key {table.stored}")
        try:
            self._sql.execute(f"CREATE UNIQUE INDEX {quoted(index)} ON {quoted(table.stored)} ({names})")
        except sqlite3.IntegrityError as error:
            raise SchemaError(f"{'.'.join(table.name)}: rows are there twice for its new key ({', '.join(table.key)}): {error}") from None

    # Columns

    def fit(self, table: Table, columns: Sequence[Column]) -> None:
        """Add or change columns that a row has and the table does not, although no DDL did it."""
        plan = ColumnPlan.of(table)
        for shown in columns:
            known, told = table.column(shown.name), column_of_event(shown)
            if known is None:
                plan.columns.append((told, Source(None)))
            elif not fits(known, shown):
                plan.columns = [(told, s) if folded(c.name) == folded(told.name) else (c, s) for c, s in plan.columns]
        self._replan(table, plan)

    def alter(self, table: Table, changes: Sequence[effect.Change], ts: int) -> None:
        """Apply ALTER TABLE: first to the rows of partitions, then to columns."""
        plan = ColumnPlan.of(table)
        for change in changes:
            match change:
                case effect.EmptyPartitions(names):
                    self._empty_partitions(table, names)
                case effect.ExchangePartition(partition, other):
                    self._exchange(table, partition, other)
            plan.take(change)
        table.changed_ts = ts
        self._replan(table, plan)

    def _replan(self, table: Table, plan: ColumnPlan) -> None:
        table.key = tuple(folded(plan.renamed.get(name, name)) for name in table.key)
        table.partitioning = plan.partitioning
        before, wanted = table.value_columns, [(c, s) for c, s in plan.columns if not c.is_virtual]
        table.columns = tuple(c for c, _ in plan.columns)
        if not {folded(c.name) for c, _ in wanted}.issuperset(table.key):
            table.key = ()
        if not _unchanged(before, wanted):
            self._rebuild(table, before, wanted)
        self.save(table)

    def _rebuild(self, table: Table, before: Sequence[ColumnInfo], wanted: Sequence[tuple[ColumnInfo, Source]]) -> None:
        """Rebuild the table with its rows. Hidden row ids stay."""
        old_columns = {folded(c.name): c for c in before}
        making = self._free_name("_tidemill_making")
        self._sql.execute(create_sql(making, [c for c, _ in wanted]))
        names, values, constants = [row_id(c for c, _ in wanted)], [row_id(before)], []
        failures: list[TidemillError] = []
        for number, (column, source) in enumerate(wanted):
            old = old_columns.get(folded(source.old)) if source.old is not None else None
            names.append(quoted(column.name))
            if old is None:
                values.append("?")
                constants.append(to_stored(column, source.value))
            elif source.convert is None:
                values.append(quoted(old.name))
            else:
                self._sql.create_function(f"_tidemill_{number}", 1, _converter(old, column, source.convert, failures))
                values.append(f"_tidemill_{number}({quoted(old.name)})")
        copy = f"INSERT INTO {quoted(making)} ({', '.join(names)}) SELECT {', '.join(values)} FROM {quoted(table.stored)}"
        try:
            self._sql.execute(copy, constants)
        except sqlite3.OperationalError as error:
            raise (failures[0] if failures else error) from None
        self._sql.execute(f"DROP TABLE {quoted(table.stored)}")
        self._sql.execute(f"ALTER TABLE {quoted(making)} RENAME TO {quoted(table.stored)}")
        self._index(table)

    # Partitions

    def _empty_partitions(self, table: Table, names: Sequence[str]) -> None:
        if not names:
            self._sql.execute(f"DELETE FROM {quoted(table.stored)}")
        elif not self.is_empty(table):
            ids = ((found,) for found in self._rows_in(table, names))
            self._sql.executemany(f"DELETE FROM {quoted(table.stored)} WHERE {row_id(table.value_columns)} = ?", list(ids))

    def _rows_in(self, table: Table, names: Iterable[str]) -> Iterator[int]:
        """Yield the ids of the rows in partitions. Raises SchemaError if they cannot be determined."""
        what = f"which rows of {'.'.join(table.name)} lie in {', '.join(names)} cannot be told"
        if table.partitioning is None:
            raise SchemaError(f"{what}: no message said how it is partitioned", hint="Read from a topic that has its CREATE TABLE.")
        columns = table.value_columns
        wanted = {folded(name) for name in names}
        try:
            locator = Locator(table.partitioning, columns, self._zone)
            listed = ", ".join(quoted(c.name) for c in columns)
            for found, *values in self._sql.execute(f"SELECT {row_id(columns)}, {listed} FROM {quoted(table.stored)}"):
                row = {folded(c.name): from_stored(c, v) for c, v in zip(columns, values, strict=True)}
                if folded(locator.find(row) or "") in wanted:
                    yield found
        except SchemaError as error:
            raise SchemaError(f"{what}: {error.message}", hint=error.hint) from None

    def _exchange(self, table: Table, partition: str, other: Name) -> None:
        """Swap the rows of a partition and of a plain table. Columns match by name."""
        plain = self._catalog.find((other[0] or table.name[0], other[1]))
        if plain is None:
            raise SchemaError(f"{'.'.join(table.name)} exchanges a partition with {'.'.join(other)}, which is not known here")
        ids = [] if self.is_empty(table) else [(found,) for found in self._rows_in(table, [partition])]
        names = ", ".join(quoted(c.name) for c in table.value_columns)
        inside, outside = quoted(table.stored), quoted(plain.stored)
        self._sql.execute("CREATE TEMP TABLE _tidemill_ids (id INTEGER PRIMARY KEY)")
        self._sql.executemany("INSERT INTO _tidemill_ids VALUES (?)", ids)
        leaving = f"FROM {inside} WHERE {row_id(table.value_columns)} IN (SELECT id FROM _tidemill_ids)"
        self._sql.execute(f"CREATE TEMP TABLE _tidemill_leaving AS SELECT {names} {leaving}")
        self._sql.execute(f"DELETE {leaving}")
        self._sql.execute(f"INSERT INTO {inside} ({names}) SELECT {names} FROM {outside}")
        self._sql.execute(f"DELETE FROM {outside}")
        self._sql.execute(f"INSERT INTO {outside} ({names}) SELECT {names} FROM _tidemill_leaving")
        self._sql.execute("DROP TABLE _tidemill_leaving")
        self._sql.execute("DROP TABLE _tidemill_ids")
        for changed in (table, plain):
            changed.by_row_id = False  # row ids of the two tables may now collide
            self.save(changed)


def _unchanged(before: Sequence[ColumnInfo], wanted: Sequence[tuple[ColumnInfo, Source]]) -> bool:
    return len(before) == len(wanted) and all(
        old.name == new.name == source.old and source.convert is None and declared(old) == declared(new)
        for old, (new, source) in zip(before, wanted, strict=True)
    )


def _converter(
    old: ColumnInfo, new: ColumnInfo, convert: Callable[..., object], failures: list[TidemillError]
) -> Callable[[Stored], Stored]:
    """Return a conversion for SQLite that records its errors, because SQLite would hide them."""

    def run(value: Stored) -> Stored:
        try:
            return to_stored(new, convert(from_stored(old, value)))  # type: ignore[arg-type]
        except TidemillError as error:
            failures.append(error)
            raise

    return run
