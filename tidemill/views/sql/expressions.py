"""Spark's expressions → DuckDB's, with the types that Spark has given them. Pure.

`_METHODS` is the whole list: what is not there, or has an argument that its method does not read, is NotEmbedded. Each line is there
because runs against Spark found it equal (tests/views/test_expressions.py). Under ANSI rules an overflow or a division by zero is an error:
it stops the view.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidemill.views import types as t
from tidemill.views.decimals import decimal_call
from tidemill.views.plan import Column, Expr, ref
from tidemill.views.sql.tree import Fields, NotEmbedded, Other, Tree, Type, same, short

_ZERO = "division by zero: write try_divide(a, b), or a / nullif(b, 0), where NULL is meant"


@dataclass(frozen=True)
class Scope:
    """What an expression sees. `places`: the column of each attribute. `known`: whole expressions that are columns already."""

    columns: tuple[Column, ...]
    places: Mapping[int, int]
    known: Mapping[Any, int] = field(default_factory=dict)

    def at(self, number: int) -> Expr:
        """Return a column as an expression."""
        one = self.columns[number]
        return Expr(ref(number), one.type, one.nullable)


def literal_text(text: str) -> str:
    """Return a string literal of the engine."""
    if any(one < " " for one in text):
        raise NotEmbedded("a string with a control character")
    return "'" + text.replace("'", "''") + "'"


def cast_to(one: Expr, kind: pa.DataType) -> Expr:
    """Return a value as another type; as it is where it has the type."""
    if one.type == kind:
        return one
    return Expr(f"CAST({one.sql} AS {t.engine_type(kind)})", kind, one.nullable)


def type_of(name: str) -> pa.DataType:
    """Return the type that Spark calls by this name."""
    found = t.of_spark(name)
    if found is None:
        raise NotEmbedded(f"the type {name}")
    return found


def is_ansi(given: Any) -> bool:
    """Whether errors are errors, as a field of Spark's says."""
    if isinstance(given, Tree):
        with Fields(given) as fields:
            fields.is_("allowDecimalPrecisionLoss", True)
            return is_ansi(fields.any("evalMode"))
    if not isinstance(given, Other) or given.text not in ("ANSI", "TRY"):
        raise NotEmbedded("an operation that is not ANSI's")
    return given.text == "ANSI"


