"""The delta rules: what a view changes by, as SQL of the engine. Pure: plan in, statements out.

Rows have a weight `w`, as in differential dataflow and DBSP: a relation is a Z-set. A change of a row is the old row with weight -1 and the
new one with 1. `w` of a relation at rest is how often it has the row. Tables of the engine, for table or node number N:

    tN    a captured table at the resolved ts; dtN its change in this interval
    dN    the change of node N in this interval
    aN    GROUP BY that adds: the group's columns c0 …, rows n, and for each aggregate its count and sum
    kN    other GROUP BY: the rows c0 … that it is made of, w; oN what it gives
    oN    a step that is computed again: what it gives
          or that Spark computes
    xN, yN, nN   of this interval: which groups or keys changed, and what they are now

Joins: with A' = A + dA, the change of A⋈B is dA⋈B + A'⋈dB, and so on for more sides. Filter, projection and UNION ALL are those of the
change. All else looks at the groups, partitions or join keys that changed: what they give now, less what they gave before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tidemill.views import types as t
from tidemill.views.decimals import decimal_call
from tidemill.views.plan import (
    Aggregate,
    Aggregation,
    BySpark,
    Filter,
    Join,
    Node,
    OtherJoin,
    Plan,
    Project,
    Recomputed,
    Scan,
    Table,
    Union,
    walk,
    with_columns,
)

Changed = Collection[int]
"""Numbers of the tables that changed."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The statements of an interval. `compute` fills `d_out`, and `apply` brings the state up to date."""

    compute: tuple[str | BySpark, ...]  # a step of Spark's fills nN with what its query gives, n times w
    checks: tuple[str, ...]  # each gives a number that is 0, else the log lacks rows
    apply: tuple[str, ...]


