"""SELECT, for views and CREATE TABLE … AS.

Here the structure matters more than in expressions: TiDB's grammar moves ORDER BY and LIMIT of the last operand of a
UNION to the UNION, drops doubled parentheses, and puts parentheses around nested joins.
"""

from __future__ import annotations

from copy import deepcopy

from tidemill.tidb.ddltext.cursor import printed_name
from tidemill.tidb.ddltext.dialects import Part
from tidemill.tidb.ddltext.queries.expressions import Expression, Expressions, Shape
from tidemill.tidb.ddltext.queries.hints import print_hints
from tidemill.tidb.ddltext.queries.literals import quote_name
from tidemill.tidb.ddltext.queries.tree import Join, Operand, Query, Select, Source, Union, cross_join, operand_of
from tidemill.tidb.sql.keywords import words
from tidemill.tidb.sql.lexer import Kind

_SET_OPERATORS = frozenset(("UNION", "EXCEPT", "INTERSECT"))

_QUERY_STARTS = frozenset(("SELECT", "TABLE", "VALUES", "WITH", "("))

_JOIN_STARTS = words("JOIN INNER CROSS LEFT RIGHT NATURAL STRAIGHT_JOIN")

_FLAGS = ("SQL_SMALL_RESULT", "SQL_BIG_RESULT", "SQL_BUFFER_RESULT", "SQL_NO_CACHE", "SQL_CALC_FOUND_ROWS")

_PRIORITIES = ("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED")


