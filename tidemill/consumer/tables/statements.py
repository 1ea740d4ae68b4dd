"""The text of a DDL → its effects on tables and their rows.

It reads what matters to rows: columns with types and defaults, partitions, names. It skips indexes, constraints, comments and storage
options. Texts of TiCDC and Tidemill are in TiDB's canonical form; other texts are converted to it if possible.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from tidemill.consumer.tables.definitions import column_info, skip, skip_item
from tidemill.rules.partitions import Definition, Method, Partitioning
from tidemill.tidb.ddltext import DdlSyntaxError, exact_ddl
from tidemill.tidb.ddltext.cursor import Cursor
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.sql.lexer import Kind, SqlMode

Name = tuple[str, str]
"""(schema, table). The schema is empty if the text does not name it."""

FIRST = ""
"""The place of the first column."""


@dataclass(frozen=True, slots=True)
class DropSchema:
    schema: str


@dataclass(frozen=True, slots=True)
class CreateTable:
    name: Name
    columns: tuple[ColumnInfo, ...]
    partitioning: Partitioning | None


@dataclass(frozen=True, slots=True)
class CreateLike:
    name: Name
    source: Name


@dataclass(frozen=True, slots=True)
class DropTable:
    name: Name


@dataclass(frozen=True, slots=True)
class TruncateTable:
    name: Name


@dataclass(frozen=True, slots=True)
class RecoverTable:
    """RECOVER or FLASHBACK: restores the table that was last dropped or emptied under a name, perhaps under another name."""

    name: Name
    new_name: Name


@dataclass(frozen=True, slots=True)
class RenameTable:
    old: Name
    new: Name


@dataclass(frozen=True, slots=True)
class AddColumn:
    column: ColumnInfo
    after: str | None  # None: last; FIRST


@dataclass(frozen=True, slots=True)
class DropColumn:
    column: str


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    old: str
    column: ColumnInfo
    after: str | None  # None: where it is


@dataclass(frozen=True, slots=True)
class RenameColumn:
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class EmptyPartitions:
    """DROP or TRUNCATE PARTITION; no names: all."""

    names: tuple[str, ...]
    drop: bool


@dataclass(frozen=True, slots=True)
class ExchangePartition:
    partition: str
    other: Name


@dataclass(frozen=True, slots=True)
class AddPartitions:
    definitions: tuple[Definition, ...]
    count: int  # of HASH and KEY


@dataclass(frozen=True, slots=True)
class ReorganizePartitions:
    names: tuple[str, ...]
    definitions: tuple[Definition, ...]


@dataclass(frozen=True, slots=True)
class CoalescePartitions:
    count: int


@dataclass(frozen=True, slots=True)
class SetPartitioning:
    partitioning: Partitioning | None


Change = (
    AddColumn
    | DropColumn
    | ChangeColumn
    | RenameColumn
    | EmptyPartitions
    | ExchangePartition
    | AddPartitions
    | ReorganizePartitions
    | CoalescePartitions
    | SetPartitioning
)


@dataclass(frozen=True, slots=True)
class AlterTable:
    name: Name
    changes: tuple[Change, ...]


Effect = DropSchema | CreateTable | CreateLike | DropTable | TruncateTable | RecoverTable | RenameTable | AlterTable


def effects(query: str, now: datetime) -> tuple[Effect, ...]:
    """Return the effects of a statement in order, none if it does not concern rows. Raises DdlSyntaxError."""
    with contextlib.suppress(DdlSyntaxError):  # perhaps of a newer TiDB: the parts that matter may still be readable
        query = exact_ddl(query)
    return _Statement(query, now).read()


_Item = TypeVar("_Item")


class _Statement(Cursor):
    """One statement, from its verb on. `now` is the time of the DDL."""

    def __init__(self, sql: str, now: datetime) -> None:
        super().__init__(sql, SqlMode(0), "utf8mb4", "utf8mb4_bin")
        self.sql, self.now = sql, now

    def read(self) -> tuple[Effect, ...]:
        verb = self.next().upper
        match verb:
            case "CREATE":
                return self._create()
            case "DROP":
                return self._drop()
            case "ALTER":
                return self._alter() if self.accept("TABLE") else ()
            case "RENAME":
                self.expect("TABLE")
                return tuple(self._listed(self._rename))
            case "TRUNCATE":
                self.accept("TABLE")
                return (TruncateTable(self._table()),)
            case "RECOVER" | "FLASHBACK":
                return self._recover()
        return ()

    def _table(self) -> Name:
        first = self.identifier()
        return (first, self.identifier()) if self.accept(".") else ("", first)

    def _listed(self, read: Callable[[], _Item]) -> list[_Item]:
        found = [read()]
        while self.accept(","):
            found.append(read())
        return found

    # Tables

    def _create(self) -> tuple[Effect, ...]:
        while self.accept_any(("GLOBAL", "TEMPORARY")):
            pass
        if not self.accept("TABLE"):
            return ()
        self.accept("IF", "NOT", "EXISTS")
        name = self._table()
        if self.accept("LIKE"):
            return (CreateLike(name, self._table()),)
        if not self.accept("("):
            return ()  # AS SELECT, which TiDB does not run
        if self.accept("LIKE"):
            return (CreateLike(name, self._table()),)
        start = self.index
        charset = self._table_charset()
        self.index = start
        columns: list[ColumnInfo] = []
        while not self.accept(")"):
            if self._at_column():
                columns.append(column_info(self, self.now, charset))
            skip_item(self)
            self.accept(",")
            if self.at_end():
                raise self.fail(")")
        partitioning = None
        while not self.at_end():
            if self.at("PARTITION", "BY"):
                partitioning = self._partition_by()
                break
            skip(self)
        return (CreateTable(name, tuple(columns), partitioning),)

    def _table_charset(self) -> str:
        """Return the character set in the table's options, which follow the columns."""
        while not self.accept(")") and not self.at_end():
            skip(self)
        while not self.at_end() and not self.at("PARTITION", "BY"):
            if self.accept_charset_keyword():
                self.accept("=")
                return self.token.text
            skip(self)
        return ""

    def _at_column(self) -> bool:
        """Return whether a column follows. Indexes and constraints begin with reserved words, except one."""
        return self.at_identifier() and not self.at("VECTOR", "INDEX")

    def _drop(self) -> tuple[Effect, ...]:
        if self.accept_any(("DATABASE", "SCHEMA")):
            self.accept("IF", "EXISTS")
            return (DropSchema(self.identifier()),)
        while self.accept_any(("GLOBAL", "TEMPORARY")):
            pass
        if not self.accept_any(("TABLE", "TABLES")):
            return ()
        self.accept("IF", "EXISTS")
        return tuple(DropTable(name) for name in self._listed(self._table))

    def _rename(self) -> Effect:
        old = self._table()
        self.expect("TO")
        return RenameTable(old, self._table())

    def _recover(self) -> tuple[Effect, ...]:
        if not self.accept("TABLE") or self.at("BY"):
            return ()
        name = self._table()
        if self.accept("TO"):
            return (RecoverTable(name, (name[0], self.identifier())),)
        return (RecoverTable(name, name),)

    # ALTER TABLE

    def _alter(self) -> tuple[Effect, ...]:
        name = self._table()
        changes: list[Change] = []
        renamed: list[Effect] = []
        while not self.at_end():
            if self.accept("RENAME"):
                if self.accept("COLUMN"):
                    old = self.identifier()
                    self.expect("TO")
                    changes.append(RenameColumn(old, self.identifier()))
                elif not self.at_any(("INDEX", "KEY")):
                    self.accept_any(("TO", "AS", "="))
                    renamed.append(RenameTable(name, self._table()))
            else:
                changes += self._change()
            skip_item(self)
            if not self.accept(","):
                self.next()
        return (*((AlterTable(name, tuple(changes)),) if changes else ()), *renamed)

    def _change(self) -> list[Change]:
        if self.accept("ADD"):
            return self._add()
        if self.accept("DROP"):
            return self._drop_part()
        if self.accept("MODIFY"):
            self.accept("COLUMN")
            self.accept("IF", "EXISTS")
            column = column_info(self, self.now)
            return [ChangeColumn(column.name, column, self._place())]
        if self.accept("CHANGE"):
            self.accept("COLUMN")
            self.accept("IF", "EXISTS")
            old = self.identifier()
            return [ChangeColumn(old, column_info(self, self.now), self._place())]
        if self.accept("TRUNCATE", "PARTITION"):
            return [EmptyPartitions(self._names(), drop=False)]
        if self.accept("EXCHANGE", "PARTITION"):
            partition = self.identifier()
            self.expect("WITH", "TABLE")
            return [ExchangePartition(partition, self._table())]
        if self.accept("REORGANIZE", "PARTITION"):
            self.accept_any(("NO_WRITE_TO_BINLOG", "LOCAL"))
            if self.at_end():
                return []
            names = self._names()
            self.expect("INTO")
            return [ReorganizePartitions(names, self._definitions())]
        if self.accept("COALESCE", "PARTITION"):
            self.accept_any(("NO_WRITE_TO_BINLOG", "LOCAL"))
            return [CoalescePartitions(self.unsigned())]
        if self.accept("REMOVE", "PARTITIONING"):
            return [SetPartitioning(None)]
        if self.at("PARTITION", "BY"):
            return [SetPartitioning(self._partition_by())]
        return []

    def _add(self) -> list[Change]:
        if self.accept("PARTITION"):
            self.accept("IF", "NOT", "EXISTS")
            self.accept_any(("NO_WRITE_TO_BINLOG", "LOCAL"))
            if self.accept("PARTITIONS"):
                return [AddPartitions((), self.unsigned())]
            return [AddPartitions(self._definitions(), 0)] if self.at("(") else []
        is_column = self.accept("COLUMN")
        self.accept("IF", "NOT", "EXISTS")
        if self.accept("("):
            added: list[Change] = []
            while not self.accept(")"):
                if self.at_end():
                    raise self.fail(")")
                if self._at_column():
                    added.append(AddColumn(column_info(self, self.now), None))
                skip_item(self)
                self.accept(",")
            return added
        if not is_column and (not self._at_column() or self.at("STATS_EXTENDED")):
            return []  # an index, a constraint, statistics
        return [AddColumn(column_info(self, self.now), self._place())]

    def _drop_part(self) -> list[Change]:
        if self.accept("PARTITION"):
            self.accept("IF", "EXISTS")
            return [EmptyPartitions(self._names(), drop=True)]
        is_column = self.accept("COLUMN")
        self.accept("IF", "EXISTS")
        if not is_column and (not self._at_column() or self.at("STATS_EXTENDED")):
            return []
        return [DropColumn(self.identifier())]

    def _place(self) -> str | None:
        if self.accept("FIRST"):
            return FIRST
        return self.identifier() if self.accept("AFTER") else None

    def _names(self) -> tuple[str, ...]:
        return () if self.accept("ALL") else tuple(self._listed(self.identifier))

    # Partitions

    def _partition_by(self) -> Partitioning:
        self.expect("PARTITION", "BY")
        self.accept("LINEAR")
        method = Method[self.expect_any(("RANGE", "LIST", "HASH", "KEY"))]
        if self.accept("ALGORITHM"):
            self.expect("=")
            self.next()
        by_columns = bool(self.accept_any(("COLUMNS", "FIELDS"))) or method is Method.KEY
        expression = self._parenthesised()
        columns = tuple(self._column_names(expression)) if by_columns else ()
        count = 0
        definitions: tuple[Definition, ...] = ()
        while not self.at_end():
            if self.accept("PARTITIONS"):
                count = self.unsigned()
            elif self.accept("SUBPARTITION", "BY"):
                self.next()
                skip(self)
            elif self.at("INTERVAL") or self.at("UPDATE", "INDEXES"):
                break  # the partitions of an interval get their names and bounds from TiDB
            elif self.at("("):
                definitions = self._definitions()
            else:
                skip(self)
        if not definitions and method in (Method.HASH, Method.KEY):
            definitions = tuple(Definition(f"p{i}") for i in range(max(count, 1)))
        return Partitioning(method, "" if by_columns else expression, columns, definitions)

    def _parenthesised(self) -> str:
        """Return the text inside the parentheses that follow."""
        start = self.token.position
        if not self.at("("):
            raise self.fail("(")
        skip(self)
        return self.sql[start + 1 : self.tokens[self.index - 1].position]

    def _column_names(self, text: str) -> list[str]:
        inner = Cursor(text, SqlMode(0), self.charset, self.collate)
        return [token.text for token in inner.tokens if token.kind in (Kind.NAME, Kind.WORD)]

    def _definitions(self) -> tuple[Definition, ...]:
        self.expect("(")
        found = self._listed(self._definition)
        self.expect(")")
        return tuple(found)

    def _definition(self) -> Definition:
        self.expect("PARTITION")
        name = self.identifier()
        less_than: tuple[str, ...] = ()
        values: tuple[tuple[str, ...], ...] = ()
        is_default = False
        if self.accept("VALUES", "LESS", "THAN"):
            less_than = ("MAXVALUE",) if self.accept("MAXVALUE") else self._texts()
        elif self.accept("VALUES", "IN"):
            values = self._value_rows()
            is_default = ("DEFAULT",) in values
        elif self.accept("DEFAULT"):
            is_default = True
        skip_item(self)
        return Definition(name, less_than, values, is_default)

    def _texts(self) -> tuple[str, ...]:
        """Return the texts of the items between parentheses."""
        self.expect("(")
        found = self._listed(self._item_text)
        self.expect(")")
        return tuple(found)

    def _item_text(self) -> str:
        start = self.token.position
        skip_item(self)
        return self.sql[start : self.token.position].strip()

    def _value_rows(self) -> tuple[tuple[str, ...], ...]:
        self.expect("(")
        found = self._listed(lambda: self._texts() if self.at("(") else (self._item_text(),))
        self.expect(")")
        return tuple(found)
