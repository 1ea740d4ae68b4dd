"""Typed arrays of messages, column by column: what decoding one message after the other gives, for TiCDC's and for broken ones."""

from __future__ import annotations

import random
import re

import pyarrow as pa
import pytest

from tests.support.golden import ticdc
from tests.support.golden.open_options import golden, message
from tests.support.rows.mutation import mutated
from tests.support.thorough import few_of
from tidemill.errors import MalformedMessage
from tidemill.kernels.decode import open_columns
from tidemill.kernels.decode.open_columns import decode_array
from tidemill.protocols.common.typed import caster
from tidemill.protocols.open.arrow import decode_plainly, event_type
from tidemill.protocols.open.codes import ColumnFlag, ColumnType
from tidemill.protocols.open.decode import RowEvent, decode
from tidemill.protocols.open.encode import framed

LINES = [line for line in ticdc.lines("open") if line["kind"] != "config"]


def arrays(messages: list[tuple[bytes | None, bytes | None]]) -> tuple[pa.Array, pa.Array]:
    return pa.array([k for k, _ in messages], pa.binary()), pa.array([v for _, v in messages], pa.binary())


def wanted_type(rng: random.Random, code: int, flags: int) -> pa.DataType:
    """A type that a user may want for a column."""
    match code:
        case ColumnType.DECIMAL:
            return rng.choice((pa.decimal128(38, 20), pa.string(), pa.decimal128(12, 2)))
        case ColumnType.FLOAT | ColumnType.DOUBLE:
            return rng.choice((pa.float64(), pa.float32()))
        case ColumnType.DATE:
            return rng.choice((pa.date32(), pa.string()))
        case ColumnType.DATETIME | ColumnType.TIMESTAMP:
            return rng.choice((pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.string()))
        case ColumnType.TIME | ColumnType.JSON | ColumnType.VECTOR:
            return rng.choice((pa.string(), pa.duration("us") if code == ColumnType.TIME else pa.string()))
        case ColumnType.VARCHAR | ColumnType.CHAR | ColumnType.TINYTEXT | ColumnType.TEXT | ColumnType.MEDIUMTEXT | ColumnType.LONGTEXT:
            return pa.binary() if flags & ColumnFlag.BINARY else rng.choice((pa.string(), pa.binary()))
    return rng.choice((pa.int64(), pa.int32(), pa.bool_(), pa.float64(), pa.decimal128(20, 0)))


def tables() -> dict[tuple[str, str], list[tuple[bytes, bytes]]]:
    """Messages of each table of the golden files, in order, DDLs and resolved events with all."""
    found: dict[tuple[str, str], list[tuple[bytes, bytes]]] = {}
    for line in LINES:
        (event,) = decode(*message(line))
        if isinstance(event, RowEvent):
            found.setdefault((event.schema, event.table), []).append(message(line))
    return found


def schema_of(rng: random.Random, messages: list[tuple[bytes, bytes]]) -> pa.StructType:
    columns = {}
    for m in messages:
        (event,) = decode(*m)
        columns |= {c.name: c for c in (*event.after, *event.before)}  # type: ignore[union-attr]
    chosen = [c for c in columns.values() if rng.random() < 0.7] or list(columns.values())
    return pa.struct([(c.name, wanted_type(rng, int(c.type), int(c.flags))) for c in chosen] + [("younger", pa.int64())])


def outcome(work: object, *args: object, **options: object) -> object:
    try:
        return work(*args, **options)  # type: ignore[operator]
    except MalformedMessage as error:
        return str(error)


@pytest.mark.slow
@pytest.mark.parametrize("seed", few_of(range(3), 1))
def test_tables_of_ticdc(seed: int) -> None:
    rng = random.Random(seed)
    others = [*[message(line) for line in LINES if line["kind"] != "row"][:5], (None, None), message(LINES[0])]
    quick = 0
    for name, messages in tables().items():
        schema = schema_of(rng, messages)
        for table in (None, name):
            mixed = [*messages[:40], *(others if table else others[:6])]
            keys, values = arrays(mixed)
            want = outcome(decode_plainly, keys, values, schema, table=table)
            assert outcome(decode_array, keys, values, schema, table=table) == want
            found = open_columns.read(keys, values, event_type(schema), schema, table, whole=False)
            quick += found is not None
            assert found is None or found == want
    assert quick > 60


def test_batches_and_slices() -> None:
    schema = pa.struct([("id", pa.int64()), ("u", pa.int32()), ("v", pa.string())])
    messages = [
        (ticdc.raw(m["key"]), ticdc.raw(m["value"])) for b in ticdc.lines("batches") if b["case"] == "dml_shapes" for m in b["messages"]
    ]
    keys, values = arrays(messages)
    for table in (None, ("pub", "shapes")):
        want = decode_plainly(keys, values, schema, table=table)
        assert open_columns.read(keys, values, event_type(schema), schema, table, whole=False) == want
        assert open_columns.read(keys[2:7], values[2:7], event_type(schema), schema, table, whole=False) == want[2:7]
    empty = arrays([])
    assert decode_array(*empty, schema).to_pylist() == []
    assert decode_array(*arrays([(None, None)]), schema).to_pylist() == [None]


