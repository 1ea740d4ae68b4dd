"""A few columns of a row, without decoding all of it. Filters need this: they look at one or two columns.

It handles small rows of format 2 whose wanted columns are not part of a common handle. `RowReader` reads all other rows.
Reference: `RowReader` with the same columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from tidemill.tidb.rows.cells import Cell, as_unsigned, cell, plain_from_stored
from tidemill.tidb.rows.raw import FORMAT_2, RowFlag
from tidemill.tidb.rows.reader import RowReader
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.jsonstyle import JsonStyle

_HEAD = 6  # format, flags, counts
_KNOWN = int(RowFlag.CHECKSUM)
_KEY_SIZE, _HANDLE_AT = 19, 11
_SIGN = 1 << 63

Picked = tuple["bytes | tuple[bytes] | bool | None", ...]
"""For each column: its stored bytes, None for NULL, True where the row is older than the column, (handle,) where the key holds it.

Equal tuples mean equal cells.
"""


class ColumnPicker:
    """Picks columns of one version of a table."""

    def __init__(self, table: TableInfo, columns: Sequence[ColumnInfo], zone: tzinfo, json: JsonStyle = JsonStyle.GO) -> None:
        self._columns, self._zone, self._json = tuple(columns), zone, json
        self._reader = RowReader(table, zone, columns, json)
        handle = table.pk_column.id if table.pk_column is not None else -1
        common = table.primary_index if table.is_common_handle else None
        in_key = {c.id for c in table.index_columns(common)} if common is not None else set()
        self._wanted = [(c.id, c.id == handle, c.id in in_key) for c in self._columns]

    def pick(self, key: bytes, value: bytes) -> Picked | None:
        """Return the columns as they are stored, or None for a row that `read` has to decode."""
        if len(value) < _HEAD or value[0] != FORMAT_2 or value[1] & ~_KNOWN:
            return None
        count = value[2] | value[3] << 8
        nulls_at = _HEAD + count
        ends_at = nulls_at + (value[4] | value[5] << 8)
        data_at = ends_at + 2 * count
        if data_at > len(value):
            return None
        found: list[bytes | tuple[bytes] | bool | None] = []
        for column, is_handle, in_key in self._wanted:
            at = value.find(column, _HEAD, nulls_at) if column < 256 else -1
            if at >= 0:
                end_at = ends_at + 2 * (at - _HEAD)
                end = data_at + (value[end_at] | value[end_at + 1] << 8)
                start = data_at + (value[end_at - 2] | value[end_at - 1] << 8) if at > _HEAD else data_at
                if not start <= end <= len(value):
                    return None
                found.append(value[start:end])
            elif column < 256 and value.find(column, nulls_at, ends_at) >= 0:
                found.append(None)
            elif in_key or (is_handle and len(key) != _KEY_SIZE):
                return None
            else:
                found.append((key[_HANDLE_AT:],) if is_handle else True)
        return tuple(found)

    def cells(self, picked: Picked) -> tuple[Cell, ...]:
        """Return the cells of picked columns. Raises MalformedBytes."""
        return tuple(self._cell(i, stored) for i, stored in enumerate(picked))

    def _cell(self, place: int, stored: bytes | tuple[bytes] | bool | None) -> Cell:
        column = self._columns[place]
        match stored:
            case bytes():
                return cell(column, plain_from_stored(column, stored), self._zone, self._json)
            case (handle,):
                return as_unsigned(column, int.from_bytes(handle, "big") - _SIGN)
            case None:
                return None
        return self._reader.absent[place]

    def read(self, key: bytes, value: bytes) -> tuple[Cell, ...]:
        """Return the cells of any row, read by `RowReader`. Raises MalformedRow."""
        return self._reader.read(key, value)
