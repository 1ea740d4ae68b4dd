"""Rows that a DELETE or UPDATE did not meet, outside safe mode: the database was not as it should have been. Pure.

Such a row is counted, and of each statement the first keys are named. Nothing stops: after the transaction the row is as it should be.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

EVERY_S = 10.0
"""Warnings come at most so often."""
NAMED = 5
"""Statements that are named at most until somebody takes the names."""
NAMED_KEYS, KEY_BYTES = 3, 120
"""Keys of a statement that are named, and how much is shown of each."""
_DUPLICATES = re.compile(r"Duplicates: (\d+)")


class Meets(enum.Enum):
    """How a statement's answer says how many rows it has met."""

    ANY = enum.auto()  # nothing is expected
    AFFECTED = enum.auto()  # by its count: DELETE, UPDATE (with CLIENT.FOUND_ROWS), and a SELECT's rows
    DUPLICATES = enum.auto()  # INSERT … ON DUPLICATE KEY UPDATE of several rows: by its message, since its count adds insertions up


class Statement(NamedTuple):
    """One statement: exactly one answer comes. It should meet `rows` rows of a table, which `keys` find."""

    text: bytes
    meets: Meets = Meets.ANY
    rows: int = 0
    table: str = ""
    keys: Sequence[bytes] = ()


class Answer(NamedTuple):
    """A server's answer to a statement: rows, how many there are or were affected, and its message."""

    rows: Sequence[tuple[object, ...]]
    affected: int
    message: str


def not_met(statement: Statement, answer: Answer) -> int:
    """Return how many rows were not there. A server that does not tell counts as if all were."""
    match statement.meets:
        case Meets.AFFECTED:
            return max(0, statement.rows - answer.affected)
        case Meets.DUPLICATES if found := _DUPLICATES.search(answer.message):
            return max(0, statement.rows - int(found[1]))
    return 0


@dataclass(slots=True)
class Missed:
    """Counts rows that were not there, and names some."""

    rows: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, other: Missed) -> None:
        """Add what a transaction has counted."""
        self.rows += other.rows
        self.names += other.names[: NAMED - len(self.names)]

    def look(self, statement: Statement, answer: Answer) -> None:
        """Look at the answer to a statement."""
        missing = not_met(statement, answer)
        if not missing:
            return
        self.rows += missing
        if len(self.names) < NAMED:
            self.names.append(_name(statement, missing))

    def take(self) -> Missed:
        """Return what was counted, and begin again with nothing."""
        taken = Missed(self.rows, self.names)
        self.rows, self.names = 0, []
        return taken


def _name(statement: Statement, missing: int) -> str:
    shown = [key[:KEY_BYTES].decode("utf-8", "replace") for key in statement.keys[:NAMED_KEYS]]
    keys = ", ".join(shown) + (", …" if len(statement.keys) > len(shown) else "")
    return f"{statement.table}: {missing} of {statement.rows}, key {keys}"
