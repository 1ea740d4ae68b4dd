"""What can be said about a query before it is planned: whether it is one SELECT, its tables, the names of its columns. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidemill.extras import extra
from tidemill.rules.names import did_you_mean
from tidemill.views.plan import Table
from tidemill.views.refusal import refuse

with extra("views"):
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

_TRY_CAST = re.compile(r"\btry_cast\s*\(", re.IGNORECASE)
_TAKEN = {"_row_key", "_weight", "__tidemill_op"}


def tables_of(sql: str, database: str = "") -> list[tuple[str, str]]:
    """Return the tables that a query names, in order. Raises ViewRefused."""
    tree = parsed(sql)
    ctes = {one.alias_or_name.lower() for one in tree.find_all(exp.CTE)}
    found: list[tuple[str, str]] = []
    for table in tree.find_all(exp.Table):
        if not table.db and table.name.lower() in ctes:
            continue
        if table.catalog:
            raise refuse(f"{table.sql('spark')}: a table is named DATABASE.TABLE")
        if not (table.db or database):
            raise refuse(f"table {table.name} has no database", "Write DATABASE.TABLE, or give --database.")
        found.append((table.db or database, table.name))
    if not found:
        raise refuse("the query reads no table")
    return list(dict.fromkeys(found))


def parsed(sql: str) -> exp.Expr:
    """Return a query as a tree. Raises ViewRefused for anything but one SELECT."""
    try:
        found = [one for one in sqlglot.parse(sql, dialect="spark") if one is not None]
    except SqlglotError as error:
        raise refuse(f"the query cannot be read: {told(error)}") from None
    if _TRY_CAST.search(sql):
        raise refuse("views do not have try_cast")  # sqlglot does not tell it from CAST
    if len(found) != 1 or not isinstance(found[0], exp.Query):
        raise refuse("a view is one SELECT")
    return found[0]


def told(error: SqlglotError) -> str:
    """Return what sqlglot says is wrong."""
    details = getattr(error, "errors", None)
    if details:
        one = details[0]
        return f"{one['description']} at line {one['line']}, column {one['col']}, near {one['highlight']!r}"
    return str(error).splitlines()[0]


def hint_of(error: SqlglotError, tables: Mapping[tuple[str, str], Table]) -> str:
    """Return the nearest name to one that sqlglot does not find; empty without one."""
    known = sorted({one.name for table in tables.values() for one in table.columns})
    word = str(error).split("'")[1] if "'" in str(error) else ""
    return did_you_mean(word, known).lstrip("; ,").strip() if word else ""


def check_names(tree: exp.Expr, whole: exp.Expr) -> None:
    """Columns that are computed have a name; names are different."""
    assert isinstance(tree, exp.Query)
    assert isinstance(whole, exp.Query)
    for one in tree.selects:
        if not one.alias and not isinstance(one, exp.Column | exp.Star) and not one.is_star:
            raise refuse(f"column {one.sql('spark')} has no name", "Write AS and a name behind it.")
    names = [one.alias_or_name.lower() for one in whole.selects]
    for name in names:
        if name in _TAKEN:
            raise refuse(f"a view cannot have a column {name}", "Name it otherwise, with AS.")
        if names.count(name) > 1:
            raise refuse(f"two columns are called {name}", "Name one of them otherwise, with AS.")


def with_semi_joins_apart(tree: exp.Expr, tables: Mapping[tuple[str, str], Table]) -> exp.Expr:
    """Rename sources of SEMI and ANTI joins that are called as a column is. Returns the tree, which it changes.

    sqlglot takes `a.b` of such a join for the field b of a column a, if there is a column a. Only the join's condition sees the source.
    """
    taken = {one.name.lower() for table in tables.values() for one in table.columns}
    taken |= {one.alias.lower() for one in tree.find_all(exp.Alias)}
    for join in tree.find_all(exp.Join):
        name, on = join.alias_or_name, join.args.get("on")
        if str(join.args.get("kind")).upper() not in ("SEMI", "ANTI") or name.lower() not in taken or on is None:
            continue
        other = name
        while other.lower() in taken:
            other += "_"
        taken.add(other.lower())
        join.this.set("alias", exp.TableAlias(this=exp.to_identifier(other)))
        for column in on.find_all(exp.Column):
            if column.table.lower() == name.lower():
                column.set("table", exp.to_identifier(other))
    return tree
