"""SELECT, for views and CREATE TABLE … AS.

Here the structure matters more than in expressions: TiDB's grammar moves ORDER BY and LIMIT of the last operand of a
UNION to the UNION, drops doubled parentheses, and puts parentheses around nested joins.
"""

from __future__ import annotations

from copy import deepcopy

from tidemill.tidb.ddltext.cursor import printed_name
from tidemill.tidb.ddltext.dialects import Part
from tidemill.tidb.ddltext.queries.expressions import parse_bits, parse_expression, parse_simple, read_interval
from tidemill.tidb.ddltext.queries.hints import print_hints
from tidemill.tidb.ddltext.queries.parser import Expression, Parser, Rules, Shape
from tidemill.tidb.ddltext.queries.tree import Join, Operand, Query, Select, Source, Union, cross_join, operand_of
from tidemill.tidb.names import quote_name
from tidemill.tidb.sql.keywords import words
from tidemill.tidb.sql.lexer import Kind

_SET_OPERATORS = frozenset(("UNION", "EXCEPT", "INTERSECT"))

_QUERY_STARTS = frozenset(("SELECT", "TABLE", "VALUES", "WITH", "("))

_JOIN_STARTS = words("JOIN INNER CROSS LEFT RIGHT NATURAL STRAIGHT_JOIN")

_FLAGS = ("SQL_SMALL_RESULT", "SQL_BIG_RESULT", "SQL_BUFFER_RESULT", "SQL_NO_CACHE", "SQL_CALC_FOUND_ROWS")

_PRIORITIES = ("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED")


# Whole queries


def at_query(p: Parser) -> bool:
    return p.at_any(_QUERY_STARTS)


def query_clause(p: Parser) -> str:
    """Parse a query that is a whole clause. Of the parentheses around it one pair is kept."""
    query, parenthesised = _parse_query(p)
    query.braces = query.braces or parenthesised
    return _printed(p, query)


def accept_subquery(p: Parser, collapse: bool = True) -> str:
    query = _accept_parenthesised_query(p, collapse)
    return f"({_printed(p, query)})" if query is not None else ""


