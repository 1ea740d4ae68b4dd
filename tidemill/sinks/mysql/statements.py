"""Writes → the texts of statements. Pure.

An update of several rows is INSERT … ON DUPLICATE KEY UPDATE: the rows are there, and it changes all columns that are replicated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tidemill.protocols.sql.literals import NO_ELEMENT, literals, name
from tidemill.records import KIND_DELETE, KIND_UPDATE
from tidemill.sinks.mysql.merge import Change, Writes, merged
from tidemill.sinks.mysql.session import LENIENT, STRICT
from tidemill.tidb.schema.codes import MySQLType

LARGEST, TAKEN = b"3.4028235e+38", b"3.4028234e+38"
"""The shortest digits of the largest FLOAT, and others for the same value. Servers read the first ones as a DOUBLE that is out of range."""
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
    """A column: its name, and MySQL's code of its type."""

    @property
    def name(self) -> str: ...
    @property
    def tp(self) -> int: ...


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
    def key(self) -> Sequence[NamedColumn]: ...


class TableStatements:
    """The statements of one table version. `modes`: what sets a strict session to take any value, and back; None: it takes any."""

    def __init__(self, table: WrittenTable, modes: tuple[bytes, bytes] | None = (LENIENT, STRICT)) -> None:
        self._modes = modes
        self.name = f"{name(table.schema)}.{name(table.table)}".encode()
        self.has_key, self.one_column = table.has_key, table.has_key and len(table.key) == 1
        self._has_floats = any(column.tp == MySQLType.FLOAT for column in table.columns)
        columns = [name(column.name) for column in table.columns]
        names = ",".join(columns).encode()
        self._insert = b"INSERT INTO " + self.name + b" (" + names + b") VALUES "
        self._replace = b"REPLACE INTO " + self.name + b" (" + names + b") VALUES "
        self._on_duplicate = b" ON DUPLICATE KEY UPDATE " + ",".join(f"{c}=VALUES({c})" for c in columns).encode()
        self._delete = b"DELETE FROM " + self.name + b" WHERE "
        self._key = name(table.key[0].name).encode() if self.one_column else b""

    def of_changes(self, changes: Sequence[Change], limits: Limits, *, safe: bool) -> Iterator[bytes]:
        """Yield the statements of a transaction's changes of this table, in order."""
        if self._has_floats:
            changes = [_in_range(change) if LARGEST in change.row else change for change in changes]
        for statement in self._of_changes(changes, limits, safe=safe):
            if self._modes is not None and NO_ELEMENT in statement:
                statement = b";".join((self._modes[0], statement, self._modes[1]))
            yield statement

    def _of_changes(self, changes: Sequence[Change], limits: Limits, *, safe: bool) -> Iterator[bytes]:
        if not self.has_key:
            yield from self._one_by_one(changes)
        elif limits.merge:
            yield from self._of_writes(merged(changes, safe=safe), limits, safe=safe)
        else:
            for change in changes:
                yield from self._of_writes(merged([change], safe=safe), limits, safe=safe)

    def _of_writes(self, writes: Writes, limits: Limits, *, safe: bool) -> Iterator[bytes]:
        for keys in _cut(writes.deletes, min(limits.rows, LIST_ROWS), limits.bytes - len(self._delete) - len(self._key) - 6):
            if self.one_column:
                yield self._delete + self._key + b" IN (" + b",".join(keys) + b")"
            else:
                yield self._delete + b" OR ".join(b"(" + key + b")" for key in keys)
        for updates in _by_mode(writes.updates):
            most = limits.bytes - len(self._insert) - len(self._on_duplicate)
            for rows in _cut(updates, self._update_rows(updates, limits), most):
                yield self._insert + _tuples(rows) + self._on_duplicate
        for inserts in _by_mode(writes.inserts):
            for rows in _cut(inserts, limits.rows, limits.bytes - len(self._replace)):
                yield (self._replace if safe else self._insert) + _tuples(rows)

    @staticmethod
    def _update_rows(rows: Sequence[bytes], limits: Limits) -> int:
        """Return how many updated rows a statement may have."""
        if not rows or sum(map(len, rows)) > limits.update_row_bytes * len(rows):
            return 1
        return min(limits.update_rows, limits.rows)

    def _one_by_one(self, changes: Iterable[Change]) -> Iterator[bytes]:
        """Without a key rows cannot be told apart: each change is a statement, and a row that is there twice is deleted once."""
        for kind, key, row in changes:
            if kind == KIND_UPDATE:
                continue  # an update that changes anything comes as a delete and an insert
            if kind == KIND_DELETE:
                yield self._delete + key + b" LIMIT 1"
            else:
                yield self._insert + b"(" + row + b")"


def _in_range(change: Change) -> Change:
    """Return the change with the largest FLOAT as servers take it."""
    found = (text.replace(LARGEST, TAKEN) if text.removeprefix(b"-") == LARGEST else text for text in literals(change.row))
    return change._replace(row=b",".join(found))


def _tuples(rows: Sequence[bytes]) -> bytes:
    return b"(" + b"),(".join(rows) + b")"


def _by_mode(rows: list[bytes]) -> Iterable[list[bytes]]:
    """Divide rows into those of strict statements, which nearly all are, and others."""
    others = [row for row in rows if NO_ELEMENT in row]
    return ([row for row in rows if NO_ELEMENT not in row], others) if others else (rows,)


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


def packets(statements: Iterable[bytes], size: int, *, together: bool) -> Iterator[bytes]:
    """Put statements into packets of about `size` bytes; not `together`: each is a packet."""
    held: list[bytes] = []
    total = 0
    for statement in statements:
        if held and (not together or total + len(statement) > size):
            yield b";".join(held)
            held, total = [], 0
        held.append(statement)
        total += len(statement) + 1
    if held:
        yield b";".join(held)
