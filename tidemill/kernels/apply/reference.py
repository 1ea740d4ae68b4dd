"""The groups of rows that conflict, readable."""

from __future__ import annotations

from collections.abc import Sequence


def groups(conflicts: Sequence[Sequence[int]]) -> list[int]:
    """Return for each row the number of the first row of its group. Rows with a hash in common are in one group; 0 is not a hash."""
    group = list(range(len(conflicts)))
    holder: dict[int, int] = {}
    for row, hashes in enumerate(conflicts):
        for one in hashes:
            if not one:
                continue
            other = group[holder.setdefault(one, row)]
            mine = group[row]
            first, last = min(mine, other), max(mine, other)
            group = [first if number == last else number for number in group]
    return group
