"""Tables and DDLs under the names that table routing gives them downstream.

Delivery itself, topics, partitions, filters and progress go by the upstream's names. What a message, a file or a statement shows goes
through here.
"""

from __future__ import annotations

from dataclasses import replace

from tidemill.rules.table_routes import TableRoutes, TableRoutingFailed
from tidemill.tidb.ddltext import DdlSyntaxError, FoundNames, RoutedNames, canonical_ddl
from tidemill.tidb.ddltext.cursor import printed_name
from tidemill.tidb.ddltext.synthesized import rename_table
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.visible import short_statement


def routed_version(version: TableVersion, routes: TableRoutes) -> TableVersion:
    """Return a table under the name of its target."""
    return version.named(routes.table(*version.name))


def routed_ddl(event: DdlEvent, routes: TableRoutes) -> DdlEvent:
    """Return a DDL with the names of its targets, in its fields and in its text. A text in which no name changes stays as it is, and so
    does the event then, as in TiCDC.

    Raises TableRoutingFailed for a text that cannot be parsed: it would change other tables than the rows go to.
    """
    query = _routed_query(event, routes)
    if query == event.query:
        return event
    schema, table = routes.table(event.schema, event.table)
    pre_schema, pre_table = routes.table(event.pre_schema, event.pre_table)
    return replace(
        event,
        schema=schema,
        table=table,
        pre_schema=pre_schema,
        pre_table=pre_table,
        query=query,
        before=event.before and routed_version(event.before, routes),
        after=event.after and routed_version(event.after, routes),
        other=event.other and routed_version(event.other, routes),
    )


def _routed_query(event: DdlEvent, routes: TableRoutes) -> str:
    if not event.query.strip():
        return event.query
    found = FoundNames()
    try:
        plain = canonical_ddl(event.query, names=found)
        default = _session_schema(event, found)
        whole = canonical_ddl(event.query, names=RoutedNames(default, lambda schema, table: (schema, table), lambda schema: schema, found))
        made = canonical_ddl(event.query, names=RoutedNames(default, routes.table, routes.schema, found))
    except DdlSyntaxError as error:
        raise TableRoutingFailed(
            f"a DDL at {event.ts} cannot be written with the names of table routing: {error}: {short_statement(event.query)}",
            hint="Run by hand downstream what stands for it and leave it out by an event filter (ignore-sql), then resume the changefeed.",
        ) from None
    if not plain and found.first is not None:  # ALTER TABLE of which nothing is left to say is sent with the name alone
        name = event.schema, event.table
        made, whole = f"ALTER TABLE {printed_name(routes.table(*name))}", f"ALTER TABLE {printed_name(name)}"
    if made == whole:
        return event.query
    if event.type == Action.RENAME_TABLE and event.pre_table and plain.startswith("RENAME "):
        # The upstream's own names of a rename are known, whatever database its session was in.
        return rename_table(routes.table(event.pre_schema, event.pre_table), routes.table(event.schema, event.table))
    return made


def _session_schema(event: DdlEvent, found: FoundNames) -> str:
    """Return the schema of names that are written without one. A table that is renamed into another schema was in its old one."""
    if event.pre_schema and found.first is not None and not found.first[0]:
        return event.pre_schema
    return event.schema
