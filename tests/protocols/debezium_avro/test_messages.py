"""Messages of the reference: fastavro and our reader find the same in them; broken ones are refused."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace
from typing import Any

import fastavro
import pytest

from tests.support.rows.avro_programs import avro_table
from tests.support.rows.random_rows import random_record
from tests.support.schema.tables import column, table
from tidemill.errors import MalformedMessage, MalformedRow, TidemillError
from tidemill.protocols.avro.decode import AvroMessageError
from tidemill.protocols.avro.parse import AvroSchemaError
from tidemill.protocols.debezium_avro import DebeziumAvroTable, control_messages, schemas_of
from tidemill.protocols.debezium_avro.decode import DebeziumAvroReader
from tidemill.protocols.options import AvroOptions, BigintUnsignedMode, DebeziumOptions, DecimalMode, EncodingOptions, MessageFormat
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.write import pack_row
from tidemill.tidb.schema.codes import ColumnFlag
from tidemill.tidb.schema.codes import MySQLType as T

PLAIN_TYPES = ("string", "int16", "float", "double", "boolean")
"""Types whose values are the same for both. Others are times, bits, decimals."""
NOW = 1_795_258_576_000
PLAIN = EncodingOptions(MessageFormat.DEBEZIUM_AVRO)
STRINGS = replace(PLAIN, enable_tidb_extension=True, avro=AvroOptions(DecimalMode.STRING, BigintUnsignedMode.STRING))
TINY = table([column(T.LONG, name="id", Flag=int(ColumnFlag.NOT_NULL)), column(T.VARCHAR, name="v")], pk_is_handle=True)


def theirs(text: str, data: bytes) -> Any:
    """What fastavro reads."""
    stream = io.BytesIO(data[5:])
    found = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(text)), None, handle_unicode_errors="surrogateescape")
    assert stream.read() == b""
    return found


@pytest.mark.parametrize("options", [PLAIN, replace(STRINGS, debezium=DebeziumOptions(False, False, True, "a.b"))], ids=["plain", "all"])
def test_random_rows_are_read_by_both(options: EncodingOptions) -> None:
    rng = random.Random(5)
    read = 0
    for _ in range(12):
        info = avro_table(rng)
        made = schemas_of("s<é", "t", info, options)
        texts = {1: made.key or "", 2: made.value}
        encoder, reader = DebeziumAvroTable("s<é", "t", info, options, (1, 2)), DebeziumAvroReader(texts.__getitem__)
        for _ in range(15):
            record = random_record(rng, info, 0)
            try:
                key, value = encoder.row(record.key, record.value, record.old_value, record.start_ts, record.commit_ts, NOW)
            except TidemillError:
                continue
            found, event = theirs(made.value, value), reader.decode(key, value)
            assert (event.commit_ts, event.schema, event.table) == (record.commit_ts, "s<é", "t")
            assert event.cluster == options.debezium.cluster_id
            assert event.start_ts == (record.start_ts if options.debezium.include_start_ts else None)
            for image, columns in ((found["after"], event.after), (found["before"], event.before)):
                assert len(columns) == len(image or {})
                plain = [(f.name, c.value) for f, c in zip(encoder.fields, columns, strict=False) if c.type in PLAIN_TYPES]
                assert plain == [(name, (image or {})[name]) for name, _ in plain]
            if key is not None:
                assert set(theirs(made.key or "", key)) == {field.name for field in encoder.key_fields}
            read += 1
    assert read > 100


def test_broken_messages_are_refused_or_read() -> None:
    rng = random.Random(3)
    made = schemas_of("s", "t", TINY, PLAIN)
    encoder = DebeziumAvroTable("s", "t", TINY, PLAIN, (1, 2))
    key, value = encoder.row(record_key(1, 5), pack_row({2: b"abc"}), pack_row({2: b"x"}), 1, 2 << 18, NOW)
    reader = DebeziumAvroReader({1: made.key or "", 2: made.value}.__getitem__)
    refused = 0
    for _ in range(300):
        data = bytearray(value)
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(5, len(data) + 1)
            data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        try:
            reader.decode(key, bytes(data))
        except AvroMessageError:
            refused += 1
    assert refused > 100
    for short in (b"", b"\0\0\0\0", b"\1\0\0\0\2", value[:5], value + b"\0"):
        with pytest.raises(AvroMessageError):
            reader.decode(key, short)


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", "7", '{"type":"record","fields":[]}', '{"fields":[{"name":"before","type":"int"}]}',
        '{"fields":[{"name":"before","type":["null","int"]}]}', schemas_of("s", "t", TINY, PLAIN).key, "[" * 100_000,
    ],
)  # fmt: skip
def test_schemas_that_are_no_envelope(text: str) -> None:
    with pytest.raises(AvroSchemaError, match="not an envelope"):
        DebeziumAvroReader(lambda _: text).decode(None, b"\0\0\0\0\2\0")


def test_what_another_connector_wrote_is_refused() -> None:
    schema = json.loads(schemas_of("s", "t", TINY, PLAIN).value)
    schema["fields"][2]["type"]["fields"].pop()
    _, value = DebeziumAvroTable("s", "t", TINY, PLAIN, (1, 2)).row(record_key(1, 5), pack_row({2: b"abc"}), None, 1, 0, NOW)
    without = value.replace(b"\0\0\x02c\x02", b"\0\x02c\x02")  # commit_ts 0 left out
    assert len(without) == len(value) - 1
    with pytest.raises(MalformedMessage, match="source: it has no commit_ts"):
        DebeziumAvroReader(lambda _: json.dumps(schema)).decode(None, without)


def test_broken_rows_are_named() -> None:
    encoder = DebeziumAvroTable("s", "t", TINY, PLAIN, (1, 2))
    with pytest.raises(MalformedRow, match=r"table s\.t, key 74.*commit_ts 9: neither"):
        encoder.row(record_key(1, 1), None, None, 7, 9, NOW)
    with pytest.raises(MalformedRow, match=r"table s\.t, key 74.*commit_ts 9"):
        encoder.row(record_key(1, 1), b"\x80", None, 7, 9, NOW)
    info = table([column(T.LONG, name="id"), column(T.LONG, name="n", Flag=int(ColumnFlag.NOT_NULL))], pk_is_handle=True)
    with pytest.raises(MalformedRow, match="column n is NOT NULL, but NULL in this row"):
        DebeziumAvroTable("s", "t", info, PLAIN, (1, 2)).row(record_key(1, 1), pack_row({2: None}), None, 7, 9, NOW)


def test_there_are_no_control_messages() -> None:
    messages = control_messages(PLAIN, lambda: NOW)
    assert messages.resolved_message(5) is None
