"""Expressions of the playground's SQL subset: parsing, printing as TiDB restores them, evaluating."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from tidemill.errors import SqlError
from tidemill.playground.sql.parse.ast import (
    Binary,
    Call,
    ColumnRef,
    DefaultValue,
    Expr,
    InList,
    IsNull,
    Literal,
    NewValue,
    Unary,
    Value,
)
from tidemill.playground.sql.parse.cursor import Cursor
from tidemill.tidb.names import quote_name
from tidemill.tidb.sql.lexer import Kind

# Parsing: OR, AND, NOT, comparisons, + -, * / %, unary, primary.

_COMPARISONS = ("=", "<=>", "<>", "!=", "<=", ">=", "<", ">")
_NOW = ("NOW", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP")


def parse_expression(cursor: Cursor) -> Expr:
    """One expression. Raises SqlError."""
    simple = _lone_literal(cursor)
    if simple is not None:
        return simple
    left = _conjunction(cursor)
    while cursor.accept_any("OR", "||"):
        left = Binary("or", left, _conjunction(cursor))
    return left


def _lone_literal(cursor: Cursor) -> Literal | None:
    """The quick way for what most values are: a number or string before a comma or parenthesis."""
    kind = cursor.token.kind
    if kind not in (Kind.INT, Kind.STRING, Kind.DECIMAL) or cursor.peek().text not in (",", ")") or cursor.peek().kind is not Kind.OPERATOR:
        return None
    text = cursor.advance().text
    return Literal(int(text) if kind is Kind.INT else text if kind is Kind.STRING else Decimal(text))


def _conjunction(cursor: Cursor) -> Expr:
    left = _negation(cursor)
    while cursor.accept_any("AND", "&&"):
        left = Binary("and", left, _negation(cursor))
    return left


def _negation(cursor: Cursor) -> Expr:
    if cursor.accept_any("NOT", "!"):
        return Unary("not", _negation(cursor))
    return _comparison(cursor)


def _comparison(cursor: Cursor) -> Expr:
    left = _sum(cursor)
    while True:
        sign = cursor.accept_any(*_COMPARISONS)
        if sign:
            left = Binary("<>" if sign == "!=" else sign, left, _sum(cursor))
            continue
        if cursor.accept("IS"):
            negated = cursor.accept("NOT")
            cursor.expect("NULL")
            left = Unary("not", IsNull(left)) if negated else IsNull(left)
            continue
        negated = cursor.at("NOT", "IN") or cursor.at("NOT", "BETWEEN")
        if negated:
            cursor.advance()
        if cursor.accept("IN"):
            found: Expr = InList(left, cursor.in_parentheses(lambda: parse_expression(cursor)))
        elif cursor.accept("BETWEEN"):
            low = _sum(cursor)
            cursor.expect("AND")
            found = Binary("and", Binary(">=", left, low), Binary("<=", left, _sum(cursor)))
        else:
            return left
        left = Unary("not", found) if negated else found


def _sum(cursor: Cursor) -> Expr:
    left = _product(cursor)
    while sign := cursor.accept_any("+", "-"):
        left = Binary(sign, left, _product(cursor))
    return left


def _product(cursor: Cursor) -> Expr:
    left = _unary(cursor)
    while sign := cursor.accept_any("*", "/", "%", "DIV", "MOD"):
        left = Binary({"DIV": "div", "MOD": "%"}.get(sign, sign), left, _unary(cursor))
    return left


def _unary(cursor: Cursor) -> Expr:
    if cursor.accept("-"):
        operand = _unary(cursor)
        if isinstance(operand, Literal) and isinstance(operand.value, (int, float, Decimal)):
            return Literal(-operand.value)
        return Unary("-", operand)
    if cursor.accept("+"):
        return _unary(cursor)
    return _primary(cursor)


def _primary(cursor: Cursor) -> Expr:
    token = cursor.token
    match token.kind:
        case Kind.INTRODUCER:
            cursor.advance()
            return _primary(cursor)
        case Kind.INT:
            return Literal(int(cursor.advance().text))
        case Kind.DECIMAL:
            return Literal(Decimal(cursor.advance().text))
        case Kind.FLOAT:
            return Literal(float(cursor.advance().text))
        case Kind.HEX:
            return Literal(bytes.fromhex(cursor.advance().text))
        case Kind.BIT:
            text = cursor.advance().text
            return Literal(int(text or "0", 2).to_bytes(max(1, (len(text) + 7) // 8), "big"))
        case Kind.STRING:
            return Literal(_strings(cursor))
    if cursor.accept("("):
        inner = parse_expression(cursor)
        cursor.expect(")")
        return inner
    return _word(cursor)


def _strings(cursor: Cursor) -> str:
    """Adjacent strings are one."""
    text = cursor.string()
    while cursor.token.kind is Kind.STRING:
        text += cursor.string()
    return text


def _word(cursor: Cursor) -> Expr:
    for word, value in (("NULL", None), ("TRUE", 1), ("FALSE", 0)):
        if cursor.accept(word):
            return Literal(value)
    if cursor.at("DEFAULT") and not cursor.at("DEFAULT", "("):
        cursor.advance()
        return DefaultValue()
    if cursor.at("VALUES", "("):
        cursor.advance()
        return NewValue(cursor.in_parentheses(cursor.name)[0])
    if cursor.accept_any(*_NOW):
        fsp: tuple[Expr, ...] = ()
        if cursor.accept("("):
            fsp = () if cursor.at(")") else (Literal(cursor.integer()),)
            cursor.expect(")")
        return Call("now", fsp)
    if cursor.peek().kind is Kind.OPERATOR and cursor.peek().text == "(" and cursor.token.kind in (Kind.WORD, Kind.NAME):
        name = cursor.advance().text.lower()
        if cursor.accept("(", ")"):
            return Call(name, ())
        if name == "count" and cursor.accept("(", "*", ")"):
            return Call(name, ())
        return Call(name, cursor.in_parentheses(lambda: parse_expression(cursor)))
    name = cursor.name()
    while cursor.accept("."):
        name = cursor.name()
    return ColumnRef(name)


# Printing


def to_text(expr: Expr) -> str:
    """The expression as TiDB restores it in table descriptions."""
    match expr:
        case Literal(value):
            return _literal_text(value)
        case ColumnRef(name):
            return quote_name(name)
        case Unary("not", operand):
            return f"!({to_text(operand)})"
        case Unary(sign, operand):
            return f"{sign}{to_text(operand)}"
        case Binary(sign, left, right):
            return f"{to_text(left)} {sign.upper()} {to_text(right)}"
        case Call(name, arguments):
            return f"{name.upper()}({', '.join(map(to_text, arguments))})" if name != "now" else "CURRENT_TIMESTAMP"
        case InList(operand, values):
            return f"{to_text(operand)} IN ({','.join(map(to_text, values))})"
        case IsNull(operand):
            return f"{to_text(operand)} IS NULL"
    raise SqlError("DEFAULT and VALUES() have no place in a table description")


def _literal_text(value: Value) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
        case bytes():
            return f"x'{value.hex()}'"
    return str(value)


# Evaluating


@dataclass(frozen=True, slots=True)
class Scope:
    """What an expression can see: the row by lower-case column name, and the statement's moment as text."""

    row: Mapping[str, Value]
    now: str = ""
    inserted: Mapping[str, Value] | None = None  # for VALUES()


