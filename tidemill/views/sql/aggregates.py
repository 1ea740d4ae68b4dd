"""Aggregates: which of a query's calls are ones, and what each takes and gives. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from sqlglot import exp

from tidemill.views import types as t
from tidemill.views.expressions import Compiler, cast_to
from tidemill.views.plan import Aggregation, Expr
from tidemill.views.refusal import refuse

AGGREGATES: dict[type[exp.Expr], str] = {
    exp.Sum: "sum",
    exp.Count: "count",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.CountIf: "count_if",
}


def calls_in(e: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the aggregates of an expression, with their FILTER; those that are window functions are others."""
    if isinstance(e, exp.Window):
        for one in (*(e.this.args.values()), *(e.args.get("partition_by") or ()), e.args.get("order")):
            if isinstance(one, exp.Expr):
                yield from calls_in(one)
        return
    if isinstance(e, exp.Filter) or (isinstance(e, exp.AggFunc) and type(e) in AGGREGATES):
        yield e
        return
    if isinstance(e, exp.Query):
        return
    for one in e.iter_expressions():
        yield from calls_in(one)


def call_of(compiler: Compiler, call: exp.Expr) -> tuple[Aggregation, Expr | None]:
    """Return an aggregate, and the value that it is of; without one for count(*)."""
    condition = None
    inner = call
    if isinstance(inner, exp.Filter):
        condition, inner = compiler.condition(inner.expression.this), inner.this
    name = AGGREGATES.get(type(inner))
    if name is None:
        raise refuse(f"{call.sql('spark')} is not an aggregate that views have", "There are sum, count, avg, min, max, bool_and, bool_or.")
    argument, distinct = argument_of(compiler, inner)
    if name == "count_if":
        assert argument is not None
        argument, name = Expr(f"(CASE WHEN {argument.sql} THEN 1 END)", t.INT), "count"
    if condition is not None:
        value = Expr("1", t.INT) if argument is None else argument
        argument = Expr(f"(CASE WHEN {condition.sql} THEN {value.sql} END)", value.type)
    if argument is None:
        return Aggregation("count", None, False, t.LONG, t.LONG), None
    kind = result_of(name, argument, call)
    return Aggregation(name, 0, distinct and name not in ("min", "max"), kind, argument.type), argument


def argument_of(compiler: Compiler, inner: exp.Expr) -> tuple[Expr | None, bool]:
    """Return the value that a call is of, None for *, and whether it is with DISTINCT."""
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


def result_of(name: str, argument: Expr, call: exp.Expr) -> pa.DataType:
    """Return the type of an aggregate. Raises ViewRefused for a value that it cannot be of."""
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


def _told_apart(one: Expr) -> str:
    return f"(length(CAST({one.sql} AS VARCHAR)) || ':' || CAST({one.sql} AS VARCHAR))"