class Compiler:
    """Compiles the expressions of one scope. Raises NotEmbedded."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def compile(self, tree: Tree) -> Expr:
        """Return an expression in the engine's words."""
        known = self.scope.known.get(same(tree)) if self.scope.known else None
        if known is not None:
            return self.scope.at(known)
        if tree.kind == "expressions.AttributeReference":
            place = self.scope.places.get(tree.fields["other0"].number)
            if place is None:
                raise NotEmbedded(f"the column {tree.fields['name']}, which stands elsewhere")
            return self.scope.at(place)
        method = _METHODS.get(tree.kind)
        if method is None:
            raise NotEmbedded(short(tree))
        kind = type_of(tree.type)
        with Fields(tree) as fields:
            found = method(self, fields, kind)
        if found.type != kind:
            raise NotEmbedded(f"{short(tree)} of {t.spark_type(found.type)}, which is {tree.type}")
        return found

    def condition(self, tree: Tree) -> Expr:
        """Return a condition."""
        found = self.compile(tree)
        if found.type != t.BOOLEAN:
            raise NotEmbedded(f"a condition that is {t.spark_type(found.type)}")
        return found

    # ---- values

    def alias(self, f: Fields, kind: pa.DataType) -> Expr:
        f.any("name"), f.any("other0"), f.any("other2"), f.any("other3")
        return self.compile(f.tree("child"))

    def literal(self, f: Fields, kind: pa.DataType) -> Expr:
        value = f.any("value")
        if f.any("dataType") != Type(t.spark_type(kind)):
            raise NotEmbedded("a literal of two types")
        if value is None:
            return Expr("NULL" if kind == t.NULL else f"CAST(NULL AS {t.engine_type(kind)})", kind)
        if kind == t.STRING and isinstance(value, str):
            return Expr(literal_text(value), kind, False, literal=value)
        return Expr(_literal(value, kind), kind, False)

    # ---- arithmetic

    def _two(self, f: Fields, left: str = "left", right: str = "right") -> tuple[Expr, Expr]:
        return self.compile(f.tree(left)), self.compile(f.tree(right))

    def negate(self, f: Fields, kind: pa.DataType) -> Expr:
        f.is_("failOnError", True)
        one = self._number(f.tree("child"))
        return Expr(f"(-{one.sql})", kind, one.nullable)

    def positive(self, f: Fields, kind: pa.DataType) -> Expr:
        return self._number(f.tree("child"))

    def absolute(self, f: Fields, kind: pa.DataType) -> Expr:
        f.is_("failOnError", True)
        one = self._number(f.tree("child"))
        return Expr(f"abs({one.sql})", kind, one.nullable)

    def _number(self, tree: Tree) -> Expr:
        found = self.compile(tree)
        if not t.is_number(found.type):
            raise NotEmbedded(f"arithmetic of {t.spark_type(found.type)}")
        return found

    def arithmetic(self, f: Fields, kind: pa.DataType) -> Expr:
        operator = _ARITHMETIC[f.tree_.kind]
        ansi = is_ansi(f.any("evalContext"))
        a, b = self._number(f.tree("left")), self._number(f.tree("right"))
        nullable = a.nullable or b.nullable
        if not ansi and (operator != "/" or not (t.is_float(kind) or t.is_decimal(kind))):
            raise NotEmbedded(f"try_… of {t.spark_type(kind)}")
        if t.is_decimal(kind):
            if not (t.is_decimal(a.type) and t.is_decimal(b.type)):
                raise NotEmbedded(f"arithmetic of {t.spark_type(a.type)} and {t.spark_type(b.type)}")
            text = self._decimal(operator if ansi else "try_divide", a.sql, b.sql, a.type, b.type, kind)
        elif a.type == b.type == kind:
            text = f"({a.sql} {operator} {b.sql})"
        else:
            raise NotEmbedded(f"arithmetic of {t.spark_type(a.type)} and {t.spark_type(b.type)}")
        if operator in ("/", "%"):
            on_zero = f"CAST(error('{_ZERO}') AS {t.engine_type(kind)})" if ansi else "NULL"
            minus = f" WHEN {b.sql} = -1 THEN 0" if operator == "%" and t.is_integer(kind) else ""
            text = f"CASE WHEN {a.sql} IS NULL OR {b.sql} IS NULL THEN NULL WHEN {b.sql} = 0 THEN {on_zero}{minus} ELSE {text} END"
            text, nullable = f"CAST({text} AS {t.engine_type(kind)})", nullable or not ansi
        return Expr(text, kind, nullable)

    def _decimal(self, operator: str, a: str, b: str, da: pa.DataType, db: pa.DataType, kind: pa.DataType) -> str:
        result = t.engine_type(kind)
        if operator in ("/", "try_divide"):
            return decimal_call("divide" if operator == "/" else operator, a, da, b, db, kind)
        if operator in "+-":
            whole = max(da.precision - da.scale, db.precision - db.scale) + max(da.scale, db.scale) + 1
            if whole <= t.MOST_DIGITS:
                return f"CAST(CAST({a} AS {result}) {operator} CAST({b} AS {result}) AS {result})"
        elif operator == "*" and da.precision + db.precision <= t.MOST_DIGITS:
            return f"CAST({a} * {b} AS {result})"
        elif operator == "%" and max(da.precision - da.scale, db.precision - db.scale) + max(da.scale, db.scale) <= t.MOST_DIGITS:
            scale = max(da.scale, db.scale)
            both = t.engine_type(pa.decimal128(max(da.precision - da.scale, db.precision - db.scale) + scale, scale))
            return f"CAST(CAST({a} AS {both}) % CAST({b} AS {both}) AS {result})"
        word = {"+": "add", "-": "subtract", "*": "multiply", "%": "remainder"}[operator]
        return decimal_call(word, a, da, b, db, kind)

    def integer_division(self, f: Fields, kind: pa.DataType) -> Expr:
        if not is_ansi(f.any("evalContext")):
            raise NotEmbedded("try_… of div")
        a, b = self._two(f)
        if not (t.is_integer(a.type) and a.type == b.type == kind):
            raise NotEmbedded(f"div of {t.spark_type(a.type)}")
        zero = f"CAST(error('{_ZERO}') AS BIGINT)"
        none = f"{a.sql} IS NULL OR {b.sql} IS NULL"
        text = f"CASE WHEN {none} THEN NULL WHEN {b.sql} = 0 THEN {zero} WHEN {b.sql} = -1 THEN -{a.sql} ELSE {a.sql} // {b.sql} END"
        return Expr(text, kind, a.nullable or b.nullable)

    def rounded(self, f: Fields, kind: pa.DataType) -> Expr:
        f.is_("ansiEnabled", True)
        one, scale = self._number(f.tree("child")), _whole(f.tree("scale"))
        if t.is_integer(one.type) and scale >= 0:
            return one
        if not t.is_decimal(one.type) or scale < 0:
            raise NotEmbedded(f"round of {t.spark_type(one.type)} to {scale} places")
        return cast_to(one, kind)

    # ---- conditions

    def compare(self, f: Fields, kind: pa.DataType) -> Expr:
        a, b = self._two(f)
        if a.type != b.type or (a.type not in _COMPARED and not t.is_number(a.type)):
            raise NotEmbedded(f"a comparison of {t.spark_type(a.type)} and {t.spark_type(b.type)}")
        operator = _COMPARE[f.tree_.kind]
        return Expr(f"({a.sql} {operator} {b.sql})", t.BOOLEAN, f.tree_.kind != _SAFE and (a.nullable or b.nullable))

    def logic(self, f: Fields, kind: pa.DataType) -> Expr:
        a, b = self.condition(f.tree("left")), self.condition(f.tree("right"))
        word = "AND" if f.tree_.kind == "expressions.And" else "OR"
        if word == "OR" and "false" in (a.sql, b.sql):
            return b if a.sql == "false" else a
        return Expr(f"({a.sql} {word} {b.sql})", t.BOOLEAN, a.nullable or b.nullable)

    def negation(self, f: Fields, kind: pa.DataType) -> Expr:
        one = self.condition(f.tree("child"))
        return Expr(f"(NOT {one.sql})", t.BOOLEAN, one.nullable)

    def is_null(self, f: Fields, kind: pa.DataType) -> Expr:
        one = self.compile(f.tree("child"))
        if not one.nullable:
            return Expr("false", t.BOOLEAN, False)
        return Expr(f"({one.sql} IS NULL)", t.BOOLEAN, False)

    def is_not_null(self, f: Fields, kind: pa.DataType) -> Expr:
        return Expr(f"({self.compile(f.tree('child')).sql} IS NOT NULL)", t.BOOLEAN, False)

    def is_nan(self, f: Fields, kind: pa.DataType) -> Expr:
        return Expr(f"coalesce(isnan({self._number(f.tree('child')).sql}), false)", t.BOOLEAN, False)

    def in_(self, f: Fields, kind: pa.DataType) -> Expr:
        one, listed = self.compile(f.tree("value")), [self.compile(x) for x in f.trees("list")]
        if not listed or any(x.type != one.type for x in listed) or (one.type not in _COMPARED and not t.is_number(one.type)):
            raise NotEmbedded("IN over several types")
        return Expr(f"({one.sql} IN ({', '.join(x.sql for x in listed)}))", t.BOOLEAN, any(x.nullable for x in (one, *listed)))

    def like(self, f: Fields, kind: pa.DataType) -> Expr:
        f.is_("escapeChar", "\\")
        one, pattern = self._text(f.tree("left")), self.compile(f.tree("right"))
        if pattern.literal is None:
            raise NotEmbedded("LIKE with a pattern that is computed")
        plain = pattern.literal.replace("\\\\", "").replace("\\%", "").replace("\\_", "")
        if "\\" in plain:
            raise NotEmbedded("LIKE with a backslash that is not before %, _ or itself")
        return Expr(f"({one.sql} LIKE {literal_text(pattern.literal)} ESCAPE '\\')", t.BOOLEAN, one.nullable)

    def part_of_text(self, f: Fields, kind: pa.DataType) -> Expr:
        a, b = self._text(f.tree("left")), self._text(f.tree("right"))
        return Expr(f"{_PARTS_OF_TEXT[f.tree_.kind]}({a.sql}, {b.sql})", t.BOOLEAN, a.nullable or b.nullable)

    # ---- choices

    def case(self, f: Fields, kind: pa.DataType) -> Expr:
        branches = []
        for pair in f.trees("branches"):
            with Fields(pair) as both:
                branches.append((self.condition(both.tree("_1")), self.compile(both.tree("_2"))))
        given = f.any("elseValue")
        last = self.compile(given) if given is not None else Expr(f"CAST(NULL AS {t.engine_type(kind)})", kind)
        return self._choose(branches, last, kind)

    def if_(self, f: Fields, kind: pa.DataType) -> Expr:
        test = self.condition(f.tree("predicate"))
        return self._choose([(test, self.compile(f.tree("trueValue")))], self.compile(f.tree("falseValue")), kind)

    def _choose(self, branches: list[tuple[Expr, Expr]], last: Expr, kind: pa.DataType) -> Expr:
        values = [*(value for _, value in branches), last]
        if any(one.type not in (kind, t.NULL) for one in values):
            raise NotEmbedded("a choice of several types")
        text = " ".join(f"WHEN {test.sql} THEN {cast_to(value, kind).sql}" for test, value in branches)
        return Expr(f"(CASE {text} ELSE {cast_to(last, kind).sql} END)", kind, any(one.nullable for one in values))

    def coalesce(self, f: Fields, kind: pa.DataType) -> Expr:
        found = [self.compile(x) for x in f.trees("children")]
        if any(one.type not in (kind, t.NULL) for one in found):
            raise NotEmbedded("coalesce of several types")
        return Expr(f"coalesce({', '.join(cast_to(x, kind).sql for x in found)})", kind, all(x.nullable for x in found))

    def greatest(self, f: Fields, kind: pa.DataType) -> Expr:
        found = [self.compile(x) for x in f.trees("children")]
        if t.is_float(kind) or any(one.type != kind for one in found) or (kind not in _COMPARED and not t.is_number(kind)):
            raise NotEmbedded(f"{short(f.tree_)} of {t.spark_type(kind)}")
        return Expr(f"{short(f.tree_).lower()}({', '.join(x.sql for x in found)})", kind, all(x.nullable for x in found))

    # ---- casts

    def cast(self, f: Fields, kind: pa.DataType) -> Expr:
        f.any("dataType")
        f.is_("timeZoneId", "UTC", None)
        one, ansi = self.compile(f.tree("child")), is_ansi(f.any("evalMode"))
        if one.type == kind:
            return one
        if not _castable(one.type, kind) or (not ansi and not _always(one.type, kind)):
            raise NotEmbedded(f"CAST of {t.spark_type(one.type)} to {t.spark_type(kind)}{'' if ansi else ', as try_cast'}")
        if one.type == t.BOOLEAN and t.is_number(kind):
            return Expr(f"CAST(CAST({one.sql} AS INTEGER) AS {t.engine_type(kind)})", kind, one.nullable)
        if t.is_decimal(one.type) and t.is_integer(kind):
            return Expr(f"CAST(trunc({one.sql}) AS {t.engine_type(kind)})", kind, one.nullable)
        return cast_to(one, kind)

    # ---- text

    def _text(self, tree: Tree) -> Expr:
        found = self.compile(tree)
        if found.type != t.STRING:
            raise NotEmbedded(f"{t.spark_type(found.type)} as text")
        return found

    def text_function(self, f: Fields, kind: pa.DataType) -> Expr:
        one = self._text(f.tree("child"))
        return Expr(f"CAST({_TEXT[f.tree_.kind]}({one.sql}) AS {t.engine_type(kind)})", kind, one.nullable)

    def trim(self, f: Fields, kind: pa.DataType) -> Expr:
        one = self._text(f.tree("srcStr"))
        if f.any("trimStr") is not None:
            raise NotEmbedded("trim of anything but spaces")
        return Expr(f"{_TRIMS[f.tree_.kind]}({one.sql}, ' ')", t.STRING, one.nullable)

    def concat(self, f: Fields, kind: pa.DataType) -> Expr:
        found = [self._text(x) for x in f.trees("children")]
        return Expr(f"({' || '.join(x.sql for x in found)})", t.STRING, any(x.nullable for x in found))

    def substring(self, f: Fields, kind: pa.DataType) -> Expr:
        one, start, size = self._text(f.tree("str")), _whole(f.tree("pos")), _whole(f.tree("len"))
        if start < 1 or size < 1:
            raise NotEmbedded("substring that does not begin and end above 0")
        return Expr(f"substring({one.sql}, {start}, {size})", t.STRING, one.nullable)

    # ---- dates

    def part_of_date(self, f: Fields, kind: pa.DataType) -> Expr:
        one = self.compile(f.tree("child"))
        if one.type != t.DATE:
            raise NotEmbedded(f"{short(f.tree_)} of {t.spark_type(one.type)}")
        return Expr(f"CAST({_PARTS[f.tree_.kind]}({one.sql}) AS INTEGER)", t.INT, one.nullable)

    def part_of_time(self, f: Fields, kind: pa.DataType) -> Expr:
        f.is_("timeZoneId", "UTC", None)
        one = self.compile(f.tree("child"))
        if one.type not in (t.DATETIME, t.MOMENT):
            raise NotEmbedded(f"{short(f.tree_)} of {t.spark_type(one.type)}")
        return Expr(f"CAST({_PARTS_OF_TIME[f.tree_.kind]}({one.sql}) AS INTEGER)", t.INT, one.nullable)

    def days(self, f: Fields, kind: pa.DataType) -> Expr:
        one, days = self._two(f, "startDate", "days")
        if one.type != t.DATE or not t.is_integer(days.type):
            raise NotEmbedded("days that are not whole")
        sign = "+" if f.tree_.kind == "expressions.DateAdd" else "-"
        return Expr(f"({one.sql} {sign} CAST({days.sql} AS INTEGER))", t.DATE, one.nullable or days.nullable)

    def days_between(self, f: Fields, kind: pa.DataType) -> Expr:
        one, other = self._two(f, "endDate", "startDate")
        if one.type != t.DATE or other.type != t.DATE:
            raise NotEmbedded("datediff of times")
        return Expr(f"CAST(({one.sql} - {other.sql}) AS INTEGER)", t.INT, one.nullable or other.nullable)

    def truncated(self, f: Fields, kind: pa.DataType) -> Expr:
        f.is_("timeZoneId", "UTC", None)
        unit, one = self.compile(f.tree("format")), self.compile(f.tree("timestamp"))
        word = _UNITS.get((unit.literal or "").lower())
        if word is None or one.type != t.MOMENT:
            raise NotEmbedded(f"date_trunc to {unit.literal or 'what is computed'}")
        return Expr(f"CAST(date_trunc('{word}', {one.sql}) AS TIMESTAMPTZ)", t.MOMENT, one.nullable)


