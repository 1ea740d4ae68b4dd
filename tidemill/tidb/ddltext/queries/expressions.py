"""Expressions: a precedence-climbing parser that returns text.

TiDB prints an expression in the order it was written and keeps exactly the parentheses of the source, so most operators
only need their spelling. The structure matters where an operator becomes a function (`a + INTERVAL 1 DAY`, `a || b`,
`a -> '$.b'`), and in a few places of the grammar that ask what kind of expression they got: see Expression.
"""

from __future__ import annotations

from tidemill.tidb.ddltext.queries.functions import accept_special_form, argument_list, match_against
from tidemill.tidb.ddltext.queries.literals import quote_text, whole_number
from tidemill.tidb.ddltext.queries.parser import Expression, Parser, Shape
from tidemill.tidb.names import quote_name
from tidemill.tidb.sql.keywords import RESERVED, UNRESERVED, WINDOW_FUNCTIONS, words
from tidemill.tidb.sql.lexer import Kind, SqlMode

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


# Operators, loosest first


def parse_expression(p: Parser, level: int = 0) -> Expression:
    if level == len(_LOGICAL):
        return _parse_not(p)
    left = parse_expression(p, level + 1)
    while p.at_any(_LOGICAL[level]) and not (p.at("||") and SqlMode.PIPES_AS_CONCAT in p.mode):
        operator = _LOGICAL[level][p.next().upper]
        left = Expression(f"{left.text} {operator} {parse_expression(p, level + 1).text}")
    return left


def _parse_not(p: Parser) -> Expression:
    if p.at("NOT") and SqlMode.HIGH_NOT_PRECEDENCE not in p.mode:
        p.next()
        return _parse_not(p).negated()
    if p.token.kind is Kind.USER_VARIABLE and p.peek().upper == ":=":
        return Expression(f"{_user_variable(p)}:={_assigned_value(p)}")
    if p.at("MATCH"):
        return Expression(match_against(p))
    return _parse_comparison(p)


def _user_variable(p: Parser) -> str:
    return "@" + quote_name(p.expect_kind(Kind.USER_VARIABLE).text)


def _assigned_value(p: Parser) -> str:
    p.expect(":=")
    return p.expression()


def _parse_comparison(p: Parser) -> Expression:
    left = _parse_predicate(p)
    while True:
        if p.accept("IS"):
            negation = "NOT " if p.accept("NOT") else ""
            word = p.expect_any(("NULL", "UNKNOWN", "TRUE", "FALSE"))
            left = Expression(f"{left.text} IS {negation}{'NULL' if word == 'UNKNOWN' else word}")
            if word != "NULL":
                return left
        elif p.at_any(_COMPARISONS):
            operator = _COMPARISONS[p.next().upper]
            left = Expression(f"{left.text}{operator}{_comparison_operand(p)}")
        else:
            return left


def _comparison_operand(p: Parser) -> str:
    if p.at_any(("ANY", "SOME", "ALL")) and p.peek().upper == "(":
        quantifier = "ALL" if p.next().upper == "ALL" else "ANY"
        query = p.accept_subquery()
        if not query:
            raise p.fail("a subquery")
        return f"{quantifier} {query}"
    if p.token.kind is Kind.USER_VARIABLE and p.peek().upper == ":=":
        variable = _user_variable(p)
        p.expect(":=")
        return f"{variable}:={_parse_predicate(p).text}"
    return _parse_predicate(p).text


def _parse_predicate(p: Parser) -> Expression:
    left = parse_bits(p)
    negation = ""
    if p.at("NOT") and p.peek().upper in ("IN", "BETWEEN", "LIKE", "ILIKE", "REGEXP", "RLIKE"):
        p.next()
        negation = "NOT "
    if p.accept("IN"):
        return Expression(f"{left.text} {negation}IN {_in_list(p)}")
    if p.accept("BETWEEN"):
        low = parse_bits(p).text
        p.expect("AND")
        return Expression(f"{left.text} {negation}BETWEEN {low} AND {_parse_predicate(p).text}")
    if operator := p.accept_any(("LIKE", "ILIKE")):
        return Expression(f"{left.text} {negation}{operator} {p.simple()}{_like_escape(p)}")
    if p.accept_any(("REGEXP", "RLIKE")):
        return Expression(f"{left.text} {negation}REGEXP {p.simple()}")
    if p.accept("MEMBER", "OF"):
        p.expect("(")
        array = p.simple()
        p.expect(")")
        return Expression(f"{left.text} MEMBER OF ({array})")
    return left


def _in_list(p: Parser) -> str:
    if query := p.accept_subquery(collapse=False):
        return query
    return p.in_parentheses(p.expression, ",")


def _like_escape(p: Parser) -> str:
    if not p.accept("ESCAPE"):
        return ""
    escape = p.raw_string()
    if len(escape.encode()) > 1:
        raise p.fail("an escape of one byte")
    return "" if escape in ("", "\\") else f" ESCAPE {quote_text(escape)}"


def parse_bits(p: Parser, level: int = 1) -> Expression:
    left = _parse_interval_sum(p) if p.at("INTERVAL") else parse_simple(p)
    while p.token.upper in _ARITHMETIC and _ARITHMETIC[p.token.upper][0] >= level:
        strength, operator = _ARITHMETIC[p.next().upper]
        if strength == _SUM_LEVEL and p.at("INTERVAL") and (amount := p.try_parse(p.interval)):
            left = Expression(f"DATE_{'ADD' if operator == '+' else 'SUB'}({left.text}, {amount})")
        else:
            left = Expression(f"{left.text}{operator}{parse_bits(p, strength + 1).text}")
    return left


