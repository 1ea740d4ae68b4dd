"""Spark's plan → the plan of a view: `embedded`. It has the steps with one input, and joins; the modules beside have the others. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tidemill.views import types as t
from tidemill.views.plan import Expr, Join, Node, OtherJoin, Plan, Scan, Table, Union, columns_of, ref, with_columns
from tidemill.views.sql.aggregates import Groups
from tidemill.views.sql.expressions import Compiler, Scope
from tidemill.views.sql.keys import Pair, joined_key, plain_places
from tidemill.views.sql.relations import Relation, Steps, attribute_of, beside, conjuncts
from tidemill.views.sql.tree import Fields, Named, NotEmbedded, Tree, short
from tidemill.views.sql.windows import Windows

ORDERLESS = "ORDER BY without LIMIT has no meaning for a view: rows of a table have no order"


def embedded(tree: Tree, tables: Sequence[Table]) -> Plan:
    """Return the embedded engine's plan of what Spark made of a query over these tables. Raises NotEmbedded, saying for which part."""
    planner = _Planner(tree, tables)
    root = planner.query(tree)
    for column in root.node.columns:
        if column.type == t.NULL:
            raise NotEmbedded(f"the column {column.name}, which is only NULL")
    return Plan(tuple(planner.tables), root.node, tuple(planner.windows.notes))


def _scans(tree: Tree) -> list[Tree]:
    return [one for one in tree.every() if one.kind == _SCAN]


def _without_scans(tree: Tree) -> set[int]:
    """The attributes that a plan names, but for the lists of what tables have."""
    if tree.kind == _SCAN:
        return set()
    if tree.kind == "expressions.AttributeReference":
        return {tree.fields["other0"].number}
    found: set[int] = set()
    for value in tree.fields.values():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Tree):
                found |= _without_scans(one)
    return found


