"""Tables and DDLs under the names that they have downstream: those of the catalogue, or the targets of table routing.

Delivery itself, topics, partitions, filters and progress go by the upstream's names. What a message, a file or a statement shows goes
through here.
"""

from __future__ import annotations

from dataclasses import replace

from tidemill.rules.table_routes import TableRoutes, TableRoutingFailed
from tidemill.tidb.ddltext import EXACT, TICDC, DdlSyntaxError, Dialect, FoundNames, RoutedNames
from tidemill.tidb.ddltext.cursor import printed_name
from tidemill.tidb.ddltext.synthesized import rename_table
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.events import DdlEvent, Name
from tidemill.tidb.schema.tracking.named import session_schema
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.visible import short_statement


def routed_version(version: TableVersion, routes: TableRoutes) -> TableVersion:
    """Return a table under the name of its target."""
    return version.named(routes.table(*version.name))


def routed_ddl(event: DdlEvent, routes: TableRoutes) -> DdlEvent:
    """Return a DDL with the names of its targets, in its fields and in its text, which is TiCDC's. A text in which no name changes stays as
    it is, and so does the event then, as in TiCDC.

    Raises TableRoutingFailed for a text that cannot be parsed: it would change other tables than the rows go to.
    """
    if not event.query.strip():
        return event
    try:
        query = _Texts(event, routes, TICDC).routed()
    except DdlSyntaxError as error:
        raise _failed(event, error) from None
    return event if query == event.query else _under_targets(event, routes, query)


def database_ddl(event: DdlEvent, routes: TableRoutes) -> DdlEvent:
    """Return a DDL as a database is to run it: all names as the catalogue or table routing has them and with their schemas, strings and
    functions so that every server reads what TiDB read.

    A text that cannot be parsed stays as it is. With routes it raises TableRoutingFailed.
    """
    if not event.query.strip():
        return event
    try:
        query = _Texts(event, routes, EXACT).whole()
    except DdlSyntaxError as error:
        if routes:
            raise _failed(event, error) from None
        return event
    return _under_targets(event, routes, query)


def _under_targets(event: DdlEvent, routes: TableRoutes, query: str) -> DdlEvent:
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


def _failed(event: DdlEvent, error: DdlSyntaxError) -> TableRoutingFailed:
    return TableRoutingFailed(
        f"a DDL at {event.ts} cannot be written with the names of table routing: {error}: {short_statement(event.query)}",
        hint="Run by hand downstream what stands for it and leave it out by an event filter (ignore-sql), then resume the changefeed.",
    )


class _Texts:
    """The texts of one statement, printed with names of the catalogue and of the routes. Raises DdlSyntaxError."""

    def __init__(self, event: DdlEvent, routes: TableRoutes, dialect: Dialect) -> None:
        self._event, self._routes, self._dialect = event, routes, dialect
        self._found = FoundNames()
        self.plain = event.source.printed(self._found)
        self._default = session_schema(self._found, event.schema, event.pre_schema)
        self._own = (event.schema, event.table), (event.pre_schema, event.pre_table)

    def _known(self, schema: str, table: str) -> Name:
        """Return a table's name as the catalogue has it."""
        name = schema, table
        same = (own for own in self._own if own[1] and (own[0].lower(), own[1].lower()) == (schema.lower(), table.lower()))
        return self._event.names.get(name) or next(same, name)

    def _known_schema(self, schema: str) -> str:
        return self._event.names.get((schema, ""), (schema, ""))[0]

    def _printed(self, names: RoutedNames) -> str:
        return self._event.source.printed(names, self._dialect)

    def whole(self) -> str:
        """Return the statement with the names of the targets."""
        event, routes = self._event, self._routes
        if event.type == Action.RENAME_TABLE and event.pre_table and self.plain.startswith("RENAME "):
            # The upstream's own names of a rename are known, whatever database its session was in.
            return rename_table(routes.table(event.pre_schema, event.pre_table), routes.table(event.schema, event.table))
        names = RoutedNames(
            self._default,
            lambda schema, table: routes.table(*self._known(schema, table)),
            lambda schema: routes.schema(self._known_schema(schema)),
            self._found,
        )
        return self._printed(names)

    def routed(self) -> str:
        """Return the statement with the names of the targets, or as it is sent without routes where these change none."""
        event, routes = self._event, self._routes
        unchanged = RoutedNames(self._default, self._known, self._known_schema, self._found)
        before, made = self._printed(unchanged), self.whole()
        if not self.plain and self._found.first is not None:  # ALTER TABLE of which nothing is left to say is sent with the name alone
            name = event.schema, event.table
            made, before = f"ALTER TABLE {printed_name(routes.table(*name))}", f"ALTER TABLE {printed_name(name)}"
        if event.type == Action.RENAME_TABLE and event.pre_table and self.plain.startswith("RENAME "):
            before = rename_table((event.pre_schema, event.pre_table), (event.schema, event.table))
        return event.query if made == before else made