def _whole(tree: Tree) -> int:
    """The number that a literal is."""
    found = tree.fields.get("value")
    if tree.kind != "expressions.Literal" or not isinstance(found, int) or isinstance(found, bool):
        raise NotEmbedded(f"{short(tree)} where a number is needed")
    return found


def _literal(value: Any, kind: pa.DataType) -> str:
    text = value.text if isinstance(value, Other) else value
    name = t.engine_type(kind)
    if kind == t.BOOLEAN:
        return "true" if value else "false"
    if t.is_integer(kind) and isinstance(value, int):
        return f"CAST({value} AS {name})"
    if (t.is_decimal(kind) or t.is_float(kind)) and isinstance(text, str):
        return f"CAST('{text}' AS {name})"
    try:
        if kind == t.DATE and isinstance(value, int):
            return f"DATE '{datetime.date(1970, 1, 1) + datetime.timedelta(days=value)}'"
        if kind in (t.DATETIME, t.MOMENT) and isinstance(value, int):
            moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=value)
            return f"CAST('{moment.isoformat(sep=' ')}{'+00' if kind == t.MOMENT else ''}' AS {name})"
    except OverflowError:
        raise NotEmbedded("a literal before the year 1 or behind 9999") from None
    raise NotEmbedded(f"a literal of {t.spark_type(kind)}")


