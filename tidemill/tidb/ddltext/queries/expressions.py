"""Expressions: a precedence-climbing parser that returns text.

TiDB prints an expression in the order it was written and keeps exactly the parentheses of the source, so most operators
only need their spelling. The structure matters where an operator becomes a function (`a + INTERVAL 1 DAY`, `a || b`,
`a -> '$.b'`), and in a few places of the grammar that ask what kind of expression they got: see Expression.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tidemill.tidb.ddltext.cursor import whole_number
from tidemill.tidb.ddltext.queries.functions import Functions
from tidemill.tidb.ddltext.queries.literals import quote_name, quote_text
from tidemill.tidb.sql.keywords import RESERVED, UNRESERVED, WINDOW_FUNCTIONS, words
from tidemill.tidb.sql.lexer import Kind, SqlMode


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


_LOGICAL = ({"OR": "OR", "||": "OR"}, {"XOR": "XOR"}, {"AND": "AND", "&&": "AND"})

_COMPARISONS = {"=": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!=": "!=", "<>": "!=", "<=>": "<=>"}

_ARITHMETIC: dict[str, tuple[int, str]] = {
    "|": (1, "|"),
    "&": (2, "&"),
    "<<": (3, "<<"),
    ">>": (3, ">>"),
    "+": (4, "+"),
    "-": (4, "-"),
    "*": (5, "*"),
    "/": (5, "/"),
    "%": (5, "%"),
    "MOD": (5, "%"),
    "DIV": (5, " DIV "),
    "^": (6, "^"),
}

_SUM_LEVEL = 4

_PLAIN_QUALIFIED_FUNCTIONS = (RESERVED | UNRESERVED) - WINDOW_FUNCTIONS

# These have their own rules for printing. As an ordinary call ("trim (a)" with a blank) TiDB itself fails on them.
_UNPRINTABLE_CALLS = words("date_add date_sub adddate subdate extract position trim convert weight_string")


class Expressions(Functions):
    """Operators and operands. The `parse_` methods return an Expression with its shape, the others return its text."""

    # What queries add

    def accept_subquery(self, collapse: bool = True) -> str:
        """Parse a query in parentheses, printed with them; "" when the next thing is something else."""
        raise NotImplementedError

    # Operators, loosest first

    def expression(self) -> str:
        return self.parse_expression().text

    def parse_expression(self, level: int = 0) -> Expression:
        if level == len(_LOGICAL):
            return self.parse_not()
        left = self.parse_expression(level + 1)
        while self.at_any(_LOGICAL[level]) and not (self.at("||") and SqlMode.PIPES_AS_CONCAT in self.mode):
            operator = _LOGICAL[level][self.next().upper]
            left = Expression(f"{left.text} {operator} {self.parse_expression(level + 1).text}")
        return left

    def parse_not(self) -> Expression:
        if self.at("NOT") and SqlMode.HIGH_NOT_PRECEDENCE not in self.mode:
            self.next()
            return self.parse_not().negated()
        if self.token.kind is Kind.USER_VARIABLE and self.peek().upper == ":=":
            return Expression(f"{self.user_variable()}:={self.assigned_value()}")
        if self.at("MATCH"):
            return Expression(self.match_against())
        return self.parse_comparison()

    def user_variable(self) -> str:
        return "@" + quote_name(self.expect_kind(Kind.USER_VARIABLE).text)

    def assigned_value(self) -> str:
        self.expect(":=")
        return self.expression()

    def parse_comparison(self) -> Expression:
        left = self.parse_predicate()
        while True:
            if self.accept("IS"):
                negation = "NOT " if self.accept("NOT") else ""
                word = self.expect_any(("NULL", "UNKNOWN", "TRUE", "FALSE"))
                left = Expression(f"{left.text} IS {negation}{'NULL' if word == 'UNKNOWN' else word}")
                if word != "NULL":
                    return left
            elif self.at_any(_COMPARISONS):
                operator = _COMPARISONS[self.next().upper]
                left = Expression(f"{left.text}{operator}{self.comparison_operand()}")
            else:
                return left

    def comparison_operand(self) -> str:
        if self.at_any(("ANY", "SOME", "ALL")) and self.peek().upper == "(":
            quantifier = "ALL" if self.next().upper == "ALL" else "ANY"
            query = self.accept_subquery()
            if not query:
                raise self.fail("a subquery")
            return f"{quantifier} {query}"
        if self.token.kind is Kind.USER_VARIABLE and self.peek().upper == ":=":
            variable = self.user_variable()
            self.expect(":=")
            return f"{variable}:={self.parse_predicate().text}"
        return self.parse_predicate().text

    def parse_predicate(self) -> Expression:
        left = self.parse_bits()
        negation = ""
        if self.at("NOT") and self.peek().upper in ("IN", "BETWEEN", "LIKE", "ILIKE", "REGEXP", "RLIKE"):
            self.next()
            negation = "NOT "
        if self.accept("IN"):
            return Expression(f"{left.text} {negation}IN {self.in_list()}")
        if self.accept("BETWEEN"):
            low = self.parse_bits().text
            self.expect("AND")
            return Expression(f"{left.text} {negation}BETWEEN {low} AND {self.parse_predicate().text}")
        if operator := self.accept_any(("LIKE", "ILIKE")):
            return Expression(f"{left.text} {negation}{operator} {self.simple()}{self.like_escape()}")
        if self.accept_any(("REGEXP", "RLIKE")):
            return Expression(f"{left.text} {negation}REGEXP {self.simple()}")
        if self.accept("MEMBER", "OF"):
            self.expect("(")
            array = self.simple()
            self.expect(")")
            return Expression(f"{left.text} MEMBER OF ({array})")
        return left

    def in_list(self) -> str:
        if query := self.accept_subquery(collapse=False):
            return query
        return self.in_parentheses(self.expression, ",")

    def like_escape(self) -> str:
        if not self.accept("ESCAPE"):
            return ""
        escape = self.raw_string()
        if len(escape.encode()) > 1:
            raise self.fail("an escape of one byte")
        return "" if escape in ("", "\\") else f" ESCAPE {quote_text(escape)}"

    def bits(self) -> str:
        """Parse an expression of the arithmetic level, as partition definitions take it."""
        return self.parse_bits().text

    def parse_bits(self, level: int = 1) -> Expression:
        left = self.parse_interval_sum() if self.at("INTERVAL") else self.parse_simple()
        while self.token.upper in _ARITHMETIC and _ARITHMETIC[self.token.upper][0] >= level:
            strength, operator = _ARITHMETIC[self.next().upper]
            if strength == _SUM_LEVEL and self.at("INTERVAL") and (amount := self.try_parse(self.interval)):
                left = Expression(f"DATE_{'ADD' if operator == '+' else 'SUB'}({left.text}, {amount})")
            else:
                left = Expression(f"{left.text}{operator}{self.parse_bits(strength + 1).text}")
        return left

    def interval(self) -> str:
        return self.once("interval", self.read_interval)

    def read_interval(self) -> str:
        self.expect("INTERVAL")
        amount = self.expression()
        return f"INTERVAL {amount} {self.time_unit()}"

    def parse_interval_sum(self) -> Expression:
        """Parse INTERVAL 1 DAY + a, or the function INTERVAL()."""

        def interval_plus() -> str:
            amount = self.interval()
            self.expect("+")
            return f"DATE_ADD({self.parse_bits(_SUM_LEVEL + 1).text}, {amount})"

        text = self.try_parse(interval_plus)
        return Expression(text) if text else self.parse_simple()

    # Operands

    def simple(self) -> str:
        return self.parse_simple().text

    def parse_simple(self) -> Expression:
        left = self.parse_unary()
        while self.at("||") and SqlMode.PIPES_AS_CONCAT in self.mode:
            self.next()
            left = Expression(f"CONCAT({left.text}, {self.parse_unary().text})")
        return left

    def parse_unary(self) -> Expression:
        if sign := self.accept_any(("!", "~", "-", "+")):
            return Expression(sign + self.parse_unary().text)
        if self.at("NOT") and SqlMode.HIGH_NOT_PRECEDENCE in self.mode:
            self.next()
            return Expression("!" + self.parse_unary().text)
        if self.accept("BINARY"):
            return Expression(f"BINARY {self.parse_unary().text}")
        operand = self.parse_operand()
        while self.accept("COLLATE"):
            operand = Expression(f"{operand.text} COLLATE {self.collation_name()}")
        return operand

    def parse_operand(self) -> Expression:
        return self.once("operand", self.read_operand)

    def read_operand(self) -> Expression:
        token = self.token
        if self.at("("):
            return self.parse_parenthesised()
        if self.accept("ROW"):
            return self.row(self.parenthesised_list())
        if self.accept("EXISTS"):
            query = self.accept_subquery()
            if not query:
                raise self.fail("a subquery")
            return Expression(f"EXISTS {query}", Shape.EXISTS)
        if token.kind is Kind.WORD and (special := self.accept_special_form()):
            return Expression(special)
        if text := self.accept_literal():
            if token.kind is Kind.INT and whole_number(token.text) < 2**63:
                return Expression(text, Shape.INTEGER)
            return Expression(text, Shape.VALUE)
        if token.kind is Kind.USER_VARIABLE:
            return Expression(self.user_variable())
        if token.kind is Kind.SYSTEM_VARIABLE:
            return Expression(self.system_variable())
        if self.accept("?"):
            return Expression("?")
        if self.accept("{"):
            return Expression(self.odbc_literal())
        return Expression(self.column_or_call())

    def parse_parenthesised(self) -> Expression:
        if query := self.accept_subquery(collapse=False):
            return Expression(query)
        values = self.parenthesised_list()
        return Expression(f"({values[0].text})") if len(values) == 1 else self.row(values)

    def parenthesised_list(self) -> list[Expression]:
        self.expect("(")
        values = [self.parse_expression()]
        while self.accept(","):
            values.append(self.parse_expression())
        self.expect(")")
        return values

    def row(self, values: list[Expression]) -> Expression:
        if len(values) < 2:
            raise self.fail("a row of two values or more")
        items = tuple(value.text for value in values)
        return Expression(f"ROW({','.join(items)})", Shape.ROW, items)

    def system_variable(self) -> str:
        scope, dot, name = self.next().text.lower().partition(".")
        if not dot or scope not in ("global", "session", "local"):
            return "@@" + quote_name(scope + dot + name)
        return f"@@{'GLOBAL' if scope == 'global' else 'SESSION'}.{quote_name(name)}"

    def odbc_literal(self) -> str:
        kind = {"d": "DATE ", "t": "TIME ", "ts": "TIMESTAMP "}.get(self.identifier(), "")
        text = self.plain_string() if kind and self.token.kind is Kind.STRING else self.expression()
        self.expect("}")
        return kind + text

    def column_or_call(self) -> str:
        generic = self.token.kind is Kind.NAME
        start = self.token
        if generic and self.peek().upper == "(":
            name = self.identifier()
            if name.lower() in _UNPRINTABLE_CALLS:
                raise self.fail("a function that can be printed")
            return name.upper() + self.arguments()
        if self.peek().upper == "." and self.peek(3).upper == "(" and self.at_identifier():
            schema = self.name()
            self.expect(".")
            function = self.identifier()
            # TiDB looks for keywords in upper case only here.
            printed = function if function in _PLAIN_QUALIFIED_FUNCTIONS else quote_name(function)
            return f"{schema}.{printed}{self.arguments()}"
        column = self.column_name()
        if arrow := self.accept_any(("->", "->>")):
            path = f"_{self.charset.upper()}{self.plain_string()}"
            extract = f"JSON_EXTRACT({column}, {path})"
            return f"JSON_UNQUOTE({extract})" if arrow == "->>" else extract
        if start.kind is Kind.WORD and start.reserved:
            raise self.fail("an expression")
        return column
