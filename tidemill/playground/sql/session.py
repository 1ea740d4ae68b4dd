"""Sessions: text in, results out. They turn statements into DDL jobs, or into rows in a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tidemill import tso
from tidemill.errors import SqlError
from tidemill.playground.sql import shown
from tidemill.playground.sql.binlogs import Binlogs, Writer
from tidemill.playground.sql.catalog import Catalog, Table
from tidemill.playground.sql.parse import ast
from tidemill.playground.sql.parse.cursor import split_statements
from tidemill.playground.sql.parse.parser import parse
from tidemill.playground.sql.rows.dml import Dml
from tidemill.playground.sql.rows.transaction import Transaction
from tidemill.playground.sql.running import RunningDdl, tables_of
from tidemill.playground.sql.schema import ddl, recover
from tidemill.playground.sql.schema.alter import alter_table
from tidemill.playground.sql.schema.bootstrap import bootstrap
from tidemill.playground.sql.schema.ddl import DdlContext
from tidemill.playground.store.cluster import Cluster
from tidemill.tidb import keys
from tidemill.tidb.schema.codes import HandleKind
from tidemill.tidb.types.times import MAX_FSP, Moment, format_datetime


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a statement."""

    affected: int = 0
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[ast.Value, ...], ...] = ()
    commit_ts: int = 0


@dataclass(slots=True)
class Settings:
    """Session variables that matter here."""

    one_phase: bool = True  # tidb_enable_1pc
    cdc_write_source: int = 0  # tidb_cdc_write_source
    strict: bool = True  # whether sql_mode has STRICT_TRANS_TABLES: a DDL heeds it, rows are always written strictly


class Database:
    """The TiDB part of a playground: a cluster and the catalog kept in it. `empty`: the cluster gets no system databases."""

    def __init__(self, cluster: Cluster, *, empty: bool = False) -> None:
        self.cluster = cluster
        self.catalog = Catalog()
        self.split_tables = True
        self.running: list[RunningDdl] = []
        self.binlogs: Binlogs | None = None
        if not empty:
            bootstrap(cluster, self.catalog)

    def session(self, schema: str = "test") -> Session:
        """A new session."""
        return Session(self, schema)

    def write_binlogs(self, writer: Writer) -> None:
        """Write binlogs from now on."""
        self.binlogs = Binlogs(writer, lambda: self.catalog.schema_version)

    def transaction(self, *, one_phase: bool = True, source: int = 0, explicit: bool = False) -> Transaction:
        """A new transaction."""
        return Transaction(self.cluster, one_phase=one_phase, source=source, binlogs=self.binlogs, explicit=explicit)

    def now(self) -> str:
        """The present moment in UTC with six digits after the point, as statements see it."""
        when = tso.when(self.cluster.oracle.last)
        return format_datetime(Moment(*when.timetuple()[:6], when.microsecond), MAX_FSP)


