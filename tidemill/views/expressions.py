"""Spark's expressions → DuckDB's, with Spark's types. Pure.

Only what is known to mean the same is taken; anything else is refused by name. Under ANSI rules, which Spark 4 has by default, an overflow
or a division by zero is an error: it stops the view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidemill.extras import extra
from tidemill.views import types as t
from tidemill.views.plan import Column, Expr, ref
from tidemill.views.refusal import refuse

with extra("views"):
    from sqlglot import exp

_COMPARE = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_ZERO = "division by zero: write try_divide(a, b), or a / nullif(b, 0), where NULL is meant"


def decimal_call(word: str, a: str, da: pa.DataType, b: str, db: pa.DataType, kind: pa.DataType) -> str:
    """Return a call of the engine's own function for an operation of decimals. Its name says all types, see `decimals`."""
    types = "_".join(f"{one.precision}_{one.scale}" for one in (da, db, kind))
    return f"tm_{word}_{types}({a}, {b})"


@dataclass(frozen=True)
class Scope:
    """Which columns an expression sees. `places`: by alias and name, in lower case. `known`: whole expressions that are columns already."""

    columns: tuple[Column, ...]
    places: Mapping[tuple[str, str], int]
    known: Mapping[str, int] = field(default_factory=dict)

    def at(self, number: int) -> Expr:
        """Return a column as an expression."""
        one = self.columns[number]
        return Expr(ref(number), one.type, one.nullable)


def literal_text(text: str) -> str:
    """Return a string literal of the engine. Raises ViewRefused."""
    if "\x00" in text or "\x01" in text or "\x02" in text:
        raise refuse("a string in the query has a control character")
    return "'" + text.replace("'", "''") + "'"


def cast_to(one: Expr, kind: pa.DataType) -> Expr:
    """Return a value as another type; as it is where it has the type."""
    if one.type == kind:
        return one
    return Expr(f"CAST({one.sql} AS {t.engine_type(kind)})", kind, one.nullable)


