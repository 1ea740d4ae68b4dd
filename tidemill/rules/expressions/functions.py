"""Operators and functions on SQL values. A NULL operand gives NULL, unless the function is not strict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from tidemill.rules.expressions import arithmetic
from tidemill.rules.expressions.arithmetic import MASK64, Number
from tidemill.rules.expressions.values import (
    Moment,
    Text,
    Value,
    collation,
    compare,
    decimal_of,
    integer_of,
    moment_of,
    number_of,
    sort_key,
    span_of,
    text_of,
    truth,
)

MANY = 255


@dataclass(frozen=True, slots=True)
class Function:
    """A function. `operands` are the least and most operands. `strict`: a NULL operand gives NULL without a call."""

    call: Callable[..., Value]
    operands: tuple[int, int]
    strict: bool = True


def _number(value: Value) -> Number:
    found = number_of(value)
    assert found is not None, "strict functions see no NULL"
    return found


def _integer(value: Value) -> int:
    found = integer_of(value)
    assert found is not None, "strict functions see no NULL"
    return found


def _decimal(value: Value) -> Decimal:
    found = decimal_of(value)
    assert found is not None, "strict functions see no NULL"
    return found


def _text(value: Value) -> Text:
    found = text_of(value)
    assert found is not None, "strict functions see no NULL"
    return found


def _string(value: Value) -> str:
    return _text(value).data.decode("utf-8", "surrogateescape")


def _like_text(text: str, model: Value) -> Text:
    return Text(text.encode("utf-8", "surrogateescape"), _text(model).collate)


# Arithmetic


def _numeric(call: Callable[..., Number | None]) -> Callable[..., Value]:
    return lambda *values: call(*map(_number, values))


def _int_divide(left: Value, right: Value) -> Value:
    a, b = _number(left), _number(right)
    return arithmetic.divide_whole(_decimal(a), _decimal(b))


def _bits(operation: Callable[[int, int], int]) -> Callable[[Value, Value], Value]:
    return lambda left, right: operation(_integer(left) & MASK64, _integer(right) & MASK64) & MASK64


def _shift_left(a: int, b: int) -> int:
    return a << b if b < 64 else 0


def _shift_right(a: int, b: int) -> int:
    return a >> b if b < 64 else 0


def _round(value: Value, digits: Value = 0) -> Value:
    return arithmetic.rounded(_number(value), _integer(digits))


def _truncate(value: Value, digits: Value) -> Value:
    return arithmetic.truncated(_number(value), _integer(digits))


def _sign(value: Value) -> Value:
    number = _number(value)
    return (number > 0) - (number < 0)


# Logic: NULL is unknown


def _and(left: Value, right: Value) -> Value:
    a, b = truth(left), truth(right)
    if a is False or b is False:
        return 0
    return None if a is None or b is None else 1


def _or(left: Value, right: Value) -> Value:
    a, b = truth(left), truth(right)
    if a or b:
        return 1
    return None if a is None or b is None else 0


def _xor(left: Value, right: Value) -> Value:
    return int(truth(left) is not truth(right))


def _compared(test: Callable[[int], bool]) -> Callable[[Value, Value], Value]:
    def call(left: Value, right: Value) -> Value:
        order = compare(left, right)
        return None if order is None else int(test(order))

    return call


def _same(left: Value, right: Value) -> Value:
    """Compute `<=>`, which takes two NULLs as equal."""
    if left is None or right is None:
        return int(left is right)
    return int(compare(left, right) == 0)


def _in(value: Value, *items: Value) -> Value:
    if value is None:
        return None
    orders = [compare(value, item) for item in items]
    if 0 in orders:
        return 1
    return None if None in orders else 0


def _between(value: Value, low: Value, high: Value) -> Value:
    above, below = compare(value, low), compare(value, high)
    return _and(None if above is None else int(above >= 0), None if below is None else int(below <= 0))


def _if(condition: Value, then: Value, otherwise: Value) -> Value:
    return then if truth(condition) else otherwise


def _coalesce(*values: Value) -> Value:
    return next((v for v in values if v is not None), None)


def _nullif(left: Value, right: Value) -> Value:
    return None if compare(left, right) == 0 else left


def _extreme(wanted: int) -> Callable[..., Value]:
    def call(first: Value, *others: Value) -> Value:
        best = first
        for other in others:
            if compare(other, best) == wanted:
                best = other
        return best

    return call


# Text


def _like(value: Value, pattern: Value, escape: Value = None) -> Value:
    """Compute LIKE in the collation of both. `%` is any number of characters, `_` is one."""
    text, model = _text(value), _text(pattern)
    key = sort_key(collation(text, model))
    sign = "\\" if escape is None else _string(escape)
    return int(_matches(key.folded(_string(value)), _tokens(_string(pattern), sign, key.folded)))


def _tokens(pattern: str, escape: str, fold: Callable[[str], str]) -> list[tuple[str, str]]:
    """Split a pattern into (%, ), (_, ) and (=, character)."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == escape and at < len(pattern):
            char = pattern[at]
            at += 1
        elif char in "%_":
            found.append((char, ""))
            continue
        found += [("=", c) for c in fold(char)]
    return found


