"""RENAME TABLE with several tables: for each table one move from its first name to its last, in an order that can be run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Name = tuple[str, str]
"""Schema and table."""


@dataclass(frozen=True, slots=True)
class Move:
    """A table that the statement renames."""

    table_id: int
    old: Name
    new: Name


def in_order(moves: Sequence[Move]) -> list[Move]:
    """Order the moves so that each new name is free, as near to the given order as possible.

    In `RENAME TABLE b TO tmp, a TO b, tmp TO c` the table b must become c before a becomes b. Tables that swap their names have no such
    order: there the first one given goes first.
    """
    left = list(moves)
    ordered = []
    while left:
        taken = {_folded(move.old): move.table_id for move in left}
        free = (move for move in left if taken.get(_folded(move.new), move.table_id) == move.table_id)
        move = next(free, left[0])
        ordered.append(move)
        left.remove(move)
    return ordered


def _folded(name: Name) -> Name:
    schema, table = name
    return schema.lower(), table.lower()
