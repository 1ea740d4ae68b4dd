"""Which columns tell rows apart, and where a column comes from: read off a plan's expressions. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.views.plan import Filter, Join, Key, Node, OtherJoin, Project, Scan, columns_of, ref

Pair = tuple[str, str]
"""What is equal on both sides of a join, each over the columns of its side."""


def plain_refs(sql: str) -> set[str]:
    """Return the columns of an expression, each as an expression that is nothing but it."""
    return {ref(one) for one in columns_of(sql)}


def plain_places(keys: Sequence[str]) -> set[int]:
    """Return the columns among keys that are nothing but a column."""
    return {next(iter(columns_of(one))) for one in keys if one in plain_refs(one)}


def origin_of(node: Node, place: int) -> tuple[Scan, int] | None:
    """Return the table's column that a column of a node is, with the scan that read it; None for one that is computed."""
    match node:
        case Scan():
            return node, node.chosen[place]
        case Filter():
            return origin_of(node.input, place)
        case Project():
            sql = node.values[place]
            return origin_of(node.input, next(iter(columns_of(sql)))) if sql in plain_refs(sql) else None
        case Join():
            for side in node.sides:
                if place < len(side.columns):
                    return origin_of(side, place)
                place -= len(side.columns)
        case OtherJoin():
            width = len(node.left.columns)
            return origin_of(node.left, place) if place < width else origin_of(node.right, place - width)
    return None


def joined_key(left: Node, right: Node, pairs: Sequence[Pair]) -> Key:
    """Return the key of an inner join: both keys, or one side's where each of its rows meets at most one row of the other."""
    width = len(left.columns)
    if left.key is None or right.key is None:
        return None
    if set(right.key) <= plain_places([b for _, b in pairs]):
        return left.key
    moved = tuple(width + one for one in right.key)
    if set(left.key) <= plain_places([a for a, _ in pairs]):
        return moved
    return (*left.key, *moved)
