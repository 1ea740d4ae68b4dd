"""What RENAME TABLE with several tables means for each table: one move from its first name to its last, in an order that can be run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Name = tuple[str, str]
"""Schema and table."""


@dataclass(frozen=True, slots=True)
class Move:
    """A table that has another name after the statement."""

    table_id: int
    old: Name
    new: Name


def in_order(moves: Sequence[Move]) -> list[Move]:
    """The moves so that each finds its new name free, as near to the given order as that allows.

    In `RENAME TABLE b TO tmp, a TO b, tmp TO c` the table b has to go to c before a goes to b. For tables that change their names in a
    circle no order will do: there the first one given goes first.
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
