"""The rows of a binlog → changes of TiKV's records: what the change feed would tell of the same transaction.

The pairs of a row are a row value of format 1 as they stand. Of a key that a transaction changes several times, TiKV keeps the last value
only, so the steps are joined: what was there before the first, and what is there after the last. Pure, and the readable twin of
`tidemill.kernels.binlog`.

A table of partitions has one id in binlogs, its logical one; the rows of its partitions are not told apart. They all get the id of the
first partition. Two rows with the same handle in two partitions keep apart all the same: each change has both its images.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidemill.binlog.messages import MutationType, TableMutation
from tidemill.errors import MalformedBytes, MalformedRow
from tidemill.tidb.datums import Datum, DatumFlag, decode_datum, encode_datum
from tidemill.tidb.keys import record_key, signed_handle
from tidemill.tidb.rows.cells import Family, family
from tidemill.tidb.rows.raw import EMPTY_FORMAT_1
from tidemill.tidb.schema.codes import HandleKind
from tidemill.tidb.schema.model import ColumnInfo, TableInfo

ROW_ID = -1
"""The column id of the hidden row id, in updates and deletes of tables without a key."""

_IN_KEYS = {DatumFlag.VARINT: DatumFlag.INT, DatumFlag.UVARINT: DatumFlag.UINT, DatumFlag.COMPACT_BYTES: DatumFlag.BYTES}


@dataclass(frozen=True, slots=True)
class Record:
    """A change of one record: its raw key, and its row values of format 1 before and after; None: there is none."""

    key: bytes
    old: bytes | None
    new: bytes | None


@dataclass(frozen=True, slots=True)
class _Row:
    """A row's place in the bytes of a binlog: its pairs, and the position of each column's value."""

    value: bytes
    columns: Mapping[int, bytes]


def read_records(info: TableInfo, mutation: TableMutation) -> list[Record]:
    """Return the records that a transaction changed in one table, sorted by key. Raises MalformedRow naming the table."""
    return joined(read_steps(info, mutation))


def read_steps(info: TableInfo, mutation: TableMutation) -> list[Record]:
    """Return the changes of records in the order of the statements. Raises MalformedRow naming the table."""
    try:
        return list(_steps(info, mutation))
    except MalformedBytes as error:
        raise MalformedRow(f"table {info.name} (id {mutation.table_id}): {error.message}") from None


def joined(steps: Iterable[Record]) -> list[Record]:
    """Return one record for each key, sorted: the old value of its first step and the new one of its last. A row that was inserted and
    deleted again is left out."""
    found: dict[bytes, Record] = {}
    for step in steps:
        first = found.get(step.key)
        found[step.key] = step if first is None else Record(step.key, first.old, step.new)
    return [found[key] for key in sorted(found) if found[key].old is not None or found[key].new is not None]


def _steps(info: TableInfo, mutation: TableMutation) -> Iterator[Record]:
    inserted, updated, deleted = iter(mutation.inserted), iter(mutation.updated), iter(mutation.deleted)
    for kind in mutation.sequence:
        if kind is MutationType.INSERT:
            key, row = _inserted(info, next(inserted))
            yield Record(key, None, row.value)
        elif kind is MutationType.UPDATE:
            old, new = _halves(next(updated))
            before, after = _key_of(info, old), _key_of(info, new)
            if before == after:
                yield Record(before, old.value, new.value)
            else:
                yield Record(before, old.value, None)
                yield Record(after, None, new.value)
        else:
            row = _single(_rows(next(deleted)))
            yield Record(_key_of(info, row), row.value, None)


def _inserted(info: TableInfo, data: bytes) -> tuple[bytes, _Row]:
    """Return the key and the row of an inserted row, whose handle comes before its pairs."""
    index = info.primary_index
    if info.handle_kind is not HandleKind.COMMON or index is None:
        handle, at = decode_datum(data)
        if not isinstance(handle.value, int):
            raise MalformedBytes(f"the handle is a datum {handle.flag.name}, not a number")
        return record_key(_physical(info), signed_handle(handle.value)), _single(_rows(data, at))
    at, datums = 0, []
    for _ in index.columns:
        start = at
        _, at = decode_datum(data, at)
        datums.append(data[start:at])
    row = _single(_rows(data, at))
    parts = (row.columns.get(column.id, datum) for column, datum in zip(info.index_columns(index), datums, strict=True))
    return record_key(_physical(info), _common(info.index_columns(index), parts)), row


def _key_of(info: TableInfo, row: _Row) -> bytes:
    """Return the key of a row that has all its columns."""
    index = info.primary_index
    if info.handle_kind is HandleKind.COMMON and index is not None:
        columns = info.index_columns(index)
        return record_key(_physical(info), _common(columns, (_value(row, column.id, info) for column in columns)))
    column_id = info.pk_column.id if info.pk_column is not None else ROW_ID
    datum, _ = decode_datum(_value(row, column_id, info))
    if not isinstance(datum.value, int):
        raise MalformedBytes(f"the handle is a datum {datum.flag.name}, not a number")
    return record_key(_physical(info), signed_handle(datum.value))


def _value(row: _Row, column_id: int, info: TableInfo) -> bytes:
    found = row.columns.get(column_id)
    if found is None:
        raise MalformedBytes(f"a row has no value of column {column_id}, which the key of {info.name} needs")
    return found


def _common(columns: Iterable[ColumnInfo], datums: Iterable[bytes]) -> bytes:
    """Return a common handle of datums that are written as in rows."""
    return b"".join(_in_key(column, datum) for column, datum in zip(columns, datums, strict=True))


def _in_key(column: ColumnInfo, data: bytes) -> bytes:
    datum, _ = decode_datum(data)
    flag = _IN_KEYS.get(datum.flag)
    if flag is None:
        return data  # of fixed size, or in the order of bytes, in rows too
    if flag is DatumFlag.INT and family(column) is Family.DURATION:
        flag = DatumFlag.DURATION
    return encode_datum(Datum(flag, datum.value))


def _physical(info: TableInfo) -> int:
    return info.physical_ids[0]


def _halves(data: bytes) -> tuple[_Row, _Row]:
    rows = _rows(data)
    if len(rows) == 1 and rows[0].columns:
        raise MalformedBytes("an updated row has an old half only")
    return rows[0], rows[-1]


def _single(rows: list[_Row]) -> _Row:
    if len(rows) > 1:
        raise MalformedBytes("a column stands twice in a row that has one image")
    return rows[0]


def _rows(data: bytes, at: int = 0) -> list[_Row]:
    """Return the rows in `data` from `at` on: a row begins where a column id comes the second time."""
    if data[at:] == EMPTY_FORMAT_1:
        return [_Row(EMPTY_FORMAT_1, {})]
    starts, found = [at], [dict[int, bytes]()]
    while at < len(data):
        column, value_at = decode_datum(data, at)
        if column.flag is not DatumFlag.VARINT or not isinstance(column.value, int):
            raise MalformedBytes(f"found a datum {column.flag.name} where a column id is expected")
        if column.value in found[-1]:
            if len(found) == 2:
                raise MalformedBytes(f"column {column.value} stands in a row more than twice")
            starts.append(at)
            found.append({})
        _, end = decode_datum(data, value_at)
        found[-1][column.value] = data[value_at:end]
        at = end
    if len(found) == 2 and set(found[0]) != set(found[1]):
        raise MalformedBytes("the old and the new half of an updated row have different columns")
    edges = [*starts, len(data)]
    return [_Row(data[a:b] or EMPTY_FORMAT_1, columns) for a, b, columns in zip(edges, edges[1:], found, strict=False)]
