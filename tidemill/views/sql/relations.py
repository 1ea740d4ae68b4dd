"""Rows of a query with the attributes that their columns are, and the steps that every part of the planner makes. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidemill.views.plan import Column, Expr, Filter, Key, Node, Project, columns_of
from tidemill.views.sql.expressions import Compiler, Scope
from tidemill.views.sql.keys import plain_refs
from tidemill.views.sql.tree import Fields, NotEmbedded, Tree


@dataclass(frozen=True)
class Relation:
    """Rows of a query: a node, and Spark's attribute of each column."""

    node: Node
    ids: tuple[int, ...]

    @property
    def scope(self) -> Scope:
        """What an expression over these rows sees."""
        return Scope(self.node.columns, {one: i for i, one in reversed(list(enumerate(self.ids)))})


def beside(left: Relation, right: Relation) -> Scope:
    """Return what the condition of a join sees."""
    ids = (*left.ids, *right.ids)
    return Scope((*left.node.columns, *right.node.columns), {one: i for i, one in reversed(list(enumerate(ids)))})


def conjuncts(tree: Tree | None) -> Iterator[Tree]:
    """Yield the conditions that AND joins."""
    if tree is None:
        return
    if tree.kind == "expressions.And":
        with Fields(tree) as f:
            yield from conjuncts(f.tree("left"))
            yield from conjuncts(f.tree("right"))
    elif tree.kind != "expressions.Literal" or tree.fields.get("value") is not True:
        yield tree


def attribute_of(tree: Tree) -> tuple[str, int]:
    """Return the name and the id of a column that a list of Spark's has: of an attribute, or of an expression with a name."""
    if tree.kind not in ("expressions.AttributeReference", "expressions.Alias"):
        raise NotEmbedded(f"a column without a name: {tree.kind}")
    return str(tree.fields["name"]), tree.fields["other0"].number


class Steps:
    """Makes steps of a plan, each with a number of its own."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def number(self) -> int:
        """Return a number that no other step of the plan has."""
        return next(self._numbers)

    def project(self, node: Node, columns: Sequence[Column], values: Sequence[Expr]) -> Node:
        """Return new columns out of the rows; a key whose columns stay is one still."""
        kept = {next(iter(columns_of(v.sql))): i for i, v in reversed(list(enumerate(values))) if v.sql in plain_refs(v.sql)}
        key: Key = None
        if node.key is not None and all(one in kept for one in node.key):
            key = tuple(kept[one] for one in node.key)
        return Project(self.number(), tuple(columns), key, input=node, values=tuple(v.sql for v in values))

    def shown(self, node: Node, compiler: Compiler, listed: Sequence[Tree]) -> Relation:
        """Return the expressions of a list, each with a name, as columns out of the rows."""
        values = [compiler.compile(one) for one in listed]
        attributes = [attribute_of(one) for one in listed]
        columns = [Column(name, v.type, v.nullable) for (name, _), v in zip(attributes, values, strict=True)]
        return Relation(self.project(node, columns, values), tuple(number for _, number in attributes))

    def filter(self, node: Node, conditions: list[str]) -> Node:
        """Return the rows for which all conditions are true."""
        if not conditions:
            return node
        return Filter(self.number(), node.columns, node.key, input=node, condition=" AND ".join(conditions))
