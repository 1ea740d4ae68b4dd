"""The changes of one transaction downstream → what has to be written: of each row only its last state. Pure.

A transaction is seen as a whole, so what a row was in between does not matter. Rows that go are deleted first, then rows that stay are
updated, then new ones are inserted. This order is right for any mix of rows: the states after the transaction have no value of a unique
key twice, and an update never changes such a key (it would have come as a delete and an insert).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tidemill.records import KIND_DELETE, KIND_INSERT


class Change(NamedTuple):
    """A change of a row. `key` finds it, `row` is the row after the change (of a delete empty). Both are SQL text."""

    kind: int
    key: bytes
    row: bytes


@dataclass(slots=True)
class Writes:
    """What is written of a table, in this order. `updates`: key and row."""

    deletes: list[bytes] = field(default_factory=list)
    updates: list[tuple[bytes, bytes]] = field(default_factory=list)
    inserts: list[bytes] = field(default_factory=list)


def merged(changes: Iterable[Change], *, safe: bool) -> Writes:
    """Return the writes of a table's changes. `safe`: the changes may have been written before, in part or all, and later ones too.

    Then rows are not updated or inserted, but replaced (`inserts`), and whatever goes is deleted, also if it should not be there.
    """
    found: dict[bytes, tuple[bool, bool, bytes]] = {}  # was there before, was deleted, the row as it is now
    for kind, key, row in changes:
        known = found.get(key)
        existed, deleted = (kind != KIND_INSERT, False) if known is None else known[:2]
        found[key] = existed, deleted or kind == KIND_DELETE, row
    writes = Writes()
    for key, (existed, deleted, row) in found.items():
        if safe:
            (writes.inserts if row else writes.deletes).append(row or key)
        elif existed and not deleted:
            writes.updates.append((key, row))
        else:
            if existed:
                writes.deletes.append(key)
            if row:
                writes.inserts.append(row)
    return writes
