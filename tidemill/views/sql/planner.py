"""A query → a plan: `plan_of`. This module has the query as a whole; its parts are in the modules beside. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify

from tidemill.views import types as t
from tidemill.views.expressions import Compiler, Scope
from tidemill.views.plan import Column, Node, Plan, Table, Union
from tidemill.views.refusal import refuse
from tidemill.views.sql.groups import Groups
from tidemill.views.sql.parse import check_names, hint_of, parsed, tables_of, told, with_semi_joins_apart
from tidemill.views.sql.relations import Relation, Steps, named
from tidemill.views.sql.sources import Sources
from tidemill.views.sql.windows import Windows, bare, order_of

Find = Callable[[str, str], Table | None]


def plan_of(sql: str, find: Find, database: str = "") -> Plan:
    """Return the plan of a query. Raises ViewRefused."""
    tree = parsed(sql)
    tables: dict[tuple[str, str], Table] = {}
    for db, name in tables_of(sql, database):
        table = find(db, name)
        if table is None:
            raise refuse(f"the log has no table {db}.{name}")
        tables[db.lower(), name.lower()] = table
    schema: dict[str, Any] = {}
    for (db, name), table in tables.items():
        schema.setdefault(db, {})[name] = {one.name.lower(): t.spark_type(one.type) for one in table.columns}
    apart = with_semi_joins_apart(tree.copy(), tables)
    try:
        whole = qualify(apart, schema=schema, db=database.lower() or None, dialect="spark", identify=False, quote_identifiers=False)
    except SqlglotError as error:
        raise refuse(f"the query cannot be resolved: {told(error)}", hint_of(error, tables)) from None
    check_names(tree, whole)
    used = {one.name.lower() for one in whole.find_all(exp.Column)}
    planner = _Planner({name: _read(table, used) for name, table in tables.items()})
    root = planner.query(whole, {})
    return Plan(tuple(planner.tables.values()), root.node, tuple(planner.windows.notes))


def _read(table: Table, used: set[str]) -> Table:
    """A table with the columns that the query names, and those of its key."""
    kept = [i for i, one in enumerate(table.columns) if one.name.lower() in used or i in table.keys] or [0]
    return replace(table, columns=tuple(table.columns[i] for i in kept), keys=tuple(kept.index(i) for i in table.keys))


class _Planner:
    def __init__(self, tables: Mapping[tuple[str, str], Table]) -> None:
        self.tables, self._steps = dict(tables), Steps()
        self.windows = Windows(self._steps)
        self._groups = Groups(self._steps, tuple(tables.values()))
        self._sources = Sources(self._steps, self.tables, self.query)

    def query(self, e: exp.Expr, ctes: Mapping[str, exp.Expr]) -> Relation:
        """Plan a SELECT, or several with UNION between."""
        ctes = {**ctes, **self._ctes(e)}
        if isinstance(e, exp.Subquery):
            return self.query(e.this, ctes)
        if isinstance(e, exp.Union):
            return self.windows.limited(self._union(e, ctes), e)
        if isinstance(e, exp.Select):
            return self._select(e, ctes)
        raise refuse(f"views do not have {type(e).__name__.upper()}", "There are SELECT, UNION and UNION ALL.")

    def _ctes(self, e: exp.Expr) -> dict[str, exp.Expr]:
        given = e.args.get("with_") or e.args.get("with")
        if given is None:
            return {}
        if given.args.get("recursive"):
            raise refuse("views have no recursive queries")
        return {one.alias.lower(): one.this for one in given.expressions}

    def _union(self, e: exp.Union, ctes: Mapping[str, exp.Expr]) -> Relation:
        sides = [self.query(e.left, ctes), self.query(e.right, ctes)]
        widths = {len(one.node.columns) for one in sides}
        if len(widths) > 1 or e.args.get("by_name"):
            raise refuse("the sides of a UNION have different columns")
        columns = tuple(
            Column(a.name, t.common_type([a.type, b.type], f"UNION, column {a.name}"), a.nullable or b.nullable)
            for a, b in zip(*(one.node.columns for one in sides), strict=True)
        )
        cast = tuple(self._steps.cast(one.node, columns) for one in sides)
        node: Node = Union(self._steps.number(), columns, None, sides=cast)
        if e.args.get("distinct", True):
            node = self._steps.distinct(node)
        return named(node, "")

    def _select(self, e: exp.Select, ctes: Mapping[str, exp.Expr]) -> Relation:
        for name in ("laterals", "pivots", "sort", "cluster", "distribute", "sample", "connect", "match", "qualify"):
            if e.args.get(name):
                raise refuse(f"views do not have {name.upper()}")
        source = self._sources.read(e, ctes)
        source = self._sources.chosen(source, e, ctes)
        shown = list(e.expressions)
        order = order_of(e)
        scope, node = self._groups.grouped(source, e, [*shown, *(one.this for one in order)])
        node, scope = self.windows.windows(node, scope, [*shown, *(one.this for one in order)])
        if e.args.get("having"):
            node, scope = self.windows.windows(node, scope, [e.args["having"].this])
            node = self._steps.filter(node, [Compiler(scope).condition(e.args["having"].this).sql])
        return self._shown(node, scope, e, shown, order)

    def _shown(self, node: Node, scope: Scope, e: exp.Select, shown: list[exp.Expr], order: list[exp.Ordered]) -> Relation:
        compiler = Compiler(replace(scope, columns=node.columns))
        values = [compiler.compile(one.this if isinstance(one, exp.Alias) else one) for one in shown]
        columns = [Column(one.alias_or_name, v.type, v.nullable) for one, v in zip(shown, values, strict=True)]
        for column in columns:
            if column.type == t.NULL:
                raise refuse(f"column {column.name} is only NULL", "Give it a type with CAST.")
        names = {one.name.lower() for one in columns}
        extra = [compiler.compile(one.this) for one in order if not (isinstance(one.this, exp.Column) and bare(one.this, names))]
        if extra and e.args.get("distinct"):
            raise refuse("with DISTINCT, ORDER BY is by columns of the SELECT")
        every = [*columns, *(Column(f"_order{i}", one.type, one.nullable) for i, one in enumerate(extra))]
        result: Node = self._steps.project(node, every, [*values, *extra])
        if e.args.get("distinct"):
            if e.args["distinct"].args.get("on"):
                raise refuse("views do not have DISTINCT ON")
            result = self._steps.distinct(result)
        if order or e.args.get("limit") or e.args.get("offset"):
            places, more = [], itertools.count(len(columns))
            for one in order:
                own = isinstance(one.this, exp.Column) and bare(one.this, names)
                places.append([c.name.lower() for c in columns].index(one.this.name.lower()) if own else next(more))
            result = self.windows.top(result, e, order, places, len(columns))
        return named(result, "")
