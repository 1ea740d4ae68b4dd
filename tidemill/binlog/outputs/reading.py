"""The Drainer's messages read back: the `file` form (pb_binlog), and that of Kafka and the relay log (slave.binlog).

TIMESTAMP is text in the zone of the Drainer that wrote, of which messages have no mark; it becomes UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo

from google.protobuf.message import DecodeError

from tidemill.binlog.outputs.literals import bytes_literal, text_literal
from tidemill.binlog.outputs.named import NamedDdl, NamedRow, NamedRows, Told, Values
from tidemill.errors import MalformedBytes, MalformedMessage
from tidemill.tidb.datums import Datum, decode_datum
from tidemill.wire import pb_binlog_pb2 as pb
from tidemill.wire import slave_binlog_pb2 as slave

_TEXTS = frozenset({"char", "varchar", "var_string", "text", "tinytext", "mediumtext", "longtext", "json", "vector"})
_BYTES = frozenset({"binary", "varbinary", "blob", "tinyblob", "mediumblob", "longblob", "geometry"})
_PLAIN = re.compile(rb"[-+0-9.: eE]*")
_USE = re.compile(r"use `((?:[^`]|``)*)`; ", re.IGNORECASE)


def decode_file(payload: bytes, zone: tzinfo) -> Told:
    """Return what a record of the `file` form tells. Raises MalformedMessage."""
    try:
        message = pb.Binlog.FromString(payload)
        if message.tp == pb.DDL:
            return _file_ddl(message)
        return NamedRows(message.commit_ts, tuple(_file_row(event, zone) for event in message.dml_data.events))
    except (DecodeError, MalformedBytes, UnicodeDecodeError) as error:
        raise MalformedMessage(f"it is not a message of a Drainer's files: {error}") from None


def _file_ddl(message: pb.Binlog) -> NamedDdl:
    text = message.ddl_query.decode("utf-8", "surrogateescape")
    use = _USE.match(text)
    schema = use[1].replace("``", "`") if use else ""
    return NamedDdl(message.commit_ts, schema, text[use.end() if use else 0 :].rstrip("; \n"))


def _file_row(event: pb.Event, zone: tzinfo) -> NamedRow:
    first: dict[str, str] = {}
    second: dict[str, str] = {}
    for cell in event.row:
        column = pb.Column.FromString(cell)
        first[column.name] = _of_datum(column.mysql_type, column.value, zone)
        if event.tp == pb.Update and column.HasField("changed_value"):
            second[column.name] = _of_datum(column.mysql_type, column.changed_value, zone)
    return _row(event.schema_name, event.table_name, event.tp, first, second)


def _row(schema: str, table: str, kind: int, first: Values, second: Values) -> NamedRow:
    if kind == pb.Update:
        if set(first) != set(second):
            raise MalformedBytes(f"the old and the new row of an update of {schema}.{table} have different columns")
        return NamedRow(schema, table, first, second)
    return NamedRow(schema, table, None, first) if kind == pb.Insert else NamedRow(schema, table, first, None)


def _of_datum(kind: str, value: bytes, zone: tzinfo) -> str:
    datum: Datum
    datum, end = decode_datum(value)
    if end != len(value):
        raise MalformedBytes(f"{len(value) - end} bytes follow a value")
    match datum.value:
        case None:
            return "NULL"
        case int():
            return str(datum.value)
        case float():
            return repr(datum.value)
        case str():
            return f"'{datum.value}'"
        case bytes():
            return _of_bytes(kind, datum.value, zone)


def _of_bytes(kind: str, value: bytes, zone: tzinfo) -> str:
    """Return the literal of a value that a message has as bytes or text."""
    if kind in _BYTES:
        return bytes_literal(value)
    if kind in _TEXTS or not _PLAIN.fullmatch(value):
        return text_literal(value)
    return f"'{_in_utc(value.decode(), zone) if kind == 'timestamp' else value.decode()}'"


def _in_utc(text: str, zone: tzinfo) -> str:
    """Return a time of a zone in UTC, with as many digits. The zero time is not a time, and stays."""
    if zone is UTC or text.startswith("0000-"):
        return text
    try:
        moment = datetime.fromisoformat(text).replace(tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        raise MalformedBytes(f"{text!r} is not a TIMESTAMP") from None
    digits = len(text.partition(".")[2])
    fraction = f".{moment.microsecond:06d}"[: digits + 1] if digits else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}"


def decode_slave(payload: bytes, zone: tzinfo) -> Told:
    """Return what a message of Kafka or the relay log tells. Raises MalformedMessage."""
    try:
        message = slave.Binlog.FromString(payload)
        if message.type == slave.DDL:
            query = message.ddl_data.ddl_query.decode("utf-8", "surrogateescape")
            return NamedDdl(message.commit_ts, message.ddl_data.schema_name, query.rstrip("; \n"))
        return NamedRows(message.commit_ts, tuple(row for table in message.dml_data.tables for row in _slave_rows(table, zone)))
    except (DecodeError, MalformedBytes) as error:
        raise MalformedMessage(f"it is not a message of a Drainer: {error}") from None


def _slave_rows(table: slave.Table, zone: tzinfo) -> Iterator[NamedRow]:
    columns = [(info.name, info.mysql_type) for info in table.column_info]
    for mutation in table.mutations:
        new = _slave_values(columns, mutation.row, zone)
        if mutation.type == slave.Update:
            yield _row(table.schema_name, table.table_name, mutation.type, _slave_values(columns, mutation.change_row, zone), new)
        else:
            yield _row(table.schema_name, table.table_name, mutation.type, new, {})


def _slave_values(columns: list[tuple[str, str]], row: slave.Row, zone: tzinfo) -> Values:
    if len(row.columns) != len(columns):
        raise MalformedBytes(f"a row has {len(row.columns)} values, its table {len(columns)} columns")
    return {name: _of_column(kind, value, zone) for (name, kind), value in zip(columns, row.columns, strict=True)}


def _of_column(kind: str, value: slave.Column, zone: tzinfo) -> str:
    if value.is_null:
        return "NULL"
    for name in ("int64_value", "uint64_value"):
        if value.HasField(name):
            return str(getattr(value, name))
    if value.HasField("double_value"):
        return repr(value.double_value)
    data = value.bytes_value if value.HasField("bytes_value") else value.string_value
    return str(int.from_bytes(data, "big")) if kind == "bit" else _of_bytes(kind, data, zone)
