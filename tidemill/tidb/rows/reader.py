"""Record key and row value → the cells of a table's columns. The kernels' tests compare them with this reference.

The row value wins over the key, because a key holds only the sort key of most strings. If neither holds a column, the row is older
than the column (`defaults`). Column ids that the table does not know are skipped: they belong to a running or past DDL.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import tzinfo

from tidemill.errors import MalformedBytes, MalformedRow
from tidemill.tidb.datums import Datum, decode_datum
from tidemill.tidb.keys import RecordKey, parse_record_key
from tidemill.tidb.rows.cells import Cell, as_unsigned, cell, plain_from_datum, plain_from_stored
from tidemill.tidb.rows.defaults import missing_plain
from tidemill.tidb.rows.raw import RawRow, decode_row
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.jsonstyle import JsonStyle

_NO_ROW = RawRow(2, {})


class RowReader:
    """Reads rows of one version of a table. Timestamps are printed in `zone`, documents in the style `json`.

    `columns` are the columns to read; by default all output columns.
    """

    def __init__(self, table: TableInfo, zone: tzinfo, columns: Sequence[ColumnInfo] | None = None, json: JsonStyle = JsonStyle.GO) -> None:
        self.table = table
        self.zone = zone
        self._json = json
        self._columns = table.output_columns if columns is None else tuple(columns)
        self._ids = frozenset(column.id for column in self._columns)
        self._missing: dict[int, Cell] = {}

    @property
    def absent(self) -> tuple[Cell, ...]:
        """The cell of each column in a row that is older than the column. Raises MalformedRow."""
        return tuple(self.absent_of(column) for column in self._columns)

    def absent_of(self, column: ColumnInfo) -> Cell:
        """Return the cell of a column in a row that is older than the column. Raises MalformedRow."""
        with self._naming(column):
            return self._missing_cell(column)

    def read(self, key: bytes, value: bytes | None) -> tuple[Cell, ...]:
        """Return the cells of the columns. Without a value (a delete with unknown old value) only the key's columns are not None.

        Raises MalformedKey, MalformedRow (names table and column).
        """
        return self.read_only(self._ids, key, value)

    def read_only(self, wanted: Collection[int], key: bytes, value: bytes | None) -> tuple[Cell, ...]:
        """Return the cells as `read` does, but only of the columns with these ids. The others are None and not decoded."""
        record = parse_record_key(key)
        row = _NO_ROW if value is None else self._row(value)
        from_key = self._handle_datums(record)
        has_value = value is not None
        return tuple(self._cell(c, record, row, from_key, has_value=has_value) if c.id in wanted else None for c in self._columns)

    def _row(self, value: bytes) -> RawRow:
        try:
            return decode_row(value)
        except MalformedRow as error:
            raise MalformedRow(f"table {self.table.name}: {error.message}") from None

    def _cell(self, column: ColumnInfo, record: RecordKey, row: RawRow, from_key: Mapping[int, Datum], *, has_value: bool) -> Cell:
        with self._naming(column):
            if column.id in row.columns:
                stored = row.columns[column.id]
                if stored is None:
                    return None
                plain = plain_from_datum(column, stored) if isinstance(stored, Datum) else plain_from_stored(column, stored)
                return cell(column, plain, self.zone, self._json)
            if self.table.pk_column is not None and column.id == self.table.pk_column.id:
                return _int_handle(column, record)
            if column.id in from_key:
                return cell(column, plain_from_datum(column, from_key[column.id]), self.zone, self._json)
            return self._missing_cell(column) if has_value else None

    @contextmanager
    def _naming(self, column: ColumnInfo) -> Iterator[None]:
        """Name table and column in errors that are raised inside."""
        try:
            yield
        except MalformedBytes as error:
            raise MalformedRow(f"table {self.table.name}, column {column.name}: {error.message}") from None

    def _handle_datums(self, record: RecordKey) -> dict[int, Datum]:
        """Return the datums of a common handle by column id, without those that hold only a prefix of the column."""
        index = self.table.primary_index
        if not self.table.is_common_handle or index is None:
            return {}
        if isinstance(record.handle, int):
            raise MalformedRow(f"table {self.table.name}: the key has an integer handle, expected the columns of its primary key")
        found: dict[int, Datum] = {}
        pos = 0
        for part, column in zip(index.columns, self.table.index_columns(index), strict=True):
            with self._naming(column):
                datum, pos = decode_datum(record.handle, pos)
            if part.length < 0:
                found[column.id] = datum
        if any(record.handle[pos:]):
            raise MalformedRow(f"table {self.table.name}: bytes follow the last key column, at byte {pos} of the handle")
        return found

    def _missing_cell(self, column: ColumnInfo) -> Cell:
        if column.id not in self._missing:
            plain = missing_plain(column)
            self._missing[column.id] = None if plain is None else cell(column, plain, self.zone, self._json)
        return self._missing[column.id]


def _int_handle(column: ColumnInfo, record: RecordKey) -> int:
    if not isinstance(record.handle, int):
        raise MalformedBytes("the key has a common handle, expected an integer")
    return as_unsigned(column, record.handle)