class _Planner:
    def __init__(self, tree: Tree, tables: Sequence[Table]) -> None:
        self._whole = {f"spark_catalog.{one.database}.{one.name}".lower(): number for number, one in enumerate(tables)}
        used = _without_scans(tree)
        if tree.kind == _SCAN:
            used = {one.fields["other0"].number for one in tree.many("output")}
        wanted: dict[int, set[str]] = {number: set() for number in range(len(tables))}
        for scan in _scans(tree):
            names = {str(one.fields["name"]).lower() for one in scan.many("output") if one.fields["other0"].number in used}
            wanted[self._number(scan)] |= names
        self.tables = [_narrowed(one, wanted[number]) for number, one in enumerate(tables)]
        self._steps = Steps()
        self.windows = Windows(self._steps)
        self._groups = Groups(self._steps, self.tables)

    def _number(self, scan: Tree) -> int:
        given = scan.fields.get("catalogTable")
        number = self._whole.get(given.name.lower()) if isinstance(given, Named) else None
        if number is None:
            raise NotEmbedded("rows that are not of a table of the log")
        return number

    def query(self, tree: Tree) -> Relation:
        """Plan a step of Spark with what is below it."""
        method = _NODES.get(tree.kind)
        if method is None:
            raise NotEmbedded(f"the step {short(tree)}")
        with Fields(tree) as fields:
            return method(self, fields)

    # ---- steps with one input

    def scan(self, f: Fields) -> Relation:
        number = self._number(f.tree_)
        f.any("catalogTable")
        places = {str(one.fields["name"]).lower(): attribute_of(one)[1] for one in f.trees("output")}
        table = self.tables[number]
        every = tuple(range(len(table.columns)))
        node = Scan(self._steps.number(), table.columns, table.keys or None, table=number, alias=table.name, chosen=every)
        return Relation(node, tuple(places[one.name.lower()] for one in table.columns))

    def through(self, f: Fields) -> Relation:
        f.any("identifier")
        return self.query(f.tree("child"))

    def project(self, f: Fields) -> Relation:
        source = self.query(f.tree("child"))
        return self._steps.shown(source.node, Compiler(source.scope), f.trees("projectList"))

    def filter(self, f: Fields) -> Relation:
        source = self.query(f.tree("child"))
        compiler = Compiler(source.scope)
        conditions = [compiler.condition(one) for one in conjuncts(f.tree("condition"))]
        if not isinstance(source.node, Join):
            return Relation(self._steps.filter(source.node, [one.sql for one in conditions]), source.ids)
        join = source.node
        node = replace(join, conditions=(*join.conditions, *(one.sql for one in conditions)))
        return Relation(node, source.ids)

    def aggregate(self, f: Fields) -> Relation:
        return self._groups.grouped(self.query(f.tree("child")), f.trees("groupingExpressions"), f.trees("aggregateExpressions"))

    def window(self, f: Fields) -> Relation:
        return self.windows.windows(self.query(f.tree("child")), f)

    # ---- orders

    def sort(self, f: Fields) -> Relation:
        f.any("order"), f.any("global")
        if ORDERLESS not in self.windows.notes:
            self.windows.notes.append(ORDERLESS)
        return self.query(f.tree("child"))

    def limited(self, f: Fields) -> Relation:
        """LIMIT and OFFSET over a Sort, between which there may be a Project."""
        limit, offset, inner = None, 0, f.tree_
        while inner.kind in _LIMITS:
            with Fields(inner) as g:
                number = _number_of(g.tree(_LIMITS[inner.kind]))
                if inner.kind == _OFFSET:
                    if offset:
                        raise NotEmbedded("OFFSET of OFFSET")
                    offset = number
                elif offset:
                    raise NotEmbedded("LIMIT below OFFSET")
                else:
                    limit = number if limit is None else min(limit, number)
                inner = g.tree("child")
        for name in f.tree_.fields:
            f.any(name)
        return self._top(inner, limit, offset)

    def _top(self, tree: Tree, limit: int | None, offset: int) -> Relation:
        if tree.kind == _SORT:
            with Fields(tree) as f:
                f.is_("global", True)
                return self.windows.top(self.query(f.tree("child")), f.trees("order"), limit, offset)
        if tree.kind == _PROJECT and _is_sorted(tree):
            with Fields(tree) as f:
                source = self._top(f.tree("child"), limit, offset)
                return self._steps.shown(source.node, Compiler(source.scope), f.trees("projectList"))
        return self.windows.top(self.query(tree), [], limit, offset)

    # ---- steps with several

    def union(self, f: Fields) -> Relation:
        sides = [self.query(one) for one in f.trees("children")]
        first = sides[0]
        columns = []
        for i, column in enumerate(first.node.columns):
            same_ = [one.node.columns[i] for one in sides]
            if any(one.type != column.type for one in same_):
                raise NotEmbedded("UNION of several types")
            columns.append(replace(column, nullable=any(one.nullable for one in same_)))
        node = Union(self._steps.number(), tuple(columns), None, sides=tuple(one.node for one in sides))
        return Relation(node, first.ids)

    def join(self, f: Fields) -> Relation:
        left, right = self.query(f.tree("left")), self.query(f.tree("right"))
        how, condition = short(f.tree("joinType")), f.any("condition")
        with Fields(f.tree("joinType")):
            pass
        match how:
            case "Inner" | "Cross":
                return self._inner(left, right, self._conditions(left, right, condition))
            case "LeftOuter" | "FullOuter" | "LeftSemi" | "LeftAnti":
                kind = {"LeftOuter": "LEFT", "FullOuter": "FULL", "LeftSemi": "SEMI", "LeftAnti": "ANTI"}[how]
                return self._other(kind, left, right, self._conditions(left, right, condition))
            case "RightOuter":
                return self._turned(self._other("LEFT", right, left, self._conditions(right, left, condition)), len(right.node.columns))
        raise NotEmbedded(f"{how} joins")

    def _conditions(self, left: Relation, right: Relation, condition: Tree | None) -> list[tuple[Expr, Pair | None]]:
        """What has to be true of the two sides of a join, and which of it is an equation between them."""
        scope = beside(left, right)
        compiler, found = Compiler(scope), []
        for one in conjuncts(condition):
            value = compiler.condition(one)
            found.append((value, _pair(one, compiler, scope, len(left.node.columns))))
        return found

    def _inner(self, left: Relation, right: Relation, on: list[tuple[Expr, Pair | None]]) -> Relation:
        sides: tuple[Node, ...] = (*(left.node.sides if isinstance(left.node, Join) else (left.node,)), right.node)
        before = left.node.conditions if isinstance(left.node, Join) else ()
        node = Join(
            self._steps.number(),
            (*left.node.columns, *right.node.columns),
            joined_key(left.node, right.node, [pair for _, pair in on if pair is not None]),
            sides=sides,
            conditions=(*before, *(one.sql for one, _ in on)),
        )
        return Relation(node, (*left.ids, *right.ids))

    def _other(self, kind: str, left: Relation, right: Relation, on: list[tuple[Expr, Pair | None]]) -> Relation:
        width = len(left.node.columns)
        pairs = [pair for _, pair in on if pair is not None]
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
            condition=" AND ".join(one.sql for one, _ in on) or "true",
            left_keys=tuple(a for a, _ in pairs),
            right_keys=tuple(b for _, b in pairs),
        )
        return Relation(node, (*left.ids, *right.ids) if kind in ("LEFT", "FULL") else left.ids)

    def _turned(self, found: Relation, width: int) -> Relation:
        """The columns of the right side behind those of the left again."""
        total = len(found.node.columns)
        order = [*range(width, total), *range(width)]
        columns = [found.node.columns[i] for i in order]
        node = self._steps.project(found.node, columns, [Expr(ref(i), one.type) for i, one in zip(order, columns, strict=True)])
        return Relation(node, tuple(found.ids[i] for i in order))