def _matches(text: str, tokens: Sequence[tuple[str, str]]) -> bool:
    """Match greedily, going back only to the last `%`. The time is linear with one `%`, and at most the product of both lengths."""
    at = token = 0
    back: tuple[int, int] | None = None
    while at < len(text):
        kind, char = tokens[token] if token < len(tokens) else ("", "")
        if kind == "%":
            back = token, at
            token += 1
        elif kind == "_" or (kind == "=" and char == text[at]):
            at, token = at + 1, token + 1
        elif back is not None:
            back = back[0], back[1] + 1
            token, at = back[0] + 1, back[1]
        else:
            return False
    return all(kind == "%" for kind, _ in tokens[token:])


def _concat(*values: Value) -> Value:
    return Text(b"".join(_text(v).data for v in values), next((c for v in values if (c := _text(v).collate)), ""))


def _substring(value: Value, start: Value, length: Value = None) -> Value:
    text, begin = _string(value), _integer(start)
    count = len(text) if length is None else _integer(length)
    at = begin - 1 if begin > 0 else len(text) + begin
    return _like_text(text[at : at + count] if begin and at >= 0 and count > 0 else "", value)


def _left(value: Value, length: Value) -> Value:
    return _like_text(_string(value)[: max(_integer(length), 0)], value)


def _right(value: Value, length: Value) -> Value:
    count, text = _integer(length), _string(value)
    return _like_text(text[max(len(text) - count, 0) :] if count > 0 else "", value)


def _locate(part: Value, value: Value) -> Value:
    fold = sort_key(collation(_text(part), _text(value))).folded
    return fold(_string(value)).find(fold(_string(part))) + 1


def _find_in_set(value: Value, items: Value) -> Value:
    names = _string(items).split(",") if _string(items) else []
    return next((i for i, name in enumerate(names, 1) if compare(value, _like_text(name, items)) == 0), 0)


def _replace(value: Value, old: Value, new: Value) -> Value:
    return _like_text(_string(value).replace(_string(old), _string(new)) if _string(old) else _string(value), value)


# Times


