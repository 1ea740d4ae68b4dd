"""A transaction → the statements that a MySQL-compatible database takes, in the order of the upstream's own.

Text and bytes are written as hex, so that no setting of the session changes what they mean. The session has to be in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC

from tidemill.binlog.outputs.transactions import TableChanges, Transaction
from tidemill.binlog.rows import Cells, Image, RowChange
from tidemill.tidb.ddltext.queries.literals import quote_name
from tidemill.tidb.rows.cells import Cell, Family, family
from tidemill.tidb.schema.model import ColumnInfo, TableInfo


def statements(transaction: Transaction, *, safe: bool) -> Iterator[str]:
    """Yield the statements. `safe`: they may be run again after some of them were run. Raises MalformedRow."""
    for changes in transaction.tables:
        table = _Table(changes)
        for row in changes.rows:
            yield from table.statements(row, safe=safe)


class _Table:
    def __init__(self, changes: TableChanges) -> None:
        info = changes.version.info
        self._name = f"{quote_name(changes.version.schema)}.{quote_name(info.name)}"
        self._cells = Cells(info, UTC)
        self._columns = [c for c in info.output_columns if not c.is_generated]
        self._key = _key(info) or [c for c in self._columns if family(c) not in (Family.JSON, Family.FLOAT)] or self._columns
        names = ",".join(quote_name(c.name) for c in self._columns)
        self._into = f"INTO {self._name}({names}) VALUES ("

    def statements(self, row: RowChange, *, safe: bool) -> Iterator[str]:
        if row.old is not None and row.new is not None and not safe:
            yield f"UPDATE {self._name} SET {self._assigned(row.new)} WHERE {self._where(row.old)} LIMIT 1"
            return
        if row.old is not None:
            yield f"DELETE FROM {self._name} WHERE {self._where(row.old)} LIMIT 1"
        if row.new is not None:
            yield f"{'REPLACE' if safe else 'INSERT'} {self._into}{','.join(self._text(c, row.new) for c in self._columns)})"

    def _assigned(self, image: Image) -> str:
        return ", ".join(f"{quote_name(c.name)} = {self._text(c, image)}" for c in self._columns)

    def _where(self, image: Image) -> str:
        """NULL is equal to NULL here."""
        return " AND ".join(f"{quote_name(c.name)} <=> {self._text(c, image)}" for c in self._key)

    def _text(self, column: ColumnInfo, image: Image) -> str:
        return literal(column, self._cells.of(column, image))


def _key(info: TableInfo) -> list[ColumnInfo]:
    return [info.columns_by_id[number] for number in info.handle_key_columns]


def literal(column: ColumnInfo, value: Cell) -> str:
    """Return a value as SQL."""
    match value:
        case None:
            return "NULL"
        case int():
            return str(value)
        case float():
            return repr(value)
        case str() if family(column) is Family.JSON:
            return f"CONVERT(x'{value.encode('utf-8', 'surrogatepass').hex()}' USING utf8mb4)"
        case str():
            return f"'{value}'"
        case bytes() if column.is_binary:
            return f"x'{value.hex()}'"
        case bytes():
            return f"CONVERT(x'{value.hex()}' USING utf8mb4)"
