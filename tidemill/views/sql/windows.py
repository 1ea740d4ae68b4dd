"""Window functions, ORDER BY and LIMIT: steps that are computed again out of rows. Pure."""

from __future__ import annotations

import pyarrow as pa

from tidemill.views import types as t
from tidemill.views.plan import Column, Recomputed, ref
from tidemill.views.sql.aggregates import CALL, function_of
from tidemill.views.sql.expressions import Compiler, type_of
from tidemill.views.sql.relations import Relation, Steps, attribute_of
from tidemill.views.sql.tree import Fields, NotEmbedded, Tree, same, short

_RANKS = {"expressions.RowNumber": "row_number", "expressions.Rank": "rank", "expressions.DenseRank": "dense_rank"}
_SHIFTS = {"expressions.Lag": "lag", "expressions.Lead": "lead"}
_ALL, _SO_FAR, _ROWS_SO_FAR = (
    ("RowFrame", "UnboundedPreceding", "UnboundedFollowing"),
    ("RangeFrame", "UnboundedPreceding", "CurrentRow"),
    ("RowFrame", "UnboundedPreceding", "CurrentRow"),
)


class Windows:
    """Plans Spark's Window, Sort, Limit and Offset. `notes`: for people."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.notes: list[str] = []

    def windows(self, source: Relation, f: Fields) -> Relation:
        """Return the rows with a column for each window function."""
        partition, order = f.trees("partitionSpec"), f.trees("orderSpec")
        for one in f.trees("windowExpressions"):
            with Fields(one) as alias:
                for part in ("other2", "other3", "name", "other0"):
                    alias.any(part)
                source = self._window(source, alias.tree("child"), partition, order, attribute_of(one))
        return source

    def _window(self, source: Relation, call: Tree, partition: list[Tree], order: list[Tree], attribute: tuple[str, int]) -> Relation:
        if call.kind != "expressions.WindowExpression":
            raise NotEmbedded(f"{short(call)} as a window")
        with Fields(call) as f:
            function, spec = f.tree("windowFunction"), f.tree("windowSpec")
        with Fields(spec) as f:
            if same(f.any("partitionSpec")) != same(partition) or same(f.any("orderSpec")) != same(order):
                raise NotEmbedded("a window that is not its step's")
            frame = _frame(f.tree("frameSpecification"))
        compiler, node = Compiler(source.scope), source.node
        keys = tuple(compiler.compile(one).sql for one in partition)
        sorts = [sort_of(compiler, one) for one in order]
        sql, kind, nullable, needs_ties = self._call(compiler, function, frame, ordered=bool(sorts))
        width = len(node.columns)
        # Rows that ORDER BY does not tell apart come in the order of all their columns, so that the same rows always give the same result.
        ties = [f"{ref(i)} NULLS FIRST" for i in range(width)] if needs_ties else []
        over = f"PARTITION BY {', '.join(keys)} " if keys else ""
        ordering = f"ORDER BY {', '.join([*sorts, *ties])}" if sorts or ties else ""
        listed = ", ".join(f"{ref(i)} AS c{i}" for i in range(width))
        text = f"SELECT {listed}, CAST({sql} OVER ({over}{ordering}) AS {t.engine_type(kind)}) AS c{width} FROM input"
        columns = (*node.columns, Column(attribute[0], kind, nullable))
        made = Recomputed(
            self._steps.number(), columns, node.key, input=node, keys=keys, sql=text, what=f"window {_word(sql)} AS {attribute[0]}"
        )
        return Relation(made, (*source.ids, attribute[1]))

    def _call(self, compiler: Compiler, e: Tree, frame: tuple[str, str, str], *, ordered: bool) -> tuple[str, pa.DataType, bool, bool]:
        """The call, its type, whether it may be NULL, and whether it depends on the order of rows that ORDER BY does not tell apart."""
        if e.kind in _RANKS:
            with Fields(e) as f:
                if e.kind != "expressions.RowNumber":
                    f.any("children")
            if frame != _ROWS_SO_FAR or not ordered:
                raise NotEmbedded(f"{short(e)} with a frame")
            return f"{_RANKS[e.kind]}()", t.INT, False, e.kind == "expressions.RowNumber"
        if e.kind in _SHIFTS:
            return self._shift(compiler, e)
        if e.kind != CALL or frame != (_SO_FAR if ordered else _ALL):
            raise NotEmbedded("a window with ROWS or RANGE" if e.kind == CALL else f"the window function {short(e)}")
        with Fields(e) as f:
            f.is_("mode", "Complete")
            name, argument = function_of(compiler, f.tree("aggregateFunction"))
        if name == "avg" or (name == "sum" and argument is not None and t.is_float(argument.type)):
            raise NotEmbedded(f"{name} of {t.spark_type(argument.type) if argument else 'rows'} as a window")
        return f"{name}({argument.sql if argument is not None else '*'})", type_of(e.type), name != "count", False

    def _shift(self, compiler: Compiler, e: Tree) -> tuple[str, pa.DataType, bool, bool]:
        with Fields(e) as f:
            one, offset, default = compiler.compile(f.tree("input")), f.any(_OFFSETS[e.kind]), f.tree("default")
        if default.type != "void" or default.fields.get("value") is not None:
            raise NotEmbedded(f"{_SHIFTS[e.kind]} with a default")
        number = offset.fields.get("value") if isinstance(offset, Tree) and offset.kind == "expressions.Literal" else None
        if not isinstance(number, int):
            raise NotEmbedded(f"{_SHIFTS[e.kind]} by what is computed")
        return f"{_SHIFTS[e.kind]}({one.sql}, {number})", one.type, True, True

    def top(self, source: Relation, order: list[Tree], limit: int | None, offset: int) -> Relation:
        """Return the rows that ORDER BY, LIMIT and OFFSET choose."""
        node, compiler = source.node, Compiler(source.scope)
        sorts = [sort_of(compiler, one) for one in order]
        ties = [f"{ref(i)} NULLS FIRST" for i in range(len(node.columns))]
        listed = ", ".join(f"{ref(i)} AS c{i}" for i in range(len(node.columns)))
        count = f" LIMIT {limit}" if limit is not None else ""
        sql = f"SELECT {listed} FROM input ORDER BY {', '.join([*sorts, *ties])}{count} OFFSET {offset}"
        what = f"ORDER BY with LIMIT {limit}" if limit is not None else f"OFFSET {offset}"
        return Relation(Recomputed(self._steps.number(), node.columns, node.key, input=node, keys=(), sql=sql, what=what), source.ids)


_OFFSETS = {"expressions.Lag": "inputOffset", "expressions.Lead": "offset"}


def _frame(tree: Tree) -> tuple[str, str, str]:
    with Fields(tree) as f:
        if "frameType" not in tree.fields:
            raise NotEmbedded(short(tree))
        return short(f.tree("frameType")), short(f.tree("lower")), short(f.tree("upper"))


def sort_of(compiler: Compiler, tree: Tree) -> str:
    """Return a term of ORDER BY."""
    with Fields(tree) as f:
        one = compiler.compile(f.tree("child"))
        descending, nulls = short(f.tree("direction")) == "Descending", short(f.tree("nullOrdering"))
        f.any("sameOrderExpressions")
    if one.type == t.NULL or pa.types.is_list(one.type):
        raise NotEmbedded(f"ORDER BY {t.spark_type(one.type)}")
    return f"{one.sql} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls == 'NullsFirst' else 'LAST'}"


def _word(sql: str) -> str:
    return sql.partition("(")[0]