class Compiler:
    """Compiles the expressions of one scope. Raises ViewRefused for what it does not take."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def compile(self, e: exp.Expr) -> Expr:
        """Return an expression in the engine's words."""
        known = self.scope.known.get(e.sql("spark"))
        if known is not None:
            return self.scope.at(known)
        for kind, method in _METHODS.items():
            if isinstance(e, kind):
                return method(self, e)
        if isinstance(e, exp.Anonymous):
            return self._named(e)
        if isinstance(e, exp.AggFunc):
            raise refuse(f"the aggregate {e.sql('spark')} cannot stand here, or is not one that views have", _AGGREGATES)
        raise refuse(f"{e.sql('spark')}: views do not have {_name_of(e)}", "docs/views.md lists the functions.")

    def condition(self, e: exp.Expr) -> Expr:
        """Return a condition. Raises ViewRefused if it is not boolean."""
        found = self.compile(e)
        if found.type not in (t.BOOLEAN, t.NULL):
            raise refuse(f"{e.sql('spark')} is {t.spark_type(found.type)}, not a condition")
        return cast_to(found, t.BOOLEAN)

    # ---- values

    def column(self, e: exp.Column) -> Expr:
        name = e.name.lower()
        at = self.scope.places.get((e.table.lower(), name))
        if at is None and not e.table:
            found = [place for (_, one), place in self.scope.places.items() if one == name]
            at = found[0] if len(found) == 1 else None
        if at is None:
            raise refuse(f"{e.sql('spark')} is not there, or is neither grouped nor aggregated")
        return self.scope.at(at)

    def literal(self, e: exp.Literal) -> Expr:
        text = e.name
        if e.is_string:
            return Expr(literal_text(text), t.STRING, False, literal=text)
        if "e" in text.lower():
            return Expr(f"CAST({text} AS DOUBLE)", t.DOUBLE, False)
        if "." in text:
            _, digits, exponent = Decimal(text).as_tuple()
            scale = max(0, -int(exponent))
            kind = pa.decimal128(max(len(digits), scale), scale)
            return Expr(f"CAST('{text}' AS {t.engine_type(kind)})", kind, False)
        number = int(text)
        if number >= 1 << 63:
            kind = pa.decimal128(len(text), 0)
            return Expr(f"CAST('{text}' AS {t.engine_type(kind)})", kind, False)
        kind = t.INT if number < 1 << 31 else t.LONG
        return Expr(f"CAST({number} AS {t.engine_type(kind)})", kind, False, digits=len(str(number)))

    def boolean(self, e: exp.Boolean) -> Expr:
        return Expr("true" if e.this else "false", t.BOOLEAN, False)

    def null(self, e: exp.Null) -> Expr:
        return Expr("NULL", t.NULL, True)

    def paren(self, e: exp.Paren) -> Expr:
        found = self.compile(e.this)
        return replace(found, sql=f"({found.sql})")

    # ---- arithmetic

    def negate(self, e: exp.Neg) -> Expr:
        one = self._number(e.this)
        return replace(one, sql=f"(-{one.sql})", literal=None)

    def arithmetic(self, e: exp.Binary) -> Expr:
        if isinstance(e, exp.Add | exp.Sub) and self._has_date(e):
            return self._days(e)
        a, b = self._number(e.left), self._number(e.right)
        return self._operate(_ARITHMETIC[type(e)], a, b, on_zero=f"error('{_ZERO}')")

    def _operate(self, operator: str, a: Expr, b: Expr, on_zero: str) -> Expr:
        nullable = a.nullable or b.nullable
        zero = operator in "/%" and not (b.literal is None and b.digits and b.sql != "CAST(0 AS INTEGER)")
        if t.is_float(a.type) or t.is_float(b.type) or (operator == "/" and not (t.is_decimal(a.type) or t.is_decimal(b.type))):
            single = operator != "/" and t.DOUBLE not in (a.type, b.type) and not t.is_decimal(a.type) and not t.is_decimal(b.type)
            kind = pa.float32() if single else t.DOUBLE
            x, y = cast_to(a, kind).sql, cast_to(b, kind).sql
            text = f"({x} {operator} {y})"
        elif t.is_decimal(a.type) or t.is_decimal(b.type):
            da, db = t.decimal_of(a.type, a.digits), t.decimal_of(b.type, b.digits)
            kind = t.decimal_result(operator, da, db)
            text = self._decimal(operator, cast_to(a, da).sql, cast_to(b, db).sql, da, db, kind)
        else:
            kind = a.type if a.type.bit_width >= b.type.bit_width else b.type
            text = f"({cast_to(a, kind).sql} {operator} {cast_to(b, kind).sql})"
        if zero:
            text = f"CASE WHEN {b.sql} = 0 THEN {on_zero} ELSE {text} END"
            text = f"CAST({text} AS {t.engine_type(kind)})"
            nullable = nullable or on_zero == "NULL"
        return Expr(text, kind, nullable)

    def _decimal(self, operator: str, a: str, b: str, da: pa.DataType, db: pa.DataType, kind: pa.DataType) -> str:
        result = t.engine_type(kind)
        if operator == "/":
            return decimal_call("divide", a, da, b, db, kind)
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

    def integer_division(self, e: exp.IntDiv) -> Expr:
        a, b = self._number(e.this), self._number(e.expression)
        if not (t.is_integer(a.type) and t.is_integer(b.type)):
            raise refuse(f"{e.sql('spark')}: div is for integers here")
        x, y = cast_to(a, t.LONG).sql, cast_to(b, t.LONG).sql
        return Expr(f"CASE WHEN {y} = 0 THEN CAST(error('{_ZERO}') AS BIGINT) ELSE {x} // {y} END", t.LONG, a.nullable or b.nullable)

    def safe_divide(self, e: exp.Expr) -> Expr:
        return self._operate("/", self._number(e.this), self._number(e.expression), on_zero="NULL")

    def _number(self, e: exp.Expr) -> Expr:
        found = self.compile(e)
        if found.type == t.NULL:
            return Expr("CAST(NULL AS INTEGER)", t.INT, True)
        if not t.is_number(found.type):
            raise refuse(f"{e.sql('spark')} is {t.spark_type(found.type)}, not a number", "Use CAST.")
        return found

    def _has_date(self, e: exp.Binary) -> bool:
        return t.DATE in (self.compile(e.left).type, self.compile(e.right).type)

    def _days(self, e: exp.Binary) -> Expr:
        a, b = self.compile(e.left), self.compile(e.right)
        if a.type == t.DATE and t.is_integer(b.type):
            sign = "+" if isinstance(e, exp.Add) else "-"
            return Expr(f"({a.sql} {sign} CAST({b.sql} AS INTEGER))", t.DATE, a.nullable or b.nullable)
        raise refuse(f"{e.sql('spark')}: to a date, views add a number of days only")

    # ---- conditions

    def compare(self, e: exp.Binary) -> Expr:
        a, b = self.same(e.left, e.right, where=e.sql("spark"))
        return Expr(f"({a.sql} {_COMPARE[type(e)]} {b.sql})", t.BOOLEAN, a.nullable or b.nullable)

    def same(self, *all_: exp.Expr, where: str) -> list[Expr]:
        """Return values in the type that is common to them."""
        found = [self.compile(one) for one in all_]
        typed = [one.type for one in found if one.literal is None]
        if typed and t.STRING not in typed:
            found = [self._of_text(one, typed[0], where) if one.literal is not None else one for one in found]
        kind = t.common_type([one.type for one in found], where)
        if kind == t.NULL:
            kind = t.INT
        return [cast_to(one, kind) for one in found]

    def _of_text(self, one: Expr, kind: pa.DataType, where: str) -> Expr:
        """A string literal beside another type: Spark takes it as a value of that type."""
        if kind in (t.DATE, t.DATETIME, t.MOMENT):
            return Expr(f"CAST({one.sql} AS {t.engine_type(kind)})", kind, False)
        if kind == t.NULL:
            return one
        raise refuse(f"{where}: a string beside {t.spark_type(kind)}", "Use CAST, or a literal of the type.")

    def null_safe(self, e: exp.NullSafeEQ) -> Expr:
        a, b = self.same(e.left, e.right, where=e.sql("spark"))
        return Expr(f"({a.sql} IS NOT DISTINCT FROM {b.sql})", t.BOOLEAN, False)

    def logic(self, e: exp.Connector) -> Expr:
        a, b = self.condition(e.left), self.condition(e.right)
        return Expr(f"({a.sql} {'AND' if isinstance(e, exp.And) else 'OR'} {b.sql})", t.BOOLEAN, a.nullable or b.nullable)

    def negation(self, e: exp.Not) -> Expr:
        one = self.condition(e.this)
        return Expr(f"(NOT {one.sql})", t.BOOLEAN, one.nullable)

    def is_(self, e: exp.Is) -> Expr:
        if isinstance(e.expression, exp.Null):
            return Expr(f"({self.compile(e.this).sql} IS NULL)", t.BOOLEAN, False)
        if isinstance(e.expression, exp.Boolean):
            return Expr(f"({self.condition(e.this).sql} IS {'TRUE' if e.expression.this else 'FALSE'})", t.BOOLEAN, False)
        raise refuse(f"{e.sql('spark')}: IS goes with NULL, TRUE and FALSE")

    def in_(self, e: exp.In) -> Expr:
        if e.args.get("query") is not None or e.args.get("unnest") is not None:
            raise refuse(f"{e.sql('spark')}: a subquery stands among the conditions of WHERE joined by AND, not inside others")
        one, *listed = self.same(e.this, *e.expressions, where=e.sql("spark"))
        nullable = any(x.nullable for x in (one, *listed))
        return Expr(f"({one.sql} IN ({', '.join(x.sql for x in listed)}))", t.BOOLEAN, nullable)

    def between(self, e: exp.Between) -> Expr:
        if e.args.get("symmetric"):
            raise refuse(f"{e.sql('spark')}: Spark has no BETWEEN SYMMETRIC")
        one, low, high = self.same(e.this, e.args["low"], e.args["high"], where=e.sql("spark"))
        nullable = one.nullable or low.nullable or high.nullable
        return Expr(f"({one.sql} BETWEEN {low.sql} AND {high.sql})", t.BOOLEAN, nullable)

    def like(self, e: exp.Like) -> Expr:
        one, pattern = self._text(e.this), self.compile(e.expression)
        if pattern.literal is None:
            raise refuse(f"{e.sql('spark')}: the pattern of LIKE is a literal in views")
        text = pattern.literal
        plain = text.replace("\\\\", "").replace("\\%", "").replace("\\_", "")
        if "\\" in plain:
            raise refuse(f"{e.sql('spark')}: in a pattern, a backslash stands before %, _ or itself")
        return Expr(f"({one.sql} LIKE {literal_text(text)} ESCAPE '\\')", t.BOOLEAN, one.nullable)

    # ---- choices

    def case(self, e: exp.Case) -> Expr:
        branches: list[exp.If] = e.args["ifs"]
        default = e.args.get("default") or exp.Null()
        conditions = [exp.EQ(this=e.this.copy(), expression=one.this.copy()) if e.this is not None else one.this for one in branches]
        return self._choose(conditions, [one.args["true"] for one in branches], default, e.sql("spark"))

    def if_(self, e: exp.If) -> Expr:
        return self._choose([e.this], [e.args["true"]], e.args.get("false") or exp.Null(), e.sql("spark"))

    def _choose(self, conditions: list[exp.Expr], values: list[exp.Expr], default: exp.Expr, where: str) -> Expr:
        tests = [self.condition(one).sql for one in conditions]
        *found, last = self.same(*values, default, where=where)
        text = " ".join(f"WHEN {test} THEN {one.sql}" for test, one in zip(tests, found, strict=True))
        return Expr(f"(CASE {text} ELSE {last.sql} END)", last.type, any(one.nullable for one in (*found, last)))

    def coalesce(self, e: exp.Coalesce) -> Expr:
        found = self.same(e.this, *e.expressions, where=e.sql("spark"))
        return Expr(f"coalesce({', '.join(x.sql for x in found)})", found[0].type, all(x.nullable for x in found))

    def nullif(self, e: exp.Nullif) -> Expr:
        one = self.compile(e.this)
        a, b = self.same(e.this, e.expression, where=e.sql("spark"))
        return Expr(f"(CASE WHEN {a.sql} = {b.sql} THEN NULL ELSE {one.sql} END)", one.type, True)

    def greatest(self, e: exp.Expr) -> Expr:
        found = self.same(e.this, *e.expressions, where=e.sql("spark"))
        if any(t.is_float(one.type) for one in found):
            raise refuse(f"{e.sql('spark')}: not for floats")
        word = "greatest" if isinstance(e, exp.Greatest) else "least"
        return Expr(f"{word}({', '.join(x.sql for x in found)})", found[0].type, all(x.nullable for x in found))

    # ---- casts

    def cast(self, e: exp.Cast) -> Expr:
        one, kind = self.compile(e.this), cast_type(e.args["to"])
        if one.literal is not None and kind in (t.DATE, t.DATETIME, t.MOMENT):
            return Expr(f"CAST({one.sql} AS {t.engine_type(kind)})", kind, False)
        if not _castable(one.type, kind):
            raise refuse(f"{e.sql('spark')}: views do not cast {t.spark_type(one.type)} to {t.spark_type(kind)}")
        if one.type == t.BOOLEAN and t.is_number(kind):
            return Expr(f"CAST(CAST({one.sql} AS INTEGER) AS {t.engine_type(kind)})", kind, one.nullable)
        if t.is_decimal(one.type) and t.is_integer(kind):
            return Expr(f"CAST(trunc({one.sql}) AS {t.engine_type(kind)})", kind, one.nullable)
        return cast_to(one, kind)

    # ---- text

    def _text(self, e: exp.Expr) -> Expr:
        found = self.compile(e)
        if found.type == t.NULL:
            return Expr("CAST(NULL AS VARCHAR)", t.STRING, True)
        if found.type != t.STRING:
            raise refuse(f"{e.sql('spark')} is {t.spark_type(found.type)}, not a string", "Use CAST.")
        return found

    def text_function(self, name: str, kind: pa.DataType = t.STRING) -> Callable[[exp.Expr], Expr]:
        def made(e: exp.Expr) -> Expr:
            one = self._text(e.this)
            return Expr(f"{name}({one.sql})", kind, one.nullable)

        return made

    def upper(self, e: exp.Expr) -> Expr:
        return self.text_function("upper" if isinstance(e, exp.Upper) else "lower")(e)

    def length(self, e: exp.Length) -> Expr:
        return cast_to(self.text_function("length", t.LONG)(e), t.INT)

    def trim(self, e: exp.Trim) -> Expr:
        if e.expression is not None:
            raise refuse(f"{e.sql('spark')}: trim takes spaces off, nothing else")
        one = self._text(e.this)
        word = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(e.args.get("position") or "").upper(), "trim")
        return Expr(f"{word}({one.sql}, ' ')", t.STRING, one.nullable)

    def concat(self, e: exp.Expr) -> Expr:
        parts = [e.this, e.expression] if isinstance(e, exp.DPipe) else list(e.expressions)
        found = [self._text(self._shown(one)) for one in parts]
        return Expr(f"({' || '.join(x.sql for x in found)})", t.STRING, any(x.nullable for x in found))

    def _shown(self, e: exp.Expr) -> exp.Expr:
        """Spark's concat shows integers; other types are left to CAST. sqlglot may have wrapped an argument in a COALESCE or a cast."""
        return exp.cast(e.copy(), "string", dialect="spark") if t.is_integer(self.compile(e).type) else e

    def substring(self, e: exp.Substring) -> Expr:
        one = self._text(e.this)
        start, size = e.args.get("start"), e.args.get("length")
        places = [x for x in (start, size) if x is not None]
        if not all(isinstance(x, exp.Literal) and not x.is_string and int(x.name) > 0 for x in places):
            raise refuse(f"{e.sql('spark')}: start and length of substring are numbers above 0 in views")
        return Expr(f"substring({', '.join([one.sql, *(x.name for x in places)])})", t.STRING, one.nullable)

    # ---- numbers and dates

    def absolute(self, e: exp.Abs) -> Expr:
        one = self._number(e.this)
        return replace(one, sql=f"abs({one.sql})", digits=0)

    def rounded(self, e: exp.Round) -> Expr:
        one, places = self._number(e.this), e.args.get("decimals")
        if places is not None and not (isinstance(places, exp.Literal) and places.name.isdecimal()):
            raise refuse(f"{e.sql('spark')}: round takes a number of places that is 0 or more")
        wanted = int(places.name) if places is not None else 0
        if t.is_integer(one.type):
            return one
        if not t.is_decimal(one.type):
            raise refuse(f"{e.sql('spark')}: round is for integers and decimals here", "Use CAST to a decimal.")
        scale = min(wanted, one.type.scale)
        kind = pa.decimal128(min(t.MOST_DIGITS, one.type.precision - one.type.scale + 1 + scale), scale)
        return Expr(f"CAST({one.sql} AS {t.engine_type(kind)})", kind, one.nullable)

    def part_of_date(self, e: exp.Expr) -> Expr:
        inner = e.this
        while isinstance(inner, exp.TsOrDsToDate):
            inner = inner.this
        one = self.compile(inner)
        if one.type not in (t.DATE, t.DATETIME, t.MOMENT):
            raise refuse(f"{e.sql('spark')}: {t.spark_type(one.type)} is not a date")
        return Expr(f"CAST({_PARTS[type(e)]}({one.sql}) AS INTEGER)", t.INT, one.nullable)

    def to_date(self, e: exp.Expr) -> Expr:
        one = self.compile(e.this)
        if one.literal is not None or one.type not in (t.DATE, t.DATETIME, t.MOMENT) or e.args.get("format") is not None:
            raise refuse(f"{e.sql('spark')}: to_date is for dates and timestamps here")
        return cast_to(one, t.DATE)

    def truncated(self, e: exp.Expr) -> Expr:
        one, unit = self.compile(e.this), str(e.args["unit"].name).lower()
        if unit not in ("year", "quarter", "month", "week", "day", "hour", "minute", "second"):
            raise refuse(f"{e.sql('spark')}: the unit is one of year, quarter, month, week, day, hour, minute, second")
        if one.type not in (t.DATETIME, t.MOMENT):
            raise refuse(f"{e.sql('spark')}: date_trunc is for timestamps here")
        return Expr(f"date_trunc('{unit}', {one.sql})", one.type, one.nullable)

    def _named(self, e: exp.Anonymous) -> Expr:
        name = str(e.this).lower()
        if name == "try_divide" and len(e.expressions) == 2:
            a, b = (self._number(one) for one in e.expressions)
            return self._operate("/", a, b, on_zero="NULL")
        raise refuse(f"{e.sql('spark')}: views do not have the function {name}", "docs/views.md lists the functions.")


