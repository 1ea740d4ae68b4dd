"""The names that a statement is printed with: those that it has, or others."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.tidb.ddltext.errors import DdlSyntaxError

Name = tuple[str, str]
"""Schema (empty: not written) and table."""


class Names:
    """Names as they are written."""

    def table(self, name: Name) -> Name:
        """Return a table's name."""
        return name

    def schema(self, schema: str) -> str:
        """Return the name of a schema in a DDL of the schema itself; empty if the statement has none."""
        return schema

    def qualifier(self, name: Name) -> Name:
        """Return what stands before a column's name: a table or its alias."""
        return name

    def source(self, name: Name, alias: str, *, common: bool) -> Name:
        """Return the name of a table in FROM. `alias`: what the query calls it, if anything. `common`: WITH defined it."""
        return name


class FoundNames(Names):
    """Takes down what the queries of a statement call their tables. Names stay as they are written."""

    def __init__(self) -> None:
        self.first: Name | None = None  # the first table of the statement
        self.unaliased: set[Name] = set()
        self.aliases: set[str] = set()  # in lower case; and names that WITH defined

    def table(self, name: Name) -> Name:
        """Take the name down."""
        self.first = self.first or name
        self.unaliased.add(name)
        return name

    def source(self, name: Name, alias: str, *, common: bool) -> Name:
        """Take down how the query may refer to the table."""
        if alias or common:
            self.aliases.add((alias or name[1]).lower())
        else:
            self.unaliased.add(name)
        return name


class RoutedNames(Names):
    """Other names. All tables are written with their schema.

    A column's qualifier follows the table that it names. DdlSyntaxError is raised where it may name either a table that has another name
    now, or something else of the same name.
    """

    def __init__(self, default: str, route: Callable[[str, str], Name], route_schema: Callable[[str], str], found: FoundNames) -> None:
        """`default`: the schema of names without one."""
        self._default, self._route, self._route_schema, self._found = default, route, route_schema, found

    def table(self, name: Name) -> Name:
        """Return the target."""
        return self._route(name[0] or self._default, name[1])

    def schema(self, schema: str) -> str:
        """Return the target, of the default schema if there is no name."""
        return self._route_schema(schema or self._default)

    def source(self, name: Name, alias: str, *, common: bool) -> Name:
        """Return the target of a table; common tables keep their name."""
        return name if common else self.table(name)

    def qualifier(self, name: Name) -> Name:
        """Return the target of the table in FROM that is meant."""
        schema, table = name
        if schema:
            return self.table(name)
        meant = {self.table(one) for one in self._found.unaliased if one[1].lower() == table.lower()}
        renamed = {target for target in meant if target[1] != table}
        if not renamed:
            return name
        if len(meant) > 1 or table.lower() in self._found.aliases:
            raise DdlSyntaxError(f"cannot tell which table {table!r} is, and one of them has another name downstream", 0)
        return "", renamed.pop()[1]
