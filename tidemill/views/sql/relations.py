"""Rows of a query with the names of their columns, and the steps that every part of the planner makes. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from tidemill.views.expressions import Scope, cast_to
from tidemill.views.plan import Aggregate, Column, Expr, Filter, Key, Node, Project, columns_of, ref
from tidemill.views.sql.keys import plain_refs


@dataclass(frozen=True)
class Relation:
    """Rows of a query: a node, and by which names its columns are called."""

    node: Node
    places: Mapping[tuple[str, str], int]

    @property
    def scope(self) -> Scope:
        """What an expression over these rows sees."""
        return Scope(self.node.columns, self.places)


def named(node: Node, alias: str) -> Relation:
    """Return a node's rows under an alias."""
    return Relation(node, {(alias.lower(), one.name.lower()): i for i, one in enumerate(node.columns)})


@dataclass(frozen=True, slots=True)
class Beside(Node):
    """The columns of two sides, for names only."""

    empty: tuple[()] = field(default=())


def beside(left: Relation, right: Relation) -> Relation:
    """Return the names that the condition of a join sees."""
    width = len(left.node.columns)
    places = {**left.places, **{name: width + at for name, at in right.places.items()}}
    return Relation(Beside(-1, (*left.node.columns, *right.node.columns), None), places)


def conjuncts(e: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield the conditions that AND joins."""
    if e is None:
        return
    if isinstance(e, exp.And):
        yield from conjuncts(e.left)
        yield from conjuncts(e.right)
    elif isinstance(e, exp.Paren):
        yield from conjuncts(e.this)
    else:
        yield e


class Steps:
    """Makes steps of a plan, each with a number of its own."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def number(self) -> int:
        """Return a number that no other step of the plan has."""
        return next(self._numbers)

    def cast(self, node: Node, columns: Sequence[Column]) -> Node:
        """Return rows whose columns have these types."""
        if all(a.type == b.type for a, b in zip(node.columns, columns, strict=True)):
            return node
        values = [cast_to(Expr(ref(i), one.type), columns[i].type).sql for i, one in enumerate(node.columns)]
        return Project(self.number(), tuple(columns), None, input=node, values=tuple(values))

    def distinct(self, node: Node) -> Node:
        """Return the rows without those that are equal to another."""
        every = tuple(range(len(node.columns)))
        return Aggregate(self.number(), node.columns, every, input=node, keys=len(every), aggregates=())

    def project(self, node: Node, columns: Sequence[Column], values: Sequence[Expr]) -> Node:
        """Return new columns out of the rows; a key whose columns stay is one still."""
        kept = {next(iter(columns_of(v.sql))): i for i, v in reversed(list(enumerate(values))) if v.sql.strip("()") in plain_refs(v.sql)}
        key: Key = None
        if node.key is not None and all(one in kept for one in node.key):
            key = tuple(kept[one] for one in node.key)
        return Project(self.number(), tuple(columns), key, input=node, values=tuple(v.sql for v in values))

    def filter(self, node: Node, conditions: list[str]) -> Node:
        """Return the rows for which all conditions are true."""
        if not conditions:
            return node
        return Filter(self.number(), node.columns, node.key, input=node, condition=" AND ".join(conditions))
