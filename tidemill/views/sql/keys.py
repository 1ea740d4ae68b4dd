"""Which columns tell rows apart, and where a column comes from: read off a plan's expressions. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.views.plan import Filter, Join, Key, Node, OtherJoin, Project, Scan, columns_of, ref, with_columns


def plain_refs(sql: str) -> set[str]:
    """Return the columns of an expression, each as an expression that is nothing but it."""
    return {ref(one) for one in columns_of(sql)}


def plain_places(keys: Sequence[str]) -> set[int]:
    """Return the columns among keys that are nothing but a column."""
    return {next(iter(columns_of(one))) for one in keys if one.strip("()") in plain_refs(one)}


def _split_equation(sql: str) -> tuple[str, str] | None:
    """The sides of `(a = b)`, where each side is a column or a cast of one."""
    if not (sql.startswith("(") and sql.endswith(")")) or sql.startswith("(CASE "):
        return None  # an equation inside a CASE is not one of the whole
    a, equals, b = sql[1:-1].partition(" = ")
    if not equals or " = " in b or len(columns_of(a)) != 1 or len(columns_of(b)) != 1:
        return None
    for side in (a, b):
        if side.count("(") != side.count(")"):
            return None
    return a, b


def equal_sides(sql: str, width: int) -> tuple[str, str] | None:
    """Return the two keys of an equation between left and right, each over the columns of its side."""
    found = _split_equation(sql)
    if found is None:
        return None
    a, b = found
    (x,), (y,) = columns_of(a), columns_of(b)
    if x >= width > y:
        a, b, x, y = b, a, y, x
    if not x < width <= y:
        return None
    return a, with_columns(b, lambda n: ref(n - width))


def origin_of(node: Node, place: int) -> tuple[Scan, int] | None:
    """Return the table's column that a column of a node is, with the scan that read it; None for one that is computed."""
    match node:
        case Scan():
            return node, node.chosen[place]
        case Filter():
            return origin_of(node.input, place)
        case Project():
            sql = node.values[place]
            return origin_of(node.input, next(iter(columns_of(sql)))) if sql.strip("()") in plain_refs(sql) else None
        case Join():
            for side in node.sides:
                if place < len(side.columns):
                    return origin_of(side, place)
                place -= len(side.columns)
        case OtherJoin():
            width = len(node.left.columns)
            return origin_of(node.left, place) if place < width else origin_of(node.right, place - width)
    return None


def joined_key(left: Node, right: Node, conditions: Sequence[str]) -> Key:
    """Return the key of an inner join: both keys, or one side's where each of its rows meets at most one row of the other."""
    width = len(left.columns)
    pairs = [pair for one in conditions if (pair := equal_sides(one, width)) is not None]
    if left.key is None or right.key is None:
        return None
    if set(right.key) <= plain_places([b for _, b in pairs]):
        return left.key
    moved = tuple(width + one for one in right.key)
    if set(left.key) <= plain_places([a for a, _ in pairs]):
        return moved
    return (*left.key, *moved)
