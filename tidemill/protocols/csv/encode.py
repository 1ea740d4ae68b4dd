"""TiCDC's CSV, written plainly: row cells → lines. Rules: TYPES.md.

This is what the kernel has to equal, what it hands rows back to, and where the texts of its programs come from.
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
        """The inside of a field: quotes doubled or, without quotes, CR, LF, backslash and delimiter behind a backslash."""
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
        """A field that is text."""
        return self.quote + self.inside(data) + self.quote


def escaped_delimiter(options: CsvOptions) -> bytes:
    """A delimiter in a field without quotes: each byte behind a backslash, as the character of its number."""
    return b"".join(b"\\" + chr(byte).encode() for byte in options.delimiter.encode())


def go_float_v(value: float, bits: int) -> str:
    """A finite number as Go's %v: an exponent of at least two digits below 1e-4 and from 1e6 on."""
    if value == 0:
        return go_float_plain(value, bits)
    digits, point = shortest_digits(abs(value), bits)
    exponent = point - 1
    if -4 <= exponent < 6:
        return go_float_plain(value, bits)
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"{'-' if value < 0 else ''}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def is_text(column: ColumnInfo) -> bool:
    """Whether a column's fields are quoted: all but integers, BIT, YEAR and floats."""
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
        """The line that names the fields, for output-field-header: it stands at the head of a file. Names have no quotes."""
        names = ["operation", "table", "schema"]
        names += ["commit-ts"] if self.options.include_commit_ts else []
        names += ["is-update"] if self.options.output_old_value else []
        names += ["handle-key"] if self.options.output_handle_key else []
        fields = [*(f"ticdc-meta${name}" for name in names), *(column.name for column in self.columns)]
        return self.options.delimiter.join(fields).encode() + self.csv.terminator

    def bytes_text(self, column: ColumnInfo, data: bytes) -> bytes:
        """A string: its text, or base64 or hex of a binary one."""
        if not column.is_binary:
            return data
        return base64.b64encode(data) if self.options.binary_encoding is BinaryEncoding.BASE64 else data.hex().encode()

    def field(self, column: ColumnInfo, cell: Cell) -> bytes:
        """A value. Raises MalformedRow for an ENUM or SET value without an element: TiCDC refuses such rows."""
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
        """The fields before the columns. `handle`: its text, where it is wanted."""
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
        """The lines of a change: one, or with output-old-value two for an update. An empty value is none. Raises MalformedRow naming
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
