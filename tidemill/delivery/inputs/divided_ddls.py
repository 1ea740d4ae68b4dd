"""DDLs that are delivered as others: where the statement itself would change what is not delivered, or needs what is not there.

In: a DDL and the schemas before it, so that a restart makes the same of it. Out: the DDLs that are delivered for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tidemill.config.sinks import Ddls
from tidemill.delivery.inputs.table_router import TableRouter
from tidemill.rules.table_routes import TableRoutingFailed
from tidemill.tidb.ddltext import DdlSyntaxError
from tidemill.tidb.ddltext.synthesized import drop_table, drop_view, exchanged_partition, qualified, rename_table
from tidemill.tidb.keys import is_system_schema
from tidemill.tidb.names import folded, quote_name
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.events import DdlEvent, Name, RenameStep
from tidemill.tidb.schema.tracking.statements import Statement
from tidemill.tidb.schema.tracking.versions import SchemaSnapshot, TableVersion

Snapshot = Callable[[int], SchemaSnapshot]
"""The schemas just past a ts."""


def divided(event: DdlEvent, router: TableRouter, snapshot: Snapshot) -> Sequence[DdlEvent]:
    """Return what is delivered for a DDL that the router wants: mostly the DDL itself."""
    if event.type == Action.DROP_SCHEMA and router.routes:
        return _dropped(event, router, snapshot(event.ts - 1))
    if router.ddls is not Ddls.STATEMENTS:
        one_by_one = router.ddls is Ddls.MESSAGES and event.steps
        return tuple(_step(event, step) for step in event.steps) if one_by_one else (event,)
    inside, was_inside = router.passes(event.schema, event.table), router.passes(event.pre_schema, event.pre_table)
    if inside == was_inside:
        return (event,)
    if event.type == Action.RENAME_TABLE and event.after is not None and event.before is not None:
        return (_entered(event),) if inside else tuple(_left(event, router))
    if event.type == Action.EXCHANGE_PARTITION:
        return (_emptied(event, partitioned=inside),)
    return (event,)


def _as(event: DdlEvent, kind: Action, name: Name, query: str, **changed: object) -> DdlEvent:
    """Return another DDL in place of an event: of one table, under its names upstream."""
    made = replace(
        event, type=kind, schema=name[0], table=name[1], query=query, reprinted=True, names={},
        statement=Statement(query, event.raw_query, 0, "", ""),
    )  # fmt: skip
    return replace(made, **changed)  # type: ignore[arg-type]


# DROP DATABASE, where other databases have the same target


def _dropped(event: DdlEvent, router: TableRouter, before: SchemaSnapshot) -> Sequence[DdlEvent]:
    """Return the event; where the target holds tables of other databases, the drops of the tables that came from this one."""
    try:
        target = router.routes.schema(event.schema)
    except TableRoutingFailed:
        target = ""
    own = {version.table_id: version for version in before.tables.values() if folded(version.schema) == folded(event.schema)}
    targets = {folded(router.routes.table(*version.name)[0]) for version in own.values() if router.delivers(version)}
    if target and targets <= {folded(target)} and not _is_shared(folded(target), event.schema, router, before):
        return (event,)
    drops = [version for _, version in sorted(own.items()) if router.delivers(version)]
    return tuple(_drop(event, seq, version) for seq, version in enumerate(sorted(drops, key=lambda version: not version.info.is_view)))


def _is_shared(target: str, schema: str, router: TableRouter, before: SchemaSnapshot) -> bool:
    """Whether another database of the upstream, or a table of it, has this target."""
    others = [d.name for d in before.databases.values() if folded(d.name) != folded(schema) and not is_system_schema(d.name)]
    for other in others:
        try:
            if router.passes_schema(other) and folded(router.routes.schema(other)) == target:
                return True
        except TableRoutingFailed:
            pass  # its tables tell
    return any(
        folded(router.routes.table(*version.name)[0]) == target
        for version in before.tables.values()
        if folded(version.schema) != folded(schema) and router.delivers(version)
    )


def _drop(event: DdlEvent, seq: int, version: TableVersion) -> DdlEvent:
    kind, text = (Action.DROP_VIEW, drop_view) if version.info.is_view else (Action.DROP_TABLE, drop_table)
    name = version.name
    return _as(
        event, kind, name, text(name), seq=seq, pre_schema=name[0], pre_table=name[1], table_id=version.table_id, before=version,
        other=version,
    )  # fmt: skip


# RENAME TABLE of several tables, in messages


def _step(event: DdlEvent, step: RenameStep) -> DdlEvent:
    """Return a pair of the statement, as TiCDC sends it. `before` stays the table's version before the statement: no other has rows."""
    return _as(
        event, Action.RENAME_TABLE, step.new, rename_table(step.old, step.new), seq=step.place, pre_schema=step.old[0],
        pre_table=step.old[1], after=event.after and event.after.named(step.new),
    )  # fmt: skip


# Tables that enter or leave the rules, in a database


def _entered(event: DdlEvent) -> DdlEvent:
    """Return the CREATE TABLE of a table that a RENAME brings into the rules: under its old name it is not there."""
    name = event.schema, event.table
    query = f"CREATE TABLE IF NOT EXISTS {qualified(name)} LIKE {qualified((event.pre_schema, event.pre_table))}"
    return _as(event, Action.CREATE_TABLE, name, query, before=None, pre_schema="", pre_table="")


def _left(event: DdlEvent, router: TableRouter) -> Iterator[DdlEvent]:
    """Yield the RENAME of a table that leaves the rules, and before it the database that it goes into, if that is not delivered."""
    new, old = (event.schema, event.table), (event.pre_schema, event.pre_table)
    if not router.passes_schema(event.schema):
        query = f"CREATE DATABASE IF NOT EXISTS {quote_name(event.schema)}"
        yield _as(event, Action.CREATE_SCHEMA, (event.schema, ""), query, before=None, after=None, pre_schema="", pre_table="", table_id=0)
    yield _as(event, Action.RENAME_TABLE, new, rename_table(old, new), seq=event.seq + 1)


def _emptied(event: DdlEvent, *, partitioned: bool) -> DdlEvent:
    """Return what empties the side of an EXCHANGE PARTITION that is delivered: what came in has no change events."""
    if not partitioned:
        name = event.pre_schema, event.pre_table
        return _as(event, Action.TRUNCATE_TABLE, name, f"TRUNCATE TABLE {qualified(name)}", before=event.other, after=event.other)
    name = event.schema, event.table
    try:
        partition = exchanged_partition(event.source.source)
    except DdlSyntaxError:
        return event
    return _as(event, Action.TRUNCATE_TABLE_PARTITION, name, f"ALTER TABLE {qualified(name)} TRUNCATE PARTITION {quote_name(partition)}")
