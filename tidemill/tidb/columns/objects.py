"""One row as a JSON object, in plain Python: the reference of `tidemill.kernels.columns.objects`.

Numbers are numbers, documents and vectors are values inside the object, binary strings are base64; all else is text: decimals, so that no
digit is lost, and times (TIMESTAMP in UTC). ENUM and SET have names.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC

from tidemill.errors import MalformedRow
from tidemill.tidb.rows.cells import Cell, Family, family
from tidemill.tidb.rows.reader import RowReader
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.floats import go_float
from tidemill.tidb.types.jsonbin import json_quote
from tidemill.tidb.types.jsonstyle import JsonStyle
from tidemill.tidb.types.members import enum_name, set_names


def json_of(column: ColumnInfo, found: Cell, style: JsonStyle) -> bytes:
    """Return a cell as JSON. Raises MalformedRow for an ENUM or SET without such an element."""
    match found:
        case None:
            return b"null"
        case float():
            return go_float(found, 32 if column.tp == MySQLType.FLOAT else 64).encode()
        case bytes():
            return b'"' + base64.b64encode(found) + b'"' if column.is_binary else _quoted(found, style)
        case int():
            return _number(column, found, style)
    if family(column) in (Family.JSON, Family.VECTOR):
        return found.encode("utf-8", "surrogateescape")
    return _quoted(found.encode(), style)


def _quoted(data: bytes, style: JsonStyle) -> bytes:
    return json_quote(data, style).encode("utf-8", "surrogateescape")


def _number(column: ColumnInfo, number: int, style: JsonStyle) -> bytes:
    try:
        if column.tp == MySQLType.ENUM:
            return _quoted(enum_name(number, column.elems).encode("utf-8", "surrogateescape"), style)
        if column.tp == MySQLType.SET:
            return _quoted(set_names(number, column.elems).encode("utf-8", "surrogateescape"), style)
    except ValueError as error:
        raise MalformedRow(f"column {column.name}: {error}") from None
    return b"%d" % number


class ObjectReader:
    """Reads rows of one version of a table."""

    def __init__(self, table: TableInfo, style: JsonStyle = JsonStyle.GO) -> None:
        self.columns: Sequence[ColumnInfo] = table.output_columns
        self._table, self._style = table, style
        self._reader = RowReader(table, UTC, json=style)
        self.heads = [
            (b"," if i else b"{") + _quoted(column.name.encode("utf-8", "surrogateescape"), style) + b":"
            for i, column in enumerate(self.columns)
        ]

    def read(self, key: bytes, value: bytes) -> bytes:
        """Return the object of a row. Raises MalformedRow naming table and column."""
        cells = self._reader.read(key, value)
        try:
            parts = (head + json_of(c, found, self._style) for head, c, found in zip(self.heads, self.columns, cells, strict=True))
            return b"".join(parts) + b"}"
        except MalformedRow as error:
            raise MalformedRow(f"table {self._table.name}, {error.message}") from None

    def absent(self, column: ColumnInfo) -> bytes:
        """Return the value of a column in a row that is older than the column. Raises MalformedRow."""
        return json_of(column, self._reader.absent_of(column), self._style)
