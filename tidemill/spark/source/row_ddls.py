"""DDLs after which a table has other rows, or other values in them, without a change for any. Pure.

A table that follows a stream of changes is wrong behind such a DDL, unless its reader does something about it. FLASHBACK CLUSTER is not
among them: a log ends at it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tidemill.errors import TidemillError
from tidemill.spark.source.frame import TableFrame
from tidemill.tidb.columns.forms import column_type
from tidemill.tidb.columns.values import TypedReader
from tidemill.tidb.schema.codes import Action, MySQLType
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.schema.tracking.lineage import NEW, origins
from tidemill.tidb.schema.tracking.versions import TableVersion

Wants = Callable[[TableVersion], bool]


class Effect(enum.Enum):
    """What happens to the rows."""

    EMPTIED = enum.auto()  # all are gone
    ADDED = enum.auto()  # they have a value in a column that is new
    OTHERS = enum.auto()  # some come, go or change


@dataclass(frozen=True, slots=True)
class RowDdl:
    """`name`: schema and table before it. `why`: what it does, in words that go before "by a DDL"."""

    ts: int
    effect: Effect
    name: tuple[str, str]
    why: str
    query: str


_GONE = "all rows are gone"
_OF_SCHEMA = {
    Action.DROP_SCHEMA: (Effect.EMPTIED, _GONE),
    Action.RECOVER_SCHEMA: (Effect.OTHERS, "rows come back"),
}
_OF_TABLE: Mapping[int, tuple[Effect, str]] = {
    Action.TRUNCATE_TABLE: (Effect.EMPTIED, _GONE),
    Action.DROP_TABLE: (Effect.EMPTIED, _GONE),
    Action.DROP_TABLE_PARTITION: (Effect.OTHERS, "the rows of a partition are gone"),
    Action.TRUNCATE_TABLE_PARTITION: (Effect.OTHERS, "the rows of a partition are gone"),
    Action.EXCHANGE_PARTITION: (Effect.OTHERS, "rows change places with those of another table"),
    Action.RECOVER_TABLE: (Effect.OTHERS, "rows come back"),
}
_TIMES = (MySQLType.DATETIME, MySQLType.TIMESTAMP, MySQLType.DURATION)


def row_ddl(event: DdlEvent, wants: Wants, frame: TableFrame, in_schema: TableVersion | None) -> RowDdl | None:
    """Return what a DDL does to the rows of the table that is read, None if nothing.

    `wants`: whether a version is of this table. `in_schema`: the table, where the DDL is of a whole schema that has it before or after.
    """
    before, after = event.before, event.after
    effect: tuple[Effect, str] | None = None
    if not event.table:
        effect = _OF_SCHEMA.get(Action(event.type)) if event.type in _OF_SCHEMA and in_schema is not None else None
        before = in_schema
    elif event.type in (Action.RENAME_TABLE, Action.RENAME_TABLES):
        effect = _renamed(before is not None and wants(before), after is not None and wants(after))
    elif any(version is not None and wants(version) for version in (before, after, event.other)):
        effect = _OF_TABLE.get(event.type)
        if effect is None and before is not None and after is not None:
            effect = _altered(event.type, before, after, frame)
    version = before or after
    return RowDdl(event.ts, effect[0], version.name, effect[1], event.query) if effect is not None and version is not None else None


def _renamed(before: bool, after: bool) -> tuple[Effect, str] | None:
    if before == after:
        return None
    return (Effect.EMPTIED, "the table has another name") if before else (Effect.OTHERS, "another table has its name")


def _altered(action: int, before: TableVersion, after: TableVersion, frame: TableFrame) -> tuple[Effect, str] | None:
    """What ALTER TABLE does to the values of columns that the DataFrame has."""
    if before.table_id != after.table_id:
        return None
    read = {column.id: column for column in frame.read_in(after)}
    old = {column.id: column for column in before.info.output_columns}
    for column_id, origin in origins(before, after, action).items():
        column = read.get(column_id)
        if column is None:
            continue
        if origin == NEW and _has_value(after, column):
            return Effect.ADDED, f"rows have a value in the new column {column.name}"
        if origin in old and _rounds(old[origin], column) and not _ends_otherwise(after, frame):
            return Effect.OTHERS, f"values of column {column.name} are rounded"
    return None


def _ends_otherwise(after: TableVersion, frame: TableFrame) -> bool:
    """Whether the columns themselves end the query there."""
    return after.from_ts > frame.base.from_ts and bool(frame.difference(after).others)


def _has_value(version: TableVersion, column: ColumnInfo) -> bool:
    try:
        return TypedReader(version.info).absent(version.info.output_columns.index(column)) is not None
    except TidemillError:
        return False  # no row can be older than the column


def _rounds(old: ColumnInfo, new: ColumnInfo) -> bool:
    """Whether a change of type may have rounded values, which Arrow's conversion does not."""
    if new.tp in _TIMES:
        return max(new.decimal, 0) < (max(old.decimal, 0) if old.tp in _TIMES else 6)
    have, want = column_type(old).arrow, column_type(new).arrow
    if pa.types.is_integer(want):
        return not pa.types.is_integer(have)
    return bool(pa.types.is_decimal(want) and not pa.types.is_integer(have) and (not pa.types.is_decimal(have) or want.scale < have.scale))
