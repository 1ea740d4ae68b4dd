"""Values as SQL. Text and bytes are hex, so that no setting of the session changes what they mean. The session has to be in UTC."""

from __future__ import annotations

from tidemill.tidb.rows.cells import Cell, Family, family
from tidemill.tidb.schema.model import ColumnInfo


def text_literal(value: bytes) -> str:
    """Return a text, which is UTF-8. It is compared by the column's collation, as a literal is and what CONVERT returns is not."""
    return f"_utf8mb4 x'{value.hex()}'"


def bytes_literal(value: bytes) -> str:
    """Return bytes."""
    return f"x'{value.hex()}'"


def literal(column: ColumnInfo, value: Cell) -> str:
    """Return a value of a column."""
    match value:
        case None:
            return "NULL"
        case int():
            return str(value)
        case float():
            return repr(value)
        case str() if family(column) is Family.JSON:
            return text_literal(value.encode("utf-8", "surrogatepass"))
        case str():
            return f"'{value}'"
        case bytes() if column.is_binary:
            return bytes_literal(value)
        case bytes():
            return text_literal(value)
