"""What a view does at each interval, for people: its plan, and which step is kept in which way. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidemill.views import types as t
from tidemill.views.plan import (
    Aggregate,
    BySpark,
    Column,
    Filter,
    Join,
    Node,
    OtherJoin,
    Plan,
    Project,
    Recomputed,
    Scan,
    Union,
    with_columns,
)
from tidemill.views.shape import ROW_KEY, Keyed, shape_of


@dataclass(frozen=True, slots=True)
class Line:
    """A step. `how`: what an interval costs there."""

    depth: int
    what: str
    how: str
    incremental: bool


def explained(plan: Plan) -> list[Line]:
    """Return the steps, the last one first."""
    return list(_lines(plan, plan.root, 0))


def text_of(plan: Plan) -> str:
    """Return the whole explanation."""
    shape = shape_of(plan)
    lines = [f"{'  ' * one.depth}{'' if one.incremental else 'RECOMPUTED '}{one.what}: {one.how}" for one in explained(plan)]
    columns = ", ".join(f"{one.name} {t.spark_type(one.type)}" for one in plan.root.columns)
    match shape.keyed:
        case Keyed.COLUMNS:
            key = ", ".join(shape.keys)
        case Keyed.HASH:
            key = f"{ROW_KEY}, the hash of {', '.join(plan.root.columns[i].name for i in shape.hashed) or 'nothing: there is one row'}"
        case Keyed.COPIES:
            key = f"{ROW_KEY}, the hash of the row and the number of its copy"
    engine = "engine: Spark" if isinstance(plan.root, BySpark) else "engine: embedded"
    notes = [f"note: {one}" for one in plan.notes]
    return "\n".join([*lines, "", engine, f"columns: {columns}", f"key: {key}", *notes])


def _lines(plan: Plan, node: Node, depth: int) -> Iterator[Line]:
    what, how, incremental = _said(plan, node)
    if what:
        yield Line(depth, what, how, incremental)
        depth += 1
    for one in node.inputs:
        yield from _lines(plan, one, depth)


def _said(plan: Plan, node: Node) -> tuple[str, str, bool]:
    names = [one.name for one in node.columns]
    match node:
        case Scan():
            table = plan.tables[node.table]
            how = "kept by its key" if table.keys else "kept as rows with their number, for it has no key"
            return f"table {table} AS {node.alias} ({', '.join(names)})", how, True
        case Filter():
            return f"filter {_named(node.condition, node.input.columns)}", "of the changes", True
        case Project():
            return (f"project {', '.join(names)}", "of the changes", True) if _computes(node) else ("", "", True)
        case Union():
            return "union all", "of the changes", True
        case Join():
            conditions = " AND ".join(_named(one, node.columns) for one in node.conditions) or "every pair"
            return f"join of {len(node.sides)} on {conditions}", "changes of each side with the rows of the others", True
        case OtherJoin():
            every = (*node.left.columns, *node.right.columns)
            what = f"{node.kind.lower()} join on {_named(node.condition, every)}"
            if node.left_keys:
                return what, "rows of both sides whose key changed, before and after", True
            return what, "all rows of both sides, because no equation joins them", False
        case Aggregate() if not node.aggregates:
            return f"distinct {', '.join(names)}", "how often each row is there is kept", True
        case Aggregate():
            groups = ", ".join(names[: node.keys]) or "all rows"
            called = ", ".join(_named_call(one.name) for one in node.columns[node.keys :])
            if node.adds:
                return f"group by {groups}: {called}", "sums and counts are kept, changes are added", True
            return f"group by {groups}: {called}", "groups that changed are computed again out of their rows, which are kept", True
        case BySpark():
            return (
                f"Spark computes {node.sql.strip()}",
                f"all rows, whenever one changes: the embedded engine does not have {node.why}",
                False,
            )
        case Recomputed():
            if node.keys:
                keys = ", ".join(_named(one, node.input.columns) for one in node.keys)
                return _named_call(node.what), f"partitions that changed are computed again, by {keys}", True
            return _named_call(node.what), "all rows, whenever one changes", False
    raise AssertionError(type(node).__name__)


def _named(sql: str, columns: tuple[Column, ...]) -> str:
    return with_columns(sql, lambda i: columns[i].name)


def _named_call(text: str) -> str:
    return text if len(text) < 100 else f"{text[:97]}…"


def _computes(node: Project) -> bool:
    return [one.name for one in node.columns] != [one.name for one in node.input.columns]


def is_incremental(plan: Plan) -> bool:
    """Return whether no step computes everything again."""
    return all(one.incremental for one in explained(plan))
