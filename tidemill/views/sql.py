"""A SELECT in Spark's words → the plan of a view. Pure. sqlglot parses it and resolves its names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify

from tidemill.rules.names import did_you_mean
from tidemill.views import types as t
from tidemill.views.expressions import Compiler, Scope, cast_to
from tidemill.views.plan import (
    Aggregate,
    Aggregation,
    Column,
    Expr,
    Filter,
    Join,
    Key,
    Node,
    OtherJoin,
    Plan,
    Project,
    Recomputed,
    Scan,
    Table,
    Union,
    columns_of,
    ref,
    with_columns,
)
from tidemill.views.refusal import refuse

Find = Callable[[str, str], Table | None]
"""Returns a captured table with all of its columns, by database and name in any case."""

_AGGREGATES: dict[type[exp.Expr], str] = {
    exp.Sum: "sum",
    exp.Count: "count",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.CountIf: "count_if",
}
_TRY_CAST = re.compile(r"\btry_cast\s*\(", re.IGNORECASE)
_TAKEN = {"_row_key", "_weight", "__tidemill_op"}
_RANKS: dict[type[exp.Expr], str] = {exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank"}


@dataclass(frozen=True)
class _Relation:
    """Rows of a query: a node, and by which names its columns are called."""

    node: Node
    places: Mapping[tuple[str, str], int]

    @property
    def scope(self) -> Scope:
        return Scope(self.node.columns, self.places)


def tables_of(sql: str, database: str = "") -> list[tuple[str, str]]:
    """Return the tables that a query names, in order. Raises ViewRefused."""
    tree = _parse(sql)
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


def _parse(sql: str) -> exp.Expr:
    try:
        found = [one for one in sqlglot.parse(sql, dialect="spark") if one is not None]
    except SqlglotError as error:
        raise refuse(f"the query cannot be read: {_told(error)}") from None
    if _TRY_CAST.search(sql):
        raise refuse("views do not have try_cast")  # sqlglot does not tell it from CAST
    if len(found) != 1 or not isinstance(found[0], exp.Query):
        raise refuse("a view is one SELECT")
    return found[0]


def _told(error: SqlglotError) -> str:
    details = getattr(error, "errors", None)
    if details:
        one = details[0]
        return f"{one['description']} at line {one['line']}, column {one['col']}, near {one['highlight']!r}"
    return str(error).splitlines()[0]


def plan_of(sql: str, find: Find, database: str = "") -> Plan:
    """Return the plan of a query. Raises ViewRefused."""
    tree = _parse(sql)
    tables: dict[tuple[str, str], Table] = {}
    for db, name in tables_of(sql, database):
        table = find(db, name)
        if table is None:
            raise refuse(f"the log has no table {db}.{name}")
        tables[db.lower(), name.lower()] = table
    schema: dict[str, Any] = {}
    for (db, name), table in tables.items():
        schema.setdefault(db, {})[name] = {one.name.lower(): t.spark_type(one.type) for one in table.columns}
    try:
        whole = qualify(tree.copy(), schema=schema, db=database.lower() or None, dialect="spark", identify=False, quote_identifiers=False)
    except SqlglotError as error:
        raise refuse(f"the query cannot be resolved: {_told(error)}", _hint_of(error, tables)) from None
    _check_names(tree, whole)
    used = {one.name.lower() for one in whole.find_all(exp.Column)}
    planner = _Planner({name: _read(table, used) for name, table in tables.items()})
    root = planner.query(whole, {}, top=True)
    return Plan(tuple(planner.tables.values()), root.node, tuple(planner.notes))


def _read(table: Table, used: set[str]) -> Table:
    """A table with the columns that the query names, and those of its key."""
    kept = [i for i, one in enumerate(table.columns) if one.name.lower() in used or i in table.keys] or [0]
    return replace(table, columns=tuple(table.columns[i] for i in kept), keys=tuple(kept.index(i) for i in table.keys))


def _hint_of(error: SqlglotError, tables: Mapping[tuple[str, str], Table]) -> str:
    known = sorted({one.name for table in tables.values() for one in table.columns})
    word = str(error).split("'")[1] if "'" in str(error) else ""
    return did_you_mean(word, known).lstrip("; ,").strip() if word else ""


def _check_names(tree: exp.Expr, whole: exp.Expr) -> None:
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


class _Planner:
    def __init__(self, tables: Mapping[tuple[str, str], Table]) -> None:
        self.tables = dict(tables)
        self._read = tuple(tables.values())
        self._order = {name: number for number, name in enumerate(tables)}
        self._numbers = itertools.count()
        self.notes: list[str] = []

    def _number(self) -> int:
        return next(self._numbers)

    # ---- queries

    def query(self, e: exp.Expr, ctes: Mapping[str, exp.Expr], *, top: bool = False) -> _Relation:
        """Plan a SELECT, or several with UNION between."""
        ctes = {**ctes, **self._ctes(e)}
        if isinstance(e, exp.Subquery):
            return self.query(e.this, ctes)
        if isinstance(e, exp.Union):
            return self._limited(self._union(e, ctes), e)
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

    def _union(self, e: exp.Union, ctes: Mapping[str, exp.Expr]) -> _Relation:
        sides = [self.query(e.left, ctes), self.query(e.right, ctes)]
        widths = {len(one.node.columns) for one in sides}
        if len(widths) > 1 or e.args.get("by_name"):
            raise refuse("the sides of a UNION have different columns")
        columns = tuple(
            Column(a.name, t.common_type([a.type, b.type], f"UNION, column {a.name}"), a.nullable or b.nullable)
            for a, b in zip(*(one.node.columns for one in sides), strict=True)
        )
        cast = tuple(self._cast(one.node, columns) for one in sides)
        node: Node = Union(self._number(), columns, None, sides=cast)
        if e.args.get("distinct", True):
            node = self._distinct(node)
        return _named(node, "")

    def _cast(self, node: Node, columns: Sequence[Column]) -> Node:
        if all(a.type == b.type for a, b in zip(node.columns, columns, strict=True)):
            return node
        values = [cast_to(Expr(ref(i), one.type), columns[i].type).sql for i, one in enumerate(node.columns)]
        return Project(self._number(), tuple(columns), None, input=node, values=tuple(values))

    def _distinct(self, node: Node) -> Node:
        every = tuple(range(len(node.columns)))
        return Aggregate(self._number(), node.columns, every, input=node, keys=len(every), aggregates=())

    def _select(self, e: exp.Select, ctes: Mapping[str, exp.Expr]) -> _Relation:
        for name in ("laterals", "pivots", "sort", "cluster", "distribute", "sample", "connect", "match", "qualify"):
            if e.args.get(name):
                raise refuse(f"views do not have {name.upper()}")
        source = self._from(e, ctes)
        source = self._where(source, e, ctes)
        shown = list(e.expressions)
        order = _order_of(e)
        scope, node = self._grouped(source, e, [*shown, *(one.this for one in order)])
        node, scope = self._windows(node, scope, [*shown, *(one.this for one in order)])
        if e.args.get("having"):
            node, scope = self._windows(node, scope, [e.args["having"].this])
            node = self._filter(node, [Compiler(scope).condition(e.args["having"].this).sql])
        return self._shown(node, scope, e, shown, order)

    def _shown(self, node: Node, scope: Scope, e: exp.Select, shown: list[exp.Expr], order: list[exp.Ordered]) -> _Relation:
        compiler = Compiler(replace(scope, columns=node.columns))
        values = [compiler.compile(one.this if isinstance(one, exp.Alias) else one) for one in shown]
        columns = [Column(one.alias_or_name, v.type, v.nullable) for one, v in zip(shown, values, strict=True)]
        for column in columns:
            if column.type == t.NULL:
                raise refuse(f"column {column.name} is only NULL", "Give it a type with CAST.")
        names = {one.name.lower() for one in columns}
        extra = [compiler.compile(one.this) for one in order if not (isinstance(one.this, exp.Column) and _bare(one.this, names))]
        if extra and e.args.get("distinct"):
            raise refuse("with DISTINCT, ORDER BY is by columns of the SELECT")
        every = [*columns, *(Column(f"_order{i}", one.type, one.nullable) for i, one in enumerate(extra))]
        result: Node = self._project(node, every, [*values, *extra])
        if e.args.get("distinct"):
            if e.args["distinct"].args.get("on"):
                raise refuse("views do not have DISTINCT ON")
            result = self._distinct(result)
        if order or e.args.get("limit") or e.args.get("offset"):
            places, more = [], itertools.count(len(columns))
            for one in order:
                own = isinstance(one.this, exp.Column) and _bare(one.this, names)
                places.append([c.name.lower() for c in columns].index(one.this.name.lower()) if own else next(more))
            result = self._top(result, e, order, places, len(columns))
        return _named(result, "")

    def _project(self, node: Node, columns: Sequence[Column], values: Sequence[Expr]) -> Node:
        kept = {next(iter(columns_of(v.sql))): i for i, v in reversed(list(enumerate(values))) if v.sql.strip("()") in _plain_refs(v.sql)}
        key: Key = None
        if node.key is not None and all(one in kept for one in node.key):
            key = tuple(kept[one] for one in node.key)
        return Project(self._number(), tuple(columns), key, input=node, values=tuple(v.sql for v in values))

    # ---- FROM

    def _from(self, e: exp.Select, ctes: Mapping[str, exp.Expr]) -> _Relation:
        given = e.args.get("from_") or e.args.get("from")
        if given is None:
            raise refuse("a SELECT of a view has FROM")
        found = self._source(given.this, ctes)
        for join in e.args.get("joins") or ():
            found = self._join(found, join, ctes)
        return found

    def _source(self, e: exp.Expr, ctes: Mapping[str, exp.Expr]) -> _Relation:
        if isinstance(e, exp.Subquery):
            return _named(self.query(e.this, ctes).node, e.alias)
        if not isinstance(e, exp.Table) or e.args.get("pivots") or e.args.get("sample"):
            raise refuse(f"{e.sql('spark')}: FROM has tables and subqueries in views")
        nested = e.args.get("joins") or ()
        if not e.db and e.name.lower() in ctes:
            inner = {name: query for name, query in ctes.items() if name != e.name.lower()}
            found = _named(self.query(ctes[e.name.lower()], inner).node, e.alias_or_name)
        else:
            found = self._scan(e)
        for join in nested:
            found = self._join(found, join, ctes)
        return found

    def _scan(self, e: exp.Table) -> _Relation:
        name = (e.db.lower(), e.name.lower())
        table = self.tables[name]
        every = tuple(range(len(table.columns)))
        node = Scan(self._number(), table.columns, table.keys or None, table=self._order[name], alias=e.alias_or_name, chosen=every)
        return _named(node, e.alias_or_name)

    def _join(self, left: _Relation, e: exp.Join, ctes: Mapping[str, exp.Expr]) -> _Relation:
        right = self._source(e.this, ctes)
        kind = " ".join(word.upper() for word in (e.args.get("side"), e.args.get("kind")) if word)
        if e.args.get("method") or e.args.get("global_"):
            raise refuse(f"{e.sql('spark')}: views do not have such a join")
        if e.args.get("using"):
            raise refuse(f"{e.sql('spark')}: write ON for USING")
        both = _beside(left, right)
        on = [Compiler(both.scope).condition(one) for one in _conjuncts(e.args.get("on"))]
        match kind.replace("OUTER", "").strip():
            case "" | "INNER" | "CROSS":
                return self._inner(left, right, both, [one.sql for one in on])
            case "LEFT" | "FULL" as outer:
                return self._other(outer, left, right, both, on)
            case "RIGHT":
                return self._turned(
                    self._other("LEFT", right, left, _beside(right, left), self._on(right, left, e)), len(right.node.columns)
                )
            case "LEFT SEMI" | "SEMI":
                return self._other("SEMI", left, right, both, on)
            case "LEFT ANTI" | "ANTI":
                return self._other("ANTI", left, right, both, on)
        raise refuse(f"views do not have {kind} JOIN")

    def _on(self, left: _Relation, right: _Relation, e: exp.Join) -> list[Expr]:
        return [Compiler(_beside(left, right).scope).condition(one) for one in _conjuncts(e.args.get("on"))]

    def _turned(self, found: _Relation, width: int) -> _Relation:
        """The columns of the right side behind those of the left again."""
        total = len(found.node.columns)
        order = [*range(width, total), *range(width)]
        at = {old: new for new, old in enumerate(order)}
        node = self._project(found.node, [found.node.columns[i] for i in order], [Expr(ref(i), found.node.columns[i].type) for i in order])
        return _Relation(node, {name: at[place] for name, place in found.places.items()})

    def _inner(self, left: _Relation, right: _Relation, both: _Relation, conditions: list[str]) -> _Relation:
        sides: tuple[Node, ...] = (*(left.node.sides if isinstance(left.node, Join) else (left.node,)), right.node)
        before = left.node.conditions if isinstance(left.node, Join) else ()
        node = Join(
            self._number(),
            both.node.columns,
            _joined_key(left.node, right.node, conditions),
            sides=sides,
            conditions=(*before, *conditions),
        )
        return _Relation(node, both.places)

    def _other(self, kind: str, left: _Relation, right: _Relation, both: _Relation, on: list[Expr]) -> _Relation:
        width = len(left.node.columns)
        pairs = [pair for one in on if (pair := _equal_sides(one.sql, width)) is not None]
        columns = list(left.node.columns)
        if kind == "FULL":
            columns = [replace(one, nullable=True) for one in columns]
        if kind in ("LEFT", "FULL"):
            columns += [replace(one, nullable=True) for one in right.node.columns]
        key = left.node.key
        if kind in ("LEFT", "FULL"):
            right_key = tuple(width + one for one in right.node.key) if right.node.key is not None else None
            unique = right.node.key is not None and set(right.node.key) <= _plain_places([b for _, b in pairs])
            if kind == "FULL" or not unique:
                key = (*key, *right_key) if key is not None and right_key is not None else None
        node = OtherJoin(
            self._number(),
            tuple(columns),
            key,
            kind=kind,
            left=left.node,
            right=right.node,
            condition=" AND ".join(one.sql for one in on) or "true",
            left_keys=tuple(a for a, _ in pairs),
            right_keys=tuple(b for _, b in pairs),
        )
        return _Relation(node, both.places if kind in ("LEFT", "FULL") else left.places)

    # ---- WHERE

    def _filter(self, node: Node, conditions: list[str]) -> Node:
        if not conditions:
            return node
        return Filter(self._number(), node.columns, node.key, input=node, condition=" AND ".join(conditions))

    def _where(self, source: _Relation, e: exp.Select, ctes: Mapping[str, exp.Expr]) -> _Relation:
        where = e.args.get("where")
        if where is None:
            return source
        simple: list[exp.Expr] = []
        for one in _conjuncts(where.this):
            found = self._subquery(source, one, ctes)
            if found is None:
                simple.append(one)
            else:
                source = found
        conditions = [Compiler(source.scope).condition(one).sql for one in simple]
        if isinstance(source.node, Join):
            node: Node = replace(source.node, conditions=(*source.node.conditions, *conditions))
        else:
            node = self._filter(source.node, conditions)
        return _Relation(node, source.places)

    def _subquery(self, source: _Relation, e: exp.Expr, ctes: Mapping[str, exp.Expr]) -> _Relation | None:
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

    def _in(self, source: _Relation, e: exp.In, ctes: Mapping[str, exp.Expr], *, negative: bool) -> _Relation:
        query = e.args["query"]
        right = _named(self.query(query.this if isinstance(query, exp.Subquery) else query, ctes).node, "")
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
        return self._other("ANTI" if negative else "SEMI", source, right, _beside(source, right), [on])

    def _exists(self, source: _Relation, e: exp.Exists, ctes: Mapping[str, exp.Expr], *, negative: bool) -> _Relation:
        query = e.this
        while isinstance(query, exp.Subquery | exp.Paren):
            query = query.this
        if not isinstance(query, exp.Select) or query.args.get("group") or query.args.get("limit") or query.args.get("having"):
            raise refuse(f"{e.sql('spark')}: the subquery of EXISTS is a simple SELECT in views")
        right = self._from(query, ctes)
        where = query.args.get("where")
        both = _beside(source, right)
        on = [Compiler(both.scope).condition(one) for one in _conjuncts(where.this if where is not None else None)]
        return self._other("ANTI" if negative else "SEMI", source, right, both, on)

    # ---- GROUP BY

    def _grouped(self, source: _Relation, e: exp.Select, shown: list[exp.Expr]) -> tuple[Scope, Node]:
        group = e.args.get("group")
        having = [e.args["having"].this] if e.args.get("having") else []
        calls = list(dict.fromkeys(one for root in (*shown, *having) for one in _calls(root)))
        if group is None and not calls and not having:
            return source.scope, source.node
        if group is not None and any(group.args.get(name) for name in ("grouping_sets", "cube", "rollup", "all", "totals")):
            raise refuse("views do not have GROUPING SETS, CUBE, ROLLUP and GROUP BY ALL", "Name the columns.")
        compiler = Compiler(source.scope)
        keys = [] if group is None else list(group.expressions)
        values = [compiler.compile(one) for one in keys]
        columns = [Column(one.alias_or_name or f"_key{i}", v.type, v.nullable) for i, (one, v) in enumerate(zip(keys, values, strict=True))]
        aggregates, outputs = [], []
        for call in calls:
            one, argument = self._call(compiler, call)
            if argument is not None:
                same = next((i for i, v in enumerate(values) if i >= len(keys) and v.sql == argument.sql), None)
                place = len(values) if same is None else same
                if same is None:
                    values.append(argument)
                    columns.append(Column(f"_value{place}", argument.type, argument.nullable))
                one = replace(one, argument=place)
            aggregates.append(one)
            outputs.append(Column(call.sql("spark"), one.type, one.function != "count"))
        below = self._project(source.node, columns, values)
        node = Aggregate(
            self._number(),
            (*columns[: len(keys)], *outputs),
            self._group_key(below, len(keys)),
            input=below,
            keys=len(keys),
            aggregates=tuple(aggregates),
        )
        known = {one.sql("spark"): i for i, one in enumerate([*keys, *calls])}
        places = {(one.table.lower(), one.name.lower()): i for i, one in enumerate(keys) if isinstance(one, exp.Column)}
        return Scope(node.columns, places, known), node

    def _group_key(self, below: Node, width: int) -> tuple[int, ...]:
        """The columns of a group that tell groups apart: those that a table's key determines, which is there too, are not needed."""
        found = {place: origin for place in range(width) if (origin := origin_of(below, place)) is not None}
        by_scan: dict[int, set[int]] = {}
        for scan, column in found.values():
            by_scan.setdefault(scan.number, set()).add(column)
        needed = []
        for place in range(width):
            origin = found.get(place)
            if origin is None:
                needed.append(place)
                continue
            scan, column = origin
            keys = self._read[scan.table].keys
            if not keys or column in keys or not set(keys) <= by_scan[scan.number]:
                needed.append(place)
        return tuple(needed)

    def _call(self, compiler: Compiler, call: exp.Expr) -> tuple[Aggregation, Expr | None]:
        condition = None
        inner = call
        if isinstance(inner, exp.Filter):
            condition, inner = compiler.condition(inner.expression.this), inner.this
        name = _AGGREGATES.get(type(inner))
        if name is None:
            raise refuse(
                f"{call.sql('spark')} is not an aggregate that views have", "There are sum, count, avg, min, max, bool_and, bool_or."
            )
        argument, distinct = self._argument(compiler, inner)
        if name == "count_if":
            assert argument is not None
            argument, name = Expr(f"(CASE WHEN {argument.sql} THEN 1 END)", t.INT), "count"
        if condition is not None:
            value = Expr("1", t.INT) if argument is None else argument
            argument = Expr(f"(CASE WHEN {condition.sql} THEN {value.sql} END)", value.type)
        if argument is None:
            return Aggregation("count", None, False, t.LONG, t.LONG), None
        kind = self._result(name, argument, call)
        return Aggregation(name, 0, distinct and name not in ("min", "max"), kind, argument.type), argument

    def _argument(self, compiler: Compiler, inner: exp.Expr) -> tuple[Expr | None, bool]:
        given = inner.this
        if isinstance(given, exp.Star):
            return None, False
        distinct = isinstance(given, exp.Distinct)
        several = list(given.expressions) if distinct else [given, *(inner.expressions or ())]
        values = [compiler.compile(one) for one in several]
        if len(values) == 1:
            one = values[0]
            return (cast_to(one, t.INT) if one.type == t.NULL else one), distinct
        null = " OR ".join(f"{one.sql} IS NULL" for one in values)
        text = " || ".join(_told_apart(one) for one in values)
        return Expr(f"(CASE WHEN {null} THEN NULL ELSE {text} END)", t.STRING), distinct

    def _result(self, name: str, argument: Expr, call: exp.Expr) -> pa.DataType:
        if name in ("sum", "avg") and not t.is_number(argument.type):
            raise refuse(f"{call.sql('spark')}: {t.spark_type(argument.type)} is not a number", "Use CAST.")
        if name in ("bool_and", "bool_or") and argument.type != t.BOOLEAN:
            raise refuse(f"{call.sql('spark')} is for conditions")
        match name:
            case "sum":
                return t.sum_type(argument.type)
            case "avg":
                return t.average_type(argument.type)
            case "count":
                return t.LONG
        return argument.type

    # ---- windows and ORDER BY

    def _windows(self, node: Node, scope: Scope, shown: list[exp.Expr]) -> tuple[Node, Scope]:
        found = list(dict.fromkeys(one for root in shown for one in root.find_all(exp.Window)))
        for window in found:
            if window.sql("spark") not in scope.known:
                node, scope = self._window(node, scope, window)
        return node, scope

    def _window(self, node: Node, scope: Scope, e: exp.Window) -> tuple[Node, Scope]:
        compiler = Compiler(scope)
        keys = tuple(compiler.compile(one).sql for one in e.args.get("partition_by") or ())
        order = e.args.get("order")
        sorts = [self._sort(compiler.compile(one.this).sql, one) for one in (order.expressions if order is not None else ())]
        call, kind, nullable = self._window_call(compiler, e.this, ordered=bool(sorts))
        width = len(node.columns)
        if e.args.get("spec") is not None:
            raise refuse(f"{e.sql('spark')}: views do not have ROWS and RANGE")
        # Rows that ORDER BY does not tell apart come in the order of all their columns, so that the same rows always give the same result.
        ties = [f"{ref(i)} NULLS FIRST" for i in range(width)] if isinstance(e.this, exp.RowNumber | exp.Lag | exp.Lead) else []
        partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
        ordering = f"ORDER BY {', '.join([*sorts, *ties])}" if sorts or ties else ""
        text = f"CAST({call} OVER ({partition}{ordering}) AS {t.engine_type(kind)})"
        columns = (*node.columns, Column(e.sql("spark"), kind, nullable))
        listed = ", ".join(f"{ref(i)} AS c{i}" for i in range(width))
        sql = f"SELECT {listed}, {text} AS c{width} FROM input"
        what = f"window {e.sql('spark')}"
        result = Recomputed(self._number(), columns, node.key, input=node, keys=keys, sql=sql, what=what)
        return result, Scope(result.columns, scope.places, {**scope.known, e.sql("spark"): width})

    def _window_call(self, compiler: Compiler, e: exp.Expr, *, ordered: bool) -> tuple[str, pa.DataType, bool]:
        rank = _RANKS.get(type(e))
        if rank is not None:
            if not ordered:
                raise refuse(f"{e.sql('spark')} needs ORDER BY")
            return f"{rank}()", t.INT, False
        if isinstance(e, exp.Lag | exp.Lead):
            one, offset = compiler.compile(e.this), e.args.get("offset")
            if e.args.get("default") is not None or (offset is not None and not isinstance(offset, exp.Literal)):
                raise refuse(f"{e.sql('spark')}: lag and lead take a column and a number")
            return f"{'lag' if isinstance(e, exp.Lag) else 'lead'}({one.sql}, {offset.name if offset is not None else 1})", one.type, True
        name = _AGGREGATES.get(type(e))
        if name in ("sum", "count", "min", "max"):
            argument, distinct = self._argument(compiler, e)
            if distinct or (argument is not None and t.is_float(argument.type) and name == "sum"):
                raise refuse(f"{e.sql('spark')}: not as a window, with DISTINCT or over floats")
            if argument is None:
                return "count(*)", t.LONG, False
            return f"{name}({argument.sql})", self._result(name, argument, e), name != "count"
        raise refuse(
            f"{e.sql('spark')} is not a window function that views have",
            "There are row_number, rank, dense_rank, lag, lead, sum, count, min, max.",
        )

    def _sort(self, sql: str, e: exp.Ordered) -> str:
        descending = bool(e.args.get("desc"))
        nulls_first = e.args.get("nulls_first")
        first = not descending if nulls_first is None else bool(nulls_first)
        return f"{sql} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"

    def _top(self, node: Node, e: exp.Expr, order: list[exp.Ordered], places: list[int], width: int) -> Node:
        limit, offset = _whole(e.args.get("limit")), _whole(e.args.get("offset"))
        if limit is None and offset is None:
            self.notes.append("ORDER BY without LIMIT has no meaning for a view: rows of a table have no order")
            return self._narrowed(node, width)
        sorts = [self._sort(ref(place), one) for place, one in zip(places, order, strict=True)]
        ties = [f"{ref(i)} NULLS FIRST" for i in range(len(node.columns))]
        listed = ", ".join(f"{ref(i)} AS c{i}" for i in range(len(node.columns)))
        count = f" LIMIT {limit}" if limit is not None else ""
        sql = f"SELECT {listed} FROM input ORDER BY {', '.join([*sorts, *ties])}{count} OFFSET {offset or 0}"
        what = f"ORDER BY with LIMIT {limit}" if limit is not None else f"OFFSET {offset}"
        found = Recomputed(self._number(), node.columns, node.key, input=node, keys=(), sql=sql, what=what)
        return self._narrowed(found, width)

    def _narrowed(self, node: Node, width: int) -> Node:
        if len(node.columns) == width:
            return node
        return self._project(node, node.columns[:width], [Expr(ref(i), one.type) for i, one in enumerate(node.columns[:width])])

    def _limited(self, found: _Relation, e: exp.Union) -> _Relation:
        """ORDER BY and LIMIT behind a UNION."""
        order = _order_of(e)
        if not order and not e.args.get("limit") and not e.args.get("offset"):
            return found
        names = [one.name.lower() for one in found.node.columns]
        for one in order:
            if not isinstance(one.this, exp.Column) or one.this.name.lower() not in names:
                raise refuse(f"{one.sql('spark')}: behind a UNION, ORDER BY is by names of its columns")
        places = [names.index(one.this.name.lower()) for one in order]
        return _named(self._top(found.node, e, order, places, len(names)), "")


