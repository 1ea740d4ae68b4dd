"""Spark's plan as it is read out of its JSON document: `Tree`, and `Fields`, which holds a reader to every field of a node. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_KEYS = {"class", "fields", "type", "deterministic", "step"}


@dataclass(frozen=True, slots=True)
class Tree:
    """A node or an expression of Spark. `kind`: its class, without Spark's package. `type`: of an expression, as Spark writes it.
    `step`: it is a step of the query."""

    kind: str
    fields: Mapping[str, Any]
    type: str = ""
    deterministic: bool = True
    step: bool = False

    def many(self, name: str) -> list[Any]:
        """Return a field that is a list."""
        found = self.fields.get(name)
        return found if isinstance(found, list) else []

    def every(self) -> Iterator[Tree]:
        """Yield the node and all that is in it."""
        yield self
        for value in self.fields.values():
            yield from _trees(value)


@dataclass(frozen=True, slots=True)
class Type:
    """A type, as the value of a field."""

    name: str


@dataclass(frozen=True, slots=True)
class Id:
    """What tells an attribute from all others."""

    number: int


@dataclass(frozen=True, slots=True)
class Named:
    """A table of the catalog."""

    name: str


@dataclass(frozen=True, slots=True)
class Other:
    """A value that has no form of its own here."""

    kind: str
    text: str


class NotEmbedded(Exception):
    """A part of a query that the embedded engine does not have. The message says which."""


def tree_of(document: Any) -> Tree:
    """Return a plan out of its document."""
    found = _value(document)
    assert isinstance(found, Tree), "a plan is a node"
    return found


def _value(given: Any) -> Any:
    if isinstance(given, list):
        return [_value(one) for one in given]
    if not isinstance(given, dict):
        return given
    if "class" in given:
        assert given.keys() <= _KEYS, given.keys()
        fields = {name: _value(one) for name, one in given["fields"].items()}
        return Tree(given["class"], fields, given.get("type", ""), given.get("deterministic", True), given.get("step", False))
    if "other" in given:
        return Other(given["other"], given["text"])
    if "id" in given:
        return Id(given["id"])
    return Named(given["table"]) if "table" in given else Type(given["type"])


def _trees(value: Any) -> Iterator[Tree]:
    if isinstance(value, Tree):
        yield from value.every()
    elif isinstance(value, list):
        for one in value:
            yield from _trees(one)


_ANYTHING = {"qualifier", "metadata", "hint", "resultId", "queryContext", "relation"}
"""Fields that do not change what a node computes: names for people, where in the text it stands, advice to Spark's optimizer."""


class Fields:
    """The fields of a node while it is read. `done` is where a field that nobody read must have the value that means nothing.

    with Fields(tree) as fields:
        child = fields.tree("child")
    """

    def __init__(self, tree: Tree) -> None:
        self.tree_, self._left = tree, dict(tree.fields)

    def __enter__(self) -> Fields:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.done()

    def any(self, name: str) -> Any:
        """Return a field."""
        if name not in self.tree_.fields:
            raise NotEmbedded(f"{short(self.tree_)} without {name}")
        self._left.pop(name, None)
        return self.tree_.fields[name]

    def tree(self, name: str) -> Tree:
        """Return a field that is a node."""
        found = self.any(name)
        if not isinstance(found, Tree):
            raise NotEmbedded(f"{short(self.tree_)} without {name}")
        return found

    def trees(self, name: str) -> list[Tree]:
        """Return a field that is a list of nodes."""
        found = self.any(name)
        if not isinstance(found, list) or not all(isinstance(one, Tree) for one in found):
            raise NotEmbedded(f"{short(self.tree_)} without {name}")
        return found

    def attribute(self, name: str) -> int:
        """Return a field that names an attribute."""
        found = self.any(name)
        if not isinstance(found, Id):
            raise NotEmbedded(f"{short(self.tree_)} without {name}")
        return found.number

    def is_(self, name: str, *values: Any) -> None:
        """A field must have one of these values."""
        found = self.any(name)
        said = found.text if isinstance(found, Other) else short(found) if isinstance(found, Tree) else found
        if said not in values:
            raise NotEmbedded(f"{short(self.tree_)} with {name} {said}")

    def done(self) -> None:
        """Each field was read, or has the value that means nothing. Raises NotEmbedded."""
        for name, value in self._left.items():
            if name not in _ANYTHING and value not in (None, False, []):
                raise NotEmbedded(f"{short(self.tree_)} with {name}")


def short(tree: Tree) -> str:
    """Return a node's class without its package."""
    return tree.kind.rpartition(".")[2].rstrip("$").rpartition("$")[2]


def same(value: Any) -> Any:
    """Return what two expressions have in common that compute the same: attributes are told apart by ids, not by names."""
    if isinstance(value, Tree):
        if value.kind == "expressions.AttributeReference":
            return ("attribute", value.fields["other0"].number)
        return (value.kind, value.type, tuple((name, same(one)) for name, one in value.fields.items() if name not in _ANYTHING))
    if isinstance(value, list):
        return tuple(same(one) for one in value)
    return value
