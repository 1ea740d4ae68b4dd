"""The row bytes of a binlog → the values of a table's columns.

A row is a handle (inserts only) and then pairs of a column id and a value, all datums. An update has the pairs of the old row and, after
them, those of the new row: the second time that a column id comes, the new row begins. A row without pairs is one byte 00.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import tzinfo

from tidemill.binlog.messages import MutationType, TableMutation
from tidemill.errors import MalformedBytes, MalformedRow
from tidemill.tidb.datums import Datum, DatumFlag, decode_datum
from tidemill.tidb.rows.cells import Cell, cell, plain_from_datum
from tidemill.tidb.rows.defaults import missing_plain
from tidemill.tidb.schema.codes import HandleKind
from tidemill.tidb.schema.model import ColumnInfo, TableInfo

Image = Mapping[int, Datum]
"""The values of a row by column id."""

_EMPTY = b"\0"


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change of one row. An insert has no `old`, a delete no `new`."""

    kind: MutationType
    old: Image | None
    new: Image | None


def read_changes(info: TableInfo, mutation: TableMutation) -> Iterator[RowChange]:
    """Yield the changes of one table in the order of the statements. Raises MalformedRow naming the table."""
    inserted, updated, deleted = iter(mutation.inserted), iter(mutation.updated), iter(mutation.deleted)
    try:
        for kind in mutation.sequence:
            if kind is MutationType.INSERT:
                yield RowChange(kind, None, inserted_image(info, next(inserted)))
            elif kind is MutationType.UPDATE:
                yield RowChange(kind, *updated_images(next(updated)))
            else:
                yield RowChange(kind, deleted_image(next(deleted)), None)
    except MalformedBytes as error:
        raise MalformedRow(f"table {info.name} (id {mutation.table_id}): {error.message}") from None


def inserted_image(info: TableInfo, row: bytes) -> Image:
    """Return the values of an inserted row; key columns that have no pair come from the handle. Raises MalformedBytes."""
    keys, at = _handle(info, row)
    found = dict(keys)
    found.update(_pairs(row, at))
    return found


def _handle(info: TableInfo, row: bytes) -> tuple[dict[int, Datum], int]:
    """Return the columns that the handle holds whole, and where it ends."""
    index = info.primary_index
    if info.handle_kind is not HandleKind.COMMON or index is None:
        datum, at = decode_datum(row)
        return ({info.pk_column.id: datum} if info.pk_column is not None else {}), at
    found, at = {}, 0
    for part, column in zip(index.columns, info.index_columns(index), strict=True):
        datum, at = decode_datum(row, at)
        if part.length < 0:
            found[column.id] = datum
    return found, at


def _pairs(row: bytes, at: int) -> Iterator[tuple[int, Datum]]:
    if row[at:] == _EMPTY:
        return
    while at < len(row):
        column, at = _column(row, at)
        value, at = decode_datum(row, at)
        yield column, value


def _column(row: bytes, at: int) -> tuple[int, int]:
    """Return the column id at a place, and where its value begins. Raises MalformedBytes."""
    if row[at] == DatumFlag.VARINT and at + 1 < len(row) and row[at + 1] < 0x80:  # of one byte, as nearly all are
        return row[at + 1] >> 1 ^ -(row[at + 1] & 1), at + 2
    column, at = decode_datum(row, at)
    if column.flag is not DatumFlag.VARINT or not isinstance(column.value, int):
        raise MalformedBytes(f"found a datum {column.flag.name} where a column id is expected")
    return column.value, at


def updated_images(row: bytes) -> tuple[Image, Image]:
    """Return the old and the new values of an updated row. Raises MalformedBytes."""
    old: dict[int, Datum] = {}
    new: dict[int, Datum] = {}
    for column, value in _pairs(row, 0):
        into = new if new or column in old else old
        if column in into:
            raise MalformedBytes(f"column {column} stands in an updated row more than twice")
        into[column] = value
    if set(old) != set(new):
        raise MalformedBytes("the old and the new half of an updated row have different columns")
    return old, new


def deleted_image(row: bytes) -> Image:
    """Return the values of a deleted row. Raises MalformedBytes."""
    return dict(_pairs(row, 0))


@dataclass(frozen=True, slots=True)
class Cells:
    """Makes the cells of one version of a table. TIMESTAMP is printed in `zone`."""

    info: TableInfo
    zone: tzinfo

    def of(self, column: ColumnInfo, image: Image) -> Cell:
        """Return a column's value. A row that is older than the column has the column's first default; a virtual column without a value is
        NULL. Raises MalformedRow."""
        try:
            datum = image.get(column.id)
            if datum is None:
                plain = None if column.is_generated else missing_plain(column)
            else:
                plain = None if datum.value is None else plain_from_datum(column, datum)
            return None if plain is None else cell(column, plain, self.zone)
        except MalformedBytes as error:
            raise MalformedRow(f"table {self.info.name}, column {column.name}: {error.message}") from None
