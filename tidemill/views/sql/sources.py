"""FROM, joins and WHERE of a SELECT. Subqueries of IN and EXISTS become joins. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from sqlglot import exp

from tidemill.views import types as t
from tidemill.views.expressions import Compiler, cast_to
from tidemill.views.plan import Expr, Join, Node, OtherJoin, Scan, Table, ref
from tidemill.views.refusal import refuse
from tidemill.views.sql.keys import equal_sides, joined_key, plain_places
from tidemill.views.sql.relations import Relation, Steps, beside, conjuncts, named


class Query(Protocol):
    """Plans a query that is part of another."""

    def __call__(self, e: exp.Expr, ctes: Mapping[str, exp.Expr]) -> Relation: ...


class Sources:
    """Plans what a SELECT reads. Raises ViewRefused."""

    def __init__(self, steps: Steps, tables: Mapping[tuple[str, str], Table], query: Query) -> None:
        self._steps, self._tables, self._query = steps, tables, query
        self._order = {name: number for number, name in enumerate(tables)}

    def read(self, e: exp.Select, ctes: Mapping[str, exp.Expr]) -> Relation:
        """Return the rows of FROM."""
        given = e.args.get("from_") or e.args.get("from")
        if given is None:
            raise refuse("a SELECT of a view has FROM")
        found = self._source(given.this, ctes)
        for join in e.args.get("joins") or ():
            found = self._join(found, join, ctes)
        return found

    def _source(self, e: exp.Expr, ctes: Mapping[str, exp.Expr]) -> Relation:
        if isinstance(e, exp.Subquery):
            return named(self._query(e.this, ctes).node, e.alias)
        if not isinstance(e, exp.Table) or e.args.get("pivots") or e.args.get("sample"):
            raise refuse(f"{e.sql('spark')}: FROM has tables and subqueries in views")
        nested = e.args.get("joins") or ()
        if not e.db and e.name.lower() in ctes:
            inner = {name: query for name, query in ctes.items() if name != e.name.lower()}
            found = named(self._query(ctes[e.name.lower()], inner).node, e.alias_or_name)
        else:
            found = self._scan(e)
        for join in nested:
            found = self._join(found, join, ctes)
        return found

    def _scan(self, e: exp.Table) -> Relation:
        name = (e.db.lower(), e.name.lower())
        table = self._tables[name]
        every = tuple(range(len(table.columns)))
        node = Scan(self._steps.number(), table.columns, table.keys or None, table=self._order[name], alias=e.alias_or_name, chosen=every)
        return named(node, e.alias_or_name)

    def _join(self, left: Relation, e: exp.Join, ctes: Mapping[str, exp.Expr]) -> Relation:
        right = self._source(e.this, ctes)
        kind = " ".join(word.upper() for word in (e.args.get("side"), e.args.get("kind")) if word)
        if e.args.get("method") or e.args.get("global_"):
            raise refuse(f"{e.sql('spark')}: views do not have such a join")
        if e.args.get("using"):
            raise refuse(f"{e.sql('spark')}: write ON for USING")
        both = beside(left, right)
        on = _conditions(both, e.args.get("on"))
        match kind.replace("OUTER", "").strip():
            case "" | "INNER" | "CROSS":
                return self._inner(left, right, both, [one.sql for one in on])
            case "LEFT" | "FULL" as outer:
                return self._other(outer, left, right, both, on)
            case "RIGHT":
                turned = beside(right, left)
                found = self._other("LEFT", right, left, turned, _conditions(turned, e.args.get("on")))
                return self._turned(found, len(right.node.columns))
            case "LEFT SEMI" | "SEMI":
                return self._other("SEMI", left, right, both, on)
            case "LEFT ANTI" | "ANTI":
                return self._other("ANTI", left, right, both, on)
        raise refuse(f"views do not have {kind} JOIN")

    def _turned(self, found: Relation, width: int) -> Relation:
        """The columns of the right side behind those of the left again."""
        total = len(found.node.columns)
        order = [*range(width, total), *range(width)]
        at = {old: new for new, old in enumerate(order)}
        node = self._steps.project(
            found.node, [found.node.columns[i] for i in order], [Expr(ref(i), found.node.columns[i].type) for i in order]
        )
        return Relation(node, {name: at[place] for name, place in found.places.items()})

    def _inner(self, left: Relation, right: Relation, both: Relation, conditions: list[str]) -> Relation:
        sides: tuple[Node, ...] = (*(left.node.sides if isinstance(left.node, Join) else (left.node,)), right.node)
        before = left.node.conditions if isinstance(left.node, Join) else ()
        node = Join(
            self._steps.number(),
            both.node.columns,
            joined_key(left.node, right.node, conditions),
            sides=sides,
            conditions=(*before, *conditions),
        )
        return Relation(node, both.places)

    def _other(self, kind: str, left: Relation, right: Relation, both: Relation, on: list[Expr]) -> Relation:
        width = len(left.node.columns)
        pairs = [pair for one in on if (pair := equal_sides(one.sql, width)) is not None]
        columns = list(left.node.columns)
        if kind == "FULL":
            columns = [replace(one, nullable=True) for one in columns]
        if kind in ("LEFT", "FULL"):
            columns += [replace(one, nullable=True) for one in right.node.columns]
        key = left.node.key
        if kind in ("LEFT", "FULL"):
            right_key = tuple(width + one for one in right.node.key) if right.node.key is not None else None
            unique = right.node.key is not None and set(right.node.key) <= plain_places([b for _, b in pairs])
            if kind == "FULL" or not unique:
                key = (*key, *right_key) if key is not None and right_key is not None else None
        node = OtherJoin(
            self._steps.number(),
            tuple(columns),
            key,
            kind=kind,
            left=left.node,
            right=right.node,
            condition=" AND ".join(one.sql for one in on) or "true",
            left_keys=tuple(a for a, _ in pairs),
            right_keys=tuple(b for _, b in pairs),
        )
        return Relation(node, both.places if kind in ("LEFT", "FULL") else left.places)

    def chosen(self, source: Relation, e: exp.Select, ctes: Mapping[str, exp.Expr]) -> Relation:
        """Return the rows that WHERE leaves."""
        where = e.args.get("where")
        if where is None:
            return source
        simple: list[exp.Expr] = []
        for one in conjuncts(where.this):
            found = self._subquery(source, one, ctes)
            if found is None:
                simple.append(one)
            else:
                source = found
        conditions = [Compiler(source.scope).condition(one).sql for one in simple]
        if isinstance(source.node, Join):
            node: Node = replace(source.node, conditions=(*source.node.conditions, *conditions))
        else:
            node = self._steps.filter(source.node, conditions)
        return Relation(node, source.places)

    def _subquery(self, source: Relation, e: exp.Expr, ctes: Mapping[str, exp.Expr]) -> Relation | None:
        """IN, EXISTS and their opposites as joins; None for a condition without a subquery."""
        if not list(e.find_all(exp.Query)):
            return None
        inner = e.this if isinstance(e, exp.Not) else e
        while isinstance(inner, exp.Paren):
            inner = inner.this
        negative = isinstance(e, exp.Not)
        if isinstance(inner, exp.In) and inner.args.get("query") is not None:
            return self._in(source, inner, ctes, negative=negative)
        if isinstance(inner, exp.Exists):
            return self._exists(source, inner, ctes, negative=negative)
        raise refuse(f"{e.sql('spark')}: of subqueries in WHERE, views have IN, EXISTS and their NOT", "Write the subquery as a join.")

    def _in(self, source: Relation, e: exp.In, ctes: Mapping[str, exp.Expr], *, negative: bool) -> Relation:
        query = e.args["query"]
        right = named(self._query(query.this if isinstance(query, exp.Subquery) else query, ctes).node, "")
        if len(right.node.columns) != 1:
            raise refuse(f"{e.sql('spark')}: the subquery of IN has one column")
        width = len(source.node.columns)
        left = Compiler(source.scope).compile(e.this)
        column = right.node.columns[0]
        if negative and (left.nullable or column.nullable):
            raise refuse(
                f"{e.sql('spark')}: NOT IN needs columns that are NOT NULL on both sides",
                "NOT EXISTS with an equation says what is mostly meant.",
            )
        kind = t.common_type([left.type, column.type], e.sql("spark"))
        on = Expr(f"({cast_to(left, kind).sql} = {cast_to(Expr(ref(width), column.type), kind).sql})", t.BOOLEAN)
        return self._other("ANTI" if negative else "SEMI", source, right, beside(source, right), [on])

    def _exists(self, source: Relation, e: exp.Exists, ctes: Mapping[str, exp.Expr], *, negative: bool) -> Relation:
        query = e.this
        while isinstance(query, exp.Subquery | exp.Paren):
            query = query.this
        if not isinstance(query, exp.Select) or query.args.get("group") or query.args.get("limit") or query.args.get("having"):
            raise refuse(f"{e.sql('spark')}: the subquery of EXISTS is a simple SELECT in views")
        right = self.read(query, ctes)
        where = query.args.get("where")
        both = beside(source, right)
        on = _conditions(both, where.this if where is not None else None)
        return self._other("ANTI" if negative else "SEMI", source, right, both, on)


def _conditions(both: Relation, e: exp.Expr | None) -> list[Expr]:
    """What has to be true of the two sides of a join."""
    return [Compiler(both.scope).condition(one) for one in conjuncts(e)]
