"""`tidemill decode key|row|message|canal`: what bytes mean, for people who debug.

Bytes are given as hex or base64 (what consists of hex digits alone is hex), or as `@FILE`, whose content they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import tzinfo
from enum import IntEnum
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from tidemill import tso
from tidemill.cli.canal import decode_canal
from tidemill.cli.shared.explained import BytesHelp, Line, cut, print_lines, print_table, read_bytes, shown_bytes, text_of
from tidemill.errors import ConfigError, MalformedBytes, MalformedKey, MalformedRow
from tidemill.protocols.open import DdlMessage, Event, RowEvent, decode
from tidemill.tidb import keys
from tidemill.tidb.codec import decode_bytes, decode_uint_desc
from tidemill.tidb.datums import Datum, DatumFlag, decode_datum
from tidemill.tidb.rows import Cell, RawRow, RowReader, decode_row, verify_checksum
from tidemill.tidb.rows.cells import cell, plain_from_datum, plain_from_stored
from tidemill.tidb.schema.codes import HandleKind, MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.members import enum_name, set_names
from tidemill.tidb.types.times import MAX_FSP, format_datetime, format_duration, unpack_time

app = typer.Typer()

_LIKELY_TIME = 1 << 60  # packed times of the years from 1261 on
_SYSTEM_TABLES = {
    keys.DDL_JOB_TABLE_ID: "mysql.tidb_ddl_job",
    keys.DDL_REORG_TABLE_ID: "mysql.tidb_ddl_reorg",
    keys.DDL_HISTORY_TABLE_ID: "mysql.tidb_ddl_history",
    keys.MDL_INFO_TABLE_ID: "mysql.tidb_mdl_info",
}

app.command("canal")(decode_canal.command)


@app.command("key")
def key_command(key: Annotated[str, typer.Argument(help=f"A raw or encoded key: {BytesHelp}.", show_default=False)]) -> None:
    """Explain a key of TiKV: its spelling, and the parts of a record, index or meta key."""
    print_lines(explain_key(read_bytes(key, "key")))


@app.command("row")
def row_command(
    value: Annotated[str, typer.Argument(help=f"A row value: {BytesHelp}.", show_default=False)],
    key: Annotated[str | None, typer.Option(help=f"The row's record key: {BytesHelp}.", show_default=False)] = None,
    table: Annotated[
        Path | None, typer.Option(help="A JSON file with the table's TableInfo, as in TiDB's meta or /schema/db/table.", show_default=False)
    ] = None,
    tz: Annotated[str, typer.Option(help="The time zone in which timestamps are shown.")] = "UTC",
) -> None:
    """Explain a row value. With the table's description, and the key where rows have one, its columns are read."""
    stored, zone = read_bytes(value, "row value"), read_zone(tz)
    record = _spelled_raw(read_bytes(key, "key"))[0] if key is not None else None
    row = decode_row(stored)
    print_lines(_row_head(row, stored))
    if table is None:
        print_table(("id", "stored", "as text"), _raw_columns(row))
        return
    info = read_table(table)
    print_table(("id", "column", "type", "value"), _columns(info, row, record, stored, zone))
    if row.checksum is not None and record is not None:
        print_lines([("verdict", verify_checksum(record, stored, info).value)])


@app.command("message")
def message_command(
    key: Annotated[str, typer.Argument(help=f"The message's key: {BytesHelp}.", show_default=False)],
    value: Annotated[str, typer.Argument(help=f"The message's value: {BytesHelp}.", show_default=False)],
) -> None:
    """Explain a message of the Open Protocol: the events in it, each with its time, and its columns or statement."""
    for number, event in enumerate(decode(read_bytes(key, "key"), read_bytes(value, "value")), 1):
        print_lines([(f"event {number}", _open_head(event)), *_open_body(event)])


# Input


def read_zone(name: str) -> tzinfo:
    """A time zone by its name. Raises ConfigError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"time zone {name!r} is not known", hint="Give a name such as UTC or Asia/Shanghai.") from None


def read_table(path: Path) -> TableInfo:
    """The table of a JSON file. Raises ConfigError, SchemaError."""
    try:
        return TableInfo.from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"the table's description cannot be read from {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None


# Keys


def explain_key(key: bytes) -> list[Line]:
    """A key's spelling and parts. Raises MalformedKey when it is not a key of TiDB in any spelling."""
    raw, lines = _spelled_raw(key)
    return [*lines, *_parts(raw), ("raw", raw.hex()), ("encoded", keys.to_encoded(raw).hex())]


