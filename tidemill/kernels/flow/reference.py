"""The readable twins of the flow kernels: the same rules on Python objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from tidemill.records import KIND_DELETE, KIND_INSERT, KIND_UPDATE, SPLIT_DELETE, SPLIT_INSERT, SPLIT_NONE


@dataclass(frozen=True, slots=True)
class Row:
    """One change with its routing. `target` is -1 until it is known."""

    table_id: int
    start_ts: int
    commit_ts: int
    key: bytes
    value: bytes | None
    old_value: bytes | None
    table: int = 0
    target: int = -1
    split: int = SPLIT_NONE

    @property
    def kind(self) -> int:
        """Delete, update or insert, by which images are there; 0 for a change of nothing."""
        if self.value is None:
            return 0 if self.old_value is None else KIND_DELETE
        return KIND_INSERT if self.old_value is None else KIND_UPDATE


def merge(sources: Iterable[Sequence[Row]]) -> list[Row]:
    """Return all rows of sorted sources by (commit_ts, start_ts, key), without those that change nothing."""
    rows = [row for source in sources for row in source if row.kind]
    return sorted(rows, key=lambda r: (r.commit_ts, r.start_ts, r.key))


def claim(targets: Sequence[int | None], owned: Sequence[int]) -> list[int]:
    """Return the numbers of the rows that an item merges. `targets`: of each row, -1 if it is not known yet, None if the row is dropped;
    `owned`: not 0 for each target of the item."""
    return [number for number, target in enumerate(targets) if target is not None and (target < 0 or owned[target])]


def split(rows: Iterable[Row], changed: Sequence[bool]) -> list[Row]:
    """Split updates whose flag is set into a delete and an insert."""
    out: list[Row] = []
    for row, flag in zip(rows, changed, strict=True):
        if flag and row.kind == KIND_UPDATE:
            out += [replace(row, value=None, split=SPLIT_DELETE), replace(row, old_value=None, split=SPLIT_INSERT)]
        else:
            out.append(row)
    return out


def arrange(rows: Iterable[Row]) -> dict[int, list[Row]]:
    """Return the rows by target, in the order of delivery: transactions in order, within each delete, update, insert, then by key."""
    out: dict[int, list[Row]] = {}
    for _, transaction in groupby(rows, key=lambda r: (r.commit_ts, r.start_ts)):
        for row in sorted(transaction, key=lambda r: (r.kind, r.key)):
            out.setdefault(row.target, []).append(row)
    return out
