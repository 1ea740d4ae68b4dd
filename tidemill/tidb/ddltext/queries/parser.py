"""The cursor with the rules that refer to each other in a circle: a call has expressions in it, an expression queries, a query calls.

Each rule is a function over the parser, in the module of its subject. Modules import those below them; what lies above them they reach
through `Rules`, which `select.py` fills.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.tidb.ddltext.cursor import Cursor
from tidemill.tidb.ddltext.dialects import TICDC, Dialect
from tidemill.tidb.ddltext.names import Names
from tidemill.tidb.sql.lexer import SqlMode


class Shape(enum.Enum):
    """What the surrounding grammar needs to know of an expression."""

    OTHER = 0
    VALUE = 1  # a literal
    INTEGER = 2  # a literal that ORDER BY and GROUP BY take as a position
    EXISTS = 3  # [NOT] EXISTS (…), which a preceding NOT inverts
    ROW = 4
    DEFAULT = 5  # the word DEFAULT alone


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression as it is printed, and its shape."""

    text: str
    shape: Shape = Shape.OTHER
    items: tuple[str, ...] = ()  # of a ROW

    def negated(self) -> Expression:
        """Return the expression with NOT in front."""
        if self.shape is Shape.EXISTS:
            inverse = self.text[4:] if self.text.startswith("NOT ") else f"NOT {self.text}"
            return Expression(inverse, Shape.EXISTS)
        return Expression(f"NOT {self.text}")


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that modules below theirs refer to."""

    expression: Callable[[Parser], Expression]
    bits: Callable[[Parser], Expression]
    simple: Callable[[Parser], Expression]
    interval: Callable[[Parser], str]
    subquery: Callable[[Parser, bool], str]
    order_by: Callable[[Parser], str]
    window_spec: Callable[[Parser], str]


class Parser(Cursor):
    """A cursor in a statement, and the rules of its expressions and queries."""

    def __init__(
        self,
        rules: Rules,
        sql: str,
        mode: SqlMode,
        charset: str,
        collate: str,
        names: Names | None = None,
        dialect: Dialect = TICDC,
        *,
        printed: bool = False,
    ) -> None:
        """`printed`: the text is one that TiDB printed, see `sql.lexer`."""
        super().__init__(sql, mode, charset, collate, names, dialect, printed=printed)
        self._rules = rules

    def expression(self) -> str:
        """Parse an expression."""
        return self._rules.expression(self).text

    def bits(self) -> str:
        """Parse an expression of the arithmetic level, as partition definitions take it."""
        return self._rules.bits(self).text

    def simple(self) -> str:
        """Parse an operand with its signs."""
        return self._rules.simple(self).text

    def interval(self) -> str:
        """Parse INTERVAL amount unit."""
        return self.once("interval", self._rules.interval)

    def accept_subquery(self, collapse: bool = True) -> str:
        """Parse a query in parentheses, printed with them; "" when the next thing is something else."""
        return self._rules.subquery(self, collapse)

    def order_by(self) -> str:
        """Parse ORDER BY and its list."""
        return self._rules.order_by(self)

    def window_spec(self) -> str:
        """Parse what follows OVER, in parentheses."""
        return self._rules.window_spec(self)
