"""The tables and schemas that a statement names, as the catalogue has them.

TiDB takes a name in any letter case; databases that keep names as they are written do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from tidemill.tidb.ddltext import FoundNames
from tidemill.tidb.names import folded, folded_table
from tidemill.tidb.schema.model import DBInfo
from tidemill.tidb.schema.tracking.statements import Statement
from tidemill.tidb.schema.tracking.versions import TableVersion

Name = tuple[str, str]
"""Schema and table. An empty table stands for the schema."""


class Known(Protocol):
    """A catalogue, or a state of it."""

    @property
    def databases(self) -> Mapping[int, DBInfo]:
        """By id."""

    @property
    def tables(self) -> Mapping[int, TableVersion]:
        """By id."""


def session_schema(found: FoundNames, schema: str, pre_schema: str) -> str:
    """Return the schema of names that are written without one: the session's, which a job does not tell.

    It is taken to be the schema of the DDL's table. A table that is renamed into another schema was in its old one.
    """
    return pre_schema if pre_schema and found.first is not None and not found.first[0] else schema


def read_statement(statement: Statement) -> tuple[str, FoundNames]:
    """Return the text of a statement as TiDB prints it, and the names in it. Raises DdlSyntaxError."""
    found = FoundNames()
    return statement.printed(found), found


def catalogue_names(
    found: FoundNames, schemas: tuple[str, str], own: Iterable[Name], snapshots: Callable[[], Iterable[Known]]
) -> dict[Name, Name]:
    """Return the names found in a statement that the catalogue has in other letters.

    `schemas`: of the DDL's table, after and before it. `own`: the tables that the DDL is about. `snapshots`: the catalogue around it, for
    the names of others.
    """
    default = session_schema(found, *schemas)
    written = {(schema or default, table) for schema, table in found.tables} | {(schema or default, "") for schema in found.schemas}
    known = {folded_table(name): name for name in own}
    known |= {(schema, ""): (name[0], "") for (schema, _), name in known.items()}
    if any(folded_table(name) not in known for name in written):
        for snapshot in snapshots():
            wanted = {folded_table(name) for name in written} - known.keys()
            known |= _named(snapshot, wanted)
    exact = {name: known.get(folded_table(name)) or _in_schema(name, known) for name in written}
    return {name: to for name, to in exact.items() if to != name}


def _in_schema(name: Name, known: dict[Name, Name]) -> Name:
    """Return a name whose table is not known with its schema as it is known."""
    return known.get((folded(name[0]), ""), name)[0], name[1]


def _named(snapshot: Known, wanted: set[Name]) -> dict[Name, Name]:
    found = {}
    schemas = {schema for schema, _ in wanted}
    for database in snapshot.databases.values():
        if folded(database.name) in schemas:
            found[folded(database.name), ""] = database.name, ""
    for version in snapshot.tables.values():
        if folded(version.schema) in schemas and (key := folded_table(version.name)) in wanted:
            found[key] = version.name
    return found