def test_other_json_is_read_by_the_reference() -> None:
    """Each of these is out of the ordinary, and comes out as the reference says."""
    key = b'{"ts":5,"scm":"s","tbl":"t","t":1}'
    schema = pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.date32()), ("d", pa.binary())])
    for value in (
        b'{"u":{"a":{"t":8,"f":1,"v":18446744073709551615}}}',
        b'{"u":{"a":{"t":8,"f":1,"v":"5"}}}',
        b'{"u":{"a":{"t":15,"f":0,"v":"5"}}}',
        b'{"u":{"b":{"t":3,"f":0,"v":5}}}',
        b'{"u":{"b":{"t":3,"f":0,"v":"5"}}}',
        b'{"u":{"b":{"t":15,"v":"YWE="}}}',
        b'{"u":{"b":{"f":0,"v":"x"}}}',
        b'{"u":{"c":{"t":10,"f":1,"v":"0000-00-00"}}}',
        b'{"u":{"c":{"t":10,"f":1,"v":"2021-02-30"}}}',
        b'{"u":{"c":{"t":10,"f":1,"v":"soon"}}}',
        b'{"u":{"d":{"t":252,"f":1,"v":"!"}}}',
        b'{"u":{"d":{"t":15,"f":1,"v":"\\\\q"}}}',
        b'{"u":{},"d":{}}',
        b'{"p":{}}',
        b'{"u":{"a":{"t":3,"f":0,"v":1},"a":{"t":3,"f":0,"v":2}}}',
        b'{"u":[]}',
        b'{"u":1}',
        b'{"q":"x","t":1}',
    ):
        keys, values = arrays([framed(key, value)])
        assert outcome(decode_array, keys, values, schema) == outcome(decode_plainly, keys, values, schema), value


@pytest.mark.parametrize(
    "value",
    [
        b'{"u":{"b":{"t":15,"f":0,"v":"a\xffb"}}}',
        b'{"u":{"d":{"t":252,"f":0,"v":"YW\xff="}}}',
        b'{"u":{"d":{"t":15,"f":1,"v":"\xed\xa0\x80"}}}',
        b'{"u":{"b":{"t":15,"f":0,"v":"a\nb"}}}',
        b'{"u":{"b":{"t":15,"f":0,"v":"a\rb"}}}',
        b'{"u":{"b":{"t":15,"f":0,"v":"a\tb"}}}',
        b'{"u":{"b":{"t":15,"f":0,"v":"a\x00b"}}}',
        b'{"u":{"a\n":{"t":15,"f":0,"v":"ab"}}}',
        b'{"u":{"other":{"t":15,"f":0,"v":"\xc0\x80"}}}',
        b'{"u":{"b":{"t":15,"f":0,"v":"\xf4\x90\x80\x80"}}}',
        b'{"u":{"b":{"t":15,"f":0,"v":"\xe2\x82"}}}',
    ],
)
def test_bytes_that_are_no_json_text_are_refused(value: bytes) -> None:
    """What is not UTF-8, and line breaks inside of strings: refused as the reference does, not taken for other text."""
    key = b'{"ts":5,"scm":"s","tbl":"t","t":1}'
    schema = pa.struct([("a", pa.int64()), ("b", pa.string()), ("d", pa.binary())])
    keys, values = arrays([framed(key, value)])
    assert "message 0 of the batch: message value, byte" in str(outcome(decode_plainly, keys, values, schema))
    assert outcome(decode_array, keys, values, schema) == outcome(decode_plainly, keys, values, schema)
    keys, values = arrays([framed(key.replace(b'"s"', b'"s\xff"'), b'{"u":{"a":{"t":3,"f":0,"v":1}}}')])
    assert outcome(decode_array, keys, values, schema) == outcome(decode_plainly, keys, values, schema)


def test_line_breaks_between_tokens_are_blanks() -> None:
    key, value = b'{"ts":5,\r\n"scm":"s","tbl":"t","t":1}\n', b'{"u":\n{"a":{"t":3,"f":0,"v":1}}}'
    found = decode_array(*arrays([framed(key, value)]), pa.struct([("a", pa.int64())]))
    assert found.to_pylist()[0][0]["after"] == {"a": 1}


@pytest.mark.parametrize("seed", range(2))
def test_broken_messages_have_the_same_end(seed: int) -> None:
    rng = random.Random(seed)
    lines = [line for line in golden()["only-updated"] + golden()["snappy"][:20] if "error" not in line]
    schema = pa.struct([("id", pa.int64()), ("a", pa.int64()), ("e", pa.string()), ("c", pa.decimal128(30, 10))])
    for kind in schema:
        caster(kind.type)
    refused = 0
    for _ in range(300):
        messages = [message(rng.choice(lines)) for _ in range(3)]
        at = rng.randrange(3)
        messages[at] = (mutated(rng, messages[at][0]), mutated(rng, messages[at][1]))
        keys, values = arrays(messages)
        want = outcome(decode_plainly, keys, values, schema)
        got = outcome(decode_array, keys, values, schema)
        assert got == want or not_looked_at(want, schema), want
        refused += isinstance(want, str)
    assert refused > 100


def not_looked_at(want: object, schema: pa.StructType) -> bool:
    """Whether the reference refused a column that is not wanted, or one that has no value."""
    if not isinstance(want, str):
        return False
    field = re.search(r"byte \d+, [upd]\.(.*?)(?:\.\w)?: ", want)
    return field is not None and (field[1] not in [f.name for f in schema] or "the column has no value" in want)
