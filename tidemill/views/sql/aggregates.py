"""GROUP BY and aggregates, as Spark resolved them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tidemill.views import types as t
from tidemill.views.plan import Aggregate, Aggregation, Column, Expr, Node, Table, with_columns
from tidemill.views.sql.expressions import Compiler, Scope, is_ansi, type_of
from tidemill.views.sql.keys import origin_of
from tidemill.views.sql.relations import Relation, Steps
from tidemill.views.sql.tree import Fields, NotEmbedded, Tree, same, short

CALL = "expressions.aggregate.AggregateExpression"
_NAMES = {f"expressions.aggregate.{name}": word for name, word in (("Sum", "sum"), ("Average", "avg"), ("Min", "min"), ("Max", "max"))}
_COUNT = "expressions.aggregate.Count"


def calls_in(tree: Tree) -> Iterator[Tree]:
    """Yield the aggregates of an expression."""
    if tree.kind == CALL:
        yield tree
        return
    for value in tree.fields.values():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Tree):
                yield from calls_in(one)


def call_of(compiler: Compiler, call: Tree) -> tuple[Aggregation, Expr | None]:
    """Return an aggregate, and the value that it is of; without one for count(*)."""
    with Fields(call) as f:
        f.is_("mode", "Complete")
        distinct, given, inner = bool(f.any("isDistinct")), f.any("filter"), f.tree("aggregateFunction")
    condition = compiler.condition(given) if given is not None else None
    name, argument = function_of(compiler, inner)
    if condition is not None:
        value = Expr("1", t.INT, False) if argument is None else argument
        argument = Expr(f"(CASE WHEN {condition.sql} THEN {value.sql} END)", value.type)
    if argument is None:
        if distinct:
            argument = Expr("CAST(1 AS INTEGER)", t.INT, False)
        else:
            return Aggregation("count", None, False, t.LONG, t.LONG), None
    return Aggregation(name, 0, distinct and name not in ("min", "max"), type_of(call.type), argument.type), argument


def function_of(compiler: Compiler, inner: Tree) -> tuple[str, Expr | None]:
    """Return the word for an aggregate function, and its argument; None for count(*), and for count of what is never NULL."""
    with Fields(inner) as f:
        if inner.kind == _COUNT:
            values = [compiler.compile(one) for one in f.trees("children")]
            if len(values) == 1:
                plain = values[0].sql == "CAST(1 AS INTEGER)"
                return "count", None if plain else _typed(values[0])
            if any(t.is_float(one.type) or (one.type not in _TOLD and not t.is_number(one.type)) for one in values):
                raise NotEmbedded("count of several columns of other types than integers, decimals, text, dates")
            null = " OR ".join(f"{one.sql} IS NULL" for one in values)
            text = " || ".join(f"(length(CAST({one.sql} AS VARCHAR)) || ':' || CAST({one.sql} AS VARCHAR))" for one in values)
            return "count", Expr(f"(CASE WHEN {null} THEN NULL ELSE {text} END)", t.STRING)
        name = _NAMES.get(inner.kind)
        if name is None:
            raise NotEmbedded(f"the aggregate {short(inner)}")
        for context in ("evalContext", "evalMode"):
            if context in inner.fields and not is_ansi(f.any(context)):
                raise NotEmbedded(f"try_{name}")
        argument = _typed(compiler.compile(f.tree("child")))
    if name in ("sum", "avg"):
        wanted = t.sum_type(argument.type) if name == "sum" else t.average_type(argument.type)
        if not t.is_number(argument.type) or wanted != type_of(inner.type):
            raise NotEmbedded(f"{name} of {t.spark_type(argument.type)}")
    elif argument.type not in _TOLD and not t.is_number(argument.type):
        raise NotEmbedded(f"{name} of {t.spark_type(argument.type)}")
    return name, argument


def _typed(one: Expr) -> Expr:
    if one.type == t.NULL:
        raise NotEmbedded("an aggregate of NULL")
    return one


_TOLD = {t.STRING, t.DATE, t.DATETIME, t.MOMENT, t.BOOLEAN}


class Groups:
    """Plans Spark's Aggregate."""

    def __init__(self, steps: Steps, tables: Sequence[Table]) -> None:
        self._steps, self._read = steps, tables

    def grouped(self, source: Relation, keys: list[Tree], shown: list[Tree]) -> Relation:
        """Return the columns that Aggregate shows."""
        calls: dict[Any, Tree] = {same(one): one for tree in shown for one in calls_in(tree)}
        compiler = Compiler(source.scope)
        values = [_grouped_by(compiler.compile(one)) for one in keys]
        names = [str(one.fields.get("name") or f"_key{i}") for i, one in enumerate(keys)]
        columns = [Column(name, v.type, v.nullable) for name, v in zip(names, values, strict=True)]
        aggregates, outputs = [], []
        for call in calls.values():
            one, argument = call_of(compiler, call)
            if argument is not None:
                place = next((i for i, v in enumerate(values) if i >= len(keys) and v.sql == argument.sql), len(values))
                if place == len(values):
                    values.append(argument)
                    columns.append(Column(f"_value{place}", argument.type, argument.nullable))
                one = replace(one, argument=place)
            aggregates.append(one)
            outputs.append(Column(_said(one, argument, source.node.columns), one.type, one.function != "count"))
        if not keys and not calls:  # HAVING without an aggregate: there is one row, whatever the rows are
            aggregates.append(Aggregation("count", None, False, t.LONG, t.LONG))
            outputs.append(Column("count(*)", t.LONG, False))
        if not values:  # count(*) of all rows looks at no column, but rows of the engine have one
            values.append(Expr("CAST(1 AS INTEGER)", t.INT, False))
            columns.append(Column("_value0", t.INT, False))
        below = self._steps.project(source.node, columns, values)
        key = self._group_key(below, len(keys))
        every = (*columns[: len(keys)], *outputs)
        node = Aggregate(self._steps.number(), every, key, input=below, keys=len(keys), aggregates=tuple(aggregates))
        known = {same(one): i for i, one in enumerate([*keys, *calls.values()])}
        above = Compiler(Scope(node.columns, {}, {**{_inside(one): i for i, one in enumerate(keys)}, **known}))
        return self._steps.shown(node, above, shown)

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


def _inside(tree: Tree) -> Any:
    """What a key with a name is without it."""
    return same(tree.fields["child"]) if tree.kind == "expressions.Alias" else same(tree)


def _grouped_by(one: Expr) -> Expr:
    if one.type == t.NULL:
        raise NotEmbedded("groups by NULL")
    return one


def _said(one: Aggregation, argument: Expr | None, columns: Sequence[Column]) -> str:
    """An aggregate as people call it. `columns`: those that its argument is over."""
    inner = "*" if argument is None else with_columns(argument.sql, lambda i: columns[i].name)
    return f"{one.function}({'DISTINCT ' if one.distinct else ''}{inner})"
