"""The reference encoder of TiCDC's CSV: row cells → lines. Rules: TYPES.md.

The kernel writes the same bytes, hands rows back to this code, and takes the constants of its programs from it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING

from tidemill.errors import MalformedRow, TidemillError
from tidemill.protocols.csv.handles import handle_text
from tidemill.protocols.options import BinaryEncoding, CsvOptions
from tidemill.tidb.keys import parse_record_key
from tidemill.tidb.rows import RowReader
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.floats import go_float_plain, shortest_digits
from tidemill.tidb.types.jsonstyle import JsonStyle
from tidemill.tidb.types.members import enum_name, set_names

if TYPE_CHECKING:
    from tidemill.tidb.rows import Cell


class CsvText:
    """Fields and their escapes."""

    def __init__(self, options: CsvOptions) -> None:
        self.options = options
        self.delimiter = options.delimiter.encode()
        self.quote = options.quote.encode()
        self.terminator = options.terminator.encode()
        self.null = options.null.encode()
        self._escaped_delimiter = escaped_delimiter(options)

    def inside(self, data: bytes) -> bytes:
        """Escape a field: double its quotes or, without quotes, put a backslash before CR, LF, backslash and delimiter."""
        if self.quote:
            return data.replace(self.quote, self.quote * 2)
        out = bytearray()
        at = 0
        while at < len(data):
            if data.startswith(self.delimiter, at):
                out += self._escaped_delimiter
                at += len(self.delimiter)
                continue
            byte = data[at : at + 1]
            out += {b"\r": b"\\r", b"\n": b"\\n", b"\\": b"\\\\"}.get(byte, byte)
            at += 1
        return bytes(out)

    def text(self, data: bytes) -> bytes:
        """Return a text field, quoted or escaped."""
        return self.quote + self.inside(data) + self.quote


def escaped_delimiter(options: CsvOptions) -> bytes:
    """Return a delimiter inside a field without quotes: a backslash before each byte, written as the character with its number."""
    return b"".join(b"\\" + chr(byte).encode() for byte in options.delimiter.encode())


def go_float_v(value: float, bits: int) -> str:
    """Print a finite number like Go's %v: with an exponent of at least two digits below 1e-4 and from 1e6 on."""
    if value == 0:
        return go_float_plain(value, bits)
    digits, point = shortest_digits(abs(value), bits)
    exponent = point - 1
    if -4 <= exponent < 6:
        return go_float_plain(value, bits)
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"{'-' if value < 0 else ''}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def is_text(column: ColumnInfo) -> bool:
    """Return whether a column's fields are quoted. Those of integers, BIT, YEAR and floats are not."""
    return column.tp not in _NUMBERS


_NUMBERS = frozenset(
    {
        MySQLType.TINY, MySQLType.SHORT, MySQLType.INT24, MySQLType.LONG, MySQLType.LONGLONG, MySQLType.BIT, MySQLType.YEAR,
        MySQLType.FLOAT, MySQLType.DOUBLE,
    }
)  # fmt: skip


class CsvTable:
    """One table version: turns raw changes into lines. Compiled once for many rows."""

    def __init__(self, schema: str, table: str, info: TableInfo, zone: tzinfo, options: CsvOptions, json: JsonStyle = JsonStyle.GO) -> None:
        self.schema, self.table, self.info, self.options = schema, table, info, options
        self.reader = RowReader(info, zone, json=json)
        self.columns = info.output_columns
        self.csv = CsvText(options)
        self.names = [self.csv.text(table.encode()), self.csv.text(schema.encode())]

    def header(self) -> bytes:
        """Return the first line of a file with output-field-header: the names of the fields, unquoted."""
        names = ["operation", "table", "schema"]
        names += ["commit-ts"] if self.options.include_commit_ts else []
        names += ["is-update"] if self.options.output_old_value else []
        names += ["handle-key"] if self.options.output_handle_key else []
        fields = [*(f"ticdc-meta${name}" for name in names), *(column.name for column in self.columns)]
        return self.options.delimiter.join(fields).encode() + self.csv.terminator

    def bytes_text(self, column: ColumnInfo, data: bytes) -> bytes:
        """Return a string's text, or base64 or hex of a binary string."""
        if not column.is_binary:
            return data
        return base64.b64encode(data) if self.options.binary_encoding is BinaryEncoding.BASE64 else data.hex().encode()

    def field(self, column: ColumnInfo, cell: Cell) -> bytes:
        """Return the field of a value. Raises MalformedRow for an ENUM or SET value without an element, as TiCDC does."""
        if cell is None:
            return self.csv.null
        if isinstance(cell, float):
            return go_float_v(cell, 32 if column.tp == MySQLType.FLOAT else 64).encode()
        if isinstance(cell, int):
            return self._number(column, cell)
        return self.csv.text(cell.encode() if isinstance(cell, str) else self.bytes_text(column, cell))

    def _number(self, column: ColumnInfo, number: int) -> bytes:
        if column.tp not in (MySQLType.ENUM, MySQLType.SET):
            return b"%d" % number
        try:
            if column.tp == MySQLType.SET:
                return self.csv.text(set_names(number, column.elems).encode())
            if number == 0:
                raise ValueError("enum index 0 is not an element")
            return self.csv.text(enum_name(number, column.elems).encode())
        except ValueError as error:
            raise MalformedRow(f"column {column.name}: {error}; CSV has names only") from None

    def head(self, operation: bytes, commit_ts: bytes, handle: bytes, *, update: bool) -> list[bytes]:
        """Return the fields before the columns. `handle` is the handle's text, used with output-handle-key."""
        fields = [self.csv.text(operation), *self.names]
        if self.options.include_commit_ts:
            fields.append(commit_ts)
        if self.options.output_old_value:
            fields.append(b"true" if update else b"false")
        if self.options.output_handle_key:
            fields.append(self.csv.text(handle))
        return fields

    def _line(self, operation: bytes, commit_ts: int, handle: bytes, cells: Sequence[Cell], *, update: bool) -> bytes:
        head = self.head(operation, b"%d" % commit_ts, handle, update=update)
        fields = [self.field(column, cell) for column, cell in zip(self.columns, cells, strict=True)]
        return self.csv.delimiter.join([*head, *fields]) + self.csv.terminator

    def row(self, key: bytes, value: bytes | None, old_value: bytes | None, commit_ts: int) -> bytes:
        """Encode a change: one line, or two for an update with output-old-value. An empty image counts as none. Raises MalformedRow naming
        table, key and commit_ts."""
        try:
            if not value and not old_value:
                raise MalformedRow("neither a new nor an old value")
            handle = handle_text(parse_record_key(key)) if self.options.output_handle_key else b""
            if not value:
                assert old_value is not None
                return self._line(b"D", commit_ts, handle, self.reader.read(key, old_value), update=False)
            cells = self.reader.read(key, value)
            if not old_value:
                return self._line(b"I", commit_ts, handle, cells, update=False)
            if not self.options.output_old_value:
                return self._line(b"U", commit_ts, handle, cells, update=True)
            before = self._line(b"D", commit_ts, handle, self.reader.read(key, old_value), update=True)
            return before + self._line(b"I", commit_ts, handle, cells, update=True)
        except TidemillError as error:
            place = f"table {self.schema}.{self.table}, key {key.hex()}, commit_ts {commit_ts}"
            raise MalformedRow(f"{place}: {error.message}", hint=error.hint) from error
