"""Rows of a transaction downstream → statements; merged: of each row only its last change, many rows in a statement. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from tidemill.binlog.outputs.writes import KNOWN, RowWrite, Target
from tidemill.protocols.sql.missed import Statement
from tidemill.records import KIND_DELETE, KIND_INSERT, KIND_UPDATE
from tidemill.sinks.mysql.merge import Change
from tidemill.sinks.mysql.statements import Limits, TableStatements


def plain_statements(rows: Iterable[RowWrite], *, safe: bool) -> Iterator[Statement]:
    """Yield the statements of each row, in order. An update or delete should meet one row. `safe`: unless it may have been run before."""
    for row in rows:
        made = _made(row.target)
        old = None if row.old is None else _key(row.target, row.old)
        if old is not None and row.new is not None and not safe:
            yield made.updated(old, [_encoded(text) for text in row.new])
            continue
        if old is not None:
            yield made.deleted(old, safe=safe)
        if row.new is not None:
            yield made.written(_row(row.new), replace=safe)


def merged_statements(rows: Iterable[RowWrite], limits: Limits, *, safe: bool) -> Iterator[Statement]:
    """Yield statements after which every table is as after all rows: for each table with a key DELETEs, then REPLACEs, which may be run
    again. The rows of other tables are written one by one, in order."""
    tables: dict[Target, list[RowWrite]] = {}
    for row in rows:
        tables.setdefault(row.target, []).append(row)
    for target, own in tables.items():
        if target.has_key:
            changes = [change for row in own for change in _changes(row)]
            yield from _made(target).of_changes(changes, limits, safe=True)
        else:
            yield from plain_statements(own, safe=safe)


def _changes(row: RowWrite) -> Iterator[Change]:
    """An update that changes the key is a delete and an insert."""
    old = None if row.old is None else _key(row.target, row.old)
    if row.new is None:
        assert old is not None
        yield Change(KIND_DELETE, old, b"")
        return
    new, text = _key(row.target, row.new), _row(row.new)
    if old is not None and old != new:
        yield Change(KIND_DELETE, old, b"")
    yield Change(KIND_UPDATE if old == new else KIND_INSERT, new, text)


@lru_cache(maxsize=KNOWN)
def _made(target: Target) -> TableStatements:
    return TableStatements(target, None)


def _key(target: Target, image: Sequence[str]) -> bytes:
    return _encoded(target.key_of(image))


def _row(image: Sequence[str]) -> bytes:
    return _encoded(",".join(image))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
