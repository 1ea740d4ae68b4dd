"""Partition expressions: arithmetic and date functions on one row."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, tzinfo

from tidemill.errors import SchemaError
from tidemill.tidb.ddltext.cursor import Cursor
from tidemill.tidb.names import folded
from tidemill.tidb.rows.cells import Cell
from tidemill.tidb.sql.lexer import Kind, SqlMode

Value = None | int | float | str
Node = Callable[[Mapping[str, Cell]], Value]

_DAY_ZERO = 365  # TO_DAYS of 0001-01-01 is 366, its ordinal 1
_SECONDS = 86_400
_MULTIPLIERS = ("*", "/", "DIV", "MOD", "%")


class Evaluator:
    """A compiled expression. Raises SchemaError for an unsupported one."""

    def __init__(self, text: str, zone: tzinfo = UTC) -> None:
        self._cursor = Cursor(text, SqlMode(0), "", "")
        self._text, self._zone = text, zone
        self._columns: set[str] = set()
        self._node = self._sum()
        if not self._cursor.at_end():
            raise self._unknown()

    @property
    def columns(self) -> frozenset[str]:
        """Lower-case names of the columns in it."""
        return frozenset(self._columns)

    def value(self, row: Mapping[str, Cell]) -> Value:
        """Return the value for a row, given as cells by lower-case column name. It is NULL if an operand is."""
        return self._node(row)

    def _unknown(self) -> SchemaError:
        return SchemaError(f"the expression {self._text[:100]} is not understood at {self._cursor.token.text!r}")

    def _sum(self) -> Node:
        node = self._product()
        while word := self._cursor.accept_any(("+", "-")):
            node = _binary(operator.add if word == "+" else operator.sub, node, self._product())
        return node

    def _product(self) -> Node:
        node = self._unary()
        while word := self._cursor.accept_any(_MULTIPLIERS):
            node = _binary({"*": operator.mul, "/": operator.truediv, "DIV": _div}.get(word, _mod), node, self._unary())
        return node

    def _unary(self) -> Node:
        cursor = self._cursor
        if cursor.accept("-"):
            return _binary(operator.sub, lambda row: 0, self._unary())
        if cursor.accept("("):
            node = self._sum()
            cursor.expect(")")
            return node
        token = cursor.token
        if token.kind is Kind.INTRODUCER:
            cursor.next()
            return self._unary()
        constants: dict[Kind, Callable[[str], Value]] = {
            Kind.INT: int, Kind.DECIMAL: float, Kind.FLOAT: float, Kind.STRING: str,
            Kind.HEX: lambda text: bytes.fromhex(text).decode("utf-8", "surrogateescape"), Kind.BIT: lambda text: int(text, 2),
        }  # fmt: skip
        if token.kind in constants:
            cursor.next()
            constant = constants[token.kind](token.text)
            return lambda row: constant
        if cursor.accept("NULL"):
            return lambda row: None
        if cursor.peek().upper == "(" and token.kind in (Kind.WORD, Kind.NAME):
            return self._function(cursor.next().text.upper())
        if cursor.at_identifier():
            name = [cursor.identifier(), *(cursor.identifier() for _ in iter(lambda: cursor.accept("."), False))][-1]
            self._columns.add(folded(name))
            return _column(name)
        raise self._unknown()

    def _function(self, name: str) -> Node:
        cursor = self._cursor
        cursor.expect("(")
        if name == "EXTRACT":
            unit = cursor.next().upper
            cursor.expect("FROM")
            arguments, name = [self._sum()], unit
        else:
            arguments = [self._sum()]
            while cursor.accept(","):
                arguments.append(self._sum())
        cursor.expect(")")
        if name == "UNIX_TIMESTAMP":
            zone = self._zone
            return _applied(lambda text: int(_moment(text).replace(tzinfo=zone).timestamp()), arguments)
        function = _FUNCTIONS.get(name)
        if function is None:
            raise self._unknown()
        return _applied(function, arguments)


def _column(name: str) -> Node:
    key = folded(name)

    def read(row: Mapping[str, Cell]) -> Value:
        if key not in row:
            raise SchemaError(f"the expression uses a column {name} that is not there")
        cell = row[key]
        return cell.decode("utf-8", "surrogateescape") if isinstance(cell, bytes) else cell

    return read


def _applied(function: Callable[..., Value], arguments: list[Node]) -> Node:
    """Return the node of a call. It is NULL if an argument is NULL or not a valid date."""

    def apply(row: Mapping[str, Cell]) -> Value:
        values = [argument(row) for argument in arguments]
        if None in values:
            return None
        try:
            return function(*values)
        except (ValueError, TypeError, ZeroDivisionError):
            return None

    return apply


def _binary(function: Callable[..., Value], left: Node, right: Node) -> Node:
    return _applied(function, [left, right])


def _div(a: int, b: int) -> int:
    """Divide towards zero, as SQL does."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _mod(a: int, b: int) -> int:
    """Return the remainder with the sign of the dividend."""
    return a - b * _div(a, b)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _time_parts(text: str) -> tuple[int, int, int, int]:
    """Return hours, minutes, seconds and microseconds of a TIME or DATETIME."""
    clock = text.split(" ")[-1].lstrip("-")
    whole, _, fraction = clock.partition(".")
    hours, minutes, seconds = (int(part) for part in whole.split(":"))
    return hours, minutes, seconds, int(fraction.ljust(6, "0") or 0)


def _time_to_sec(text: str) -> int:
    hours, minutes, seconds, _ = _time_parts(text)
    return (3600 * hours + 60 * minutes + seconds) * (-1 if text.startswith("-") else 1)


def _to_days(text: str) -> int:
    return date.fromisoformat(text[:10]).toordinal() + _DAY_ZERO


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "YEAR": lambda text: int(text[:4]),
    "MONTH": lambda text: int(text[5:7]),
    "DAY": lambda text: int(text[8:10]),
    "DAYOFMONTH": lambda text: int(text[8:10]),
    "DAYOFWEEK": lambda text: _moment(text).isoweekday() % 7 + 1,
    "DAYOFYEAR": lambda text: _moment(text).timetuple().tm_yday,
    "WEEKDAY": lambda text: _moment(text).weekday(),
    "QUARTER": lambda text: (int(text[5:7]) + 2) // 3,
    "TO_DAYS": _to_days,
    "TO_SECONDS": lambda text: _to_days(text) * _SECONDS + _moment(text).hour * 3600 + _moment(text).minute * 60 + _moment(text).second,
    "HOUR": lambda text: _time_parts(text)[0],
    "MINUTE": lambda text: _time_parts(text)[1],
    "SECOND": lambda text: _time_parts(text)[2],
    "MICROSECOND": lambda text: _time_parts(text)[3],
    "TIME_TO_SEC": _time_to_sec,
    "DATEDIFF": lambda a, b: _to_days(a) - _to_days(b),
    "YEAR_MONTH": lambda text: int(text[:4] + text[5:7]),
    "ABS": abs,
    "MOD": _mod,
    "FLOOR": lambda number: number // 1,
    "CEILING": lambda number: -(-number // 1),
    "CEIL": lambda number: -(-number // 1),
}  # fmt: skip
"""The functions that MySQL allows in a partition expression."""