def _castable(one: pa.DataType, to: pa.DataType) -> bool:
    """Whether the engine casts as Spark does."""
    if one == t.NULL:
        return True
    if to == t.STRING:
        return t.is_integer(one) or t.is_decimal(one) or one in (t.BOOLEAN, t.DATE)
    if t.is_float(to) and t.is_decimal(one):
        return bool(to == t.DOUBLE and one.precision <= 15)
    if t.is_number(one) and t.is_number(to):
        return not t.is_float(one) or bool(one == pa.float32() and to == t.DOUBLE)
    if one == t.BOOLEAN:
        return t.is_number(to)
    return (one, to) in ((t.DATE, t.DATETIME), (t.DATETIME, t.DATE), (t.MOMENT, t.DATE), (t.DATE, t.MOMENT), (t.DATETIME, t.MOMENT))


def _always(one: pa.DataType, to: pa.DataType) -> bool:
    """Whether a cast cannot fail."""
    return one == t.NULL or to == t.STRING or (one == t.DATE and to in (t.DATETIME, t.MOMENT))


_COMPARED = {t.STRING, t.BOOLEAN, t.DATE, t.DATETIME, t.MOMENT, pa.binary()}
_SAFE = "expressions.EqualNullSafe"
_COMPARE = {
    "expressions.EqualTo": "=",
    "expressions.LessThan": "<",
    "expressions.LessThanOrEqual": "<=",
    "expressions.GreaterThan": ">",
    "expressions.GreaterThanOrEqual": ">=",
    _SAFE: "IS NOT DISTINCT FROM",
}
_ARITHMETIC = {
    "expressions.Add": "+",
    "expressions.Subtract": "-",
    "expressions.Multiply": "*",
    "expressions.Divide": "/",
    "expressions.Remainder": "%",
}
_PARTS = {
    "expressions.Year": "year",
    "expressions.Quarter": "quarter",
    "expressions.Month": "month",
    "expressions.DayOfMonth": "day",
    "expressions.DayOfYear": "dayofyear",
}
_PARTS_OF_TIME = {"expressions.Hour": "hour", "expressions.Minute": "minute", "expressions.Second": "second"}
_PARTS_OF_TEXT = {"expressions.StartsWith": "starts_with", "expressions.EndsWith": "suffix", "expressions.Contains": "contains"}
_TEXT = {"expressions.Length": "length"}
_TRIMS = {"expressions.StringTrim": "trim", "expressions.StringTrimLeft": "ltrim", "expressions.StringTrimRight": "rtrim"}
_UNITS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    **dict.fromkeys(("month", "mon", "mm"), "month"),
    **dict.fromkeys(("day", "dd"), "day"),
    **{name: name for name in ("quarter", "week", "hour", "minute", "second")},
}

