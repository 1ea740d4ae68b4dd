"""The names that a statement is printed with: those that it has, or others."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.tidb.sql.errors import DdlSyntaxError

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

    def common_table(self, name: str) -> None:
        """Take down the name of a table that WITH defines."""


class FoundNames(Names):
    """Takes down what a statement calls its tables and schemas. Names stay as they are written."""

    def __init__(self) -> None:
        self.first: Name | None = None  # the first table of the statement
        self.tables: set[Name] = set()
        self.schemas: set[str] = set()  # of a DDL of a schema
        self.unaliased: set[Name] = set()
        self.aliases: dict[str, set[str]] = {}  # by lower case, as they are defined; and names that WITH defined
        self.common: dict[str, str] = {}  # what WITH defined, by lower case

    def table(self, name: Name) -> Name:
        """Take the name down."""
        self.first = self.first or name
        self.tables.add(name)
        self.unaliased.add(name)
        return name

    def schema(self, schema: str) -> str:
        """Take the name down."""
        self.schemas.add(schema)
        return schema

    def source(self, name: Name, alias: str, *, common: bool) -> Name:
        """Take down how the query may refer to the table."""
        if alias or common:
            called = alias or self.common.get(name[1].lower(), name[1])
            self.aliases.setdefault(called.lower(), set()).add(called)
        else:
            self.unaliased.add(name)
        if not common:
            self.tables.add(name)
        return name

    def common_table(self, name: str) -> None:
        """Take the name down."""
        self.common[name.lower()] = name


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
        """Return the target of a table; a common table has the name that WITH gives it."""
        return (name[0], self._found.common.get(name[1].lower(), name[1])) if common else self.table(name)

    def qualifier(self, name: Name) -> Name:
        """Return the target of the table in FROM that is meant, or its alias in the letters that define it."""
        schema, table = name
        if schema:
            return self.table(name)
        meant = {self.table(one) for one in self._found.unaliased if one[1].lower() == table.lower()}
        renamed = {target for target in meant if target[1] != table}
        aliases = self._found.aliases.get(table.lower(), set())
        if not renamed:
            return ("", next(iter(aliases))) if len(aliases) == 1 and not meant else name
        if len(meant) > 1 or aliases:
            raise DdlSyntaxError(f"cannot tell which table {table!r} is, and one of them has another name downstream", 0)
        return "", renamed.pop()[1]