def _part(number: int) -> Callable[[Value], Value]:
    def call(value: Value) -> Value:
        if number > 2 and (span := span_of(value) if not isinstance(value, Moment) else None) is not None:
            seconds = abs(span.micros) // 1_000_000
            return (seconds // 3600, seconds // 60 % 60, seconds % 60)[number - 3]
        moment = moment_of(value)
        return None if moment is None else moment.parts[number]

    return call


def date_of(value: Value) -> Value:
    """Compute DATE(): the day of a time."""
    moment = moment_of(value)
    if moment is None:
        return None
    return Moment((*moment.parts[:3], 0, 0, 0, 0), moment.text[:10])


def _hex(value: Value) -> Value:
    """Compute HEX(). A number is taken as an integer of 64 bits."""
    numeric = isinstance(value, (int, Decimal, float))
    return Text(f"{_integer(value) & MASK64:X}".encode() if numeric else _text(value).data.hex().upper().encode())


def _length(value: Value) -> Value:
    return len(_text(value).data)


def _characters(value: Value) -> Value:
    return len(_string(value))


def _stripped(strip: Callable[[str], str]) -> Callable[[Value], Value]:
    return lambda value: _like_text(strip(_string(value)), value)


OPERATORS: dict[str, Function] = {
    "OR": Function(_or, (2, 2), strict=False),
    "AND": Function(_and, (2, 2), strict=False),
    "XOR": Function(_xor, (2, 2)),
    "NOT": Function(lambda v: int(not truth(v)), (1, 1)),
    "=": Function(_compared(lambda o: o == 0), (2, 2)),
    "<>": Function(_compared(lambda o: o != 0), (2, 2)),
    "<": Function(_compared(lambda o: o < 0), (2, 2)),
    "<=": Function(_compared(lambda o: o <= 0), (2, 2)),
    ">": Function(_compared(lambda o: o > 0), (2, 2)),
    ">=": Function(_compared(lambda o: o >= 0), (2, 2)),
    "<=>": Function(_same, (2, 2), strict=False),
    "IS NULL": Function(lambda v: int(v is None), (1, 1), strict=False),
    "IS TRUE": Function(lambda v: int(truth(v) is True), (1, 1), strict=False),
    "IS FALSE": Function(lambda v: int(truth(v) is False), (1, 1), strict=False),
    "IN": Function(_in, (2, MANY), strict=False),
    "BETWEEN": Function(_between, (3, 3), strict=False),
    "LIKE": Function(_like, (2, 3)),
    "|": Function(_bits(lambda a, b: a | b), (2, 2)),
    "&": Function(_bits(lambda a, b: a & b), (2, 2)),
    "^": Function(_bits(lambda a, b: a ^ b), (2, 2)),
    "<<": Function(_bits(_shift_left), (2, 2)),
    ">>": Function(_bits(_shift_right), (2, 2)),
    "~": Function(lambda v: ~_integer(v) & MASK64, (1, 1)),
    "NEGATE": Function(_numeric(arithmetic.negative), (1, 1)),
    "+": Function(_numeric(arithmetic.add), (2, 2)),
    "-": Function(_numeric(arithmetic.subtract), (2, 2)),
    "*": Function(_numeric(arithmetic.multiply), (2, 2)),
    "/": Function(_numeric(arithmetic.divide), (2, 2)),
    "DIV": Function(_int_divide, (2, 2)),
    "%": Function(_numeric(arithmetic.modulo), (2, 2)),
}
"""The operators of the grammar."""

FUNCTIONS: dict[str, Function] = {
    "IF": Function(_if, (3, 3), strict=False),
    "IFNULL": Function(_coalesce, (2, 2), strict=False),
    "COALESCE": Function(_coalesce, (1, MANY), strict=False),
    "NULLIF": Function(_nullif, (2, 2), strict=False),
    "ISNULL": Function(lambda v: int(v is None), (1, 1), strict=False),
    "GREATEST": Function(_extreme(1), (2, MANY)),
    "LEAST": Function(_extreme(-1), (2, MANY)),
    "ABS": Function(_numeric(arithmetic.absolute), (1, 1)),
    "SIGN": Function(_sign, (1, 1)),
    "MOD": Function(_numeric(arithmetic.modulo), (2, 2)),
    "FLOOR": Function(lambda v: arithmetic.to_whole(_number(v), ROUND_FLOOR), (1, 1)),
    **dict.fromkeys(("CEIL", "CEILING"), Function(lambda v: arithmetic.to_whole(_number(v), ROUND_CEILING), (1, 1))),
    "ROUND": Function(_round, (1, 2)),
    "TRUNCATE": Function(_truncate, (2, 2)),
    **dict.fromkeys(("LENGTH", "OCTET_LENGTH"), Function(_length, (1, 1))),
    **dict.fromkeys(("CHAR_LENGTH", "CHARACTER_LENGTH"), Function(_characters, (1, 1))),
    **dict.fromkeys(("LOWER", "LCASE"), Function(_stripped(str.lower), (1, 1))),
    **dict.fromkeys(("UPPER", "UCASE"), Function(_stripped(str.upper), (1, 1))),
    "TRIM": Function(_stripped(lambda s: s.strip(" ")), (1, 1)),
    "LTRIM": Function(_stripped(lambda s: s.lstrip(" ")), (1, 1)),
    "RTRIM": Function(_stripped(lambda s: s.rstrip(" ")), (1, 1)),
    "REVERSE": Function(_stripped(lambda s: s[::-1]), (1, 1)),
    "CONCAT": Function(_concat, (1, MANY)),
    **dict.fromkeys(("SUBSTRING", "SUBSTR", "MID"), Function(_substring, (2, 3))),
    "LEFT": Function(_left, (2, 2)),
    "RIGHT": Function(_right, (2, 2)),
    "REPLACE": Function(_replace, (3, 3)),
    "LOCATE": Function(_locate, (2, 2)),
    "INSTR": Function(lambda value, part: _locate(part, value), (2, 2)),
    "FIND_IN_SET": Function(_find_in_set, (2, 2)),
    "HEX": Function(_hex, (1, 1)),
    "YEAR": Function(_part(0), (1, 1)),
    "MONTH": Function(_part(1), (1, 1)),
    **dict.fromkeys(("DAY", "DAYOFMONTH"), Function(_part(2), (1, 1))),
    "HOUR": Function(_part(3), (1, 1)),
    "MINUTE": Function(_part(4), (1, 1)),
    "SECOND": Function(_part(5), (1, 1)),
    "DATE": Function(date_of, (1, 1)),
}
"""The functions that may be called by name."""

_UNSTABLE = """
NOW SYSDATE CURDATE CURTIME CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP LOCALTIME LOCALTIMESTAMP UTC_DATE UTC_TIME UTC_TIMESTAMP
UNIX_TIMESTAMP RAND UUID UUID_SHORT RANDOM_BYTES SLEEP USER CURRENT_USER SESSION_USER SYSTEM_USER DATABASE SCHEMA VERSION CONNECTION_ID
LAST_INSERT_ID FOUND_ROWS ROW_COUNT GET_LOCK RELEASE_LOCK TIDB_VERSION NEXTVAL LASTVAL
"""
UNSTABLE = frozenset(_UNSTABLE.split())
"""Functions whose result does not depend on their operands alone."""