def _spelled_raw(key: bytes) -> tuple[bytes, list[Line]]:
    """The raw key without a keyspace, and what was taken off."""
    raw, version = _raw_of(key)
    lines = [("spelling", "raw" if raw is key else "encoded" if version is None else "encoded, with a version")]
    if version is not None:
        lines.append(("version", tso.describe(version)))
    if raw.startswith(b"x") and raw[4:5] in (keys.TABLE_PREFIX, keys.META_PREFIX):
        lines.append(("keyspace", str(int.from_bytes(raw[1:4], "big"))))
        raw = raw[4:]
    return raw, lines


def _raw_of(key: bytes) -> tuple[bytes, int | None]:
    """The raw key, and the ts of an MVCC key. A key that can be read as an encoded one of TiDB is taken for one."""
    try:
        raw, end = decode_bytes(key)
    except MalformedBytes:
        return key, None
    if raw[:1] not in (keys.TABLE_PREFIX, keys.META_PREFIX, b"x"):
        return key, None
    if end == len(key):
        return raw, None
    return (raw, decode_uint_desc(key, end)[0]) if end + 8 == len(key) else (key, None)


def _parts(raw: bytes) -> list[Line]:
    if raw.startswith(keys.META_PREFIX):
        return _meta_parts(keys.parse_meta_key(raw))
    table_id = keys.physical_table_id(raw)
    table = ("table id", f"{table_id} ({_SYSTEM_TABLES[table_id]})" if table_id in _SYSTEM_TABLES else str(table_id))
    if keys.is_record_key(raw):
        return [("kind", "record"), table, *_handle(keys.parse_record_key(raw).handle)]
    try:
        index = keys.parse_index_key(raw)
    except MalformedKey:
        return [("kind", "part of a table's range"), table, ("rest", raw[9:].hex() or "nothing")]
    return [("kind", "index"), table, ("index id", str(index.index_id)), *_datums(index.suffix)]


def _handle(handle: int | bytes) -> list[Line]:
    if isinstance(handle, bytes):
        return _datums(handle)
    unsigned = f" (unsigned {keys.unsigned_handle(handle)})" if handle < 0 else ""
    return [("handle", f"{handle}{unsigned}")]


def _datums(data: bytes) -> list[Line]:
    """The datums of a common handle or index entry; zeros at the end are padding."""
    lines: list[Line] = []
    pos = 0
    while any(data[pos:]):
        try:
            datum, pos = decode_datum(data, pos)
        except MalformedBytes as error:
            return [*lines, ("rest", f"{data[pos:].hex()} ({error.message})")]
        lines.append((f"datum {len(lines) + 1}", _datum(datum)))
    return lines


def _datum(datum: Datum) -> str:
    value = datum.value
    shown = shown_bytes(value) if isinstance(value, bytes) else "" if value is None else str(value)
    if datum.flag is DatumFlag.UINT and isinstance(value, int) and value > _LIKELY_TIME:
        with suppress(MalformedBytes):
            shown += f" (as a time: {format_datetime(unpack_time(value), MAX_FSP)})"
    if datum.flag is DatumFlag.DURATION and isinstance(value, int):
        shown += f" ({format_duration(value, MAX_FSP)})"
    return f"{datum.flag.name} {shown}".rstrip()


def _meta_parts(meta: keys.MetaKey) -> list[Line]:
    lines = [("kind", f"meta {meta.kind.name.lower().replace('_', ' ')}"), ("name", shown_bytes(meta.name))]
    if meta.kind is keys.MetaKind.HASH_FIELD:
        is_id = meta.name == keys.DDL_JOB_HISTORY and len(meta.field) == 8
        lines.append(("field", f"job {int.from_bytes(meta.field, 'big')}" if is_id else shown_bytes(meta.field)))
    elif meta.kind is keys.MetaKind.LIST_ITEM:
        lines.append(("index", str(meta.index)))
    return lines


# Rows


def _row_head(row: RawRow, stored: bytes) -> list[Line]:
    nulls = sum(column is None for column in row.columns.values())
    large = ", large" if row.format == 2 and stored[1] & 1 else ""
    lines = [
        ("format", f"{row.format}{large}"),
        ("size", f"{len(stored)} bytes"),
        ("columns", f"{len(row.columns) - nulls} and {nulls} NULL"),
    ]
    if row.checksum is not None:
        extra = f", {row.checksum.extra:08x}" if row.checksum.extra is not None else ""
        lines.append(("checksum", f"version {row.checksum.version}: {row.checksum.checksum:08x}{extra}"))
    return lines


