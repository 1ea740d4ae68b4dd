"""RENAME TABLE with several tables: for each table one move from its first name to its last, in an order that can be run, and the pairs of
the statement, which can be run one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tidemill.tidb.names import folded_table
from tidemill.tidb.schema.events import Name, RenameStep


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
        taken = {folded_table(move.old): move.table_id for move in left}
        free = (move for move in left if taken.get(folded_table(move.new), move.table_id) == move.table_id)
        move = next(free, left[0])
        ordered.append(move)
        left.remove(move)
    return ordered


def steps_of(pairs: Sequence[Move]) -> dict[int, tuple[RenameStep, ...]]:
    """Return the pairs of a statement by table id: all of them, in their order, so that a consumer can run each as it comes.

    None at all where one would be missing or cannot be told from another: a table that keeps its name has no event, a database may be gone
    from the catalogue, and a consumer knows a DDL that comes again by its text.
    """
    steps: dict[int, tuple[RenameStep, ...]] = {}
    for place, pair in enumerate(pairs):
        steps[pair.table_id] = (*steps.get(pair.table_id, ()), RenameStep(place, pair.old, pair.new))
    keeps_its_name = any(of_table[0].old == of_table[-1].new for of_table in steps.values())
    is_repeated = len({(pair.old, pair.new) for pair in pairs}) < len(pairs)
    is_known = all(all(pair.old) and all(pair.new) for pair in pairs)
    return {} if keeps_its_name or is_repeated or not is_known else steps


def in_one_statement(moves: Sequence[Move], spare: Callable[[Move], Name]) -> list[tuple[Name, Name]]:
    """Return the pairs of one RENAME TABLE, which servers carry out from left to right. A ring of names is opened by a table that moves to
    its spare name first."""
    left = list(moves)
    pairs = []
    while left:
        taken = {folded_table(move.old): move.table_id for move in left}
        free = next((move for move in left if taken.get(folded_table(move.new), move.table_id) == move.table_id), None)
        if free is None:
            aside = spare(left[0])
            pairs.append((left[0].old, aside))
            left[0] = replace(left[0], old=aside)
        else:
            pairs.append((free.old, free.new))
            left.remove(free)
    return pairs