class Rules:
    """The rules of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._compute: list[str | BySpark] = []
        self._checks: list[str] = []
        self._apply: list[str] = []
        self._made: set[int] = set()
        self._changed: Changed = ()
        self._first = False

    def setup(self) -> list[str]:
        """Return the statements that make the state of a view without rows."""
        found = [f"CREATE TABLE t{i} ({_typed(_kinds(table))}, w BIGINT)" for i, table in enumerate(self._plan.tables)]
        for node in walk(self._plan.root):
            kinds = [t.engine_type(one.type) for one in node.columns]
            if isinstance(node, Aggregate) and node.adds:
                sums = [f"{name} {kind}" for i, one in enumerate(node.aggregates) for name, kind in _accumulators(i, one)]
                found.append(f"CREATE TABLE a{node.number} ({_listed(_defined(kinds[: node.keys]), ['n BIGINT'], sums)})")
            elif isinstance(node, Aggregate):
                inner = [t.engine_type(one.type) for one in node.input.columns]
                found.append(f"CREATE TABLE k{node.number} ({_typed(inner)}, w BIGINT)")
                found.append(f"CREATE TABLE o{node.number} ({_typed(kinds)}, w BIGINT)")
            elif isinstance(node, Recomputed | BySpark):
                found.append(f"CREATE TABLE o{node.number} ({_typed(kinds)}, w BIGINT)")
        return found

    def interval(self, changed: Changed, *, first: bool) -> Steps:
        """Return the statements of an interval in which these tables changed. `first`: of a view without rows so far."""
        self._compute, self._checks, self._apply, self._made = [], [], [], set()
        self._changed, self._first = changed, first
        for node in walk(self._plan.root):
            self._node(node)
        delta = self._delta(self._plan.root)
        columns = _names(len(self._plan.root.columns))
        self._temporary("d_out", _consolidated(delta, len(columns)) if delta else _nothing(self._plan.root))
        for number in changed:
            self._apply += self._table_statements(number)
        return Steps(tuple(self._compute), tuple(self._checks), tuple(self._apply))

    def _table_statements(self, number: int) -> list[str]:
        table = self._plan.tables[number]
        width = len(table.columns)
        if table.keys:
            same = " AND ".join(f"t.c{i} IS NOT DISTINCT FROM d.c{i}" for i in table.keys)
            gone = f"DELETE FROM t{number} AS t USING dt{number} AS d WHERE d.w < 0 AND {same}"
            return [gone, f"INSERT INTO t{number} SELECT * FROM dt{number} WHERE w > 0"]
        # Rows without a key cannot be found again one by one: what changed goes behind, and equal rows are put together now and then.
        return [f"INSERT INTO t{number} SELECT {_listed(_names(width))}, w FROM dt{number}"]

    def tidy(self, number: int) -> list[str]:
        """Return the statements that put equal rows of a table without a key together."""
        width = len(self._plan.tables[number].columns)
        whole = f"CREATE OR REPLACE TEMP TABLE tidy AS {_consolidated(f'SELECT * FROM t{number}', width)}"
        return [whole, f"DELETE FROM t{number}", f"INSERT INTO t{number} SELECT * FROM tidy", "DROP TABLE tidy"]

    def truncated(self, number: int) -> str:
        """Return the statement that makes the change of a table which TRUNCATE empties."""
        width = len(self._plan.tables[number].columns)
        return f"CREATE OR REPLACE TEMP TABLE dt{number} AS SELECT {_listed(_names(width))}, -w AS w FROM t{number}"

    def rows(self, number: int) -> str:
        """Return the query for the rows that a table has behind the interval, for a step of Spark's."""
        width = len(self._plan.tables[number].columns)
        query = f"SELECT * FROM t{number}" + (f" UNION ALL SELECT * FROM dt{number}" if number in self._changed else "")
        return _repeated(_consolidated(query, width), width)

    def whole(self) -> str:
        """Return the query that computes the view out of its tables at rest, without any state of its own."""
        return _summed(self._full(self._plan.root), self._plan.root)

    # ---- relations

    def _temporary(self, name: str, query: str) -> None:
        self._compute.append(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")

    def _old(self, node: Node) -> str:
        """What a node had before the interval."""
        match node:
            case Scan():
                return _scan(node, f"t{node.table}")
            case Aggregate() if node.adds:
                return _finished(node, f"a{node.number}", "1")
            case Aggregate() | Recomputed() | BySpark():
                return f"SELECT {_listed(_names(len(node.columns)))}, w FROM o{node.number}"
            case OtherJoin():
                return _joined(node, _summed(self._old(node.left), node.left), _summed(self._old(node.right), node.right))
        return _linear(node, [self._old(one) for one in node.inputs])

    def _delta(self, node: Node) -> str | None:
        """What a node changes by; None: nothing."""
        match node:
            case Scan():
                return _scan(node, f"dt{node.table}") if node.table in self._changed else None
            case Filter() | Project():
                inner = self._delta(node.inputs[0])
                return _linear(node, [inner]) if inner else None
            case Union():
                sides = [found for one in node.sides if (found := self._delta(one))]
                return " UNION ALL ".join(sides) or None
            case Join():
                return self._delta_of_join(node)
        return f"SELECT * FROM d{node.number}" if node.number in self._made else None

    def _delta_of_join(self, node: Join) -> str | None:
        terms = []
        for i, side in enumerate(node.sides):
            delta = self._delta(side)
            if delta is not None:
                terms.append(_linear(node, [*map(self._new, node.sides[:i]), delta, *map(self._old, node.sides[i + 1 :])]))
        return " UNION ALL ".join(terms) or None

    def _new(self, node: Node) -> str:
        """What a node has after the interval; equal rows may stand apart."""
        match node:
            case Filter() | Project() | Join() | Union():
                return _linear(node, [self._new(one) for one in node.inputs])
        delta = self._delta(node)
        return f"{self._old(node)} UNION ALL {delta}" if delta else self._old(node)

    def _full(self, node: Node) -> str:
        match node:
            case BySpark():
                return self._old(node)
            case Scan():
                return _scan(node, f"t{node.table}")
            case Aggregate():
                rows = _repeated(_consolidated(self._full(node.input), len(node.input.columns)), len(node.input.columns))
                return f"SELECT *, CAST(1 AS BIGINT) AS w FROM ({_aggregated(node, rows)})"
            case Recomputed():
                rows = _repeated(_consolidated(self._full(node.input), len(node.input.columns)), len(node.input.columns))
                return f"SELECT *, CAST(1 AS BIGINT) AS w FROM ({_recomputed(node, rows)})"
            case OtherJoin():
                return _joined(node, _summed(self._full(node.left), node.left), _summed(self._full(node.right), node.right))
        return _linear(node, [self._full(one) for one in node.inputs])

    # ---- nodes with a rule of their own

    def _node(self, node: Node) -> None:
        match node:
            case Aggregate():
                delta = self._delta(node.input)
                if delta is None and not (self._first and not node.keys):
                    return
                self._made.add(node.number)
                (self._adding if node.adds else self._touched)(node, delta or _nothing(node.input))
            case Recomputed():
                if (delta := self._delta(node.input)) is not None:
                    self._made.add(node.number)
                    self._again(node, delta)
            case BySpark():
                if self._first or any(self._delta(one) for one in node.scans):
                    self._made.add(node.number)
                    self._compute.append(node)
                    self._temporary(f"y{node.number}", "SELECT 1 AS one")
                    self._replaced(node, f"SEMI JOIN y{node.number} AS y ON true", f"y{node.number} AS y", "true")
            case OtherJoin():
                left, right = self._delta(node.left), self._delta(node.right)
                if left is not None or right is not None:
                    self._made.add(node.number)
                    self._other_join(node, left, right)

    def _adding(self, node: Aggregate, delta: str) -> None:
        n, keys = node.number, _names(node.keys)
        sums = [f"{text} AS {name}" for i, one in enumerate(node.aggregates) for name, text in _sums(i, one)]
        grouped = f" GROUP BY {_listed(keys)}" if keys else ""
        self._temporary(f"x{n}", f"SELECT {_listed(keys, ['CAST(coalesce(sum(w), 0) AS BIGINT) AS n'], sums)} FROM ({delta}){grouped}")
        names = ["n", *(name for i, one in enumerate(node.aggregates) for name, _ in _accumulators(i, one))]
        added = [f"coalesce(a.{name}, 0) + x.{name} AS {name}" for name in names]
        self._temporary(
            f"n{n}", f"SELECT {_listed([f'x.{k}' for k in keys], added)} FROM x{n} AS x LEFT JOIN a{n} AS a ON {_same('x', 'a', keys)}"
        )
        self._checks.append(f"SELECT count(*) FROM n{n} WHERE n < 0")
        before = f"SELECT a.* FROM a{n} AS a SEMI JOIN x{n} AS x ON {_same('x', 'a', keys)}"
        now = f"SELECT * FROM n{n}" + (" WHERE n > 0" if keys else "")
        both = f"{_finished(node, f'({now})', '1')} UNION ALL {_finished(node, f'({before})', '-1')}"
        self._temporary(f"d{n}", _consolidated(both, len(node.columns)))
        self._apply += [f"DELETE FROM a{n} AS a USING x{n} AS x WHERE {_same('x', 'a', keys)}", f"INSERT INTO a{n} {now}"]

    def _touched(self, node: Aggregate, delta: str) -> None:
        n, width = node.number, len(node.input.columns)
        every, keys = _names(width), _names(node.keys)
        self._temporary(f"x{n}", _consolidated(delta, width))
        kept = f"x{n} AS x LEFT JOIN k{n} AS k ON {_same('x', 'k', every)}"
        self._temporary(f"m{n}", f"SELECT {_listed([f'x.{c}' for c in every])}, coalesce(k.w, 0) + x.w AS w FROM {kept}")
        self._checks.append(f"SELECT count(*) FROM m{n} WHERE w < 0")
        self._compute += [
            f"DELETE FROM k{n} AS k USING x{n} AS x WHERE {_same('x', 'k', every)}",
            f"INSERT INTO k{n} SELECT * FROM m{n} WHERE w > 0",
        ]
        self._temporary(f"y{n}", f"SELECT DISTINCT {_listed(keys)} FROM x{n}" if keys else "SELECT 1 AS one")
        same = _same("y", "k", keys)
        rows = _repeated(f"SELECT k.* FROM k{n} AS k SEMI JOIN y{n} AS y ON {same}", width)
        self._temporary(f"n{n}", f"SELECT *, CAST(1 AS BIGINT) AS w FROM ({_aggregated(node, rows)})")
        self._replaced(node, f"SEMI JOIN y{n} AS y ON {_same('y', 'o', keys)}", f"y{n} AS y", _same("y", "o", keys))

    def _again(self, node: Recomputed, delta: str) -> None:
        n, width = node.number, len(node.input.columns)
        keys = [f"{_filled(one)} AS k{i}" for i, one in enumerate(node.keys)]
        self._temporary(f"y{n}", f"SELECT DISTINCT {_listed(keys)} FROM ({delta})" if keys else "SELECT 1 AS one")
        kept = _restricted(self._new(node.input), f"y{n}", node.keys, width)
        rows = _repeated(_consolidated(kept, width), width)
        self._temporary(f"n{n}", f"SELECT *, CAST(1 AS BIGINT) AS w FROM ({_recomputed(node, rows)})")
        same = " AND ".join(f"y.k{i} IS NOT DISTINCT FROM {_filled(one, 'o.')}" for i, one in enumerate(node.keys)) or "true"
        self._replaced(node, f"SEMI JOIN y{n} AS y ON {same}", f"y{n} AS y", same)

    def _replaced(self, node: Node, semi: str, using: str, same: str) -> None:
        """The rows of nN stand for those of oN that changed."""
        n, names = node.number, _listed(_names(len(node.columns)))
        before = f"SELECT {names}, -w AS w FROM o{n} AS o {semi}"
        self._temporary(f"d{n}", _consolidated(f"SELECT {names}, w FROM n{n} UNION ALL {before}", len(node.columns)))
        self._apply += [f"DELETE FROM o{n} AS o USING {using} WHERE {same}", f"INSERT INTO o{n} SELECT {names}, w FROM n{n}"]

    def _other_join(self, node: OtherJoin, left: str | None, right: str | None) -> None:
        n = node.number
        parts = []
        for delta, keys in ((left, node.left_keys), (right, node.right_keys)):
            if delta is not None and keys:
                parts.append(f"SELECT {_listed([f'{_filled(one)} AS k{i}' for i, one in enumerate(keys)])} FROM ({delta})")
        self._temporary(f"y{n}", f"SELECT DISTINCT * FROM ({' UNION ALL '.join(parts)})" if parts else "SELECT 1 AS one")

        def side(query: str, one: Node, keys: Sequence[str]) -> str:
            return _summed(_restricted(query, f"y{n}", keys, len(one.columns)), one)

        now = _joined(node, side(self._new(node.left), node.left, node.left_keys), side(self._new(node.right), node.right, node.right_keys))
        old = _joined(node, side(self._old(node.left), node.left, node.left_keys), side(self._old(node.right), node.right, node.right_keys))
        names = _listed(_names(len(node.columns)))
        both = f"SELECT {names}, w FROM ({now}) UNION ALL SELECT {names}, -w AS w FROM ({old})"
        self._temporary(f"d{n}", _consolidated(both, len(node.columns)))


# ---- pieces of SQL


def _names(width: int) -> list[str]:
    return [f"c{i}" for i in range(width)]


def _listed(*parts: Sequence[str]) -> str:
    return ", ".join(one for part in parts for one in part)


def _kinds(table: Table) -> list[str]:
    return [t.engine_type(one.type) for one in table.columns]


def _defined(kinds: Sequence[str]) -> list[str]:
    return [f"c{i} {kind}" for i, kind in enumerate(kinds)]


def _typed(kinds: Sequence[str]) -> str:
    return ", ".join(_defined(kinds))


def _filled(sql: str, prefix: str = "") -> str:
    return with_columns(sql, lambda i: f"{prefix}c{i}")


def _same(one: str, other: str, names: Sequence[str]) -> str:
    return " AND ".join(f"{one}.{name} IS NOT DISTINCT FROM {other}.{name}" for name in names) or "true"


def _nothing(node: Node) -> str:
    nulls = [f"CAST(NULL AS {t.engine_type(one.type)}) AS c{i}" for i, one in enumerate(node.columns)]
    return f"SELECT {_listed(nulls)}, CAST(0 AS BIGINT) AS w WHERE false"


def _scan(node: Scan, table: str) -> str:
    return f"SELECT {_listed([f'c{one} AS c{i}' for i, one in enumerate(node.chosen)])}, w FROM {table}"


def _consolidated(query: str, width: int) -> str:
    """Equal rows together, those that cancel out left out."""
    names = _listed(_names(width))
    return f"SELECT {names}, CAST(sum(w) AS BIGINT) AS w FROM ({query}) GROUP BY {names} HAVING sum(w) <> 0"


def _summed(query: str, node: Node) -> str:
    return _consolidated(query, len(node.columns))


def _repeated(query: str, width: int) -> str:
    """Each row as often as its weight says."""
    names = _listed(_names(width))
    return f"SELECT {names} FROM (SELECT {names}, unnest(range(w)) AS again FROM ({query}))"


def _restricted(query: str, keys_table: str, keys: Sequence[str], width: int) -> str:
    """The rows whose keys are among those that changed; all without keys."""
    if not keys:
        return query
    same = " AND ".join(f"y.k{i} IS NOT DISTINCT FROM {_filled(one, 'q.')}" for i, one in enumerate(keys))
    return f"SELECT {_listed([f'q.c{i}' for i in range(width)])}, q.w FROM ({query}) AS q SEMI JOIN {keys_table} AS y ON {same}"


def _linear(node: Node, inputs: Sequence[str]) -> str:
    match node:
        case Filter():
            return f"SELECT {_listed(_names(len(node.columns)))}, w FROM ({inputs[0]}) WHERE {_filled(node.condition)}"
        case Project():
            values = [f"{_filled(one)} AS c{i}" for i, one in enumerate(node.values)]
            return f"SELECT {_listed(values)}, w FROM ({inputs[0]})"
        case Union():
            return " UNION ALL ".join(f"SELECT {_listed(_names(len(node.columns)))}, w FROM ({one})" for one in inputs)
        case Join():
            return _inner(node, inputs)
    raise AssertionError(f"{type(node).__name__} has a rule of its own")


def _inner(node: Join, inputs: Sequence[str]) -> str:
    places = [f"s{i}.c{j}" for i, side in enumerate(node.sides) for j in range(len(side.columns))]
    chosen = [f"{place} AS c{i}" for i, place in enumerate(places)]
    weight = " * ".join(f"s{i}.w" for i in range(len(inputs)))
    sources = ", ".join(f"({one}) AS s{i}" for i, one in enumerate(inputs))
    where = " AND ".join(with_columns(one, lambda n: places[n]) for one in node.conditions)
    return f"SELECT {_listed(chosen)}, {weight} AS w FROM {sources}" + (f" WHERE {where}" if where else "")


def _joined(node: OtherJoin, left: str, right: str) -> str:
    """A join that is not an inner one, of sides whose equal rows are together."""
    width, total = len(node.left.columns), len(node.left.columns) + len(node.right.columns)
    places = [f"l.c{i}" if i < width else f"r.c{i - width}" for i in range(total)]
    on = with_columns(node.condition, lambda n: places[n])
    chosen = [f"{places[i]} AS c{i}" for i in range(len(node.columns))]
    weight = {"LEFT": "l.w * coalesce(r.w, 1)", "FULL": "coalesce(l.w, 1) * coalesce(r.w, 1)"}.get(node.kind, "l.w")
    return f"SELECT {_listed(chosen)}, {weight} AS w FROM ({left}) AS l {node.kind} JOIN ({right}) AS r ON {on}"


def _recomputed(node: Recomputed, rows: str) -> str:
    return f"WITH input AS ({rows}) {_filled(node.sql)}"


# ---- aggregates


def _accumulators(number: int, one: Aggregation) -> list[tuple[str, str]]:
    """Names and types of what is kept of an aggregate that adds."""
    if one.argument is None:
        return []
    count = [(f"n{number}", "BIGINT")]
    if one.function == "count":
        return count
    return [*count, (f"s{number}", f"DECIMAL(38,{one.of.scale})" if t.is_decimal(one.of) else "HUGEINT")]


def _sums(number: int, one: Aggregation) -> list[tuple[str, str]]:
    """What a change adds to each of these."""
    if one.argument is None:
        return []
    value = f"c{one.argument}"
    count = [(f"n{number}", f"CAST(coalesce(sum(w) FILTER ({value} IS NOT NULL), 0) AS BIGINT)")]
    if one.function == "count":
        return count
    if t.is_decimal(one.of):
        weight = f"CAST(w AS DECIMAL({min(18, t.MOST_DIGITS - one.of.precision)},0))"
        return [*count, (f"s{number}", f"CAST(coalesce(sum({value} * {weight}), 0) AS DECIMAL(38,{one.of.scale}))")]
    return [*count, (f"s{number}", f"CAST(coalesce(sum(CAST({value} AS HUGEINT) * w), 0) AS HUGEINT)")]


def _finished(node: Aggregate, source: str, weight: str) -> str:
    """The rows of a GROUP BY that adds, out of what is kept of it."""
    values = [f"{_value(i, one)} AS c{node.keys + i}" for i, one in enumerate(node.aggregates)]
    return f"SELECT {_listed(_names(node.keys), values)}, CAST({weight} AS BIGINT) AS w FROM {source}"


def _value(number: int, one: Aggregation) -> str:
    if one.function == "count":
        return f"n{number}" if one.argument is not None else "n"
    total = f"CAST(s{number} AS {t.engine_type(t.sum_type(one.of))})"
    if one.function == "avg":
        total = _average(f"s{number}", f"n{number}", one)
    return f"CASE WHEN n{number} = 0 THEN NULL ELSE {total} END"


def _average(total: str, count: str, one: Aggregation) -> str:
    if not t.is_decimal(one.of):
        return f"CAST({total} AS DOUBLE) / {count}"
    rows = t.COUNT
    whole = t.sum_type(one.of)
    quotient = decimal_call(
        "divide",
        f"CAST({total} AS {t.engine_type(whole)})",
        whole,
        f"CAST({count} AS DECIMAL(20,0))",
        rows,
        t.quotient_type(whole, rows),
    )
    return f"CAST({quotient} AS {t.engine_type(one.type)})"


def _aggregated(node: Aggregate, rows: str) -> str:
    """GROUP BY of rows without weights."""
    keys = _names(node.keys)
    values = [f"{_call(one)} AS c{node.keys + i}" for i, one in enumerate(node.aggregates)]
    if not values:
        return f"SELECT DISTINCT {_listed(keys)} FROM ({rows})"
    return f"SELECT {_listed(keys, values)} FROM ({rows})" + (f" GROUP BY {_listed(keys)}" if keys else "")


def _call(one: Aggregation) -> str:
    if one.argument is None:
        return "count(*)"
    value = f"{'DISTINCT ' if one.distinct else ''}c{one.argument}"
    if one.function == "avg" and t.is_decimal(one.of):
        return f"CASE WHEN count({value}) = 0 THEN NULL ELSE {_average(f'sum({value})', f'count({value})', one)} END"
    if one.function == "avg":
        value = f"{'DISTINCT ' if one.distinct else ''}CAST(c{one.argument} AS DOUBLE)"
    return f"CAST({one.function}({value}) AS {t.engine_type(one.type)})"