def _named(node: Node, alias: str) -> _Relation:
    return _Relation(node, {(alias.lower(), one.name.lower()): i for i, one in enumerate(node.columns)})


@dataclass(frozen=True, slots=True)
class _Beside(Node):
    """The columns of two sides, for names only."""

    empty: tuple[()] = field(default=())


def _beside(left: _Relation, right: _Relation) -> _Relation:
    width = len(left.node.columns)
    places = {**left.places, **{name: width + at for name, at in right.places.items()}}
    return _Relation(_Beside(-1, (*left.node.columns, *right.node.columns), None), places)


def _conjuncts(e: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield the conditions that AND joins."""
    if e is None:
        return
    if isinstance(e, exp.And):
        yield from _conjuncts(e.left)
        yield from _conjuncts(e.right)
    elif isinstance(e, exp.Paren):
        yield from _conjuncts(e.this)
    else:
        yield e


def _order_of(e: exp.Expr) -> list[exp.Ordered]:
    order = e.args.get("order")
    return list(order.expressions) if order is not None else []


def _bare(e: exp.Column, names: set[str]) -> bool:
    """Whether ORDER BY names a column of the SELECT."""
    return not e.table and e.name.lower() in names


def _whole(e: exp.Expr | None) -> int | None:
    if e is None:
        return None
    if not isinstance(e.expression, exp.Literal) or not e.expression.name.isdecimal():
        raise refuse(f"{e.sql('spark')}: a number is needed")
    return int(e.expression.name)


def _calls(e: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the aggregates of an expression, with their FILTER; those that are window functions are others."""
    if isinstance(e, exp.Window):
        for one in (*(e.this.args.values()), *(e.args.get("partition_by") or ()), e.args.get("order")):
            if isinstance(one, exp.Expr):
                yield from _calls(one)
        return
    if isinstance(e, exp.Filter) or (isinstance(e, exp.AggFunc) and type(e) in _AGGREGATES):
        yield e
        return
    if isinstance(e, exp.Query):
        return
    for one in e.iter_expressions():
        yield from _calls(one)


def _told_apart(one: Expr) -> str:
    return f"(length(CAST({one.sql} AS VARCHAR)) || ':' || CAST({one.sql} AS VARCHAR))"


def _plain_refs(sql: str) -> set[str]:
    return {ref(one) for one in columns_of(sql)}


def _plain_places(keys: Sequence[str]) -> set[int]:
    """The columns among keys that are nothing but a column."""
    return {next(iter(columns_of(one))) for one in keys if one.strip("()") in _plain_refs(one)}


def _split_equation(sql: str) -> tuple[str, str] | None:
    """The sides of `(a = b)`, where each side is a column or a cast of one."""
    if not (sql.startswith("(") and sql.endswith(")")):
        return None
    a, equals, b = sql[1:-1].partition(" = ")
    if not equals or " = " in b or len(columns_of(a)) != 1 or len(columns_of(b)) != 1:
        return None
    for side in (a, b):
        if side.count("(") != side.count(")"):
            return None
    return a, b


def _equal_sides(sql: str, width: int) -> tuple[str, str] | None:
    """The two keys of an equation between left and right, each over the columns of its side."""
    found = _split_equation(sql)
    if found is None:
        return None
    a, b = found
    (x,), (y,) = columns_of(a), columns_of(b)
    if x >= width > y:
        a, b, x, y = b, a, y, x
    if not x < width <= y:
        return None
    return a, with_columns(b, lambda n: ref(n - width))


def origin_of(node: Node, place: int) -> tuple[Scan, int] | None:
    """Return the table's column that a column of a node is, with the scan that read it; None for one that is computed."""
    match node:
        case Scan():
            return node, node.chosen[place]
        case Filter():
            return origin_of(node.input, place)
        case Project():
            sql = node.values[place]
            return origin_of(node.input, next(iter(columns_of(sql)))) if sql.strip("()") in _plain_refs(sql) else None
        case Join():
            for side in node.sides:
                if place < len(side.columns):
                    return origin_of(side, place)
                place -= len(side.columns)
        case OtherJoin():
            width = len(node.left.columns)
            return origin_of(node.left, place) if place < width else origin_of(node.right, place - width)
    return None


def _joined_key(left: Node, right: Node, conditions: Sequence[str]) -> Key:
    """The key of an inner join: both keys, or one side's where each of its rows meets at most one row of the other."""
    width = len(left.columns)
    pairs = [pair for one in conditions if (pair := _equal_sides(one, width)) is not None]
    if left.key is None or right.key is None:
        return None
    if set(right.key) <= _plain_places([b for _, b in pairs]):
        return left.key
    moved = tuple(width + one for one in right.key)
    if set(left.key) <= _plain_places([a for a, _ in pairs]):
        return moved
    return (*left.key, *moved)
