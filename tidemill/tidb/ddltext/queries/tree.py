"""The parts of a query that TiDB prints in another order than that of the text."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Select:
    """One SELECT, TABLE or VALUES. `body` is the text up to ORDER BY, `tail` the text after LIMIT."""

    body: str
    order: str = ""
    limit: str = ""
    tail: str = ""
    with_clause: str = ""
    with_outside: bool = False  # the WITH stands before the parentheses
    braces: bool = False

    def print(self) -> str:
        """Return the text."""
        inner = self.body + self.order + self.limit + self.tail
        if not self.with_outside:
            inner = self.with_clause + inner
        if self.braces:
            inner = f"({inner})"
        return self.with_clause + inner if self.with_outside else inner


@dataclass(slots=True)
class Operand:
    """A query in parentheses inside a UNION."""

    parts: list[Select | Operand]
    operators: list[str]
    with_clause: str = ""
    order: str = ""
    limit: str = ""

    def print(self) -> str:
        """Return the text."""
        return f"({self.with_clause}{print_operands(self.parts, self.operators)}{self.order}{self.limit})"


@dataclass(slots=True)
class Union:
    """Queries joined by set operators. `order` and `limit` are those of the whole."""

    parts: list[Select | Operand]
    operators: list[str]
    order: str = ""
    limit: str = ""
    with_clause: str = ""
    braces: bool = False

    def print(self) -> str:
        """Return the text."""
        inner = print_operands(self.parts, self.operators) + self.order + self.limit
        return self.with_clause + (f"({inner})" if self.braces else inner)


Query = Select | Union


def print_operands(parts: list[Select | Operand], operators: list[str]) -> str:
    """Return the parts with the operators between them. There is one operator less than parts."""
    text = parts[0].print()
    for operator, part in zip(operators, parts[1:], strict=True):
        text += f" {operator} {part.print()}"
    return text


def operand_of(query: Query) -> Operand:
    """Return a parenthesised query as an operand of a UNION."""
    if isinstance(query, Select):
        return Operand([query], [])
    return Operand(query.parts, query.operators, query.with_clause, query.order, query.limit)


@dataclass(slots=True)
class Source:
    """A table or a derived table in FROM."""

    text: str
    is_query: bool = False

    def print(self) -> str:
        """Return the text."""
        return self.text


@dataclass(slots=True)
class Join:
    """Two sources and how they are joined; a single source has no right side."""

    left: Source | Join
    right: Source | Join | None = None
    kind: str = " JOIN "
    condition: str = ""
    parentheses: bool = field(default=False)  # written in parentheses

    def print(self) -> str:
        """Return the text."""
        # A comma only survives after a derived table that comes first; every other join on the left gets parentheses.
        comma = isinstance(self.left, Join) and self.left.right is None and isinstance(self.left.left, Source) and self.left.left.is_query
        text = self.left.print()
        if isinstance(self.left, Join) and not comma:
            text = f"({text})"
        if self.right is None:
            return text
        right = self.right.print()
        if isinstance(self.right, Join):
            right = f"({right})"
        kind = ", " if comma and self.kind == " JOIN " else self.kind
        if comma and self.kind.endswith(" JOIN ") and self.kind != " JOIN ":
            kind = self.kind.removesuffix(" JOIN ") + ", "
        return f"{text}{kind}{right}{self.condition}"


def cross_join(left: Source | Join, right: Source | Join) -> Join:
    """Join two sources. `a JOIN b LEFT JOIN c` binds to the left: (a JOIN b) LEFT JOIN c."""
    if not isinstance(right, Join) or right.right is None or right.parentheses:
        return Join(left, right)
    leftmost = right
    while isinstance(leftmost.left, Join) and leftmost.left.right is not None:
        leftmost = leftmost.left
    leftmost.left = Join(left, leftmost.left)
    return right
