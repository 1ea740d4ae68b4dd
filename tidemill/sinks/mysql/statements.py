"""Writes → statements. Pure.

An update of several rows is INSERT … ON DUPLICATE KEY UPDATE: the rows are there, and it changes all columns that are replicated. Of one
row alone the answer does not say whether it was there, so a SELECT by its key goes before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tidemill.protocols.sql.literals import NO_ELEMENT, literals
from tidemill.protocols.sql.missed import Meets, Statement
from tidemill.records import KIND_DELETE, KIND_UPDATE
from tidemill.sinks.mysql.merge import Change, Writes, merged
from tidemill.sinks.mysql.session import LENIENT, STRICT
from tidemill.tidb.names import quote_name

LIST_ROWS = 500
"""Most keys of a DELETE. Servers look up longer lists otherwise than by the index."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large statements may be."""

    rows: int = 256
    update_rows: int = 40
    update_row_bytes: int = 1024  # updates of rows that are larger on average are statements of their own
    bytes: int = 1 << 20
    merge: bool = True  # False: a statement for each change, in order

    def within(self, size: int) -> Limits:
        """Return the limits for statements of at most `size` bytes."""
        return self if size >= self.bytes else replace(self, bytes=size)


class NamedColumn(Protocol):
    """A column."""

    @property
    def name(self) -> str: ...


class WrittenTable(Protocol):
    """What statements need of a table; see `SqlTable`."""

    @property
    def schema(self) -> str: ...
    @property
    def table(self) -> str: ...
    @property
    def has_key(self) -> bool: ...
    @property
    def columns(self) -> Sequence[NamedColumn]: ...
    @property
    def key_is_list(self) -> bool: ...
    @property
    def key_operand(self) -> bytes: ...
    @property
    def wide_bits(self) -> Sequence[int]: ...


