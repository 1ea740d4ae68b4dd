"""The nodes of a parsed expression."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.rules.expressions.values import Value


@dataclass(frozen=True, slots=True)
class Literal:
    value: Value


@dataclass(frozen=True, slots=True)
class Column:
    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator, by its name in upper case, and its operands."""

    name: str
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast to SIGNED, UNSIGNED, CHAR, BINARY, DECIMAL, DOUBLE, DATE or DATETIME.
    `size`: digits of a DECIMAL, characters of a CHAR, bytes of a BINARY; None: as many as there are.
    `digits`: of a DECIMAL after the point."""

    operand: Node
    type: str
    size: int | None = None
    digits: int = 0


Node = Literal | Column | Call | Cast
