"""`tidemill decode canal`: what stands in Canal's packets, entries and conversations, given as bytes, files, on stdin, or in a topic."""

from __future__ import annotations

import base64
import enum
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from tidemill.cli.shared.explained import BytesHelp, cut, print_lines, read_bytes
from tidemill.cli.shared.options import JsonOption, Output, OutputOption
from tidemill.cli.shared.options import form as of_options
from tidemill.cli.shared.terminal import echo
from tidemill.cli.shared.topics import KafkaOption, PartitionNumOption, TopicOption, UpstreamOption
from tidemill.errors import ConfigError, MalformedMessage
from tidemill.protocols.canal import packets as p
from tidemill.protocols.canal.codes import EntryType, EventType
from tidemill.protocols.canal.events import Entry, EntryColumn, RowChange
from tidemill.protocols.canal.parse import parse_entry

STDIN = "-"
_ENTRY_TAG = 0x0A
_MOST_MS = 253_402_300_799_999
_POLLED, _POLL_S = 500, 1.0


class Form(enum.Enum):
    """What the bytes are."""

    AUTO = "auto"
    PACKET = "packet"
    ENTRY = "entry"
    FRAMES = "frames"


FormOption = Annotated[
    Form,
    typer.Option(
        "--form",
        help="packet: a Kafka value of protocol canal. entry: a single entry. frames: packets as a connection carries them, behind their "
        "lengths. auto: look at the first byte.",
    ),
]


def command(
    data: Annotated[list[str] | None, typer.Argument(help=f"Messages: {BytesHelp}, or - for stdin.", show_default=False)] = None,
    form: FormOption = Form.AUTO,
    topic: TopicOption = None,
    kafka: KafkaOption = None,
    upstream_uri: UpstreamOption = None,
    partition_num: PartitionNumOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many messages of the topics.", show_default=False)] = None,
    output: OutputOption = Output.TEXT,
    as_json: JsonOption = False,
) -> None:
    """Explain messages of Canal's protocol: packets and entries, of Canal, TiCDC and Tidemill.

    Topics are read from their beginning to their present end.
    """
    if bool(data) == bool(kafka or upstream_uri):
        raise ConfigError("give either messages, or topics with --kafka or --upstream-uri")
    found = _given(data) if data else _read_topics(kafka, upstream_uri, topic or [], partition_num, limit)
    for place, message in found:
        for body in read(message, form, place):
            if of_options(output, as_json) is Output.JSON:
                echo(json.dumps({"from": place} | as_object(body), ensure_ascii=False))
            else:
                print_lines([("from", place), *as_lines(body)])


# Input


def _given(data: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for number, text in enumerate(data, 1):
        if text == STDIN:
            yield "stdin", sys.stdin.buffer.read()
        else:
            yield text[1:] if text.startswith("@") else f"argument {number}", read_bytes(text, "message")


def _read_topics(
    kafka: str | None, uri: str | None, topics: list[str], partition_num: int | None, limit: int | None
) -> Iterator[tuple[str, bytes]]:
    from tidemill.cli.downstream.consume import upstream_of
    from tidemill.consumer.kafka import KafkaTopics

    reader = KafkaTopics(upstream_of(uri, kafka, topics, "auto", partition_num, None))
    try:
        reader.require()
        bounds = {source: reader.bounds(source) for source in reader.discover().partitions}
        left = {source: end for source, (begin, end) in bounds.items() if end > begin}
        reader.follow({source: bounds[source][0] for source in left})
        count = 0
        while left:
            for record in reader.poll(_POLLED, _POLL_S):
                source = (record.topic, record.partition)
                if source not in left or record.offset >= left[source]:
                    continue
                if record.value is not None:
                    yield f"{record.topic}[{record.partition}]@{record.offset}", record.value
                count += 1
                if count == limit:
                    return
                if record.offset + 1 >= left[source]:
                    del left[source]
    finally:
        reader.close()


def read(data: bytes, form: Form, place: str) -> list[p.Body | Entry]:
    """The packets, or the entry, of these bytes. Raises MalformedMessage naming the place."""
    if form is Form.AUTO:
        form = Form.FRAMES if data[:1] == b"\0" else Form.ENTRY if data[:1] == bytes([_ENTRY_TAG]) else Form.PACKET
    try:
        if form is Form.ENTRY:
            return [parse_entry(data)]
        return [p.parse_packet(packet) for packet in (_frames(data) if form is Form.FRAMES else [data])]
    except MalformedMessage as error:
        raise MalformedMessage(f"{place}: {error.message}", hint=error.hint) from None


def _frames(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        taken = p.take_frame(data, at)
        if taken is None:
            raise p.PacketError(f"its frame at byte {at} goes beyond the {len(data)} bytes that there are")
        packet, at = taken
        yield packet


# As text


def as_lines(body: p.Body | Entry) -> Iterator[tuple[str, str]]:
    """A packet or an entry for people, in lines of a word and what it is."""
    if isinstance(body, Entry):
        yield from _entry_lines("entry", body)
    elif isinstance(body, p.Messages):
        yield "packet", f"MESSAGES, batch {body.batch_id}, {len(body.entries)} entries"
        for number, data in enumerate(body.entries, 1):
            yield from _entry_lines(f"entry {number}", parse_entry(data))
    else:
        yield "packet", kind_of(body)
        for name, value in _members(body):
            yield name, str(value)


def _entry_lines(name: str, entry: Entry) -> Iterator[tuple[str, str]]:
    header, change = entry.header, entry.change
    parts = [f"{entry.type.name} {header.schema}{'.' if header.table else ''}{header.table}".rstrip()]
    if change is not None:
        parts += [event_name(change.event_type)]
        parts += ["DDL"] if change.ddl else [f"{len(change.rows)} row{'s' if len(change.rows) > 1 else ''}"] if change.rows else []
    if entry.transaction is not None:
        parts += [f"transaction {entry.transaction.transaction_id}"] if entry.transaction.transaction_id else []
        parts += [f"thread {entry.transaction.thread_id}"] if entry.transaction.thread_id else []
    parts += [_time(header.execute_time)]
    parts += [f"at {header.logfile_name}:{header.logfile_offset}"] if header.logfile_name else []
    parts += [f"{key}={value}" for key, value in header.props]
    parts += [f"gtid {header.gtid}"] if header.gtid else []
    yield name, ", ".join(parts)
    if change is not None:
        yield from _change_lines(change)


def _change_lines(change: RowChange) -> Iterator[tuple[str, str]]:
    if change.sql:
        yield "query", f"{change.sql} (in schema {change.ddl_schema})" if change.ddl_schema else change.sql
    for row in change.rows:
        for image, columns in (("new", row.after), ("old" if row.after else "deleted", row.before)):
            for column in columns:
                yield image, _column(column)


def _column(column: EntryColumn) -> str:
    flags = "|".join(word for word, is_set in (("key", column.key), ("updated", column.updated)) if is_set) or "-"
    value = "NULL" if column.value is None else f"'{cut(column.value.decode('utf-8', 'backslashreplace'))}'"
    return f"{column.name}  {column.mysql_type} ({column.sql_type})  {flags}  {value}"


def _time(milliseconds: int) -> str:
    if not 0 <= milliseconds <= _MOST_MS:
        return f"{milliseconds} ms"
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)).isoformat(" ", "milliseconds")