_PARTS: dict[type[exp.Expr], str] = {exp.Year: "year", exp.Month: "month", exp.Day: "day", exp.Quarter: "quarter"}
_AGGREGATES = "There are sum, count, avg, min, max, bool_and and bool_or, also with DISTINCT and FILTER."


def _optional(*names: str) -> tuple[type[exp.Expr], ...]:
    """Kinds of sqlglot that not each of its versions has."""
    return tuple(getattr(exp, name) for name in names if hasattr(exp, name))


_METHODS: dict[Any, Callable[[Compiler, Any], Expr]] = {
    exp.Column: Compiler.column,
    exp.Literal: Compiler.literal,
    exp.Boolean: Compiler.boolean,
    exp.Null: Compiler.null,
    exp.Paren: Compiler.paren,
    exp.Neg: Compiler.negate,
    _optional("SafeDivide"): Compiler.safe_divide,
    exp.IntDiv: Compiler.integer_division,
    exp.NullSafeEQ: Compiler.null_safe,
    tuple(_ARITHMETIC): Compiler.arithmetic,
    tuple(_COMPARE): Compiler.compare,
    (exp.And, exp.Or): Compiler.logic,
    exp.Not: Compiler.negation,
    exp.Is: Compiler.is_,
    exp.In: Compiler.in_,
    exp.Between: Compiler.between,
    exp.Like: Compiler.like,
    exp.Case: Compiler.case,
    exp.If: Compiler.if_,
    exp.Coalesce: Compiler.coalesce,
    exp.Nullif: Compiler.nullif,
    (exp.Greatest, exp.Least): Compiler.greatest,
    exp.Cast: Compiler.cast,
    (exp.Upper, exp.Lower): Compiler.upper,
    exp.Length: Compiler.length,
    exp.Trim: Compiler.trim,
    (exp.Concat, exp.DPipe): Compiler.concat,
    exp.Substring: Compiler.substring,
    exp.Abs: Compiler.absolute,
    exp.Round: Compiler.rounded,
    tuple(_PARTS): Compiler.part_of_date,
    (exp.TsOrDsToDate, exp.Date): Compiler.to_date,
    exp.TimestampTrunc: Compiler.truncated,
}