def _pair(tree: Tree, compiler: Compiler, scope: Scope, width: int) -> Pair | None:
    """The two keys of an equation between left and right."""
    if tree.kind not in ("expressions.EqualTo", "expressions.EqualNullSafe"):
        return None
    a, b = compiler.compile(tree.fields["left"]).sql, compiler.compile(tree.fields["right"]).sql
    x, y = columns_of(a), columns_of(b)
    if not x or not y:
        return None
    if min(x) >= width > max(y):
        a, b, x, y = b, a, y, x
    if not max(x) < width <= min(y):
        return None
    return a, with_columns(b, lambda n: ref(n - width))


def _narrowed(table: Table, wanted: set[str]) -> Table:
    """A table with the columns that the query names, and those of its key."""
    kept = [i for i, one in enumerate(table.columns) if one.name.lower() in wanted or i in table.keys] or [0]
    return replace(table, columns=tuple(table.columns[i] for i in kept), keys=tuple(kept.index(i) for i in table.keys))


def _is_sorted(tree: Tree) -> bool:
    while tree.kind == _PROJECT:
        tree = tree.fields["child"]
    return tree.kind == _SORT


def _number_of(tree: Tree) -> int:
    found = tree.fields.get("value")
    if tree.kind != "expressions.Literal" or not isinstance(found, int):
        raise NotEmbedded("LIMIT of what is computed")
    return found


_PROJECT, _SORT, _OFFSET = "plans.logical.Project", "plans.logical.Sort", "plans.logical.Offset"
_SCAN = "org.apache.spark.sql.execution.datasources.LogicalRelation"
_LIMITS = {"plans.logical.GlobalLimit": "limitExpr", "plans.logical.LocalLimit": "limitExpr", _OFFSET: "offsetExpr"}
_NODES: dict[str, Callable[[_Planner, Fields], Relation]] = {
    _SCAN: _Planner.scan,
    "plans.logical.SubqueryAlias": _Planner.through,
    _PROJECT: _Planner.project,
    "plans.logical.Filter": _Planner.filter,
    "plans.logical.Aggregate": _Planner.aggregate,
    "plans.logical.Window": _Planner.window,
    _SORT: _Planner.sort,
    **dict.fromkeys(_LIMITS, _Planner.limited),
    "plans.logical.Union": _Planner.union,
    "plans.logical.Join": _Planner.join,
}