_METHODS: dict[str, Callable[[Compiler, Fields, pa.DataType], Expr]] = {
    "expressions.Alias": Compiler.alias,
    "expressions.Literal": Compiler.literal,
    "expressions.UnaryMinus": Compiler.negate,
    "expressions.UnaryPositive": Compiler.positive,
    "expressions.Abs": Compiler.absolute,
    **dict.fromkeys(_ARITHMETIC, Compiler.arithmetic),
    "expressions.IntegralDivide": Compiler.integer_division,
    "expressions.Round": Compiler.rounded,
    **dict.fromkeys(_COMPARE, Compiler.compare),
    **dict.fromkeys(("expressions.And", "expressions.Or"), Compiler.logic),
    "expressions.Not": Compiler.negation,
    "expressions.IsNull": Compiler.is_null,
    "expressions.IsNotNull": Compiler.is_not_null,
    "expressions.IsNaN": Compiler.is_nan,
    "expressions.In": Compiler.in_,
    "expressions.Like": Compiler.like,
    **dict.fromkeys(_PARTS_OF_TEXT, Compiler.part_of_text),
    "expressions.CaseWhen": Compiler.case,
    "expressions.If": Compiler.if_,
    "expressions.Coalesce": Compiler.coalesce,
    **dict.fromkeys(("expressions.Greatest", "expressions.Least"), Compiler.greatest),
    "expressions.Cast": Compiler.cast,
    **dict.fromkeys(_TEXT, Compiler.text_function),
    **dict.fromkeys(_TRIMS, Compiler.trim),
    "expressions.Concat": Compiler.concat,
    "expressions.Substring": Compiler.substring,
    **dict.fromkeys(_PARTS, Compiler.part_of_date),
    **dict.fromkeys(_PARTS_OF_TIME, Compiler.part_of_time),
    **dict.fromkeys(("expressions.DateAdd", "expressions.DateSub"), Compiler.days),
    "expressions.DateDiff": Compiler.days_between,
    "expressions.TruncTimestamp": Compiler.truncated,
}
