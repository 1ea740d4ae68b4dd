"""DDL statements under way. Like TiDB, no table has two at a time: the second one begins when the first has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass

from tidemill.errors import SqlError
from tidemill.playground.sql.catalog import Catalog
from tidemill.playground.sql.parse import ast
from tidemill.playground.store.mvcc import KeyLocked, WriteConflict


class RunningDdl(Iterator[None]):
    """The steps of one statement. It goes on when it is asked for the next one, or when a statement about its tables has to wait for it."""

    def __init__(self, running: list[RunningDdl], tables: frozenset[int], begin: Callable[[], Iterator[None]]) -> None:
        self._running, self._tables, self._begin = running, tables, begin
        self._steps: Iterator[None] | None = None
        self._failed: SqlError | None = None

    def __next__(self) -> None:
        """One step. Raises SqlError, also for what went wrong while another statement waited."""
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        if self._steps is None:
            for other in [other for other in self._running if other._tables & self._tables]:
                other._finish()
            self._steps = self._begin()
            self._running.append(self)
        over = True
        try:
            next(self._steps)
            over = False
        except (KeyLocked, WriteConflict) as error:
            raise SqlError(f"write conflict: {error}") from error
        finally:
            if over:
                self._end()

    def _end(self) -> None:
        if self in self._running:
            self._running.remove(self)
        self._steps = iter(())

    def _finish(self) -> None:
        try:
            for _ in self:
                pass
        except SqlError as error:
            self._failed = error  # the session of the statement gets the error


def tables_of(statement: ast.Statement, catalog: Catalog, schema: str) -> frozenset[int]:
    """Ids of the tables that are there and that a DDL statement is about."""
    if isinstance(statement, (ast.DropDatabase, ast.AlterDatabase)):
        found = catalog.schema_id(statement.name) if catalog.has_schema(statement.name) else None
        return frozenset(table.id for table in catalog.tables.values() if table.schema_id == found)
    names = [name for name in _names(statement) if catalog.has_schema(name.schema or schema)]
    tables = (catalog.find(name, schema) for name in names)
    return frozenset(table.id for table in tables if table is not None)


def _names(part: object) -> Iterator[ast.TableName]:
    if isinstance(part, ast.TableName):
        yield part
    elif isinstance(part, (tuple, list)):
        for one in part:
            yield from _names(one)
    elif is_dataclass(part):
        for member in fields(part):
            yield from _names(getattr(part, member.name))
