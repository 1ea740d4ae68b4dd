"""What a DDL does to the tables of the lake. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from tidemill.errors import SchemaError, SinkError
from tidemill.rules.partitions import PartitionRows
from tidemill.sinks.lake.shapes import LakeTable, is_keyless, lake_table
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.lineage import origins
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.visible import short_statement


class Do(enum.Enum):
    """What is done to a table."""

    BEGIN = "begin"  # a table of this name begins
    SHAPE = "shape"  # it gets these columns
    EMPTY = "empty"
    RENAME = "rename"
    DROP = "drop"
    DROP_SCHEMA = "drop schema"  # all tables of it
    RECOVER = "recover"  # a dropped or truncated table comes back with its rows
    REMOVE = "remove"  # rows of partitions leave it
    EXCHANGE = "exchange"  # rows of a partition change places with those of another table


_REFUSED = {
    Action.FLASHBACK_CLUSTER: "rows become those of an earlier time",
}
"""DDLs after which the rows differ, without a change for any of them, and nothing in the lake says how."""

_HINT = "Let an event filter ignore the DDL, or load the table again into an empty place."
_PARTITIONS_GO = (Action.DROP_TABLE_PARTITION, Action.TRUNCATE_TABLE_PARTITION)


@dataclass(frozen=True)
class LakeDdl:
    """One step. `old`: schema and table before a rename, or what is dropped. `table`: what the table is afterwards.

    `gone`: finds the rows that leave with their partitions. `other`: the table without partitions of an exchange, as it is afterwards.
    """

    do: Do
    ts: int
    old: tuple[str, str]
    table: LakeTable | None
    gone: PartitionRows | None = None
    other: LakeTable | None = None


def lake_ddl(event: DdlEvent, *, history: bool) -> LakeDdl | None:
    """Return what is to be done; None for a DDL that concerns no table's columns or rows. `history`: tables hold changes. Raises SinkError
    for a DDL that cannot be done."""
    if event.type in _REFUSED and not history:
        raise SinkError(
            f"{event.schema}.{event.table}: {_REFUSED[Action(event.type)]} by a DDL, "
            f"and no change says which: {short_statement(event.query)}",
            hint=_HINT,
        )
    if event.type == Action.DROP_SCHEMA:
        return LakeDdl(Do.DROP_SCHEMA, event.ts, (event.schema, ""), None)
    before, after = event.before, event.after
    if after is None or not after.info.has_rows:
        drops = before is not None and before.info.has_rows and event.type == Action.DROP_TABLE
        return LakeDdl(Do.DROP, event.ts, before.name, None) if drops and before is not None else None
    table = lake_table(after, history=history)
    if before is not None and before.table_id == after.table_id:
        table = replace(table, origins=tuple(origins(before, after, event.type).items()))
    if event.type == Action.TRUNCATE_TABLE:
        return LakeDdl(Do.SHAPE if history else Do.EMPTY, event.ts, after.name, table)
    if event.type == Action.RECOVER_TABLE and not history:
        return LakeDdl(Do.RECOVER, event.ts, after.name, table)
    if before is None:
        return LakeDdl(Do.BEGIN, event.ts, after.name, table)
    if event.type in _PARTITIONS_GO and not history:
        return LakeDdl(Do.REMOVE, event.ts, after.name, table, _gone(event, before, after))
    if event.type == Action.EXCHANGE_PARTITION and not history:
        return _exchange(event, before, after, table)
    return LakeDdl(Do.RENAME if _renamed(before, after) else Do.SHAPE, event.ts, before.name, table)


def _exchange(event: DdlEvent, before: TableVersion, after: TableVersion, table: LakeTable) -> LakeDdl:
    other = event.other
    if other is None or is_keyless(after):
        why = "rows that only their hidden handles tell apart" if other is not None else "rows with a table that is not known here"
        raise SinkError(f"{event.schema}.{event.table} exchanges {why}: {event.query}", hint=_HINT)
    [taken] = set(before.physical_ids) - set(after.physical_ids)  # the other table has the partition's id afterwards
    gone = _gone(event, before, after)
    return LakeDdl(Do.EXCHANGE, event.ts, after.name, table, gone, replace(lake_table(other), table_id=taken))


def _gone(event: DdlEvent, before: TableVersion, after: TableVersion) -> PartitionRows:
    try:
        return PartitionRows.gone(before.info, after.info)
    except SchemaError as error:
        raise SinkError(
            f"{event.schema}.{event.table}: which rows lie in a partition cannot be told: {error.message}: {event.query}", hint=_HINT
        ) from None


def _renamed(before: TableVersion, after: TableVersion) -> bool:
    return before.name != after.name
