"""Random queries over the three tables of `shop`, in words that Spark and DuckDB both have and that mean the same there.

`asked_of_duckdb` is the other reading of a query: no plan and no rule of ours is in it, only the query and the rows of the tables.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from hypothesis import strategies as st

from tests.support.views.shop import TABLES, Row, arrow

Draw = Callable[[st.SearchStrategy[Any]], Any]

_TABLES = {
    "orders": (("id", "int"), ("customer", "int"), ("state", "text"), ("weight", "float"), ("day", "date")),
    "order_lines": (("id", "int"), ("order_id", "int"), ("price", "decimal"), ("quantity", "int")),
    "events": (("customer", "int"), ("kind", "text")),
}
_LITERALS = {
    "int": ("0", "1", "2", "3"),
    "text": ("'open'", "''", "'view'", "'o_'"),
    "decimal": ("0.01", "2.50", "0.00"),
    "float": ("CAST(0.15 AS DOUBLE)", "CAST(0 AS DOUBLE)"),
    "date": ("DATE '2024-01-01'", "DATE '2023-12-31'"),
}
_JOINS = ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")


@dataclass(frozen=True)
class Named:
    """A column as a query calls it, and what it holds: int, text, decimal, float, date, condition."""

    sql: str
    kind: str


@st.composite
def queries(draw: Draw) -> str:
    """A SELECT, or two with UNION between them."""
    first, kinds = _select(draw, depth=0)
    if not _chance(draw, 6):
        return first
    second, _ = _select(draw, depth=1, kinds=kinds)
    return f"{first} {draw(st.sampled_from(('UNION', 'UNION ALL')))} {second}"


def _chance(draw: Draw, one_in: int) -> bool:
    return bool(draw(st.integers(0, one_in - 1)) == one_in - 1)


def _select(draw: Draw, depth: int, kinds: Sequence[str] | None = None) -> tuple[str, list[str]]:
    """A SELECT whose columns are c0, c1, …, and their kinds. `kinds`: those it is to have."""
    source, names = _from(draw, depth)
    where = f" WHERE {_conditions(draw, names, depth)}" if _chance(draw, 2) else ""
    if _chance(draw, 2):
        shown, tail = _grouped(draw, names, kinds)
    else:
        shown, tail = _plain(draw, names, kinds), ""
    distinct = "DISTINCT " if not tail and _chance(draw, 4) else ""
    listed = ", ".join(f"{one.sql} AS c{i}" for i, one in enumerate(shown))
    return f"SELECT {distinct}{listed} FROM {source}{where}{tail}", [one.kind for one in shown]


def _from(draw: Draw, depth: int) -> tuple[str, list[Named]]:
    text, names = _source(draw, depth, f"a{depth}")
    for number in range(draw(st.integers(0, 2))):
        alias = f"{'bc'[number]}{depth}"
        other, more = _source(draw, depth, alias)
        how = draw(st.sampled_from(_JOINS))
        pairs = [(one, two) for one in names for two in more if one.kind == two.kind != "float"]
        if not pairs:
            text, names = f"{text} CROSS JOIN {other}", [*names, *more]
            continue
        one, two = draw(st.sampled_from(pairs))
        on = _on(draw, one, two, [*names, *more])
        text = f"{text} {how} {other} ON {on}"
        names = names if "SEMI" in how or "ANTI" in how else [*names, *more]
    return text, names


def _on(draw: Draw, one: Named, two: Named, names: Sequence[Named]) -> str:
    equal = f"{one.sql} = {two.sql}"
    match draw(st.integers(0, 9)):
        case 0:
            return f"{one.sql} <=> {two.sql}"
        case 1:
            return f"CASE WHEN {equal} THEN TRUE ELSE FALSE END"
        case 2:
            return f"({equal} OR {_compared(draw, names)})"
        case 3 if one.kind == "int":
            return f"CAST({one.sql} AS BIGINT) + 1 = {two.sql}"
        case 4:
            return f"{one.sql} < {two.sql}"
        case 5 | 6:
            return f"{equal} AND {_compared(draw, names)}"
    return equal


def _source(draw: Draw, depth: int, alias: str) -> tuple[str, list[Named]]:
    if depth < 2 and _chance(draw, 5):
        inner, kinds = _select(draw, depth + 1)
        if _chance(draw, 4):  # all columns are in the order, so only equal rows are not told apart
            order = ", ".join(f"{i + 1}{draw(st.sampled_from(('', ' DESC', ' NULLS LAST')))}" for i in range(len(kinds)))
            inner = f"{inner} ORDER BY {order} LIMIT {draw(st.integers(0, 4))}"
        return f"({inner}) {alias}", [Named(f"{alias}.c{i}", kind) for i, kind in enumerate(kinds)]
    table = draw(st.sampled_from(sorted(_TABLES)))
    return f"{table} {alias}", [Named(f"{alias}.{name}", kind) for name, kind in _TABLES[table]]


def _conditions(draw: Draw, names: Sequence[Named], depth: int) -> str:
    parts = [_compared(draw, names) for _ in range(draw(st.integers(1, 2)))]
    found = draw(st.sampled_from((" AND ", " OR "))).join(parts)
    if depth == 0 and _chance(draw, 4):
        found = f"({found}) AND {_subquery(draw, names)}"
    return found


def _subquery(draw: Draw, names: Sequence[Named]) -> str:
    """IN and EXISTS: as joins of their own in a plan."""
    table = draw(st.sampled_from(sorted(_TABLES)))
    pairs = [(one, f"s.{name}") for one in names for name, kind in _TABLES[table] if kind == one.kind != "float"]
    if not pairs:
        return "1 = 1"
    one, other = draw(st.sampled_from(pairs))
    inner = [Named(f"s.{name}", kind) for name, kind in _TABLES[table]]
    also = _compared(draw, inner)
    if draw(st.booleans()):
        return f"{one.sql} IN (SELECT {other} FROM {table} s WHERE {also})"
    return f"{draw(st.sampled_from(('', 'NOT ')))}EXISTS (SELECT 1 FROM {table} s WHERE {other} = {one.sql} AND {also})"


def _compared(draw: Draw, names: Sequence[Named]) -> str:
    one = draw(st.sampled_from(names))
    if one.kind == "condition":
        return draw(st.sampled_from((one.sql, f"NOT {one.sql}")))
    match draw(st.integers(0, 4)):
        case 0:
            return f"{one.sql} IS {draw(st.sampled_from(('', 'NOT ')))}NULL"
        case 1:
            others = [other.sql for other in names if other.kind == one.kind and other != one]
            other = draw(st.sampled_from(others)) if others else draw(st.sampled_from(_LITERALS[one.kind]))
        case 2:
            return f"{one.sql} IN ({', '.join(_LITERALS[one.kind][:2])})"
        case _:
            other = draw(st.sampled_from(_LITERALS[one.kind]))
    operator = draw(st.sampled_from(("=", "<>", "<", ">=", "<=>")))
    return f"{one.sql} {operator} {other}"


def _plain(draw: Draw, names: Sequence[Named], kinds: Sequence[str] | None) -> list[Named]:
    if kinds is None:
        found = [_value(draw, draw(st.sampled_from(names)), names) for _ in range(draw(st.integers(1, 4)))]
        return [*found, _window(draw, names)] if _chance(draw, 6) else found
    return [_of_kind(draw, names, kind) for kind in kinds]


def _of_kind(draw: Draw, names: Sequence[Named], kind: str) -> Named:
    same = [one for one in names if one.kind == kind]
    if same:
        return draw(st.sampled_from(same))
    return Named("1 < 2" if kind == "condition" else draw(st.sampled_from(_LITERALS[kind])), kind)


def _value(draw: Draw, one: Named, names: Sequence[Named]) -> Named:
    """A column, or something computed out of it."""
    if _chance(draw, 2) or one.kind == "condition":
        return one
    literal = draw(st.sampled_from(_LITERALS[one.kind]))
    if _chance(draw, 5):
        return Named(f"CASE WHEN {_compared(draw, names)} THEN {one.sql} ELSE {literal} END", one.kind)
    if _chance(draw, 3):
        return Named(f"coalesce({one.sql}, {literal})", one.kind)
    match one.kind:
        case "int":
            return Named(f"CAST({one.sql} AS BIGINT) {draw(st.sampled_from('+-*'))} {literal}", "int")
        case "text":
            return Named(f"{draw(st.sampled_from(('upper', 'lower')))}({one.sql})", "text")
        case "decimal":
            return Named(f"{one.sql} + 0.01", "decimal")
        case "date":
            return Named(f"year({one.sql})", "int")
    return Named(f"{one.sql} IS NULL", "condition")


def _window(draw: Draw, names: Sequence[Named]) -> Named:
    """A window function whose value does not depend on the order of rows that are equal in ORDER BY."""
    part, order = draw(st.sampled_from(names)), draw(st.sampled_from(names))
    over = f"OVER (PARTITION BY {part.sql} ORDER BY {order.sql}{draw(st.sampled_from(('', ' DESC')))})"
    return Named(f"{draw(st.sampled_from(('rank()', 'dense_rank()', 'count(*)')))} {over}", "int")


def _grouped(draw: Draw, names: Sequence[Named], kinds: Sequence[str] | None) -> tuple[list[Named], str]:
    chosen = [draw(st.sampled_from(names)) for _ in range(draw(st.integers(0, 2)))]
    keys = list({one.sql: one for one in (_value(draw, key, names) if _chance(draw, 4) else key for key in chosen)}.values())
    if kinds is None:
        calls = [_call(draw, names) for _ in range(draw(st.integers(0 if keys else 1, 3)))]
        shown = [*keys[: draw(st.integers(0 if calls else 1, len(keys)))], *calls] if keys else calls
    else:
        shown = [_call_of(draw, names, kind) for kind in kinds]
    having = ""
    if keys and _chance(draw, 4):
        having = f" HAVING {_call(draw, [one for one in names if one.kind == 'int'] or names, 'count').sql} > 1"
    grouped = f" GROUP BY {', '.join(one.sql for one in keys)}" if keys else ""
    return shown, grouped + having


def _call_of(draw: Draw, names: Sequence[Named], kind: str) -> Named:
    same = [one for one in names if one.kind == kind and kind != "condition"]
    if kind == "int" or not same:
        one = _call(draw, names, "count")
        return one if kind == "int" else Named(_of_kind(draw, (), kind).sql, kind)
    return Named(f"{draw(st.sampled_from(('min', 'max')))}({draw(st.sampled_from(same)).sql})", kind)


def _call(draw: Draw, names: Sequence[Named], function: str = "") -> Named:
    one = draw(st.sampled_from(names))
    if one.kind != "float" and _chance(draw, 4):
        one = _value(draw, one, names)
    found = function or draw(st.sampled_from(("count", "sum", "avg", "min", "max")))
    if found == "count" and _chance(draw, 3):
        return Named("count(*)", "int")
    if one.kind == "condition" or (found in ("sum", "avg") and one.kind in ("text", "date")):
        found = "count"
    distinct = "DISTINCT " if found in ("count", "sum") and one.kind != "float" and _chance(draw, 3) else ""
    if found == "avg" and one.kind == "decimal":
        found = "sum"  # an average of decimals has Spark's digits, which DuckDB does not have: tests with Spark look at it
    text = f"{found}({distinct}{one.sql})"
    if _chance(draw, 5):
        text += f" FILTER (WHERE {_compared(draw, names)})"
    return Named(text, {"count": "int", "avg": "float"}.get(found, one.kind))


def asked_of_duckdb(sql: str, rows: Mapping[str, list[Row]]) -> list[tuple[Any, ...]]:
    """The rows of a query over tables, by DuckDB alone, in an order of their own."""
    (text,) = sqlglot.transpile(sql, read="spark", write="duckdb")
    with duckdb.connect() as db:
        for table in TABLES:
            db.register(table.name, arrow(table, rows[table.name]))
        return comparable(db.execute(text).fetchall())


def rows_of(found: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a view, for comparing with `asked_of_duckdb`."""
    names = [name for name in found.column_names if name != "_row_key"]
    return comparable([tuple(row[name] for name in names) for row in found.to_pylist()])


def comparable(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows in an order of their own, whose numbers do not say of which type they are."""
    return sorted((tuple(map(_comparable, row)) for row in rows), key=repr)


def _comparable(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        value = value.normalize()
        return f"{value + 0:f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return float(f"{value:.11g}") + 0.0
    return value
