"""Window functions, ORDER BY and LIMIT: steps that are computed again out of rows. Pure."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from tidemill.views import types as t
from tidemill.views.expressions import Compiler, Scope
from tidemill.views.plan import Column, Expr, Node, Recomputed, ref
from tidemill.views.refusal import refuse
from tidemill.views.sql.aggregates import AGGREGATES, argument_of, result_of
from tidemill.views.sql.relations import Relation, Steps, named

_RANKS: dict[type[exp.Expr], str] = {exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank"}


class Windows:
    """Plans windows and orders. `notes`: for people. Raises ViewRefused."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.notes: list[str] = []

    def windows(self, node: Node, scope: Scope, shown: list[exp.Expr]) -> tuple[Node, Scope]:
        """Return the rows with a column for each window function, and what expressions see then."""
        found = list(dict.fromkeys(one for root in shown for one in root.find_all(exp.Window)))
        for window in found:
            if window.sql("spark") not in scope.known:
                node, scope = self._window(node, scope, window)
        return node, scope

    def _window(self, node: Node, scope: Scope, e: exp.Window) -> tuple[Node, Scope]:
        compiler = Compiler(scope)
        keys = tuple(compiler.compile(one).sql for one in e.args.get("partition_by") or ())
        order = e.args.get("order")
        sorts = [_sort(compiler.compile(one.this).sql, one) for one in (order.expressions if order is not None else ())]
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
        result = Recomputed(self._steps.number(), columns, node.key, input=node, keys=keys, sql=sql, what=what)
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
        name = AGGREGATES.get(type(e))
        if name in ("sum", "count", "min", "max"):
            argument, distinct = argument_of(compiler, e)
            if distinct or (argument is not None and t.is_float(argument.type) and name == "sum"):
                raise refuse(f"{e.sql('spark')}: not as a window, with DISTINCT or over floats")
            if argument is None:
                return "count(*)", t.LONG, False
            return f"{name}({argument.sql})", result_of(name, argument, e), name != "count"
        raise refuse(
            f"{e.sql('spark')} is not a window function that views have",
            "There are row_number, rank, dense_rank, lag, lead, sum, count, min, max.",
        )

    def top(self, node: Node, e: exp.Expr, order: list[exp.Ordered], places: list[int], width: int) -> Node:
        """Return the first `width` columns of the rows that ORDER BY and LIMIT choose. `places`: the columns of the order."""
        limit, offset = _whole(e.args.get("limit")), _whole(e.args.get("offset"))
        if limit is None and offset is None:
            self.notes.append("ORDER BY without LIMIT has no meaning for a view: rows of a table have no order")
            return self._narrowed(node, width)
        sorts = [_sort(ref(place), one) for place, one in zip(places, order, strict=True)]
        ties = [f"{ref(i)} NULLS FIRST" for i in range(len(node.columns))]
        listed = ", ".join(f"{ref(i)} AS c{i}" for i in range(len(node.columns)))
        count = f" LIMIT {limit}" if limit is not None else ""
        sql = f"SELECT {listed} FROM input ORDER BY {', '.join([*sorts, *ties])}{count} OFFSET {offset or 0}"
        what = f"ORDER BY with LIMIT {limit}" if limit is not None else f"OFFSET {offset}"
        found = Recomputed(self._steps.number(), node.columns, node.key, input=node, keys=(), sql=sql, what=what)
        return self._narrowed(found, width)

    def _narrowed(self, node: Node, width: int) -> Node:
        if len(node.columns) == width:
            return node
        return self._steps.project(node, node.columns[:width], [Expr(ref(i), one.type) for i, one in enumerate(node.columns[:width])])

    def limited(self, found: Relation, e: exp.Union) -> Relation:
        """ORDER BY and LIMIT behind a UNION."""
        order = order_of(e)
        if not order and not e.args.get("limit") and not e.args.get("offset"):
            return found
        names = [one.name.lower() for one in found.node.columns]
        for one in order:
            if not isinstance(one.this, exp.Column) or one.this.name.lower() not in names:
                raise refuse(f"{one.sql('spark')}: behind a UNION, ORDER BY is by names of its columns")
        places = [names.index(one.this.name.lower()) for one in order]
        return named(self.top(found.node, e, order, places, len(names)), "")


def order_of(e: exp.Expr) -> list[exp.Ordered]:
    """Return what a query's ORDER BY has."""
    order = e.args.get("order")
    return list(order.expressions) if order is not None else []


def bare(e: exp.Column, names: set[str]) -> bool:
    """Return whether ORDER BY names a column of the SELECT."""
    return not e.table and e.name.lower() in names


def _whole(e: exp.Expr | None) -> int | None:
    if e is None:
        return None
    if not isinstance(e.expression, exp.Literal) or not e.expression.name.isdecimal():
        raise refuse(f"{e.sql('spark')}: a number is needed")
    return int(e.expression.name)


def _sort(sql: str, e: exp.Ordered) -> str:
    descending = bool(e.args.get("desc"))
    nulls_first = e.args.get("nulls_first")
    first = not descending if nulls_first is None else bool(nulls_first)
    return f"{sql} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"
