"""GROUP BY and aggregates of a SELECT. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from tidemill.views import types as t
from tidemill.views.expressions import Compiler, Scope
from tidemill.views.plan import Aggregate, Column, Expr, Node, Table
from tidemill.views.refusal import refuse
from tidemill.views.sql.aggregates import call_of, calls_in
from tidemill.views.sql.keys import origin_of
from tidemill.views.sql.relations import Relation, Steps


class Groups:
    """Plans the groups of a SELECT. Raises ViewRefused."""

    def __init__(self, steps: Steps, tables: Sequence[Table]) -> None:
        self._steps, self._read = steps, tables

    def grouped(self, source: Relation, e: exp.Select, shown: list[exp.Expr]) -> tuple[Scope, Node]:
        """Return the groups with their aggregates, and what expressions over them see; the rows as they are without any."""
        group = e.args.get("group")
        having = [e.args["having"].this] if e.args.get("having") else []
        calls = list(dict.fromkeys(one for root in (*shown, *having) for one in calls_in(root)))
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
            one, argument = call_of(compiler, call)
            if argument is not None:
                same = next((i for i, v in enumerate(values) if i >= len(keys) and v.sql == argument.sql), None)
                place = len(values) if same is None else same
                if same is None:
                    values.append(argument)
                    columns.append(Column(f"_value{place}", argument.type, argument.nullable))
                one = replace(one, argument=place)
            aggregates.append(one)
            outputs.append(Column(call.sql("spark"), one.type, one.function != "count"))
        if not values:  # count(*) of all rows looks at no column, but rows of the engine have one
            values.append(Expr("CAST(1 AS INTEGER)", t.INT, False))
            columns.append(Column("_value0", t.INT, False))
        below = self._steps.project(source.node, columns, values)
        node = Aggregate(
            self._steps.number(),
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
