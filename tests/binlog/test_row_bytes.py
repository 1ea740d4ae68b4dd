"""Rows into the bytes of binlogs: as TiDB wrote every row that was recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tests.support.binlog.recorded_rows import recorded_tables
from tidemill.binlog.messages import MutationType, TableMutation
from tidemill.binlog.row_bytes import deleted_row, inserted_row, updated_row
from tidemill.binlog.rows import RowChange, read_changes
from tidemill.tidb.datums import Datum, DatumFlag, decode_datum, encode_datum
from tidemill.tidb.keys import record_key, signed_handle
from tidemill.tidb.rows.cells import Plain, plain_from_datum
from tidemill.tidb.schema.codes import HandleKind
from tidemill.tidb.schema.model import TableInfo

_IN_KEYS = {DatumFlag.VARINT: DatumFlag.INT, DatumFlag.UVARINT: DatumFlag.UINT, DatumFlag.COMPACT_BYTES: DatumFlag.BYTES}


def _values(info: TableInfo, image: Mapping[int, Datum]) -> dict[int, Plain | None]:
    by_id = info.columns_by_id
    return {n: None if datum.value is None else plain_from_datum(by_id[n], datum) for n, datum in image.items() if n != -1}


def _key(info: TableInfo, change: RowChange, row: bytes) -> bytes:
    """The record key: of an inserted row by its handle, else by the columns of an integer key or by the row id."""
    if change.old is None and info.handle_kind is HandleKind.COMMON:
        handle, at = b"", 0
        for _ in info.primary_index.columns if info.primary_index is not None else ():
            start = at
            datum, at = decode_datum(row, at)
            flag = _IN_KEYS.get(datum.flag)
            handle += row[start:at] if flag is None else encode_datum(Datum(flag, datum.value))
        return record_key(info.id, handle)
    if change.old is None:
        number = decode_datum(row)[0].value
    elif info.handle_kind is HandleKind.COMMON:
        return record_key(info.id, b"\x03" + bytes(8))  # binlogs of updates and deletes do not have it
    else:
        number = change.old[info.pk_column.id if info.pk_column is not None else -1].value
    assert isinstance(number, int)
    return record_key(info.id, signed_handle(number))


def _rows(mutation: TableMutation) -> list[bytes]:
    lists = {MutationType.INSERT: mutation.inserted, MutationType.UPDATE: mutation.updated, MutationType.DELETE_ROW: mutation.deleted}
    iterators = {kind: iter(rows) for kind, rows in lists.items()}
    return [next(iterators[kind]) for kind in mutation.sequence]


def test_recorded_rows_are_written_again_as_they_were() -> None:
    seen: Counter[MutationType] = Counter()
    for version, mutation in recorded_tables():
        info = version.info
        known = set(info.columns_by_id) | {-1}
        for change, row in zip(read_changes(info, mutation), _rows(mutation), strict=True):
            if not known >= set(change.new or ()) | set(change.old or ()):
                continue  # a DDL was running; the version that is known of the table does not have its new column
            key = _key(info, change, row)
            if change.old is None and change.new is not None:
                written = inserted_row(info, key, _values(info, change.new))
            elif change.new is None and change.old is not None:
                written = deleted_row(info, key, _values(info, change.old))
            else:
                assert change.old is not None
                assert change.new is not None
                written = updated_row(info, key, _values(info, change.old), _values(info, change.new))
            assert written == row, (info.name, change)
            seen[change.kind] += 1
    assert min(seen[kind] for kind in MutationType) > 100, seen