def _raw_columns(row: RawRow) -> Iterable[Sequence[str]]:
    for column, stored in sorted(row.columns.items()):
        if stored is None:
            yield str(column), "NULL", ""
        elif isinstance(stored, Datum):
            yield str(column), stored.flag.name, shown_bytes(stored.value) if isinstance(stored.value, bytes) else str(stored.value)
        else:
            yield str(column), cut(stored.hex()), text_of(stored) or ""


def _columns(info: TableInfo, row: RawRow, key: bytes | None, stored: bytes, zone: tzinfo) -> Iterable[Sequence[str]]:
    """The columns of the table, then the ids of the row that the table does not know."""
    if key is None and info.handle_kind is HandleKind.HIDDEN:
        key = keys.record_key(info.id, 0)
    cells = RowReader(info, zone).read(key, stored) if key is not None else [_alone(column, row, zone) for column in info.output_columns]
    for column, value in zip(info.output_columns, cells, strict=True):
        elsewhere = column.id not in row.columns and value is not None and value is not _NOT_IN_VALUE
        yield str(column.id), column.name, _type(column), _cell(column, value) + (" (not in the row value)" if elsewhere else "")
    known = {column.id for column in info.output_columns}
    for unknown in sorted(set(row.columns) - known):
        yield str(unknown), "(not in the table)", "", cut(str(row.columns[unknown]))


_NOT_IN_VALUE = object()


def _alone(column: ColumnInfo, row: RawRow, zone: tzinfo) -> Cell | object:
    """A column's cell from the row value alone."""
    if column.id not in row.columns:
        return _NOT_IN_VALUE
    stored = row.columns[column.id]
    if stored is None:
        return None
    try:
        return cell(column, plain_from_datum(column, stored) if isinstance(stored, Datum) else plain_from_stored(column, stored), zone)
    except MalformedBytes as error:
        raise MalformedRow(f"column {column.name}: {error.message}") from None


def _type(column: ColumnInfo) -> str:
    return column.tp.name.lower() if isinstance(column.tp, MySQLType) else str(column.tp)


def _cell(column: ColumnInfo, value: Cell | object) -> str:
    if value is _NOT_IN_VALUE:
        return "(not in the row value: give --key)"
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return shown_bytes(value)
    if isinstance(value, int) and column.tp in (MySQLType.ENUM, MySQLType.SET):
        try:
            names = enum_name(value, column.elems) if column.tp == MySQLType.ENUM else set_names(value, column.elems)
        except ValueError as error:
            names = str(error)
        return f"{value} ({names})"
    return cut(str(value))


# Messages


def _open_head(event: Event) -> str:
    """What an event is, in one line."""
    when = tso.describe(event.ts)
    match event:
        case RowEvent():
            parts = [f"{event.kind.value} {event.schema}.{event.table}", when]
            parts += [f"row id {event.row_id}"] if event.row_id is not None else []
            parts += [f"physical table {event.partition}"] if event.partition is not None else []
            parts += ["only handle key columns"] if event.only_handle_key else []
            parts += [f"whole message at {event.claim_check}"] if event.claim_check is not None else []
            return ", ".join(parts)
        case DdlMessage():
            return f"DDL {_named(event.type)} {event.schema}{'.' if event.table else ''}{event.table}, {when}"
    return f"resolved, {when}"


def _open_body(event: Event) -> Iterable[Line]:
    """A row's images column by column, or a DDL's statement."""
    if isinstance(event, DdlMessage):
        yield "query", event.query
    if isinstance(event, RowEvent):
        for image, columns in (("new", event.after), ("old" if event.after else "deleted", event.before)):
            for column in columns:
                flags = "|".join(flag.name.lower() for flag in column.flags if flag.name) or "-"
                yield image, f"{column.name}  {_named(column.type)}  {flags}  {_open_value(column.value)}"


def _named(code: int) -> str:
    """A code's name, or its number."""
    return code.name.lower() if isinstance(code, IntEnum) else str(code)


def _open_value(value: Cell) -> str:
    if value is None:
        return "NULL"
    return shown_bytes(value) if isinstance(value, bytes) else cut(str(value))
