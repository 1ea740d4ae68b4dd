"""The Arrow reader gives what the plain reader gives, for golden messages, evolved ones and broken ones."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.golden import avro, ticdc
from tests.support.schema.tables import column, table
from tidemill.errors import MalformedMessage
from tidemill.kernels.avro.arrow import ArrowReader, wanted_columns, wanted_of
from tidemill.protocols.avro import schemas_of
from tidemill.protocols.avro.decode import AvroMessageError, AvroReader, Value
from tidemill.protocols.avro.encode import AvroTable
from tidemill.protocols.avro.parse import parse_schema
from tidemill.protocols.options import EncodingOptions, MessageFormat
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows import Cell
from tidemill.tidb.rows.write import encode_row_v2
from tidemill.tidb.schema.codes import ColumnFlag
from tidemill.tidb.schema.codes import MySQLType as T
from tidemill.tidb.schema.model import TableInfo

PLAIN = EncodingOptions(MessageFormat.AVRO)
UNSIGNED = int(ColumnFlag.UNSIGNED)


def comparable(value: Value, kind: pa.DataType) -> Any:
    """A plain value as it is in a column of a type."""
    if isinstance(value, str) and pa.types.is_timestamp(kind):
        return None  # no moment
    if isinstance(value, datetime):
        return value.astimezone(UTC)  # times that a clock shows twice are equal to nothing in another zone
    if isinstance(value, Decimal) and pa.types.is_string(kind):
        return f"{value:f}"
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return value


@pytest.mark.parametrize("config", sorted(avro.expected()))
def test_columns_are_those_of_the_plain_reader(config: str) -> None:
    groups: dict[tuple[int, str], list[bytes]] = defaultdict(list)
    for want in avro.expected()[config]:
        for number, data in ((want.value_id, want.value), (want.key_id, want.key)):
            if want.error is None and data is not None and number is not None:
                groups[number, want.row.zone].append(data)

    def text_of(number: int) -> str:
        return avro.schemas()[config, number][0]

    for (number, zone), data in groups.items():
        reader = ArrowReader(wanted_of(parse_schema(text_of(number))), text_of, zone)
        plain = AvroReader(text_of, tz=ticdc.zone_of(zone))
        got = reader.decode(pa.array([None, *data]))
        want_rows = [
            {f.name: comparable(value, f.type) for f, value in zip(reader.type, plain.decode(one).values.values(), strict=True)}
            for one in data
        ]
        assert got.to_pylist() == [None, *want_rows]
        got.validate(full=True)


def test_messages_of_several_schemas_in_one_array() -> None:
    before = table([column(T.LONG, name="id"), column(T.VARCHAR, name="v"), column(T.LONG, name="gone")], pk_is_handle=True)
    after = table([column(T.LONG, name="id"), column(T.LONGLONG, name="n", default="7"), column(T.VARCHAR, name="v")], pk_is_handle=True)
    texts = {1: schemas_of("s", "t", before, PLAIN).value, 2: schemas_of("s", "t", after, PLAIN).value}
    data = [value_of(before, 1, 1, b"a", 5), value_of(after, 2, 2, 3, b"b"), None, value_of(before, 1, 4, None, None)]
    found = ArrowReader(wanted_of(parse_schema(texts[2])), texts.__getitem__).decode(pa.array(data, pa.binary()))
    assert found.to_pylist() == [{"id": 1, "n": 7, "v": "a"}, {"id": 2, "n": 3, "v": "b"}, None, {"id": 4, "n": 7, "v": None}]
    sliced = ArrowReader(wanted_of(parse_schema(texts[2])), texts.__getitem__).decode(pa.array(data, pa.binary()).slice(1, 3))
    assert sliced.to_pylist() == found.to_pylist()[1:]


def value_of(info: TableInfo, number: int, *cells: Cell) -> bytes:
    value = AvroTable("s", "t", info, UTC, PLAIN, (9, number)).row(record_key(1, int(str(cells[0]))), encode_row_v2(cells, info), None, 1)[
        1
    ]
    assert value is not None
    return value


@pytest.mark.parametrize(
    ("info", "cell", "kind", "want"),
    [
        (column(T.LONG), 5, pa.int64(), 5),
        (column(T.LONG), 5, pa.string(), "5"),
        (column(T.LONG), 5, pa.decimal128(10, 2), Decimal("5.00")),
        (column(T.LONGLONG, Flag=UNSIGNED), (1 << 64) - 1, pa.float64(), float((1 << 64) - 1)),
        (column(T.LONGLONG, Flag=UNSIGNED), 5, pa.int64(), 5),
        (column(T.NEWDECIMAL, Flen=10, Decimal=2), "-1.50", pa.decimal128(20, 4), Decimal("-1.5000")),
        (column(T.NEWDECIMAL, Flen=10, Decimal=2), "-1.50", pa.float64(), -1.5),
        (column(T.NEWDECIMAL, Flen=65, Decimal=30), "-1" + "0" * 34 + "." + "3" * 30, pa.string(), "-1" + "0" * 34 + "." + "3" * 30),
        (column(T.DATE), "2021-02-28", pa.date32(), date(2021, 2, 28)),
        (column(T.DATE), "0000-00-00", pa.date32(), None),
        (column(T.DATE), "2021-00-01", pa.date32(), None),
        (column(T.DATE), "2021-02-30", pa.date32(), None),
        (column(T.DATE), "0000-00-00", pa.string(), "0000-00-00"),
        (column(T.DATETIME, Decimal=3), "2021-02-28 01:02:03.250", pa.timestamp("us"), datetime(2021, 2, 28, 1, 2, 3, 250000)),
        (column(T.DATETIME), "2021-02-28 01:02:03", pa.timestamp("us", "UTC"), datetime(2021, 2, 28, 4, 2, 3, tzinfo=UTC)),
        (column(T.TIMESTAMP), "2021-02-28 01:02:03", pa.string(), "2021-02-28 01:02:03"),
        (column(T.TIMESTAMP), "2021-02-28 01:02:03", pa.timestamp("us", "UTC"), datetime(2021, 2, 28, 4, 2, 3, tzinfo=UTC)),
        (column(T.BIT, Flen=64), (1 << 64) - 1, pa.decimal128(20, 0), Decimal((1 << 64) - 1)),
        (column(T.VARCHAR), b"a\xffb", pa.string(), "a\ufffdb"),
        (column(T.VARCHAR), b"x", pa.binary(), b"x"),
        (column(T.LONG), None, pa.string(), None),
    ],
)
def test_a_reader_asks_for_types(info: dict[str, Any], cell: Cell, kind: pa.DataType, want: Any) -> None:
    table_info = table([column(T.LONG, name="id"), info | {"name": "c"}], pk_is_handle=True)
    wanted = wanted_columns(pa.struct([("c", kind), ("absent", pa.int32())]))
    reader = ArrowReader(wanted, lambda _: schemas_of("s", "t", table_info, PLAIN).value, "America/Sao_Paulo")
    assert reader.decode(pa.array([value_of(table_info, 1, 1, cell)])).to_pylist() == [{"c": want, "absent": None}]


def test_what_cannot_be_read_names_the_column() -> None:
    info = table([column(T.LONG, name="id"), column(T.VARCHAR, name="c")], pk_is_handle=True)
    data = pa.array([value_of(info, 1, 1, b"x")])
    text = schemas_of("s", "t", info, PLAIN).value
    with pytest.raises(AvroMessageError, match="field c: it cannot be read as int32"):
        ArrowReader(wanted_columns(pa.struct([("c", pa.int32())])), lambda _: text).decode(data)
    wider = table([column(T.LONG, name="id"), column(T.LONG, name="n", Flag=int(ColumnFlag.NOT_NULL))], pk_is_handle=True)
    with pytest.raises(AvroMessageError, match="field n: messages have no such field"):
        ArrowReader(wanted_of(parse_schema(schemas_of("s", "t", wider, PLAIN).value)), lambda _: text).decode(data)


def test_defaults_of_all_kinds() -> None:
    columns = [
        column(T.TIMESTAMP, name="now", default="CURRENT_TIMESTAMP"), column(T.BIT, name="b", default_bit="BQ==", Flen=8),
        column(T.LONGLONG, name="u", default="18446744073709551615", Flag=UNSIGNED), column(T.DOUBLE, name="d", default="1e-7"),
        column(T.VARCHAR, name="v", default="x"), column(T.VARCHAR, name="raw", default="x", Charset="binary"),
    ]  # fmt: skip
    info, old = table([column(T.LONG, name="id"), *columns], pk_is_handle=True), table([column(T.LONG, name="id")], pk_is_handle=True)
    reader = ArrowReader(wanted_of(parse_schema(schemas_of("s", "t", info, PLAIN).value)), lambda _: schemas_of("s", "t", old, PLAIN).value)
    found = reader.decode(pa.array([value_of(old, 1, 1)])).to_pylist()
    assert found == [{"id": 1, "now": None, "b": 5, "u": Decimal((1 << 64) - 1), "d": 1e-7, "v": "x", "raw": b"x"}]


def test_nothing() -> None:
    info = table([column(T.LONG, name="id")], pk_is_handle=True)
    reader = ArrowReader(wanted_of(parse_schema(schemas_of("s", "t", info, PLAIN).value)), lambda _: "")
    assert reader.decode(pa.array([], pa.binary())).to_pylist() == []
    assert reader.decode(pa.array([None], pa.binary())).to_pylist() == [None]
    for data in (b"", b"\0\0\0\0", b"\1\0\0\0\1x"):
        with pytest.raises(AvroMessageError, match="byte 0"):
            reader.decode(pa.array([data]))


@pytest.mark.parametrize("seed", range(4))
def test_broken_messages(seed: int) -> None:
    """Both readers refuse the same messages."""
    rng = random.Random(seed)
    wanted = [want for want in avro.expected()[avro.STRINGS] if want.value and want.value_id]
    refused = 0
    for _ in range(150):
        want = rng.choice(wanted)
        text, data = avro.schemas()[avro.STRINGS, want.value_id or 0][0], bytearray(want.value or b"")
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(5, len(data) + 1)
            data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))

        def plain_refuses(data: bytes = bytes(data), text: str = text) -> bool:
            try:
                AvroReader(lambda _: text).decode(data)
            except AvroMessageError as error:
                return " is not " not in error.message  # the bytes are whole, but no number
            return False

        refuses = plain_refuses()
        refused += refuses
        try:
            ArrowReader([], lambda _number, text=text: text).decode(pa.array([bytes(data)]))
            assert not refuses
        except MalformedMessage:
            assert refuses
    assert refused > 50
