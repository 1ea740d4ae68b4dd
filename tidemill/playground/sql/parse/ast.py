"""Statements and expressions of the playground's SQL subset."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from decimal import Decimal

Value = None | int | float | Decimal | str | bytes
"""What an expression yields: text is str, binary strings are bytes."""

# Expressions


@dataclass(frozen=True, slots=True)
class Literal:
    value: Value


@dataclass(frozen=True, slots=True)
class ColumnRef:
    name: str


@dataclass(frozen=True, slots=True)
class DefaultValue:
    """The word DEFAULT in place of a value."""


@dataclass(frozen=True, slots=True)
class NewValue:
    """VALUES(column) in ON DUPLICATE KEY UPDATE: what the insert would have written."""

    name: str


@dataclass(frozen=True, slots=True)
class Unary:
    operator: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary:
    operator: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Call:
    name: str  # lower case
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class InList:
    operand: Expr
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Expr


Expr = Literal | ColumnRef | DefaultValue | NewValue | Unary | Binary | Call | InList | IsNull

# Definitions


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """A column type as written: the name in lower case, its numbers, its elements."""

    name: str
    arguments: tuple[int, ...] = ()
    elems: tuple[str, ...] = ()
    unsigned: bool = False
    zerofill: bool = False
    charset: str = ""
    collate: str = ""


@dataclass(frozen=True, slots=True)
class Position:
    """FIRST (an empty name) or AFTER a column."""

    after: str


@dataclass(frozen=True, slots=True)
class ColumnDef:
    name: str
    type: TypeSpec
    not_null: bool = False
    explicit_null: bool = False
    default: Expr | None = None
    auto_increment: bool = False
    auto_random: int = 0  # shard bits
    on_update_now: bool = False
    primary: bool = False
    unique: bool = False
    clustered: bool | None = None
    comment: str = ""
    generated: Expr | None = None
    stored: bool = False
    position: Position | None = None


class KeyKind(enum.Enum):
    PRIMARY = "primary"
    UNIQUE = "unique"
    INDEX = "index"


@dataclass(frozen=True, slots=True)
class KeyDef:
    name: str
    kind: KeyKind
    columns: tuple[tuple[str, int], ...]  # name, prefix length (-1: all)
    clustered: bool | None = None


@dataclass(frozen=True, slots=True)
class PartitionDef:
    name: str
    less_than: tuple[Expr | None, ...] = ()  # None: MAXVALUE
    in_values: tuple[tuple[Expr, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionBy:
    kind: str  # range, hash, list, key
    expr: Expr | None
    columns: tuple[str, ...]
    count: int
    definitions: tuple[PartitionDef, ...]


@dataclass(frozen=True, slots=True)
class TableName:
    schema: str  # empty: the session's database
    name: str


# Statements


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    name: str
    if_not_exists: bool
    charset: str
    collate: str


@dataclass(frozen=True, slots=True)
class AlterDatabase:
    name: str
    charset: str
    collate: str


@dataclass(frozen=True, slots=True)
class DropDatabase:
    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Use:
    name: str


@dataclass(frozen=True, slots=True)
class CreateTable:
    table: TableName
    if_not_exists: bool
    columns: tuple[ColumnDef, ...]
    keys: tuple[KeyDef, ...]
    partition: PartitionBy | None
    charset: str
    collate: str
    comment: str


@dataclass(frozen=True, slots=True)
class CreateTableLike:
    table: TableName
    like: TableName
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class CreateView:
    table: TableName
    select: str
    columns: tuple[str, ...]  # labels of the SELECT
    source: TableName


@dataclass(frozen=True, slots=True)
class DropTables:
    tables: tuple[TableName, ...]
    if_exists: bool
    view: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    table: TableName


@dataclass(frozen=True, slots=True)
class RecoverTable:
    """RECOVER TABLE and FLASHBACK TABLE … TO."""

    table: TableName
    job_id: int = 0  # BY JOB n, without a name
    new_name: str = ""


@dataclass(frozen=True, slots=True)
class FlashbackDatabase:
    name: str
    new_name: str = ""


@dataclass(frozen=True, slots=True)
class RenameTables:
    pairs: tuple[tuple[TableName, TableName], ...]


@dataclass(frozen=True, slots=True)
class AddColumn:
    column: ColumnDef


@dataclass(frozen=True, slots=True)
class DropColumn:
    name: str


@dataclass(frozen=True, slots=True)
class ModifyColumn:
    name: str
    column: ColumnDef


@dataclass(frozen=True, slots=True)
class RenameColumn:
    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class SetDefault:
    name: str
    default: Expr | None


@dataclass(frozen=True, slots=True)
class AddIndex:
    key: KeyDef


@dataclass(frozen=True, slots=True)
class DropIndex:
    name: str  # PRIMARY for the primary key


@dataclass(frozen=True, slots=True)
class RenameIndex:
    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class TableComment:
    comment: str


@dataclass(frozen=True, slots=True)
class TableCharset:
    charset: str
    collate: str


@dataclass(frozen=True, slots=True)
class AutoIncrement:
    value: int


@dataclass(frozen=True, slots=True)
class RenameTo:
    table: TableName


@dataclass(frozen=True, slots=True)
class AddPartitions:
    definitions: tuple[PartitionDef, ...]


@dataclass(frozen=True, slots=True)
class DropPartitions:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TruncatePartitions:
    names: tuple[str, ...]  # empty: all


@dataclass(frozen=True, slots=True)
class ReorganizePartitions:
    names: tuple[str, ...]
    definitions: tuple[PartitionDef, ...]


@dataclass(frozen=True, slots=True)
class ExchangePartition:
    name: str
    table: TableName


@dataclass(frozen=True, slots=True)
class PartitionTable:
    partition: PartitionBy


@dataclass(frozen=True, slots=True)
class RemovePartitioning:
    pass


AlterAction = (
    AddColumn | DropColumn | ModifyColumn | RenameColumn | SetDefault | AddIndex | DropIndex | RenameIndex | TableComment | TableCharset
    | AutoIncrement | RenameTo | AddPartitions | DropPartitions | TruncatePartitions | ReorganizePartitions | ExchangePartition
    | PartitionTable | RemovePartitioning
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AlterTable:
    table: TableName
    actions: tuple[AlterAction, ...]


class OnConflict(enum.Enum):
    FAIL = "fail"
    IGNORE = "ignore"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Insert:
    table: TableName
    columns: tuple[str, ...]  # empty: all
    rows: tuple[tuple[Expr, ...], ...]
    on_conflict: OnConflict = OnConflict.FAIL
    on_duplicate: tuple[tuple[str, Expr], ...] = ()


@dataclass(frozen=True, slots=True)
class Update:
    table: TableName
    assignments: tuple[tuple[str, Expr], ...]
    where: Expr | None
    limit: int | None


@dataclass(frozen=True, slots=True)
class Delete:
    table: TableName
    where: Expr | None
    limit: int | None


@dataclass(frozen=True, slots=True)
class Select:
    table: TableName
    items: tuple[tuple[str, Expr | None], ...]  # label, expression; None: all columns; count(*) is a Call
    where: Expr | None
    limit: int | None
    for_update: bool = False


@dataclass(frozen=True, slots=True)
class ShowDatabases:
    pass


@dataclass(frozen=True, slots=True)
class ShowTables:
    schema: str  # empty: that of the session


@dataclass(frozen=True, slots=True)
class ShowCreateTable:
    table: TableName


@dataclass(frozen=True, slots=True)
class Describe:
    table: TableName


@dataclass(frozen=True, slots=True)
class Begin:
    pass


@dataclass(frozen=True, slots=True)
class Commit:
    pass


@dataclass(frozen=True, slots=True)
class Rollback:
    pass


@dataclass(frozen=True, slots=True)
class SetVariable:
    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class SplitTable:
    """SPLIT TABLE … BY (values), … or BETWEEN (low) AND (high) REGIONS n."""

    table: TableName
    points: tuple[tuple[Expr, ...], ...] = ()
    between: tuple[tuple[Expr, ...], ...] = field(default=())
    regions: int = 0


Statement = (
    CreateDatabase | AlterDatabase | DropDatabase | Use | CreateTable | CreateTableLike | CreateView | DropTables | Truncate | RenameTables
    | RecoverTable | FlashbackDatabase
    | ShowDatabases | ShowTables | ShowCreateTable | Describe
    | AlterTable | Insert | Update | Delete | Select | Begin | Commit | Rollback | SetVariable | SplitTable
)  # fmt: skip