def _printed(p: Parser, query: Query) -> str:
    """Return the query's text. Its length counts as work: TiDB prints some WITH twice, and those within them four times."""
    text = query.print()
    p.spend(len(text) // 64)
    return text


def _accept_parenthesised_query(p: Parser, collapse: bool = True) -> Query | None:
    """Parse a query in parentheses. Returns None, with nothing consumed, when something else follows.

    More than one pair of parentheses around it counts as one, except in expressions (collapse=False), where only
    the innermost pair belongs to the query.
    """
    opened = p.opened()
    if not opened or p.peek(opened).upper not in ("SELECT", "TABLE", "VALUES", "WITH"):
        return None

    def parse(p: Parser) -> Query:
        p.expect("(")
        query, doubled = _parse_query(p)
        if doubled and not collapse:
            raise p.fail("a query without more parentheses")
        p.expect(")")
        return query

    # Callers change the query that they get, so each gets a copy.
    return deepcopy(p.try_parse(lambda: p.once(("query", collapse), parse)))


def _parse_query(p: Parser) -> tuple[Query, bool]:
    """Parse a query between parentheses or after AS. Returns it, and whether it is only a query in parentheses."""
    with_clause = _with_clause(p) if p.at("WITH") else ""
    parts: list[Select | Operand] = []
    operators: list[str] = []
    while True:
        inner = _accept_parenthesised_query(p)
        query = inner if inner is not None else _parse_select(p)
        if not p.at_any(_SET_OPERATORS):
            return _finish_query(p, with_clause, parts, operators, query, inner is not None)
        parts.append(operand_of(query) if inner is not None else _as_select(p, query))
        operators.append(_set_operator(p))


def _finish_query(
    p: Parser,
    with_clause: str,
    parts: list[Select | Operand],
    operators: list[str],
    last: Query,
    parenthesised: bool,
) -> tuple[Query, bool]:
    if not parenthesised:
        select = _as_select(p, last)
        if not parts:
            select.with_clause = with_clause
            return select, False
        union = Union([*parts, select], operators, select.order, select.limit, with_clause)
        select.order = select.limit = ""
        return union, False
    order = f" {order_by(p)}" if p.at("ORDER") else ""
    limit = _limit(p)
    if not parts and not order and not limit:
        if with_clause:
            last.with_clause, last.braces = with_clause, True
            if isinstance(last, Select):
                last.with_outside = True
        return last, not with_clause
    operand = operand_of(last)
    # TiDB prints the WITH of a parenthesised SELECT twice when it ends a UNION or has its own ORDER BY or LIMIT.
    operand.with_clause = last.with_clause
    return Union([*parts, operand], operators, order, limit, with_clause), False


def _as_select(p: Parser, query: Query) -> Select:
    assert isinstance(query, Select)
    return query


def _set_operator(p: Parser) -> str:
    operator = p.next().upper
    if p.accept("ALL"):
        return f"{operator} ALL"
    p.accept_any(("DISTINCT", "DISTINCTROW"))
    return operator


def _with_clause(p: Parser) -> str:
    p.expect("WITH")
    recursive = "RECURSIVE " if p.accept("RECURSIVE") else ""
    return f"WITH {recursive}{p.list_of(lambda: _common_table(p))} "


def _common_table(p: Parser) -> str:
    written = p.identifier()
    p.common_tables.add(written.lower())
    p.names.common_table(written)
    name = quote_name(written)
    columns = " " + p.in_parentheses(p.name) if p.at("(") else ""
    p.expect("AS")
    query = accept_subquery(p)
    if not query:
        raise p.fail("a subquery")
    return f"{name}{columns} AS {query}"


# One SELECT


def _parse_select(p: Parser) -> Select:
    if p.accept("TABLE"):
        table = p.table_name()
        select = Select(p.dialect.part(Part.TABLE_QUERY, "TABLE") + f" {table}")
    elif p.accept("VALUES"):
        select = Select(f"VALUES {p.list_of(lambda: _values_row(p))}")
    else:
        p.expect("SELECT")
        select = Select(_select_body(p))
    select.order = f" {order_by(p)}" if p.at("ORDER") else ""
    select.limit = _limit(p)
    select.tail = _locking(p)
    return select


def _values_row(p: Parser) -> str:
    p.expect("ROW", "(")
    values = "" if p.at(")") else p.list_of(lambda: value_or_default(p), ",")
    p.expect(")")
    return f"{p.dialect.part(Part.VALUES_ROW, 'ROW')}({values})"


def value_or_default(p: Parser) -> str:
    if p.at("DEFAULT") and p.peek().upper != "(":
        p.next()
        return "DEFAULT"
    return p.expression()


def _select_body(p: Parser) -> str:
    text = f"SELECT {_select_options(p)}{p.list_of(lambda: _select_field(p), ',')}"
    having = _having(p)
    has_from = from_dual = False
    where = group = windows = ""
    if p.accept("FROM"):
        from_dual = p.accept("DUAL")
        has_from = not from_dual
        if has_from:
            text += f" FROM {_table_references(p)}"
    if p.accept("WHERE"):
        where = ("" if has_from else " FROM DUAL") + f" WHERE {p.expression()}"
    if p.at("GROUP"):
        group = _group_by(p)
    if has_from:
        having = _having(p) or having
        if p.accept("WINDOW"):
            windows = f" WINDOW {p.list_of(lambda: _window_definition(p), ',')}"
    return text + where + group + having + windows


def _select_options(p: Parser) -> str:
    """Parse options written in any order, printed in TiDB's order."""
    seen: set[str] = set()
    priority = hints = ""
    while True:
        if p.token.kind is Kind.HINT:
            text = print_hints(p.next().text, p.mode, p.names)
            hints = hints or text
        elif word := p.accept_any(_PRIORITIES):
            priority = f"{word} "
        elif word := p.accept_any((*_FLAGS, "SQL_CACHE", "STRAIGHT_JOIN", "ALL")):
            seen.add(word)
        elif p.accept_any(("DISTINCT", "DISTINCTROW")):
            seen.add("DISTINCT")
        else:
            break
    if {"ALL", "DISTINCT"} <= seen:
        raise p.fail("ALL or DISTINCT, not both")
    flags = "".join(f"{word} " for word in _FLAGS if word in seen)
    rest = "".join(f"{word} " for word in ("DISTINCT", "ALL", "STRAIGHT_JOIN") if word in seen)
    return priority + flags + hints + rest


def _select_field(p: Parser) -> str:
    for dots in range(3):
        if p.peek(2 * dots).upper == "*" and all(p.peek(2 * n + 1).upper == "." for n in range(dots)):
            qualifiers = p.qualified([_qualifier(p) for _ in range(dots)])
            p.expect("*")
            return f"{qualifiers}*"
    text = p.expression()
    alias = _field_alias(p)
    return f"{text} AS {quote_name(alias)}" if alias else text


def _qualifier(p: Parser) -> str:
    name = p.identifier()
    p.expect(".")
    return name


def _field_alias(p: Parser) -> str:
    if p.accept("AS"):
        return p.string_name()
    if p.token.kind is Kind.STRING or p.at_identifier():
        return p.string_name()
    return ""


def _having(p: Parser) -> str:
    return f" HAVING {p.expression()}" if p.accept("HAVING") else ""


def _group_by(p: Parser) -> str:
    p.expect("GROUP", "BY")
    text = f" GROUP BY {p.list_of(lambda: _by_item(p), ',')}"
    if p.accept("WITH"):
        p.expect("ROLLUP")
        text += " WITH ROLLUP"
    return text


def order_by(p: Parser) -> str:
    p.expect("ORDER", "BY")
    return f"ORDER BY {p.list_of(lambda: _by_item(p), ',')}"


def _by_item(p: Parser) -> str:
    text = position_text(parse_expression(p))
    if p.accept("DESC"):
        return f"{text} DESC"
    p.accept("ASC")
    return text


def _limit(p: Parser) -> str:
    if p.accept("LIMIT"):
        first = _limit_number(p)
        if p.accept(","):
            return f" LIMIT {first},{_limit_number(p)}"
        if p.accept("OFFSET"):
            return f" LIMIT {_limit_number(p)},{first}"
        return f" LIMIT {first}"
    if p.accept("FETCH"):
        p.expect_any(("FIRST", "NEXT"))
        count = "1" if p.at_any(("ROW", "ROWS")) else _limit_number(p)
        p.expect_any(("ROW", "ROWS"))
        p.expect("ONLY")
        return f" LIMIT {count}"
    return ""


def _limit_number(p: Parser) -> str:
    return "?" if p.accept("?") else str(p.unsigned())


def _locking(p: Parser) -> str:
    if p.accept("LOCK", "IN", "SHARE", "MODE"):
        return " FOR SHARE"
    if not p.at("FOR"):
        return ""
    p.next()
    text = f" FOR {p.expect_any(('UPDATE', 'SHARE'))}"
    if p.accept("OF"):
        text += f" OF {p.list_of(lambda: _locked_table(p))}"
    if p.accept("NOWAIT"):
        return f"{text} NOWAIT"
    if p.accept("SKIP", "LOCKED"):
        return f"{text} SKIP LOCKED"
    return f"{text} WAIT {p.unsigned()}" if p.accept("WAIT") else text


def _locked_table(p: Parser) -> str:
    return printed_name(p.names.qualifier(p.parse_table_name()))


# Windows


def _window_definition(p: Parser) -> str:
    name = p.name()
    p.expect("AS")
    return f"{name} AS {window_spec(p)}"


def window_spec(p: Parser) -> str:
    p.expect("(")
    parts = []
    if p.at_identifier():
        parts.append(p.name())
    if p.accept("PARTITION", "BY"):
        parts.append(f"PARTITION BY {p.list_of(lambda: _by_item(p))}")
    if p.at("ORDER"):
        parts.append(order_by(p))
    if unit := p.accept_any(("ROWS", "RANGE")):
        parts.append(f"{unit} BETWEEN {_frame(p)}")
    p.expect(")")
    return f"({' '.join(parts)})"


def _frame(p: Parser) -> str:
    if not p.accept("BETWEEN"):
        return f"{_frame_bound(p, ('PRECEDING',))} AND CURRENT ROW"
    start = _frame_bound(p, ("PRECEDING", "FOLLOWING"))
    p.expect("AND")
    return f"{start} AND {_frame_bound(p, ('PRECEDING', 'FOLLOWING'))}"


def _frame_bound(p: Parser, directions: tuple[str, ...]) -> str:
    if p.accept("CURRENT", "ROW"):
        return "CURRENT ROW"
    if p.accept("UNBOUNDED"):
        amount = "UNBOUNDED"
    elif p.at("INTERVAL"):
        amount = p.interval()
    else:
        amount = p.number()
    return f"{amount} {p.expect_any(directions)}"


# FROM


def _table_references(p: Parser) -> str:
    return _parse_table_references(p).print()


def _parse_table_references(p: Parser) -> Join:
    first = _parse_escaped_reference(p)
    joined = first if isinstance(first, Join) else Join(first)
    while p.accept(","):
        joined = Join(joined, _parse_escaped_reference(p))
    return joined


def _parse_escaped_reference(p: Parser) -> Source | Join:
    if not p.accept("{"):
        return _parse_reference(p)
    p.identifier()  # OJ
    reference = _parse_reference(p)
    p.expect("}")
    return reference


def _parse_reference(p: Parser) -> Source | Join:
    left = _parse_factor(p)
    while p.at_any(_JOIN_STARTS):
        left = _parse_join(p, left)
    return left


def _parse_join(p: Parser, left: Source | Join) -> Join:
    if p.accept("NATURAL"):
        side = p.accept_any(("LEFT", "RIGHT"))
        if side:
            p.accept("OUTER")
        p.expect("JOIN")
        return Join(left, _parse_factor(p), f" NATURAL{' ' + side if side else ''} JOIN ")
    if p.accept("STRAIGHT_JOIN"):
        right = _parse_factor(p)
        return Join(left, right, " STRAIGHT_JOIN ", _join_condition(p))
    if side := p.accept_any(("LEFT", "RIGHT")):
        p.accept("OUTER")
        p.expect("JOIN")
        right = _parse_reference(p)
        condition = _join_condition(p)
        if not condition:
            raise p.fail("ON or USING")
        return Join(left, right, f" {side} JOIN ", condition)
    p.accept_any(("INNER", "CROSS"))
    p.expect("JOIN")
    right = _parse_reference(p)
    condition = _join_condition(p)
    return Join(left, right, condition=condition) if condition else cross_join(left, right)


def _join_condition(p: Parser) -> str:
    if p.accept("ON"):
        return f" ON {p.expression()}"
    if p.accept("USING"):
        return f" USING {p.in_parentheses(p.column_name, ',')}"
    return ""


def _parse_factor(p: Parser) -> Source | Join:
    lateral = "LATERAL " if p.at("LATERAL", "(") and p.accept("LATERAL") else ""
    if (query := _accept_parenthesised_query(p)) is not None:
        text = f"{lateral}({_printed(p, query)})"
        alias = _table_alias(p)
        p.names.source(("", alias), alias, common=True)
        return Source(f"{text} AS {quote_name(alias)}" if alias else text, is_query=True)
    if lateral:
        raise p.fail("a query")
    if p.accept("("):
        joined = _parse_table_references(p)
        p.expect(")")
        joined.parentheses = True
        return joined
    name, text = p.parse_table_name(), ""
    common = not name[0] and name[1].lower() in p.common_tables
    if p.accept("PARTITION"):
        text += f" PARTITION{p.in_parentheses(p.name)}"
    if alias := _table_alias(p):
        text += f" AS {quote_name(alias)}"
    text = printed_name(p.names.source(name, alias, common=common)) + text
    if p.at("AS", "OF"):
        p.expect("AS", "OF", "TIMESTAMP")
        text += f" AS OF TIMESTAMP {p.expression()}"
    while p.at_any(("USE", "IGNORE", "FORCE")) and p.peek().upper in ("INDEX", "KEY"):
        text += f" {_index_hint(p)}"
    if p.at("TABLESAMPLE"):
        raise p.fail("no TABLESAMPLE")
    return Source(text)


def _table_alias(p: Parser) -> str:
    if p.at("AS") and p.peek().upper != "OF":
        p.next()
        return p.identifier()
    return p.identifier() if p.at_identifier() else ""


def _index_hint(p: Parser) -> str:
    action = p.expect_any(("USE", "IGNORE", "FORCE"))
    p.expect_any(("INDEX", "KEY"))
    scope = ""
    if p.accept("FOR"):
        scope = " FOR " + p.expect_any(("JOIN", "ORDER", "GROUP"))
        if not scope.endswith("JOIN"):
            p.expect("BY")
            scope += " BY"
    p.expect("(")
    p.accept(",")  # TiDB's grammar takes an empty first name
    names = "" if p.at(")") else p.list_of(lambda: _index_name(p))
    p.expect(")")
    return f"{action} INDEX{scope} ({names})"


def _index_name(p: Parser) -> str:
    if p.at("PRIMARY"):
        return quote_name(p.next().text)
    return p.name()


def position_text(expression: Expression) -> str:
    """Return the text in ORDER BY and GROUP BY, where a whole number is a position, and TRUE and FALSE are 1 and 0."""
    if expression.shape is Shape.VALUE and expression.text in ("TRUE", "FALSE"):
        return "1" if expression.text == "TRUE" else "0"
    return expression.text


RULES = Rules(
    expression=parse_expression,
    bits=parse_bits,
    simple=parse_simple,
    interval=read_interval,
    subquery=accept_subquery,
    order_by=order_by,
    window_spec=window_spec,
)
"""The grammar of expressions and queries, for a `Parser`."""