def evaluate(expr: Expr, scope: Scope) -> Value:
    """The value of an expression; comparisons give 1, 0 or None. Raises SqlError."""
    match expr:
        case Literal(value):
            return value
        case ColumnRef(name):
            try:
                return scope.row[name.lower()]
            except KeyError:
                raise SqlError(f"unknown column {name}") from None
        case NewValue(name):
            if scope.inserted is None or name.lower() not in scope.inserted:
                raise SqlError(f"VALUES({name}) has no value here")
            return scope.inserted[name.lower()]
        case Unary(sign, operand):
            return _unary_value(sign, evaluate(operand, scope))
        case Binary(sign, left, right):
            return _binary_value(sign, evaluate(left, scope), lambda: evaluate(right, scope))
        case IsNull(operand):
            return int(evaluate(operand, scope) is None)
        case InList(operand, values):
            return _in_value(evaluate(operand, scope), [evaluate(v, scope) for v in values])
        case Call(name, arguments):
            return _call(name, [evaluate(a, scope) for a in arguments], scope)
        case DefaultValue():
            raise SqlError("DEFAULT stands only alone")


def is_true(value: Value) -> bool:
    """Whether a WHERE keeps a row with this value."""
    return value is not None and bool(_number(value))


def _number(value: Value) -> int | float | Decimal:
    """A value as a number, as MySQL converts text."""
    match value:
        case None:
            raise SqlError("NULL is not a number")
        case bytes():
            return int.from_bytes(value, "big")
        case str():
            try:
                number = Decimal(value.strip() or "0")
            except ArithmeticError:
                return 0
            return int(number) if number == number.to_integral_value() and "." not in value and "e" not in value.lower() else number
    return value


def _unary_value(sign: str, value: Value) -> Value:
    if value is None:
        return None
    return int(not _number(value)) if sign == "not" else -_number(value)


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip


def _binary_value(sign: str, left: Value, right_side: Callable[[], Value]) -> Value:
    if sign in ("and", "or"):
        return _logic(sign, left, right_side)
    right = right_side()
    if sign == "<=>":
        return int(left is None and right is None) if left is None or right is None else int(_compare("=", left, right))
    if left is None or right is None:
        return None
    if sign in _COMPARE:
        return int(_compare(sign, left, right))
    return _arithmetic(sign, _number(left), _number(right))


