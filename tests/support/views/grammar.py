"""Random queries out of Spark's grammar and list of functions, whatever a view has of them. Each gives the same rows each time.

What is left out: functions of the clock, of chance and of the order of rows, and orders that leave rows at the edge of a LIMIT equal.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

_TABLES = {
    "orders": (("id", "int"), ("customer", "int"), ("state", "text"), ("weight", "double"), ("day", "date")),
    "order_lines": (("id", "long"), ("order_id", "int"), ("price", "decimal"), ("quantity", "tiny")),
    "events": (("customer", "int"), ("kind", "text"), ("at", "time")),
}
_LITERALS = {
    "int": ("0", "1", "2", "3", "-1"),
    "long": ("0L", "1L", "40L"),
    "tiny": ("0Y", "1Y", "2Y"),
    "text": ("'open'", "''", "'view'", "'o_'", "'it''s'", '"o"', "r'o\\d'"),
    "decimal": ("0.01", "2.50", "0.00", "1.5BD"),
    "double": ("0.15D", "0D", "1e3"),
    "date": ("DATE '2024-01-01'", "DATE '2023-12-31'"),
    "time": ("TIMESTAMP_NTZ '2024-01-01 12:00:00'",),
    "bool": ("true", "false"),
}
_NUMBERS = ("int", "long", "tiny", "decimal", "double")
_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "int": (
        *(
            "abs({int})",
            "CAST({tiny} AS INT) + {int}",
            "{int} * 3",
            "{int} % 7",
            "-{int}",
            "length({text})",
            "year({date})",
            "month({date})",
        ),
        *(
            "day({date})",
            "dayofweek({date})",
            "weekday({date})",
            "weekofyear({date})",
            "dayofyear({date})",
            "quarter({date})",
            "sign({tiny})",
        ),
        *("hour({time})", "datediff({date}, {date})", "instr({text}, {text})", "locate('o', {text})", "ascii({text})", "{tiny} & {tiny}"),
        *("{tiny} | 3Y", "{tiny} ^ {tiny}", "pmod({int}, 5)", "levenshtein({text}, {text})", "bit_count({int})", "nullif({int}, {int})"),
        *("if({bool}, {int}, {int})", "coalesce({int}, {int})", "nvl2({text}, {int}, {int})", "CASE WHEN {bool} THEN {int} ELSE {int} END"),
        *(
            "CASE {int} WHEN 1 THEN {int} END",
            "greatest({int}, {int})",
            "least({int}, {int}, 2)",
            "try_add({int}, {int})",
            "size(array({int}))",
        ),
        *("element_at(array({int}, {int}), 1)", "TRY_CAST({text} AS INT)", "CAST({decimal} AS INT)", "CAST({bool} AS INT)", "round({int})"),
    ),
    "long": ("CAST({int} AS BIGINT)", "{int} div 2", "{long} + {int}", "crc32({text})", "unix_date({date})", "shiftleft({long}, 2)"),
    "tiny": ("CAST(1 AS TINYINT)", "nullif({tiny}, 1Y)"),
    "text": (
        *("upper({text})", "lower({text})", "initcap({text})", "trim({text})", "ltrim({text})", "substring({text}, 2)", "left({text}, 2)"),
        *(
            "right({text}, 2)",
            "concat({text}, {text})",
            "concat_ws('-', {text}, {text})",
            "{text} || {text}",
            "reverse({text})",
            "md5({text})",
        ),
        *("repeat({text}, 2)", "lpad({text}, 6, '.')", "replace({text}, 'o', 'x')", "translate({text}, 'op', 'xy')", "hex({text})"),
        *("split_part({text}, 'e', 1)", "regexp_replace({text}, '[aeo]', '_')", "soundex({text})", "CAST({int} AS STRING)", "sha1({text})"),
        *(
            "CAST({decimal} AS STRING)",
            "CAST({date} AS STRING)",
            "date_format({date}, 'yyyy/MM')",
            "nvl({text}, 'n')",
            "coalesce({text}, 'c')",
        ),
        *(
            "if({bool}, {text}, {text})",
            "nullif({text}, '')",
            "CAST({double} AS STRING)",
            "overlay({text} PLACING 'z' FROM 2)",
            "typeof({int})",
        ),
        *(
            "CASE WHEN {bool} THEN {text} END",
            "concat({text}, {int})",
            "trim(BOTH 'o' FROM {text})",
            "CAST({bool} AS STRING)",
            "bin({int})",
        ),
    ),
    "decimal": (
        *("{decimal} + {decimal}", "{decimal} - 0.5", "{decimal} * {tiny}", "{decimal} / 3", "round({decimal}, 1)", "abs({decimal})"),
        *("-{decimal}", "CAST({int} AS DECIMAL(12,2))", "coalesce({decimal}, 0)", "try_divide({decimal}, {decimal})", "{decimal} % 2"),
        *(
            "greatest({decimal}, {decimal})",
            "floor({decimal})",
            "ceil({decimal}, 1)",
            "if({bool}, {decimal}, {int})",
            "bround({decimal}, 1)",
        ),
    ),
    "double": (
        *("{int} / 4", "sqrt(abs({int}))", "CAST({decimal} AS DOUBLE)", "{double} * 2", "{double} + {int}", "try_divide({int}, {int})"),
        *("pow({tiny}, 2)", "CAST({int} AS DOUBLE)", "nanvl({double}, 1D)", "coalesce({double}, 0D)", "CAST({int} AS FLOAT) + {int}"),
    ),
    "date": (
        *("{date} + 1", "date_sub({date}, 3)", "last_day({date})", "add_months({date}, 1)", "trunc({date}, 'MM')", "to_date({time})"),
        *("CAST({time} AS DATE)", "next_day({date}, 'MON')", "coalesce({date}, DATE '2020-01-01')", "make_date(2024, 1, 2)", "{date} - 2"),
    ),
    "time": ("CAST({date} AS TIMESTAMP_NTZ)", "{time} + INTERVAL 1 HOUR", "coalesce({time}, TIMESTAMP_NTZ '2020-01-01 00:00:00')"),
    "bool": (
        *(
            "{int} = {int}",
            "{int} < {decimal}",
            "{text} LIKE 'o%'",
            "{text} NOT LIKE '%e%'",
            "{text} LIKE 'o!_' ESCAPE '!'",
            "{text} RLIKE 'o.'",
        ),
        *(
            "{text} ILIKE 'O%'",
            "{int} BETWEEN 1 AND {int}",
            "{int} NOT BETWEEN 1 AND 2",
            "{int} IN (1, 2, NULL)",
            "{text} NOT IN ('open', '')",
        ),
        *(
            "{text} IS NULL",
            "{int} IS NOT NULL",
            "NOT ({bool})",
            "{bool} AND {bool}",
            "{bool} OR {bool}",
            "{int} <=> {int}",
            "{text} <> {text}",
        ),
        *(
            "{bool} IS TRUE",
            "{bool} IS NOT FALSE",
            "{double} > 0.1",
            "isnan({double})",
            "{date} >= '2024-01'",
            "{text} = 'it''s'",
            "{int} IS DISTINCT FROM 2",
        ),
        *(
            "startswith({text}, 'o')",
            "contains({text}, 'e')",
            "{text} LIKE ANY ('o%', '%w')",
            "{decimal} = {int}",
            "array_contains(array({int}, 2), 2)",
        ),
        *("exists(array({int}, 1), z -> z > 1)", "{time} < {date}", "{text} > {text}", "{tiny} >= {decimal}", "endswith({text}, {text})"),
    ),
}


@dataclass(frozen=True)
class Named:
    """A column as a query calls it, and what it holds."""

    sql: str
    kind: str


def query(seed: int) -> str:
    """The query of a number."""
    return _Writer(random.Random(seed), seed % 3).query()


class _Writer:
    def __init__(self, chance: random.Random, deepest: int) -> None:
        """`deepest`: how deep calls stand in calls; 0: only conditions are computed, so that steps are what the query is about."""
        self._r, self._deepest = chance, deepest
        self._aliases = 0

    def _of(self, *choices: str) -> str:
        return self._r.choice(choices)

    def _in(self, many: int) -> bool:
        return self._r.randrange(many) == 0

    def query(self) -> str:
        if self._in(8):
            inner, kinds = self._select(1, None)
            names = [Named(f"w.c{i}", kind) for i, kind in enumerate(kinds)]
            return f"WITH w AS ({inner}) {self._over('w', names)}"
        first, kinds = self._select(0, None)
        if not self._in(5):
            return first
        how = self._of("UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL", "MINUS")
        return f"{first} {how} {self._select(1, kinds)[0]}"

    def _over(self, source: str, names: Sequence[Named]) -> str:
        listed = ", ".join(f"{self._expression(names, one.kind, 1)} AS c{i}" for i, one in enumerate(names))
        return f"SELECT {listed} FROM {source} WHERE {self._expression(names, 'bool', 2)}"

    def _select(self, depth: int, kinds: Sequence[str] | None) -> tuple[str, list[str]]:
        source, names = self._from(depth)
        where = f" WHERE {self._where(names, depth)}" if self._in(2) else ""
        if self._in(2):
            return self._grouped(source + where, names, kinds)
        wanted = list(kinds) if kinds is not None else [self._r.choice(names).kind for _ in range(self._r.randint(1, 4))]
        shown = [self._expression(names, kind, 2) for kind in wanted]
        window = ""
        if kinds is None and self._in(4):
            call, kind, window = self._window(names)
            shown.append(call)
            wanted.append(kind)
        distinct = "DISTINCT " if self._in(5) else ""
        listed = ", ".join(f"{one} AS c{i}" for i, one in enumerate(shown))
        text = f"SELECT {distinct}{listed} FROM {source}{where}{window}"
        if kinds is None and depth > 0 and self._in(3):
            order = ", ".join(f"{i + 1}{self._of('', ' DESC', ' NULLS LAST')}" for i in range(len(wanted)))
            text = f"SELECT * FROM ({text}) ORDER BY {order} LIMIT {self._r.randint(0, 4)}{self._of('', ' OFFSET 1')}"
        return text, wanted

    def _alias(self) -> str:
        self._aliases += 1
        return f"a{self._aliases}"

    def _source(self, depth: int) -> tuple[str, list[Named]]:
        alias = self._alias()
        if depth < 2 and self._in(5):
            inner, kinds = self._select(depth + 1, None)
            return f"({inner}) {alias}", [Named(f"{alias}.c{i}", kind) for i, kind in enumerate(kinds)]
        if self._in(12):
            return f"(VALUES (1, 'open'), (2, NULL), (2, 'view')) {alias} (n, t)", [Named(f"{alias}.n", "int"), Named(f"{alias}.t", "text")]
        table = self._of(*_TABLES)
        return f"{table} AS {alias}", [Named(f"{alias}.{name}", kind) for name, kind in _TABLES[table]]

    def _from(self, depth: int) -> tuple[str, list[Named]]:
        text, names = self._source(depth)
        if " AS " not in text[:14] and "VALUES" in text[:8]:
            more, others = self._source(2)
            text, names = f"{text} CROSS JOIN {more}", [*names, *others]
        for _ in range(self._r.choice((0, 0, 1, 1, 2))):
            other, more = self._source(depth + 1)
            how = self._of("JOIN", "JOIN", "LEFT JOIN", "RIGHT OUTER JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
            pairs = [(a, b) for a in names for b in more if a.kind == b.kind or (a.kind in _NUMBERS and b.kind in _NUMBERS)]
            pairs = [(a, b) for a, b in pairs if "double" not in (a.kind, b.kind)]
            if not pairs or self._in(9):
                text, names = f"{text} CROSS JOIN {other}", [*names, *more]
                continue
            a, b = self._r.choice(pairs)
            on = f"{a.sql} {self._of('=', '=', '=', '<=>', '<')} {b.sql}"
            if self._in(3):
                on += f" {self._of('AND', 'AND', 'OR')} {self._expression([*names, *more], 'bool', 1)}"
            text = f"{text} {how} {other} ON {on}"
            names = names if "SEMI" in how or "ANTI" in how else [*names, *more]
        return text, names

    def _where(self, names: Sequence[Named], depth: int) -> str:
        found = self._expression(names, "bool", 2)
        if depth < 2 and self._in(3):
            found = f"({found}) {self._of('AND', 'AND', 'OR')} {self._subquery(names)}"
        return found

    def _subquery(self, names: Sequence[Named]) -> str:
        table = self._of(*_TABLES)
        inner = [Named(f"s.{name}", kind) for name, kind in _TABLES[table]]
        also = self._expression(inner, "bool", 1)
        pairs = [(a, b) for a in names for b in inner if a.kind == b.kind != "double"]
        if not pairs:
            return f"EXISTS (SELECT 1 FROM {table} s WHERE {also})"
        a, b = self._r.choice(pairs)
        return self._of(
            f"{a.sql} IN (SELECT {b.sql} FROM {table} s WHERE {also})",
            f"{a.sql} NOT IN (SELECT {b.sql} FROM {table} s WHERE {also})",
            f"EXISTS (SELECT 1 FROM {table} s WHERE {b.sql} = {a.sql} AND {also})",
            f"NOT EXISTS (SELECT * FROM {table} s WHERE {b.sql} = {a.sql} AND {also})",
            f"EXISTS (SELECT count(*) FROM {table} s WHERE {b.sql} = {a.sql})",
            f"{a.sql} = (SELECT max({b.sql}) FROM {table} s WHERE {also})",
            f"(SELECT count(*) FROM {table} s WHERE {b.sql} = {a.sql}) > 1",
        )

    def _expression(self, names: Sequence[Named], kind: str, depth: int) -> str:
        plain = [one.sql for one in names if one.kind == kind]
        depth = min(depth, self._deepest or (kind == "bool"))
        if depth == 0 or (kind != "bool" and self._in(2)):
            return self._r.choice(plain) if plain and not self._in(6) else self._of(*_LITERALS[kind])
        text = self._of(*_FUNCTIONS[kind])
        while "{" in text:
            before, _, rest = text.partition("{")
            inner, _, after = rest.partition("}")
            text = f"{before}{self._expression(names, inner, depth - 1)}{after}"
        return f"({text})"

    def _window(self, names: Sequence[Named]) -> tuple[str, str, str]:
        part, order = self._r.choice(names), self._r.choice(names)
        number = next((one for one in names if one.kind in ("int", "decimal")), None)
        calls = ["rank()", "dense_rank()", "count(*)", "percent_rank()", "cume_dist()"]
        if number is not None:
            calls += [f"sum({number.sql})", f"min({number.sql})", f"max({number.sql})"]
        over = f"PARTITION BY {part.sql} ORDER BY {order.sql}{self._of('', ' DESC', ' NULLS LAST')}"
        call = self._of(*calls)
        kind = "text" if "cume" in call or "percent" in call else "decimal" if "(*" not in call and "rank" not in call else "int"
        if call == "count(*)" and self._in(2):
            over = f"PARTITION BY {part.sql}"
        if kind == "text":
            call = f"{call} OVER ({over})"
            return f"CAST(round({call}, 3) AS STRING)", "text", ""
        if self._in(3):
            return f"{call} OVER wd", kind, f" WINDOW wd AS ({over})"
        return f"{call} OVER ({over})", kind, ""

    def _grouped(self, source: str, names: Sequence[Named], kinds: Sequence[str] | None) -> tuple[str, list[str]]:
        keys = list(
            dict.fromkeys(self._r.choice([one for one in names if one.kind != "double"] or names).sql for _ in range(self._r.randint(0, 2)))
        )
        kinds_of = {one.sql: one.kind for one in names}
        shown = [(key, kinds_of[key]) for key in keys] if kinds is None else []
        wanted = (
            list(kinds) if kinds is not None else [self._of("int", "long", "decimal", "text", "date") for _ in range(self._r.randint(1, 3))]
        )
        shown += [(self._call(names, kind), kind) for kind in wanted]
        group = ""
        if keys:
            group = " GROUP BY " + self._of(*(", ".join(keys),) * 6, *(f"{how}({', '.join(keys)})" for how in ("ROLLUP", "CUBE")))
        having = f" HAVING {self._call(names, 'long')} > {self._r.randint(0, 2)}" if keys and self._in(4) else ""
        listed = ", ".join(f"{one} AS c{i}" for i, (one, _) in enumerate(shown))
        return f"SELECT {listed} FROM {source}{group}{having}", [kind for _, kind in shown]

    def _call(self, names: Sequence[Named], kind: str) -> str:
        inner = self._expression(names, kind, 1)
        only = f" FILTER (WHERE {self._expression(names, 'bool', 1)})" if self._in(4) else ""
        if kind == "long":
            some = self._expression(names, self._of("int", "text", "date", "decimal"), 1)
            text = self._of(
                "count(*)",
                f"count({some})",
                f"count(DISTINCT {some})",
                f"sum({self._expression(names, 'int', 1)})",
                f"count_if({some} IS NULL)",
            )
            return text + only
        if kind == "decimal" and self._in(2):
            return self._of(f"sum({inner})", f"avg({inner})", f"sum(DISTINCT {inner})") + only
        if kind == "int" and self._in(5):
            return f"bit_or({inner}){only}"
        return self._of(f"min({inner})", f"max({inner})") + only