def read_interval(p: Parser) -> str:
    p.expect("INTERVAL")
    amount = p.expression()
    return f"INTERVAL {amount} {p.time_unit()}"


def _parse_interval_sum(p: Parser) -> Expression:
    """Parse INTERVAL 1 DAY + a, or the function INTERVAL()."""

    def interval_plus() -> str:
        amount = p.interval()
        p.expect("+")
        return f"DATE_ADD({parse_bits(p, _SUM_LEVEL + 1).text}, {amount})"

    text = p.try_parse(interval_plus)
    return Expression(text) if text else parse_simple(p)


# Operands


def parse_simple(p: Parser) -> Expression:
    left = _parse_unary(p)
    while p.at("||") and SqlMode.PIPES_AS_CONCAT in p.mode:
        p.next()
        left = Expression(f"CONCAT({left.text}, {_parse_unary(p).text})")
    return left


def _parse_unary(p: Parser) -> Expression:
    if sign := p.accept_any(("!", "~", "-", "+")):
        return Expression(sign + _parse_unary(p).text)
    if p.at("NOT") and SqlMode.HIGH_NOT_PRECEDENCE in p.mode:
        p.next()
        return Expression("!" + _parse_unary(p).text)
    if p.accept("BINARY"):
        return Expression(f"BINARY {_parse_unary(p).text}")
    operand = _parse_operand(p)
    while p.accept("COLLATE"):
        operand = Expression(f"{operand.text} COLLATE {p.collation_name()}")
    return operand


def _parse_operand(p: Parser) -> Expression:
    return p.once("operand", _read_operand)


def _read_operand(p: Parser) -> Expression:
    token = p.token
    if p.at("("):
        return _parse_parenthesised(p)
    if p.accept("ROW"):
        return _row(p, _parenthesised_list(p))
    if p.accept("EXISTS"):
        query = p.accept_subquery()
        if not query:
            raise p.fail("a subquery")
        return Expression(f"EXISTS {query}", Shape.EXISTS)
    if token.kind is Kind.WORD and (special := accept_special_form(p)):
        return Expression(special)
    if text := p.accept_literal():
        if token.kind is Kind.INT and whole_number(token.text) < 2**63:
            return Expression(text, Shape.INTEGER)
        return Expression(text, Shape.VALUE)
    if token.kind is Kind.USER_VARIABLE:
        return Expression(_user_variable(p))
    if token.kind is Kind.SYSTEM_VARIABLE:
        return Expression(_system_variable(p))
    if p.accept("?"):
        return Expression("?")
    if p.accept("{"):
        return Expression(_odbc_literal(p))
    return Expression(column_or_call(p))


def _parse_parenthesised(p: Parser) -> Expression:
    if query := p.accept_subquery(collapse=False):
        return Expression(query)
    values = _parenthesised_list(p)
    return Expression(f"({values[0].text})") if len(values) == 1 else _row(p, values)


def _parenthesised_list(p: Parser) -> list[Expression]:
    p.expect("(")
    values = [parse_expression(p)]
    while p.accept(","):
        values.append(parse_expression(p))
    p.expect(")")
    return values


def _row(p: Parser, values: list[Expression]) -> Expression:
    if len(values) < 2:
        raise p.fail("a row of two values or more")
    items = tuple(value.text for value in values)
    return Expression(f"ROW({','.join(items)})", Shape.ROW, items)


def _system_variable(p: Parser) -> str:
    scope, dot, name = p.next().text.lower().partition(".")
    if not dot or scope not in ("global", "session", "local"):
        return "@@" + quote_name(scope + dot + name)
    return f"@@{'GLOBAL' if scope == 'global' else 'SESSION'}.{quote_name(name)}"


def _odbc_literal(p: Parser) -> str:
    kind = {"d": "DATE ", "t": "TIME ", "ts": "TIMESTAMP "}.get(p.identifier(), "")
    text = p.plain_string() if kind and p.token.kind is Kind.STRING else p.expression()
    p.expect("}")
    return kind + text


def column_or_call(p: Parser) -> str:
    generic = p.token.kind is Kind.NAME
    start = p.token
    if generic and p.peek().upper == "(":
        name = p.identifier()
        if name.lower() in _UNPRINTABLE_CALLS:
            raise p.fail("a function that can be printed")
        return name.upper() + argument_list(p)
    if p.peek().upper == "." and p.peek(3).upper == "(" and p.at_identifier():
        schema = p.name()
        p.expect(".")
        function = p.identifier()
        # TiDB looks for keywords in upper case only here.
        printed = function if function in _PLAIN_QUALIFIED_FUNCTIONS else quote_name(function)
        return f"{schema}.{printed}{argument_list(p)}"
    column = p.column_name()
    if arrow := p.accept_any(("->", "->>")):
        path = f"_{p.value_charset.upper()}{p.plain_string()}"
        extract = f"JSON_EXTRACT({column}, {path})"
        return f"JSON_UNQUOTE({extract})" if arrow == "->>" else extract
    if start.kind is Kind.WORD and start.reserved:
        raise p.fail("an expression")
    return column
