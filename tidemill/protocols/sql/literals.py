"""Values as MySQL's literals, in a session with `sql_mode` STRICT_TRANS_TABLES, ALLOW_INVALID_DATES and NO_AUTO_VALUE_ON_ZERO, character
set utf8mb4 and time zone +00:00.

| type | literal |
|---|---|
| integers, YEAR, BIT, DECIMAL | the number |
| ENUM, SET | the number of the element, the bits of the elements; `0/*0*/` for the ENUM value that is not an element |
| FLOAT, DOUBLE | shortest digits of the DOUBLE, with an exponent where they are large or small |
| times, JSON, VECTOR | text |
| strings | text, with `'`, backslash, CR and LF escaped |
| binary strings | x'00FF' |
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC
from functools import cached_property

from tidemill.errors import MalformedRow, TidemillError
from tidemill.protocols.csv.encode import go_float_v
from tidemill.protocols.sql.predicates import Condition, compared_as, conditions, is_wide_bits, operand
from tidemill.tidb.names import folded
from tidemill.tidb.rows import Cell, RowReader
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.floats import to_float32
from tidemill.tidb.types.jsonstyle import JsonStyle

NULL = b"NULL"
AND = b" AND "
NO_ELEMENT = b"0/*0*/"
"""The ENUM value that stands for a wrong one. A strict session does not take it, so a statement that holds it is run in another one."""
_ESCAPES = {b"\\": b"\\\\", b"'": b"\\'", b"\r": b"\\r", b"\n": b"\\n"}


_LITERAL = re.compile(rb"x?'(?:[^'\\]|\\.)*'|[^,']+", re.S)


def literals(row: bytes) -> list[bytes]:
    """Return the literals of a row's text."""
    return _LITERAL.findall(row)


def quoted(data: bytes) -> bytes:
    """Return a text literal."""
    for plain, escaped in _ESCAPES.items():
        data = data.replace(plain, escaped)
    return b"'" + data + b"'"


def literal(column: ColumnInfo, cell: Cell) -> bytes:
    """Return the literal of a value."""
    if cell is None:
        return NULL
    if isinstance(cell, float):  # messages tell a FLOAT by its shortest digits
        return go_float_v(to_float32(cell) if column.tp == MySQLType.FLOAT else cell, 64).encode()
    if isinstance(cell, int):
        return NO_ELEMENT if cell == 0 and column.tp == MySQLType.ENUM else b"%d" % cell
    if isinstance(cell, bytes):
        return b"x'" + cell.hex().encode() + b"'" if column.is_binary else quoted(cell)
    return cell.encode() if column.tp == MySQLType.NEWDECIMAL else quoted(cell.encode())


class SqlTable:
    """One table version: row changes → what finds the row, and the literals of the row after the change.

    `columns` are those that are written: the database computes generated ones itself. `key` are those that find a row; without a handle
    key all of them.
    """

    def __init__(
        self, schema: str, table: str, info: TableInfo, json: JsonStyle = JsonStyle.GO, only: Collection[str] | None = None
    ) -> None:
        """`only`: the columns that the database has; None: all."""
        self.schema, self.table, self.info = schema, table, info
        there = None if only is None else {folded(name) for name in only}
        columns = [c for c in info.output_columns if there is None or folded(c.name) in there]
        self.columns = tuple(c for c in columns if not c.is_generated)
        wanted = set(info.handle_key_ids)
        found = tuple(c for c in columns if c.id in wanted)
        self.has_key = bool(wanted) and len(found) == len(wanted)
        self.key = found if self.has_key else self.columns
        self._reader = RowReader(info, UTC, json=json)

    @cached_property
    def wide_bits(self) -> tuple[int, ...]:
        """The places of columns that an update sets to literals."""
        return tuple(place for place, column in enumerate(self.columns) if is_wide_bits(column))

    @property
    def key_is_list(self) -> bool:
        """Whether the key is one column whose literals make a list: the text of a key is a literal then, else a condition."""
        return self.has_key and len(self.key) == 1 and compared_as(self.key[0]).in_list

    @property
    def key_operand(self) -> bytes:
        """What is compared with the values of a list."""
        return operand(self.key[0].name, compared_as(self.key[0])).encode() if self.key_is_list else b""

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """What stands around the literals in the text of a key."""
        if self.key_is_list:
            return (Condition(0, ""),)
        return conditions([(column.name, compared_as(column)) for column in self.key], has_key=self.has_key)

    @cached_property
    def _around(self) -> tuple[tuple[bytes, int, bytes], ...]:
        return tuple((one.before.encode(), one.place, one.after.encode()) for one in self.conditions)

    def key_of(self, texts: Sequence[bytes]) -> bytes:
        """Return the text of a key from the literals of its columns."""
        return AND.join(before + texts[place] + after for before, place, after in self._around)

    def key_text(self, key: bytes, value: bytes | None, old_value: bytes | None, commit_ts: int) -> bytes:
        """Return the key of the row after the change, of a delete before it. Raises MalformedRow naming the row."""
        cells = self._cells(key, value or old_value, commit_ts)
        return self.key_of([literal(column, cells[column.id]) for column in self.key])

    def row_text(self, key: bytes, value: bytes | None, commit_ts: int) -> bytes:
        """Return the literals of the row after the change, none for a delete. Raises MalformedRow naming the row."""
        if not value:
            return b""
        cells = self._cells(key, value, commit_ts)
        return b",".join(literal(column, cells[column.id]) for column in self.columns)

    def _cells(self, key: bytes, image: bytes | None, commit_ts: int) -> Mapping[int, Cell]:
        try:
            if not image:
                raise MalformedRow("neither a new nor an old value")
            return dict(zip((c.id for c in self.info.output_columns), self._reader.read(key, image), strict=True))
        except TidemillError as error:
            place = f"table {self.schema}.{self.table}, key {key.hex()}, commit_ts {commit_ts}"
            raise MalformedRow(f"{place}: {error.message}", hint=error.hint) from error
