"""Compares the rows of buckets whose sums differ: which are missing, which are too many, and which differ in what. Pure."""

from __future__ import annotations

import enum
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidemill.diff.digest import Row
from tidemill.diff.model import DiffTable
from tidemill.protocols.sql.literals import NULL, literals
from tidemill.tidb.rows.cells import Family, family
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo

_ESCAPE = re.compile(rb"\\(.)", re.S)
_PLAIN = {b"r": b"\r", b"n": b"\n"}
_DOUBLE, _SINGLE = 2.0**-50, 2.0**-23
"""How far numbers that are written with all of their digits, and those of FLOAT columns, may be apart."""
_SMALLEST, _LARGEST, _LONGEST = -(2**63), 2**64 - 1, 20
"""The whole numbers of JSON, and how many characters they have at most."""
DELETED = b""
"""The row text of a key that the upstream knows to be gone."""


class What(enum.StrEnum):
    """How a row differs."""

    MISSING = "missing"
    EXTRA = "extra"
    CHANGED = "different"


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row in which the two sides differ. `upstream` and `downstream`: its text there, None where it is not. `columns`: those that differ.
    `times`: how often it is missing or too many, of a table without a key."""

    table: int
    what: What
    key: bytes
    upstream: bytes | None = None
    downstream: bytes | None = None
    columns: tuple[str, ...] = ()
    times: int = 1


def compare(table: DiffTable, upstream: Iterable[Row], downstream: Iterable[Row]) -> Iterator[RowDifference]:
    """Yield every difference between the rows of a table."""
    if not table.sql.has_key:
        yield from _counted(table, upstream, downstream)
        return
    wanted = dict(upstream)
    for key, row in downstream:
        known = wanted.pop(key, None)
        if known is None:
            if not table.touched_only:
                yield RowDifference(table.number, What.EXTRA, key, None, row)
        elif known == DELETED and table.touched_only:
            yield RowDifference(table.number, What.EXTRA, key, None, row)
        elif known != row and (columns := differing(table, known, row)):
            yield RowDifference(table.number, What.CHANGED, key, known, row, columns)
    for key, row in wanted.items():
        if row != DELETED or not table.touched_only:
            yield RowDifference(table.number, What.MISSING, key, row)


def _counted(table: DiffTable, upstream: Iterable[Row], downstream: Iterable[Row]) -> Iterator[RowDifference]:
    """Rows without a key are compared as a whole, with how often each is there."""
    wanted, found = Counter(row for _, row in upstream), Counter(row for _, row in downstream)
    missing, extra = wanted - found, found - wanted
    if table.touched_only:
        extra.clear()
    for row in [*missing]:  # equal numbers and documents may be written differently
        same = next((other for other in extra if not differing(table, row, other)), None)
        if same is not None:
            count = min(missing[row], extra[same])
            missing[row] -= count
            extra[same] -= count
    for row, times in (+missing).items():
        yield RowDifference(table.number, What.MISSING, _condition(table, row), row, None, times=times)
    for row, times in (+extra).items():
        yield RowDifference(table.number, What.EXTRA, _condition(table, row), None, row, times=times)


def _condition(table: DiffTable, row: bytes) -> bytes:
    return table.sql.key_of(literals(row))


def differing(table: DiffTable, upstream: bytes, downstream: bytes) -> tuple[str, ...]:
    """Return the names of the columns in which two rows differ."""
    columns = table.sql.columns
    ours, theirs = literals(upstream), literals(downstream)
    if len(ours) != len(columns) or len(theirs) != len(columns):
        return tuple(column.name for column in columns)
    different = ((c, a, b) for c, a, b in zip(columns, ours, theirs, strict=True) if a != b)
    return tuple(c.name for c, a, b in different if not _same(c, a, b, _SINGLE if c.tp == MySQLType.FLOAT else _DOUBLE))


def _same(column: ColumnInfo, ours: bytes, theirs: bytes, epsilon: float) -> bool:
    """Return whether two literals that are written differently are the same value."""
    if NULL in (ours, theirs):
        return False
    try:
        if family(column) is Family.FLOAT:
            return _close(float(ours), float(theirs), epsilon)
        if column.tp in (MySQLType.JSON, MySQLType.VECTOR):
            return _same_document(_document(ours), _document(theirs))
    except ValueError:
        return False
    return False


def _close(ours: float, theirs: float, epsilon: float) -> bool:
    return ours == theirs or math.isclose(ours, theirs, rel_tol=epsilon)


def _document(literal: bytes) -> object:
    return json.loads(_unquoted(literal), parse_int=_number)


def _number(text: str) -> int | float:
    """Read a number that is written as a whole one: beyond 64 bits it is a DOUBLE, which MySQL writes with an exponent."""
    return int(text) if len(text) <= _LONGEST and _SMALLEST <= int(text) <= _LARGEST else float(text)


def _same_document(ours: object, theirs: object) -> bool:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_same_document(value, theirs[name]) for name, value in ours.items())
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_same_document, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, int | float) and not isinstance(theirs, bool):
        return _close(ours, theirs, _DOUBLE)
    return type(ours) is type(theirs) and ours == theirs


def _unquoted(literal: bytes) -> bytes:
    return _ESCAPE.sub(lambda found: _PLAIN.get(found[1], found[1]), literal.removeprefix(b"'").removesuffix(b"'"))


def key_of(table: DiffTable, cells: Sequence[bytes]) -> bytes:
    """Return the text of a key from the literals of its columns."""
    return table.sql.key_of(cells)