def kind_of(body: p.Body) -> str:
    """The name of a packet's type."""
    return f"type {body.type}" if isinstance(body, p.Unknown) else type(body).__name__


def event_name(number: int) -> str:
    """The name of an event type, or its number."""
    return EventType(number).name if number in EventType._value2member_map_ else str(number)


# As JSON


def as_object(body: p.Body | Entry) -> dict[str, Any]:
    """A packet or an entry for programs, with Canal's names. Bytes that are not text are in base64, under a name that says so."""
    if isinstance(body, Entry):
        return _entry_object(body)
    if isinstance(body, p.Messages):
        return {"packet": "Messages", "batchId": body.batch_id, "entries": [_entry_object(parse_entry(data)) for data in body.entries]}
    return {"packet": kind_of(body)} | dict(_members(body))


def _members(body: p.Body) -> list[tuple[str, Any]]:
    """What a packet says. Seeds are shown in hex. A password is not shown: old clients send it as it is."""
    values = [(field.name, getattr(body, field.name)) for field in fields(body)]
    return [(name, _of_bytes(name, value) if isinstance(value, bytes) else value) for name, value in values]


def _of_bytes(name: str, value: bytes) -> str:
    return f"{len(value)} bytes" if name == "password" else value.hex()


def _entry_object(entry: Entry) -> dict[str, Any]:
    header, change = entry.header, entry.change
    made: dict[str, Any] = {
        "entryType": entry.type.name,
        "header": {
            "version": header.version,
            "logfileName": header.logfile_name,
            "logfileOffset": header.logfile_offset,
            "serverId": header.server_id,
            "serverenCode": header.charset,
            "executeTime": header.execute_time,
            "sourceType": header.source_type,
            "schemaName": header.schema,
            "tableName": header.table,
            "eventLength": header.event_length,
            "eventType": None if header.event_type is None else event_name(header.event_type),
            "props": dict(header.props),
            "gtid": header.gtid,
        },
    }
    if entry.transaction is not None:
        inside: dict[str, Any] = {"transactionId": entry.transaction.transaction_id}
        if entry.type is EntryType.TRANSACTIONBEGIN:
            inside["threadId"] = entry.transaction.thread_id
        made["transaction"] = inside
    if change is not None:
        made["rowChange"] = {
            "tableId": change.table_id,
            "eventType": event_name(change.event_type),
            "isDdl": change.ddl,
            "sql": change.sql,
            "ddlSchemaName": change.ddl_schema,
            "props": dict(change.props),
            "rowDatas": [
                {"beforeColumns": [_column_object(c) for c in row.before], "afterColumns": [_column_object(c) for c in row.after]}
                for row in change.rows
            ],
        }
    return made


def _column_object(column: EntryColumn) -> dict[str, Any]:
    made: dict[str, Any] = {
        "index": column.index,
        "sqlType": column.sql_type,
        "name": column.name,
        "isKey": column.key,
        "updated": column.updated,
        "isNull": column.value is None,
        "mysqlType": column.mysql_type,
    }
    try:
        return made | {"value": None if column.value is None else column.value.decode()}
    except UnicodeDecodeError:
        return made | {"valueBase64": base64.b64encode(column.value or b"").decode()}
