"""The DDL statements that the mixed workload chooses from. Each is a function of a table and its writer, and returns an empty text if the
statement does not fit the table."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tidemill.playground.sql.catalog import Table
from tidemill.playground.sql.parse.ast import TableName
from tidemill.playground.workload.actors import TableActor
from tidemill.tidb.schema.codes import PartitionType


def _name(actor: TableActor) -> str:
    return f"`{actor.name.schema}`.`{actor.name.name}`"


def _added_columns(table: Table) -> list[str]:
    return [c.name for c in table.codec.public if c.name.startswith("extra")]


_NEW_TYPES = (
    "int", "bigint unsigned not null default 7", "varchar(40) default 'added'", "decimal(12,3) not null default 1.5", "datetime(3)",
    "json", "double default 0.25", "enum('a','b','c') not null default 'b'", "varbinary(20)", "date not null default '2020-02-20'",
    "set('x','y') default 'x'", "bit(9) default b'101'", "time", "year default 2020", "text", "timestamp null",
)  # fmt: skip


def _add_column(actor: TableActor, table: Table, random: Random) -> str:
    actor.added += 1
    place = random.choice(("", " first", f" after `{table.codec.public[0].name}`"))
    return f"alter table {_name(actor)} add column extra{actor.added} {random.choice(_NEW_TYPES)}{place}"


def _drop_column(actor: TableActor, table: Table, random: Random) -> str:
    names = _added_columns(table)
    return f"alter table {_name(actor)} drop column {random.choice(names)}" if names else ""


def _swap_columns(actor: TableActor, table: Table, random: Random) -> str:
    names = _added_columns(table)
    actor.added += 1
    return f"alter table {_name(actor)} add column extra{actor.added} int default 1, drop column {random.choice(names)}" if names else ""


def _modify_column(actor: TableActor, table: Table, random: Random) -> str:
    names = _added_columns(table)
    return f"alter table {_name(actor)} modify column {random.choice(names)} {random.choice(('varchar(600)', 'text'))}" if names else ""


def _rename_column(actor: TableActor, table: Table, random: Random) -> str:
    names = _added_columns(table)
    actor.added += 1
    return f"alter table {_name(actor)} rename column {random.choice(names)} to extra{actor.added}" if names else ""


def _index(actor: TableActor, table: Table, random: Random) -> str:
    if any(i.name == "idx_extra" for i in table.model.indices):
        return f"alter table {_name(actor)} drop index idx_extra"
    return f"alter table {_name(actor)} add index idx_extra (`{table.codec.public[0].name}`)"


def _truncate(actor: TableActor, table: Table, random: Random) -> str:
    return f"truncate table {_name(actor)}" if random.random() < 0.4 else ""


def _comment(actor: TableActor, table: Table, random: Random) -> str:
    return f"alter table {_name(actor)} comment 'revision {table.info['revision']}'"


def _rename(actor: TableActor, table: Table, random: Random) -> str:
    """Rename the table, and let its writer remember the new name."""
    new = actor.name.name.rstrip("0123456789_") + f"_{random.randrange(100)}"
    if actor.is_taken(new):
        return ""
    old, actor.name = actor.name, TableName(actor.name.schema, new)
    return f"rename table `{old.schema}`.`{old.name}` to `{old.schema}`.`{new}`"


def _partition(actor: TableActor, table: Table, random: Random) -> str:
    partition = table.model.partitioning
    if partition is None or partition.type != PartitionType.RANGE or len(partition.definitions) < 2:
        return ""
    name = random.choice(partition.definitions[:-1]).name
    return f"alter table {_name(actor)} truncate partition {name}"


def _reorganize(actor: TableActor, table: Table, random: Random) -> str:
    partition = table.model.partitioning
    if partition is None or partition.type != PartitionType.RANGE or len(partition.definitions) < 2:
        return ""
    first, second = partition.definitions[0], partition.definitions[1]
    bound = second.less_than[0]
    high = int(bound) if bound.isdigit() else 0
    if high < 3:
        return ""
    cut = random.randrange(1, high - 1)
    pieces = f"partition {first.name} values less than ({cut}), partition {second.name} values less than ({high})"
    return f"alter table {_name(actor)} reorganize partition {first.name}, {second.name} into ({pieces})"


DDLS: tuple[Callable[[TableActor, Table, Random], str], ...] = (
    _add_column, _add_column, _drop_column, _swap_columns, _modify_column, _rename_column, _index, _truncate, _comment, _rename,
    _partition, _reorganize,
)  # fmt: skip