class Session:
    """One connection: its database, its settings, its open transaction."""

    def __init__(self, database: Database, schema: str) -> None:
        self._database, self.schema = database, schema
        self.settings = Settings()
        self._transaction: Transaction | None = None

    def execute(self, sql: str) -> Result:
        """Run all statements of a text; the result of the last. Raises SqlError."""
        result = Result()
        for text in split_statements(sql):
            statement = parse(text)
            steps = self.ddl_steps(statement, text)
            if steps is not None:
                for _ in steps:
                    pass
                result = Result()
            else:
                result = self._run(statement)
        return result

    def steps(self, sql: str) -> Iterator[None]:
        """Run one DDL statement step by step: it goes on when the iterator does, so that others can write between two steps.

        Raises SqlError, also when it is not a DDL.
        """
        steps = self.ddl_steps(parse(sql), sql)
        if steps is None:
            raise SqlError("only a DDL has steps")
        return steps

    def ddl_steps(self, statement: ast.Statement, text: str) -> Iterator[None] | None:
        """The steps of a DDL statement; None for others. A DDL commits the open transaction."""
        run = _DDL.get(type(statement))
        if run is None:
            return None
        self._commit()
        database, schema, source, strict = self._database, self.schema, self.settings.cdc_write_source, self.settings.strict

        def begin() -> Iterator[None]:
            now, split = database.now(), database.split_tables
            return run(
                DdlContext(database.cluster, database.catalog, schema, text, now, source, split, database.binlogs, strict), statement
            )

        return RunningDdl(database.running, tables_of(statement, database.catalog, schema), begin)

    def table(self, name: ast.TableName) -> Table:
        """A table as this session names it. Raises SqlError."""
        return self._database.catalog.table(name, self.schema)

    # statements that are not DDL

    def _run(self, statement: ast.Statement) -> Result:
        match statement:
            case ast.Use(name):
                self._database.catalog.schema_id(name)
                self.schema = name
            case ast.Begin():
                self._commit()
                self._transaction = self._new_transaction(explicit=True)
            case ast.Commit():
                return Result(commit_ts=self._commit())
            case ast.Rollback():
                if self._transaction is not None:
                    self._transaction.rollback()
                    self._transaction = None
            case ast.SetVariable(name, value):
                self._set(name, value)
            case ast.SplitTable():
                return Result(affected=self._split(statement))
            case ast.Insert() | ast.Update() | ast.Delete() | ast.Select():
                return self._dml(statement)
            case ast.ShowDatabases() | ast.ShowTables() | ast.ShowCreateTable() | ast.Describe():
                labels, rows = self._shown(statement)
                return Result(0, labels, rows)
        return Result()

    def _shown(self, statement: ast.ShowDatabases | ast.ShowTables | ast.ShowCreateTable | ast.Describe) -> shown.Shown:
        catalog = self._database.catalog
        match statement:
            case ast.ShowDatabases():
                return shown.databases(catalog)
            case ast.ShowTables(schema):
                return shown.tables(catalog, schema or self.schema)
            case ast.ShowCreateTable(name):
                return shown.create(catalog, self.table(name))
            case ast.Describe(name):
                return shown.columns(self.table(name))

    def _new_transaction(self, *, explicit: bool = False) -> Transaction:
        return self._database.transaction(one_phase=self.settings.one_phase, source=self.settings.cdc_write_source, explicit=explicit)

    def _commit(self) -> int:
        transaction, self._transaction = self._transaction, None
        return transaction.commit() if transaction is not None else 0

    def _set(self, name: str, value: ast.Value) -> None:
        if name == "tidb_enable_1pc":
            self.settings.one_phase = str(value).lower() in ("1", "on", "true")
        elif name == "tidb_cdc_write_source":
            self.settings.cdc_write_source = int(str(value))
        elif name == "sql_mode":
            self.settings.strict = "STRICT_" in str(value).upper()

    def _dml(self, statement: ast.Insert | ast.Update | ast.Delete | ast.Select) -> Result:
        open_transaction = self._transaction
        transaction = open_transaction or self._new_transaction()
        savepoint = transaction.savepoint()
        dml = Dml(self._database.cluster, self._database.catalog, transaction, self._database.now())
        try:
            result = self._rows(dml, statement)
        except SqlError:
            transaction.restore(savepoint)
            raise
        if open_transaction is None:
            return Result(result.affected, result.columns, result.rows, transaction.commit())
        return result

    def _rows(self, dml: Dml, statement: ast.Insert | ast.Update | ast.Delete | ast.Select) -> Result:
        table = self.table(statement.table)
        if table.model.is_view or table.model.is_sequence:
            raise SqlError(f"{table.name} has no rows of its own")
        match statement:
            case ast.Insert():
                return Result(dml.insert(table, statement))
            case ast.Update():
                return Result(dml.update(table, statement))
            case ast.Delete():
                return Result(dml.delete(table, statement))
            case ast.Select():
                columns, rows = dml.select(table, statement)
                return Result(0, tuple(columns), tuple(rows))

    def _split(self, statement: ast.SplitTable) -> int:
        """SPLIT TABLE for integer handles; returns the number of new regions."""
        table = self.table(statement.table)
        if table.model.handle_kind is HandleKind.COMMON:
            raise SqlError("SPLIT TABLE is only for integer handles here")
        if statement.between:
            low, high = (_integer(point) for point in statement.between)
            step = max(1, (high - low) // statement.regions)
            handles = [low + step * n for n in range(1, statement.regions)]
        else:
            handles = [_integer(point) for point in statement.points]
        cuts = [keys.record_key(physical, h) for physical in table.model.physical_ids for h in handles]
        made = self._database.cluster.split(cuts)
        return len(made)


def _integer(point: tuple[ast.Expr, ...]) -> int:
    match point:
        case (ast.Literal(value),) if isinstance(value, int):
            return value
    raise SqlError("SPLIT TABLE needs integers")


_Run = Callable[[DdlContext, Any], Iterator[None]]
_DDL: dict[type, _Run] = {
    ast.CreateDatabase: ddl.create_database,
    ast.AlterDatabase: ddl.alter_database,
    ast.DropDatabase: ddl.drop_database,
    ast.CreateTable: ddl.create_table,
    ast.CreateTableLike: ddl.create_table_like,
    ast.CreateView: ddl.create_view,
    ast.DropTables: ddl.drop_tables,
    ast.Truncate: ddl.truncate_table,
    ast.RenameTables: ddl.rename_tables,
    ast.RecoverTable: recover.recover_table,
    ast.FlashbackDatabase: recover.recover_database,
    ast.AlterTable: alter_table,
}