class TableStatements:
    """The statements of one table version. `modes`: what sets a strict session to take any value, and back; None: it takes any."""

    def __init__(self, table: WrittenTable, modes: tuple[bytes, bytes] | None = (LENIENT, STRICT)) -> None:
        self._modes = modes
        self.name = f"{quote_name(table.schema)}.{quote_name(table.table)}".encode()
        self.has_key = table.has_key
        columns = [quote_name(column.name) for column in table.columns]
        names = ",".join(columns).encode()
        self._columns = [column.encode() for column in columns]
        self._insert = b"INSERT INTO " + self.name + b" (" + names + b") VALUES "
        self._replace = b"REPLACE INTO " + self.name + b" (" + names + b") VALUES "
        self._sets = [f"{c}=VALUES({c})".encode() for c in columns]
        self._literal_sets = [(place, f"{columns[place]}=".encode()) for place in table.wide_bits]
        self._on_duplicate = b" ON DUPLICATE KEY UPDATE " + b",".join(self._sets)
        self._delete = b"DELETE FROM " + self.name + b" WHERE "
        self._update = b"UPDATE " + self.name + b" SET "
        self._select = b"SELECT 1 FROM " + self.name + b" WHERE "
        self._plain = f"{table.schema}.{table.table}"
        self._key = table.key_operand if table.key_is_list else b""

    # One row

    def found(self, key: bytes) -> bytes:
        """Return the condition that finds a row by the text of its key."""
        return self._key + b"=" + key if self._key else key

    def deleted(self, key: bytes, *, safe: bool) -> Statement:
        """Return what deletes a row. Not `safe`: it should be there. Without a key rows may be alike: one of them goes."""
        return self._meeting(self._delete + self.found(key) + b" LIMIT 1", (self.found(key),), safe=safe)

    def updated(self, key: bytes, row: Sequence[bytes]) -> Statement:
        """Return what sets a row that should be there to literals."""
        sets = b",".join(column + b"=" + value for column, value in zip(self._columns, row, strict=True))
        return self._meeting(self._update + sets + b" WHERE " + self.found(key) + b" LIMIT 1", (self.found(key),), safe=False)

    def written(self, row: bytes, *, replace: bool) -> Statement:
        """Return what writes a row. `replace`: in the place of what is in its way."""
        return Statement((self._replace if replace else self._insert) + b"(" + row + b")")

    # Many rows

    def of_changes(self, changes: Sequence[Change], limits: Limits, *, safe: bool) -> Iterator[Statement]:
        """Yield the statements of a transaction's changes of this table, in order."""
        for statement in self._of_changes(changes, limits, safe=safe):
            if self._modes is not None and NO_ELEMENT in statement.text:
                yield from (Statement(self._modes[0]), statement, Statement(self._modes[1]))
            else:
                yield statement

    def _of_changes(self, changes: Sequence[Change], limits: Limits, *, safe: bool) -> Iterator[Statement]:
        if not self.has_key:
            yield from self._one_by_one(changes, safe=safe)
        elif limits.merge:
            yield from self._of_writes(merged(changes, safe=safe), limits, safe=safe)
        else:
            for change in changes:
                yield from self._of_writes(merged([change], safe=safe), limits, safe=safe)

    def _of_writes(self, writes: Writes, limits: Limits, *, safe: bool) -> Iterator[Statement]:
        for keys in _cut(writes.deletes, min(limits.rows, LIST_ROWS), limits.bytes - len(self._delete) - len(self._key) - 6):
            yield self._meeting(self._delete + self._any_of(keys), keys, safe=safe)
        for updates in _by_mode(writes.updates):
            most = limits.bytes - len(self._insert) - len(self._on_duplicate)
            at = 0
            for rows in _cut([row for _, row in updates], self._update_rows(updates, limits), most):
                keys = [key for key, _ in updates[at : at + len(rows)]]
                at += len(rows)
                if len(rows) == 1:
                    yield self._meeting(self._select + self._any_of(keys), keys, safe=safe)
                    yield Statement(self._insert + _tuples(rows) + self._otherwise(rows[0]))
                else:
                    text = self._insert + _tuples(rows) + self._on_duplicate
                    yield Statement(text, Meets.DUPLICATES, len(rows), self._plain, keys)
        for inserts in _by_mode([(b"", row) for row in writes.inserts]):
            for rows in _cut([row for _, row in inserts], limits.rows, limits.bytes - len(self._replace)):
                yield Statement((self._replace if safe else self._insert) + _tuples(rows))

    def _any_of(self, keys: Sequence[bytes]) -> bytes:
        """Return the condition that finds the rows of keys."""
        if self._key:
            return self._key + b" IN (" + b",".join(keys) + b")"
        return b" OR ".join(b"(" + key + b")" for key in keys)

    def _meeting(self, text: bytes, keys: Sequence[bytes], *, safe: bool) -> Statement:
        """Return a statement that should meet a row for each key; in safe mode they may be gone already."""
        return Statement(text) if safe else Statement(text, Meets.AFFECTED, len(keys), self._plain, keys)

    def _otherwise(self, row: bytes) -> bytes:
        """Return what a statement does where its row is there."""
        if not self._literal_sets:
            return self._on_duplicate
        sets, values = self._sets.copy(), literals(row)
        for place, begin in self._literal_sets:
            sets[place] = begin + values[place]
        return b" ON DUPLICATE KEY UPDATE " + b",".join(sets)

    def _update_rows(self, rows: Sequence[tuple[bytes, bytes]], limits: Limits) -> int:
        """Return how many updated rows a statement may have."""
        if self._literal_sets or not rows or sum(len(row) for _, row in rows) > limits.update_row_bytes * len(rows):
            return 1
        return min(limits.update_rows, limits.rows)

    def _one_by_one(self, changes: Iterable[Change], *, safe: bool) -> Iterator[Statement]:
        """Without a key rows cannot be told apart: each change is a statement, and a row that is there twice is deleted once."""
        for kind, key, row in changes:
            if kind == KIND_UPDATE:
                continue  # an update that changes anything comes as a delete and an insert
            if kind == KIND_DELETE:
                yield self.deleted(key, safe=safe)
            else:
                yield self.written(row, replace=False)


def _tuples(rows: Sequence[bytes]) -> bytes:
    return b"(" + b"),(".join(rows) + b")"


def _by_mode(rows: list[tuple[bytes, bytes]]) -> Iterable[list[tuple[bytes, bytes]]]:
    """Divide rows, each behind its key, into those of strict statements, which nearly all are, and others."""
    others = [one for one in rows if NO_ELEMENT in one[1]]
    return ([one for one in rows if NO_ELEMENT not in one[1]], others) if others else (rows,)


_BETWEEN = len(b") OR (")
"""Bytes that stand at most between two texts of a statement."""


def _cut(texts: Sequence[bytes], most: int, size: int) -> Iterator[Sequence[bytes]]:
    """Cut a list into parts of at most `most` texts and `size` bytes; a text that is larger is a part of its own."""
    begin = held = 0
    for at, text in enumerate(texts):
        if at > begin and (at - begin >= most or held + len(text) + _BETWEEN > size):
            yield texts[begin:at]
            begin, held = at, 0
        held += len(text) + _BETWEEN
    if begin < len(texts):
        yield texts[begin:]


def packets(statements: Iterable[Statement], size: int, *, together: bool) -> Iterator[list[Statement]]:
    """Put statements into packets of about `size` bytes; not `together`: each is a packet."""
    held: list[Statement] = []
    total = 0
    for statement in statements:
        if held and (not together or total + len(statement.text) > size):
            yield held
            held, total = [], 0
        held.append(statement)
        total += len(statement.text) + 1
    if held:
        yield held


def text_of(packet: Iterable[Statement]) -> bytes:
    """Return the text of a packet."""
    return b";".join(one.text for one in packet)