class Queries(Expressions):
    """SELECT, TABLE, VALUES, set operators, and the FROM clause."""

    # Whole queries

    def at_query(self) -> bool:
        return self.at_any(_QUERY_STARTS)

    def query(self) -> str:
        """Parse a query that is a whole clause. Of the parentheses around it one pair is kept."""
        query, parenthesised = self.parse_query()
        query.braces = query.braces or parenthesised
        return self.printed(query)

    def accept_subquery(self, collapse: bool = True) -> str:
        query = self.accept_parenthesised_query(collapse)
        return f"({self.printed(query)})" if query is not None else ""

    def printed(self, query: Query) -> str:
        """Return the query's text. Its length counts as work: TiDB prints some WITH twice, and those within them four times."""
        text = query.print()
        self.spend(len(text) // 64)
        return text

    def accept_parenthesised_query(self, collapse: bool = True) -> Query | None:
        """Parse a query in parentheses. Returns None, with nothing consumed, when something else follows.

        More than one pair of parentheses around it counts as one, except in expressions (collapse=False), where only
        the innermost pair belongs to the query.
        """
        opened = self.opened()
        if not opened or self.peek(opened).upper not in ("SELECT", "TABLE", "VALUES", "WITH"):
            return None

        def parse() -> Query:
            self.expect("(")
            query, doubled = self.parse_query()
            if doubled and not collapse:
                raise self.fail("a query without more parentheses")
            self.expect(")")
            return query

        # Callers change the query that they get, so each gets a copy.
        return deepcopy(self.try_parse(lambda: self.once(("query", collapse), parse)))

    def parse_query(self) -> tuple[Query, bool]:
        """Parse a query between parentheses or after AS. Returns it, and whether it is only a query in parentheses."""
        with_clause = self.with_clause() if self.at("WITH") else ""
        parts: list[Select | Operand] = []
        operators: list[str] = []
        while True:
            inner = self.accept_parenthesised_query()
            query = inner if inner is not None else self.parse_select()
            if not self.at_any(_SET_OPERATORS):
                return self.finish_query(with_clause, parts, operators, query, inner is not None)
            parts.append(operand_of(query) if inner is not None else self.as_select(query))
            operators.append(self.set_operator())

    def finish_query(
        self,
        with_clause: str,
        parts: list[Select | Operand],
        operators: list[str],
        last: Query,
        parenthesised: bool,
    ) -> tuple[Query, bool]:
        if not parenthesised:
            select = self.as_select(last)
            if not parts:
                select.with_clause = with_clause
                return select, False
            union = Union([*parts, select], operators, select.order, select.limit, with_clause)
            select.order = select.limit = ""
            return union, False
        order = f" {self.order_by()}" if self.at("ORDER") else ""
        limit = self.limit()
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

    def as_select(self, query: Query) -> Select:
        assert isinstance(query, Select)
        return query

    def set_operator(self) -> str:
        operator = self.next().upper
        if self.accept("ALL"):
            return f"{operator} ALL"
        self.accept_any(("DISTINCT", "DISTINCTROW"))
        return operator

    def with_clause(self) -> str:
        self.expect("WITH")
        recursive = "RECURSIVE " if self.accept("RECURSIVE") else ""
        return f"WITH {recursive}{self.list_of(self.common_table)} "

    def common_table(self) -> str:
        written = self.identifier()
        self.common_tables.add(written.lower())
        self.names.common_table(written)
        name = quote_name(written)
        columns = " " + self.in_parentheses(self.name) if self.at("(") else ""
        self.expect("AS")
        query = self.accept_subquery()
        if not query:
            raise self.fail("a subquery")
        return f"{name}{columns} AS {query}"

    # One SELECT

    def parse_select(self) -> Select:
        if self.accept("TABLE"):
            table = self.table_name()
            select = Select(self.dialect.part(Part.TABLE_QUERY, "TABLE") + f" {table}")
        elif self.accept("VALUES"):
            select = Select(f"VALUES {self.list_of(self.values_row)}")
        else:
            self.expect("SELECT")
            select = Select(self.select_body())
        select.order = f" {self.order_by()}" if self.at("ORDER") else ""
        select.limit = self.limit()
        select.tail = self.locking()
        return select

    def values_row(self) -> str:
        self.expect("ROW", "(")
        values = "" if self.at(")") else self.list_of(self.value_or_default, ",")
        self.expect(")")
        return f"{self.dialect.part(Part.VALUES_ROW, 'ROW')}({values})"

    def value_or_default(self) -> str:
        if self.at("DEFAULT") and self.peek().upper != "(":
            self.next()
            return "DEFAULT"
        return self.expression()

    def select_body(self) -> str:
        text = f"SELECT {self.select_options()}{self.list_of(self.select_field, ',')}"
        having = self.having()
        has_from = from_dual = False
        where = group = windows = ""
        if self.accept("FROM"):
            from_dual = self.accept("DUAL")
            has_from = not from_dual
            if has_from:
                text += f" FROM {self.table_references()}"
        if self.accept("WHERE"):
            where = ("" if has_from else " FROM DUAL") + f" WHERE {self.expression()}"
        if self.at("GROUP"):
            group = self.group_by()
        if has_from:
            having = self.having() or having
            if self.accept("WINDOW"):
                windows = f" WINDOW {self.list_of(self.window_definition, ',')}"
        return text + where + group + having + windows

    def select_options(self) -> str:
        """Parse options written in any order, printed in TiDB's order."""
        seen: set[str] = set()
        priority = hints = ""
        while True:
            if self.token.kind is Kind.HINT:
                text = print_hints(self.next().text, self.mode, self.names)
                hints = hints or text
            elif word := self.accept_any(_PRIORITIES):
                priority = f"{word} "
            elif word := self.accept_any((*_FLAGS, "SQL_CACHE", "STRAIGHT_JOIN", "ALL")):
                seen.add(word)
            elif self.accept_any(("DISTINCT", "DISTINCTROW")):
                seen.add("DISTINCT")
            else:
                break
        if {"ALL", "DISTINCT"} <= seen:
            raise self.fail("ALL or DISTINCT, not both")
        flags = "".join(f"{word} " for word in _FLAGS if word in seen)
        rest = "".join(f"{word} " for word in ("DISTINCT", "ALL", "STRAIGHT_JOIN") if word in seen)
        return priority + flags + hints + rest

    def select_field(self) -> str:
        for dots in range(3):
            if self.peek(2 * dots).upper == "*" and all(self.peek(2 * n + 1).upper == "." for n in range(dots)):
                qualifiers = self.qualified([self.qualifier() for _ in range(dots)])
                self.expect("*")
                return f"{qualifiers}*"
        text = self.expression()
        alias = self.field_alias()
        return f"{text} AS {quote_name(alias)}" if alias else text

    def qualifier(self) -> str:
        name = self.identifier()
        self.expect(".")
        return name

    def field_alias(self) -> str:
        if self.accept("AS"):
            return self.string_name()
        if self.token.kind is Kind.STRING or self.at_identifier():
            return self.string_name()
        return ""

    def having(self) -> str:
        return f" HAVING {self.expression()}" if self.accept("HAVING") else ""

    def group_by(self) -> str:
        self.expect("GROUP", "BY")
        text = f" GROUP BY {self.list_of(self.by_item, ',')}"
        if self.accept("WITH"):
            self.expect("ROLLUP")
            text += " WITH ROLLUP"
        return text

    def order_by(self) -> str:
        self.expect("ORDER", "BY")
        return f"ORDER BY {self.list_of(self.by_item, ',')}"

    def by_item(self) -> str:
        text = position_text(self.parse_expression())
        if self.accept("DESC"):
            return f"{text} DESC"
        self.accept("ASC")
        return text

    def limit(self) -> str:
        if self.accept("LIMIT"):
            first = self.limit_number()
            if self.accept(","):
                return f" LIMIT {first},{self.limit_number()}"
            if self.accept("OFFSET"):
                return f" LIMIT {self.limit_number()},{first}"
            return f" LIMIT {first}"
        if self.accept("FETCH"):
            self.expect_any(("FIRST", "NEXT"))
            count = "1" if self.at_any(("ROW", "ROWS")) else self.limit_number()
            self.expect_any(("ROW", "ROWS"))
            self.expect("ONLY")
            return f" LIMIT {count}"
        return ""

    def limit_number(self) -> str:
        return "?" if self.accept("?") else str(self.unsigned())

    def locking(self) -> str:
        if self.accept("LOCK", "IN", "SHARE", "MODE"):
            return " FOR SHARE"
        if not self.at("FOR"):
            return ""
        self.next()
        text = f" FOR {self.expect_any(('UPDATE', 'SHARE'))}"
        if self.accept("OF"):
            text += f" OF {self.list_of(self.locked_table)}"
        if self.accept("NOWAIT"):
            return f"{text} NOWAIT"
        if self.accept("SKIP", "LOCKED"):
            return f"{text} SKIP LOCKED"
        return f"{text} WAIT {self.unsigned()}" if self.accept("WAIT") else text

    def locked_table(self) -> str:
        return printed_name(self.names.qualifier(self.parse_table_name()))

    # Windows

    def window_definition(self) -> str:
        name = self.name()
        self.expect("AS")
        return f"{name} AS {self.window_spec()}"

    def window_spec(self) -> str:
        self.expect("(")
        parts = []
        if self.at_identifier():
            parts.append(self.name())
        if self.accept("PARTITION", "BY"):
            parts.append(f"PARTITION BY {self.list_of(self.by_item)}")
        if self.at("ORDER"):
            parts.append(self.order_by())
        if unit := self.accept_any(("ROWS", "RANGE")):
            parts.append(f"{unit} BETWEEN {self.frame()}")
        self.expect(")")
        return f"({' '.join(parts)})"

    def frame(self) -> str:
        if not self.accept("BETWEEN"):
            return f"{self.frame_bound(('PRECEDING',))} AND CURRENT ROW"
        start = self.frame_bound(("PRECEDING", "FOLLOWING"))
        self.expect("AND")
        return f"{start} AND {self.frame_bound(('PRECEDING', 'FOLLOWING'))}"

    def frame_bound(self, directions: tuple[str, ...]) -> str:
        if self.accept("CURRENT", "ROW"):
            return "CURRENT ROW"
        if self.accept("UNBOUNDED"):
            amount = "UNBOUNDED"
        elif self.at("INTERVAL"):
            amount = self.interval()
        else:
            amount = self.number()
        return f"{amount} {self.expect_any(directions)}"

    # FROM

    def table_references(self) -> str:
        return self.parse_table_references().print()

    def parse_table_references(self) -> Join:
        first = self.parse_escaped_reference()
        joined = first if isinstance(first, Join) else Join(first)
        while self.accept(","):
            joined = Join(joined, self.parse_escaped_reference())
        return joined

    def parse_escaped_reference(self) -> Source | Join:
        if not self.accept("{"):
            return self.parse_reference()
        self.identifier()  # OJ
        reference = self.parse_reference()
        self.expect("}")
        return reference

    def parse_reference(self) -> Source | Join:
        left = self.parse_factor()
        while self.at_any(_JOIN_STARTS):
            left = self.parse_join(left)
        return left

    def parse_join(self, left: Source | Join) -> Join:
        if self.accept("NATURAL"):
            side = self.accept_any(("LEFT", "RIGHT"))
            if side:
                self.accept("OUTER")
            self.expect("JOIN")
            return Join(left, self.parse_factor(), f" NATURAL{' ' + side if side else ''} JOIN ")
        if self.accept("STRAIGHT_JOIN"):
            right = self.parse_factor()
            return Join(left, right, " STRAIGHT_JOIN ", self.join_condition())
        if side := self.accept_any(("LEFT", "RIGHT")):
            self.accept("OUTER")
            self.expect("JOIN")
            right = self.parse_reference()
            condition = self.join_condition()
            if not condition:
                raise self.fail("ON or USING")
            return Join(left, right, f" {side} JOIN ", condition)
        self.accept_any(("INNER", "CROSS"))
        self.expect("JOIN")
        right = self.parse_reference()
        condition = self.join_condition()
        return Join(left, right, condition=condition) if condition else cross_join(left, right)

    def join_condition(self) -> str:
        if self.accept("ON"):
            return f" ON {self.expression()}"
        if self.accept("USING"):
            return f" USING {self.in_parentheses(self.column_name, ',')}"
        return ""

    def parse_factor(self) -> Source | Join:
        lateral = "LATERAL " if self.at("LATERAL", "(") and self.accept("LATERAL") else ""
        if (query := self.accept_parenthesised_query()) is not None:
            text = f"{lateral}({self.printed(query)})"
            alias = self.table_alias()
            self.names.source(("", alias), alias, common=True)
            return Source(f"{text} AS {quote_name(alias)}" if alias else text, is_query=True)
        if lateral:
            raise self.fail("a query")
        if self.accept("("):
            joined = self.parse_table_references()
            self.expect(")")
            joined.parentheses = True
            return joined
        name, text = self.parse_table_name(), ""
        common = not name[0] and name[1].lower() in self.common_tables
        if self.accept("PARTITION"):
            text += f" PARTITION{self.in_parentheses(self.name)}"
        if alias := self.table_alias():
            text += f" AS {quote_name(alias)}"
        text = printed_name(self.names.source(name, alias, common=common)) + text
        if self.at("AS", "OF"):
            self.expect("AS", "OF", "TIMESTAMP")
            text += f" AS OF TIMESTAMP {self.expression()}"
        while self.at_any(("USE", "IGNORE", "FORCE")) and self.peek().upper in ("INDEX", "KEY"):
            text += f" {self.index_hint()}"
        if self.at("TABLESAMPLE"):
            raise self.fail("no TABLESAMPLE")
        return Source(text)

    def table_alias(self) -> str:
        if self.at("AS") and self.peek().upper != "OF":
            self.next()
            return self.identifier()
        return self.identifier() if self.at_identifier() else ""

    def index_hint(self) -> str:
        action = self.expect_any(("USE", "IGNORE", "FORCE"))
        self.expect_any(("INDEX", "KEY"))
        scope = ""
        if self.accept("FOR"):
            scope = " FOR " + self.expect_any(("JOIN", "ORDER", "GROUP"))
            if not scope.endswith("JOIN"):
                self.expect("BY")
                scope += " BY"
        self.expect("(")
        self.accept(",")  # TiDB's grammar takes an empty first name
        names = "" if self.at(")") else self.list_of(self.index_name)
        self.expect(")")
        return f"{action} INDEX{scope} ({names})"

    def index_name(self) -> str:
        if self.at("PRIMARY"):
            return quote_name(self.next().text)
        return self.name()


def position_text(expression: Expression) -> str:
    """Return the text in ORDER BY and GROUP BY, where a whole number is a position, and TRUE and FALSE are 1 and 0."""
    if expression.shape is Shape.VALUE and expression.text in ("TRUE", "FALSE"):
        return "1" if expression.text == "TRUE" else "0"
    return expression.text
