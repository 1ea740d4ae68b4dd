"""Debezium's messages back into events; what is broken is refused with place and fault."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import pytest

from tests.support.golden import ticdc
from tidemill.errors import MalformedMessage
from tidemill.protocols.common.jsonmessage import JsonMessageError
from tidemill.protocols.debezium import DebeziumTable, RowEvent, RowKind, decode
from tidemill.protocols.options import DebeziumOptions, EncodingOptions, MessageFormat

EXTENDED = EncodingOptions(MessageFormat.DEBEZIUM, enable_tidb_extension=True, debezium=DebeziumOptions(include_start_ts=True))
BARE = EncodingOptions(MessageFormat.DEBEZIUM, debezium=DebeziumOptions(disable_schema=True))


def encoded(row: ticdc.Row, options: EncodingOptions) -> tuple[bytes, bytes]:
    made = DebeziumTable(row.version.schema, row.version.table, row.version.info, options)
    record = row.record
    return made.row(record.key, record.value, record.old_value, record.start_ts, record.commit_ts, 0)


def some_rows() -> list[ticdc.Row]:
    return list(ticdc.rows().values())[::7]


@pytest.mark.parametrize("options", [EXTENDED, BARE])
def test_rows_come_back(options: EncodingOptions) -> None:
    for row in some_rows():
        event = decode(*encoded(row, options))
        assert isinstance(event, RowEvent)
        record = row.record
        kind = RowKind.DELETE if not record.value else RowKind.UPDATE if record.old_value else RowKind.INSERT
        assert (event.commit_ts, event.schema, event.table, event.kind) == (record.commit_ts, row.version.schema, row.version.table, kind)
        assert event.start_ts == (record.start_ts if options is EXTENDED else None)
        names = [c.name for c in row.version.info.output_columns]
        handle = [c.name for c in row.version.info.output_columns if c.id in row.version.info.handle_key_ids]
        for image, there in ((event.after, bool(record.value)), (event.before, bool(record.old_value))):
            assert [c.name for c in image] == (names if there else [])
            assert [c.name for c in image if c.key] == (handle if there else [])


def test_values_are_typed_by_the_schema_block() -> None:
    fields = [
        {"type": "int32", "optional": True, "name": "io.debezium.time.Date", "version": 1, "field": "d"},
        {"type": "int64", "optional": True, "name": "io.debezium.time.Timestamp", "version": 1, "field": "t"},
        {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp", "version": 1, "field": "u"},
        {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTime", "version": 1, "field": "h"},
        {"type": "bytes", "optional": True, "name": "io.debezium.data.Bits", "version": 1, "field": "b"},
        {"tidb_type": "blob", "type": "string", "optional": True, "field": "x"},
        {"type": "double", "optional": True, "field": "n"},
        {"type": "boolean", "optional": True, "field": "f"},
    ]
    row = {"d": -354285, "t": -1, "u": 1701347696123456, "h": -45296123456, "b": "AwIB", "x": "AP8=", "n": 1, "f": True, "other": 5}
    assert [c.value for c in event_of({"after": row}, fields).after] == [
        "1000-01-01", "1969-12-31 23:59:59.999000", "2023-11-30 12:34:56.123456", "-12:34:56.123456", 0x1_0203, b"\x00\xff", 1.0, True, 5
    ]  # fmt: skip


def message(change: dict[str, Any], fields: list[dict[str, Any]] | None = None) -> bytes:
    payload = {"source": {"commit_ts": 5, "db": "s", "table": "t"}, "op": "c"} | change
    schema = {} if fields is None else {"schema": {"fields": [{"field": "after", "fields": fields}]}}
    return json.dumps({"payload": payload} | schema).encode()


def event_of(change: dict[str, Any], fields: list[dict[str, Any]] | None = None) -> RowEvent:
    event = decode(None, message(change, fields))
    assert isinstance(event, RowEvent)
    return event


DATE = [{"type": "int32", "name": "io.debezium.time.Date", "field": "a"}]


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (b"", "it is not JSON"),
        (b'{"payload":{}}', "payload.source.commit_ts: it is missing"),
        (message({"op": "x"}), "payload.op: expected c, u, d, r or m"),
        (message({"source": {"commit_ts": 1 << 63, "db": ""}}), "payload.source.commit_ts: expected an integer of 64 bits"),
        (message({"after": [1]}), "payload.after: expected an object"),
        (message({"after": {"a": {}}}), "payload.after.a: expected a string"),
        (message({"after": {"a": "x"}}, DATE), r"payload.after.a: 'x' does not fit \(its type is io.debezium.time.Date"),
        (message({"after": {"a": 1 << 62}}, DATE), "payload.after.a: 4611686018427387904 is not a time"),
        (message({"after": {"a": 9_000_000}}, DATE), "payload.after.a: date value out of range"),
        (message({"after": {"a": "?"}}, [{"type": "bytes", "field": "a"}]), "payload.after.a: expected base64"),
        (message({"after": {"a": "\ud800"}}), "payload.after.a: half of a surrogate pair"),
        (message({"after": {"a": 1}}, [{"type": 5, "field": "a"}]), "schema.fields.after.fields.type: expected a string"),
        (message({"ddl": "x", "tableChanges": [1]}), "payload.tableChanges: expected a list of objects"),
    ],
)
def test_what_is_broken_is_named(value: bytes, place: str) -> None:
    with pytest.raises(JsonMessageError, match=place):
        decode(None, value)


def test_no_bytes_crash_it() -> None:
    rng = random.Random(5)
    samples = [encoded(row, EXTENDED) for row in some_rows()[:20]]
    for _ in range(400):
        key, value = rng.choice(samples)
        broken = bytearray(value)
        for _ in range(rng.randint(1, 4)):
            broken[rng.randrange(len(broken))] = rng.choice(b'{}[]",:0e\\\xff')
        with contextlib.suppress(MalformedMessage):
            decode(key, bytes(broken))
