"""Messages come back as TiDB had the rows; fastavro reads the same; broken messages are refused with their place."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from decimal import Context, Decimal
from typing import Any
from zoneinfo import ZoneInfo

import fastavro
import pyarrow as pa
import pytest

from tests.support.golden import avro, ticdc
from tests.support.schema.tables import column, table
from tidemill.kernels.avro.arrow import ArrowReader, wanted_of
from tidemill.protocols.avro import schemas_of
from tidemill.protocols.avro.decode import AvroMessageError, AvroReader, Value, schema_id
from tidemill.protocols.avro.encode import AvroTable
from tidemill.protocols.avro.parse import AvroSchemaError, parse_schema
from tidemill.protocols.avro.wire import shortest, sized
from tidemill.protocols.options import AvroOptions, BigintUnsignedMode, DecimalMode, EncodingOptions, MessageFormat
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows import Cell, RowReader
from tidemill.tidb.rows.write import encode_row_v2
from tidemill.tidb.schema.codes import ColumnFlag
from tidemill.tidb.schema.codes import MySQLType as T
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.members import enum_name, set_names

PLAIN = EncodingOptions(MessageFormat.AVRO)
STRINGS = replace(PLAIN, avro=AvroOptions(DecimalMode.STRING, BigintUnsignedMode.STRING))
KEY = record_key(100, 1)


@functools.cache
def fast_schema(text: str) -> Any:
    return fastavro.parse_schema(json.loads(text))


def as_tidb_has_it(info: ColumnInfo, cell: Cell, zone: tzinfo) -> Value:
    """A cell as the reader gives it back."""
    match cell, info.tp:
        case str(), T.NEWDECIMAL:
            return Decimal(cell)
        case str(), T.TIMESTAMP if not cell.startswith("0000"):
            return datetime.fromisoformat(cell).replace(tzinfo=zone)
        case int(), T.ENUM:
            return enum_name(cell, info.elems)
        case int(), T.SET:
            return set_names(cell, info.elems)
        case bytes(), _ if not info.is_binary:
            return cell.decode("utf-8", "surrogateescape")
    return cell


@pytest.mark.parametrize("config", sorted(avro.expected()))
def test_rows_come_back_as_tidb_had_them(config: str) -> None:
    for want in avro.expected()[config]:
        if want.error is not None or want.value is None:
            continue
        row, info, zone = want.row, want.row.version.info, ticdc.zone_of(want.row.zone)
        reader = AvroReader(lambda number: avro.schemas()[config, number][0], tz=zone)
        cells = RowReader(info, zone).read(row.record.key, row.record.value)
        expected = [as_tidb_has_it(c, cell, zone) for c, cell in zip(info.output_columns, cells, strict=True)]
        record = reader.decode(want.value)
        order = sorted if record.values.keys() & {"_tidb_row_level_checksum"} else list  # columns by id there
        got = list(record.columns.values())
        assert order(map(repr, got)) == order(map(repr, expected)), row.case
        if "_tidb_op" in record.values:
            kind = "u" if row.record.old_value else "c"
            assert (record.values["_tidb_op"], record.values["_tidb_commit_ts"]) == (kind, row.record.commit_ts)
        assert want.key is not None
        key = reader.decode(want.key).columns
        assert key == {name: value for name, value in record.columns.items() if name in key}


@pytest.mark.parametrize("config", [avro.PRECISE, avro.STRINGS, avro.CHECKSUM])
def test_fastavro_reads_the_same(config: str) -> None:
    for want in avro.expected()[config]:
        if want.error is not None or want.value is None or want.value_id is None:
            continue
        text = avro.schemas()[config, want.value_id][0]
        peer = fastavro.schemaless_reader(io.BytesIO(want.value[5:]), fast_schema(text), None)
        ours = AvroReader(lambda _number, text=text: text, tz=ticdc.zone_of(want.row.zone)).decode(want.value)
        assert isinstance(peer, Mapping)
        types = {field.name: field.tidb_type for field in ours.schema.fields}
        alike = {name: value for name, value in peer.items() if types[name] not in ("BIT", "BIGINT UNSIGNED", "TIMESTAMP", "DECIMAL")}
        assert alike == {name: ours.values[name] for name in alike}
        decimals = {name: Decimal(value) for name, value in peer.items() if types[name] == "DECIMAL" and value is not None}
        assert decimals == {name: ours.values[name] for name in decimals}


# Evolution


def message(info: TableInfo, options: EncodingOptions, *cells: Cell) -> bytes:
    value = AvroTable("s", "t", info, UTC, options, (1, 2)).row(KEY, encode_row_v2(cells, info), None, 1)[1]
    assert value is not None
    return value


def evolved(written: TableInfo, read: TableInfo, *cells: Cell, options: EncodingOptions = PLAIN) -> dict[str, Value]:
    text = schemas_of("s", "t", written, options).value
    reader = parse_schema(schemas_of("s", "t", read, options).value)
    return dict(AvroReader(lambda _: text).decode(message(written, options, *cells), reader).values)


def one(tp: T, **parts: Any) -> TableInfo:
    return table([column(T.LONG, name="id"), column(tp, name="c", **parts)], pk_is_handle=True)


ID = table([column(T.LONG, name="id")], pk_is_handle=True)
UNSIGNED = int(ColumnFlag.UNSIGNED)


@pytest.mark.parametrize(
    ("written", "cell", "read", "want"),
    [
        (one(T.LONG), 5, one(T.LONGLONG), 5),
        (one(T.LONG), 5, one(T.DOUBLE), 5.0),
        (one(T.LONG), None, one(T.LONGLONG), None),
        (one(T.FLOAT), 0.5, one(T.DOUBLE), 0.5),
        (one(T.VARCHAR), b"\xc3\xa9", one(T.BLOB), "é".encode()),
        (one(T.BLOB), b"\xc3\xa9", one(T.BLOB, Charset="utf8mb4"), "é"),
        (one(T.LONG), 5, one(T.LONG, default="7"), 5),
    ],
)
def test_evolution_of_types(written: TableInfo, cell: Cell, read: TableInfo, want: Value) -> None:
    assert evolved(written, read, 1, cell) == {"id": 1, "c": want}


@pytest.mark.parametrize(
    ("read", "want"),
    [
        (one(T.LONG), None),
        (one(T.LONG, default="7"), 7),
        (one(T.LONGLONG, default="18446744073709551615", Flag=UNSIGNED), (1 << 64) - 1),
        (one(T.DOUBLE, default="1"), 1.0),
        (one(T.VARCHAR, default="x"), "x"),
        (one(T.VARCHAR, default="null"), None),
        (one(T.BLOB, default="ab"), b"ab"),
        (one(T.BIT, default_bit="BQ=="), 5),
        (one(T.TIMESTAMP, default="2020-01-01 00:00:00"), datetime(2020, 1, 1, tzinfo=UTC)),
        (one(T.NEWDECIMAL, default="1.5", Flen=10, Decimal=2), None),
    ],
)
def test_evolution_to_a_column_that_is_new(read: TableInfo, want: Value) -> None:
    assert evolved(ID, read, 1) == {"id": 1, "c": want}
    assert evolved(read, ID, 1, None) == {"id": 1}


def test_evolution_that_does_not_fit() -> None:
    with pytest.raises(AvroMessageError, match=r"field c: it was written as string, which cannot be read as int"):
        evolved(one(T.VARCHAR), one(T.LONG), 1, b"x")
    with pytest.raises(AvroMessageError, match=r"field c: the message has no such field"):
        evolved(ID, one(T.LONG, Flag=int(ColumnFlag.NOT_NULL)), 1)
    with pytest.raises(AvroMessageError, match=r"field c: it is null"):
        evolved(one(T.LONG), one(T.LONG, Flag=int(ColumnFlag.NOT_NULL)), 1, None)
    with pytest.raises(AvroMessageError, match=r"decimal\(10,2\), which cannot be read as decimal\(10,3\)"):
        evolved(one(T.NEWDECIMAL, Flen=10, Decimal=2), one(T.NEWDECIMAL, Flen=10, Decimal=3), 1, "1.50")


# Values


def test_a_timestamp_is_in_the_given_zone() -> None:
    info, zone = one(T.TIMESTAMP), ZoneInfo("America/Sao_Paulo")
    text = schemas_of("s", "t", info, PLAIN).value
    reader = AvroReader(lambda _: text, tz=zone)
    assert reader.decode(message(info, PLAIN, 1, "2020-01-01 10:00:00")).values["c"] == datetime(2020, 1, 1, 13, tzinfo=UTC)
    assert reader.decode(message(info, PLAIN, 1, "0000-00-00 00:00:00")).values["c"] == "0000-00-00 00:00:00"


@pytest.mark.parametrize("options", [PLAIN, STRINGS], ids=["long", "string"])
def test_the_greatest_bigint_unsigned(options: EncodingOptions) -> None:
    info = one(T.LONGLONG, Flag=UNSIGNED)
    text = schemas_of("s", "t", info, options).value
    assert AvroReader(lambda _: text).decode(message(info, options, 1, (1 << 64) - 1)).values["c"] == (1 << 64) - 1


def test_colliding_names_come_back_as_they_were() -> None:
    info = table([column(T.LONG, name="a-b"), column(T.LONG, name="a_b"), column(T.ENUM, name="e", Elems=["a,b", "c"])], pk_is_handle=True)
    text = schemas_of("s", "t", info, PLAIN).value
    record = AvroReader(lambda _: text).decode(message(info, PLAIN, 1, 2, 1))
    assert (record.values, record.columns) == ({"a_b": 1, "a_b_2": 2, "e": "a,b"}, {"a-b": 1, "a_b": 2, "e": "a,b"})
    assert record.schema.fields[2].allowed == ("a,b", "c")


# Broken ones


def test_a_message_that_is_none() -> None:
    for data in (b"", b"\0\0\0\0", b"\1\0\0\0\1", b'{"a": 1}'):
        with pytest.raises(AvroMessageError, match="byte 0: it does not begin"):
            schema_id(data)


@pytest.mark.parametrize("seed", range(5))
def test_broken_messages_are_refused_or_read(seed: int) -> None:
    """Any bytes give a record or the one error."""
    rng = random.Random(seed)
    wanted = [want for want in avro.expected()[avro.STRINGS] if want.value and want.value_id]
    for _ in range(300):
        want = rng.choice(wanted)
        text, data = avro.schemas()[avro.STRINGS, want.value_id or 0][0], bytearray(want.value or b"")
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(5, len(data) + 1)
            data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        with contextlib.suppress(AvroMessageError):
            AvroReader(lambda _number, text=text: text).decode(bytes(data))


@pytest.mark.parametrize(("flen", "digits"), [(10, 10), (65, 65)])
def test_a_decimal_has_no_more_digits_than_its_schema(flen: int, digits: int) -> None:
    """However many bytes a message says it has: none of them becomes text."""
    info = one(T.NEWDECIMAL, Flen=flen, Decimal=2)
    text = schemas_of("s", "t", info, PLAIN).value
    data = message(info, PLAIN, 1, "1.50")
    assert data.endswith(b"\x04\x00\x96")
    most = 10**digits - 1

    def with_number(raw: bytes) -> bytes:
        return data[:-3] + sized(raw)

    reader = AvroReader(lambda _: text)
    for number in (most, -most):
        padded = number.to_bytes(100, "big", signed=True)
        assert reader.decode(with_number(padded)).values["c"] == Decimal(number).scaleb(-2, Context(prec=99))
    columns = ArrowReader(wanted_of(parse_schema(text)), lambda _: text)
    for raw in (shortest(most + 1), shortest(-most - 1), b"\x7f" * 1_000_000):
        with pytest.raises(AvroMessageError, match=f"field c: a decimal of {len(raw)} bytes .* has more than {digits} digits") as caught:
            reader.decode(with_number(raw))
        assert len(caught.value.message) < 400
        with pytest.raises(AvroMessageError, match="field c"):
            columns.decode(pa.array([with_number(raw)]))


def test_cut_messages_are_refused() -> None:
    want = next(w for w in avro.expected()[avro.STRINGS] if w.value and w.value_id)
    text, data = avro.schemas()[avro.STRINGS, want.value_id or 0][0], want.value or b""
    for size in range(5, len(data)):
        with pytest.raises(AvroMessageError):
            AvroReader(lambda _: text).decode(data[:size])
    with pytest.raises(AvroMessageError, match="1 bytes follow"):
        AvroReader(lambda _: text).decode(data + b"\0")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ('"int"', "not a record"),
        ('{"type":"record","name":"t","fields":[{"type":"int"}]}', "no name"),
        ('{"type":"record","name":"t","fields":[{"name":"a","type":{"type":"array","items":"int"}}]}', "field a"),
        ('{"type":"record","name":"t","fields":[{"name":"a","type":["null","int","long"]}]}', "unions"),
        (
            '{"type":"record","name":"t","fields":[{"name":"a","type":{"type":"bytes","logicalType":"decimal","precision":"x"}}]}',
            "precision",
        ),
    ],
)
def test_schemas_that_are_not_read(text: str, problem: str) -> None:
    with pytest.raises(AvroSchemaError, match=problem):
        parse_schema(text)
