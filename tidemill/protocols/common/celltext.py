"""Cells as text (TiCDC's `ColumnValueString`): dispatchers hash it, and it decides whether an update changed a key.

These functions are the references of the kernels in `tidemill.kernels.routing.identity`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from tidemill.tidb.rows import Cell
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.types.floats import go_float_plain

NULL = b"null"


def cell_text(column: ColumnInfo, cell: Cell) -> bytes:
    """Return a cell as text: integers in decimal, floats shortest and without exponent, text and bytes as they are, NULL as `null`."""
    match cell:
        case None:
            return NULL
        case bytes():
            return cell
        case str():
            return cell.encode()
        case float():
            return go_float_plain(cell, 32 if column.tp == MySQLType.FLOAT else 64).encode()
    return b"%d" % cell


def any_changed(cells: Iterable[tuple[ColumnInfo, Cell, Cell]]) -> bool:
    """Return whether the text of some (column, before, after) differs. NULL differs from the text null."""
    return any((old is None) != (new is None) or cell_text(column, old) != cell_text(column, new) for column, old, new in cells)


def hash_seed(schema: str, table: str) -> int:
    """Return the start of a row's hash: the CRC32 of the schema name followed by the table name."""
    return zlib.crc32((schema + table).encode())


def hash_cells(seed: int, cells: Iterable[tuple[ColumnInfo, Cell]]) -> int:
    """Return the XOR of the seed and, for each column, the CRC32 of its name and text. Equal parts cancel out; order does not matter."""
    for column, cell in cells:
        seed ^= zlib.crc32(column.name.encode() + cell_text(column, cell))
    return seed
