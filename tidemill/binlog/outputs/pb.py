"""The Drainer's message of the `file` form (pb_binlog)."""

from __future__ import annotations

from datetime import tzinfo
from functools import lru_cache

from tidemill.binlog.messages import MutationType
from tidemill.binlog.outputs.transactions import DdlBinlog, Entry, TableChanges
from tidemill.binlog.rows import Cells, RowChange
from tidemill.tidb.datums import Datum, DatumFlag, encode_datum
from tidemill.tidb.names import quote_name
from tidemill.tidb.rows.cells import Cell
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tidb.schema.typenames import type_name
from tidemill.wire import pb_binlog_pb2 as pb

KNOWN = 4096
"""Table versions whose columns are kept ready."""

_KINDS = {MutationType.INSERT: pb.Insert, MutationType.UPDATE: pb.Update, MutationType.DELETE_ROW: pb.Delete}


def encode(entry: Entry, zone: tzinfo) -> bytes:
    """Return the message. TIMESTAMP is text in `zone`. Raises MalformedRow."""
    if isinstance(entry, DdlBinlog):
        return pb.Binlog(tp=pb.DDL, commit_ts=entry.commit_ts, ddl_query=_statement(entry)).SerializeToString()
    message = pb.Binlog(tp=pb.DML, commit_ts=entry.commit_ts)
    message.dml_data.SetInParent()
    for changes in entry.tables:
        for row in changes.rows:
            _event(message.dml_data.events.add(tp=_KINDS[row.kind]), changes, row, zone)
    return message.SerializeToString()


def _statement(entry: DdlBinlog) -> bytes:
    ddl = entry.ddl
    text = ddl.query if ddl.query.rstrip().endswith(";") else f"{ddl.query};"
    use = "" if ddl.names_database or not ddl.schema else f"use {quote_name(ddl.schema)}; "
    return (use + text).encode("utf-8", "surrogateescape")


def event_head(version: TableVersion, kind: MutationType) -> bytes:
    """Return what the Event of a row begins with, before its columns."""
    schema, table = version.name
    return pb.Event(schema_name=schema, table_name=table, tp=_KINDS[kind]).SerializePartialToString()


def event(changes: TableChanges, row: RowChange, zone: tzinfo) -> bytes:
    """Return the Event of a row. Raises MalformedRow."""
    into = pb.Event(tp=_KINDS[row.kind])
    _event(into, changes, row, zone)
    return into.SerializeToString()


def _event(into: pb.Event, changes: TableChanges, row: RowChange, zone: tzinfo) -> None:
    into.schema_name, into.table_name = changes.version.name
    cells = Cells(changes.version.info, zone)
    first = row.new if row.old is None else row.old
    assert first is not None
    for column, before in described(changes.version):
        if row.old is not None and row.new is not None and column.is_virtual:
            continue  # an updated row does not have it
        values = pb.Column(value=datum(column, cells.of(column, first)))
        if row.old is not None and row.new is not None:
            values.changed_value = datum(column, cells.of(column, row.new))
        into.row.append(before + values.SerializePartialToString())


@lru_cache(KNOWN)
def described(version: TableVersion) -> tuple[tuple[ColumnInfo, bytes], ...]:
    """Return the columns of a table, each with the bytes that its values follow: a message of protobuf may be written in parts."""
    return tuple(
        (column, pb.Column(name=column.name, tp=bytes([column.tp]), mysql_type=type_name(column)).SerializePartialToString())
        for column in version.info.public_columns
    )


def datum(column: ColumnInfo, value: Cell) -> bytes:
    """Return a value as it stands in a Column."""
    match value:
        case None:
            return encode_datum(Datum(DatumFlag.NULL, None))
        case int():
            unsigned = column.tp != MySQLType.YEAR and (column.unsigned or column.tp in (MySQLType.ENUM, MySQLType.SET, MySQLType.BIT))
            return encode_datum(Datum(DatumFlag.UVARINT if unsigned else DatumFlag.VARINT, value))
        case float():
            return encode_datum(Datum(DatumFlag.FLOAT, value))
        case str():
            return encode_datum(Datum(DatumFlag.COMPACT_BYTES, value.encode("utf-8", "surrogatepass")))
        case bytes():
            return encode_datum(Datum(DatumFlag.COMPACT_BYTES, value))