_CAST_TYPES = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": t.INT,
    "BIGINT": t.LONG,
    "FLOAT": pa.float32(),
    "DOUBLE": t.DOUBLE,
    "BOOLEAN": t.BOOLEAN,
    "DATE": t.DATE,
    "TIMESTAMP": t.MOMENT,
    "TIMESTAMPTZ": t.MOMENT,
    "TIMESTAMPLTZ": t.MOMENT,
    "TIMESTAMPNTZ": t.DATETIME,
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR"), t.STRING),
}


def cast_type(to: exp.DataType) -> pa.DataType:
    """Return the type that a CAST names. Raises ViewRefused."""
    name = to.this.name if isinstance(to.this, exp.DataType.Type) else str(to.this)
    if name == "DECIMAL":
        given = [int(one.this.name) for one in to.expressions]
        precision, scale = (*given, 0)[:2] if given else (10, 0)
        if precision > t.MOST_DIGITS or scale > precision:
            raise refuse(f"there is no decimal({precision},{scale})")
        return pa.decimal128(precision, scale)
    if name not in _CAST_TYPES or (to.expressions and name != "TEXT"):
        raise refuse(f"CAST to {to.sql('spark')} is not one that views have")
    return _CAST_TYPES[name]


def _castable(one: pa.DataType, to: pa.DataType) -> bool:
    """Whether the engine casts as Spark does."""
    if one in (to, t.NULL):
        return True
    if to == t.STRING:
        return t.is_integer(one) or t.is_decimal(one) or one in (t.BOOLEAN, t.DATE)
    if t.is_number(one) and t.is_number(to):
        return not (t.is_float(one) and not t.is_float(to))
    if one == t.BOOLEAN:
        return t.is_number(to)
    days = (t.DATE, t.DATETIME)
    return (one in days and to in days) or (one == t.MOMENT and to == t.DATE)


def _name_of(e: exp.Expr) -> str:
    return type(e).__name__.lower() if not isinstance(e, exp.Func) else f"the function {e.sql_name().lower()}"
