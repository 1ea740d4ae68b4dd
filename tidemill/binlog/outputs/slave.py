"""The Drainer's message of Kafka and the relay log (slave.binlog)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import tzinfo
from functools import lru_cache

from tidemill.binlog.messages import MutationType
from tidemill.binlog.outputs.transactions import DdlBinlog, Entry, TableChanges, Transaction
from tidemill.binlog.rows import Cells, Image, RowChange
from tidemill.tidb.rows.cells import Cell, Family, family
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tidb.schema.typenames import type_name
from tidemill.wire import slave_binlog_pb2 as pb

KNOWN = 4096
"""Table versions whose descriptions are kept."""

_KINDS = {MutationType.INSERT: pb.Insert, MutationType.UPDATE: pb.Update, MutationType.DELETE_ROW: pb.Delete}


def encode(entry: Entry, zone: tzinfo) -> bytes:
    """Return the message. TIMESTAMP is text in `zone`, of which the message has no mark. Raises MalformedRow."""
    if isinstance(entry, DdlBinlog):
        return _ddl(entry).SerializeToString()
    return _dml(entry, zone).SerializeToString()


def commit_ts_of(message: bytes) -> int:
    """Return the commit ts of a message that `encode` made."""
    return pb.Binlog.FromString(message).commit_ts


def _ddl(entry: DdlBinlog) -> pb.Binlog:
    message = pb.Binlog(type=pb.DDL, commit_ts=entry.commit_ts)
    message.ddl_data.schema_name, message.ddl_data.table_name = entry.ddl.schema, entry.ddl.table
    message.ddl_data.ddl_query = entry.ddl.query.encode("utf-8", "surrogateescape")
    return message


def _dml(entry: Transaction, zone: tzinfo) -> pb.Binlog:
    message = pb.Binlog(type=pb.DML, commit_ts=entry.commit_ts)
    message.dml_data.SetInParent()
    for changes in entry.tables:
        _table(message.dml_data.tables.add(), changes, zone)
    return message


def _table(into: pb.Table, changes: TableChanges, zone: tzinfo) -> None:
    described, info = _described(changes.version), changes.version.info
    into.MergeFrom(described)
    cells = Cells(info, zone)
    for row in changes.rows:
        _mutation(into.mutations.add(type=_KINDS[row.kind]), row, info, cells)


def _mutation(into: pb.TableMutation, row: RowChange, info: TableInfo, cells: Cells) -> None:
    if row.new is None:
        assert row.old is not None
        _row(into.row, info, cells, row.old)
        return
    _row(into.row, info, cells, row.new)
    if row.old is not None:
        _row(into.change_row, info, cells, row.old)


def mutation_head(kind: MutationType) -> bytes:
    """Return what the TableMutation of a row begins with, before its rows."""
    return pb.TableMutation(type=_KINDS[kind]).SerializePartialToString()


def mutation(version: TableVersion, row: RowChange, zone: tzinfo) -> bytes:
    """Return the TableMutation of a row. Raises MalformedRow."""
    into = pb.TableMutation(type=_KINDS[row.kind])
    _mutation(into, row, version.info, Cells(version.info, zone))
    return into.SerializeToString()


def around(version: TableVersion) -> tuple[bytes, bytes]:
    """Return what stands before and behind the mutations of a Table."""
    before, behind = pb.Table(), pb.Table()
    before.CopyFrom(_described(version))
    behind.unique_keys.extend(before.unique_keys)
    before.ClearField("unique_keys")
    return before.SerializeToString(), behind.SerializeToString()


def column(info: ColumnInfo, value: Cell) -> bytes:
    """Return the content of a Column. Raises OverflowError for a BIT that has more bits than its type."""
    into = pb.Column()
    _value(into, info, value)
    return into.SerializeToString()


@lru_cache(KNOWN)
def _described(version: TableVersion) -> pb.Table:
    """Return what the message of every transaction says of a table: names, columns and keys."""
    info, into = version.info, pb.Table()
    into.schema_name, into.table_name = version.name
    keys = dict(unique_keys(info))
    primary = keys.get("PRIMARY", ())
    for column in info.public_columns:
        into.column_info.add(
            name=column.name,
            mysql_type=type_name(column),
            is_primary_key=column.name in primary,
            flen=_int32(column.flen),
            decimal=_int32(column.decimal),
        )
    for name, columns in keys.items():
        into.unique_keys.add(name=name, column_names=columns)
    return into


def _row(into: pb.Row, info: TableInfo, cells: Cells, image: Image) -> None:
    into.SetInParent()
    for column in info.public_columns:
        _value(into.columns.add(), column, cells.of(column, image))


def unique_keys(info: TableInfo) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield name and columns of the keys that tell rows apart, the primary key first."""
    if info.pk_column is not None:
        yield "PRIMARY", (info.pk_column.name,)
    indices = [i for i in info.public_indices if i.primary or i.unique]
    for index in sorted(indices, key=lambda i: not i.primary):
        yield "PRIMARY" if index.primary else index.name, tuple(c.name for c in info.index_columns(index))


def _int32(number: int) -> int:
    """Lengths above an int32 go round, as in the real program."""
    return (number & 0xFFFFFFFF ^ 0x80000000) - 0x80000000


def _value(into: pb.Column, column: ColumnInfo, value: Cell) -> None:
    match value:
        case None:
            into.is_null = True
        case int():
            _number(into, column, value)
        case float():
            into.double_value = value
        case str() if family(column) is Family.JSON:
            into.bytes_value = value.encode("utf-8", "surrogatepass")
        case str():
            into.string_value = value.encode()
        case bytes() if column.is_binary:
            into.bytes_value = value
        case bytes():
            into.string_value = value


def _number(into: pb.Column, column: ColumnInfo, value: int) -> None:
    if column.tp == MySQLType.YEAR:
        into.string_value = str(value).encode()
    elif column.tp == MySQLType.BIT:
        into.bytes_value = value.to_bytes(max(1, (column.flen + 7) // 8), "big")
    elif column.unsigned or column.tp in (MySQLType.ENUM, MySQLType.SET):
        into.uint64_value = value
    else:
        into.int64_value = value
