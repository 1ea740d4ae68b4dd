"""Merged writes, in whatever order lanes are written, against the changes one after the other: a table with two unique keys in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.kernels.apply.conflicts import deal, groups
from tidemill.records import KIND_DELETE, KIND_INSERT, KIND_UPDATE
from tidemill.sinks.mysql.merge import Change, Writes, merged

Row = tuple[int, int, int]
"""Primary key, a unique value, a plain value."""


class Duplicate(Exception):
    pass


@dataclass
class Table:
    """A table whose first two columns are unique, as a database behaves."""

    rows: dict[int, Row] = field(default_factory=dict)

    def _in_the_way(self, row: Row) -> list[int]:
        return [key for key, other in self.rows.items() if key == row[0] or other[1] == row[1]]

    def insert(self, row: Row) -> None:
        if self._in_the_way(row):
            raise Duplicate(row)
        self.rows[row[0]] = row

    def replace(self, row: Row) -> None:
        for key in self._in_the_way(row):
            del self.rows[key]
        self.rows[row[0]] = row

    def update(self, row: Row) -> None:
        """INSERT … ON DUPLICATE KEY UPDATE."""
        found = self._in_the_way(row)
        if len(found) > 1 or (found and found[0] != row[0]):
            raise Duplicate(row)
        self.rows[row[0]] = row

    def write(self, writes: Writes, *, safe: bool) -> None:
        for key in writes.deletes:
            self.rows.pop(int(key), None)
        for _, row in writes.updates:
            self.update(parsed(row))
        for row in writes.inserts:
            (self.replace if safe else self.insert)(parsed(row))


def parsed(text: bytes) -> Row:
    key, unique, value = map(int, text.split(b","))
    return key, unique, value


def change(kind: int, row: Row) -> Change:
    return Change(kind, b"%d" % row[0], b"%d,%d,%d" % row if kind != KIND_DELETE else b"")


@st.composite
def histories(draw: st.DrawFn) -> tuple[Table, list[list[tuple[Change, Row]]]]:
    """A table, and transactions that it allows: each has deletes, updates, inserts in this order; an update of a unique value is split."""
    table = Table()
    for key in draw(st.sets(st.integers(0, 5))):
        table.rows[key] = (key, key + 10, 0)
    before, found = Table(dict(table.rows)), []
    for _ in range(draw(st.integers(1, 8))):
        targets = draw(st.permutations(range(6)))[: draw(st.integers(1, 4))]
        wanted = dict(table.rows)
        for key in targets:
            if draw(st.booleans()):
                wanted[key] = (key, draw(st.integers(10, 16)), draw(st.integers(0, 3)))
            else:
                wanted.pop(key, None)
        if len({row[1] for row in wanted.values()}) < len(wanted):
            continue
        deletes, updates, inserts = [], [], []
        for key in targets:
            old, new = table.rows.get(key), wanted.get(key)
            if old is not None and new is not None and old[1] == new[1]:
                updates.append((change(KIND_UPDATE, new), new))
                continue
            if old is not None:
                deletes.append((change(KIND_DELETE, old), old))
            if new is not None:
                inserts.append((change(KIND_INSERT, new), new))
        found.append([*deletes, *updates, *inserts])
        table.rows = wanted
    return before, found


def final(table: Table, transactions: Sequence[Sequence[tuple[Change, Row]]]) -> dict[int, Row]:
    rows = dict(table.rows)
    for transaction in transactions:
        for one, row in transaction:
            if one.kind == KIND_DELETE:
                rows.pop(row[0], None)
            else:
                rows[row[0]] = row
    return rows


def hashes_of(row: Row) -> list[int]:
    return [1 << 20 | row[0] + 1, 2 << 20 | row[1] + 1]


@given(histories(), st.booleans(), st.integers(1, 5), st.randoms())
@settings(max_examples=400)
def test_every_schedule_of_lanes_gives_the_state_of_the_serial_one(
    history: tuple[Table, list[list[tuple[Change, Row]]]], safe: bool, rows_a_transaction: int, random: object
) -> None:
    before, transactions = history
    flat = [pair for transaction in transactions for pair in transaction]
    conflicts = np.array([hashes_of(row) for _, row in flat], np.uint64).reshape(len(flat), 2)
    lanes = [[flat[at][0] for at in rows.tolist()] for rows in deal(groups(conflicts), 3)]
    table = Table(dict(before.rows))
    pending = [lane for lane in lanes if lane]
    while pending:
        lane = random.choice(pending)  # type: ignore[attr-defined]
        table.write(merged(lane[:rows_a_transaction], safe=safe), safe=safe)
        del lane[:rows_a_transaction]
        pending = [lane for lane in pending if lane]
    assert table.rows == final(before, transactions)


@given(histories(), st.integers(0, 40), st.integers(1, 5))
@settings(max_examples=300)
def test_written_again_from_the_beginning_in_safe_mode_it_ends_the_same(
    history: tuple[Table, list[list[tuple[Change, Row]]]], done: int, rows_a_transaction: int
) -> None:
    """An attempt ended after some of its changes; the next one begins with the first again."""
    before, transactions = history
    changes = [one for transaction in transactions for one, _ in transaction]
    table = Table(dict(before.rows))
    table.write(merged(changes[:done], safe=False), safe=False)
    for at in range(0, len(changes), rows_a_transaction):
        table.write(merged(changes[at : at + rows_a_transaction], safe=True), safe=True)
    assert table.rows == final(before, transactions)


@pytest.mark.parametrize(
    ("kinds", "plain", "safe"),
    [
        ("I", "insert", "insert"),
        ("U", "update", "insert"),
        ("D", "delete", "delete"),
        ("IU", "insert", "insert"),
        ("ID", "", "delete"),
        ("IDI", "insert", "insert"),
        ("UD", "delete", "delete"),
        ("DI", "delete insert", "insert"),
        ("DID", "delete", "delete"),
        ("UU", "update", "insert"),
    ],
)
def test_of_the_changes_of_a_row_only_the_last_state_is_written(kinds: str, plain: str, safe: str) -> None:
    of = {"I": KIND_INSERT, "U": KIND_UPDATE, "D": KIND_DELETE}
    changes = [change(of[kind], (1, 10, n)) for n, kind in enumerate(kinds)]
    for mode, expected in ((False, plain), (True, safe)):
        writes = merged(changes, safe=mode)
        names = [name for name, texts in (("delete", writes.deletes), ("update", writes.updates), ("insert", writes.inserts)) if texts]
        assert " ".join(names) == expected
        assert all(row == b"1,10,%d" % (len(kinds) - 1) for row in (*(row for _, row in writes.updates), *writes.inserts))
