"""Table routing: `target-schema` and `target-table` of a dispatcher give tables other names downstream.

Matchers, filters, topics and partitions go by the upstream's names. The first dispatcher that has a target and whose matcher lets the table
in counts. A DDL of a schema goes to the one target that all matching dispatchers agree on. The rules are those of TiCDC's table routing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemill.errors import ConfigError, TidemillError
from tidemill.rules.table_filter import TableFilter

SCHEMA, TABLE = "{schema}", "{table}"
_TEXT = re.compile(r"(?:[^{}]|\{schema\}|\{table\})*")


class InvalidTableRoutingRule(ConfigError):
    """A target has braces that are not a placeholder."""

    code = "TM:ErrInvalidTableRoutingRule"


class TableRouteConflict(ConfigError):
    """Two tables of a changefeed have the same target."""

    code = "TM:ErrTableRouteConflict"


class TableRoutingFailed(TidemillError):
    """A DDL cannot be written with the names of its targets."""

    code = "TM:ErrTableRoutingFailed"


def check_target(text: str, where: str) -> None:
    """Check a target; `where`: its place in the configuration. Raises InvalidTableRoutingRule."""
    if not _TEXT.fullmatch(text):
        raise InvalidTableRoutingRule(f"{where} = {text!r}: expected a name with {SCHEMA} and {TABLE} in it or not, and no other braces")


@dataclass(frozen=True, slots=True)
class TableRoute:
    """One dispatcher with a target: at least one of the two expressions. An empty expression keeps the upstream's name."""

    matcher: TableFilter
    target_schema: str = ""
    target_table: str = ""
    path: str = ""  # of the dispatcher in the configuration, for errors


class TableRoutes:
    """The routes of a changefeed. Without any, names stay as they are."""

    def __init__(self, routes: Sequence[TableRoute] = ()) -> None:
        self._routes = tuple(routes)

    def __bool__(self) -> bool:
        return bool(self._routes)

    def table(self, schema: str, table: str) -> tuple[str, str]:
        """Return schema and name that a table has downstream. An empty table stands for the schema, see `schema`."""
        if not schema:
            return schema, table
        if not table:
            return self.schema(schema), ""
        route = next((one for one in self._routes if one.matcher.matches(schema, table)), None)
        if route is None:
            return schema, table
        return _filled(route.target_schema, schema, table) or schema, _filled(route.target_table, schema, table) or table

    def schema(self, schema: str) -> str:
        """Return the schema's name downstream, for DDLs of the schema itself. Raises TableRoutingFailed if routes disagree."""
        targets = {
            _filled(route.target_schema, schema, "") or schema: route.path for route in self._routes if route.matcher.matches_schema(schema)
        }
        if len(targets) > 1:
            raise TableRoutingFailed(
                f"a DDL of schema {schema} has no single target: "
                + ", ".join(f"{path or 'a route'} says {target}" for target, path in targets.items()),
                hint="Let all dispatchers of the schema have one target-schema, or leave DDLs of the schema out by an event filter "
                "and make the schemas downstream by hand.",
            )
        return next(iter(targets), schema)


def _filled(expression: str, schema: str, table: str) -> str:
    """Return the name that an expression stands for. Names that look like placeholders are not filled again."""
    values: Mapping[str, str] = {SCHEMA: schema, TABLE: table}
    return re.sub(r"\{schema\}|\{table\}", lambda found: values[found[0]], expression)