def _logic(sign: str, left: Value, right_side: Callable[[], Value]) -> Value:
    known = None if left is None else bool(_number(left))
    if known is (sign == "or"):
        return int(known)
    right = right_side()
    if right is None:
        return None
    if bool(_number(right)) is (sign == "or"):
        return int(sign == "or")
    return None if known is None else int(known if sign == "or" else bool(_number(right)))


def _compare(sign: str, left: Value, right: Value) -> bool:
    if isinstance(left, (str, bytes)) and isinstance(right, (str, bytes)):
        return _COMPARE[sign](_as_bytes(left), _as_bytes(right))
    return _COMPARE[sign](_comparable(left), _comparable(right))


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def _comparable(value: Value) -> Decimal:
    number = _number(value)
    return Decimal(number) if not isinstance(number, float) or math.isfinite(number) else Decimal("Infinity").copy_sign(Decimal(number))


def _arithmetic(sign: str, left: int | float | Decimal, right: int | float | Decimal) -> Value:
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    elif isinstance(left, Decimal) or isinstance(right, Decimal) or sign == "/":
        left, right = Decimal(left), Decimal(right)
    match sign:
        case "+":
            return left + right  # type: ignore[operator]
        case "-":
            return left - right  # type: ignore[operator]
        case "*":
            return left * right  # type: ignore[operator]
    if not right:
        return None
    match sign:
        case "/":
            return left / right  # type: ignore[operator]
        case "div":
            return int(left / right) if not isinstance(left, int) else int(Decimal(left) / Decimal(right))  # type: ignore[operator]
        case "%":
            return math.fmod(left, right) if isinstance(left, float) else _remainder(left, right)
    raise SqlError(f"the operator {sign} is not supported")


def _remainder(left: int | Decimal | float, right: int | Decimal | float) -> Value:
    if isinstance(left, int) and isinstance(right, int):
        return abs(left) % abs(right) * (-1 if left < 0 else 1)
    return Decimal(left) % Decimal(right)


def _in_value(value: Value, choices: list[Value]) -> Value:
    if value is None:
        return None
    if any(choice is not None and _compare("=", value, choice) for choice in choices):
        return 1
    return None if None in choices else 0


def text_of(value: Value) -> str:
    """A value as MySQL writes it into text."""
    match value:
        case bytes():
            return value.decode("utf-8", "surrogateescape")
        case str():
            return value
    return str(value)


def _call(name: str, values: list[Value], scope: Scope) -> Value:
    if name == "now":
        return scope.now[: 20 + int(_number(values[0]))] if values and _number(values[0]) else scope.now[:19]
    if name in ("ifnull", "coalesce"):
        return next((v for v in values if v is not None), None)
    if name == "if":
        return values[1] if is_true(values[0]) else values[2]
    if any(v is None for v in values):
        return None
    function = _FUNCTIONS.get(name)
    if function is None:
        raise SqlError(f"the function {name}() is not supported")
    try:
        return function(*values)
    except (TypeError, ValueError) as error:
        raise SqlError(f"{name}(): {error}") from error


def _round(number: Value) -> Value:
    return int(Decimal(_number(number)).to_integral_value(ROUND_HALF_UP))


def _absolute(number: Value) -> Value:
    found = _number(number)
    return -found if found < 0 else found


def _repeat(text: Value, count: Value) -> Value:
    return text * int(_number(count)) if isinstance(text, bytes) else text_of(text) * int(_number(count))


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "repeat": _repeat,
    "concat": lambda *values: "".join(map(text_of, values)),
    "upper": lambda text: text_of(text).upper(),
    "lower": lambda text: text_of(text).lower(),
    "length": lambda text: len(_as_bytes(text if isinstance(text, (str, bytes)) else text_of(text))),
    "char_length": lambda text: len(text_of(text)),
    "abs": _absolute,
    "mod": lambda left, right: _arithmetic("%", _number(left), _number(right)),
    "floor": lambda number: math.floor(_number(number)),
    "ceil": lambda number: math.ceil(_number(number)),
    "round": _round,
    "year": lambda text: int(text_of(text)[:4]),
    "month": lambda text: int(text_of(text)[5:7]),
    "to_days": lambda text: _to_days(text_of(text)),
    "unhex": lambda text: bytes.fromhex(text_of(text)),
    "hex": lambda value: value.hex().upper() if isinstance(value, bytes) else f"{int(_number(value)):X}",
    "json_object": lambda *values: _json_object(values),
}


def _to_days(text: str) -> int:
    year, month, day = (int(part) for part in text[:10].split("-"))
    return date(year, month, day).toordinal() + 365


def _json_object(values: tuple[Value, ...]) -> str:
    pairs = zip(values[::2], values[1::2], strict=True)
    return json.dumps({text_of(key): float(value) if isinstance(value, Decimal) else value for key, value in pairs})
