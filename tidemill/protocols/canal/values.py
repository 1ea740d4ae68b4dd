"""Values of columns as UTF-8 text, as both forms of entries have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.protocols.common.gotext import runes
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.types.floats import go_float_plain

if TYPE_CHECKING:
    from tidemill.tidb.rows import Cell
    from tidemill.tidb.schema.model import ColumnInfo

REPLACEMENT = "�".encode()


def utf8(data: bytes) -> bytes:
    """Text; each byte that is not UTF-8 becomes U+FFFD. Canal's clients refuse an entry whose text is not UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return b"".join(REPLACEMENT if point < 0 else raw for point, raw in runes(data))
    return data


def value_text(column: ColumnInfo, cell: Cell) -> bytes | None:
    """A value; None for NULL. Floats have no exponent; bytes of binary columns are the characters of their numbers (ISO-8859-1)."""
    match cell:
        case None:
            return None
        case float():
            return go_float_plain(cell, 32 if column.tp == MySQLType.FLOAT else 64).encode()
        case int():
            return b"%d" % cell
        case str():
            return cell.encode()
    return cell.decode("latin-1").encode() if column.is_binary else utf8(cell)
